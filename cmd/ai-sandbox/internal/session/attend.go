// Attending a command: its signals, its end, and the end of what it stands on.

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"ai-sandbox/entrypoint/spec"
)

// attend watches a running command until it ends or something it stands on does.
// A signal that came with its start is handed in.
func (r *run) attend(ctx context.Context, up *started, late os.Signal) error {
	var resized <-chan os.Signal
	if r.req.Terminal != nil {
		resized = r.req.Terminal.Resized()
	}
	var grace, lost <-chan time.Time
	var stopSignal os.Signal
	attached := up.attached
	signalled := func(s os.Signal) error {
		if s == syscall.SIGTERM || s == syscall.SIGHUP {
			if grace == nil {
				grace, stopSignal = time.After(graceTime), s
			}
		}
		return r.forward(s)
	}
	if late != nil {
		if err := signalled(late); err != nil {
			return err
		}
	}
	for {
		select {
		case f, ok := <-up.frames:
			switch {
			case ok && f.Refused != nil:
				return r.failed(&refusedError{*f.Refused})
			case ok && f.Exited != nil:
				r.be.EndsSoon("aisb-" + r.id)
				r.mark("exited")
				r.settleGate(ctx)
				return r.exited(*f.Exited, attached)
			case !ok:
				r.report.EndedBy = EndedByLoss
				return errors.New("the sandbox was killed from outside")
			}
		case err := <-attached:
			attached = nil
			if errors.Is(err, syscall.EPIPE) {
				r.report.EndedBy = EndedByOutput
				r.report.ExitCode = 128 + int(syscall.SIGPIPE)
				r.report.Reason = "nobody reads the output any more"
				return nil
			}
			// Normal just before the last frame; otherwise conmon or
			// podman's service is gone, and nobody watches the container.
			lost = time.After(lostTime)
		case <-lost:
			r.report.EndedBy = EndedByLoss
			return errors.New("the connection to the sandbox was lost (podman's service or conmon ended); the command was ended")
		case <-r.gateEnded():
			r.report.EndedBy = EndedByGate
			return errors.New("the gate ended; the command was ended with it")
		case s := <-r.req.Signals:
			if err := signalled(s); err != nil {
				return err
			}
		case <-grace:
			r.report.EndedBy = EndedBySignal
			r.report.ExitCode = ExitFailed
			if s, ok := stopSignal.(syscall.Signal); ok {
				r.report.ExitCode = 128 + int(s)
			}
			r.report.Reason = fmt.Sprintf("the command did not end within %s of %s and was killed", graceTime, stopSignal)
			return nil
		case <-resized:
			r.resize(ctx, up.id)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settleGate ends the session's own gate when the command has ended, so that
// podman finds it dead when it comes to remove it. squid does one thing after
// the other: when it has answered a probe, it has logged what came before.
func (r *run) settleGate(ctx context.Context) {
	if r.gate == nil || r.gate.ctl == nil {
		return
	}
	for _, port := range []uint16{r.gate.cfg.FrontPort, r.gate.cfg.PeekPort} {
		// No answer means no gate, and nothing more to log.
		_, _ = probe(ctx, port, r.gate.cfg)
	}
	r.be.EndsSoon("aisb-gate-" + r.id)
	r.gate.ctl.Close()
}

// exited waits for the command's last output and fills the report in.
func (r *run) exited(e spec.Exited, attached <-chan error) error {
	if attached != nil {
		select {
		case <-attached:
		case <-time.After(drainTime):
		}
	}
	r.report.EndedBy, r.report.ExitCode, r.report.Signal = EndedByCommand, e.Code, e.Signal
	if e.Error != "" {
		// The command could not be executed: ours to say, podman's codes.
		r.report.EndedBy = EndedByEntrypoint
		r.report.Reason = e.Error
		return errors.New(e.Error)
	}
	return nil
}

func (r *run) forward(s os.Signal) error {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return nil
	}
	return r.ctl.Send(spec.ToGuest{Signal: int(sig)})
}

// resize is best effort: a size that is off is not worth a session.
func (r *run) resize(ctx context.Context, id string) {
	cols, rows, err := r.req.Terminal.Size()
	if err != nil || cols <= 0 || rows <= 0 {
		return
	}
	_ = r.be.Resize(ctx, id, cols, rows)
}

// ends tells whether a signal ends a start.
func ends(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}
