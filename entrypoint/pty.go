// A terminal of our own making, for a command whose input and output are pipes:
// the far end of them has the caller's terminal, which so stays out of reach.

package entrypoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quietTime is how long an ended command's terminal may be silent before it
	// is given up: something that it left behind keeps it open.
	quietTime = 500 * time.Millisecond
	// finishTime bounds the last output in all: that one may also be talking, or
	// nobody may be reading.
	finishTime = 5 * time.Second
)

// A pty is a pair of pseudoterminals (pty(7)).
type pty struct {
	master *os.File
	// slave is the command's end, -1 when it is closed. We have it open too for
	// as long as the command lives: it may close its own, and open it again.
	slave int
	ended atomic.Bool
	out   chan struct{} // closed when no more output comes
}

// newPTY makes a terminal in the sandbox's own devpts.
func newPTY(cols, rows uint16) (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	p := &pty{master: os.NewFile(uintptr(fd), "/dev/ptmx"), slave: -1, out: make(chan struct{})}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		p.master.Close()
		return nil, fmt.Errorf("unlock the terminal: %w", err)
	}
	// Not by its name, which may lead elsewhere.
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		p.master.Close()
		return nil, fmt.Errorf("open the terminal: %w", errno)
	}
	p.slave = int(slave)
	p.resize(cols, rows)
	return p, nil
}

// files are the command's standard streams.
func (p *pty) files() [3]int { return [3]int{p.slave, p.slave, p.slave} }

// resize tells the new size, and the kernel tells who is in the foreground. A
// size that is off is not worth more.
func (p *pty) resize(cols, rows uint16) {
	if cols == 0 || rows == 0 {
		return
	}
	raw, err := p.master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// attach copies until both directions have ended.
func (p *pty) attach(in io.Reader, out io.Writer) {
	go p.copyIn(in)
	go p.copyOut(out)
}

// close is for a terminal that no command got.
func (p *pty) close() {
	p.closeSlave()
	p.master.Close()
}

func (p *pty) closeSlave() {
	if p.slave >= 0 {
		unix.Close(p.slave)
		p.slave = -1
	}
}

// copyIn leaves the terminal open at the end of the input: whoever types has
// a key for that.
func (p *pty) copyIn(in io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, werr := p.master.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *pty) copyOut(out io.Writer) {
	defer close(p.out)
	buf := make([]byte, 32<<10)
	for {
		if p.ended.Load() {
			_ = p.master.SetReadDeadline(time.Now().Add(quietTime))
		}
		n, err := p.master.Read(buf)
		if n > 0 {
			if _, werr := out.Write(buf[:n]); werr != nil {
				// Nobody reads any more, as when a terminal is closed.
				p.master.Close()
				return
			}
		}
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || !p.waiting()) {
			return // EIO when nobody has the other end open
		}
	}
}

// waiting tells whether there is output to read: where this process was not let run for
// the time of the silence, there may be.
func (p *pty) waiting() bool {
	raw, err := p.master.SyscallConn()
	n := 0
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	}
	return err == nil && n > 0
}

// finish waits for what the ended command has written, and closes the terminal.
func (p *pty) finish() {
	p.closeSlave()
	p.ended.Store(true)
	_ = p.master.SetReadDeadline(time.Now().Add(quietTime))
	select {
	case <-p.out:
	case <-time.After(finishTime):
	}
	p.master.Close()
}
