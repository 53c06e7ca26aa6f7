// Packets that the ruleset refused, as the entrypoint tells of them.

package spec

import (
	"fmt"
	"net/netip"
)

// MaxBlocked bounds how many places are told apart: a sandbox can try as many as it
// likes.
const MaxBlocked = 256

// Blocked are packets to one place that the ruleset refused: first ones of TCP
// connections, datagrams and pings. The zero Addr stands for all places beyond
// MaxBlocked, and for packets of which the kernel told nothing else.
type Blocked struct {
	Proto string     `json:"proto"` // "tcp", "udp", "icmp", or "" for the zero Addr
	Addr  netip.Addr `json:"addr"`
	Port  uint16     `json:"port"`
	Count int        `json:"count"`
}

// Check reports what makes no sense.
func (b Blocked) Check() error {
	known := b.Proto == "tcp" || b.Proto == "udp" || b.Proto == "icmp"
	if known != b.Addr.IsValid() || b.Proto != "" && !known || b.Addr.Zone() != "" || b.Count < 1 || b.Count > 1<<40 {
		return fmt.Errorf("%d packets of %q to %s make no sense", b.Count, b.Proto, b.Addr)
	}
	return nil
}
