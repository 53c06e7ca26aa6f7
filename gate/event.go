// What a gate has decided, as it is kept and shown: one line of JSON each.

package gate

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ai-sandbox/policy"
)

// Verdicts of an Event.
const (
	VerdictAllowed = "allowed"
	VerdictRefused = "refused"
	// VerdictFailed: it was let through, and no connection came of it.
	VerdictFailed = "failed"
	// VerdictBlocked: packets past the gate, which the kernel refused.
	VerdictBlocked = "blocked"
)

// RuleRuleset is the rule of what is blocked, and RuleLearn of what only --net learn
// lets through.
const (
	RuleRuleset = "ruleset"
	RuleLearn   = "learn"
)

// An Event is one decision. Nothing of it is more than the host asked for: no path, no
// query and no header. All that the sandbox chose is of printable ASCII, and short.
type Event struct {
	Time time.Time `json:"time"`
	// Session is who asked, or "" where that is not known, and Gate the named gate.
	Session string `json:"session,omitempty"`
	Gate    string `json:"gate,omitempty"`
	// Method is that of the request; of a packet, tcp, udp or icmp.
	Method string `json:"method"`
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	// SNI is the name in the TLS hello, where that is what was refused, or, with net
	// learn, another one than the host.
	SNI     string `json:"sni,omitempty"`
	Verdict string `json:"verdict"`
	// Rule is the entry that lets it through, as it stands in the list, or one of
	// the Reason constants.
	Rule string `json:"rule"`
	// BytesIn is what the sandbox got, and BytesOut what it sent.
	BytesIn    int64 `json:"bytes_in"`
	BytesOut   int64 `json:"bytes_out"`
	DurationMS int64 `json:"duration_ms"`
	// Count is how many packets it were.
	Count int `json:"count,omitempty"`
}

// Longest values of what the sandbox chooses, in bytes.
const (
	maxHost   = 260
	maxMethod = 32
)

// Event is the decision as it is kept, by the rules that it was made with.
func (d Decision) Event(r Rules) Event {
	e := Event{
		Time: d.Time.UTC(), Method: plainText(d.Method, maxMethod), Host: plainText(d.Host, maxHost), Port: d.Port,
		Verdict: VerdictAllowed, BytesIn: max(d.Sent, 0), BytesOut: max(d.Received, 0), DurationMS: max(d.Duration.Milliseconds(), 0),
	}
	switch {
	case d.Reason != "":
		e.Verdict, e.Rule = VerdictRefused, plainText(d.Reason, maxMethod)
		if d.Reason == ReasonSNI {
			e.SNI = plainText(d.SNI, maxHost)
		}
		return e
	case d.failed():
		e.Verdict = VerdictFailed
	}
	e.Rule = r.Rule(ParseHost(d.Host), d.Port)
	if r.Learn && d.SNI != "" && canonical(d.SNI) != canonical(d.Host) {
		e.SNI = plainText(d.SNI, maxHost)
	}
	return e
}

// failed: what was let through led to no connection.
func (d Decision) failed() bool {
	return d.Method == "CONNECT" && d.Status != 200 || d.Status >= 500 && d.Error != ""
}

// Rule is what lets a host through at a port, as it stands in the policy, or "".
func (r Rules) Rule(h Host, port uint16) string {
	for _, l := range []struct {
		key  string
		list []policy.Entry
	}{{"allow ", r.allow}, {"allow_private ", r.allowPrivate}} {
		if i := slices.IndexFunc(l.list, func(e policy.Entry) bool { return lets(e, h, port) }); i >= 0 {
			return l.key + l.list[i].String()
		}
	}
	if r.Learn {
		return RuleLearn
	}
	return ""
}

// lets tells what newList does for one entry, without tables.
func lets(e policy.Entry, h Host, port uint16) bool {
	if e.Port != 0 && e.Port != port || e.Port == 0 && !slices.Contains(policy.DefaultPorts[:], port) {
		return false
	}
	if h.Addr.IsValid() {
		return e.Name == "" && e.Prefix.IsValid() && e.Prefix.Contains(h.Addr)
	}
	return h.Name != "" && e.Name != "" && (h.Name == e.Name || e.Subdomains && strings.HasSuffix(h.Name, "."+e.Name))
}

// plainText is s with every byte that is in no host or word percent-encoded, cut
// after so many bytes.
func plainText(s string, most int) string {
	var b []byte
	for i := 0; i < len(s) && len(b) < most; i++ {
		if hostByte(s[i]) || s[i] == '%' {
			b = append(b, s[i])
		} else {
			b = fmt.Appendf(b, "%%%02X", s[i])
		}
	}
	return string(b[:min(len(b), most)])
}

// A Joiner makes one list of what the two squids of a gate have logged. What is
// refused inside a tunnel is in the front one's log, too, as let through; the port of
// its connection to the other one tells which it is.
type Joiner struct {
	refused map[uint16]bool
	held    []Decision
}

// maxJoined bounds what is remembered of refused tunnels whose other line is not there.
const maxJoined = 4096

// Add takes what has been logged since the last call, and returns what is known of it
// by now. The last call is told so, when both squids have logged everything.
func (j *Joiner) Add(front, peek []Decision, last bool) []Decision {
	var out []Decision
	if len(j.refused) > maxJoined || j.refused == nil {
		j.refused = map[uint16]bool{}
	}
	for _, d := range peek {
		if d.Reason != "" {
			j.refused[d.ClientPort] = true
			out = append(out, d)
		}
	}
	held := j.held
	j.held = nil
	twice := func(d Decision) bool {
		found := d.Method == "CONNECT" && d.LocalPort != 0 && j.refused[d.LocalPort]
		if found {
			delete(j.refused, d.LocalPort)
		}
		return found
	}
	for _, d := range held {
		if !twice(d) {
			out = append(out, d)
		}
	}
	for _, d := range front {
		switch {
		case d.Reason != "":
			out = append(out, d)
		case d.Host == "" || d.Port == 0 || twice(d):
			// no request, or told already
		case d.Method == "CONNECT" && !last:
			j.held = append(j.held, d)
		default:
			out = append(out, d)
		}
	}
	return out
}

// A UsedHost is what the gate let through, once for each host and port.
type UsedHost struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Count    int    `json:"count"`
	Rule     string `json:"rule"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

// A Usage collects what was let through. The zero value is ready.
type Usage struct {
	hosts map[UsedHost]*UsedHost
	order []*UsedHost
	// More counts what was let through to hosts beyond those that are told apart.
	More int
}

// Add counts e if it was let through.
func (u *Usage) Add(e Event) {
	if e.Verdict != VerdictAllowed && e.Verdict != VerdictFailed {
		return
	}
	if e.SNI != "" { // a list would have to have that one, too
		other := e
		other.Host, other.SNI, other.Rule, other.BytesIn, other.BytesOut = e.SNI, "", RuleLearn, 0, 0
		u.Add(other)
	}
	key := UsedHost{Host: strings.TrimSuffix(strings.ToLower(e.Host), "."), Port: e.Port, Rule: e.Rule}
	h := u.hosts[key]
	if h == nil {
		if len(u.order) >= maxHosts {
			u.More++
			return
		}
		if u.hosts == nil {
			u.hosts = map[UsedHost]*UsedHost{}
		}
		h = &UsedHost{Host: key.Host, Port: key.Port, Rule: key.Rule}
		u.hosts[key] = h
		u.order = append(u.order, h)
	}
	h.Count++
	h.BytesIn += e.BytesIn
	h.BytesOut += e.BytesOut
}

// Used returns the hosts in the order in which they were first used.
func (u *Usage) Used() []UsedHost {
	out := make([]UsedHost, 0, len(u.order))
	for _, h := range u.order {
		out = append(out, *h)
	}
	return out
}

// Learned are the entries that would let through what RuleLearn did, and the hosts that
// no entry can name.
func Learned(used []UsedHost) (entries []policy.Entry, odd []UsedHost) {
	for _, h := range used {
		if h.Rule != RuleLearn {
			continue
		}
		s := h.Host
		if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
			s = "[" + s + "]"
		}
		if !slices.Contains(policy.DefaultPorts[:], h.Port) {
			s += ":" + strconv.Itoa(int(h.Port))
		}
		if e, err := policy.ParseEntry(s); err == nil {
			entries = append(entries, e)
		} else {
			odd = append(odd, h)
		}
	}
	return policy.Normalise(entries), odd
}
