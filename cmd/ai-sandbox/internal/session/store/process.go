// Ending the process that owns a record, and no other one.

package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Process is the owner of a record, held by a pidfd: whatever becomes of its
// number, no other process is meant.
type Process struct{ fd int }

// OpenProcess returns the record's owner. It is os.ErrNotExist when the owner is
// gone, also when its number is another process's now.
func (s *Store) OpenProcess(r Record) (*Process, error) {
	if r.PID <= 1 {
		return nil, fmt.Errorf("the owner of %s: %w", r.ID, os.ErrNotExist)
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	// What is open can't become another process: if it is the owner now, it was
	// when it was opened.
	switch alive := s.Liveness(r); {
	case err == nil && alive == Alive:
		return &Process{fd}, nil
	case err == nil:
		unix.Close(fd)
		err = errors.New("it was started in another process namespace, or can't be seen")
		fallthrough
	default:
		if alive == Gone {
			err = os.ErrNotExist
		}
		return nil, fmt.Errorf("the owner of %s: %w", r.ID, err)
	}
}

// Signal sends a signal to the process; one that is gone is no error.
func (p *Process) Signal(sig unix.Signal) error { return p.send(sig, 0) }

// pidfdSignalProcessGroup is PIDFD_SIGNAL_PROCESS_GROUP (Linux 6.9,
// pidfd_send_signal(2)).
const pidfdSignalProcessGroup = 1 << 2

// KillGroup kills the process group that the process leads. Where the kernel
// can't do that by pidfd it kills the process alone: a number could be another
// group's by now, and what the process has started ends with it anyway.
func (p *Process) KillGroup() error {
	err := p.send(unix.SIGKILL, pidfdSignalProcessGroup)
	if errors.Is(err, unix.EINVAL) {
		err = p.send(unix.SIGKILL, 0)
	}
	return err
}

// Kill kills the process alone.
func (p *Process) Kill() error { return p.send(unix.SIGKILL, 0) }

func (p *Process) send(sig unix.Signal, flags int) error {
	if err := unix.PidfdSendSignal(p.fd, sig, nil, flags); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal the process: %w", err)
	}
	return nil
}

// pollTime is how soon a wait sees the end of its context, in milliseconds.
const pollTime = 100

// Wait returns when the process has ended, with all its threads.
func (p *Process) Wait(ctx context.Context) error {
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, pollTime)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for the process: %w", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// Close lets go of the process.
func (p *Process) Close() { unix.Close(p.fd) }
