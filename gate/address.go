// The addresses that no name may lead to.

package gate

import (
	"net/netip"
	"slices"
)

// An addrClass is a set of ranges with one rule for who may open them.
type addrClass struct {
	v4, v6 []string
}

var (
	// unroutable is where no connection has any business going; nothing
	// opens it. On Linux 0.0.0.0 and :: are the host itself.
	unroutable = addrClass{
		v4: []string{"0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4"},
		v6: []string{"::/128", "ff00::/8"},
	}
	// linkLocal holds the clouds' metadata services. It opens only to an
	// allow-private entry that is the very address.
	linkLocal = addrClass{
		v4: []string{"169.254.0.0/16"},
		v6: []string{"fe80::/10"},
	}
	// private opens to any allow-private entry. Documentation ranges are not
	// here (some networks resolve their mirrors to them), nor is 198.18/15,
	// which some VPN clients answer every lookup with.
	private = addrClass{
		v4: []string{"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16"},
		v6: []string{"::1/128", "fc00::/7", "fec0::/10"},
	}
	// tunnels are IPv6 ranges that stand for IPv4 addresses in ways that a
	// prefix cannot tell apart, or that no public host lives in: IPv4-
	// compatible (but :: and ::1, which are above), SIIT, NAT64's local
	// prefix, Teredo.
	tunnels = addrClass{
		v6: []string{"::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32"},
	}
)

// The classes as prefixes, for AddrReason and contains.
var (
	unroutableRanges = unroutable.expand()
	linkLocalRanges  = linkLocal.expand()
	privateRanges    = slices.Concat(private.expand(), tunnels.expand())
)

// AddrReason says why no connection may be made to a, or "". inward: what was
// asked for has an allow-private entry; spelled: it is a link-local address that
// an allow-private entry spells out. An IPv4 address in IPv6 form is judged as
// what it stands for.
func AddrReason(a netip.Addr, inward, spelled bool) string {
	switch {
	case !a.IsValid() || a.Zone() != "" || contains(unroutableRanges, a):
		return ReasonAddress
	case contains(linkLocalRanges, a) && !spelled:
		return ReasonAddress
	case contains(privateRanges, a) && !inward:
		return ReasonPrivate
	}
	return ""
}

func contains(class []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(class, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ranges returns the classes' ranges without those that lie in another: squid
// drops one of the two then, and says so.
func ranges(classes ...addrClass) []netip.Prefix {
	var all []netip.Prefix
	for _, c := range classes {
		all = append(all, c.expand()...)
	}
	slices.SortStableFunc(all, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	var out []netip.Prefix
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Overlaps(p) }) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return out
}

// expand returns the class's ranges with every IPv6 form that leads to one of
// its IPv4 ranges: NAT64 (64:ff9b::/96) and 6to4 (2002::/16). The mapped form
// (::ffff:0:0/96) is not among them: squid reads it as the IPv4 address, and
// would read such a range as one of IPv4.
func (c addrClass) expand() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range c.v4 {
		p := netip.MustParsePrefix(s)
		a := p.Addr().As4()
		nat64 := [16]byte{0, 0x64, 0xff, 0x9b, 12: a[0], a[1], a[2], a[3]}
		sixToFour := [16]byte{0x20, 0x02, a[0], a[1], a[2], a[3]}
		out = append(out, p,
			netip.PrefixFrom(netip.AddrFrom16(nat64), 96+p.Bits()),
			netip.PrefixFrom(netip.AddrFrom16(sixToFour), 16+p.Bits()))
	}
	for _, s := range c.v6 {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}
