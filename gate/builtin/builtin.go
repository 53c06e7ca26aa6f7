// Package builtin is the gate engine that runs inside ai-sandbox: a forward
// proxy with an allowlist, for CONNECT and for plain HTTP, on a unix socket or on
// loopback TCP.
//
// It decides as the two squids of package gate do, in the same order, and passes
// the same table (gate/gatetest); docs/gate-engines.md lists the rows on which
// the engines differ. Names decide before anything resolves them. A name is
// resolved once for each request, every address is judged, and exactly a judged
// address is connected to. In a tunnel, the TLS hello is read before the far
// server hears of the tunnel. Nothing is decrypted and nothing is cached.
//
// The client is hostile: whatever it does costs it its own connections and
// little else. A bug that a request meets ends that connection alone.
package builtin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// A Config is what a gate lets through, and for whom.
type Config struct {
	// Allow and AllowPrivate are as in gate.Config.
	Allow        []policy.Entry
	AllowPrivate []policy.Entry
	// Upstream is as in gate.Config.
	Upstream *gate.Upstream
	// Learn is as in gate.Rules.
	Learn bool
	// Nonce and PolicyHash come back in the answer to the readiness probe, as
	// from squid: letters, digits and ":._-" only.
	Nonce      string
	PolicyHash string
	// Session is as in gate.Config.
	Session string
	// UID is the user whose processes may use the gate.
	UID int
	// Resolvers replace what /etc/resolv.conf says; for tests, and empty
	// otherwise.
	Resolvers []netip.Addr
	// Decided gets every decision, from any goroutine: a refusal before the client
	// has its answer, and what was let through when it has ended. May be nil.
	Decided func(gate.Decision)
}

// limits are how much a client may use, and for how long. They are those of the
// gate as it runs, but in tests of one of them.
type limits struct {
	// conns is how many clients there may be at once; 2 descriptors each.
	conns int
	// opening is how many tunnels may wait for their first bytes at once.
	opening int
	// wait is how long a client may take to begin a request, and head how
	// long to end its head once it has begun.
	wait, head time.Duration
	// hello is how long a TLS hello may take.
	hello time.Duration
	// serverFirst is how long a tunnel to a port other than 443 waits for the
	// client to speak before the far server is connected to.
	serverFirst time.Duration
	// lookup and dial bound the two.
	lookup, dial time.Duration
	// idle is how long a connection may be without a byte.
	idle time.Duration
	// answer is how long a client may take to read an answer of the gate's own.
	answer time.Duration
}

var usual = limits{
	conns: 1024, opening: 256,
	wait: 2 * time.Minute, head: 10 * time.Second, hello: 5 * time.Second, serverFirst: 300 * time.Millisecond,
	lookup: 10 * time.Second, dial: 20 * time.Second,
	idle: time.Hour, answer: 10 * time.Second,
}

// A Gate is one session's. Its methods may be called at the same time.
type Gate struct {
	rules    atomic.Pointer[ruleset]
	uid      int
	name     string // the session's
	resolver *net.Resolver
	decided  func(gate.Decision)
	limits   limits
	began    time.Time
	// ctx ends with the gate.
	ctx    context.Context
	cancel context.CancelFunc
	// opening has room for each tunnel that waits for its first bytes.
	opening chan struct{}
	wg      sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]bool
	sessions  map[*session]bool
	bugs      int
	bug       error // the first
}

// New makes a gate that serves nobody yet.
func New(c Config) (*Gate, error) {
	rules, err := newRuleset(c)
	if err != nil {
		return nil, err
	}
	if c.UID < 0 {
		return nil, fmt.Errorf("gate user %d: want a user's number", c.UID)
	}
	g := &Gate{
		uid:       c.UID,
		name:      c.Session,
		resolver:  newResolver(c.Resolvers),
		limits:    usual,
		began:     time.Now(),
		listeners: map[net.Listener]bool{},
		sessions:  map[*session]bool{},
		decided:   c.Decided,
	}
	g.rules.Store(rules)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Serve takes connections from l until Close, and returns nil then. It closes l.
// A listener that other machines could reach is refused, and so is one whose
// clients' owner the kernel does not tell.
func (g *Gate) Serve(l net.Listener) error {
	defer l.Close()
	switch a := l.Addr().(type) {
	case *net.UnixAddr:
	case *net.TCPAddr:
		at := a.AddrPort().Addr().Unmap()
		if !at.IsLoopback() {
			return fmt.Errorf("gate at %s: want a unix socket or a loopback address", a)
		}
		if err := proveOwners(at, os.Geteuid()); err != nil {
			return fmt.Errorf("find out who owns a connection to the gate (use a unix socket where the kernel has no inet_diag): %w", err)
		}
	default:
		return fmt.Errorf("gate at %s: want a unix socket or a loopback address", a)
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	if g.opening == nil {
		g.opening = make(chan struct{}, g.limits.opening)
		g.wg.Go(g.endIdle)
	}
	g.listeners[l] = true
	g.mu.Unlock()
	for {
		c, err := l.Accept()
		if g.ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("take a connection to the gate: %w", err)
		}
		if err != nil {
			// No descriptors are left, or the client is gone: that passes.
			select {
			case <-g.ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		g.begin(c)
	}
}

// Close ends the gate and every connection through it, at once. It returns an
// error where a bug ended a connection, with the first one's stack.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.cancel()
	for l := range g.listeners {
		l.Close()
	}
	all := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		s.close()
	}
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bug != nil {
		return fmt.Errorf("%d connections through the gate ended by a bug of it: %w", g.bugs, g.bug)
	}
	return nil
}

// note tells a decision.
func (g *Gate) note(d gate.Decision) {
	if g.decided == nil {
		return
	}
	if d.Time.IsZero() {
		d.Time = time.Now()
	}
	g.decided(d)
}

// endIdle ends what has been idle for too long.
func (g *Gate) endIdle() {
	t := time.NewTicker(max(g.limits.idle/60, 10*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-g.ctx.Done():
			return
		case now := <-t.C:
			var idle []*session
			g.mu.Lock()
			for s := range g.sessions {
				if now.Sub(g.began)-time.Duration(s.last.Load()) > g.limits.idle {
					idle = append(idle, s)
				}
			}
			g.mu.Unlock()
			for _, s := range idle {
				s.close()
			}
		}
	}
}

// A session is one client's connection and what it has open beyond.
type session struct {
	g      *Gate
	client conn
	last   atomic.Int64 // when bytes last moved, in nanoseconds since the gate began
	// in is what the client got of what was asked for last, and out what it sent, in
	// bytes.
	in, out atomic.Int64

	mu     sync.Mutex
	closed bool
	up     *conn // to the far server
	has    opened
}

// begin takes a client's connection.
func (g *Gate) begin(c net.Conn) {
	s := &session{g: g}
	s.touch()
	var err error
	if s.client, err = newConn(c); err != nil {
		c.Close()
		return
	}
	g.mu.Lock()
	full := len(g.sessions) >= g.limits.conns
	if full || g.closed {
		g.mu.Unlock()
		if full {
			c.SetWriteDeadline(time.Now().Add(time.Second)) // its buffer is empty
			io.WriteString(c, answer(503, statusText[503], "aisb-gate: too many connections", true))
		}
		c.Close()
		return
	}
	g.sessions[s] = true
	s.run(s.serve)
	g.mu.Unlock()
}

// run calls f aside. A panic in it ends this session, and no other.
func (s *session) run(f func()) {
	s.g.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				s.g.mu.Lock()
				s.g.bugs++
				if s.g.bug == nil {
					s.g.bug = fmt.Errorf("%v\n%s", v, debug.Stack())
				}
				s.g.mu.Unlock()
				s.close()
			}
		}()
		f()
	})
}

// touch goes by the monotonic clock: one that is set, or that a machine wakes up with,
// must not make a connection old.
func (s *session) touch() { s.last.Store(int64(time.Since(s.g.began))) }

func (s *session) movedIn(n int) {
	s.in.Add(int64(n))
	s.touch()
}

func (s *session) movedOut(n int) {
	s.out.Add(int64(n))
	s.touch()
}

// let tells what became of a request that was let through; failure is why no
// connection came of it, or "".
func (s *session) let(h *head, sni string, status int, began time.Time, failure string) {
	s.g.note(gate.Decision{
		Squid: "front", ClientPort: s.clientPort(), Method: h.method, Host: h.host.Written, Port: h.port,
		Status: status, Sent: s.in.Load(), Received: s.out.Load(), Duration: time.Since(began), SNI: sni, Error: failure,
	})
}

// close ends it, whatever it is doing.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.client.Close()
	if s.up != nil {
		s.up.Close()
	}
	s.mu.Unlock()
	s.g.mu.Lock()
	delete(s.g.sessions, s)
	s.g.mu.Unlock()
}

// attach makes up what the session has open beyond, so that close ends it, too; nil
// takes it off again. It is false where the session is closed, and where the rules
// have changed since it was let through.
func (s *session) attach(up *conn, o opened) bool {
	if up != nil {
		if a, ok := up.RemoteAddr().(*net.TCPAddr); ok {
			o.addr = a.AddrPort().Addr().Unmap()
		}
	}
	s.mu.Lock()
	s.up, s.has = up, o
	closed := s.closed
	s.mu.Unlock()
	if up == nil {
		return true
	}
	if closed || s.barred() {
		up.Close()
		return false
	}
	return true
}

// serve takes requests one by one.
func (s *session) serve() {
	keep := false
	defer func() {
		if !keep {
			s.close()
		}
	}()
	if err := checkPeer(s.client, s.g.uid); err != nil {
		_ = s.write(answer(403, statusText[403], "aisb-gate: refused: this gate is another user's", true)) // as well as it can be
		s.linger(50 * time.Millisecond)                                                                    // another user takes up no more
		return
	}
	r := bufio.NewReader(s.client)
	for {
		s.touch()
		s.client.SetReadDeadline(time.Now().Add(s.g.limits.wait))
		if _, err := r.Peek(1); err != nil {
			return
		}
		s.client.SetReadDeadline(time.Now().Add(s.g.limits.head))
		b, err := readHead(r)
		var h *head
		if err == nil {
			h, err = parseHead(b)
		}
		if err != nil {
			s.senseless(err)
			return
		}
		s.client.SetReadDeadline(time.Time{})
		s.touch()
		began := time.Now()
		s.in.Store(0)
		s.out.Store(int64(len(b)))
		if h.method == "CONNECT" {
			keep = s.connect(h, r, began)
			return
		}
		if !s.forward(h, r, began) {
			return
		}
	}
}

// senseless answers a request that could not be read.
func (s *session) senseless(err error) {
	var bad badRequest
	switch {
	case errors.As(err, &bad):
		s.reply(400, "aisb-gate: the request makes no sense: "+bad.Error(), true)
	case errors.Is(err, errBig):
		s.reply(431, "aisb-gate: "+errBig.Error(), true)
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.reply(408, "aisb-gate: the request took too long", true)
	}
}

// refuse answers a request that is not let through, and keeps that in mind. It
// tells whether the client may go on.
func (s *session) refuse(h *head, reason string, began time.Time) bool {
	// What follows a refused request could be its body, or what was meant
	// for a tunnel: nothing that the client is asked about again.
	end := h.last || h.length != 0 || h.method == "CONNECT"
	page := gate.Page(reason, s.g.name, h.host.Written, h.port)
	body := page
	if h.method == "HEAD" {
		body = ""
	}
	// Most clients show no more of a refused CONNECT than its status line, if that.
	text := answer(403, page, body, end)
	// Before the client has its answer: what it was refused can be asked for
	// from then on.
	s.g.note(gate.Decision{
		Squid: "front", ClientPort: s.clientPort(), Method: h.method, Host: h.host.Written, Port: h.port,
		Status: 403, Sent: int64(len(text)), Received: s.out.Load(), Duration: time.Since(began), Reason: reason,
	})
	s.send(text, end)
	return !end
}

// reply sends an answer of the gate's own, the last one where it says end.
func (s *session) reply(status int, text string, end bool) {
	s.send(answer(status, statusText[status], text, end), end)
}

func (s *session) send(answer string, end bool) {
	if s.write(answer) != nil {
		return
	}
	s.in.Add(int64(len(answer)))
	if end {
		s.linger(min(time.Second, s.g.limits.answer))
	}
}

func (s *session) write(answer string) error {
	s.client.SetWriteDeadline(time.Now().Add(s.g.limits.answer))
	defer s.client.SetWriteDeadline(time.Time{})
	_, err := io.WriteString(s.client, answer)
	return err
}

// linger reads what the client still sends after its last answer, for so long:
// the answer could be lost with it.
func (s *session) linger(limit time.Duration) {
	s.client.CloseWrite()
	s.client.SetReadDeadline(time.Now().Add(limit))
	for range 16 {
		if receive(s.client, func([]byte) error { return nil }) != nil {
			return
		}
	}
}

var statusText = map[int]string{
	400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 431: "Request Header Fields Too Large",
	502: "Bad Gateway", 503: "Service Unavailable",
}

// answer is a whole answer of the gate's own. The reason is one line without control
// characters.
func answer(status int, reason, text string, end bool) string {
	if text != "" {
		text += "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n", status, reason, len(text))
	if end {
		b.WriteString("Connection: close\r\n")
	}
	return b.String() + "\r\n" + text
}

func (s *session) clientPort() uint16 {
	if a, ok := s.client.RemoteAddr().(*net.TCPAddr); ok {
		return uint16(a.Port)
	}
	return 0
}
