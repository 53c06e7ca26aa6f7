// The way to the gate where there is no network: a port of the loopback device
// inside, a unix socket that leads outside, and the bytes in between.

package entrypoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

const (
	// maxRelayed bounds the connections at a time; more wait to be accepted.
	maxRelayed = 1024
	// relayFDs is how many descriptors a connection is reckoned with: two sockets
	// and, while the kernel copies, two pipes; the rest is for everything else.
	relayFDs = 8
	// dialTime bounds the wait for a gate that has too many to accept, and for a
	// descriptor.
	dialTime = 5 * time.Second
	// bufSize is what is copied by hand; a direction that fills it flows.
	bufSize = 64 << 10
	// flowTime is how long the kernel copies a direction that flows.
	flowTime = 100 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { return new([bufSize]byte) }}

// A relay listens.
type relay struct {
	listener *net.TCPListener
	socket   string
	slots    chan struct{}
}

// newRelay listens, and tries the socket once.
func newRelay(r spec.Relay) (*relay, error) {
	// Multipath TCP, Go's default, is nothing that the filter lets through or
	// that splices.
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), r.Port)
	l, err := lc.Listen(context.Background(), "tcp4", addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen for the gate's clients: %w", err)
	}
	var files unix.Rlimit // Go has made the most of it
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		l.Close()
		return nil, fmt.Errorf("read the limit of open files: %w", err)
	}
	out := &relay{
		listener: l.(*net.TCPListener), socket: r.Socket,
		slots: make(chan struct{}, max(1, min(maxRelayed, files.Cur/relayFDs))),
	}
	c, err := out.dial()
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("connect to the gate's socket: %w", err)
	}
	c.Close()
	return out, nil
}

// serve accepts for as long as the process lives.
func (r *relay) serve() {
	for {
		r.slots <- struct{}{}
		c, err := r.listener.AcceptTCP()
		if err != nil {
			<-r.slots
			scarce()
			continue
		}
		go func() {
			defer func() { <-r.slots }()
			r.relay(c)
		}()
	}
}

// relay passes bytes until both directions have ended, each by itself, or one
// is broken.
func (r *relay) relay(client *net.TCPConn) {
	defer client.Close()
	gate, err := r.dial()
	if err != nil {
		_ = client.SetLinger(0) // a reset: there is nobody
		return
	}
	defer gate.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		if pass(gate, client) != nil {
			// The other direction waits for one of these two.
			gate.Close()
			client.Close()
		}
	})
	if pass(client, gate) != nil {
		// What was cut off must not look like an end.
		_ = client.SetLinger(0)
		client.Close()
		gate.Close()
	}
	wg.Wait()
}

// A stream is what both kinds of connection are.
type stream interface {
	io.ReadWriter
	syscall.Conn
	CloseWrite() error
	SetReadDeadline(t time.Time) error
}

// pass copies one direction and passes its end on. An idle connection holds no
// buffer. What flows is copied by the kernel (splice(2), which Go uses between
// these two kinds), but only for a moment at a time: the pipes that it takes for
// that count for the host's user, whose other programs get small ones when there
// are many (pipe(7), pipe-user-pages-soft).
func pass(dst, src stream) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return err
	}
	for {
		n, err := passOne(dst, raw)
		if n == bufSize {
			if err = src.SetReadDeadline(time.Now().Add(flowTime)); err == nil {
				_, err = io.Copy(dst, src)
			}
			switch {
			case err == nil:
				err = io.EOF
			case errors.Is(err, os.ErrDeadlineExceeded):
				err = src.SetReadDeadline(time.Time{})
			}
		}
		if errors.Is(err, io.EOF) {
			err = dst.CloseWrite()
			if err == nil || errors.Is(err, unix.ENOTCONN) { // it is gone already
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// passOne waits, and copies what is there: at most bufSize bytes. At the end it
// returns io.EOF.
func passOne(dst io.Writer, src syscall.RawConn) (n int, err error) {
	var buf *[bufSize]byte
	defer func() {
		if buf != nil {
			buffers.Put(buf)
		}
	}()
	waitErr := src.Read(func(fd uintptr) (done bool) {
		buf = buffers.Get().(*[bufSize]byte)
		for n, err = unix.Read(int(fd), buf[:]); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), buf[:])
		}
		if errors.Is(err, unix.EAGAIN) {
			buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	_, err = dst.Write(buf[:n])
	return n, err
}

// dial connects to the gate's socket. One whose queue is full says so at once
// (unix(7), EAGAIN).
func (r *relay) dial() (*net.UnixConn, error) {
	addr := &net.UnixAddr{Net: "unix", Name: r.socket}
	for deadline := time.Now().Add(dialTime); ; {
		c, err := net.DialUnix("unix", nil, addr)
		switch {
		case err == nil || time.Now().After(deadline):
			return c, err
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(5 * time.Millisecond)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
			scarce()
		default:
			return nil, err
		}
	}
}

// scarce waits for descriptors. Those of pipes that nobody uses any more are
// with Go's collector.
func scarce() {
	runtime.GC()
	time.Sleep(10 * time.Millisecond)
}
