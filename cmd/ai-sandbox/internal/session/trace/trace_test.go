package trace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const id = "0123456789ab"

func same(s string) string { return s }

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// A session's directory has all that was told, this user alone can read it, and no
// secret gets into any of its files.
func TestTrace(t *testing.T) {
	s := At(filepath.Join(t.TempDir(), "sessions"))
	hide := func(text string) string { return strings.ReplaceAll(text, "sesame", "[TOKEN]") }
	w, err := s.Begin(id, hide, Event{Kind: "session", Runtime: "local", Command: []string{"open", "sesame"}})
	if err != nil {
		t.Fatal(err)
	}
	w.Add(Event{Event: "go"})
	if err := w.Policy([]byte(`{"version": 1, "command": ["open", "sesame"]}`)); err != nil {
		t.Fatal(err)
	}
	code := 3
	if err := w.End(struct{ Reason string }{"no sesame"}, Event{Event: Ended, ExitCode: &code, Reason: "no sesame"}); err != nil {
		t.Fatal(err)
	}
	dir, _ := s.Dir(id)
	if got := names(t, dir); got != "events.jsonl policy.json report.json" {
		t.Errorf("files %q", got)
	}
	for _, name := range []string{"", EventsFile, PolicyFile, ReportFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q: %v, %v", name, info, err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, name)); strings.Contains(string(text), "sesame") || name != "" && !strings.Contains(string(text), "[TOKEN]") {
			t.Errorf("%s has %s", name, text)
		}
	}
	events, err := s.Events(id)
	if err != nil || len(events) != 3 || events[0].Event != Begun || events[0].Session != id || events[1].Event != "go" || *events[2].ExitCode != 3 {
		t.Errorf("%+v, %v", events, err)
	}
	// What was killed while it wrote leaves half a line.
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("{\"event\":\"ha\n")
	if err = errors.Join(err, f.Close(), s.Append(id, Event{Event: Reaped})); err != nil {
		t.Fatal(err)
	}
	if events, err := s.Events(id); err != nil || len(events) != 4 || events[3].Event != Reaped {
		t.Errorf("%+v, %v", events, err)
	}
	// An id is nobody's twice, and no path.
	if _, err := s.Begin(id, same, Event{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
	for _, bad := range []string{"", "..", "../x", "0123456789AB", "0123456789ab/.."} {
		if _, err := s.Begin(bad, same, Event{}); err == nil {
			t.Errorf("%q is taken for an id", bad)
		}
		if _, err := s.Events(bad); err == nil {
			t.Errorf("%q is taken for an id", bad)
		}
		if err := s.Remove(bad); err == nil {
			t.Errorf("%q is taken for an id", bad)
		}
	}
}

// A policy that is replaced is never half there, and why one was not is told.
func TestTraceReplace(t *testing.T) {
	s := At(t.TempDir())
	w, err := s.Begin(id, func(text string) string { return strings.ReplaceAll(text, "sesame", "[TOKEN]") }, Event{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Policy([]byte(`{"n": 1}`)); err != nil {
		t.Fatal(err)
	}
	w.Replace([]byte(`{"n": 2, "t": "sesame"}`), nil)
	w.Replace([]byte(`{"n": 3, "t": "sesame"}`), nil)
	dir, _ := s.Dir(id)
	if text, err := os.ReadFile(filepath.Join(dir, PolicyFile)); err != nil || string(text) != `{"n": 3, "t": "[TOKEN]"}` || names(t, dir) != "events.jsonl policy.json" {
		t.Errorf("%v, %s, %s", err, text, names(t, dir))
	}
	w.Replace(nil, io.ErrShortBuffer)
	if text, err := os.ReadFile(filepath.Join(dir, PolicyFile)); err != nil || !strings.Contains(string(text), "3") {
		t.Errorf("%v, %s", err, text)
	}
	if err := w.End(1, Event{Event: Ended}); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("got %v", err)
	}
}

// What would break JSON when a secret is taken out is not written, and told.
func TestTraceHidesOrDoesNotWrite(t *testing.T) {
	s := At(t.TempDir())
	w, err := s.Begin(id, func(text string) string { return strings.ReplaceAll(text, `"bad`, `[TOKEN]`) }, Event{})
	if err != nil {
		t.Fatal(err)
	}
	w.Add(Event{Event: "bad"})
	if err := w.Policy([]byte(`{"a": "bad"}`)); !errors.Is(err, errHidden) {
		t.Errorf("got %v", err)
	}
	if err := w.End(1, Event{Event: Ended}); !errors.Is(err, errHidden) {
		t.Errorf("got %v", err)
	}
}

// Events are bounded, and so is each; how the session ended is there in any case, and
// what there was no room for is told.
func TestTraceBounds(t *testing.T) {
	s := At(t.TempDir())
	w, err := s.Begin(id, same, Event{})
	if err != nil {
		t.Fatal(err)
	}
	for range 400 {
		w.Add(Event{Event: Exec, Command: []string{"sh", strings.Repeat("\x01", 50<<10), "more"}})
	}
	dir, _ := s.Dir(id)
	// No room, and the last event is there for all that.
	err = w.End(1, Event{Event: Ended, Reason: strings.Repeat("\x01", 50<<10)})
	if err == nil || !strings.Contains(err.Error(), "events are not written down") {
		t.Errorf("got %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, EventsFile)); err != nil || info.Size() > maxEvents || info.Size() < maxEvents/2 {
		t.Errorf("%v %v", info, err)
	}
	events, err := s.Events(id)
	if err != nil || len(events) < 20 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if e := events[1]; e.Event != Exec || !e.Cut || len(e.Command) != 2 || e.Command[0] != "sh" || len(e.Command[1]) < maxText-20 || len(e.Command[1]) > maxText {
		t.Errorf("an event %v %v, %d bytes", e.Event, e.Cut, len(strings.Join(e.Command, " ")))
	}
	if f, l := events[len(events)-2], events[len(events)-1]; f.Event != Full || l.Event != Ended || len(l.Reason) != maxText {
		t.Errorf("at last %q, %q", f.Event, l.Event)
	}
	if slices.ContainsFunc(events[:len(events)-2], func(e Event) bool { return e.Event == Full }) {
		t.Errorf("it is told twice that there is no more room")
	}
}

// What is cut has no half of a secret at its end.
func TestTraceCutsNoSecret(t *testing.T) {
	s := At(t.TempDir())
	w, err := s.Begin(id, func(text string) string { return strings.ReplaceAll(text, "open sesame", "[TOKEN]") }, Event{
		Command: []string{strings.Repeat("x", maxText-8) + "open sesame"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Add(Event{Event: Changed, Reason: strings.Repeat("x", maxText-4) + "open sesame"})
	if err := w.End(1, Event{Event: Ended}); err != nil {
		t.Fatal(err)
	}
	dir, _ := s.Dir(id)
	if text, err := os.ReadFile(filepath.Join(dir, EventsFile)); err != nil || strings.Contains(string(text), "xopen") || !strings.Contains(string(text), "x[TOKE") {
		t.Errorf("%v, %s", err, text)
	}
}

// A full disk ends no command but is told.
func TestTraceFullDisk(t *testing.T) {
	s := At(t.TempDir())
	w, err := s.Begin(id, same, Event{})
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.events = full
	w.Add(Event{Event: "go"})
	if err := w.End(1, Event{Event: Ended}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

func TestRetention(t *testing.T) {
	if n, err := At(filepath.Join(t.TempDir(), "sessions")).Prune(Retention{Size: 1}, nil); n != 0 || err != nil {
		t.Errorf("before the first session: %d, %v", n, err)
	}
	now := time.Now()
	fill := func(t *testing.T) Store {
		t.Helper()
		s := At(filepath.Join(t.TempDir(), "sessions"))
		for i, id := range []string{"00000000000a", "00000000000b", "00000000000c", "00000000000d"} {
			dir, _ := s.Dir(id)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, EventsFile), make([]byte, 100<<10), 0o600); err != nil {
				t.Fatal(err)
			}
			at := now.Add(-time.Duration(i+1) * 24 * time.Hour)
			for _, path := range []string{filepath.Join(dir, EventsFile), dir} {
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
		return s
	}
	for _, c := range []struct {
		name  string
		r     Retention
		inUse string
		gone  string
	}{
		{"none", Retention{}, "", ""},
		{"age", Retention{Age: 60 * time.Hour}, "", "00000000000d 00000000000c"},
		{"age, one in use", Retention{Age: 60 * time.Hour}, "00000000000d", "00000000000c"},
		{"size", Retention{Size: 300 << 10}, "", "00000000000d 00000000000c"},
		{"size, the newest alone is beyond it", Retention{Size: 50 << 10}, "", "00000000000d 00000000000c 00000000000b"},
		{"size, one in use", Retention{Size: 300 << 10}, "00000000000a", "00000000000d"},
		{"both", Retention{Age: 36 * time.Hour, Size: 1}, "", "00000000000d 00000000000c 00000000000b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fill(t)
			inUse := func(id string) bool { return id == c.inUse }
			got, err := s.Beyond(c.r, now, inUse)
			if err != nil || strings.Join(got, " ") != c.gone {
				t.Errorf("got %q, %v", got, err)
			}
			n, err := s.Prune(c.r, inUse)
			if err != nil || n != len(got) {
				t.Errorf("removed %d, %v", n, err)
			}
			ids, err := s.IDs()
			if err != nil || len(ids)+n != 4 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(got, id) }) {
				t.Errorf("left %q, %v", ids, err)
			}
			// A short while after nothing is looked at, unless the clock was set back.
			if n, err := s.Prune(Retention{Size: 1}, func(string) bool { return false }); err != nil || n != 0 {
				t.Errorf("looked again: %d, %v", n, err)
			}
			later := now.Add(pruneEvery * 2)
			if err := os.Chtimes(filepath.Join(s.dir, pruned), later, later); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Prune(Retention{Size: 1}, func(string) bool { return false }); err != nil || n != max(len(ids)-1, 0) {
				t.Errorf("did not look again: %d, %v", n, err)
			}
		})
	}
}

// What goes is older than all that stays, whatever each of them takes.
func TestRetentionGoesByAge(t *testing.T) {
	s := At(filepath.Join(t.TempDir(), "sessions"))
	now := time.Now()
	for i, o := range []struct {
		id   string
		size int
	}{{"00000000000a", 20 << 10}, {"00000000000b", 200 << 10}, {"00000000000c", 20 << 10}, {"00000000000d", 20 << 10}} {
		dir, _ := s.Dir(o.id)
		at := now.Add(-time.Duration(i+1) * time.Hour)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, EventsFile), make([]byte, o.size), 0o600),
			os.Chtimes(filepath.Join(dir, EventsFile), at, at), os.Chtimes(dir, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Beyond(Retention{Size: 100 << 10}, now, func(string) bool { return false })
	if want := "00000000000d 00000000000c 00000000000b"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %q, %v, want %s", got, err, want)
	}
	got, err = s.Beyond(Retention{Size: 100 << 10}, now, func(id string) bool { return id == "00000000000a" })
	if want := "00000000000d 00000000000c"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("the newest is the large one: got %q, %v, want %s", got, err, want)
	}
}

// A link in the place of a file is not followed.
func TestTraceFollowsNoLink(t *testing.T) {
	s := At(t.TempDir())
	dir, _ := s.Dir(id)
	target := filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(target, []byte("x"), 0o600), os.Symlink(target, filepath.Join(dir, EventsFile))); err != nil {
		t.Fatal(err)
	}
	_, berr := s.Begin(id, same, Event{})
	_, eerr := s.Events(id)
	aerr := s.Append(id, Event{})
	if berr == nil || eerr == nil || aerr == nil {
		t.Errorf("followed: %v, %v, %v", berr, eerr, aerr)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "x" {
		t.Errorf("%s, %v", text, err)
	}
}
