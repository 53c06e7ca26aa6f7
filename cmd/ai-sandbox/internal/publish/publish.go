// Package publish is the host's side of published ports: it makes sure that they
// are free, picks those that are left open, and, where no network leads into the
// sandbox, listens at them and passes connections on.
//
// A connection goes to a socket that the sandbox's entrypoint has connected inside
// and handed out (entrypoint/spec, Call). Nothing of the host's is handed in.
package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate/relay"
	"ai-sandbox/policy"
)

const (
	// maxConns bounds the connections at a time, of all ports; more wait to be
	// accepted.
	maxConns = 512
	// callTime bounds the wait for a connection inside.
	callTime = 15 * time.Second
	// helloTime bounds the wait for the entrypoint's first word, which is on its
	// way when it is waited for.
	helloTime = 5 * time.Second
)

// Check finds out, before anything is started, whether every port can be had. Who
// takes one afterwards is found out by the start.
func Check(list []policy.Publish) error {
	_, listeners, err := bind(list)
	closeAll(listeners)
	return err
}

// firstPort and lastPort are those that the kernel gives to no outgoing connection
// by itself (ip_local_port_range, ip(7)): nobody takes one by accident between
// Pick and the one who listens.
const firstPort, lastPort = 20000, 32767

// pickTries bounds the search for a free port.
const pickTries = 200

// Pick gives every entry without a host port one that is free now, for somebody
// else to listen at.
func Pick(list []policy.Publish) ([]policy.Publish, error) {
	out := slices.Clone(list)
	for i, p := range out {
		for try := 0; out[i].HostPort == 0; try++ {
			p.HostPort = uint16(firstPort + mathrand.IntN(lastPort-firstPort+1)) //nolint:gosec // in range, and no secret
			taken := slices.ContainsFunc(out, func(o policy.Publish) bool { return o.HostPort == p.HostPort })
			if !taken && Check([]policy.Publish{p}) == nil {
				out[i] = p
			}
			if try == pickTries {
				return nil, fmt.Errorf("no free port was found to publish %d at %s; name one", p.Port, p.Addr)
			}
		}
	}
	return out, nil
}

// bind listens at every port, and fills in those that the kernel has picked.
func bind(list []policy.Publish) ([]policy.Publish, []*net.TCPListener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	out := slices.Clone(list)
	var listeners []*net.TCPListener
	var errs []error
	for i, p := range out {
		network := "tcp4"
		if p.AddrPort().Addr().Is6() {
			network = "tcp6"
		}
		l, err := lc.Listen(context.Background(), network, p.AddrPort().String())
		if err != nil {
			errs = append(errs, inUse(p, err))
			continue
		}
		t := l.(*net.TCPListener) //nolint:forcetypeassert // of a TCP network
		out[i].HostPort = netip.MustParseAddrPort(t.Addr().String()).Port()
		listeners = append(listeners, t)
	}
	return out, listeners, errors.Join(errs...)
}

// inUse says what to do about an address that can't be listened at.
func inUse(p policy.Publish, err error) error {
	what := fmt.Sprintf("publish port %d at %s", p.Port, p.Host())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%s: the host port is in use; see by whom with ss -ltnp 'sport = :%d', or write --publish :%d for a free one", what, p.HostPort, p.Port)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: a user may not listen at a port that low here (net.ipv4.ip_unprivileged_port_start); take a higher host port", what)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s: this machine has no such address; ip addr lists those that it has", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func closeAll(list []*net.TCPListener) {
	for _, l := range list {
		_ = l.Close()
	}
}

// A Server listens at published ports.
type Server struct {
	list      []policy.Publish
	listeners []*net.TCPListener
	door      *net.UnixListener
	hello     string
	uid       int
	// gone is closed when there is no more way in.
	gone chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	conn  *net.UnixConn
	last  uint32
	calls map[uint32]chan answer
	open  map[io.Closer]bool // nil when closed
}

// An answer is what came of a call.
type answer struct {
	conn *net.TCPConn
	err  error
}

// Listen listens at the ports, and for the entrypoint at the unix socket of that
// path, where it has to say hello first and be a process of uid. Nobody is accepted
// before Serve.
func Listen(list []policy.Publish, socket, hello string, uid int) (*Server, error) {
	s := &Server{hello: hello, uid: uid, gone: make(chan struct{}), calls: map[uint32]chan answer{}, open: map[io.Closer]bool{}}
	var err error
	if s.list, s.listeners, err = bind(list); err != nil {
		closeAll(s.listeners)
		return nil, err
	}
	if s.door, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"}); err != nil {
		closeAll(s.listeners)
		return nil, fmt.Errorf("listen for the sandbox's published ports: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the sandbox's published ports: %w", err), s.Close())
	}
	return s, nil
}

// List is what is published, with every host port.
func (s *Server) List() []policy.Publish { return s.list }

// Meet takes the entrypoint's connection, which it makes before it says that
// everything holds, and lets nobody else in after it: the socket is gone.
func (s *Server) Meet() error {
	wrong := func(err error) error { return fmt.Errorf("reach the sandbox's published ports: %w", err) }
	if err := s.door.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return wrong(err)
	}
	for {
		conn, err := s.door.AcceptUnix()
		if err != nil {
			return wrong(err)
		}
		if !s.knows(conn) {
			_ = conn.Close()
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conn = conn
		if s.open == nil {
			return wrong(errors.Join(net.ErrClosed, conn.Close()))
		}
		s.open[conn] = true
		return s.door.Close()
	}
}

// knows tells whether a connection is the entrypoint's.
func (s *Server) knows(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ours = err == nil && int(cred.Uid) == s.uid
	})
	if err != nil || !ours || conn.SetReadDeadline(time.Now().Add(helloTime)) != nil {
		return false
	}
	buf := make([]byte, spec.PublishMessage)
	n, err := conn.Read(buf)
	return err == nil && string(buf[:n]) == s.hello && conn.SetReadDeadline(time.Time{}) == nil
}

// Serve begins to accept; Meet has come before.
func (s *Server) Serve() {
	s.wg.Go(s.replies)
	slots, calling := make(chan struct{}, maxConns), make(chan struct{}, spec.MaxCalls)
	for i, l := range s.listeners {
		port := s.list[i].Port
		s.wg.Go(func() { s.accept(l, port, slots, calling) })
	}
}

// Close ends every connection and frees the ports.
func (s *Server) Close() error {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	closeAll(s.listeners)
	_ = s.door.Close() // the second time, perhaps
	for c := range open {
		_ = c.Close()
	}
	s.wg.Wait()
	return nil
}

func (s *Server) accept(l *net.TCPListener, port uint16, slots, calling chan struct{}) {
	for {
		select {
		case slots <- struct{}{}:
		case <-s.gone:
			return
		}
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			<-slots
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s.wg.Go(func() {
			defer func() { <-slots }()
			s.pass(c, port, calling)
		})
	}
}

// pass leads one connection in.
func (s *Server) pass(c *net.TCPConn, port uint16, calling chan struct{}) {
	if !s.add(c) {
		_ = c.Close()
		return
	}
	defer s.drop(c)
	calling <- struct{}{}
	inside, err := s.call(port)
	<-calling
	if err != nil {
		_ = c.SetLinger(0) // a reset, as where nobody listens
		return
	}
	if !s.add(inside) {
		_ = inside.Close()
		return
	}
	defer s.drop(inside)
	relay.Join(c, inside)
}

func (s *Server) add(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return false
	}
	s.open[c] = true
	return true
}

func (s *Server) drop(c io.Closer) {
	_ = c.Close() // the second time, perhaps
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// call asks the entrypoint for a connection to a port.
func (s *Server) call(port uint16) (*net.TCPConn, error) {
	s.mu.Lock()
	s.last++
	id, got := s.last, make(chan answer, 1)
	s.calls[id] = got
	s.mu.Unlock()
	timeout := time.NewTimer(callTime)
	defer timeout.Stop()
	_, err := s.conn.Write(spec.Call{ID: id, Port: port}.Bytes())
	if err == nil {
		select {
		case a := <-got:
			return checked(a, port)
		case <-timeout.C:
			err = os.ErrDeadlineExceeded
		case <-s.gone:
			err = net.ErrClosed
		}
	}
	s.mu.Lock()
	delete(s.calls, id)
	s.mu.Unlock()
	select {
	case a := <-got: // it came just now
		if a.conn != nil {
			_ = a.conn.Close()
		}
	default:
	}
	return nil, err
}

// checked makes sure that what came goes where it was asked to.
func checked(a answer, port uint16) (*net.TCPConn, error) {
	if a.err != nil {
		return nil, a.err
	}
	to, ok := a.conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !to.IP.IsLoopback() || to.Port != int(port) {
		return nil, errors.Join(fmt.Errorf("the connection inside is to %v", a.conn.RemoteAddr()), a.conn.Close())
	}
	return a.conn, nil
}

// replies reads what the entrypoint answers until it is gone.
func (s *Server) replies() {
	defer close(s.gone)
	defer closeAll(s.listeners) // a client is told at once that there is nobody
	buf, oob := make([]byte, spec.PublishMessage), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, _, _, err := s.conn.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		r, err := spec.ParseReply(buf[:n])
		conn, ferr := received(oob[:oobn])
		if err != nil {
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
		a := answer{conn, ferr}
		if r.Errno != 0 {
			if conn != nil {
				_ = conn.Close()
			}
			a = answer{nil, unix.Errno(r.Errno)}
		}
		s.mu.Lock()
		got := s.calls[r.ID]
		delete(s.calls, r.ID)
		if got != nil {
			got <- a // which has room for it
		} else if a.conn != nil {
			_ = a.conn.Close()
		}
		s.mu.Unlock()
	}
}

// received is the connection that came with a message: one TCP socket of the
// internet's families, and nothing else.
func received(oob []byte) (*net.TCPConn, error) {
	none := errors.New("no connection came from inside")
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, none
	}
	var fds []int
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "inside"))
	}
	defer func() {
		for _, f := range files {
			_ = f.Close() // FileConn has one of its own
		}
	}()
	if len(files) != 1 || !isTCP(fds[0]) {
		return nil, none
	}
	c, err := net.FileConn(files[0])
	if err != nil {
		return nil, fmt.Errorf("take the connection from inside: %w", err)
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(none, c.Close())
	}
	return t, nil
}

// isTCP looks at what a descriptor is (socket(7)): the protocol tells the family and
// the type, too.
func isTCP(fd int) bool {
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && protocol == unix.IPPROTO_TCP
}
