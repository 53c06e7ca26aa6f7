// Package session runs one sandboxed command from its start to the last thing
// removed: it brings up the gate and the sandbox at the same time, hands the
// sealed policy over, lets the command start when every control has been read
// back, passes signals and the exit code, and undoes all of it.
//
// It decides nothing about what is allowed: that is in the policy.Policy it is
// given.
package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/cmd/ai-sandbox/internal/publish"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// Exit codes of ai-sandbox itself (podman-run(1) for the first three).
const (
	ExitFailed      = 125
	ExitInterrupted = 130
	ExitUnenforced  = spec.ExitUnenforced
	ExitBadSpec     = spec.ExitBadSpec
)

// graceTime is how long a command may take to end after SIGTERM or SIGHUP;
// drainTime how long its last output may take after it has ended; lostTime how long its
// end may stay unsaid after that of its streams.
const (
	graceTime = 10 * time.Second
	drainTime = 10 * time.Second
	lostTime  = time.Second
)

// A Manager knows where sessions live on this machine.
type Manager struct {
	Store *store.Store
	// RuntimeDir holds the control channels, StateDir the gates' files.
	RuntimeDir string
	StateDir   string
	// Retention bounds what is kept of ended sessions.
	Retention trace.Retention
	// UpstreamAuth is what a gate shows to the upstream proxy of a policy, if anything.
	UpstreamAuth policy.Secret
	// Say prints a line for people.
	Say func(format string, a ...any)
	// downTime is another patience than downTime, for tests.
	downTime time.Duration
}

// A Terminal is the caller's terminal, when the command gets one.
type Terminal interface {
	// Raw makes every byte pass through; restore undoes it.
	Raw() (restore func() error, err error)
	Size() (cols, rows int, err error)
	// Resized delivers one value for each change of the size.
	Resized() <-chan os.Signal
}

// A Request is one run.
type Request struct {
	Policy policy.Policy
	// Values are the values of the variables that the policy passes by name.
	Values map[string]policy.Secret
	// Redact takes the secrets among them out of what is written down and told;
	// nil takes out nothing.
	Redact *policy.Redactor
	// Project is the identity of the project directory when the policy was
	// decided.
	Project spec.Bind
	// Home is the user's: what ~ stands for in git's configuration.
	Home string
	// SandboxImage and GateImage are image ids; "" on a runtime without images.
	SandboxImage string
	GateImage    string
	// EngineVersion is that of a gate engine that is in no image.
	EngineVersion string
	// Hold runs no command: the session lasts until a signal ends it, and
	// others are run in it (see Manager.Exec).
	Hold bool
	// Keep leaves the sandbox's container, and a home of its own, for looking into.
	Keep bool
	// Trial leaves alone what earlier sessions have left: who tries only looks.
	Trial bool
	// Sandbox makes the session one that outlives the command that started it,
	// and Ready is called with its handle when it can be used; an error of that
	// ends it. Both or neither.
	Sandbox  *Sandbox
	Ready    func(Handle) error
	Streams  backend.Streams
	Terminal Terminal // nil: none
	// Signals are those that the caller got for the command.
	Signals <-chan os.Signal
	// Start is when the program began, for the report's timings.
	Start time.Time
}

// Who ended a run.
const (
	EndedByCommand    = "command"
	EndedByEntrypoint = "entrypoint" // a control did not hold
	EndedBySignal     = "signal"     // of the caller, before the command ran or after its grace
	EndedByGate       = "gate"       // the gate died
	EndedByLoss       = "loss"       // podman, conmon or the container was lost
	EndedByOutput     = "output"     // nobody reads the output any more
	EndedByTime       = "time"       // the policy's limit
	EndedByUs         = "ai-sandbox"
)

// A Report says who ended a run and why.
type Report struct {
	Version  int    `json:"version"`
	Session  string `json:"session"`
	ExitCode int    `json:"exit_code"`
	EndedBy  string `json:"ended_by"`
	Reason   string `json:"reason,omitempty"`
	Control  string `json:"control,omitempty"` // the one that did not hold
	Signal   int    `json:"signal,omitempty"`  // that the command died by
	// KeepRoot: the command was uid 0 inside.
	KeepRoot bool `json:"keep_root,omitempty"`
	// Learning: every public host was let through (net learn).
	Learning bool `json:"learning,omitempty"`
	// Refused are the hosts that the gate refused.
	Refused []gate.RefusedHost `json:"refused"`
	// Published are the ports inside that were reached from outside.
	Published []Published `json:"published,omitempty"`
	// RefusedMore counts refusals of hosts beyond those in Refused.
	RefusedMore int `json:"refused_more,omitempty"`
	// Used are the hosts that the gate let through, and UsedMore counts connections to
	// hosts beyond those.
	Used     []gate.UsedHost `json:"used,omitempty"`
	UsedMore int             `json:"used_more,omitempty"`
	// Blocked are packets past the gate, which the kernel refused, by where they were
	// to go; BlockedMore counts those beyond. Where there is no network device, none
	// can be sent and there is nothing to count.
	Blocked     []Blocked `json:"blocked,omitempty"`
	BlockedMore int       `json:"blocked_more,omitempty"`
	// Learned are the entries that a list would need for what net learn let through, and
	// LearnedOdd the hosts among it that none can name.
	Learned    []string        `json:"learned,omitempty"`
	LearnedOdd []gate.UsedHost `json:"learned_odd,omitempty"`
	// Changes are what was changed of the lists from outside, while it ran.
	Changes []Change `json:"changes,omitempty"`
	// LogFull: the gate's log has reached its bound, and not everything is in it.
	LogFull bool `json:"log_full,omitempty"`
	// Changed are files of the project that appeared or changed while the command
	// ran, and that tools on this machine run or obey; ChangedMore counts those
	// beyond, and ChangedPartly says that not everything was looked at.
	Changed       []protect.Change `json:"changed,omitempty"`
	ChangedMore   int              `json:"changed_more,omitempty"`
	ChangedPartly bool             `json:"changed_partly,omitempty"`
	// Home has the files of the host's that are not in the sandbox's home as the
	// host has them.
	Home []spec.HomeNote `json:"home,omitempty"`
	// Leftover is what could not be removed.
	Leftover string `json:"leftover,omitempty"`
	// Timings are milliseconds since the program began, but for what docs/integration.md
	// says is how long something took.
	Timings map[string]float64 `json:"timings_ms"`
}

// NewID is a fresh session id: 12 hex digits.
func NewID() string {
	var b [6]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// run is one session while it lasts.
type run struct {
	m   *Manager
	be  backend.Backend
	req Request
	id  string

	ctl  *control
	gate *runningGate
	// shared is the named gate.
	shared store.Record
	ports  [2]uint16 // of the session's squids there, the front one's first
	// gateLog is there where there is a gate.
	gateLog *gateLog
	// canary is there while the sandbox starts, unless nothing is shut.
	canary *canary
	// execs runs further commands, once a sandbox is ready. They have the sealed
	// environment and working directory.
	execs   *execServer
	env     []string
	workdir string
	// endGate removes the gate's container, once; it may be called beside
	// anything else.
	endGate func() error
	// logged is what awaitLogged does.
	logged sync.Once
	// inward is the way in where this process listens at the published ports.
	inward *publish.Server
	hello  string

	// upstream gets what is wrong with the policy's proxy, or nil.
	upstream chan error

	// trace is what is kept of the session, and policied tells whether the policy
	// has got into it.
	trace    *trace.Writer
	policied func() error
	kept     bool

	// held are the project's protected paths, and binds what they were.
	held  *protect.Hold
	binds []spec.Bind

	undo   undo
	report Report
	mu     sync.Mutex // of report.Timings
}

// Run starts the command and returns when everything is gone again. The error
// is nil when the command ran and ended, whatever its exit code.
func (m *Manager) Run(ctx context.Context, be backend.Backend, req Request) (rep Report, err error) {
	r := &run{m: m, be: be, req: req, id: NewID(), upstream: make(chan error, 1)}
	if req.Sandbox != nil {
		r.id = req.Sandbox.ID
	}
	r.report = Report{Version: 1, Session: r.id, KeepRoot: req.Policy.KeepRoot, Learning: req.Policy.Net.Learn, ExitCode: ExitFailed, EndedBy: EndedByUs,
		Refused: []gate.RefusedHost{}, Timings: map[string]float64{}}
	var reaped <-chan struct{}
	if !req.Trial {
		reaped = m.reapLater(ctx, be)
	}
	err = r.all(ctx)
	if r.ctl != nil {
		r.ctl.Close() // the agent ends before anything else is done
	}
	r.settleLog()
	r.tellUpstream()
	if uerr := r.undo.run(); uerr != nil {
		r.report.Leftover = uerr.Error()
		m.Say("not everything could be removed: %v; the next command tries again", uerr)
	}
	r.mark("removed")
	if !req.Trial {
		<-reaped
	}
	if err != nil && r.report.Reason == "" {
		r.report.Reason = err.Error()
	}
	r.report = r.report.redacted(req.Redact)
	r.traceEnd()
	if req.Sandbox != nil {
		err = errors.Join(err, r.ended())
	}
	return r.report, err
}

// mark notes when something was done.
func (r *run) mark(what string) {
	if r.trace != nil {
		r.trace.Add(trace.Event{Event: what})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Timings[what] = float64(time.Since(r.req.Start).Microseconds()) / 1000
}

// all is the session, up to the moment when only the undoing is left.
func (r *run) all(ctx context.Context) error {
	attendCtx := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.prepare(); err != nil {
		return err
	}
	// A signal before the command runs ends the start.
	early := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-early:
				return
			case s := <-r.req.Signals:
				if ends(s) {
					cancel(interrupted{s})
					return
				}
			}
		}
	}()
	b := backend.Sandbox{
		Name: "aisb-" + r.id, Session: r.id, Image: r.req.SandboxImage,
		Policy: r.req.Policy.Filled(r.id, 0), ControlDir: r.ctl.dir, TTY: r.req.Terminal != nil,
	}
	up, err := r.start(ctx, b)
	close(early)
	<-stopped
	var late interrupted
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		return r.failed(cause)
	case err != nil:
		return r.failed(err)
	case errors.As(cause, &late):
		// It came when the command was let go: it is the command's.
		return r.attend(attendCtx, up, late.sig)
	}
	return r.attend(attendCtx, up, nil)
}

// interrupted is the cause of a start that a signal ended.
type interrupted struct{ sig os.Signal }

func (i interrupted) Error() string { return fmt.Sprintf("ended by %s before the command ran", i.sig) }

// failed fills the report in for a start that did not come to the command.
func (r *run) failed(err error) error {
	var in interrupted
	var ref *refusedError
	switch {
	case errors.As(err, &in):
		r.report.EndedBy = EndedBySignal
		r.report.ExitCode = ExitInterrupted
		if s, ok := in.sig.(syscall.Signal); ok {
			r.report.ExitCode = 128 + int(s)
		}
	case errors.As(err, &ref):
		r.report.EndedBy = EndedByEntrypoint
		r.report.ExitCode = ref.Code
		r.report.Control = ref.Control
		r.report.Reason = ref.Reason
	}
	return err
}

// A refusedError is the entrypoint's word that a control did not hold.
type refusedError struct{ spec.Refused }

func (e *refusedError) Error() string {
	return fmt.Sprintf("the sandbox was not enforced (%s): %s; the command was not run", e.Control, e.Reason)
}

// prepare makes the record and the directories, so that whatever follows can
// be found and removed by a later command if this one is killed.
func (r *run) prepare() error {
	rec := r.record()
	rec.Runtime, rec.Project = r.req.Policy.Runtime, r.req.Policy.Project
	rec.Keep = r.req.Keep
	rec.Containers = []string{"aisb-" + r.id, "aisb-gate-" + r.id}
	rec.Dirs = []string{filepath.Join(r.m.RuntimeDir, r.id), r.m.gateLogs(r.id)}
	if rec.Gate = r.req.Policy.Net.GateName; rec.Gate != "" {
		var err error
		if r.shared, err = r.m.findGate(r.req.Policy.Net); err != nil {
			return err
		}
		ports, release, err := holdPorts(2, r.taken)
		if err != nil {
			return err
		}
		r.undo.push("let the gate's ports go", func(context.Context) error {
			release()
			return nil
		})
		r.ports, rec.GatePort = [2]uint16(ports), ports[0]
		conf, log := sharedDirs(r.shared, r.id)
		rec.Containers, rec.Dirs = rec.Containers[:1], append(rec.Dirs, conf, log)
	}
	filled := r.req.Policy.Filled(r.id, 0)
	if filled.Home.Ephemeral {
		rec.Volumes = []string{filled.Home.Volume}
	} else {
		rec.Home = filled.Home.Volume
	}
	if err := r.m.Store.Owner(&rec); err != nil {
		return err
	}
	// Before the record: what a session that lives stands on is known.
	if err := r.note(); err != nil {
		return err
	}
	if err := r.m.Store.Put(rec); err != nil {
		return err
	}
	if sb := r.req.Sandbox; sb != nil {
		sb.rec = rec // it stays, see ended
	} else {
		r.undo.last = undoStep{"remove the record", func(context.Context) error { return r.settle(rec) }}
	}
	if err := r.traceBegin(rec); err != nil {
		return err
	}
	if err := r.hold(rec); err != nil {
		return err
	}
	if err := os.MkdirAll(rec.Dirs[0], 0o700); err != nil {
		return fmt.Errorf("make the session's directory: %w", err)
	}
	for _, d := range rec.Dirs[:2] {
		r.undo.push("remove the session's directory", func(context.Context) error { return os.RemoveAll(d) })
	}
	for _, v := range rec.Volumes {
		if r.req.Keep {
			break
		}
		r.undo.push("remove the home volume", func(ctx context.Context) error { return r.be.RemoveVolume(ctx, v) })
	}
	ctl, err := newControl(filepath.Join(r.m.RuntimeDir, r.id, "control"))
	if err != nil {
		return err
	}
	r.ctl = ctl
	// Before anything sees the directory; it ends with the session's.
	if err := os.WriteFile(filepath.Join(ctl.dir, policy.GuideName), []byte(r.req.Policy.Guide()), 0o400); err != nil {
		return fmt.Errorf("write the guide: %w", err)
	}
	r.undo.push("end the lifeline", func(context.Context) error {
		ctl.Close()
		return nil
	})
	if r.req.Policy.Net.Gated() {
		if r.gateLog, err = r.newGateLog(); err != nil {
			return err
		}
	}
	if r.req.Policy.Net.Mode == policy.NetUnix {
		if err := os.Mkdir(r.gateDir(), 0o700); err != nil {
			return fmt.Errorf("make the gate's directory: %w", err)
		}
	}
	if err := r.publish(); err != nil {
		return err
	}
	if r.canary, err = r.newCanary(); err != nil {
		return err
	}
	r.undo.push("end the canary", func(context.Context) error {
		r.canary.close()
		return nil
	})
	return nil
}

// gateDir holds the gate's socket with policy.NetUnix; it is bound into the
// sandbox.
func (r *run) gateDir() string { return filepath.Join(r.m.RuntimeDir, r.id, "gate") }

// started is a sandbox whose command runs.
type started struct {
	id       string
	frames   <-chan spec.ToHost // closed when the guest is gone
	attached <-chan error       // the output has ended
	sent     chan error         // the spec is written, or can't be
	restore  func() error
}

// start brings both containers up at once and lets the command start. Whatever
// can be done beside something else is: this is what a user waits for.
func (r *run) start(ctx context.Context, b backend.Sandbox) (*started, error) {
	type gateResult struct {
		g   *runningGate
		err error
	}
	gates := make(chan gateResult, 1)
	// A gate that is a container takes longer until it can be used than the
	// sandbox does, and a backend makes one container after the other: the
	// sandbox's comes when the gate's is on its way, and its port is fixed.
	ports := make(chan uint16, 1)
	gateUndo := &undo{}
	go func() {
		defer close(ports)
		var res gateResult
		if r.req.Policy.Net.Gated() {
			res.g, res.err = r.bringGate(ctx, gateUndo, func(port uint16) { ports <- port })
			r.mark("gate")
		} else {
			ports <- 0
		}
		gates <- res
	}()

	up, boxUndo, boxErr := r.bringSandbox(ctx, b, ports)
	r.mark("sandbox")
	if boxErr == nil {
		boxErr = r.enforced(ctx, up, b)
	}
	res := <-gates
	r.gate = res.g
	r.endGate = sync.OnceValue(gateUndo.run)
	// Both containers are removed at once, whatever became of them.
	r.undo.push("remove the containers", func(context.Context) error {
		r.ctl.Close() // the end of the lifeline is quicker than podman
		var wg sync.WaitGroup
		errs := make([]error, 3)
		// The gate's half a hundred files are not needed any more, either.
		files := func() error { return os.RemoveAll(filepath.Join(r.m.RuntimeDir, r.id, FirstGate)) }
		for i, end := range []func() error{boxUndo.run, r.endGate, files} {
			wg.Go(func() { errs[i] = end() })
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if boxErr != nil || res.err != nil {
		return nil, errors.Join(boxErr, res.err)
	}
	select {
	case <-r.gateEnded():
		return nil, errors.New("the gate ended while the sandbox started")
	default:
	}
	if err := r.ctl.Unlink(); err != nil {
		return nil, err
	}
	r.published()
	r.tellUpstream() // before the terminal is the command's
	if t := r.req.Terminal; t != nil {
		restore, err := t.Raw()
		if err != nil {
			return nil, fmt.Errorf("set the terminal up: %w", err)
		}
		up.restore = restore
		r.undo.push("restore the terminal", func(context.Context) error {
			if err := restore(); !errors.Is(err, syscall.EIO) { // it has gone away
				return err
			}
			return nil
		})
		if !r.be.Capabilities().OwnTerminal { // else it was in the spec
			r.resize(ctx, up.id)
		}
	}
	if err := r.held.Begin(); err != nil {
		return nil, err
	}
	if err := r.policied(); err != nil {
		return nil, err
	}
	if test := r.gateTest(); test != nil {
		if err := r.ctl.Send(spec.ToGuest{Gate: test}); err != nil {
			return nil, err
		}
	}
	if err := r.ctl.Send(spec.ToGuest{Go: true}); err != nil {
		return nil, err
	}
	r.mark("go")
	return up, nil
}

// bringSandbox makes the sandbox's container when the gate's port has come,
// attaches and starts it, with its spec on the way.
func (r *run) bringSandbox(ctx context.Context, b backend.Sandbox, ports <-chan uint16) (*started, *undo, error) {
	u := &undo{}
	home := b.Policy.Home
	var owner string
	labels := map[string]string{backend.LabelHomeLayout: image.HomeLayout}
	if home.Ephemeral {
		owner = r.id
	} else {
		labels[backend.LabelProject] = b.Policy.Project
	}
	layout, err := r.be.EnsureHome(ctx, home.Volume, owner, labels)
	if err != nil {
		return nil, u, err
	}
	if layout != image.HomeLayout {
		r.m.Say("the home volume %s has layout %q and the image %q: what the image changed in the home is not seen until the volume is removed", home.Volume, layout, image.HomeLayout)
	}
	var port uint16
	select {
	case p, ok := <-ports:
		if !ok {
			return nil, u, nil // the gate's error says it
		}
		port = p
	case <-ctx.Done():
		return nil, u, ctx.Err()
	}
	sealed, err := r.sealed(b, port)
	if err != nil {
		return nil, u, err
	}
	if err := spec.Validate(*sealed); err != nil {
		return nil, u, fmt.Errorf("seal the policy: %w", err)
	}
	u.push("remove the sandbox", func(ctx context.Context) error { return r.endBox(ctx, b.Name) })
	id, err := r.be.CreateSandbox(ctx, b)
	if err != nil {
		return nil, u, err
	}
	up := &started{id: id, sent: make(chan error, 1)}
	attached := make(chan error, 1)
	up.attached = attached
	ready := make(chan struct{})
	go func() { attached <- r.be.Attach(context.WithoutCancel(ctx), id, b.TTY, r.req.Streams, ready) }()
	select {
	case <-ready:
	case err := <-attached:
		if err == nil {
			err = errors.New("the container's streams ended before it started")
		}
		return nil, u, err
	case <-ctx.Done():
		return nil, u, ctx.Err()
	}
	frames := make(chan spec.ToHost, 4)
	up.frames = frames
	go func() {
		defer close(frames)
		for {
			f, err := r.ctl.Recv()
			if err != nil {
				return
			}
			frames <- f
		}
	}()
	// It waits in the FIFO; what does not fit waits for the entrypoint.
	go func() { up.sent <- r.ctl.Send(spec.ToGuest{Spec: sealed}) }()
	if err := r.be.Start(ctx, id); err != nil {
		return nil, u, err
	}
	return up, u, nil
}

// enforceTime bounds the time from a sandbox's start until every control holds,
// which takes some milliseconds.
const enforceTime = time.Minute

// enforced waits until the entrypoint has installed and read back every control,
// and reads the sandbox back from outside meanwhile.
func (r *run) enforced(ctx context.Context, up *started, b backend.Sandbox) error {
	if up == nil {
		return nil // there is no sandbox, since there is no gate
	}
	ctx, cancel := context.WithTimeoutCause(ctx, enforceTime, errors.New("the sandbox's entrypoint did not answer"))
	defer cancel()
	early := r.be.Capabilities().VerifyEarly
	verified := make(chan error, 1)
	verify := func() { verified <- r.be.Verify(ctx, up.id, b) }
	if early {
		go verify()
	}
	err := r.awaitEnforced(ctx, up)
	if err == nil {
		r.mark("enforced")
		err = <-up.sent
		began := time.Now()
		err = errors.Join(err, r.canary.sings())
		r.tested(time.Since(began))
	}
	r.canary.close()
	if err == nil && r.inward != nil {
		err = r.inward.Meet()
	}
	switch {
	case early:
		// The entrypoint's own word comes first: it knows more, but of a mount,
		// whose origin is seen from outside.
		var ref *refusedError
		switch verr := <-verified; {
		case err == nil:
			err = verr
		case verr != nil && errors.As(err, &ref) && ref.Control == "mounts":
			err = fmt.Errorf("%w: %w", err, verr)
		}
	case err == nil:
		verify()
		err = <-verified
	}
	return err
}

// awaitEnforced waits for the entrypoint's word that every control holds.
func (r *run) awaitEnforced(ctx context.Context, up *started) error {
	attached := up.attached
	for {
		select {
		case f, ok := <-up.frames:
			switch {
			case !ok:
				return errors.New("the sandbox ended before it was enforced")
			case f.Refused != nil:
				return &refusedError{*f.Refused}
			case f.Enforced != nil:
				r.mu.Lock()
				r.report.Timings["entrypoint"] = float64(f.Enforced.Micros) / 1000
				r.report.Home = f.Enforced.Home
				r.mu.Unlock()
				return nil
			}
		case <-attached:
			// The container has ended; its last word may still be in the FIFO.
			attached = nil
			r.ctl.guestHere()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// gateEnded never fires without a gate.
func (r *run) gateEnded() <-chan struct{} {
	if r.gate == nil {
		return nil
	}
	return r.gate.ended
}

// sealed is the message to the entrypoint.
func (r *run) sealed(b backend.Sandbox, port uint16) (*spec.Spec, error) {
	p := r.req.Policy.Filled(r.id, port)
	uid, gid := p.User()
	s := &spec.Spec{
		Version: spec.Version, Session: r.id, Isolation: p.Isolation,
		Command: p.Command, Workdir: p.Workdir, Hold: r.req.Hold,
		UID: uid, GID: gid, KeepRoot: p.KeepRoot, TTY: b.TTY,
		Firewall: spec.Firewall{Mode: p.Net.Mode},
		Env:      environ(p.Env, r.req.Values),
	}
	if r.req.Hold {
		s.Command = nil
	}
	if r.canary != nil {
		s.Canary = &r.canary.Canary
	}
	r.env, r.workdir = s.Env, s.Workdir
	switch p.Net.Mode {
	case policy.NetGated:
		s.Firewall.GateAddr, s.Firewall.GatePort = policy.GateAddr, port
		s.Firewall.Published = Inside(p.Publish)
	case policy.NetUnix:
		s.Relay = &spec.Relay{Port: policy.RelayPort, Socket: policy.GateSocket}
		if r.inward != nil {
			s.Publish = &spec.Publish{Ports: Inside(p.Publish), Hello: r.hello}
		}
	}
	if b.TTY && r.be.Capabilities().OwnTerminal {
		s.PTY = true
		if cols, rows, err := r.req.Terminal.Size(); err == nil {
			s.Cols, s.Rows = uint16(cols), uint16(rows) //nolint:gosec // of a struct winsize
		}
	}
	if p.Isolation == policy.IsolationProcess {
		var err error
		if s.Outside, err = namespaces(); err != nil {
			return nil, err
		}
		s.Groups = backend.GroupsStay()
	}
	for _, l := range p.Home.Links {
		s.Links = append(s.Links, spec.Link{Path: policy.HomeDir + "/" + l.Path, To: l.To})
	}
	for _, f := range p.Home.Seeds {
		s.Seeds = append(s.Seeds, spec.Seed{Path: policy.HomeDir + "/" + f.Path, Content: f.Content, Mode: f.Mode})
	}
	for _, f := range p.Home.Managed {
		m := spec.Managed{Home: policy.HomeDir, Path: f.Path, Content: f.Content, None: f.None, Mode: f.Mode, Keys: f.Keys}
		for _, k := range f.Fixed {
			m.Fixed = append(m.Fixed, spec.Key{Key: k.Key, Value: k.Value})
		}
		s.Managed = append(s.Managed, m)
	}
	s.Binds = append(s.Binds, r.binds...)
	for _, m := range p.Mounts {
		switch m.Kind {
		case policy.KindTmpfs:
			s.Tmpfs = append(s.Tmpfs, m.Target)
		case policy.KindSymlink, policy.KindFile:
			continue // part of the root, which is read-only
		case policy.KindProc, policy.KindSys, policy.KindDev:
			if p.Isolation == policy.IsolationContainer {
				continue // in every container: the entrypoint knows them
			}
		}
		s.Mounts = append(s.Mounts, m.Target)
		if m.ReadOnly {
			s.ReadOnly = append(s.ReadOnly, m.Target)
		}
		switch m.Why {
		case policy.WhyProject:
			s.Binds = append(s.Binds, spec.Bind{Target: m.Target, Dev: r.req.Project.Dev, Ino: r.req.Project.Ino})
		case policy.WhyControl:
			s.Binds = append(s.Binds, spec.Bind{Target: m.Target, Dev: r.ctl.id.Dev, Ino: r.ctl.id.Ino})
		default:
			if m.ID != (policy.Identity{}) {
				s.Binds = append(s.Binds, spec.Bind{Target: m.Target, Dev: m.ID.Dev, Ino: m.ID.Ino})
			}
		}
	}
	return s, nil
}

// environ is the command's environment, with the values that the policy only
// names.
func environ(list []policy.Env, values map[string]policy.Secret) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		v := e.Value
		if e.Passed() {
			v = values[e.Name].Reveal()
		}
		out = append(out, e.Name+"="+v)
	}
	return out
}

// namespaces are this process's own, for the entrypoint to be in none of them.
func namespaces() (map[string]uint64, error) {
	out := make(map[string]uint64, len(spec.Namespaces))
	for _, name := range spec.Namespaces {
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/"+name, &st); err != nil {
			return nil, fmt.Errorf("look at the namespace %s: %w", name, err)
		}
		out[name] = st.Ino
	}
	return out, nil
}

// bringGate starts the session's own gate, or finds the named one. It calls
// fixed with the gate's port as soon as that is known and its container, if it
// has one, is about to be made.
func (r *run) bringGate(ctx context.Context, u *undo, fixed func(port uint16)) (*runningGate, error) {
	net := r.req.Policy.Net
	if net.Engine == policy.EngineBuiltin {
		rg, err := r.builtinGate(ctx, net, u)
		if err == nil {
			fixed(rg.port)
		}
		return rg, err
	}
	up, err := r.m.upstream(ctx, net)
	if err != nil {
		return nil, err
	}
	r.tryUpstream(ctx, up)
	cfg := gate.Config{Allow: net.Allow, AllowPrivate: net.AllowPrivate, Upstream: up, Nonce: nonce(), PolicyHash: PolicyHash(net), Session: r.id}
	if net.GateName != "" {
		rg, err := r.joinGate(ctx, cfg, u, fixed)
		if err == nil {
			rg.settle = follow(rg.logDir, r.gateLog.decided).end
		}
		return rg, err
	}
	g := backend.Gate{Name: "aisb-gate-" + r.id, Session: r.id, Image: r.req.GateImage}
	in := place{filepath.Join(r.m.RuntimeDir, r.id), filepath.Dir(r.m.gateLogs(r.id)), r.taken}
	ready := fixed
	var rerr error
	if net.Mode == policy.NetUnix {
		// The sandbox has to find the socket from its start on.
		ready = func(port uint16) {
			if rerr = r.relay(port, u); rerr == nil {
				fixed(port)
			}
		}
	}
	rg, err := r.m.startGate(ctx, r.be, g, cfg, in, u, ready)
	if err == nil {
		rg.settle = follow(rg.logDir, r.gateLog.decided).end
	}
	return rg, errors.Join(err, rerr)
}

// settleLog ends the gate's log, before the gate is removed. The sandbox ends with its
// control channel, which is closed by now.
func (r *run) settleLog() {
	if r.gateLog == nil {
		return
	}
	var err error
	if r.gate != nil && r.gate.settle != nil {
		r.awaitLogged()
		err = r.gate.settle()
	}
	if err := errors.Join(err, r.gateLog.report(&r.report)); err != nil {
		r.m.Say("the gate's log is not whole: %v", err)
	}
}
