package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

func one(t *testing.T, m *Manager) Summary {
	t.Helper()
	list, err := m.Sessions()
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list[0]
}

// begin runs a command until the returned function is called.
func (e *env) begin(t *testing.T, keep bool) (id string, end func() (Report, error)) {
	t.Helper()
	p, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: e.project, RuntimeDir: e.m.RuntimeDir, EnvSet: func(n string) bool { return n == "TOKEN" }},
		Runtime: policy.RuntimePodman, Command: []string{"true", "sesame-open-now"}, Net: policy.NetNone, Env: []string{"TOKEN"}, EphemeralHome: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	token := policy.NewSecret("TOKEN", "sesame-open-now")
	var rep Report
	var rerr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		rep, rerr = e.m.Run(context.Background(), e.be, Request{
			Policy: p, Values: map[string]policy.Secret{"TOKEN": token}, Redact: policy.NewRedactor([]policy.Secret{token}),
			Streams: backend.Streams{Stdout: io.Discard, Stderr: io.Discard}, Keep: keep,
			Signals: e.signals, Start: time.Now(), Project: e.id,
		})
	}()
	deadline := time.Now().Add(10 * time.Second)
	for ; ; time.Sleep(time.Millisecond) {
		if list, err := e.m.Sessions(); err == nil && len(list) == 1 {
			id = list[0].ID
			if events, _ := e.m.Traces().Events(id); slices.ContainsFunc(events, func(ev trace.Event) bool { return ev.Event == "go" }) {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no session comes up")
		}
	}
	return id, func() (Report, error) {
		e.signals <- syscall.SIGTERM
		<-done
		return rep, rerr
	}
}

// untilSignalled plays an entrypoint whose command ends with a signal.
func untilSignalled(in, out *os.File) error {
	if _, err := enforced(in, out); err != nil {
		return err
	}
	if err := spec.WriteFrame(out, spec.ToHost{Started: true}); err != nil {
		return err
	}
	for {
		var f spec.ToGuest
		if err := spec.ReadFrame(in, &f); err != nil {
			return err
		}
		if f.Signal != 0 {
			return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{Code: 143, Signal: 15}})
		}
	}
}

// What the self-test takes inside is in the report, with what it takes here.
func TestSelfTestIsTimed(t *testing.T) {
	e := newEnv(t, func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		for _, f := range []spec.ToHost{{Tested: 1}, {Started: true}, {Exited: &spec.Exited{}}} {
			if err := spec.WriteFrame(out, f); err != nil {
				return err
			}
		}
		return nil
	})
	rep, err := e.run(t, policy.NetNone)
	if took := rep.Timings["selftest"]; err != nil || took <= 0.001 || took >= rep.Timings["removed"] {
		t.Errorf("%v of %v, %v", took, rep.Timings, err)
	}
}

// A session is listed while it lives and when it has ended, its directory tells all
// of it, and none of its files has a secret.
func TestSessionIsListed(t *testing.T) {
	e := newEnv(t, untilSignalled)
	id, end := e.begin(t, false)
	s := one(t, e.m)
	if s.State != StateLive || s.PID != os.Getpid() || s.Runtime != policy.RuntimePodman || s.Net != policy.NetNone || s.Project != e.project ||
		!slices.Equal(s.Command, []string{"true", "[TOKEN]"}) || s.Ended != (time.Time{}) {
		t.Errorf("%+v", s)
	}
	none := func(context.Context, string) (backend.Backend, error) {
		return nil, errors.New("nothing is left to remove")
	}
	if err := e.m.Remove(context.Background(), id, none); err == nil || !strings.Contains(err.Error(), "stop "+id) {
		t.Errorf("a live one was removed: %v", err)
	}
	if rep, err := end(); err != nil || rep.ExitCode != 143 {
		t.Errorf("%+v, %v", rep, err)
	}
	e.clean(t)
	s = one(t, e.m)
	if s.State != StateEnded || s.PID != 0 || s.ExitCode == nil || *s.ExitCode != 143 || s.EndedBy != EndedByCommand || s.Ended.Before(s.Begun) {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{trace.PolicyFile, trace.EventsFile, trace.ReportFile} {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil || strings.Contains(string(text), "sesame") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		var p policy.Policy
		if name == trace.PolicyFile && (json.Unmarshal(text, &p) != nil || !strings.HasSuffix(p.Home.Volume, id)) {
			t.Errorf("the policy: %s", text)
		}
	}
	l, err := e.m.Logs(id)
	var names []string
	for _, ev := range l.Events {
		names = append(names, ev.Event)
	}
	if want := []string{"begun", "sandbox", "enforced", "go", "started", "exited", "removed", "ended"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v", names, err)
	}
	if err := e.m.Stop(context.Background(), id, none); err == nil || !strings.Contains(err.Error(), "ended already") {
		t.Errorf("an ended one was stopped: %v", err)
	}
	if err := e.m.Remove(context.Background(), id, none); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"rm":   e.m.Remove(context.Background(), id, none),
		"stop": e.m.Stop(context.Background(), id, none),
		"logs": func() error { _, err := e.m.Logs(id); return err }(),
		"odd":  e.m.Remove(context.Background(), "../records", none),
	} {
		if !errors.Is(err, ErrNoSession) {
			t.Errorf("%s of one that is gone: %v", what, err)
		}
	}
	if list, err := e.m.Sessions(); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// With Keep the container and the home stay and are named, nothing else does, and no
// reaping takes them; Remove does.
func TestKeep(t *testing.T) {
	e := newEnv(t, untilSignalled)
	id, end := e.begin(t, true)
	if _, err := end(); err != nil {
		t.Fatal(err)
	}
	kept := func(when string) {
		t.Helper()
		s := one(t, e.m)
		if s.State != StateKept || !slices.Equal(s.Containers, []string{"aisb-" + id}) || len(s.Volumes) != 1 || !strings.HasSuffix(s.Volumes[0], id) || s.EndedBy != EndedByCommand {
			t.Errorf("%s: %+v", when, s)
		}
		if left := e.be.Left(); !slices.Equal(left, []string{"aisb-" + id}) {
			t.Errorf("%s there are %q", when, left)
		}
	}
	kept("at the end")
	if _, _, err := e.m.Reap(context.Background(), e.be); err != nil {
		t.Error(err)
	}
	if _, err := e.m.Traces().Prune(trace.Retention{Size: 1}, e.m.known); err != nil {
		t.Error(err)
	}
	if items, err := e.m.Cleanable(context.Background(), e.be, CleanRequest{All: true, Homes: "*"}); err != nil || len(items) != 2 || !items[0].Stays() || !items[1].Stays() {
		t.Errorf("cleaned: %+v, %v", items, err)
	}
	kept("after the reaping")
	if entries, err := os.ReadDir(e.m.RuntimeDir); err != nil || len(entries) > 0 {
		t.Errorf("left at run time: %v, %v", entries, err)
	}
	if err := e.m.Remove(context.Background(), id, func(context.Context, string) (backend.Backend, error) { return e.be, nil }); err != nil {
		t.Fatal(err)
	}
	e.clean(t)
	if homes, err := e.be.Homes(context.Background()); err != nil || len(homes) > 0 {
		t.Errorf("homes left: %v, %v", homes, err)
	}
}

// A session whose owner was killed is told as lost, and reaped without its directory.
func TestKilledIsTold(t *testing.T) {
	e := newEnv(t, untilSignalled)
	id, end := e.begin(t, false)
	// Its owner is another process, which is gone.
	e.disown(t, id, func(*store.Record) {})
	if s := one(t, e.m); s.State != StateEnded || s.EndedBy != EndedByLoss || s.ExitCode != nil {
		t.Errorf("%+v", s)
	}
	if n, _, err := e.m.Reap(context.Background(), e.be); err != nil || n != 1 {
		t.Errorf("reaped %d, %v", n, err)
	}
	events, err := e.m.Traces().Events(id)
	if err != nil || !slices.ContainsFunc(events, func(ev trace.Event) bool { return ev.Event == trace.Reaped }) || len(e.be.Left()) > 0 {
		t.Errorf("%+v, %v; left are %q", events, err, e.be.Left())
	}
	_, _ = end() // of what lost all that it stood on
}

// With Keep, what was killed is reaped but for its container and home.
func TestKilledIsKept(t *testing.T) {
	e := newEnv(t, untilSignalled)
	id, end := e.begin(t, true)
	if _, err := end(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(e.m.RuntimeDir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// As it was just before the undoing.
	e.disown(t, id, func(r *store.Record) {
		r.Kept, r.Containers, r.Dirs = false, append(r.Containers, "aisb-gate-"+id), []string{dir}
	})
	if n, _, err := e.m.Reap(context.Background(), e.be); err != nil || n != 1 {
		t.Errorf("reaped %d, %v", n, err)
	}
	s := one(t, e.m)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || s.State != StateKept || !slices.Equal(e.be.Left(), []string{"aisb-" + id}) {
		t.Errorf("%+v; left are %q; %v", s, e.be.Left(), err)
	}
	if homes, err := e.be.Homes(context.Background()); err != nil || len(homes) != 1 {
		t.Errorf("homes %v, %v", homes, err)
	}
	// That is done once.
	if n, _, err := e.m.Reap(context.Background(), e.be); err != nil || n != 0 {
		t.Errorf("reaped %d again, %v", n, err)
	}
}

// disown makes the owner of a session a process that is gone.
func (e *env) disown(t *testing.T, id string, change func(*store.Record)) {
	t.Helper()
	rec, ok, err := e.m.Store.Session(id)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	rec.Start++
	change(&rec)
	if err := e.m.Store.Put(rec); err != nil {
		t.Fatal(err)
	}
}
