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
	steerer, err := r.steer()
	if err != nil {
		return err
	}
	r.undo.push("end changes from outside", func(context.Context) error { return steerer.Close() })
	var resized <-chan os.Signal
	if r.req.Terminal != nil {
		resized = r.req.Terminal.Resized()
	}
	var grace, lost <-chan time.Time
	looked := false
	limit := r.newTimeLimit()
	defer limit.stop()
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
			case ok && f.Tested > 0:
				r.tested(time.Duration(f.Tested) * time.Microsecond)
			case ok && f.Started:
				r.mark("started")
				if err := r.ready(); err != nil {
					return err
				}
			case ok && f.Blocked != nil && r.gateLog != nil:
				r.gateLog.packets(f.Blocked)
			case ok && f.LoopbackOnly != 0:
				r.loopbackOnly(f.LoopbackOnly)
			case ok && f.ExecState != nil && r.execs != nil:
				r.execs.state(*f.ExecState)
			case ok && f.Exited != nil:
				r.mark("exited")
				settled := make(chan struct{})
				go r.settleGate(settled)
				err := r.exited(*f.Exited, attached)
				<-settled
				return limit.blame(&r.report, err)
			case !ok:
				r.report.EndedBy = EndedByLoss
				return killed(r.req.Policy.Limits)
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
			// This process may not have been let run all that time, and the frame is there.
			if !looked {
				looked, lost = true, time.After(lostTime/10)
				continue
			}
			r.report.EndedBy = EndedByLoss
			return errors.New("the connection to the sandbox was lost (podman's service or conmon ended); the command was ended")
		case <-r.gateEnded():
			r.report.EndedBy = EndedByGate
			return errors.New("the gate ended; the command was ended with it")
		case s := <-r.req.Signals:
			if err := signalled(s); err != nil {
				return err
			}
		case <-limit.c:
			limit.reached = true
			if err := signalled(syscall.SIGTERM); err != nil {
				return err
			}
		case <-grace:
			r.report.EndedBy = EndedBySignal
			r.report.ExitCode = ExitFailed
			if s, ok := stopSignal.(syscall.Signal); ok {
				r.report.ExitCode = 128 + int(s)
			}
			r.report.Reason = fmt.Sprintf("the command did not end within %s of %s and was killed", graceTime, stopSignal)
			return limit.blame(&r.report, nil)
		case <-resized:
			r.resize(ctx, up.id)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settleGate lets the squids log what came before, and ends those of the session's
// own, while the command's last output is still on the way. settled is closed when
// they have logged.
func (r *run) settleGate(settled chan<- struct{}) {
	r.awaitLogged()
	close(settled)
	if r.gate == nil || r.gate.drop == nil {
		return
	}
	// Dead before podman comes to remove it.
	r.gate.drop()
	if r.req.Policy.Net.GateName != "" {
		return // its log goes with it, and is not read to the end yet
	}
	_ = r.endGate() // the undoing asks again, and gets the same answer
}

// awaitLogged waits, once, until the squids have logged what a sandbox that has ended had
// open. squid does one thing after the other: when it has answered a probe, it has logged.
func (r *run) awaitLogged() {
	if r.gate == nil || r.gate.drop == nil {
		return
	}
	r.logged.Do(func() {
		awaitIdle(r.gate.port)
		cfg := r.gate.config()
		for _, port := range []uint16{cfg.FrontPort, cfg.PeekPort} {
			// No answer means no gate, and nothing more to log.
			_, _ = probe(context.Background(), port, cfg)
		}
	})
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
	if r.req.Hold {
		r.report.EndedBy = EndedBySignal // there is nothing else that could
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
	if r.be.Capabilities().OwnTerminal {
		_ = r.ctl.Send(spec.ToGuest{Resize: &spec.Resize{Cols: uint16(cols), Rows: uint16(rows)}}) //nolint:gosec // of a struct winsize
		return
	}
	_ = r.be.Resize(ctx, id, cols, rows)
}

// ends tells whether a signal ends a start.
func ends(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}
