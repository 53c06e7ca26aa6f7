// The allowlist's grammar.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// An Entry is one line of an allowlist: a host, a domain with everything under
// it, or an address range spelled out, with an optional port. Its zero value
// matches nothing.
//
// Written form:
//
//	example.com          that host, on ports 80 and 443
//	.example.com         the domain and all under it; *.example.com is the same
//	example.com:8443     on that port only
//	192.0.2.7            an address, only where a client spells it out
//	192.0.2.0/24:8443    a range of addresses, likewise
//	2001:db8::7          IPv6; with a port: [2001:db8::7]:8443, [2001:db8::/32]:8443
//
// A name entry never matches an address, and an address entry never matches a
// name that resolves to it. Single labels (localhost, db) are refused, for
// private entries too: without a search domain they resolve nowhere, and
// loopback can be spelled out as 127.0.0.1.
type Entry struct {
	// Name is the canonical host name: ASCII, lower case, no dot at either
	// end. Empty for an address entry.
	Name string
	// Subdomains is set for ".host" and "*.host": the domain and all under it.
	Subdomains bool
	// Prefix is set for an IP address or CIDR entry.
	Prefix netip.Prefix
	// Port is 0 for the default ports, 80 and 443.
	Port uint16
}

// DefaultPorts are the ports of an entry that names none.
var DefaultPorts = [2]uint16{80, 443}

const (
	// maxEntry bounds what is parsed: the longest name, brackets and a port.
	maxEntry = 512
	// minBits is the widest range that an entry may name. A wider one is a
	// good part of the internet, and not a decision about a host.
	minBits = 8
)

// An EntryError tells what is wrong with one allowlist entry, and what to write
// instead.
type EntryError struct {
	Entry  string // as written
	Reason string
	Hint   string // may be empty
}

// Error names the entry, quoted so that no byte of it reaches a terminal raw.
func (e *EntryError) Error() string {
	s := e.Entry
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	msg := fmt.Sprintf("allow entry %+q: %s", s, e.Reason)
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return msg
}

// ParseEntry reads one entry and returns it in canonical form. The error is an
// *EntryError.
func ParseEntry(s string) (Entry, error) {
	bad := func(reason, hint string) (Entry, error) {
		return Entry{}, &EntryError{Entry: s, Reason: reason, Hint: hint}
	}
	const form = "write a host (api.example.com), a domain with all under it (.example.com) or an address, with :PORT where it is neither 80 nor 443"
	if strings.TrimSpace(s) == "" {
		return bad("it is empty", form)
	}
	if len(s) > maxEntry {
		return bad("it is too long for a host name", form)
	}
	if !utf8.ValidString(s) {
		return bad("it is not text", form)
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if _, after, found := strings.Cut(host, "@"); found {
			host = after
		}
		if scheme == "" || host == "" {
			return bad("it is not a host", form)
		}
		return bad("it is a URL, and an entry is a host", suggest(host, form))
	}
	if addr, ok, err := parseAddrEntry(s); err != nil {
		return Entry{}, err
	} else if ok {
		return addr, nil
	}
	for _, r := range s {
		switch {
		case r == '/':
			host, _, _ := strings.Cut(s, "/")
			return bad("it has a path, and the gate decides by host", suggest(host, form))
		case r == '@':
			_, host, _ := strings.Cut(s, "@")
			return bad("it has a user name, and the gate decides by host", suggest(host, form))
		case r <= ' ' || r == 0x7f || strings.ContainsRune(`"'#%\,;<>()[]{}|?&$!=+^~`+"`", r):
			return bad(fmt.Sprintf("%+q cannot be in a host name", r), form)
		}
	}

	name, port, hasPort := strings.Cut(s, ":")
	var e Entry
	if hasPort {
		p, reason := parsePort(port)
		if reason != "" {
			return bad(reason, form)
		}
		e.Port = p
	}
	switch {
	case strings.HasPrefix(name, "*."):
		e.Subdomains, name = true, name[2:]
	case strings.HasPrefix(name, "."):
		e.Subdomains, name = true, name[1:]
	}
	if name == "" || name == "*" {
		return bad("it stands for every host", "name the hosts; nothing opens all of them")
	}
	if strings.Contains(name, "*") {
		return bad("a * stands only for whole labels, at the start", "write .example.com for example.com and all under it")
	}
	name, reason := canonicalName(name)
	if reason != "" {
		return bad(reason, form)
	}
	e.Name = name
	if !strings.Contains(name, ".") {
		hint := "write the full name, as in " + name + ".example.com"
		if name == "localhost" {
			hint = "write the address: --allow-private 127.0.0.1:PORT"
		}
		return bad("it is a single label, which names no host on the network", hint)
	}
	if strings.HasSuffix(name, ".localhost") {
		return bad("localhost is no name for a gate", "write the address: --allow-private 127.0.0.1:PORT")
	}
	if suffix, icann := publicsuffix.PublicSuffix(name); suffix == name {
		if e.Subdomains {
			return bad("anyone can have a name under "+name, "name the domain below it, as in .yours."+name)
		}
		if icann {
			return bad(name+" is a registry's suffix, not a host", "name the host below it, as in www.yours."+name)
		}
	}
	return e, nil
}

// suggest names the entry to write instead where that one would be accepted.
func suggest(s, otherwise string) string {
	if e, err := ParseEntry(strings.ToLower(s)); err == nil {
		return "write " + e.String()
	}
	return otherwise
}

// canonicalName returns the ASCII lower-case form without a trailing dot, or
// what is wrong.
func canonicalName(s string) (name, reason string) {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < 0x80
	}
	if !ascii || strings.Contains(strings.ToLower(s), "xn--") {
		// Lookup maps what browsers map (case, full-width forms and dots)
		// and refuses labels that do not round-trip. Plain ASCII names do
		// not go through it: it refuses "--" in places where real hosts
		// have it.
		a, err := idna.Lookup.ToASCII(s)
		if err != nil {
			return "", "it is not a valid internationalised name"
		}
		s = a
	}
	s = strings.TrimSuffix(strings.ToLower(s), ".")
	if len(s) > 253 {
		return "", "it is longer than the 253 bytes of a host name"
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" {
			return "", "it has an empty label"
		}
		if len(l) > 63 {
			return "", "one of its labels is longer than 63 bytes"
		}
		if l[0] == '-' || l[len(l)-1] == '-' {
			return "", "a label cannot begin or end with a hyphen"
		}
		for i := range len(l) {
			c := l[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return "", fmt.Sprintf("%+q cannot be in a host name", rune(c))
			}
		}
	}
	// Programs read a name that ends in a number as an IPv4 address, in
	// decimal, octal or hex.
	last := labels[len(labels)-1]
	if hex, ok := strings.CutPrefix(last, "0x"); ok && strings.Trim(hex, "0123456789abcdef") == "" ||
		strings.Trim(last, "0123456789") == "" {
		return "", "it ends in a number but is not an address in dotted form"
	}
	return s, ""
}

// parseAddrEntry reads an address or CIDR entry. ok is false where s is not
// meant as one.
func parseAddrEntry(s string) (e Entry, ok bool, err error) {
	bad := func(reason, hint string) (Entry, bool, error) {
		return Entry{}, false, &EntryError{Entry: s, Reason: reason, Hint: hint}
	}
	body, port, hasPort := s, "", false
	switch {
	case strings.HasPrefix(s, "["):
		inner, rest, found := strings.Cut(s[1:], "]")
		if !found || !strings.Contains(inner, ":") || rest != "" && rest[0] != ':' {
			return bad("brackets are for an IPv6 address", "write [2001:db8::7]:8443")
		}
		body = inner
		if rest != "" {
			port, hasPort = rest[1:], true
		}
	case strings.Count(s, ":") == 1:
		body, port, hasPort = strings.Cut(s, ":")
	}
	var p netip.Prefix
	if a, aerr := netip.ParseAddr(body); aerr == nil {
		if a.Zone() != "" {
			return bad("an address with a zone means something else on each machine", "write it without the zone")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	} else if q, perr := netip.ParsePrefix(body); perr == nil {
		p = q
	} else if strings.HasPrefix(s, "[") || strings.Count(s, ":") > 1 {
		return bad("it is not an IPv6 address", "write 2001:db8::7, with a port [2001:db8::7]:8443")
	} else {
		return Entry{}, false, nil
	}
	a := p.Addr()
	if a.Is4In6() {
		return bad("it is an IPv4 address in IPv6 form", "write "+a.Unmap().String())
	}
	if p.Bits() < minBits {
		return bad("it covers a good part of the internet", "write a range of /"+strconv.Itoa(minBits)+" or narrower")
	}
	if p != p.Masked() {
		return bad("it has bits set beyond its length", "write "+p.Masked().String()+" for the range or "+a.String()+" for the address")
	}
	if a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return bad("no connection can go there", "write the address of a host")
	}
	e.Prefix = p
	if hasPort {
		n, reason := parsePort(port)
		if reason != "" {
			return bad(reason, "write a port from 1 to 65535")
		}
		e.Port = n
	}
	return e, true, nil
}

func parsePort(s string) (uint16, string) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, "what follows the colon is not a port number"
	}
	if s[0] == '0' {
		return 0, "a port has no leading zero and is not 0"
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, "a port is at most 65535"
	}
	return uint16(n), ""
}

// IsZero reports whether e is the zero Entry, which matches nothing.
func (e Entry) IsZero() bool { return e == Entry{} }

// Valid reports whether e is what ParseEntry returns for its own written form.
// Renderers call it: an Entry made by hand must not carry bytes that the
// grammar keeps out.
func (e Entry) Valid() bool {
	again, err := ParseEntry(e.String())
	return err == nil && again == e
}

// String returns the canonical written form, which ParseEntry reads back as the
// same Entry. It is the form for the --allow flag.
func (e Entry) String() string {
	if e.IsZero() {
		return ""
	}
	port := ""
	if e.Port != 0 {
		port = ":" + strconv.Itoa(int(e.Port))
	}
	if e.Name != "" {
		if e.Subdomains {
			return "." + e.Name + port
		}
		return e.Name + port
	}
	host := e.Prefix.String()
	if e.Prefix.IsSingleIP() {
		host = e.Prefix.Addr().String()
	}
	if port != "" && e.Prefix.Addr().Is6() {
		host = "[" + host + "]"
	}
	return host + port
}

// MarshalText writes the canonical form, so that JSON shows an entry as people
// write it.
func (e Entry) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText is ParseEntry.
func (e *Entry) UnmarshalText(b []byte) error {
	p, err := ParseEntry(string(b))
	if err != nil {
		return err
	}
	*e = p
	return nil
}

// Ports returns the ports that e opens.
func (e Entry) Ports() []uint16 {
	if e.Port != 0 {
		return []uint16{e.Port}
	}
	return DefaultPorts[:]
}

// Match reports whether e lets a request for host and port through. The host is
// compared as a proxy sees it: case and one trailing dot do not matter, and an
// address may stand in brackets.
func (e Entry) Match(host string, port uint16) bool {
	if !slices.Contains(e.Ports(), port) {
		return false
	}
	if e.Name == "" {
		if !e.Prefix.IsValid() {
			return false
		}
		if h, ok := strings.CutPrefix(host, "["); ok {
			host = strings.TrimSuffix(h, "]")
		}
		a, err := netip.ParseAddr(host)
		return err == nil && e.Prefix.Contains(a.Unmap())
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == e.Name {
		return true
	}
	rest, ok := strings.CutSuffix(host, "."+e.Name)
	return e.Subdomains && ok && rest != ""
}

// LinkLocal reports whether e spells out one link-local address, which is the
// only way to let a session reach one (a cloud's metadata service, say). A range that
// Covers it lets through less.
func (e Entry) LinkLocal() bool {
	return e.Prefix.IsSingleIP() && e.Prefix.Addr().IsLinkLocalUnicast()
}

// Covers reports whether everything that o lets through, e lets through too.
func (e Entry) Covers(o Entry) bool {
	if e.IsZero() || o.IsZero() {
		return o.IsZero()
	}
	if e.Port != o.Port && (e.Port != 0 || !slices.Contains(DefaultPorts[:], o.Port)) {
		return false
	}
	if o.Name == "" {
		return e.Prefix.IsValid() && e.Prefix.Bits() <= o.Prefix.Bits() && e.Prefix.Contains(o.Prefix.Addr())
	}
	if e.Name == o.Name {
		return e.Subdomains || !o.Subdomains
	}
	return e.Name != "" && e.Subdomains && strings.HasSuffix(o.Name, "."+e.Name)
}

// Normalise returns the list without what another of its entries covers, in an
// order that depends on the set alone. It lets through exactly what the list
// did.
func Normalise(list []Entry) []Entry {
	set := make(map[Entry]bool, len(list))
	for _, e := range list {
		if !e.IsZero() {
			set[e] = true
		}
	}
	out := make([]Entry, 0, len(set))
	for e := range set {
		if !coveredBy(set, e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, compareEntries)
	return out
}

// Covered reports whether e is in the set, or something in it covers e.
func Covered(set map[Entry]bool, e Entry) bool { return set[e] || coveredBy(set, e) }

// coveredBy looks up what could cover e instead of comparing it with each: lists
// of a hundred thousand entries are normal for some. A range does not let through
// what one address does: see LinkLocal.
func coveredBy(set map[Entry]bool, e Entry) bool {
	ports := []uint16{e.Port}
	if slices.Contains(DefaultPorts[:], e.Port) {
		ports = append(ports, 0)
	}
	for _, port := range ports {
		if e.Name == "" {
			for bits := e.Prefix.Bits(); bits >= minBits && (bits == e.Prefix.Bits() || !e.LinkLocal()); bits-- {
				c := Entry{Prefix: netip.PrefixFrom(e.Prefix.Addr(), bits).Masked(), Port: port}
				if c != e && set[c] {
					return true
				}
			}
			continue
		}
		if c := (Entry{Name: e.Name, Port: port}); c != e && !e.Subdomains && set[c] {
			return true
		}
		for name := e.Name; name != ""; {
			if c := (Entry{Name: name, Subdomains: true, Port: port}); c != e && set[c] {
				return true
			}
			_, name, _ = strings.Cut(name, ".")
		}
	}
	return false
}

func compareEntries(a, b Entry) int {
	if c := cmp.Compare(min(len(b.Name), 1), min(len(a.Name), 1)); c != 0 {
		return c // names before addresses
	}
	c := cmp.Compare(a.Name, b.Name)
	if c == 0 && a.Subdomains != b.Subdomains {
		c = 1
		if a.Subdomains {
			c = -1
		}
	}
	if c == 0 && a.Name == "" {
		c = cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	}
	return cmp.Or(c, cmp.Compare(a.Port, b.Port))
}

// ParseEntries reads a list, reports every bad entry, and normalises the rest.
func ParseEntries(list []string) ([]Entry, error) {
	var out []Entry
	var errs []error
	for _, s := range list {
		e, err := ParseEntry(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, e)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return Normalise(out), nil
}
