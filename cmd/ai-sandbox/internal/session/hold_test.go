package session

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// inProject lists what is in the project.
func (e *env) inProject(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(e.project, func(path string, _ fs.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(e.project, path); rerr == nil && rel != "." {
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// during is a guest that calls f while the command runs.
func during(f func()) func(in, out *os.File) error {
	return func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		f()
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{}})
	}
}

// The placeholders are there while the command runs, and in the record; then they
// are gone, but for what somebody has put something in.
func TestPlaceholders(t *testing.T) {
	var e *env
	var there []string
	var rec []store.Record
	e = newEnv(t, during(func() {
		there = e.inProject(t)
		rec, _ = e.m.Store.List()
		for path, write := range map[string]bool{".vscode/mine": true, ".idea": false} {
			if err := os.Remove(filepath.Join(e.project, path)); write {
				err = os.WriteFile(filepath.Join(e.project, path), nil, 0o600)
				if err != nil {
					t.Error(err)
				}
			} else if err != nil {
				t.Error(err)
			}
		}
	}))
	rep, err := e.run(t, policy.NetNone)
	if err != nil || rep.Leftover != "" {
		t.Fatalf("%+v, %v", rep, err)
	}
	want := []string{".ai-sandbox", ".claude", ".cursor", ".devcontainer", ".envrc", ".git", ".idea", ".mcp.json", ".npmrc", ".pre-commit-config.yaml", ".vscode"}
	if !slices.Equal(there, want) {
		t.Errorf("while it ran there was %q", there)
	}
	if len(rec) != 1 || len(rec[0].Placeholders) != len(want) {
		t.Errorf("recorded: %+v", rec)
	} else {
		for _, p := range rec[0].Placeholders {
			if p.Root != e.project || p.Ino == 0 || p.Asked == 0 {
				t.Errorf("recorded: %+v", p)
			}
		}
	}
	if left := e.inProject(t); !slices.Equal(left, []string{".vscode", ".vscode/mine"}) {
		t.Errorf("left: %q", left)
	}
	// Both are told: what was put in, and what was taken away.
	if got := paths(rep); !slices.Equal(got, []string{".idea", ".vscode", ".vscode/mine"}) {
		t.Errorf("changed: %q", got)
	}
}

func paths(rep Report) []string {
	var out []string
	for _, c := range rep.Changed {
		out = append(out, c.Path)
	}
	return out
}

// What a start that failed has made is gone too, and nothing is told as changed.
func TestPlaceholdersOfAFailedStart(t *testing.T) {
	e := newEnv(t, nil)
	e.be.Fail["create"] = syscall.EIO
	rep, err := e.run(t, policy.NetNone)
	if err == nil || len(rep.Changed) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	e.clean(t)
}

// Two sessions in one project: the first to end leaves the placeholders to the
// other one, and that one removes them.
func TestSharedPlaceholders(t *testing.T) {
	ends := make(chan struct{})
	started := make(chan struct{})
	first := newEnv(t, during(func() {
		close(started)
		<-ends
	}))
	done := make(chan Report)
	go func() {
		rep, _ := first.run(t, policy.NetNone)
		done <- rep
	}()
	<-started
	var before, after []string
	second := newEnv(t, nil)
	second.m, second.project, second.id = first.m, first.project, first.id
	guest := during(func() {
		before = second.inProject(t)
		close(ends)
		if rep := <-done; rep.ExitCode != 0 || rep.Leftover != "" {
			t.Errorf("the first: %+v", rep)
		}
		after = second.inProject(t)
	})
	second.be = newEnv(t, guest).be
	// The second one finds empty directories, and can't tell them from a user's.
	rep, err := second.run(t, policy.NetNone)
	if err != nil || len(rep.Changed) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
	if len(before) != 11 || !slices.Equal(before, after) {
		t.Errorf("while the second ran: %q, then %q", before, after)
	}
	second.clean(t)
}

// A killed session's placeholders go with its record: those that were made, and
// those whose making was not written down any more. What a user has of the same
// name stays, and so does what a living session uses.
func TestPlaceholdersAreReaped(t *testing.T) {
	e := newEnv(t, nil)
	mkdir := func(names ...string) {
		for _, n := range names {
			if err := os.MkdirAll(filepath.Join(e.project, n), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	mkdir("old")
	time.Sleep(50 * time.Millisecond) // files have the time of the last tick
	asked := time.Now().UnixNano()
	mkdir("made", "unrecorded", "used", "full/x", "dir")
	for name, text := range map[string]string{"file": "", "written": "x", ".git/commondir": "."} {
		mkdir(filepath.Dir(name))
		if err := os.WriteFile(filepath.Join(e.project, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(e.project, "link")); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.Mkdir(filepath.Join(outside, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(e.project, "way")); err != nil {
		t.Fatal(err)
	}
	id, err := identify(-100, filepath.Join(e.project, "made"))
	if err != nil {
		t.Fatal(err)
	}
	gone := store.Record{ID: "gone", Kind: "session", Runtime: policy.RuntimePodman, BootID: "another"}
	add := func(p store.Placeholder) {
		p.Root = e.project
		if p.Asked == 0 {
			p.Asked = asked
		}
		gone.Placeholders = append(gone.Placeholders, p)
	}
	add(store.Placeholder{Path: "made", Dev: id.Dev, Ino: id.Ino, Born: id.Born})
	add(store.Placeholder{Path: "dir", Dev: id.Dev, Ino: id.Ino, Born: id.Born}) // another one by now
	for _, p := range []string{"unrecorded", "used", "full", "old", "link", "way/x", "missing", "missing/too"} {
		add(store.Placeholder{Path: p})
	}
	for _, p := range []string{"file", "written", ".git/commondir"} {
		add(store.Placeholder{Path: p, File: true})
	}
	alive := store.Record{ID: "alive", Kind: "session", Runtime: policy.RuntimePodman, Placeholders: []store.Placeholder{{Root: e.project, Path: "used"}}}
	if err := e.m.Store.Owner(&alive); err != nil {
		t.Fatal(err)
	}
	for _, r := range []store.Record{gone, alive} {
		if err := e.m.Store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if n, doubt, err := e.m.Reap(t.Context(), e.be); err != nil || n != 1 || len(doubt) > 0 {
		t.Errorf("%d, %v, %v", n, doubt, err)
	}
	if left := strings.Join(e.inProject(t), " "); left != ".git dir full full/x link old used way written" {
		t.Errorf("left: %s", left)
	}
	if _, err := os.Stat(filepath.Join(outside, "x")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}

// A project that was replaced since the policy was decided is refused.
func TestReplacedProject(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	e.id.Ino++
	if _, err := e.run(t, policy.NetNone); err == nil || !strings.Contains(err.Error(), "was another directory when the policy was decided") {
		t.Errorf("%v", err)
	}
	e.clean(t)
	e.id.Ino--
	if _, err := e.run(t, policy.NetNone); err != nil {
		t.Errorf("the positive control: %v", err)
	}
}
