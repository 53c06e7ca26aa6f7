package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// said is what a list of items says, with "-" before what stays.
func said(items []CleanItem) string {
	out := make([]string, 0, len(items))
	for _, i := range items {
		s := i.What + ": " + i.Why
		if i.Stays() {
			s = "- " + s
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Every kind of record and home, with what becomes of it.
func TestCleanable(t *testing.T) {
	e := newEnv(t, nil)
	ctx := context.Background()
	var me store.Record
	if err := e.m.Store.Owner(&me); err != nil {
		t.Fatal(err)
	}
	put := func(id, kind string, change func(*store.Record)) {
		t.Helper()
		r := me
		r.ID, r.Kind, r.Runtime = id, kind, policy.RuntimePodman
		change(&r)
		if err := e.m.Store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	home := func(name string) {
		t.Helper()
		if _, err := e.be.EnsureHome(ctx, name, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(r *store.Record) { r.Start++ }
	// The number of a process that is another one's by now, and of one that is dead.
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	put("00000000000a", "session", func(r *store.Record) { r.Home = "aisb-home-live" })
	put("00000000000b", "session", func(r *store.Record) { gone(r); r.Home = "aisb-home-gone" })
	put("00000000000c", "session", func(r *store.Record) { r.PID = dead.Process.Pid; r.Volumes = []string{"aisb-home-00000000000c"} })
	put("00000000000d", "session", func(r *store.Record) { gone(r); r.BootID = "" })                          // of which nothing is known
	put("00000000000e", "session", func(r *store.Record) { r.PIDNS = "pid:[1]"; r.Home = "aisb-home-doubt" }) // of another container, say
	put("00000000000f", "session", func(r *store.Record) { gone(r); r.Kept = true; r.Volumes = []string{"aisb-home-kept"} })
	put("0000000000aa", store.KindSandbox, func(r *store.Record) { gone(r); r.Ready = true; r.Workspace = &store.Workspace{Path: "/x", Own: true} })
	put("0000000000bb", store.KindSandbox, func(r *store.Record) { gone(r); r.Ready = true; r.Workspace = &store.Workspace{Path: "/x"} })
	put("0000000000cc", "session", func(r *store.Record) { gone(r); r.Runtime = policy.RuntimeLocal })
	put("work", "gate", func(r *store.Record) { r.PID = 0; r.Containers = []string{"aisb-gate-work"} })
	for _, h := range []string{"live", "gone", "00000000000c", "doubt", "kept", "other", "mine"} {
		home("aisb-home-" + h)
	}
	e.be.InUse = "aisb-home-other"

	items, err := e.m.Cleanable(ctx, e.be, CleanRequest{Homes: "*"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `- home aisb-home-doubt: a session uses it, or it is kept with one
- home aisb-home-kept: a session uses it, or it is kept with one
- home aisb-home-live: a session uses it, or it is kept with one
- home aisb-home-other: a container refers to it
- sandbox 0000000000aa: it has ended, and its workspace /x stays until: ai-sandbox down 0000000000aa
- session 00000000000d: its record does not say by which start of the machine it was made; whether it lives can't be told
- session 00000000000e: it was started in another process namespace; whether it lives can't be told
- session 00000000000f: it is kept until: ai-sandbox rm 00000000000f
gate work: its container does not run
home aisb-home-00000000000c: asked for
home aisb-home-gone: asked for
home aisb-home-mine: asked for
sandbox 0000000000bb: it has ended
session 00000000000b: its owner is gone
session 00000000000c: its owner is gone`
	if got := said(items); got != want {
		t.Errorf("got\n%s", got)
	}
	// Of the homes only those that match, and with All the live one as well.
	items, err = e.m.Cleanable(ctx, e.be, CleanRequest{All: true, Homes: "*-[ml]i*"})
	if got := said(items); err != nil || !strings.Contains(got, "\nhome aisb-home-live: asked for\nhome aisb-home-mine: asked for\n") || strings.Contains(got, "aisb-home-gone") ||
		!strings.Contains(got, "\nsession 00000000000a: it runs\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if n := len(slices.DeleteFunc(items, func(i CleanItem) bool { return !i.Running })); n != 1 {
		t.Errorf("%d run", n)
	}
	if _, err := e.m.Cleanable(ctx, e.be, CleanRequest{Homes: "["}); err == nil {
		t.Error("a pattern that makes no sense is taken")
	}
	// Nothing of it has been removed by looking; by doing, all that does not stay.
	items, err = e.m.Cleanable(ctx, e.be, CleanRequest{Homes: "*"})
	if err != nil || said(items) != want {
		t.Errorf("%v\n%s", err, said(items))
	}
	for _, i := range items {
		if i.Stays() {
			continue
		}
		if i.What == "home aisb-home-mine" { // a container has it since
			e.be.InUse = "aisb-home-mine"
			if done, err := i.Do(ctx); done || err != nil || !i.Stays() {
				t.Errorf("%+v: %v, %v", i, done, err)
			}
			continue
		}
		if i.What == "home aisb-home-gone" { // a session uses it since
			put("0000000000dd", "session", func(r *store.Record) { r.Home = "aisb-home-gone" })
			if done, err := i.Do(ctx); done || err != nil {
				t.Errorf("%+v: %v, %v", i, done, err)
			}
			continue
		}
		if i.What == "gate work" {
			// Somebody works on it since, and then it is up again.
			unlock, err := e.m.Store.Lock("gate-work")
			if err != nil {
				t.Fatal(err)
			}
			locked := i
			if done, err := locked.Do(ctx); done || err != nil || !locked.Stays() {
				t.Errorf("while somebody works on it: %+v: %v, %v", locked, done, err)
			}
			unlock()
			dir := t.TempDir()
			l, err := net.Listen("unix", filepath.Join(dir, spec.GateSocket))
			if err != nil {
				t.Fatal(err)
			}
			gate := func(r *store.Record) { r.PID, r.GatePort, r.GateLog = 0, 1, dir }
			put("work", "gate", gate)
			back := i
			if done, err := back.Do(ctx); done || err != nil || !back.Stays() {
				t.Errorf("up again: %+v: %v, %v", back, done, err)
			}
			if _, there, err := e.m.Store.Gate("work"); err != nil || !there {
				t.Errorf("its record is gone: %v", err)
			}
			l.Close()
		}
		if done, err := i.Do(ctx); !done || err != nil {
			t.Errorf("%s: %v, %v", i.What, done, err)
		}
	}
	records, err := e.m.Store.List()
	var ids []string
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); err != nil || got != "00000000000a 00000000000d 00000000000e 00000000000f 0000000000aa 0000000000cc 0000000000dd" {
		t.Errorf("records %s, %v", got, err)
	}
	homes, err := e.be.Homes(ctx)
	if err != nil || len(homes) != 6 || slices.Contains(homes, backend.Home{Name: "aisb-home-00000000000c"}) {
		t.Errorf("homes %v, %v", homes, err)
	}
	// A record that can't be read may name what is to stay: nothing is removed.
	if err := os.WriteFile(filepath.Join(e.records, "session-x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if items, err := e.m.Cleanable(ctx, e.be, CleanRequest{Homes: "*"}); err == nil || len(items) > 0 {
		t.Errorf("%s, %v", said(items), err)
	}
}

// What is no runtime's: old directories of sessions, temporary files, and directories
// of which nothing is known, which stay.
func TestStrays(t *testing.T) {
	e := newEnv(t, nil)
	old := time.Now().Add(-2 * time.Hour)
	file := func(path string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"00000000000a", "00000000000b", "00000000000d"} {
		if _, err := e.m.Traces().Begin(id, func(s string) string { return s }, trace.Event{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.m.Store.Put(store.Record{ID: "00000000000b", Kind: "session", Kept: true}); err != nil {
		t.Fatal(err)
	}
	e.m.Retention.Size = 1
	dir, _ := e.m.Traces().Dir("00000000000a")
	if err := errors.Join(os.Chtimes(filepath.Join(dir, trace.EventsFile), old, old), os.Chtimes(dir, old, old)); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(e.m.StateDir, "new-1")
	file(tmp, old)
	file(filepath.Join(e.m.StateDir, "new-2"), time.Now())
	file(filepath.Join(e.m.StateDir, "other"), old)
	target := filepath.Join(t.TempDir(), "target")
	file(target, old)
	if err := errors.Join(os.Symlink(target, filepath.Join(e.m.StateDir, "new-3")), os.Mkdir(filepath.Join(e.m.RuntimeDir, "00000000000c"), 0o700), os.Mkdir(filepath.Join(e.m.RuntimeDir, "podman"), 0o700)); err != nil {
		t.Fatal(err)
	}
	// One that a living process has open, however old; and the directories of a process
	// that is gone, of one that is not, and of nobody known.
	open := filepath.Join(e.m.StateDir, "new-4")
	file(open, old)
	f, err := os.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone, alive := filepath.Join(e.m.StateDir, fmt.Sprintf("try-%d-1", dead.Process.Pid)), filepath.Join(e.m.StateDir, fmt.Sprintf("try-%d-2", os.Getpid()))
	for _, dir := range []string{gone, alive, filepath.Join(e.m.StateDir, "try-3")} {
		file(filepath.Join(dir, "file"), old)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	young, held := filepath.Join(e.m.StateDir, fmt.Sprintf("try-%d-young", dead.Process.Pid)), filepath.Join(e.m.StateDir, fmt.Sprintf("try-%d-held", dead.Process.Pid))
	file(filepath.Join(young, "file"), time.Now())
	file(filepath.Join(held, "file"), old)
	h, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := unix.Flock(int(h.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	items, err := e.m.Strays([]string{filepath.Join(e.m.StateDir, "new-*"), filepath.Join(e.m.StateDir, "try-*")})
	want := "- directory " + filepath.Join(e.m.RuntimeDir, "00000000000c") + ": no record here names it: its session may be one of another XDG_STATE_HOME\n" +
		"- directory " + alive + ": there is a process " + strconv.Itoa(os.Getpid()) + ", which may be the one that made it\n" +
		"- directory " + held + ": the process that made it lives\n" +
		"- file " + open + ": a process has it open\n" +
		"directory " + gone + ": the process that made it is gone\n" +
		"directory " + young + ": the process that made it is gone\n" +
		"file " + tmp + ": nobody has it open, and nothing has changed it for an hour\n" +
		"the directory of session 00000000000a: it is beyond sessions_days or sessions_size"
	if got := said(items); err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for _, i := range items {
		if i.Stays() {
			continue
		}
		if _, err := i.Do(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", gone, err)
	}
	for _, path := range []string{open, alive} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	_, err = os.Stat(tmp)
	ids, ierr := e.m.Traces().IDs()
	if !errors.Is(err, os.ErrNotExist) || ierr != nil || len(ids) != 2 {
		t.Errorf("%v; %q, %v", err, ids, ierr)
	}
}
