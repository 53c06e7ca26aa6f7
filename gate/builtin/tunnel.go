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
	// ends counts the directions that are done.
	ends atomic.Int32
}

// connect answers a CONNECT. It tells whether the session lives on, in the
// tunnel's hands.
func (s *session) connect(h *head, r *bufio.Reader, size int) bool {
	if h.host.Name == gate.ReadyHost {
		s.reply(403, s.g.ready, true)
		return false
	}
	to, reason := s.g.judge(h)
	if reason != "" {
		s.refuse(h, reason, size)
		return false
	}
	select {
	case s.g.opening <- struct{}{}:
	default:
		s.reply(503, "aisb-gate: too many tunnels are being opened", true)
		return false
	}
	early, _ := r.Peek(r.Buffered())
	t := &tunnel{session: s, head: h, to: to, first: slices.Clone(early)}
	if _, err := io.WriteString(s.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		<-s.g.opening
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
		return
	}
	up, err := t.g.dial(t.to)
	if err != nil || !t.attach(up) {
		t.close()
		return
	}
	t.run(func() { t.end(t.client, pump(t.client, *up, t.touch)) })
	t.run(func() { t.end(*up, t.upward(*up, silent)) })
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
	t.first = nil
	return pump(up, t.client, t.touch)
}

var errRefused = errors.New("what is in the tunnel was refused")

// passes judges the client's first bytes; err is how reading them ended.
func (t *tunnel) passes(err error) bool {
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && (!errors.Is(err, io.EOF) || len(t.first) == 0) {
		return false // the client is gone
	}
	reason, name := t.content()
	if reason != "" {
		t.g.note(gate.Decision{
			Squid: "peek", ClientPort: t.clientPort(), Method: t.head.method, Host: t.head.host.Written, Port: t.head.port,
			Status: 200, Received: int64(len(t.first)), Reason: reason, SNI: name,
		})
	}
	return reason == ""
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
		if t.g.rules.Name(name, t.head.port) {
			return "", ""
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
}
