package publish

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// held is a port of 127.0.0.1 that somebody listens at.
func held(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestCheck(t *testing.T) {
	busy := held(t)
	for want, p := range map[string]policy.Publish{
		"": {Addr: policy.LoopbackAddr, Port: 3000},
		fmt.Sprintf("publish port 3000 at 127.0.0.1:%d: the host port is in use; see by whom with ss -ltnp 'sport = :%[1]d', or write --publish :3000 for a free one", busy): {Addr: policy.LoopbackAddr, HostPort: busy, Port: 3000},
		"publish port 3000 at 192.0.2.77:8000: this machine has no such address; ip addr lists those that it has":                                                            {Addr: "192.0.2.77", HostPort: 8000, Port: 3000},
	} {
		err := Check([]policy.Publish{p})
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%+v: %v\nwant %s", p, err, want)
		}
	}
	// In the test host anybody may listen anywhere, and here root may.
	if err := inUse(policy.Publish{Addr: "127.0.0.1", HostPort: 80, Port: 3000}, unix.EACCES); !strings.Contains(err.Error(), "publish port 3000 at 127.0.0.1:80: a user may not listen at a port that low here") {
		t.Error(err)
	}
	// Every problem is told, and what was free is free afterwards.
	list, err := Pick([]policy.Publish{{Addr: policy.LoopbackAddr, Port: 1}, {Addr: policy.LoopbackAddr, Port: 1}})
	if err != nil || list[0].HostPort == 0 || list[0].HostPort == list[1].HostPort {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := Check(append(slices.Clone(list), policy.Publish{Addr: policy.LoopbackAddr, HostPort: busy, Port: 1})); err == nil {
		t.Error("a port in use passes")
	}
	if err := Check(list); err != nil {
		t.Error(err)
	}
}

// A guest plays the entrypoint: it does what f says with each call.
type guest struct {
	conn *net.UnixConn
}

func newGuest(t *testing.T, socket, hello string) guest {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	return guest{c}
}

// serve answers each call by f: the descriptors, and an errno.
func (g guest) serve(f func(c spec.Call) (fds []int, errno uint32, done func())) {
	buf := make([]byte, 64)
	for {
		n, err := g.conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		c, err := spec.ParseCall(buf[:n])
		if err != nil {
			return
		}
		fds, errno, done := f(c)
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		_, _, _ = g.conn.WriteMsgUnix(spec.Reply{ID: c.ID, Errno: errno}.Bytes(), rights, nil)
		if done != nil {
			done()
		}
	}
}

// served is a server that listens, with a guest that has been met.
func served(t *testing.T, port uint16) (*Server, guest) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	s, err := Listen([]policy.Publish{{Addr: policy.LoopbackAddr, Port: port}}, socket, "hello", os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	stranger := newGuest(t, socket, "hallo") // who does not know the word
	g := newGuest(t, socket, "hello")
	if err := s.Meet(); err != nil {
		t.Fatal(err)
	}
	if n, err := stranger.conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a stranger was let in: %d, %v", n, err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there still: %v", err)
	}
	s.Serve()
	return s, g
}

// inside is a server that answers with what it is told, and a connection to it.
func inside(t *testing.T) (port uint16, dial func() *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
				io.WriteString(c, "bye")
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port), func() *net.TCPConn {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Error(err)
			return nil
		}
		return c.(*net.TCPConn)
	}
}

func fdOf(c syscall.Conn) (fd int) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		panic(err)
	}
	return fd
}

// ask sends a word to a published port and returns everything that comes back.
func ask(t *testing.T, s *Server, word string) (string, error) {
	t.Helper()
	c, err := net.Dial("tcp4", s.List()[0].Host())
	if err != nil { // a reset may be that quick
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	// An error is told once, by whichever comes first.
	_, werr := io.WriteString(c, word)
	_ = c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	return string(b), errors.Join(werr, err)
}

func TestServe(t *testing.T) {
	port, dial := inside(t)
	s, g := served(t, port)
	go g.serve(func(c spec.Call) ([]int, uint32, func()) {
		conn := dial()
		return []int{fdOf(conn)}, 0, func() { conn.Close() }
	})
	for n := range 20 {
		word := strings.Repeat(strconv.Itoa(n), 100<<10)
		if got, err := ask(t, s, word); err != nil || got != word+"bye" {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	// One that waits ends with the server, and nobody listens any more.
	c, err := net.Dial("tcp4", s.List()[0].Host())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection outlives the server: %d, %v", n, err)
	}
	if _, err := net.Dial("tcp4", s.List()[0].Host()); err == nil {
		t.Error("somebody listens still")
	}
}

// What comes from inside is a connection to the port that was asked for, or it is
// dropped.
func TestForgedConnections(t *testing.T) {
	port, dial := inside(t)
	other, dialOther := inside(t)
	if port == other {
		t.Fatal("one port")
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	udp, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	good, wrong := dial(), dialOther()
	defer good.Close()
	defer wrong.Close()
	for _, c := range []*net.TCPConn{good, wrong} { // accepted, and so counted in what follows
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for name, answer := range map[string]struct {
		fds   []int
		errno uint32
	}{
		"nothing": {}, "a file": {fds: []int{int(file.Fd())}}, "a unix socket": {fds: pair[:1]},
		"a UDP socket": {fds: []int{fdOf(udp.(*net.UDPConn))}}, "a listener": {fds: []int{fdOf(listener.(*net.TCPListener))}},
		"two": {fds: []int{fdOf(good), fdOf(good)}}, "another port's": {fds: []int{fdOf(wrong)}},
		"one with an error": {fds: []int{fdOf(good)}, errno: uint32(unix.ECONNREFUSED)},
	} {
		t.Run(name, func(t *testing.T) {
			s, g := served(t, port)
			before := descriptors(t)
			go g.serve(func(spec.Call) ([]int, uint32, func()) { return answer.fds, answer.errno, nil })
			if got, err := ask(t, s, "word"); got != "" || err == nil {
				t.Errorf("%q, %v", got, err)
			}
			s.Close()
			g.conn.Close()
			if after := descriptors(t); after > before {
				t.Errorf("%d descriptors became %d", before, after)
			}
		})
	}
	// The first look at it, which others come after.
	for fd, want := range map[int]bool{fdOf(good): true, fdOf(udp.(*net.UDPConn)): false, pair[0]: false, int(file.Fd()): false} {
		if isTCP(fd) != want {
			t.Errorf("descriptor %d is TCP: %v", fd, !want)
		}
	}
	// The positive control.
	s, g := served(t, port)
	go g.serve(func(spec.Call) ([]int, uint32, func()) { return []int{fdOf(good)}, 0, nil })
	if got, err := ask(t, s, "word"); got != "wordbye" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// With the entrypoint gone nobody is let wait.
func TestGuestIsGone(t *testing.T) {
	port, _ := inside(t)
	s, g := served(t, port)
	got := make(chan error, 1)
	c, err := net.Dial("tcp4", s.List()[0].Host())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	if _, err := g.conn.Read(make([]byte, 64)); err != nil { // the call
		t.Fatal(err)
	}
	g.conn.Close()
	select {
	case err := <-got:
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a client waits for ever")
	}
	if c, err := net.Dial("tcp4", s.List()[0].Host()); err == nil {
		c.Close()
		t.Error("somebody listens still")
	}
}

// Nobody who does not come is waited for long, and a busy port is told.
func TestListenRefuses(t *testing.T) {
	if _, err := Listen([]policy.Publish{{Addr: policy.LoopbackAddr, HostPort: held(t), Port: 1}}, filepath.Join(t.TempDir(), "s"), "x", os.Getuid()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	s, err := Listen([]policy.Publish{{Addr: policy.LoopbackAddr, Port: 1}}, socket, "hello", os.Getuid()+1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g := newGuest(t, socket, "hello")
	done := make(chan error, 1)
	go func() { done <- s.Meet() }()
	if err := g.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := g.conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("another user's process is not sent away: %v", err)
	}
	s.Close()
	if err := <-done; err == nil {
		t.Error("another user's process was let in")
	}
}
