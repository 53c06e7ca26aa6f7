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

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
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
// drainTime how long its last output may take after it has ended.
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
	// Say prints a line for people.
	Say func(format string, a ...any)
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
	Values map[string]string
	// Project is the identity of the project directory when the policy was
	// decided.
	Project spec.Bind
	// SandboxImage and GateImage are image ids.
	SandboxImage string
	GateImage    string
	Streams      backend.Streams
	Terminal     Terminal // nil: none
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
	// Refused are the hosts that the gate refused.
	Refused []gate.RefusedHost `json:"refused"`
	// RefusedMore counts refusals of hosts beyond those in Refused.
	RefusedMore int `json:"refused_more,omitempty"`
	// Leftover is what could not be removed.
	Leftover string `json:"leftover,omitempty"`
	// Timings are milliseconds since the program began.
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

	undo   undo
	report Report
	mu     sync.Mutex // of report.Timings
}

// Run starts the command and returns when everything is gone again. The error
// is nil when the command ran and ended, whatever its exit code.
func (m *Manager) Run(ctx context.Context, be backend.Backend, req Request) (rep Report, err error) {
	r := &run{m: m, be: be, req: req, id: NewID()}
	r.report = Report{Version: 1, Session: r.id, ExitCode: ExitFailed, EndedBy: EndedByUs,
		Refused: []gate.RefusedHost{}, Timings: map[string]float64{}}
	reaped := m.reapLater(ctx, be)
	err = r.all(ctx)
	if r.ctl != nil {
		r.ctl.Close() // the agent ends before anything else is done
	}
	r.refusals()
	if uerr := r.undo.run(); uerr != nil {
		r.report.Leftover = uerr.Error()
		m.Say("not everything could be removed: %v; the next command tries again", uerr)
	}
	r.mark("removed")
	<-reaped
	if err != nil && r.report.Reason == "" {
		r.report.Reason = err.Error()
	}
	return r.report, err
}

func (r *run) mark(what string) {
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
	rec := store.Record{
		ID: r.id, Kind: "session", Project: r.req.Policy.Project,
		Containers: []string{"aisb-" + r.id, "aisb-gate-" + r.id},
		Dirs:       []string{filepath.Join(r.m.RuntimeDir, r.id), filepath.Join(r.m.StateDir, "sessions", r.id)},
	}
	filled := r.req.Policy.Filled(r.id, 0)
	if filled.Home.Ephemeral {
		rec.Volumes = []string{filled.Home.Volume}
	}
	if err := r.m.Store.Owner(&rec); err != nil {
		return err
	}
	if err := r.m.Store.Put(rec); err != nil {
		return err
	}
	r.undo.last = undoStep{"remove the record", func(context.Context) error { return r.m.Store.Delete(rec) }}
	for _, d := range rec.Dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the session's directory: %w", err)
		}
		r.undo.push("remove the session's directory", func(context.Context) error { return os.RemoveAll(d) })
	}
	for _, v := range rec.Volumes {
		r.undo.push("remove the home volume", func(ctx context.Context) error { return r.be.RemoveVolume(ctx, v) })
	}
	ctl, err := newControl(filepath.Join(r.m.RuntimeDir, r.id, "control"))
	if err != nil {
		return err
	}
	r.ctl = ctl
	r.undo.push("end the lifeline", func(context.Context) error {
		ctl.Close()
		return nil
	})
	return nil
}

// started is a sandbox whose command runs.
type started struct {
	id       string
	frames   <-chan spec.ToHost // closed when the guest is gone
	attached <-chan error       // the output has ended
	restore  func() error
}

// start brings both containers up at once and lets the command start.
func (r *run) start(ctx context.Context, b backend.Sandbox) (*started, error) {
	type gateResult struct {
		g    *runningGate
		undo undo
		err  error
	}
	gated := r.req.Policy.Net.Mode == policy.NetGated
	gates := make(chan gateResult, 1)
	go func() {
		var res gateResult
		if gated {
			res.g, res.err = r.bringGate(ctx, &res.undo)
			r.mark("gate")
		}
		gates <- res
	}()

	up, boxUndo, boxErr := r.bringSandbox(ctx, b)
	r.mark("sandbox")
	res := <-gates
	// Both containers are removed at once, whatever became of them.
	r.undo.push("remove the containers", func(ctx context.Context) error {
		r.ctl.Close() // the end of the lifeline is quicker than podman
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i, u := range []*undo{boxUndo, &res.undo} {
			wg.Go(func() { errs[i] = u.run() })
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if boxErr != nil || res.err != nil {
		return nil, errors.Join(boxErr, res.err)
	}
	r.gate = res.g

	var port uint16
	if r.gate != nil {
		port = r.gate.port
	}
	sealed := r.sealed(b, port)
	if err := spec.Validate(*sealed); err != nil {
		return nil, fmt.Errorf("seal the policy: %w", err)
	}
	if err := r.ctl.Send(spec.ToGuest{Spec: sealed}); err != nil {
		return nil, err
	}
	if err := r.awaitEnforced(ctx, up); err != nil {
		return nil, err
	}
	r.mark("enforced")
	if err := r.be.Verify(ctx, up.id, b); err != nil {
		return nil, err
	}
	if err := r.ctl.Unlink(); err != nil {
		return nil, err
	}
	if t := r.req.Terminal; t != nil {
		restore, err := t.Raw()
		if err != nil {
			return nil, fmt.Errorf("set the terminal up: %w", err)
		}
		up.restore = restore
		r.undo.push("restore the terminal", func(context.Context) error { return restore() })
		r.resize(ctx, up.id)
	}
	if err := r.ctl.Send(spec.ToGuest{Go: true}); err != nil {
		return nil, err
	}
	r.mark("go")
	return up, nil
}

// bringSandbox makes the sandbox's container, attaches and starts it.
func (r *run) bringSandbox(ctx context.Context, b backend.Sandbox) (*started, *undo, error) {
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
	u.push("remove the sandbox", func(ctx context.Context) error { return r.be.Remove(ctx, b.Name) })
	id, err := r.be.CreateSandbox(ctx, b)
	if err != nil {
		return nil, u, err
	}
	attached := make(chan error, 1)
	ready := make(chan struct{})
	go func() { attached <- r.be.Attach(context.WithoutCancel(ctx), id, b.TTY, r.req.Streams, ready) }()
	select {
	case <-ready:
	case err := <-attached:
		return nil, u, errors.Join(errors.New("the container's streams ended before it started"), err)
	case <-ctx.Done():
		return nil, u, ctx.Err()
	}
	frames := make(chan spec.ToHost, 4)
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
	if err := r.be.Start(ctx, id); err != nil {
		return nil, u, err
	}
	return &started{id: id, frames: frames, attached: attached}, u, nil
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
				r.mu.Unlock()
				return nil
			}
		case <-attached:
			// The container has ended; its last word may still be in the FIFO.
			attached = nil
			r.ctl.guestHere()
		case <-r.gateEnded():
			return errors.New("the gate ended while the sandbox started")
		case <-ctx.Done():
			return ctx.Err()
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
func (r *run) sealed(b backend.Sandbox, port uint16) *spec.Spec {
	p := r.req.Policy.Filled(r.id, port)
	s := &spec.Spec{
		Version: spec.Version, Session: r.id,
		Command: p.Command, Workdir: p.Workdir,
		UID: policy.UID, GID: policy.GID, TTY: b.TTY,
		Firewall: spec.Firewall{Mode: p.Net.Mode},
	}
	if p.Net.Mode == policy.NetGated {
		s.Firewall.GateAddr, s.Firewall.GatePort = policy.GateAddr, port
	}
	for _, e := range p.Env {
		v := e.Value
		if e.From == policy.FromHost {
			v = r.req.Values[e.Name]
		}
		s.Env = append(s.Env, e.Name+"="+v)
	}
	for _, m := range p.Mounts {
		s.Mounts = append(s.Mounts, m.Target)
		switch m.Why {
		case policy.WhyProject:
			s.Binds = append(s.Binds, spec.Bind{Target: m.Target, Dev: r.req.Project.Dev, Ino: r.req.Project.Ino})
		case policy.WhyControl:
			s.Binds = append(s.Binds, spec.Bind{Target: m.Target, Dev: r.ctl.id.Dev, Ino: r.ctl.id.Ino})
		}
	}
	return s
}

// bringGate starts the session's own gate, or finds the named one.
func (r *run) bringGate(ctx context.Context, u *undo) (*runningGate, error) {
	net := r.req.Policy.Net
	if net.GateName != "" {
		return r.m.findGate(ctx, r.be, net)
	}
	cfg := gate.Config{Allow: net.Allow, AllowPrivate: net.AllowPrivate, Nonce: nonce(), PolicyHash: PolicyHash(net)}
	g := backend.Gate{Name: "aisb-gate-" + r.id, Session: r.id, Image: r.req.GateImage}
	return r.m.startGate(ctx, r.be, g, cfg, filepath.Join(r.m.StateDir, "sessions", r.id), u)
}

// refusals reads what the session's own gate refused, before it is removed.
func (r *run) refusals() {
	if r.gate == nil || r.gate.ctl == nil {
		return
	}
	var tally gate.Tally // the log may be of any length
	for _, name := range []string{gate.FrontLog, gate.PeekLog} {
		f, err := os.Open(filepath.Join(r.gate.logDir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // squid makes it with the first line
		}
		if err != nil {
			r.m.Say("the gate's log can't be read: %v", err)
			continue
		}
		if err := errors.Join(gate.ScanLog(f, tally.Add), f.Close()); err != nil {
			r.m.Say("the gate's log can't be read: %v", err)
		}
	}
	r.report.Refused = append(r.report.Refused, tally.Refused()...)
	r.report.RefusedMore = tally.More
}
