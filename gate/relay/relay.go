// Package relay leads the gate's unix socket to a gate that listens on a TCP
// port: the way out of a sandbox without a network device, when the gate's engine
// knows TCP alone. It passes bytes and decides nothing.
package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxConns bounds the connections at a time; one more waits in the backlog.
const maxConns = 1024

// dialTime bounds the connection to the gate, which is on this machine.
const dialTime = 10 * time.Second

// A Relay passes connections of one user's processes on.
type Relay struct {
	to   netip.AddrPort
	uid  int
	mu   sync.Mutex
	open map[io.Closer]bool // nil when closed
}

// New returns a relay to a TCP address, for the processes of a user.
func New(to netip.AddrPort, uid int) *Relay {
	return &Relay{to: to, uid: uid, open: map[io.Closer]bool{}}
}

// Serve takes connections from l until Close, and closes l.
func (r *Relay) Serve(l net.Listener) error {
	if !r.add(l) {
		return errors.Join(net.ErrClosed, l.Close())
	}
	defer r.drop(l)
	slots := make(chan struct{}, maxConns)
	for {
		slots <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // no descriptor is free
				<-slots
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return err
		}
		go func() {
			defer func() { <-slots }()
			r.pass(c)
		}()
	}
}

// Close ends the relay and every connection.
func (r *Relay) Close() error {
	r.mu.Lock()
	open := r.open
	r.open = nil
	r.mu.Unlock()
	for c := range open {
		_ = c.Close() // an error of one that is at its end anyway
	}
	return nil
}

func (r *Relay) add(c io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		return false
	}
	r.open[c] = true
	return true
}

func (r *Relay) drop(c io.Closer) {
	_ = c.Close() // the second time, perhaps
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

// A Conn is what unix and TCP connections have in common.
type Conn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// pass copies both ways until both are at their end.
func (r *Relay) pass(c net.Conn) {
	if !r.add(c) {
		_ = c.Close()
		return
	}
	defer r.drop(c)
	if !r.ours(c) {
		return
	}
	out, err := net.DialTimeout("tcp", r.to.String(), dialTime)
	if err != nil {
		return // the client sees the end: there is no gate
	}
	if !r.add(out) {
		_ = out.Close()
		return
	}
	defer r.drop(out)
	near, ok1 := c.(Conn)
	far, ok2 := out.(Conn)
	if ok1 && ok2 {
		Join(near, far)
	}
}

// Join copies both ways and returns when both are at their end, each by itself,
// or one is broken. The caller closes the connections.
func Join(a, b Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		oneWay(b, a)
	}()
	oneWay(a, b)
	<-done
}

// ours tells whether the other end of a unix socket is the user's (unix(7),
// SO_PEERCRED); where that can't be told, it is not.
func (r *Relay) ours(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ours = err == nil && int(cred.Uid) == r.uid
	})
	return err == nil && ours
}

// oneWay copies until the end and passes that on; an error ends both ways, and
// looks like one to both.
func oneWay(dst, src Conn) {
	raw, err := src.SyscallConn()
	for err == nil {
		err = move(dst, raw)
	}
	if !errors.Is(err, io.EOF) {
		for _, c := range []Conn{dst, src} {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetLinger(0) // a reset: what was cut off must not look like an end
			}
			_ = c.Close()
		}
		return
	}
	_ = dst.CloseWrite() // it may be gone
}

// chunks are held while there are bytes in them: a connection that is idle has
// none, and no pipe, as io.Copy would hold (splice(2)).
var chunks = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// move waits for bytes and writes them on. The error is io.EOF at the end.
func move(dst io.Writer, src syscall.RawConn) error {
	buf, ok := chunks.Get().(*[32 << 10]byte)
	if !ok {
		panic("a chunk is no chunk")
	}
	held := true
	var n int
	var err error
	rerr := src.Read(func(fd uintptr) bool {
		if !held {
			buf, held = chunks.Get().(*[32 << 10]byte), true
		}
		for {
			n, err = syscall.Read(int(fd), buf[:])
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if errors.Is(err, syscall.EAGAIN) {
			chunks.Put(buf)
			held = false
			return false
		}
		return true
	})
	if held {
		defer chunks.Put(buf)
	}
	switch {
	case rerr != nil:
		return rerr
	case err != nil:
		return err
	case n <= 0:
		return io.EOF
	}
	_, err = dst.Write(buf[:n])
	return err
}
