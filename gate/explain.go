// What the gate would say to a request, without one.

package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/policy"
)

// An Answer is what the gate says to a request for a host at a port.
type Answer struct {
	Host Host
	Port uint16
	// Reason is why it is refused, or "" when it is let through.
	Reason string
	// Entries are what lets it through by name, Inward whether one of them may
	// lead to a private address.
	Entries []policy.Entry
	Inward  bool
	// Open is set where the addresses that the name leads to still have to be
	// judged, which happens when a connection is made.
	Open bool
	// Far is set where it goes through the policy's upstream proxy, which looks the
	// name up.
	Far bool
}

// Explain judges a request by the rules that decide on real ones. Nothing is
// looked up.
func Explain(net policy.Net, h Host, port uint16) Answer {
	a := Answer{Host: h, Port: port}
	r := NewRules(net.Allow, net.AllowPrivate)
	r.Learn = net.Learn
	if net.Upstream != nil {
		u := Upstream{Upstream: *net.Upstream}
		if a, ok := u.Addr(); ok {
			u.Addrs = []netip.Addr{a}
		}
		r.Upstream = &u
	}
	if a.Reason = r.Request(h, port); a.Reason != "" {
		return a
	}
	for _, e := range slices.Concat(net.Allow, net.AllowPrivate) {
		if newList([]policy.Entry{e}).host(h, port) {
			a.Entries = append(a.Entries, e)
		}
	}
	a.Inward, a.Far = r.private.host(h, port), r.Far(h, port)
	if a.Far {
		a.Reason = r.Addresses(h, port, nil)
		return a
	}
	if !h.Addr.IsValid() {
		a.Open = true
		return a
	}
	a.Reason = r.Addresses(h, port, []netip.Addr{h.Addr})
	return a
}

// PortsOf are the ports at which an entry lets a host through, in rising order.
func PortsOf(net policy.Net, h Host) []uint16 {
	var out []uint16
	for _, e := range slices.Concat(net.Allow, net.AllowPrivate) {
		for _, port := range e.Ports() {
			if newList([]policy.Entry{e}).host(h, port) {
				out = append(out, port)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ParseTarget reads HOST or HOST:PORT as people write it; an IPv6 address with a
// port stands in brackets. port is 0 where there is none. The name is in the form
// that clients send: lower case, and internationalised ones in ASCII.
func ParseTarget(s string) (h Host, port uint16, err error) {
	const form = "write HOST or HOST:PORT, as in api.example.com, 192.0.2.7:8443 or [2001:db8::7]:443"
	bad := func(why string) (Host, uint16, error) {
		return Host{}, 0, fmt.Errorf("%s %s; %s", policy.Quote(cut(s, 80)), why, form)
	}
	if strings.Contains(s, "://") {
		return bad("is a URL, and the gate is asked for a host")
	}
	if strings.Contains(s, "/") {
		return bad("has a path, and the gate is asked for a host")
	}
	host, p, has := s, "", false
	if inner, rest, ok := strings.Cut(strings.TrimPrefix(s, "["), "]"); ok && strings.HasPrefix(s, "[") {
		if host = inner; !strings.Contains(inner, ":") || rest != "" && rest[0] != ':' {
			return bad("is no host")
		}
		p, has = strings.TrimPrefix(rest, ":"), rest != ""
	} else if strings.Count(s, ":") == 1 {
		host, p, has = strings.Cut(s, ":")
	}
	if has {
		if port, err = parsePort(p); err != nil {
			if p == "" {
				return bad("has no port behind its colon")
			}
			return bad("has " + policy.Quote(cut(p, 20)) + " for a port, which is not a number from 1 to 65535")
		}
	}
	if h = ParseHost(host); h.Addr.IsValid() {
		return h, port, nil
	}
	if e, err := policy.ParseEntry(host); err == nil && e.Name != "" && !e.Subdomains {
		h = ParseHost(e.Name)
	}
	if h.Name == "" || ParseHost(h.Name).Addr.IsValid() { // "192.0.2.7." is a name to a gate
		return bad("is no host")
	}
	h.Written = h.Name
	return h, port, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' || s[0] == '+' {
		return 0, errors.New("not a port")
	}
	return uint16(n), nil
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

// String is the host with the port, as ParseTarget reads it.
func (a Answer) String() string {
	if a.Host.Addr.IsValid() {
		return netip.AddrPortFrom(a.Host.Addr, a.Port).String()
	}
	return a.Host.Name + ":" + strconv.Itoa(int(a.Port))
}
