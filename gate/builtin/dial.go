// From a host to a connection to one of its addresses.

package builtin

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"ai-sandbox/gate"
)

const (
	// maxDial is how many of a host's addresses are tried.
	maxDial = 8
	// nextDial is after how long one that does not answer gets a rival (RFC
	// 8305, section 5).
	nextDial = 250 * time.Millisecond
)

// newResolver is the system's, read by Go, or one that asks the servers given.
func newResolver(servers []netip.Addr) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(servers) > 0 {
		var turn atomic.Uint32
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			server := servers[int(turn.Add(1)-1)%len(servers)]
			return (&net.Dialer{}).DialContext(ctx, network, netip.AddrPortFrom(server, 53).String())
		}
	}
	return r
}

// judge decides about a request: by name and port first, and by each address that
// the name leads to then. It returns those addresses, or the reason for a refusal.
func (g *Gate) judge(h *head) (to []netip.AddrPort, reason string) {
	if h.method != "CONNECT" && h.scheme != "http" {
		return nil, gate.ReasonScheme
	}
	rules := g.rules.Load()
	if reason := rules.Request(h.host, h.port); reason != "" {
		return nil, reason
	}
	if rules.Far(h.host, h.port) {
		if reason := rules.Addresses(h.host, h.port, nil); reason != "" {
			return nil, reason
		}
		h.via = rules.Upstream
		return proxies(h.via), ""
	}
	addrs := []netip.Addr{h.host.Addr}
	if h.host.Name != "" {
		ctx, cancel := context.WithTimeout(g.ctx, g.limits.lookup)
		defer cancel()
		// The dot keeps the resolver from trying search domains. An error is
		// one for every kind of address.
		addrs, _ = g.resolver.LookupNetIP(ctx, "ip", h.host.Name+".")
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
	}
	if reason := rules.Addresses(h.host, h.port, addrs); reason != "" {
		return nil, reason
	}
	for _, a := range addrs[:min(len(addrs), maxDial)] {
		to = append(to, netip.AddrPortFrom(a, h.port))
	}
	return to, ""
}

// dial connects to the first of the addresses that answers. They have been
// judged, and nothing else is connected to.
func (g *Gate) dial(to []netip.AddrPort) (*conn, error) {
	ctx, cancel := context.WithTimeout(g.ctx, g.limits.dial)
	defer cancel()
	type result struct {
		c   *conn
		err error
	}
	results := make(chan result, len(to))
	next, running := 0, 0
	start := func() {
		at := to[next]
		next++
		running++
		go func() {
			c, err := dialOne(ctx, at)
			results <- result{c, err}
		}()
	}
	start()
	timer := time.NewTimer(nextDial)
	defer timer.Stop()
	var failed error
	for running > 0 {
		select {
		case <-timer.C:
			if next < len(to) {
				start()
				timer.Reset(nextDial)
			}
		case r := <-results:
			running--
			if r.err == nil {
				// The others end by the context; one may have made it.
				go func(running int) {
					for range running {
						if r := <-results; r.err == nil {
							r.c.Close()
						}
					}
				}(running)
				return r.c, nil
			}
			failed = r.err
			if running == 0 && next < len(to) {
				start()
				timer.Reset(nextDial)
			}
		}
	}
	return nil, failed
}

func dialOne(ctx context.Context, at netip.AddrPort) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	out, err := newConn(c)
	if err == nil {
		// What was judged is what is there now.
		if a, ok := c.RemoteAddr().(*net.TCPAddr); !ok || a.AddrPort().Addr().Unmap() != at.Addr() || a.AddrPort().Port() != at.Port() {
			err = fmt.Errorf("asked for %s and got %s", at, c.RemoteAddr())
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &out, nil
}
