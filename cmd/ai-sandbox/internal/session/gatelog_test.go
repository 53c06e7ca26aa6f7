package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// logOf is a session's log, with where it is.
func logOf(t *testing.T, redact *policy.Redactor) (*gateLog, *Manager, string) {
	t.Helper()
	e := newEnv(t, nil)
	allow, err := policy.ParseEntries([]string{"ok.test"})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{m: e.m, id: "0123456789ab", req: Request{Redact: redact, Policy: policy.Policy{Net: policy.Net{Mode: policy.NetGated, Allow: allow}}}}
	if err := os.MkdirAll(filepath.Join(e.m.StateDir, "sessions", r.id), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := r.newGateLog()
	if err != nil {
		t.Fatal(err)
	}
	return l, e.m, r.id
}

func events(t *testing.T, m *Manager, id string) (list []gate.Event, bad int) {
	t.Helper()
	bad, err := m.GateLog(context.Background(), id, false, func(e gate.Event) error {
		list = append(list, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, bad
}

func TestGateLog(t *testing.T) {
	l, m, id := logOf(t, policy.NewRedactor([]policy.Secret{policy.NewSecret("TOKEN", "s3cr3t-value-of-it")}))
	l.decided(gate.Decision{Method: "CONNECT", Host: "OK.test", Port: 443, Status: 200, Sent: 7, Received: 5, Duration: time.Second, Time: time.Now()})
	l.decided(gate.Decision{Method: "GET", Host: "s3cr3t-value-of-it.no.test\n{\"verdict\":\"allowed\"}", Port: 80, Status: 403, Reason: gate.ReasonName, Time: time.Now()})
	addr := netip.MustParseAddr("198.51.100.7")
	l.packets([]spec.Blocked{{Proto: "tcp", Addr: addr, Port: 443, Count: 2}, {Proto: "tcp", Addr: addr, Port: 443, Count: 1}, {Count: 4}, {Proto: "x\n", Addr: addr, Count: 1}, {Proto: "tcp", Addr: addr, Count: -1}})
	var rep Report
	if err := l.report(&rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Used) != 1 || rep.Used[0] != (gate.UsedHost{Host: "ok.test", Port: 443, Count: 1, Rule: "allow ok.test", BytesIn: 7, BytesOut: 5}) {
		t.Errorf("used: %+v", rep.Used)
	}
	if len(rep.Refused) != 1 || len(rep.Blocked) != 1 || rep.Blocked[0].Count != 3 || rep.BlockedMore != 4 || rep.LogFull {
		t.Errorf("report: %+v", rep)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Join(m.StateDir, "sessions", id), GateLogFile))
	if err != nil || bytes.Count(text, []byte("\n")) != 4 || bytes.Contains(text, []byte("s3cr3t")) {
		t.Errorf("%v: %s", err, text)
	}
	list, bad := events(t, m, id)
	if bad != 0 || len(list) != 4 || list[0].Session != id || list[0].Rule != "allow ok.test" || list[1].Verdict != gate.VerdictRefused || list[2].Verdict != gate.VerdictBlocked || list[2].Count != 2 {
		t.Errorf("%d bad, %+v", bad, list)
	}
	if last, err := m.LastLogged(); err != nil || last != id {
		t.Errorf("the last one is %q, %v", last, err)
	}
}

// The last session is the one that began last, whichever was busy last.
func TestLastLogged(t *testing.T) {
	e := newEnv(t, nil)
	if _, err := e.m.LastLogged(); !errors.Is(err, ErrNoLog) {
		t.Errorf("before the first: %v", err)
	}
	for _, id := range []string{"00000000000b", "00000000000a", "00000000000c"} {
		w, err := e.m.Traces().Begin(id, func(s string) string { return s }, trace.Event{Command: []string{strings.Repeat("\x01", 100<<10)}})
		if err != nil {
			t.Fatal(err)
		}
		w.Add(trace.Event{Event: "go"})
		if id == "00000000000c" {
			continue // which had no gate
		}
		dir, _ := e.m.Traces().Dir(id)
		if err := os.WriteFile(filepath.Join(dir, GateLogFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(dir, GateLogFile), later, later); err != nil {
			t.Fatal(err)
		}
	}
	dir, _ := e.m.Traces().Dir("00000000000a")
	early := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, GateLogFile), early, early); err != nil {
		t.Fatal(err)
	}
	if id, err := e.m.LastLogged(); err != nil || id != "00000000000a" {
		t.Errorf("%q, %v", id, err)
	}
}

// Refusals have room of their own: what is let through can't crowd them out.
func TestGateLogBounds(t *testing.T) {
	l, m, id := logOf(t, nil)
	l.left[false], l.left[true] = 1<<10, 1<<10
	for range 100 {
		l.decided(gate.Decision{Method: "GET", Host: "ok.test", Port: 80, Status: 200})
	}
	l.decided(gate.Decision{Method: "GET", Host: "no.test", Port: 80, Status: 403, Reason: gate.ReasonName})
	for i := range 3 * spec.MaxBlocked {
		l.packets([]spec.Blocked{{Proto: "udp", Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Port: 53, Count: 1}})
	}
	var rep Report
	if err := l.report(&rep); err != nil {
		t.Fatal(err)
	}
	list, _ := events(t, m, id)
	if n := len(list); n < 2 || n > 20 || list[n-1].Host != "no.test" || !rep.LogFull || rep.Used[0].Count != 100 || len(rep.Blocked) != spec.MaxBlocked {
		t.Errorf("%d lines, %+v", n, rep)
	}
}

// What a sandbox asks for has no more room in the report than in the log.
func TestReportBoundsHosts(t *testing.T) {
	l, m, id := logOf(t, nil)
	long := strings.Repeat("x", 15<<10)
	l.decided(gate.Decision{Method: "GET", Host: "no.test", Port: 80, Status: 403, Reason: gate.ReasonName})
	l.decided(gate.Decision{Method: "GET", Host: "1." + long, Port: 80, Status: 403, Reason: gate.ReasonName})
	l.decided(gate.Decision{Method: "GET", Host: strings.Repeat("\x1b", 15<<10), Port: 80, Status: 403, Reason: gate.ReasonName})
	l.decided(gate.Decision{Method: "CONNECT", Host: "ok.test", Port: 443, Status: 200, Reason: gate.ReasonSNI, SNI: "2." + long})
	var rep Report
	if err := l.report(&rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Refused) != 4 || rep.Refused[0].AllowFlag != "--allow no.test" {
		t.Fatalf("report: %+v", rep.Refused)
	}
	for _, h := range rep.Refused[1:] {
		if text, err := json.Marshal(h); err != nil || len(text) > 1<<10 || h.AllowFlag != "" || h.Why == "" {
			t.Errorf("%d bytes, %v: %.300s", len(text), err, text)
		}
	}
	if list, bad := events(t, m, id); len(list) != 4 || bad != 0 {
		t.Errorf("%d lines and %d bad", len(list), bad)
	}
}

// A tunnel that a change of the lists cuts is told of with the entry that had let it
// through.
func TestGateLogRuleOfThen(t *testing.T) {
	l, m, id := logOf(t, nil)
	now := time.Now()
	rules := func(list ...string) gate.Rules {
		t.Helper()
		allow, err := policy.ParseEntries(list)
		if err != nil {
			t.Fatal(err)
		}
		return gate.NewRules(allow, nil)
	}
	l.setRules(rules(".ok.test"))
	l.setRules(rules())
	l.setRules(rules("later.test"))
	l.rules[1].since, l.rules[2].since, l.rules[3].since = now.Add(-30*time.Second), now.Add(-20*time.Second), now.Add(-10*time.Second)
	for _, c := range []struct {
		host string
		for_ time.Duration
		want string
	}{
		{"ok.test", 40 * time.Second, "allow ok.test"},
		{"ok.test", 25 * time.Second, "allow .ok.test"},
		{"later.test", 5 * time.Second, "allow later.test"},
		{"later.test", 15 * time.Second, "allow later.test"}, // just before it was told here
		{"x.test", 5 * time.Second, ""},
	} {
		l.decided(gate.Decision{Method: "CONNECT", Host: c.host, Port: 443, Status: 200, Time: now, Duration: c.for_})
		list, _ := events(t, m, id)
		if got := list[len(list)-1].Rule; got != c.want {
			t.Errorf("%s for %s: %q, want %q", c.host, c.for_, got, c.want)
		}
	}
	for range 3 * maxRules {
		l.setRules(rules())
	}
	if len(l.rules) != maxRules {
		t.Errorf("%d are remembered", len(l.rules))
	}
	l.decided(gate.Decision{Method: "CONNECT", Host: "ok.test", Port: 443, Status: 200, Time: now, Duration: time.Minute})
	if list, _ := events(t, m, id); list[len(list)-1].Rule != "allow ok.test" {
		t.Errorf("the first are forgotten: %+v", list[len(list)-1])
	}
}

// A log with lines of somebody else's is read all the same.
func TestGateLogHostile(t *testing.T) {
	l, m, id := logOf(t, nil)
	ok := func() { l.decided(gate.Decision{Method: "GET", Host: "ok.test", Port: 80, Status: 200}) }
	ok()
	for _, s := range []string{"nonsense\n", "\n", `{"verdict":"allowed","more":1}` + "\n", `{"host":"a"} {"host":"b"}` + "\n", strings.Repeat("x", 3*maxEventLine) + "\n"} {
		if _, err := l.f.WriteString(s); err != nil {
			t.Fatal(err)
		}
		ok()
	}
	if _, err := l.f.WriteString(`{"half`); err != nil {
		t.Fatal(err)
	}
	if list, bad := events(t, m, id); len(list) != 6 || bad != 5 {
		t.Errorf("%d lines and %d bad", len(list), bad)
	}
	for _, id := range []string{"", "..", "../../etc", "0123456789AB", "ffffffffffff"} {
		if _, err := m.GateLog(context.Background(), id, false, nil); !errors.Is(err, ErrNoLog) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// A log that is followed goes on until the session has ended.
func TestGateLogFollow(t *testing.T) {
	l, m, id := logOf(t, nil)
	rec := store.Record{ID: id, Kind: "session"}
	if err := errors.Join(m.Store.Owner(&rec), m.Store.Put(rec)); err != nil {
		t.Fatal(err)
	}
	got, done := make(chan string), make(chan error, 1)
	go func() {
		_, err := m.GateLog(context.Background(), id, true, func(e gate.Event) error {
			got <- e.Host
			return nil
		})
		done <- err
	}()
	for _, host := range []string{"a.test", "b.test"} {
		l.decided(gate.Decision{Method: "GET", Host: host, Port: 80, Status: 200})
		if h := <-got; h != host {
			t.Errorf("%q instead of %q", h, host)
		}
	}
	if err := m.Store.Delete(rec); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A follower reads what squids have written, and waits for the rest of a line.
func TestFollowSquids(t *testing.T) {
	dir := t.TempDir()
	line := func(host string) string {
		return fmt.Sprintf("front 1795973340.731 1 GET %s 80 TCP_DENIED 403 1 1 0 - name - - -\n", host)
	}
	add := func(name, text string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	add(gate.FrontLog, line("before.test"))
	var got []string
	f := follow(dir, func(d gate.Decision) { got = append(got, d.Host) })
	add(gate.FrontLog, line("one.test")+line("two.test")[:20])
	add(gate.FrontLog, line("two.test")[20:])
	add(gate.UsedLog, strings.Replace(line("three.test"), " name ", " - ", 1))
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got) // it may have looked in between
	text, err := json.Marshal(got)
	if err != nil || string(text) != `["before.test","one.test","three.test","two.test"]` {
		t.Errorf("%s", text)
	}
}

// Who follows a named gate's log goes on when it is put aside: with the sessions that had
// it open, and with those that come after.
func TestNamedLogPutAside(t *testing.T) {
	e := newEnv(t, nil)
	rec := store.Record{ID: "work", Kind: "gate", Runtime: policy.RuntimePodman}
	if err := e.m.Store.Owner(&rec); err != nil {
		t.Fatal(err)
	}
	if err := e.m.Store.Put(rec); err != nil {
		t.Fatal(err)
	}
	path := e.m.gateLogPath("work")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	// Each finds more than a byte in the file, and puts it aside.
	begin := func() *os.File {
		t.Helper()
		f, err := openBounded(path, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen, done := make(chan string), make(chan error, 1)
	write := func(f *os.File, host string) {
		t.Helper()
		line, err := json.Marshal(gate.Event{Host: host})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	first := begin()
	write(first, "one.test")
	follow := func(ctx context.Context, follow bool, f func(gate.Event) error) {
		bad, err := e.m.NamedLog(ctx, "work", follow, f)
		if bad > 0 {
			err = fmt.Errorf("%d lines are none: %w", bad, err)
		}
		done <- err
	}
	go follow(ctx, true, func(e gate.Event) error { seen <- e.Host; return nil })
	want := func(host string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != host {
				t.Errorf("%q, want %q", got, host)
			}
		case err := <-done:
			t.Fatalf("it ended before %q: %v", host, err)
		}
	}
	want("one.test")
	second := begin()
	write(second, "two.test")
	want("two.test")
	write(first, "late.test")
	want("late.test")
	third := begin()
	write(third, "three.test")
	want("three.test")
	write(second, "later.test")
	want("later.test")
	if err := e.m.Store.Delete(rec); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The one that was put aside first is gone.
	if err := e.m.Store.Put(rec); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	follow(ctx, false, func(e gate.Event) error { hosts = append(hosts, e.Host); return nil })
	if got := strings.Join(hosts, " "); got != "two.test later.test three.test" || <-done != nil {
		t.Errorf("%s", got)
	}
}
