// The gate's log: reading it, and what it says about refusals.

package gate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ai-sandbox/policy"
)

// maxLine bounds a line of the log. Ours are under 1 KiB; a longer one is not
// ours, and is skipped without being held.
const maxLine = 4 << 10

// maxHosts bounds how many refused hosts are told apart. A sandbox can ask for
// as many as it likes; the rest is counted together.
const maxHosts = 1000

// A Decision is one line of the log.
type Decision struct {
	// Squid is "front", or "peek" for what was refused inside a tunnel; the
	// builtin engine says the same.
	Squid      string
	Time       time.Time
	ClientPort uint16
	Method     string
	// Host is the host asked for, without brackets. Where it held bytes that
	// no host name has, it is percent-encoded.
	Host string
	// Port is 0 where the request was no request.
	Port     uint16
	Verdict  string // squid's: TCP_DENIED, TCP_TUNNEL, ...
	Status   int
	Sent     int64 // bytes to the client
	Received int64 // bytes from the client
	Duration time.Duration
	Server   string // the address connected to, or ""
	// Reason is one of the Reason constants for a refusal, or "".
	Reason string
	// SNI is the server name of a TLS hello (peek only).
	SNI   string
	Error string // squid's name of the error page, or ""
	// LocalPort is the gate's own of its connection to the far server, or to the
	// other squid; 0 where it is not known.
	LocalPort uint16
}

// A MalformedError tells how many lines of a log were not ours.
type MalformedError struct {
	Lines int
	First int // number of the first, from 1
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("gate log: %d lines make no sense, the first is line %d", e.Lines, e.First)
}

// ParseLog reads a log. It returns what it could read even with an error, which
// is a *MalformedError where lines were skipped. A last line without its end is
// one that squid was writing when it was stopped: it is left out.
func ParseLog(r io.Reader) ([]Decision, error) {
	var out []Decision
	_, err := ScanLog(r, func(d Decision) { out = append(out, d) })
	return out, err
}

// ScanLog is ParseLog without the list: it calls f for each decision, so that a
// log of any length takes no memory. It returns how many bytes the whole lines had.
func ScanLog(r io.Reader, f func(Decision)) (size int64, err error) {
	br := bufio.NewReaderSize(r, maxLine)
	var bad MalformedError
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		length := int64(len(line))
		long := false
		for errors.Is(err, bufio.ErrBufferFull) {
			long = true
			line, err = br.ReadSlice('\n')
			length += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return size, fmt.Errorf("read the gate's log: %w", err)
		}
		size += length
		d, ok := parseLine(strings.TrimSuffix(string(line), "\n"))
		if long || !ok {
			bad.Lines++
			if bad.First == 0 {
				bad.First = n
			}
			continue
		}
		f(d)
	}
	if bad.Lines > 0 {
		return size, &bad
	}
	return size, nil
}

// parseLine reads one line of logFields.
func parseLine(s string) (Decision, bool) {
	f := strings.Split(s, " ")
	if len(f) != 16 || (f[0] != "front" && f[0] != "peek") {
		return Decision{}, false
	}
	ok := true
	num := func(s string, bits int) int64 {
		if s == "-" {
			return 0
		}
		n, err := strconv.ParseUint(s, 10, bits)
		ok = ok && err == nil
		return int64(n)
	}
	word := func(s string) string {
		for i := range len(s) {
			if s[i] <= ' ' || s[i] >= 0x7f {
				ok = false
			}
		}
		if s == "-" {
			return ""
		}
		return s
	}
	sec, ms, found := strings.Cut(f[1], ".")
	ok = found && len(ms) == 3
	d := Decision{
		Squid:      f[0],
		Time:       time.Unix(num(sec, 40), num(ms, 16)*int64(time.Millisecond)).UTC(),
		ClientPort: uint16(num(f[2], 16)),
		Method:     word(f[3]),
		Host:       hostField(word(f[4])),
		Port:       uint16(num(f[5], 16)),
		Verdict:    word(f[6]),
		Status:     int(num(f[7], 16)),
		Sent:       num(f[8], 62),
		Received:   num(f[9], 62),
		Duration:   time.Duration(num(forward(f[10]), 40)) * time.Millisecond,
		Server:     hostField(word(f[11])),
		Reason:     word(f[12]),
		SNI:        hostField(word(f[13])),
		Error:      word(f[14]),
		LocalPort:  uint16(num(f[15], 16)),
	}
	return d, ok
}

// forward is 0 for a time that is negative: squid's clock is the machine's, which may have
// been set back.
func forward(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-" // none
	}
	return s
}

// hostByte tells whether c can be in a host name, an address or a word of ours.
func hostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._:", c) >= 0
}

// hostField undoes the percent-encoding where nothing but a host comes of it,
// and takes the brackets off an address.
func hostField(s string) string {
	u, err := url.PathUnescape(s)
	if err != nil || strings.Trim(strings.ToLower(u), "abcdefghijklmnopqrstuvwxyz0123456789-._:[]") != "" {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(u, "["), "]")
}

// A RefusedHost is what the gate refused, once for each host and way to open it.
type RefusedHost struct {
	Host  string `json:"host"`
	Port  uint16 `json:"port"` // of the first refusal
	Count int    `json:"count"`
	// AllowFlag is what would let it through, or "".
	AllowFlag string `json:"allow_flag,omitempty"`
	Reason    string `json:"reason"`
	// Why tells, where AllowFlag is "", why none would.
	Why string `json:"why,omitempty"`
}

// A Tally collects refusals without keeping decisions. The zero value is ready.
type Tally struct {
	hosts map[[2]string]*RefusedHost
	order []*RefusedHost
	// More counts the refusals of hosts beyond those that are told apart.
	More int
}

// Add counts d if it is a refusal.
func (t *Tally) Add(d Decision) {
	if d.Reason == "" {
		return
	}
	h := refused(d)
	key := [2]string{h.Host, cmp.Or(h.AllowFlag, h.Reason)}
	if seen := t.hosts[key]; seen != nil {
		seen.Count++
		return
	}
	if len(t.order) >= maxHosts {
		t.More++
		return
	}
	if t.hosts == nil {
		t.hosts = map[[2]string]*RefusedHost{}
	}
	t.hosts[key] = &h
	t.order = append(t.order, &h)
}

// Refused returns the hosts in the order in which they were first refused.
func (t *Tally) Refused() []RefusedHost {
	out := make([]RefusedHost, 0, len(t.order))
	for _, h := range t.order {
		out = append(out, *h)
	}
	return out
}

// Refused returns each refused host once, with its count and what would let it
// through.
func Refused(list []Decision) []RefusedHost {
	var t Tally
	for _, d := range list {
		t.Add(d)
	}
	return t.Refused()
}

// Why nothing would let a host through.
const (
	noWay   = "no connection can go there"
	noEntry = "no entry can name it"
)

// refused says what would have let d through.
func refused(d Decision) RefusedHost {
	// What a client can write down for a host is as long as a request may be.
	name := func(s string) string { return strings.TrimSuffix(strings.ToLower(plainText(s, maxHost)), ".") }
	h := RefusedHost{Host: name(d.Host), Port: d.Port, Count: 1, Reason: d.Reason}
	flag := "--allow "
	switch d.Reason {
	case ReasonName, ReasonPort:
	case ReasonPrivate:
		flag = "--allow-private "
	case ReasonAddress:
		a, err := netip.ParseAddr(h.Host)
		if err != nil {
			h.Why = "it leads to an address that opens only when --allow-private spells it out"
			return h
		}
		if contains(unroutableRanges, a) {
			h.Why = noWay
			return h
		}
		flag = "--allow-private "
	case ReasonSNI:
		if d.SNI != "" {
			h.Host = name(d.SNI)
		}
	case ReasonLookup:
		h.Why = "it does not resolve"
		return h
	case ReasonNoSNI:
		h.Why = "the client sent no server name in its TLS hello, so the gate could not tell where it goes"
		return h
	case ReasonNotTLS:
		h.Why = "what was sent there is not TLS, or not a hello that the gate can read"
		return h
	case ReasonScheme:
		h.Why = "only http:// and https:// pass"
		return h
	case ReasonUpstream:
		h.Why = "it is the proxy that this machine is behind, which the gate alone uses"
		return h
	default:
		h.Why = "the gate's own pages are shut"
		return h
	}
	s := h.Host
	if a, err := netip.ParseAddr(s); err == nil {
		if contains(unroutableRanges, a) {
			h.Why = noWay
			return h
		}
		// An address that no name may lead to needs the other flag at
		// once, or the next run would be refused again.
		if contains(privateRanges, a) || contains(linkLocalRanges, a) {
			flag = "--allow-private "
		}
		if a.Is6() {
			s = "[" + s + "]"
		}
	}
	if !slices.Contains(policy.DefaultPorts[:], d.Port) {
		s += ":" + strconv.Itoa(int(d.Port))
	}
	e, err := policy.ParseEntry(s)
	if err != nil {
		var bad *policy.EntryError
		h.Why = noEntry
		if errors.As(err, &bad) {
			h.Why += ": " + bad.Reason
		}
		return h
	}
	h.AllowFlag = flag + e.String()
	return h
}
