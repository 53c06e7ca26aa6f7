// Behind a company's proxy: a request goes to it, and not to the host's addresses.

package builtin

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"ai-sandbox/gate"
)

// maxUpstreamHead bounds what the proxy answers to a CONNECT, in bytes.
const maxUpstreamHead = 64 << 10

// errUpstreamAuth: it does not take our credentials, or wants some.
var errUpstreamAuth = errors.New("the proxy that this machine is behind refuses the gate's credentials, or wants some (407): see upstream_auth_file")

// proxies are the addresses of the upstream proxy.
func proxies(u *gate.Upstream) []netip.AddrPort {
	var to []netip.AddrPort
	for _, a := range u.Addrs[:min(len(u.Addrs), maxDial)] {
		to = append(to, netip.AddrPortFrom(a.Unmap(), u.Port))
	}
	return to
}

// authorization is the field that shows the credentials to the proxy, or "".
func authorization(u *gate.Upstream) string {
	if u.Auth.Reveal() == "" {
		return ""
	}
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Auth.Reveal())) + "\r\n"
}

// destination is the host and port in the form that a CONNECT has.
func (h *head) destination() string {
	if h.host.Addr.IsValid() {
		return netip.AddrPortFrom(h.host.Addr, h.port).String()
	}
	return fmt.Sprintf("%s:%d", h.host.Name, h.port)
}

// through asks the proxy for a tunnel to the host of h. What follows its answer is the
// far server's, and returned.
func (g *Gate) through(u *gate.Upstream, up *conn, h *head) (early []byte, err error) {
	up.SetDeadline(time.Now().Add(g.limits.dial))
	defer up.SetDeadline(time.Time{})
	request := "CONNECT " + h.destination() + " HTTP/1.1\r\nHost: " + h.destination() + "\r\n" + authorization(u) + "\r\n"
	if _, err := io.WriteString(up, request); err != nil {
		return nil, err
	}
	limit := &headLimit{up, maxUpstreamHead}
	r := bufio.NewReader(limit)
	for range maxInform {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return nil, fmt.Errorf("the proxy's answer: %w", err)
		}
		switch {
		case resp.StatusCode/100 == 1:
			continue
		case resp.StatusCode == http.StatusProxyAuthRequired:
			return nil, errUpstreamAuth
		case resp.StatusCode/100 != 2:
			return nil, fmt.Errorf("the proxy answered %d", resp.StatusCode)
		}
		early, err = r.Peek(r.Buffered())
		return bytes.Clone(early), err
	}
	return nil, errors.New("the proxy informs without end")
}

// requestVia is request for the proxy: in absolute form (RFC 9112, section 3.2.2).
func (h *head) requestVia(u *gate.Upstream) []byte {
	line := []byte(h.method + " " + h.path + " HTTP/1.1\r\n")
	rest := bytes.TrimPrefix(h.request(), line)
	return append([]byte(h.method+" http://"+h.authority()+h.path+" HTTP/1.1\r\n"+authorization(u)), rest...)
}
