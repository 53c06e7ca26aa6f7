// Moving bytes between two sockets.

package builtin

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A stream is what both kinds of socket can do: *net.TCPConn and *net.UnixConn.
type stream interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
}

// A conn is a socket with what is needed to look at it without a buffer.
type conn struct {
	stream
	raw syscall.RawConn
}

func newConn(c net.Conn) (conn, error) {
	s, ok := c.(stream)
	if !ok {
		return conn{}, fmt.Errorf("a %T is neither a unix nor a TCP socket", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return conn{}, err
	}
	return conn{s, raw}, nil
}

const (
	// chunkSize is what is read at once, in bytes. Below it, a read and a write
	// are quicker than a splice; a chunk that is full says that there is more.
	chunkSize = 16 << 10
	// pipeSize is that of a pipe for splicing, and maxPipes how many there are,
	// in all gates. A user's pipes together may have so many pages (pipe(7),
	// pipe-user-pages-soft, 64 MiB), past which each new one, of any program,
	// gets two: so no tunnel keeps one while it is idle.
	pipeSize = 1 << 20
	maxPipes = 16
	// pause is about how long a tunnel that has nothing to move keeps its pipe.
	pause = 50 * time.Millisecond
)

// A chunk is held only while it has bytes in it.
type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// A pipe is the way from socket to socket inside the kernel.
type pipe struct{ r, w int }

// pipes holds those not in use; nil stands for one that is yet to be made.
var pipes = func() chan *pipe {
	c := make(chan *pipe, maxPipes)
	for range maxPipes {
		c <- nil
	}
	return c
}()

// takePipe returns an empty pipe, or nil where all are in use or none can be
// made: then bytes are copied.
func takePipe() *pipe {
	select {
	case p := <-pipes:
		if p != nil {
			return p
		}
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			pipes <- nil
			return nil
		}
		// Smaller than asked for is good enough.
		unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
		return &pipe{fds[0], fds[1]}
	default:
		return nil
	}
}

// givePipe takes a pipe back. One that still has bytes in it is closed.
func givePipe(p *pipe, empty bool) {
	if !empty {
		unix.Close(p.r)
		unix.Close(p.w)
		p = nil
	}
	pipes <- p
}

// receive reads once, and calls use with what there was. It waits without holding
// memory. The error is io.EOF at the end.
func receive(c conn, use func([]byte) error) error {
	var buf *chunk
	var n int
	var err error
	rerr := c.raw.Read(func(fd uintptr) bool {
		buf = chunks.Get().(*chunk)
		n, err = again(func() (int, error) { return unix.Read(int(fd), buf[:]) })
		if errors.Is(err, unix.EAGAIN) {
			chunks.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if buf == nil {
		return rerr
	}
	defer chunks.Put(buf)
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	return use(buf[:n])
}

// again calls f until no signal interrupts it.
func again(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// pump moves bytes from one socket to another until the first one ends, which is
// no error. It calls moved whenever some have.
func pump(dst, src conn, moved func(int)) error {
	for {
		n := 0
		err := receive(src, func(b []byte) error {
			n = len(b)
			_, err := dst.Write(b)
			return err
		})
		if err == nil {
			moved(n)
			if n == chunkSize {
				err = splice(dst, src, moved)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// splice moves what comes without a pause, inside the kernel. It returns io.EOF at
// the end, and nil where src has nothing for a while. Only the reader of src sets
// its read deadline.
func splice(dst, src conn, moved func(int)) error {
	p := takePipe()
	if p == nil {
		return nil
	}
	held := 0
	defer func() { givePipe(p, held == 0) }()
	const flags = unix.SPLICE_F_NONBLOCK | unix.SPLICE_F_MOVE
	var n int
	var err error
	in := func(fd uintptr) bool {
		n, err = again(func() (int, error) {
			n, err := unix.Splice(int(fd), nil, p.w, nil, pipeSize, flags)
			return int(n), err
		})
		return !errors.Is(err, unix.EAGAIN)
	}
	out := func(fd uintptr) bool {
		n, err = again(func() (int, error) {
			n, err := unix.Splice(p.r, nil, int(fd), nil, held, flags)
			return int(n), err
		})
		return !errors.Is(err, unix.EAGAIN)
	}
	var limit time.Time
	defer src.SetReadDeadline(time.Time{})
	for {
		if now := time.Now(); limit.Sub(now) < pause/2 {
			limit = now.Add(pause)
			if err := src.SetReadDeadline(limit); err != nil {
				return err
			}
		}
		switch rerr := src.raw.Read(in); {
		case errors.Is(rerr, os.ErrDeadlineExceeded):
			return nil
		case rerr != nil:
			return rerr
		case err != nil:
			return fmt.Errorf("splice: %w", err)
		case n == 0:
			return io.EOF
		}
		read := n
		for held = n; held > 0; held -= n {
			if werr := dst.raw.Write(out); werr != nil {
				return werr
			}
			if err != nil {
				return fmt.Errorf("splice: %w", err)
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
		}
		moved(read)
	}
}
