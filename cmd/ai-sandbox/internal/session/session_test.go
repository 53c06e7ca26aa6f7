package session

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/fake"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// enforced plays an entrypoint that is content, up to the command's start.
func enforced(in, out *os.File) (*spec.Spec, error) {
	var f spec.ToGuest
	if err := spec.ReadFrame(in, &f); err != nil {
		return nil, err
	}
	s := f.Spec
	if err := spec.WriteFrame(out, spec.ToHost{Enforced: &spec.Enforced{Micros: 5}}); err != nil {
		return nil, err
	}
	var g spec.ToGuest
	if err := spec.ReadFrame(in, &g); err != nil {
		return nil, err
	}
	if g.Gate != nil {
		if s.Canary == nil || g.Gate.Check() != nil {
			return nil, errors.New("no test before go")
		}
		g = spec.ToGuest{}
		if err := spec.ReadFrame(in, &g); err != nil {
			return nil, err
		}
	}
	if !g.Go {
		return nil, errors.New("no go")
	}
	return s, nil
}

func exits(e spec.Exited) fake.Guest {
	return func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		return spec.WriteFrame(out, spec.ToHost{Exited: &e})
	}
}

type env struct {
	m       *Manager
	be      *fake.Backend
	said    []string
	signals chan os.Signal
	records string
	project string
	id      spec.Bind // the project's
}

func newEnv(t *testing.T, g fake.Guest) *env {
	t.Helper()
	records := filepath.Join(t.TempDir(), "records")
	st, err := store.Open(records)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{be: fake.New(g), records: records, signals: make(chan os.Signal, 4), project: t.TempDir()}
	id, err := identify(unix.AT_FDCWD, e.project)
	if err != nil {
		t.Fatal(err)
	}
	e.id = spec.Bind{Target: policy.FallbackDir, Dev: id.Dev, Ino: id.Ino}
	// FIFO paths are short; the state may be anywhere.
	e.m = &Manager{Store: st, RuntimeDir: t.TempDir(), StateDir: t.TempDir(),
		Say: func(format string, a ...any) { e.said = append(e.said, format) }}
	return e
}

func (e *env) run(t *testing.T, net string) (Report, error) {
	t.Helper()
	return e.runWith(t, net, policy.LimitInputs{})
}

func (e *env) runWith(t *testing.T, net string, limits policy.LimitInputs) (Report, error) {
	t.Helper()
	p, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: e.project, RuntimeDir: e.m.RuntimeDir, EnvSet: func(n string) bool { return n == "TOKEN" }},
		Runtime: policy.RuntimePodman, Command: []string{"true"}, Net: net, Env: []string{"TOKEN"}, Limits: limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return e.m.Run(ctx, e.be, Request{
		Policy: p, Values: map[string]policy.Secret{"TOKEN": policy.NewSecret("TOKEN", "multi\nline")}, Streams: backend.Streams{Stdout: io.Discard, Stderr: io.Discard},
		Signals: e.signals, Start: time.Now(), Project: e.id,
	})
}

// clean fails when anything of the run is left.
func (e *env) clean(t *testing.T) {
	t.Helper()
	if left := e.be.Left(); len(left) > 0 {
		t.Errorf("containers left: %v", left)
	}
	if r, err := e.m.Store.List(); err != nil || len(r) > 0 {
		t.Errorf("records left: %v, %v", r, err)
	}
	if names, err := os.ReadDir(e.project); err != nil || len(names) > 0 {
		t.Errorf("left in the project: %v, %v", names, err)
	}
	entries, err := os.ReadDir(e.m.RuntimeDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, d := range entries {
		t.Errorf("left in %s: %s", e.m.RuntimeDir, d.Name())
	}
	traced(t, e.m)
}

// traced fails when more is kept of an ended session than is meant to be, or less.
func traced(t *testing.T, m *Manager) {
	t.Helper()
	ids, err := m.Traces().IDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		dir, _ := m.Traces().Dir(id)
		files, err := os.ReadDir(dir)
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		events, eerr := m.Traces().Events(id)
		if eerr != nil || len(events) < 2 || events[0].Event != trace.Begun {
			t.Errorf("events %+v (%v)", events, eerr)
			continue
		}
		want := []string{trace.EventsFile, trace.PolicyFile, trace.ReportFile}
		switch last := events[len(events)-1].Event; last {
		case trace.Ended:
		case trace.Reaped: // by a later process: it was killed
			want = want[:2]
		default:
			t.Errorf("the last event is %s", last)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == GateLogFile }) // where there is a gate
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("of session %s there are %q (%v)", id, names, err)
		}
	}
}

func TestExitCodeIsTheCommands(t *testing.T) {
	for _, code := range []int{0, 1, 42, 77, 78, 125, 255} {
		e := newEnv(t, exits(spec.Exited{Code: code}))
		rep, err := e.run(t, policy.NetGated)
		if err != nil || rep.ExitCode != code || rep.EndedBy != EndedByCommand {
			t.Errorf("exit %d: got %+v, %v", code, rep, err)
		}
		e.clean(t)
	}
}

func TestSealedMessage(t *testing.T) {
	var got *spec.Spec
	e := newEnv(t, func(in, out *os.File) error {
		s, err := enforced(in, out)
		got = s
		if err != nil {
			return err
		}
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{}})
	})
	if _, err := e.run(t, policy.NetGated); err != nil {
		t.Fatal(err)
	}
	if got.Firewall.GateAddr != policy.GateAddr || got.Firewall.GatePort == 0 {
		t.Errorf("firewall %+v", got.Firewall)
	}
	env := strings.Join(got.Env, "\x00")
	if !strings.Contains(env, "TOKEN=multi\nline") {
		t.Errorf("the value passed by name is not exact: %q", env)
	}
	if strings.Contains(env, policy.PortPlaceholder) {
		t.Errorf("a placeholder is left: %q", env)
	}
	protected := 0
	for _, b := range got.Binds {
		if strings.HasPrefix(b.Target, policy.FallbackDir+"/.") && b.Ino != 0 {
			protected++
		}
	}
	control := got.Binds[len(got.Binds)-1]
	if protected != 11 || len(got.Binds) != 13 || got.Binds[11] != e.id || control.Target != spec.Dir || control.Ino == 0 {
		t.Errorf("binds %+v", got.Binds)
	}
}

func TestFIFOsAreGoneBeforeTheCommand(t *testing.T) {
	var left []os.DirEntry
	e := newEnv(t, func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		left, _ = os.ReadDir(filepath.Dir(in.Name()))
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{}})
	})
	if _, err := e.run(t, policy.NetNone); err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != policy.GuideName {
		t.Errorf("the control directory held %v when the command ran", left)
	}
}

func TestRefusedIsToldFromTheCommandsOwnCode(t *testing.T) {
	e := newEnv(t, func(in, out *os.File) error {
		var f spec.ToGuest
		if err := spec.ReadFrame(in, &f); err != nil {
			return err
		}
		return spec.WriteFrame(out, spec.ToHost{Refused: &spec.Refused{Code: 77, Control: "ruleset", Reason: "a rule is missing"}})
	})
	rep, err := e.run(t, policy.NetGated)
	if err == nil || rep.ExitCode != 77 || rep.EndedBy != EndedByEntrypoint || rep.Control != "ruleset" {
		t.Errorf("got %+v, %v", rep, err)
	}
	e.clean(t)
}

// A step that fails ends the start with 125 and leaves nothing, and the command
// never gets its go.
func TestEveryStepCanFail(t *testing.T) {
	for _, step := range []string{"home", "create", "attach", "start", "verify", "gate", "verify gate"} {
		t.Run(step, func(t *testing.T) {
			ran := false
			e := newEnv(t, func(in, out *os.File) error {
				if _, err := enforced(in, out); err != nil {
					return err
				}
				ran = true
				return nil
			})
			e.be.Fail[step] = errors.New("planted")
			rep, err := e.run(t, policy.NetGated)
			if err == nil || !strings.Contains(err.Error(), "planted") {
				t.Errorf("error %v", err)
			}
			if rep.ExitCode != ExitFailed || rep.EndedBy != EndedByUs {
				t.Errorf("report %+v", rep)
			}
			if ran {
				t.Error("the command ran")
			}
			e.clean(t)
		})
	}
}

func TestGateDeathEndsTheCommand(t *testing.T) {
	alive := make(chan struct{})
	e := newEnv(t, func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		close(alive)
		_, err := io.Copy(io.Discard, in) // until the lifeline ends
		return err
	})
	e.be.GateGuest = func() { <-alive }
	rep, err := e.run(t, policy.NetGated)
	if err == nil || rep.EndedBy != EndedByGate || rep.ExitCode != ExitFailed {
		t.Errorf("got %+v, %v", rep, err)
	}
	e.clean(t)
}

func TestLossOfTheContainer(t *testing.T) {
	e := newEnv(t, func(in, out *os.File) error {
		_, err := enforced(in, out)
		return err // gone without a word
	})
	rep, err := e.run(t, policy.NetNone)
	if err == nil || rep.EndedBy != EndedByLoss {
		t.Errorf("got %+v, %v", rep, err)
	}
	e.clean(t)
}

func TestSignals(t *testing.T) {
	e := newEnv(t, nil)
	e.be.Guest = func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		e.signals <- syscall.SIGINT
		var f spec.ToGuest
		if err := spec.ReadFrame(in, &f); err != nil {
			return err
		}
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{Code: 128 + f.Signal, Signal: f.Signal}})
	}
	rep, err := e.run(t, policy.NetNone)
	if err != nil || rep.ExitCode != 130 || rep.EndedBy != EndedByCommand || rep.Signal != 2 {
		t.Errorf("got %+v, %v", rep, err)
	}
	e.clean(t)
}

func TestSignalBeforeTheCommand(t *testing.T) {
	e := newEnv(t, nil)
	e.be.Guest = func(in, out *os.File) error {
		e.signals <- syscall.SIGTERM
		_, err := io.Copy(io.Discard, in)
		return err
	}
	rep, err := e.run(t, policy.NetNone)
	if err == nil || rep.ExitCode != 143 || rep.EndedBy != EndedBySignal {
		t.Errorf("got %+v, %v", rep, err)
	}
	e.clean(t)
}

func TestReap(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	dir := filepath.Join(e.m.RuntimeDir, "dead")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rec := store.Record{ID: "dead", Kind: "session", Runtime: policy.RuntimePodman, Containers: []string{"aisb-dead"}, Dirs: []string{dir}}
	if err := e.m.Store.Owner(&rec); err != nil {
		t.Fatal(err)
	}
	alive := rec
	alive.ID, alive.Dirs = "alive", nil
	rec.Start++ // another process of that id
	for _, r := range []store.Record{rec, alive} {
		if err := e.m.Store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	removed, doubt, err := e.m.Reap(context.Background(), e.be)
	if removed != 1 || len(doubt) != 0 || err != nil {
		t.Errorf("removed %d, doubt %v, %v", removed, doubt, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead session's directory is still there: %v", err)
	}
	left, err := e.m.Store.List()
	if err != nil || len(left) != 1 || left[0].ID != "alive" {
		t.Errorf("records left %v, %v", left, err)
	}
}

// One that ended by itself after its record had been read was not reaped.
func TestReapOfEnded(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	rec := store.Record{ID: "ended", Kind: "session", Runtime: policy.RuntimePodman}
	for _, there := range []bool{false, true} {
		if there {
			if err := e.m.Store.Put(rec); err != nil {
				t.Fatal(err)
			}
		}
		if gone, err := e.m.reap(t.Context(), e.be, rec); gone != there || err != nil {
			t.Errorf("its record is there: %v; reaped: %v, %v", there, gone, err)
		}
	}
}

// A record is a file in the user's state; one that names what is not ours is
// not followed.
func TestReapTouchesOnlyOurs(t *testing.T) {
	for _, rec := range []store.Record{
		{Containers: []string{"database"}},
		{Dirs: []string{"/home"}},
		{Dirs: []string{""}},
	} {
		e := newEnv(t, exits(spec.Exited{}))
		if len(rec.Dirs) > 0 && rec.Dirs[0] == "" {
			rec.Dirs[0] = e.m.StateDir // the root itself
		}
		rec.ID, rec.Kind, rec.Runtime, rec.BootID, rec.PID = "x", "session", policy.RuntimePodman, "an earlier boot", 1
		if err := e.m.Store.Put(rec); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.m.Reap(context.Background(), e.be); err == nil {
			t.Errorf("%+v was followed", rec)
		}
		if _, err := os.Stat(e.m.StateDir); err != nil {
			t.Fatal(err)
		}
	}
}
