// The host's end of the control channel (entrypoint/spec): two FIFOs in a
// directory of their own.

package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// A control is one container's channel. Closing it ends the lifeline.
type control struct {
	dir string
	id  spec.Bind // the directory's identity
	in  *os.File  // we write; we also hold its reading end, so opening never waits
	out *os.File  // we read
	// keeper holds out's writing end until the guest has it open, or reading
	// would see an end at once.
	keeper *os.File
	keep   sync.Once
	close  sync.Once
	send   sync.Mutex
}

// newControl makes the directory and the FIFOs, for this user alone.
func newControl(dir string) (*control, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the control channel: %w", err)
	}
	c := &control{dir: dir}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("make the control channel: %w", err)
	}
	c.id = spec.Bind{Target: spec.Dir, Dev: st.Dev, Ino: st.Ino}
	for _, name := range []string{spec.InName, spec.OutName} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			return nil, fmt.Errorf("make the control channel: %w", err)
		}
	}
	var err error
	if c.in, err = openFIFO(filepath.Join(dir, spec.InName), unix.O_RDWR); err != nil {
		return nil, err
	}
	if c.out, err = openFIFO(filepath.Join(dir, spec.OutName), unix.O_RDONLY); err != nil {
		return nil, err
	}
	if c.keeper, err = openFIFO(filepath.Join(dir, spec.OutName), unix.O_WRONLY); err != nil {
		return nil, err
	}
	return c, nil
}

// openFIFO opens without waiting for the other end; the runtime's poller does
// the waiting. Close-on-exec: no child may hold our lifeline.
func openFIFO(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open the control channel %s: %w", filepath.Base(path), err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// sendTime bounds one frame: a FIFO is full when its reader is gone or stuck.
const sendTime = 10 * time.Second

// Send writes one frame.
func (c *control) Send(f spec.ToGuest) error {
	c.send.Lock()
	defer c.send.Unlock()
	if err := c.in.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("send to the entrypoint: %w", err)
	}
	if err := spec.WriteFrame(c.in, f); err != nil {
		return fmt.Errorf("send to the entrypoint: %w", err)
	}
	return nil
}

// Recv reads one frame; io.EOF says that the guest is gone.
func (c *control) Recv() (spec.ToHost, error) {
	var f spec.ToHost
	err := spec.ReadFrame(c.out, &f)
	if err == nil {
		c.guestHere()
	}
	return f, err
}

// guestHere lets go of our own writing end: from now on the end of out is the
// guest's. It is also called when the container is known to have ended.
func (c *control) guestHere() {
	c.keep.Do(func() { c.keeper.Close() })
}

// Unlink removes the FIFOs' names; both sides keep what they have open.
func (c *control) Unlink() error {
	for _, name := range []string{spec.InName, spec.OutName} {
		if err := os.Remove(filepath.Join(c.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unlink the control channel: %w", err)
		}
	}
	return nil
}

// Close ends the lifeline: the guest kills everything.
func (c *control) Close() {
	c.close.Do(func() {
		c.guestHere()
		c.in.Close()
		c.out.Close()
	})
}
