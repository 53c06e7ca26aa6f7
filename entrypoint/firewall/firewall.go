// Package firewall turns a spec.Firewall into a ruleset as plain values, and
// prints those in nft's syntax. It is pure: it talks to no kernel.
//
// Everything is refused but loopback, and, when gated, TCP to the gate's
// address and port with the replies of those connections, and TCP from outside to
// the published ports with the replies of those.
package firewall

import (
	"fmt"
	"net/netip"
	"strings"

	"ai-sandbox/entrypoint/spec"
)

// Table is the name of our one table, of family inet.
const Table = "aisb"

// LogGroup is the NFLOG group (nfnetlink_log) that is told of packets past the gate.
const LogGroup = 77

// PublishComment is on the rules that are there for a published port.
const PublishComment = "aisb-publish"

// A Ruleset is the whole ruleset of the network namespace: one table of family
// inet, and no other.
type Ruleset struct {
	Table  string
	Chains []Chain
}

// A Chain is a base chain of type filter, priority filter and policy drop.
type Chain struct {
	// Name is also the hook's: "input", "forward" or "output".
	Name  string
	Rules []Rule
}

// A Verdict is what a rule does with a packet that it matches.
type Verdict string

// The verdicts. Reject answers with an ICMP port unreachable, and Reset a TCP
// packet with a reset, so that a tool fails at once instead of waiting. The
// kernel sends only so many ICMP errors a second (icmp(7), icmp_ratelimit), but
// any number of resets.
const (
	Accept Verdict = "accept"
	Reject Verdict = "reject"
	Reset  Verdict = "reject with tcp reset"
)

// A Rule matches what fits every field that is set.
type Rule struct {
	InIface  string
	OutIface string
	// Src and Dst are IPv4 addresses.
	Src netip.Addr
	Dst netip.Addr
	// TCPSrc and TCPDst are ports; one that is set means TCP.
	TCPSrc uint16
	TCPDst uint16
	// TCP matches every TCP packet.
	TCP bool
	// Established matches packets of a connection that was answered before.
	Established bool
	// Begun matches packets of a connection that the other side begins: its first
	// one, and what follows on an answer.
	Begun bool
	// Answer matches packets of an established connection that go against its
	// direction: to whoever began it.
	Answer  bool
	Counter bool
	// Log tells the packet to whoever listens to LogGroup.
	Log     bool
	Verdict Verdict
	// Comment is shown and matches nothing.
	Comment string
}

// Build returns the ruleset for f. Mode host has none.
func Build(f spec.Firewall) (Ruleset, error) {
	input := []Rule{{InIface: "lo", Verdict: Accept}}
	output := []Rule{{OutIface: "lo", Verdict: Accept}}
	switch f.Mode {
	case spec.ModeUnix, spec.ModeNone:
	case spec.ModeGated:
		gate, err := netip.ParseAddr(f.GateAddr)
		if err != nil || !gate.Is4() || gate.IsUnspecified() || f.GatePort == 0 {
			return Ruleset{}, fmt.Errorf("%q port %d is not a gate's address and port", f.GateAddr, f.GatePort)
		}
		input = append(input, Rule{Src: gate, TCPSrc: f.GatePort, Established: true, Verdict: Accept})
		output = append(output, Rule{Dst: gate, TCPDst: f.GatePort, Verdict: Accept})
		for _, port := range f.Published {
			// The first packet of a connection that begins inside is no answer, so
			// a published port is no way out.
			input = append(input, Rule{TCPDst: port, Begun: true, Verdict: Accept, Comment: PublishComment})
			output = append(output, Rule{TCPSrc: port, Answer: true, Verdict: Accept, Comment: PublishComment})
		}
	default:
		return Ruleset{}, fmt.Errorf("unknown firewall mode %q", f.Mode)
	}
	// Without a network there is no packet to tell of.
	log := f.Mode == spec.ModeGated
	output = append(output, Rule{TCP: true, Counter: true, Log: log, Verdict: Reset}, Rule{Counter: true, Log: log, Verdict: Reject})
	return Ruleset{
		Table: Table,
		Chains: []Chain{
			{Name: "input", Rules: input},
			{Name: "forward"},
			{Name: "output", Rules: output},
		},
	}, nil
}

// Text is r as `nft list ruleset` shows it before any packet has passed.
func (r Ruleset) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", r.Table)
	for i, c := range r.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook %s priority filter; policy drop;\n", c.Name, c.Name)
		for _, rule := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", rule)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// String is the rule in nft's syntax.
func (r Rule) String() string {
	var w []string
	add := func(is bool, format string, args ...any) {
		if is {
			w = append(w, fmt.Sprintf(format, args...))
		}
	}
	add(r.InIface != "", "iifname %q", r.InIface)
	add(r.OutIface != "", "oifname %q", r.OutIface)
	add(r.Src.IsValid(), "ip saddr %s", r.Src)
	add(r.Dst.IsValid(), "ip daddr %s", r.Dst)
	add(r.TCPSrc != 0, "tcp sport %d", r.TCPSrc)
	add(r.TCPDst != 0, "tcp dport %d", r.TCPDst)
	add(r.TCP, "meta l4proto tcp")
	add(r.Established || r.Answer, "ct state established")
	add(r.Begun, "ct state established,new")
	add(r.Answer, "ct direction reply")
	add(r.Counter, "counter packets 0 bytes 0")
	add(r.Log, "log group %d", LogGroup)
	w = append(w, string(r.Verdict))
	add(r.Comment != "", "comment %q", r.Comment)
	return strings.Join(w, " ")
}
