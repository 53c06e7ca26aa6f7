// What is let through, by name and port, and by address: the core of the builtin
// engine, and of what `ai-sandbox explain` says. squid.conf is generated from the
// same entries, and package gatetest holds both to the same answers.

package gate

import (
	"net/netip"
	"slices"
	"strings"

	"ai-sandbox/policy"
)

// A Host is what a client asked for, as rules compare it.
type Host struct {
	// Written is as the client wrote it, without brackets; for pages and the log.
	Written string
	// Name is in lower case and without a trailing dot. "" for an address, and
	// for what is neither.
	Name string
	// Addr is set where Written is an address; one of IPv4 in IPv6 form is that
	// of IPv4.
	Addr netip.Addr
}

// ParseHost reads a host. What is neither a name nor an address matches nothing.
func ParseHost(s string) Host {
	h := Host{Written: s}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		h.Addr = a.Unmap()
		return h
	}
	h.Name = canonical(s)
	return h
}

// canonical returns the form of a name that lists have, or "" where s is no name
// that could be looked up (RFC 1035, section 2.3.4). The underscore is no part of
// a host name and is in real ones all the same.
func canonical(s string) string {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return ""
	}
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 {
				return ""
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_':
		default:
			return ""
		}
		if label++; label > 63 {
			return ""
		}
	}
	if label == 0 {
		return ""
	}
	return strings.ToLower(s)
}

type nameKey struct {
	name string
	port uint16
}

type netKey struct {
	prefix netip.Prefix
	port   uint16
}

// A list is entries as tables: how long it takes to ask one does not depend on
// how many entries there are.
type list struct {
	ports map[uint16]bool
	names map[nameKey]bool // the value tells whether what is under it matches, too
	nets  map[netKey]bool
	bits  map[bool][]int // by whether it is IPv4: the lengths of the prefixes in nets
}

func newList(entries []policy.Entry) list {
	l := list{ports: map[uint16]bool{}, names: map[nameKey]bool{}, nets: map[netKey]bool{}, bits: map[bool][]int{}}
	for _, e := range entries {
		for _, port := range e.Ports() {
			switch {
			case e.Name != "":
				k := nameKey{e.Name, port}
				l.names[k] = l.names[k] || e.Subdomains
			case e.Prefix.IsValid():
				l.nets[netKey{e.Prefix, port}] = true
				v4 := e.Prefix.Addr().Is4()
				if !slices.Contains(l.bits[v4], e.Prefix.Bits()) {
					l.bits[v4] = append(l.bits[v4], e.Prefix.Bits())
				}
			default:
				continue
			}
			l.ports[port] = true
		}
	}
	return l
}

// name tells whether an entry lets a name through at a port. It has to be
// canonical.
func (l list) name(name string, port uint16) bool {
	if name == "" {
		return false
	}
	if _, ok := l.names[nameKey{name, port}]; ok {
		return true
	}
	for {
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		if l.names[nameKey{parent, port}] {
			return true
		}
		name = parent
	}
}

// host tells whether an entry lets a host through at a port: a name by an entry
// for names, an address by one for addresses.
func (l list) host(h Host, port uint16) bool {
	if !h.Addr.IsValid() {
		return l.name(h.Name, port)
	}
	return slices.ContainsFunc(l.bits[h.Addr.Is4()], func(bits int) bool {
		p, err := h.Addr.Prefix(bits)
		return err == nil && l.nets[netKey{p, port}]
	})
}

// Rules are a policy's lists. What is private is listed, too.
type Rules struct {
	// Learn lets every host through by name and port; its address decides all the same.
	Learn bool
	// Upstream is the proxy that everything goes through but what is private, or nil.
	Upstream                 *Upstream
	listed, private, spelled list
	allow, allowPrivate      []policy.Entry
}

// NewRules makes the tables of two lists.
func NewRules(allow, allowPrivate []policy.Entry) Rules {
	return Rules{
		allow: allow, allowPrivate: allowPrivate,
		listed:  newList(slices.Concat(allow, allowPrivate)),
		private: newList(allowPrivate),
		spelled: newList(slices.DeleteFunc(slices.Clone(allowPrivate), func(e policy.Entry) bool { return !e.LinkLocal() })),
	}
}

// Request judges what was asked for, before anything is resolved: a lookup would
// carry a refused name out. It returns the reason for a refusal, or "".
func (r Rules) Request(h Host, port uint16) string {
	switch {
	case r.Learn:
		// A name that is not looked up has to look like one of the public net's: what
		// the proxy makes of "2130706433" or "intranet" is not known here.
		if !h.Addr.IsValid() && (h.Name == "" || r.Far(h, port) && !public(h.Name)) {
			return ReasonName
		}
	case len(r.listed.ports) > 0 && !r.listed.ports[port]:
		return ReasonPort
	case !r.listed.host(h, port):
		return ReasonName
	}
	if r.Upstream != nil && r.Upstream.Is(h, port) {
		return ReasonUpstream
	}
	return ""
}

// Far tells whether a host at a port is the upstream proxy's to reach, so that of its
// addresses nothing is known.
func (r Rules) Far(h Host, port uint16) bool {
	return r.Upstream != nil && !r.private.host(h, port)
}

// public tells whether an entry could name it.
func public(name string) bool {
	e, err := policy.ParseEntry(name)
	return err == nil && e.Name == name && !e.Subdomains
}

// Addresses judges what the host led to: one that may not be connected to is
// enough for a refusal, and so is none at all. What is the upstream proxy's to reach is
// judged as it was asked for.
func (r Rules) Addresses(h Host, port uint16, all []netip.Addr) string {
	if r.Far(h, port) {
		if !h.Addr.IsValid() {
			return "" // by its name
		}
		all = []netip.Addr{h.Addr}
	}
	if len(all) == 0 {
		return ReasonLookup
	}
	inward := r.private.host(h, port)
	spelled := h.Addr.IsValid() && r.spelled.host(h, port)
	worst := ""
	for _, a := range all {
		if r.Upstream != nil && r.Upstream.Is(Host{Addr: a.Unmap()}, port) {
			return ReasonUpstream
		}
		switch AddrReason(a, inward, spelled) {
		case ReasonAddress:
			return ReasonAddress
		case ReasonPrivate:
			worst = ReasonPrivate
		}
	}
	return worst
}

// Name tells whether a name is on the list at a port; the one of a TLS hello
// is judged so.
func (r Rules) Name(name string, port uint16) bool {
	name = canonical(name)
	return r.Learn && name != "" || r.listed.name(name, port)
}
