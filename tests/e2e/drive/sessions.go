// Sessions as a user sees them: the tests of ls, logs, exec, stop, rm, --keep and
// clean, which are the same on each runtime.

package drive

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var keptLine = regexp.MustCompile(`ai-sandbox: session ([0-9a-f]{12}) is kept: `)

// Kept is the id of the session that a run with --keep has told.
func Kept(t *testing.T, r Result) string {
	t.Helper()
	m := keptLine.FindStringSubmatch(r.Err)
	if m == nil {
		t.Fatalf("no session is kept: %s", r)
	}
	return m[1]
}

// A Session is one of "ls --json".
type Session struct {
	ID, State, Kind, Runtime, Net, Project, Dir, Reason string

	Command    []string
	PID        int
	EndedBy    string `json:"ended_by"`
	ExitCode   *int   `json:"exit_code"`
	Containers []string
	Volumes    []string
}

// Sessions are those of the box's project, the newest first.
func (b *Box) Sessions(t *testing.T) []Session {
	t.Helper()
	var list struct {
		Version  int
		Sessions []Session
	}
	if out := b.OK("ls", "--json").Out; json.Unmarshal([]byte(out), &list) != nil || list.Version != 1 {
		t.Fatalf("ls --json: %s", out)
	}
	return slices.DeleteFunc(list.Sessions, func(s Session) bool { return s.Project != b.Dir })
}

// session is one by its id.
func (b *Box) session(t *testing.T, id string) Session {
	t.Helper()
	for _, s := range b.Sessions(t) {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("session %s is not listed", id)
	return Session{}
}

// events are what happened in a session, in its words.
func (b *Box) events(t *testing.T, id string) []string {
	t.Helper()
	var l struct {
		Events []struct{ Event string }
	}
	if out := b.OK("logs", "--json", id).Out; json.Unmarshal([]byte(out), &l) != nil {
		t.Fatalf("logs --json: %s", out)
	}
	var out []string
	for _, e := range l.Events {
		out = append(out, e.Event)
	}
	return out
}

// TestSessions runs sessions in box and looks at each while it lives and afterwards.
// left tells whether a container or home of a session is there.
func TestSessions(t *testing.T, b *Box, left func(id string) (container, home bool)) {
	refused := func(want int, says string, args ...string) {
		t.Helper()
		if r := b.Run(args...); r.Code != want || !strings.Contains(r.Err, says) {
			t.Errorf("%q: want %d and %q: %s", args, want, says, r)
		}
	}
	live := func(args ...string) (*Live, string) {
		t.Helper()
		l := b.Start(t, append(args, "--net", "none", "--ephemeral-home", "--", "sh", "-c", "trap 'exit 9' TERM; echo up >up; read -r x")...)
		b.File(t, "up")
		if err := os.Remove(filepath.Join(b.Dir, "up")); err != nil {
			t.Fatal(err)
		}
		return l, b.Sessions(t)[0].ID
	}

	// While it lives.
	l, id := live()
	s := b.session(t, id)
	if s.State != "live" || s.Kind != "session" || s.PID != l.Cmd.Process.Pid || s.Net != "none" || !slices.Equal(s.Command[:2], []string{"sh", "-c"}) || s.ExitCode != nil {
		t.Errorf("%+v", s)
	}
	if info, err := os.Stat(s.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	// A command in it has the same cage, and its own end.
	const look = `id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; grep -c : /proc/net/dev; exit 5`
	inside := b.Run("--net", "none", "--ephemeral-home", "--", "sh", "-c", look)
	if r := b.Run("exec", id, "--", "sh", "-c", look); r.Code != 5 || r.Out != inside.Out || !strings.Contains(r.Out, "NoNewPrivs:\t1") {
		t.Errorf("exec is not as a command of its own: %s\n%s", r, inside)
	}
	refused(1, "lives; end it with ai-sandbox stop "+id, "rm", id)
	if out := b.OK("clean").Out; strings.Contains(out, id) {
		t.Errorf("clean: %s", out)
	}
	refused(1, "there is no terminal to ask on, so nothing was removed", "clean", "--all")
	if out := b.OK("clean", "--all", "--dry-run").Out; !strings.Contains(out, "would remove session "+id+": it runs\n") {
		t.Errorf("clean: %s", out)
	}
	if s := b.session(t, id); s.State != "live" {
		t.Errorf("%+v", s)
	}
	b.OK("stop", id)
	if r := l.Wait(20 * time.Second); r.Code != 9 {
		t.Errorf("stopped: %s", r)
	}
	s = b.session(t, id)
	if s.State != "ended" || s.EndedBy != "command" || s.ExitCode == nil || *s.ExitCode != 9 {
		t.Errorf("%+v", s)
	}
	if c, h := left(id); c || h {
		t.Errorf("left are a container %v, a home %v", c, h)
	}
	want := []string{"begun", "sandbox", "enforced", "go", "started", "exec", "exited", "removed", "ended"}
	if got := b.events(t, id); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
	refused(1, "has ended already", "stop", id)
	refused(125, "has ended", "exec", id, "--", "true")
	b.OK("rm", id)
	for _, verb := range []string{"rm", "stop", "logs"} {
		refused(3, "no such session", verb, id)
	}
	refused(125, "no such session", "exec", id, "--", "true")
	refused(3, "no such session", "logs", "../records")
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rm leaves %s: %v", s.Dir, err)
	}

	// What is kept when its owner was killed, and what is not.
	for _, keep := range []string{"--keep=true", "--keep=false"} {
		l, id := live(keep)
		if err := l.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		l.Wait(20 * time.Second)
		if s := b.session(t, id); s.State != "ended" || s.EndedBy != "loss" || s.ExitCode != nil {
			t.Errorf("%s: %+v", keep, s)
		}
		if out := b.OK("clean", "--dry-run").Out; !strings.Contains(out, "would remove session "+id+": its owner is gone\n") {
			t.Errorf("%s: clean: %s", keep, out)
		}
		b.OK("clean", "--volumes=aisb-home-"+id)
		s, events := b.session(t, id), b.events(t, id)
		c, h := left(id)
		switch keep {
		case "--keep=true":
			if s.State != "kept" || len(s.Volumes) != 1 || !h {
				t.Errorf("%+v, a home %v", s, h)
			}
			if out := b.Run("clean", "--volumes=aisb-home-"+id); out.Code != 0 || !strings.Contains(out.Err, "home aisb-home-"+id+" stays: a session uses it, or it is kept with one") {
				t.Errorf("clean: %s", out)
			}
			b.OK("rm", id)
			c, h = left(id)
		default:
			if s.State != "ended" || events[len(events)-1] != "reaped" {
				t.Errorf("%+v, %q", s, events)
			}
		}
		if c || h {
			t.Errorf("%s: left are a container %v, a home %v", keep, c, h)
		}
	}
}
