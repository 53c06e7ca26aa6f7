// Package backend is the contract between a session and what isolates it: the
// calls that a session makes to bring up a gate and a sandbox, look at what
// really came up, and take both down again.
//
// A backend carries out what it is handed and decides nothing. It never falls
// back to something weaker: what it cannot do as asked is an error.
package backend

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"ai-sandbox/policy"
)

// Labels that every object of ours carries.
const (
	LabelKind       = "aisb.kind"        // "sandbox", "gate" or "home"
	LabelSession    = "aisb.session"     // the session's id
	LabelGate       = "aisb.gate"        // a named gate's name
	LabelHomeLayout = "aisb.home-layout" // see image.HomeLayout
	LabelProject    = "aisb.project"     // the project's host path, on a home volume
)

// ErrNotExist is returned for a container or volume that is not there.
var ErrNotExist = errors.New("does not exist")

// ErrInUse is returned for a home that is not removed, since a container refers to it.
var ErrInUse = errors.New("is in use by a container")

// A Home is one that was found on the machine.
type Home struct {
	Name string
	// InUse: a container refers to it, whoever made that.
	InUse bool
}

// A Sandbox is what to start: the policy, and what only this start knows.
type Sandbox struct {
	Name    string // aisb-<session id>
	Session string
	Image   string // image id
	Policy  policy.Policy
	// ControlDir is the host directory with the FIFOs of entrypoint/spec.
	ControlDir string
	TTY        bool
}

// A Gate is what to start as the gate of a session, or as a named one.
type Gate struct {
	Name      string // aisb-gate-<session id or name>
	Session   string // "" for a named gate
	GateName  string // "" for a session's own
	Image     string // image id
	ConfigDir string // bound read-only
	LogDir    string // bound read-write
	// ControlDir holds the FIFOs; "" for a named gate, which has no owner.
	ControlDir string
	// Idle is for how long a named gate may be without a session before it ends itself;
	// 0 is for ever.
	Idle time.Duration
	// Unit: systemd has "podman run" make a named gate's container.
	Unit bool
}

// Capabilities are what a backend can do: data, for refusals and printouts.
type Capabilities struct {
	Runtime   string `json:"runtime"`   // policy.RuntimePodman or RuntimeLocal
	Isolation string `json:"isolation"` // policy.IsolationContainer or IsolationProcess
	Snapshots bool   `json:"snapshots"`
	// Limits are the resources that it can bound where the machine lets it
	// (LimitNames).
	Limits []string `json:"limits"`
	// Publishing tells whether a port inside can be reached from the host.
	Publishing bool `json:"publishing"`
	// Networks and GateEngines are the values of the policy that it carries out.
	Networks    []string `json:"networks"`
	GateEngines []string `json:"gate_engines"`
	// OwnTerminal: the entrypoint makes the terminal inside (spec.Spec.PTY),
	// and its size goes over the control channel instead of Resize.
	OwnTerminal bool `json:"-"`
	// VerifyEarly: Verify looks at nothing that the entrypoint changes, so that
	// it may run beside it.
	VerifyEarly bool `json:"-"`
}

// LimitNames are the limits of a policy, by their options.
var LimitNames = []string{"memory", "cpus", "pids", "time", "disk"}

// An UnsupportedError names the part of a policy that a backend cannot carry
// out. It is refused before anything is started, and never dropped.
type UnsupportedError struct{ Runtime, What string }

func (e *UnsupportedError) Error() string {
	return "the " + e.Runtime + " runtime can't do " + e.What + ": drop it, or choose another runtime with --runtime"
}

// GroupsStay tells whether this process can't let go of supplementary groups: a
// user has no privilege to, and neither has root of a user namespace that a user
// made (user_namespaces(7), /proc/PID/setgroups).
func GroupsStay() bool {
	if os.Geteuid() != 0 {
		return true
	}
	text, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(text)) == "deny"
}

// Streams are the caller's own. With TTY set, Stderr is not used.
type Streams struct {
	Stdin  io.Reader // nil: no input
	Stdout io.Writer
	Stderr io.Writer
}

// A Leftover is an object of ours that was found on the machine.
type Leftover struct {
	ID       string
	Name     string
	Session  string
	GateName string
	Running  bool
}

// A Backend starts and stops. Every method may be called from any goroutine.
type Backend interface {
	Capabilities() Capabilities
	// EnsureHome makes the home volume if it is missing. The layout is what
	// its label says, which may be older than the image's.
	EnsureHome(ctx context.Context, name, session string, labels map[string]string) (layout string, err error)
	// CreateSandbox makes the container without starting it.
	CreateSandbox(ctx context.Context, s Sandbox) (id string, err error)
	// Attach connects the streams to a created container, closes ready once
	// they are, and returns when the container's output has ended. With tty,
	// output is one stream.
	Attach(ctx context.Context, id string, tty bool, s Streams, ready chan<- struct{}) error
	Start(ctx context.Context, id string) error
	Resize(ctx context.Context, id string, cols, rows int) error
	// Verify compares what really came up with what was asked: mounts,
	// capabilities, network, pasta's own argument list.
	Verify(ctx context.Context, id string, s Sandbox) error
	// VerifyGate is Verify for a gate's container.
	VerifyGate(ctx context.Context, id string, g Gate) error
	// CreateGate makes the gate's container without starting it.
	CreateGate(ctx context.Context, g Gate) (id string, err error)
	// Exit waits for the container's end and tells its exit code.
	Exit(ctx context.Context, id string) (int, error)
	// Remove ends and removes a container at once; one that is not there is
	// no error.
	Remove(ctx context.Context, id string) error
	// RemoveVolume removes a home; one that is not there is no error, and one that
	// a container refers to is ErrInUse.
	RemoveVolume(ctx context.Context, name string) error
	// Homes are all homes of ours.
	Homes(ctx context.Context) ([]Home, error)
	// List finds every container of ours.
	List(ctx context.Context) ([]Leftover, error)
}
