// CONNECT: what may be in a tunnel, and moving it.

package builtin

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"ai-sandbox/gate"
)

// tlsPort is where nothing but TLS passes.
const tlsPort = 443

// A tunnel is a CONNECT that was let through.
type tunnel struct {
	*session
	head *head
	to   []netip.AddrPort
	// first are the client's bytes so far, until they are judged.
	first []byte
	began time.Time
	// ends counts the directions that are done in order, and done all that are.
	ends, done atomic.Int32
	// refused: its content was.
	refused atomic.Bool
	// sni is the name in its hello, once that was let through.
	sni string
}

// connect answers a CONNECT. It tells whether the session lives on, in the
// tunnel's hands.
func (s *session) connect(h *head, r *bufio.Reader, began time.Time) bool {
	if h.host.Name == gate.ReadyHost {
		s.reply(403, s.g.rules.Load().ready, true)
		return false
	}
	to, reason := s.g.judge(h)
	if reason != "" {
		s.refuse(h, reason, began)
		return false
	}
	select {
	case s.g.opening <- struct{}{}:
	default:
		s.reply(503, "aisb-gate: too many tunnels are being opened", true)
		s.let(h, "", 503, began, "too many")
		return false
	}
	early, _ := r.Peek(r.Buffered())
	t := &tunnel{session: s, head: h, to: to, first: slices.Clone(early), began: began}
	if _, err := io.WriteString(s.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		<-s.g.opening
		s.let(h, "", 0, began, "the client is gone")
		return false
	}
	// In a goroutine of its own: this one's stack has grown with the request.
	s.run(t.open)
	return true
}

// open reads the client's first bytes, judges them, and connects to the far
// server then, so that a refused hello is nothing that it sees. Where the server
// may be the one that speaks first, it is not waited for long.
func (t *tunnel) open() {
	limit := t.g.limits.hello
	if t.head.port != tlsPort {
		limit = t.g.limits.serverFirst
	}
	err := t.peek(limit)
	<-t.g.opening
	silent := len(t.first) == 0 && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF)) && t.head.port != tlsPort
	if !silent && err != nil && errors.Is(err, os.ErrDeadlineExceeded) && len(t.first) > 0 && t.head.port != tlsPort {
		err = t.peek(t.g.limits.hello) // it has begun
	}
	if !silent && !t.passes(err) {
		t.close()
		t.tell(0, "the client is gone")
		return
	}
	up, err := t.g.dial(t.to)
	if err != nil {
		t.close()
		t.tell(503, "no connection")
		return
	}
	if !t.attach(up, opened{head: t.head, sni: t.sni}) {
		t.close()
		t.tell(0, "the client is gone")
		return
	}
	if via := t.head.via; via != nil {
		early, err := t.g.through(via, up, t.head)
		if err == nil {
			_, err = t.client.Write(early)
		}
		if err != nil {
			t.close()
			t.tell(503, err.Error())
			return
		}
		t.movedIn(len(early))
	}
	t.run(func() { t.end(t.client, pump(t.client, *up, t.movedIn)) })
	t.run(func() { t.end(*up, t.upward(*up, silent)) })
}

// tell tells of its end, unless its refusal was.
func (t *tunnel) tell(status int, failure string) {
	if !t.refused.Load() {
		t.mu.Lock()
		sni := t.sni
		t.mu.Unlock()
		t.let(t.head, sni, status, t.began, failure)
	}
}

// peek reads until the first bytes say what they are. The error is io.EOF,
// os.ErrDeadlineExceeded or another of the client's socket.
func (t *tunnel) peek(limit time.Duration) error {
	t.client.SetReadDeadline(time.Now().Add(limit))
	defer t.client.SetReadDeadline(time.Time{})
	for {
		if v, _ := sniff(t.first); v != more {
			return nil
		}
		if err := receive(t.client, t.keep); err != nil {
			return err
		}
	}
}

func (t *tunnel) keep(b []byte) error {
	t.first = append(t.first, b...)
	t.touch()
	return nil
}

// upward moves what the client sends. late: nothing has been judged yet.
func (t *tunnel) upward(up conn, late bool) error {
	if late {
		err := receive(t.client, t.keep)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !t.passes(t.peek(t.g.limits.hello)) {
			return errRefused
		}
	}
	if _, err := up.Write(t.first); err != nil {
		return err
	}
	t.movedOut(len(t.first))
	t.first = nil
	return pump(up, t.client, t.movedOut)
}

var errRefused = errors.New("what is in the tunnel was refused")

// passes judges the client's first bytes; err is how reading them ended.
func (t *tunnel) passes(err error) bool {
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && (!errors.Is(err, io.EOF) || len(t.first) == 0) {
		return false // the client is gone
	}
	reason, name := t.content()
	if reason != "" {
		t.refused.Store(true)
		t.g.note(gate.Decision{
			Squid: "peek", ClientPort: t.clientPort(), Method: t.head.method, Host: t.head.host.Written, Port: t.head.port,
			Status: 200, Received: t.out.Load() + int64(len(t.first)), Duration: time.Since(t.began), Reason: reason, SNI: name,
		})
	}
	if reason == "" {
		t.mu.Lock()
		t.sni, t.has.sni = name, name // where it comes late, the tunnel is open already
		t.mu.Unlock()
		return !t.barred()
	}
	return false
}

// content returns why the client's first bytes are refused, or "", and the name
// in the hello.
func (t *tunnel) content() (reason, name string) {
	v, name := sniff(t.first)
	switch v {
	case notTLS:
		if t.head.port != tlsPort {
			return "", ""
		}
		return gate.ReasonNotTLS, ""
	case nameless:
		// Who asks for an address has no name to send.
		if t.head.host.Addr.IsValid() {
			return "", ""
		}
		return gate.ReasonNoSNI, ""
	case isHello:
		if t.g.rules.Load().Name(name, t.head.port) {
			return "", name
		}
		return gate.ReasonSNI, name
	}
	return gate.ReasonNotTLS, ""
}

// end is called when a direction is done; to is where it went. Where it is done
// in order, the other one goes on.
func (t *tunnel) end(to conn, err error) {
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil || t.ends.Add(1) == 2 {
		t.close()
	}
	if t.done.Add(1) == 2 {
		t.tell(200, "")
	}
}
