// Published ports: which ports inside are reached from outside, and from where.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Publish lets connections to a TCP port of the host through to a port inside.
type Publish struct {
	// Addr is the host's address that is listened at, an IP address in its
	// canonical form.
	Addr string `json:"addr"`
	// HostPort is the port there; 0 is a free one that the start picks.
	HostPort uint16 `json:"host_port"`
	// Port is the port inside.
	Port uint16 `json:"port"`
}

// PublishGrammar is how an entry is written.
const PublishGrammar = "PORT, HOST_PORT:PORT, ADDRESS:HOST_PORT:PORT or :PORT (a free host port)"

// FreePortPlaceholder stands for a host port that the start picks.
const FreePortPlaceholder = "<free-port>"

// LoopbackAddr is where a port is published that names no address.
const LoopbackAddr = "127.0.0.1"

const (
	// firstUserPort is the first port inside that the command may listen at: both
	// runtimes have the kernel's own ip_unprivileged_port_start (ip(7)).
	firstUserPort = 1024
	// maxPublish bounds the entries: each is a listener, and one or two rules.
	maxPublish = 64
	// maxPublishText bounds what is parsed: the longest address and two ports.
	maxPublishText = 64
)

// A PublishError tells what is wrong with one entry.
type PublishError struct {
	Entry  string // as written
	Reason string
	Hint   string // what to do; "" for the grammar
}

// Error names the entry, quoted, with the grammar or what to write instead.
func (e *PublishError) Error() string {
	s := e.Entry
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return fmt.Sprintf("publish %s %s; %s", Quote(s), e.Reason, cmp.Or(e.Hint, "write "+PublishGrammar))
}

// ParsePublish reads one entry of PublishGrammar. An entry that names no address
// has none yet; Resolve gives it one. The error is a *PublishError.
//
// There are no ranges, no names, no protocol but TCP, and no second spelling of
// anything: what podman's or docker's -p would take otherwise is refused.
func ParsePublish(s string) (Publish, error) {
	bad := func(format string, a ...any) (Publish, error) {
		return Publish{}, &PublishError{Entry: s, Reason: fmt.Sprintf(format, a...)}
	}
	if len(s) > maxPublishText {
		return bad("is longer than any entry")
	}
	rest, addr := s, ""
	if in, ok := strings.CutPrefix(s, "["); ok {
		text, after, ok := strings.Cut(in, "]:")
		if !ok {
			return bad("has a [ without a \"]:\" behind the address")
		}
		a, err := netip.ParseAddr(text)
		if err != nil || !a.Is6() {
			return bad("has no IPv6 address in its brackets")
		}
		if addr, err = publishAddr(a); err != nil {
			return bad("%v", err)
		}
		rest = after
	}
	parts := strings.Split(rest, ":")
	if addr == "" && len(parts) == 3 {
		a, err := netip.ParseAddr(parts[0])
		switch {
		case parts[0] == "":
			return bad("has an empty address")
		case err != nil:
			return bad("has %s for an address, which is not an IP address", Quote(parts[0]))
		}
		if addr, err = publishAddr(a); err != nil {
			return bad("%v", err)
		}
		parts = parts[1:]
	}
	switch {
	case addr != "" && len(parts) != 2:
		return bad("has an address, which needs a host port and a port behind it")
	case len(parts) > 2:
		return bad("has too many parts (an IPv6 address goes in brackets)")
	case len(parts) == 2 && strings.Contains(parts[0], "."):
		// 127.0.0.1:8000 could be taken for either.
		return bad("has an address, which needs a host port and a port behind it")
	}
	p := Publish{Addr: addr}
	var err error
	if p.Port, err = publishPort(parts[len(parts)-1]); err != nil {
		return bad("%v", err)
	}
	switch {
	case len(parts) == 1:
		p.HostPort = p.Port
	case parts[0] == "" && addr != "":
		return bad("has an address and no host port")
	case parts[0] != "":
		if p.HostPort, err = publishPort(parts[0]); err != nil {
			return bad("%v", err)
		}
	}
	return p, nil
}

// ParsePublishAddr reads the address that entries without one are published at.
func ParsePublishAddr(s string) (string, error) {
	if len(s) > maxPublishText {
		return "", fmt.Errorf("publish_addr %s... is longer than any address; write one of this machine's, such as %s", Quote(s[:maxPublishText]), LoopbackAddr)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return "", fmt.Errorf("publish_addr %s is not an IP address; write one of this machine's, such as %s", Quote(s), LoopbackAddr)
	}
	addr, err := publishAddr(a)
	if err != nil {
		return "", fmt.Errorf("publish_addr %s %w; write one of this machine's addresses, such as %s", Quote(s), err, LoopbackAddr)
	}
	return addr, nil
}

// publishAddr refuses what is no address to listen at.
func publishAddr(a netip.Addr) (string, error) {
	switch {
	case a.Zone() != "":
		return "", errors.New("has an address with a zone")
	case a.Is4In6():
		return "", errors.New("has an IPv4 address in the form of an IPv6 one")
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "", errors.New("has an address of many machines")
	}
	return a.String(), nil
}

// publishPort reads a decimal number from 1 to 65535 without anything around it.
func publishPort(s string) (uint16, error) {
	switch {
	case s == "":
		return 0, errors.New("has an empty port")
	case strings.Contains(s, "/"):
		return 0, errors.New("names a protocol, and only TCP is published")
	case strings.Contains(s, "-"):
		return 0, errors.New("has a range, and an entry is one port")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("has %s for a port, which is not a number from 1 to 65535", Quote(s))
	}
	return uint16(n), nil
}

// AddrPort is where it is listened; port 0 where the start has to pick one.
func (p Publish) AddrPort() netip.AddrPort {
	a, _ := netip.ParseAddr(p.Addr) // Resolve has made sure of it
	return netip.AddrPortFrom(a, p.HostPort)
}

// Host is the host's side in text, with a placeholder for a port that the start
// picks.
func (p Publish) Host() string {
	if p.HostPort == 0 {
		return strings.TrimSuffix(p.AddrPort().String(), "0") + FreePortPlaceholder
	}
	return p.AddrPort().String()
}

// Entry is the whole in text, as an entry of publish with all three parts.
func (p Publish) Entry() string { return p.Host() + ":" + strconv.Itoa(int(p.Port)) }

// Loopback tells whether only this machine can reach it.
func (p Publish) Loopback() bool { return p.AddrPort().Addr().IsLoopback() }

// resolvePublish decides where every entry is published. What is asked for twice
// is published once.
func resolvePublish(in Input) ([]Publish, error) {
	if len(in.Publish) == 0 {
		return nil, nil
	}
	switch {
	case in.Net == NetNone:
		return nil, About(errors.New("with net none nothing is published; drop publish, or use another network"), "publish", "net")
	case in.Net == NetHost:
		return nil, About(errors.New("with net host a server inside listens on this machine's own ports, so there is nothing to publish; drop publish, or use net unix"), "publish", "net")
	case len(in.Publish) > maxPublish:
		return nil, About(fmt.Errorf("%d ports are published, and %d can be; drop some", len(in.Publish), maxPublish), "publish")
	}
	var out []Publish
	var errs []error
	for _, p := range in.Publish {
		if p.Addr == "" {
			p.Addr = cmp.Or(in.PublishAddr, LoopbackAddr)
		}
		bad := func(reason, hint string, with ...Publish) {
			var about []string
			for _, x := range append([]Publish{p}, with...) {
				about = append(about, "publish="+x.Entry())
			}
			errs = append(errs, About(&PublishError{Entry: p.Entry(), Reason: reason, Hint: hint}, about...))
		}
		addr := p.AddrPort().Addr()
		switch {
		case slices.Contains(out, p):
			continue
		case p.Port < firstUserPort:
			bad("has a port inside at which only root can listen", fmt.Sprintf("let the server inside listen at %d or above", firstUserPort))
			continue
		case in.Net == NetUnix && p.Port == RelayPort:
			bad("is the gate's own port inside", "let the server inside listen at another")
			continue
		case in.Net == NetGated && addr.Is6() && !addr.IsLoopback():
			// The neighbours of an IPv6 network are found by ICMPv6, which is shut.
			bad("can't be reached over IPv6 with net gated", "use an IPv4 address, [::1], or net unix")
			continue
		}
		for _, other := range out {
			o := other.AddrPort().Addr()
			if p.HostPort != 0 && p.HostPort == other.HostPort && (o == addr || o.IsUnspecified() || addr.IsUnspecified()) {
				bad("has a host port that is published already", "give each its own", other)
			}
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// exposed are the sentences for Unusual.
func exposed(list []Publish) []string {
	var hosts []string
	for _, p := range list {
		if !p.Loopback() {
			hosts = append(hosts, p.Host())
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	return []string{"LAN-FACING: " + strings.Join(hosts, ", ") + ": other machines can reach what listens inside, whatever that is"}
}

// publish lists what is reached from outside.
func (b *page) publish(list []Publish) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\npublished; connections from outside come in here and nowhere else\n")
	for _, p := range list {
		who := "(from this machine)"
		if !p.Loopback() {
			who = "(from other machines too)"
		}
		b.words(0, 2, append([]string{"tcp", p.Host(), "->", strconv.Itoa(int(p.Port)), "inside"}, strings.Fields(who)...))
	}
}
