// What the verbs call to look at and to do things. Wire fills it in; tests fill
// in fakes, and never see podman.

package cli

import (
	"context"
	"io"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// An Engine is everything outside this package that starts, stops or renders.
type Engine struct {
	// Image tells what a run would stand on, from the recipe and from what
	// this machine has recorded. It contacts nothing.
	Image func(ImageRequest) (ImagePlan, error)
	// Ruleset is the sandbox's ruleset in nft syntax. Pure.
	Ruleset func(policy.Policy) (string, error)
	// DryRun are the further configurations of a run. It contacts nothing.
	DryRun func(RunRequest) ([]Section, error)
	// GateNet is what the record of a named gate says that it lets through.
	GateNet func(m Machine, name string) (policy.Net, error)

	// Run runs the command, and returns its exit code, or an error with the
	// code for a failure of our own (0: the usual one).
	Run func(ctx context.Context, r RunRequest) (int, error)
	// Refused writes the report of a run in project that was refused before Run.
	Refused func(project, report string, reason error) error
	Build   func(ctx context.Context, r BuildRequest) error
	// Update brings the images up to date, or, to check, only says what that would
	// change.
	Update func(ctx context.Context, r BuildRequest, check bool) (imagebuild.Outcome, error)
	// Inspect asks the machine of an image or a session; "" is what runs stand on.
	Inspect func(ctx context.Context, r BuildRequest, what string, offline bool) (Inspection, error)
	// Images lists all images of ours, and CleanImages removes those that nothing
	// uses, and tells of each; with dry it only tells which.
	Images      func(ctx context.Context, r ImagesRequest) ([]ListedImage, error)
	CleanImages func(ctx context.Context, r ImagesRequest, dry bool, tell func(Cleaned)) error
	// Clean removes what nobody owns any more, and what else it is asked to.
	Clean func(ctx context.Context, r CleanRequest) error
	// ImageSave writes the images into a file, and ImageLoad takes them from one.
	ImageSave, ImageLoad imageFunc
	// GateUp starts a named gate.
	GateUp func(ctx context.Context, r BuildRequest, g GateRequest) error
	// GateUnit writes the quadlet of a named gate into dir, and GateUnitRemove takes that
	// and the gate's files away.
	GateUnit       func(ctx context.Context, r BuildRequest, g GateRequest, dir string) error
	GateUnitRemove func(ctx context.Context, m Machine, name string) error
	GateDown       func(ctx context.Context, m Machine, name string) error
	// GateNames are those that have a record. It contacts nothing.
	GateNames func(m Machine) ([]string, error)
	// GateGiven are the lists of a named gate as far as flags gave them: pairs of a
	// setting and its value.
	GateGiven func(m Machine, name string) ([][2]string, error)
	// GateReload gives a named gate and all that share it another list.
	GateReload func(ctx context.Context, m Machine, g GateRequest) (session.Reloaded, error)
	// NamedLog gives each event of a named gate's sessions to f. With follow it waits for
	// more until the gate has ended.
	NamedLog func(ctx context.Context, m Machine, name string, follow bool, f func(gate.Event) error) error
	GateList func(ctx context.Context, m Machine) ([]GateState, error)
	// Detach starts this program again as the supervisor of a sandbox, and gives
	// deliver the handle that it tells; without that the sandbox ends. It returns
	// the supervisor's exit code if it ends without a handle.
	Detach func(ctx context.Context, args []string, deliver func(session.Handle) error) (int, error)
	// NewSandbox makes what a sandbox has before it starts: its log, and a
	// workspace unless it works in a project.
	NewSandbox func(m Machine, workspace bool) (Sandbox, error)
	// WaitReady, WaitExit, Exec and Down are about the sandbox with that id. Exec
	// returns as Run does.
	WaitReady func(ctx context.Context, m Machine, id string) (session.Handle, error)
	WaitExit  func(ctx context.Context, m Machine, id string) (session.Report, error)
	Exec      func(ctx context.Context, m Machine, id string, command []string) (int, error)
	Down      func(ctx context.Context, m Machine, id string) error
	// Sessions lists those that are known of, the newest first; Logs is what is known
	// of one; Stop ends one that lives, and Remove takes away what is kept of one.
	Sessions func(m Machine) ([]session.Summary, error)
	Logs     func(m Machine, id string) (session.Logs, error)
	Stop     func(ctx context.Context, m Machine, id string) error
	Remove   func(ctx context.Context, m Machine, id string) error
	// GateLog gives each event of a session's gate to f; "" is the last session. With
	// follow it waits for more until the session has ended.
	GateLog func(ctx context.Context, m Machine, id string, follow bool, f func(gate.Event) error) error
	// Steer changes what a running session may reach, and tells what is in force then.
	Steer func(ctx context.Context, m Machine, id string, want session.Steering) (session.Force, error)
	// Doctor asks podman's service; it is called when nothing else is wrong.
	Doctor func(ctx context.Context, m Machine, r ImageRequest) []host.Verdict
	// AskUpstream tells whether the proxy that m's gates would go through answers, and
	// takes the credentials. answer is what is wrong with that, which refuses no run; err
	// is what refuses one.
	AskUpstream func(ctx context.Context, m Machine, u policy.Upstream) (answer, err error)
	// Trial carries the request out, whose command is trialCommand, in dir, a project of
	// its own, and judges what came of it.
	Trial func(ctx context.Context, r RunRequest, dir string) []host.Verdict
}

type imageFunc = func(ctx context.Context, r BuildRequest, path string) error

// A Machine is where and for whom something is done.
type Machine struct {
	Facts   host.Facts
	Environ config.Environ
	// Runtime is policy.RuntimePodman or policy.RuntimeLocal.
	Runtime string
	// Retention bounds what is kept of ended sessions; zero where no setting was read.
	Retention trace.Retention
	// Out and Err are for words of ours: secrets in them are hidden. Std are the
	// program's own streams, for the command of a sandbox.
	Out, Err io.Writer
	Std      Streams
	// Hide takes secrets out of a text before it is cut into lines, or drawn.
	Hide func(string) string
	// UpstreamAuth is what a gate shows to the policy's upstream proxy, if anything.
	UpstreamAuth policy.Secret
	// HideIn is Hide for a stream that is kept.
	HideIn func(io.Writer) io.WriteCloser
}

// A GateRequest is what a named gate is to be.
type GateRequest struct {
	Name string
	Net  policy.Net // its lists
	// TTL is for how long it may be without a session before it ends itself; 0 is for
	// ever.
	TTL time.Duration
	// Given are the lists as far as flags gave them: pairs of a setting and its value.
	Given [][2]string
}

// A GateState is a named gate in a list.
type GateState struct {
	Name string `json:"name"`
	// State is "up", or "down" where it does not answer.
	State        string   `json:"state"`
	Port         uint16   `json:"port"` // of 127.0.0.1
	Allow        []string `json:"allow"`
	AllowPrivate []string `json:"allow_private"`
	// TTLSeconds is for how long it may be without a session; 0 is for ever.
	TTLSeconds int64         `json:"ttl_seconds"`
	Sessions   []GateSession `json:"sessions"`
	// Unit is the quadlet with which systemd starts it, or "".
	Unit string `json:"unit,omitempty"`
}

// A GateSession is one that shares a named gate.
type GateSession struct {
	Session string `json:"session"`
	Port    uint16 `json:"port"` // its own, of 127.0.0.1
}

// A CleanRequest says what is to be removed beside what nobody owns any more.
type CleanRequest struct {
	Machine
	// All ends what runs, after Confirm has been asked about how much that is.
	All     bool
	Confirm func(running int) error
	// Homes is a pattern (path.Match) for names of homes; "" is none.
	Homes string
	// DryRun only tells what would be removed.
	DryRun bool
	// Tell is called with each thing, once it is removed or was found to stay.
	Tell func(Cleaned)
	// NoPodman is why podman, which is the chosen runtime, can't be asked; or nil.
	NoPodman error
}

// A Cleaned is a thing that a cleaning has come across. As JSON it is what docs/operations.md
// says of clean --json.
type Cleaned struct {
	// What it is ("session 0123456789ab"), and Why it goes or stays.
	What string `json:"what"`
	Why  string `json:"why"`
	// Goes: it is removed, or with DryRun it would be. Else it stays.
	Goes bool `json:"goes"`
}

// An ImageRequest is what the user says about the images.
type ImageRequest struct {
	// Base is a reference as the user wrote it. NodeVersion is "" for the
	// recipe's own.
	Base, NodeVersion, NodeMirror string
	// Keyring has the keys that sign Node's lists of checksums; nil asks for no
	// signature.
	Keyring []byte
	// Verify checks such a signature, and returns the fingerprint of the key.
	Verify func(ctx context.Context, list, signature []byte) (signer string, err error)
	// CA is an extra CA, or nil.
	CA image.CA
	// Harnesses are the set in the sandbox's image, and Apt (see image.Packages) and
	// Setup what is added to it.
	Harnesses []string
	Apt       []string
	Setup     Setup
	// CacheDir and StateDir are where downloads and records are.
	CacheDir, StateDir string
	// BaseTTL is in days (see imagebuild.Request); KeepBase and NoPull are
	// base_auto_update and base_pull_fallback, switched off.
	BaseTTL          int
	KeepBase, NoPull bool
}

// A Setup is a script that is run when the image is built. Path is as it was
// written; Text is nil where there is none.
type Setup struct {
	Path string
	Text []byte
}

// An ImagePlan is what a run would stand on.
type ImagePlan struct {
	Image policy.Image
	// Containerfile is the text that the sandbox's image is built from.
	Containerfile string
}

// A Section is one more part of a --dry-run.
type Section struct{ Title, Text string }

// A RunRequest is one run.
type RunRequest struct {
	Machine
	Policy policy.Policy
	Image  ImageRequest
	// Values are the values of the variables that the policy passes by name.
	Values map[string]policy.Secret
	// Redact takes the secrets among them out of text; nil takes out nothing.
	Redact *policy.Redactor
	// Report is the absolute path of the report, or "".
	Report string
	// Keep leaves the container and a home of its own.
	Keep bool
	// Hold: there is no command, and others are run in the sandbox.
	Hold bool
}

// A Sandbox is one that this process is about to own.
type Sandbox struct {
	// Workspace is the directory that was made for it, or "".
	Workspace string
	// Start runs it and tells its handle. It returns as Run does, when all of the
	// sandbox has ended.
	Start func(ctx context.Context, r RunRequest) (int, error)
	// Discard takes away what was made, if it is not started.
	Discard func() error
}

// A BuildRequest is one build, or what has to be built first.
type BuildRequest struct {
	Machine
	Image   ImageRequest
	Rebuild bool
	// Verbose: the build's own output is shown.
	Verbose bool
}
