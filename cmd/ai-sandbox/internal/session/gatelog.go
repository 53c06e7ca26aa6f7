// The log of a session's gate: every decision, as a line of JSON in the session's own
// directory. A builtin gate tells its decisions; those of squids are read out of the
// files that they write.

package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
)

// GateLogFile is the log's name in the session's directory.
const GateLogFile = "gate.jsonl"

// maxGateLog bounds what is kept of refusals, and as much again of the rest, in bytes:
// how much there is to tell is the sandbox's doing.
const maxGateLog = 32 << 20

// A Blocked is where packets past the gate were to go.
type Blocked struct {
	Proto string `json:"proto"` // "tcp", "udp" or "icmp"
	Addr  string `json:"addr"`
	Port  uint16 `json:"port"` // 0 for icmp
	Count int    `json:"count"`
}

// A gateLog is one session's.
type gateLog struct {
	id   string
	gate string // the named one, or ""
	hide func(string) string

	mu      sync.Mutex
	rules   []inForce // the first is the oldest
	f       *os.File
	all     *os.File     // the named gate's, with the lines of all its sessions; or nil
	left    map[bool]int // by whether it was refused
	err     error        // the first of a write
	refused gate.Tally
	used    gate.Usage
	blocked []Blocked
	more    int // packets to places beyond those in blocked
}

// An inForce is what decisions were made by from a time on.
type inForce struct {
	since time.Time
	rules gate.Rules
}

// maxRules bounds how many of them are remembered. What was let through by older ones
// is told by the oldest.
const maxRules = 64

func (r *run) newGateLog() (*gateLog, error) {
	n := r.req.Policy.Net
	rules := gate.NewRules(n.Allow, n.AllowPrivate)
	rules.Learn = n.Learn
	l := &gateLog{
		id: r.id, gate: n.GateName, hide: r.req.Redact.Text, rules: []inForce{{rules: rules}},
		left: map[bool]int{false: maxGateLog, true: maxGateLog},
	}
	dir, ok := r.m.Traces().Dir(r.id) // which is there by now
	if !ok {
		return nil, fmt.Errorf("make the gate's log: %q is no session's id", r.id)
	}
	var err error
	l.f, err = os.OpenFile(filepath.Join(dir, GateLogFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err == nil && n.GateName != "" {
		l.all, err = openBounded(r.m.gateLogPath(n.GateName), maxGateLog)
	}
	if err != nil {
		return nil, fmt.Errorf("make the gate's log: %w", err)
	}
	return l, nil
}

// gateLogPath is where the lines of all sessions of a named gate are.
func (m *Manager) gateLogPath(name string) string {
	return filepath.Join(m.StateDir, "gates", name, GateLogFile)
}

// setRules tells by which rules decisions are made from now on.
func (l *gateLog) setRules(r gate.Rules) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rules) == maxRules {
		l.rules = slices.Delete(l.rules, 1, 2)
	}
	l.rules = append(l.rules, inForce{time.Now(), r})
}

// event is a decision by the rules of the time at which it was made: a tunnel is told
// of when it has ended. What came between a change of the gate and setRules is let
// through by the rules after it.
func (l *gateLog) event(d gate.Decision) (e gate.Event) {
	begun := d.Time.Add(-d.Duration)
	i := len(l.rules) - 1
	for i > 0 && l.rules[i].since.After(begun) {
		i--
	}
	for _, f := range l.rules[i:] {
		if e = d.Event(f.rules); e.Rule != "" {
			break
		}
	}
	e.Session, e.Gate = l.id, l.gate
	return e
}

// decided counts a decision and writes it down.
func (l *gateLog) decided(d gate.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused.Add(d)
	e := l.event(d)
	l.used.Add(e)
	l.write(e)
}

// packets counts what the entrypoint tells of packets that the kernel refused.
func (l *gateLog) packets(list []spec.Blocked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range list {
		if b.Check() != nil {
			continue // of a sandbox that was taken over, say
		}
		i := slices.IndexFunc(l.blocked, func(o Blocked) bool { return o.Proto == b.Proto && o.Addr == b.Addr.String() && o.Port == b.Port })
		switch {
		case !b.Addr.IsValid():
			l.more += b.Count
			continue
		case i >= 0:
			l.blocked[i].Count += b.Count
		case len(l.blocked) < spec.MaxBlocked:
			l.blocked = append(l.blocked, Blocked{b.Proto, b.Addr.String(), b.Port, b.Count})
		default:
			l.more += b.Count
		}
		// Packets are this session's alone.
		l.write(gate.Event{
			Time: time.Now().UTC(), Session: l.id, Method: b.Proto, Host: b.Addr.String(), Port: b.Port,
			Verdict: gate.VerdictBlocked, Rule: gate.RuleRuleset, Count: b.Count,
		})
	}
}

// write adds a line, in one call. One that can't be written ends no connection.
func (l *gateLog) write(e gate.Event) {
	line, err := json.Marshal(e)
	if err == nil {
		line = append([]byte(l.hide(string(line))), '\n')
		no := e.Verdict == gate.VerdictRefused
		if l.left[no] < len(line) {
			l.left[no] = 0
			return
		}
		l.left[no] -= len(line)
		_, err = l.f.Write(line)
		if l.all != nil {
			_, aerr := l.all.Write(line)
			err = errors.Join(err, aerr)
		}
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("write the gate's log: %w", err)
	}
}

// report fills in what the log has come to.
func (l *gateLog) report(rep *Report) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rep.Refused = append(rep.Refused, l.refused.Refused()...)
	rep.RefusedMore = l.refused.More
	rep.Used, rep.UsedMore = l.used.Used(), l.used.More
	entries, odd := gate.Learned(rep.Used)
	rep.Learned, rep.LearnedOdd = texts(entries), odd
	rep.Blocked, rep.BlockedMore = l.blocked, l.more
	rep.LogFull = l.left[false] == 0 || l.left[true] == 0
	if l.all != nil {
		l.err = errors.Join(l.err, l.all.Close())
	}
	return errors.Join(l.err, l.f.Close())
}

// tailTime is how often the files of squids are looked at.
const tailTime = 200 * time.Millisecond

// maxBatch bounds what is read of one file at a time, in bytes.
const maxBatch = 4 << 20

// A follower reads what two squids log, from where it began.
type follower struct {
	dir    string
	joiner gate.Joiner
	files  map[string]*tailed
	stop   chan struct{}
	done   chan struct{}
}

type tailed struct {
	f   *os.File // nil: squid makes it with its first line
	at  int64
	bad int
}

// frontLogs are those of the front squid.
var frontLogs = []string{gate.FrontLog, gate.UsedLog}

// follow begins to read.
func follow(dir string, decided func(gate.Decision)) *follower {
	t := &follower{dir: dir, files: map[string]*tailed{}, stop: make(chan struct{}), done: make(chan struct{})}
	for _, name := range append(slices.Clone(frontLogs), gate.PeekLog) {
		t.files[name] = &tailed{}
	}
	go func() {
		defer close(t.done)
		tick := time.NewTicker(tailTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.read(false, decided)
			case <-t.stop:
				t.read(true, decided)
				return
			}
		}
	}()
	return t
}

// end reads the rest, and tells what could not be read.
func (t *follower) end() error {
	close(t.stop)
	<-t.done
	var errs []error
	for name, f := range t.files {
		if f.f != nil {
			errs = append(errs, f.f.Close())
		}
		if f.bad > 0 {
			errs = append(errs, fmt.Errorf("%d lines of the gate's %s make no sense", f.bad, name))
		}
	}
	return errors.Join(errs...)
}

func (t *follower) read(last bool, decided func(gate.Decision)) {
	for {
		var front []gate.Decision
		more := false
		for _, name := range frontLogs {
			list, m := t.files[name].read(filepath.Join(t.dir, name))
			front, more = append(front, list...), more || m
		}
		peek, m := t.files[gate.PeekLog].read(filepath.Join(t.dir, gate.PeekLog))
		more = more || m
		for _, d := range t.joiner.Add(front, peek, last && !more) {
			decided(d)
		}
		if !more {
			return
		}
	}
}

// read reads whole lines, and tells whether there is more.
func (f *tailed) read(path string) (list []gate.Decision, more bool) {
	if f.f == nil {
		var err error
		if f.f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
			f.f = nil
			return nil, false
		}
	}
	info, err := f.f.Stat()
	if err != nil || info.Size() <= f.at {
		return nil, false
	}
	size := min(info.Size()-f.at, maxBatch)
	n, err := gate.ScanLog(io.NewSectionReader(f.f, f.at, size), func(d gate.Decision) { list = append(list, d) })
	var bad *gate.MalformedError
	if errors.As(err, &bad) {
		f.bad += bad.Lines
	}
	f.at += n
	return list, n > 0 && size == maxBatch
}

// idleTime bounds the wait for connections to a gate to end with the sandbox: its last
// lines come then, and pasta may be slow to end.
const idleTime = 20 * time.Second

// awaitIdle waits until nobody is connected to a port of 127.0.0.1: squid logs a
// tunnel when it has ended.
func awaitIdle(port uint16) {
	for end := time.Now().Add(idleTime); connected(port) && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
	}
}

// connected tells whether a connection to a port of 127.0.0.1 is open on this side.
// Source: proc_net_tcp (the kernel's Documentation/networking/proc_net_tcp.rst).
func connected(port uint16) bool {
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return false
	}
	const established, closeWait = "01", "08"
	local := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == local && (f[3] == established || f[3] == closeWait) {
			return true
		}
	}
	return false
}
