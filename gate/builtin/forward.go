// Plain HTTP: a request to its far server, and the answer back. Each request has
// a connection of its own beyond the gate, so that what a far server says too
// much or too little belongs to no other request.

package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/gate"
)

const (
	// maxAnswerHead bounds the head of a far server's answer, in bytes, with
	// the informational ones before it.
	maxAnswerHead = 256 << 10
	maxInform     = 8
)

// forward answers a plain request. It tells whether the client may go on.
func (s *session) forward(h *head, r *bufio.Reader, start time.Time) bool {
	if h.host.Name == gate.ReadyHost {
		end := h.last || h.length != 0
		s.reply(403, s.g.rules.Load().ready, end)
		return !end
	}
	to, reason := s.g.judge(h)
	if reason != "" {
		return s.refuse(h, reason, start)
	}
	up, err := s.g.dial(to)
	if err != nil {
		what := h.authority()
		if h.via != nil {
			what = "the proxy that this machine is behind"
		}
		s.reply(503, fmt.Sprintf("aisb-gate: no connection to %s", what), true)
		s.let(h, "", 503, start, "no connection")
		return false
	}
	status, failure := 0, ""
	defer func() { s.let(h, "", status, start, failure) }()
	if !s.attach(up, opened{head: h}) {
		return false
	}
	defer func() {
		up.Close()
		s.attach(nil, opened{})
	}()
	request := h.request()
	if h.via != nil {
		request = h.requestVia(h.via)
	}
	if _, err := up.Write(request); err != nil {
		s.reply(502, "aisb-gate: the far server ended the connection", true)
		status, failure = 502, "no answer"
		return false
	}
	body := make(chan error, 1)
	s.run(func() { body <- s.upload(h, r, up) })
	began, keep, err := s.download(h, up, &status)
	// The upload may still be writing to a far server that does not read, or
	// reading from the client, whose next request can only begin where it
	// ended in order.
	up.Close()
	s.client.SetReadDeadline(time.Unix(1, 0))
	sent := <-body
	s.client.SetReadDeadline(time.Time{})
	if err == nil {
		return keep && sent == nil && !h.last
	}
	var bad badRequest
	switch {
	case began:
	case errors.Is(err, errUpstreamAuth):
		s.reply(502, "aisb-gate: "+err.Error(), true)
		status, failure = 502, "the proxy refuses the credentials"
	case errors.As(sent, &bad):
		s.senseless(bad)
	default:
		s.reply(502, "aisb-gate: the far server's answer makes no sense, or never came", true)
		status, failure = 502, "no answer"
	}
	return false
}

// upload passes the request's body on, and then watches for the client's end, so
// that the far server does not work for nobody; a client that has only ended its
// writing looks the same over TCP, and is none any more to squid, too. nil: the
// body was read to its end.
func (s *session) upload(h *head, r *bufio.Reader, up *conn) error {
	if h.length != 0 {
		body := io.LimitReader(r, h.length)
		if h.length < 0 {
			body = &chunkedReader{r: r}
		}
		n, rerr, werr := copyBody(up, body, h.length < 0, s.movedOut)
		switch {
		case werr != nil:
			return werr // it may have answered all the same
		case rerr == nil && h.length > 0 && n < h.length:
			rerr = io.ErrUnexpectedEOF
		}
		if rerr != nil {
			up.Close()
			return rerr
		}
	}
	if r.Buffered() > 0 {
		return nil // the next request is there
	}
	gone := false
	err := s.client.raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, err := again(func() (int, error) {
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return n, err
		})
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		gone = err != nil || n == 0
		return true
	})
	if gone || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		up.Close()
		return io.ErrUnexpectedEOF
	}
	return nil
}

// A headLimit ends reading a head that is too long.
type headLimit struct {
	r    io.Reader
	left int64
}

func (l *headLimit) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, errBig
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

// download passes the answer on, and tells its status. began: some of it has reached
// the client. keep: the client can tell where it ends.
func (s *session) download(h *head, up *conn, status *int) (began, keep bool, err error) {
	limit := &headLimit{up, maxAnswerHead}
	r := bufio.NewReader(limit)
	var resp *http.Response
	for range maxInform {
		resp, err = http.ReadResponse(r, &http.Request{Method: h.method})
		if err != nil {
			return began, false, err
		}
		s.touch()
		if resp.StatusCode == http.StatusProxyAuthRequired && h.via != nil {
			return began, false, errUpstreamAuth
		}
		if resp.StatusCode/100 != 1 {
			break
		}
		// The client did not get to ask for another protocol.
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return began, false, errors.New("an upgrade that nobody asked for")
		}
		if h.minor == 1 {
			began = true
			if _, err := s.client.Write(answerHead(resp, nil)); err != nil {
				return began, false, err
			}
		}
		resp = nil
	}
	if resp == nil {
		return began, false, errors.New("informational answers without end")
	}
	limit.left = math.MaxInt64
	bodyless := h.method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	framing := http.Header{}
	chunked := false
	switch n := resp.Header.Get("Content-Length"); {
	case bodyless:
		if n != "" && resp.StatusCode != http.StatusNoContent {
			framing.Set("Content-Length", n)
		}
	case resp.ContentLength >= 0:
		framing.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	case h.minor == 1:
		chunked = true
		framing.Set("Transfer-Encoding", "chunked")
	}
	keep = bodyless || chunked || resp.ContentLength >= 0
	if h.last || !keep {
		framing.Set("Connection", "close")
	}
	*status = resp.StatusCode
	top := answerHead(resp, framing)
	if _, err := s.client.Write(top); err != nil {
		return true, false, err
	}
	s.movedIn(len(top))
	if bodyless {
		return true, keep, nil
	}
	n, rerr, werr := copyBody(&s.client, resp.Body, chunked, s.movedIn)
	switch {
	case rerr != nil:
		return true, false, rerr
	case werr != nil:
		return true, false, werr
	case resp.ContentLength >= 0 && n != resp.ContentLength:
		return true, false, io.ErrUnexpectedEOF
	}
	return true, keep, nil
}

// answerHead is a far server's head as the client gets it.
func answerHead(resp *http.Response, framing http.Header) []byte {
	drop := map[string]bool{}
	for _, name := range hopByHop {
		drop[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	for _, list := range resp.Header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			drop[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	// Not the gate's own, and nothing about the host.
	for _, name := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
		delete(drop, name)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	all := maps.Clone(resp.Header)
	maps.DeleteFunc(all, func(name string, _ []string) bool { return drop[name] })
	maps.Copy(all, framing)
	all.Write(&b) // a Buffer takes it all
	b.WriteString("\r\n")
	return b.Bytes()
}
