// The guest that is no test's own: it does what the entrypoint does for the
// command, and isolates nothing.

package fake

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
)

// run is a Guest.
func (c *container) run(in, out *os.File) error {
	streams := <-c.streams
	var f, g spec.ToGuest
	if err := spec.ReadFrame(in, &f); err != nil {
		return err
	}
	if f.Spec == nil {
		return errors.New("the first frame is no spec")
	}
	if err := spec.WriteFrame(out, spec.ToHost{Enforced: &spec.Enforced{}}); err != nil {
		return err
	}
	if err := spec.ReadFrame(in, &g); err != nil {
		return err
	}
	e, err := c.command(f.Spec, in, out, streams)
	if err != nil {
		return err
	}
	select {
	case <-c.ended:
		return errors.New("it was removed") // and has no last word
	default:
	}
	c.code = e.Code
	return spec.WriteFrame(out, spec.ToHost{Exited: &e})
}

// command runs the command to its end, or to the end of the lifeline.
func (c *container) command(s *spec.Spec, in, out *os.File, streams backend.Streams) (spec.Exited, error) {
	path, err := exec.LookPath(s.Command[0])
	if err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = 127
		}
		return spec.Exited{Code: code, Error: err.Error()}, nil
	}
	cmd := exec.Command(path, s.Command[1:]...)
	cmd.Env = s.Env
	// Never the caller's own descriptors: a backend copies.
	cmd.Stdout, cmd.Stderr = passed{c, streams.Stdout}, passed{c, streams.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return spec.Exited{}, err
	}
	if err := cmd.Start(); err != nil {
		return spec.Exited{Code: 126, Error: err.Error()}, nil
	}
	go func() {
		if streams.Stdin != nil {
			_, _ = io.Copy(stdin, streams.Stdin)
		}
		stdin.Close()
	}()
	kill := func(sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }
	go func() {
		<-c.ended // removed, or after its end
		kill(syscall.SIGKILL)
	}()
	go func() {
		for {
			var f spec.ToGuest
			if spec.ReadFrame(in, &f) != nil {
				kill(syscall.SIGKILL)
				return
			}
			if f.Signal != 0 {
				kill(syscall.Signal(f.Signal))
			}
		}
	}()
	if err := spec.WriteFrame(out, spec.ToHost{Started: true}); err != nil {
		kill(syscall.SIGKILL)
	}
	_ = cmd.Wait() // how it ended is in its state
	w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && w.Signaled() {
		return spec.Exited{Code: 128 + int(w.Signal()), Signal: int(w.Signal())}, nil
	}
	return spec.Exited{Code: cmd.ProcessState.ExitCode()}, nil
}

// passed is output on its way; what can't be passed on ends Attach.
type passed struct {
	c *container
	w io.Writer
}

func (p passed) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if err != nil {
		select {
		case p.c.output <- err:
		default: // it has been told
		}
	}
	return n, err
}
