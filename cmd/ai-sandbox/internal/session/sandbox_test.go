package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/fake"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
	"ai-sandbox/tests/schema"
)

// A supervisor is a process of its own: this test binary again.
func TestMain(m *testing.M) {
	// Commands would inherit a SIGHUP that is ignored (nohup), which no shell can
	// trap; one that is handled is reset in them.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	if conf := os.Getenv("AISB_TEST_SUPERVISOR"); conf != "" {
		os.Exit(supervise(conf))
	}
	os.Exit(m.Run())
}

// A stage is where sandboxes are, as the supervisor of the test gets it.
type stage struct {
	Records, Runtime, State string
	Project                 string // "": a workspace of its own
	Fail                    string // a step that fails
	// Deaf: it does not end when it is asked to.
	Deaf bool
	// Deny: whoever waits for the handle is gone.
	Deny bool

	m *Manager
}

func (s *stage) manager() (*Manager, error) {
	st, err := store.Open(s.Records)
	return &Manager{Store: st, RuntimeDir: s.Runtime, StateDir: s.State, Say: func(string, ...any) {}}, err
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Records: filepath.Join(t.TempDir(), "records"), State: t.TempDir()}
	// Short, as a socket's path has to be.
	dir, err := os.MkdirTemp("", "aisb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.Runtime = dir
	if s.m, err = s.manager(); err != nil {
		t.Fatal(err)
	}
	return s
}

// supervise runs a sandbox on the fake backend, tells the handle on descriptor 3
// and ends with it.
func supervise(conf string) int {
	say := func(err error) int {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		return 1
	}
	var s stage
	if err := json.Unmarshal([]byte(conf), &s); err != nil {
		return say(err)
	}
	m, err := s.manager()
	if err != nil {
		return say(err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	if s.Deaf {
		signals = nil
	}
	sb, err := m.NewSandbox(s.Project == "")
	if err != nil {
		return say(err)
	}
	sb.Program = "/usr/bin/ai-sandbox"
	project := s.Project
	if project == "" {
		project = sb.Workspace
	}
	id, err := identify(unix.AT_FDCWD, project)
	if err != nil {
		return say(err)
	}
	p, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: project, RuntimeDir: s.Runtime, EnvSet: func(n string) bool { return n == "TERM" || n == "TOKEN" }},
		Runtime: policy.RuntimePodman, Hold: true, Net: policy.NetNone, EphemeralHome: true, Env: []string{"TOKEN"},
	})
	if err != nil {
		return say(err)
	}
	be := fake.New(commands)
	if s.Fail != "" {
		be.Fail[s.Fail] = errors.New("planted")
	}
	_, err = m.Run(context.Background(), be, Request{
		Policy: p, Values: map[string]policy.Secret{"TERM": policy.NewSecret("TERM", "dumb"), "TOKEN": policy.NewSecret("TOKEN", "canary")}, Project: spec.Bind{Dev: id.Dev, Ino: id.Ino},
		Hold: true, Sandbox: sb, Signals: signals, Start: time.Now(), Streams: backend.Streams{Stdout: sb.Log, Stderr: sb.Log},
		Ready: func(h Handle) error {
			if s.Deny {
				return errors.New("nobody is there")
			}
			out := os.NewFile(3, "handle")
			defer out.Close()
			return json.NewEncoder(out).Encode(h)
		},
	})
	if err != nil {
		return say(err)
	}
	return 0
}

// commands plays an entrypoint that holds, and really runs what it is asked to.
func commands(in, out *os.File) error {
	if _, err := enforced(in, out); err != nil {
		return err
	}
	var sending sync.Mutex
	send := func(f spec.ToHost) {
		sending.Lock()
		defer sending.Unlock()
		_ = spec.WriteFrame(out, f)
	}
	send(spec.ToHost{Started: true})
	var mu sync.Mutex
	running := map[int]*exec.Cmd{}
	for {
		var f spec.ToGuest
		if err := spec.ReadFrame(in, &f); err != nil {
			for _, c := range running {
				_ = c.Process.Kill()
			}
			return err
		}
		switch {
		case f.Signal != 0:
			send(spec.ToHost{Exited: &spec.Exited{}})
			return nil
		case f.SignalExec != nil:
			mu.Lock()
			if c := running[f.SignalExec.Exec]; c != nil {
				_ = syscall.Kill(-c.Process.Pid, syscall.Signal(f.SignalExec.Signal))
			}
			mu.Unlock()
		case f.Exec != nil:
			e := *f.Exec
			cmd := exec.Command(e.Command[0], e.Command[1:]...)
			cmd.Env, cmd.SysProcAttr = e.Env, &syscall.SysProcAttr{Setsid: true}
			files, err := open(filepath.Dir(in.Name()), e)
			if err == nil {
				cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[len(files)-1]
				err = cmd.Start()
			}
			for _, file := range files {
				file.Close()
			}
			if err != nil {
				send(spec.ToHost{ExecState: &spec.ExecState{ID: e.ID, Exited: &spec.Exited{Code: 127, Error: err.Error()}}})
				continue
			}
			mu.Lock()
			running[e.ID] = cmd
			mu.Unlock()
			send(spec.ToHost{ExecState: &spec.ExecState{ID: e.ID, Started: true}})
			go func() {
				_ = cmd.Wait() // its state is looked at
				mu.Lock()
				delete(running, e.ID)
				mu.Unlock()
				x := spec.Exited{Code: cmd.ProcessState.ExitCode()}
				if st := cmd.ProcessState.Sys().(syscall.WaitStatus); st.Signaled() {
					x = spec.Exited{Code: 128 + int(st.Signal()), Signal: int(st.Signal())}
				}
				send(spec.ToHost{ExecState: &spec.ExecState{ID: e.ID, Exited: &x}})
			}()
		}
	}
}

func open(dir string, e spec.Exec) (files []*os.File, err error) {
	in, out, errs := spec.ExecFIFOs(e.ID)
	names := []string{in, out, errs}
	if e.TTY {
		names = names[:2]
	}
	for i, name := range names {
		flag := syscall.O_WRONLY
		if i == 0 {
			flag = syscall.O_RDONLY
		}
		fd, err := syscall.Open(filepath.Join(dir, name), flag|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err != nil {
			return files, err
		}
		if err := syscall.SetNonblock(fd, false); err != nil {
			return files, err
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files, nil
}

// up starts a supervisor, and returns it when it has told the handle or ended.
func (s *stage) up(t *testing.T) (*exec.Cmd, Handle) {
	t.Helper()
	conf, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "AISB_TEST_SUPERVISOR="+string(conf))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	// Nobody reaps it as its own parent would: it goes like init's children do.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its exit code is asked for where it matters
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
	})
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var h Handle
	if len(text) > 0 {
		if err := json.Unmarshal(text, &h); err != nil {
			t.Fatal(err)
		}
	} else {
		<-ended
	}
	return cmd, h
}

func within20(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// backendOf gives a backend that has nothing: that of a later process.
func backendOf(context.Context, string) (backend.Backend, error) { return fake.New(nil), nil }

// clean does what the verb does, and tells what was removed and what was only named.
func (s *stage) clean(t *testing.T) (removed, stay int, err error) {
	t.Helper()
	items, err := s.m.Cleanable(within20(t), fake.New(nil), CleanRequest{})
	for _, i := range items {
		if i.Stays() {
			stay++
			continue
		}
		_, derr := i.Do(within20(t))
		removed, err = removed+1, errors.Join(err, derr)
	}
	return removed, stay, err
}

// gone fails when anything of a sandbox is left.
func (s *stage) gone(t *testing.T) {
	t.Helper()
	if r, err := s.m.Store.List(); err != nil || len(r) > 0 {
		t.Errorf("records left: %v, %v", r, err)
	}
	traced(t, s.m)
	for _, dir := range []string{s.Runtime, filepath.Join(s.State, WorkspacesDir), filepath.Join(s.State, sandboxesDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, d := range entries {
			t.Errorf("left in %s: %s", dir, d.Name())
		}
	}
}

// A ran command's output and end.
type ran struct {
	out, errs bytes.Buffer
	code      int
	err       error
}

func (s *stage) exec(t *testing.T, id, input string, argv ...string) *ran {
	t.Helper()
	r := &ran{}
	r.code, r.err = s.m.Exec(within20(t), id, ExecRequest{
		Command: argv, Term: "xterm-test", Streams: backend.Streams{Stdin: strings.NewReader(input), Stdout: &r.out, Stderr: &r.errs},
	})
	return r
}

func TestSandbox(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	if h.SandboxID == "" || h.WorkspaceDir != filepath.Join(s.State, WorkspacesDir, h.SandboxID) || !h.WorkspaceOwned || h.PID == os.Getpid() {
		t.Fatalf("handle %+v", h)
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Documented("../../../../docs/integration.md", "handle", text); err != nil {
		t.Error(err)
	}
	again, err := s.m.WaitReady(within20(t), h.SandboxID)
	if text2, _ := json.Marshal(again); err != nil || !bytes.Equal(text, text2) {
		t.Errorf("told %s, and later %s (%v)", text, text2, err)
	}

	r := s.exec(t, h.SandboxID, "line\n", "sh", "-c", `cat; echo "$TERM $TOKEN"; echo bad >&2; exit 3`)
	if r.code != 3 || r.err != nil || r.out.String() != "line\nxterm-test canary\n" || r.errs.String() != "bad\n" {
		t.Errorf("exit %d, %v: %q, %q", r.code, r.err, r.out.String(), r.errs.String())
	}
	big := strings.Repeat("0123456789abcde\n", 1<<16) // more than any pipe holds
	if r := s.exec(t, h.SandboxID, big, "cat"); r.code != 0 || r.err != nil || r.out.String() != big {
		t.Errorf("a megabyte: exit %d, %v, %d bytes back", r.code, r.err, r.out.Len())
	}
	if r := s.exec(t, h.SandboxID, "", "/no/such"); r.code != 127 || r.err == nil {
		t.Errorf("not there: exit %d, %v", r.code, r.err)
	}
	if r := s.exec(t, h.SandboxID, "", ""); r.code != ExitFailed || r.err == nil {
		t.Errorf("no command: exit %d, %v", r.code, r.err)
	}
	if r := s.exec(t, h.SandboxID, "", "sh", "-c", "kill -9 $$"); r.code != 137 || r.err != nil {
		t.Errorf("killed: exit %d, %v", r.code, r.err)
	}
	// What a command leaves behind keeps nobody waiting.
	began := time.Now()
	if r := s.exec(t, h.SandboxID, "", "sh", "-c", "sleep 30 & echo on"); r.code != 0 || r.out.String() != "on\n" || time.Since(began) > 10*time.Second {
		t.Errorf("a background job: exit %d, %q after %s", r.code, r.out.String(), time.Since(began))
	}
	names, err := os.ReadDir(filepath.Join(s.Runtime, h.SandboxID, "control"))
	if err != nil || len(names) != 1 || names[0].Name() != policy.GuideName {
		t.Errorf("names left: %v, %v", names, err)
	}

	exit := make(chan error, 1)
	go func() {
		rep, err := s.m.WaitExit(within20(t), h.SandboxID)
		if err == nil && (rep.EndedBy != EndedBySignal || rep.ExitCode != 0 || rep.Session != h.SandboxID) {
			err = fmt.Errorf("report %+v", rep)
		}
		exit <- err
	}()
	if err := os.WriteFile(filepath.Join(h.WorkspaceDir, "result"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // the wait may begin: it has to cope with both
	if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
		t.Fatal(err)
	}
	if err := <-exit; err != nil && !errors.Is(err, ErrNoSandbox) {
		t.Errorf("wait for the exit: %v", err)
	}
	s.gone(t)
	for what, err := range map[string]error{
		"down": s.m.Down(within20(t), h.SandboxID, backendOf),
		"wait": func() error { _, err := s.m.WaitReady(within20(t), h.SandboxID); return err }(),
		"exit": func() error { _, err := s.m.WaitExit(within20(t), h.SandboxID); return err }(),
		"odd":  s.m.Down(within20(t), "../records/session-x", backendOf),
	} {
		if !errors.Is(err, ErrNoSandbox) {
			t.Errorf("%s of a sandbox that is gone: %v", what, err)
		}
	}
	if err := s.exec(t, h.SandboxID, "", "true").err; err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("exec of a sandbox that is gone: %v", err)
	}
}

// A project is worked in, and never removed; its sandbox is told and forgotten
// when it has ended by itself.
func TestSandboxInProject(t *testing.T) {
	s := newStage(t)
	s.Project = t.TempDir()
	kept := filepath.Join(s.Project, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"down", "forget"} {
		cmd, h := s.up(t)
		if h.WorkspaceDir != s.Project || h.WorkspaceOwned {
			t.Fatalf("handle %+v", h)
		}
		if removed, _, err := s.clean(t); removed != 0 || err != nil {
			t.Errorf("a living sandbox is forgotten: %d, %v", removed, err)
		}
		if end == "down" {
			if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rep, err := s.m.WaitExit(within20(t), h.SandboxID)
			if err != nil || rep.EndedBy != EndedBySignal || rep.ExitCode != 0 || rep.Reason != "" {
				t.Errorf("report %+v, %v", rep, err)
			}
			text, err := json.Marshal(rep)
			if err == nil {
				err = schema.Documented("../../../../docs/integration.md", "report", text)
			}
			if err != nil {
				t.Error(err)
			}
			var ended *EndedError
			if _, err := s.m.WaitReady(within20(t), h.SandboxID); !errors.As(err, &ended) {
				t.Errorf("ready: %v", err)
			}
			if removed, kept, err := s.clean(t); removed != 1 || kept != 0 || err != nil {
				t.Errorf("forgotten: %d, %v, %v", removed, kept, err)
			}
		}
		s.gone(t)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// Whoever comes after a supervisor that was killed finds what happened, and takes
// the rest down; what somebody may want stays until then.
func TestSupervisorKilled(t *testing.T) {
	s := newStage(t)
	cmd, h := s.up(t)
	result := filepath.Join(h.WorkspaceDir, "result")
	if err := os.WriteFile(result, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	running := make(chan *ran, 1)
	started := make(chan struct{})
	go func() {
		r := &ran{}
		in, w := io.Pipe()
		defer w.Close()
		r.code, r.err = s.m.Exec(within20(t), h.SandboxID, ExecRequest{
			Command: []string{"sh", "-c", "echo on; cat"}, Streams: backend.Streams{Stdin: in, Stdout: first(started), Stderr: io.Discard},
		})
		running <- r
	}()
	<-started
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rep, err := s.m.WaitExit(within20(t), h.SandboxID)
	if err != nil || rep.EndedBy != EndedByLoss || rep.ExitCode != ExitFailed {
		t.Errorf("report %+v, %v", rep, err)
	}
	if r := <-running; r.code != 137 || r.err == nil {
		t.Errorf("the command in it: exit %d, %v", r.code, r.err)
	}
	var ended *EndedError
	if _, err := s.m.WaitReady(within20(t), h.SandboxID); !errors.As(err, &ended) {
		t.Errorf("ready: %v", err)
	}
	if r := s.exec(t, h.SandboxID, "", "true"); !errors.As(r.err, &ended) || r.code != ExitFailed {
		t.Errorf("exec: %v", r.err)
	}
	// A later command of any kind removes what ran, and no more.
	if n, _, err := s.m.Reap(within20(t), fake.New(nil)); n != 1 || err != nil {
		t.Errorf("reaped %d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(s.Runtime, h.SandboxID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the session's directory: %v", err)
	}
	if n, _, err := s.m.Reap(within20(t), fake.New(nil)); n != 0 || err != nil {
		t.Errorf("reaped again %d, %v", n, err)
	}
	if n, kept, err := s.clean(t); n != 0 || kept != 1 || err != nil {
		t.Errorf("forgotten %d, %v, %v", n, kept, err)
	}
	if _, err := os.Stat(result); err != nil {
		t.Errorf("the result: %v", err)
	}
	if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
}

// first closes the channel with the first write.
type firstWrite struct {
	once sync.Once
	c    chan struct{}
}

func first(c chan struct{}) io.Writer { return &firstWrite{c: c} }

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.c) })
	return len(p), nil
}

// One that does not end when it is asked to is killed, with what it has started.
func TestDeafSupervisor(t *testing.T) {
	s := newStage(t)
	s.Deaf = true
	_, h := s.up(t)
	rec, _, err := s.m.Store.Sandbox(h.SandboxID)
	if alive := s.m.Store.Liveness(rec); err != nil || alive != store.Alive {
		t.Fatalf("the supervisor is %v, %v", alive, err)
	}
	s.m.downTime = 200 * time.Millisecond
	if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
	if alive := s.m.Store.Liveness(rec); alive != store.Gone {
		t.Errorf("the supervisor is %v", alive)
	}
}

// The number in a record may be another process's by now: that one is let alone.
func TestReusedPID(t *testing.T) {
	for _, reused := range []bool{true, false} {
		s := newStage(t)
		s.m.downTime = 200 * time.Millisecond
		other := exec.Command("sh", "-c", "trap '' TERM; echo on; while :; do sleep 1; done")
		other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		died := make(chan struct{})
		go func() { _ = other.Wait(); close(died) }()
		rec := store.Record{ID: "abc", Kind: store.KindSandbox, Ready: true, Handle: []byte("{}"), Workspace: &store.Workspace{Path: t.TempDir()}}
		if err := s.m.Store.Owner(&rec); err != nil {
			t.Fatal(err)
		}
		rec.PID = other.Process.Pid
		rec.Start = startOf(t, rec.PID)
		if reused {
			rec.Start--
		}
		if err := s.m.Store.Put(rec); err != nil {
			t.Fatal(err)
		}
		if reused {
			var ended *EndedError
			if _, err := s.m.WaitReady(within20(t), "abc"); !errors.As(err, &ended) {
				t.Errorf("another process is taken for the supervisor: %v", err)
			}
		}
		if err := s.m.Down(within20(t), "abc", backendOf); err != nil {
			t.Errorf("reused %v: %v", reused, err)
		}
		limit := 20 * time.Second
		if reused {
			limit = 500 * time.Millisecond
		}
		select {
		case <-died:
			if reused {
				t.Error("a process of another start time was killed")
			}
		case <-time.After(limit):
			if !reused {
				t.Error("the supervisor was not killed")
			}
			_ = syscall.Kill(-rec.PID, syscall.SIGKILL)
			<-died
		}
	}
}

// startOf is field 22 of /proc/PID/stat, for a program whose name is a word.
func startOf(t *testing.T, pid int) (start uint64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(strings.Fields(string(b))[21], &start); err != nil {
		t.Fatal(err)
	}
	return start
}

// Only the directory that was made for the sandbox is removed.
func TestForeignWorkspace(t *testing.T) {
	outside := t.TempDir()
	for name, swap := range map[string]func(s *stage, rec *store.Record) error{
		"none": func(*stage, *store.Record) error { return nil },
		"another directory": func(_ *stage, rec *store.Record) error {
			if err := os.RemoveAll(rec.Workspace.Path); err != nil {
				return err
			}
			if err := os.Mkdir(rec.Workspace.Path, 0o700); err != nil { // perhaps with the inode of the old one
				return err
			}
			return os.WriteFile(filepath.Join(rec.Workspace.Path, "kept"), nil, 0o600)
		},
		"a link": func(_ *stage, rec *store.Record) error {
			return errors.Join(os.RemoveAll(rec.Workspace.Path), os.Symlink(outside, rec.Workspace.Path))
		},
		"another device": func(s *stage, rec *store.Record) error {
			rec.Workspace.Dev++
			return s.m.Store.Put(*rec)
		},
		"a path of its own choice": func(s *stage, rec *store.Record) error {
			rec.Workspace.Path = outside
			return s.m.Store.Put(*rec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, h := s.up(t)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.m.WaitExit(within20(t), h.SandboxID); err != nil {
				t.Fatal(err)
			}
			rec, ok, err := s.m.Store.Sandbox(h.SandboxID)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if err := swap(s, &rec); err != nil {
				t.Fatal(err)
			}
			err = s.m.Down(within20(t), h.SandboxID, backendOf)
			if name == "none" {
				if err != nil {
					t.Error(err)
				}
				s.gone(t)
				return
			}
			if err == nil || !strings.Contains(err.Error(), "not removed") {
				t.Errorf("down: %v", err)
			}
			for _, kept := range []string{filepath.Join(outside, "kept"), filepath.Join(h.WorkspaceDir)} {
				if _, err := os.Lstat(kept); err != nil {
					t.Error(err)
				}
			}
			if name == "another directory" {
				if _, err := os.Lstat(filepath.Join(h.WorkspaceDir, "kept")); err != nil {
					t.Error(err)
				}
			}
			if name == "another device" {
				// Unless it is a day later.
				rec.BootID = "an earlier one"
				if err := errors.Join(s.m.Store.Put(rec), s.m.Down(within20(t), h.SandboxID, backendOf)); err != nil {
					t.Error(err)
				}
				s.gone(t)
				return
			}
			// Moved away, it can be taken down.
			if name != "a path of its own choice" {
				if err := os.RemoveAll(h.WorkspaceDir); err != nil {
					t.Fatal(err)
				}
				if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
					t.Error(err)
				}
				s.gone(t)
			}
		})
	}
}

// What an agent can leave in a workspace is removed with it, and nothing that it
// leads to.
func TestHostileWorkspace(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `cd "$1" && mkdir -p a/b shut && : > shut/x && ln -s "$2" link && ln -s "$2" a/b/link && chmod 0 shut a/b a`
	if out, err := exec.Command("sh", "-c", script, "sh", h.WorkspaceDir, outside).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	at, err := unix.Open(h.WorkspaceDir, unix.O_DIRECTORY, 0)
	for range 100 { // a path longer than any call takes
		name := strings.Repeat("d", 200)
		if err == nil {
			err = unix.Mkdirat(at, name, 0o700)
		}
		next, oerr := unix.Openat(at, name, unix.O_DIRECTORY, 0)
		unix.Close(at)
		at, err = next, errors.Join(err, oerr)
	}
	unix.Close(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// Two at once take it down once.
func TestDownTwice(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() { errs <- s.m.Down(within20(t), h.SandboxID, backendOf) }()
	}
	done := 0
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			done++
		case !errors.Is(err, ErrNoSandbox):
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d took it down", done)
	}
	s.gone(t)
}

// The directory that is locked stays until the record is gone: else who comes between them
// locks another one, and takes it down as well.
func TestForgetLast(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	rec := store.Record{ID: "abc", Kind: store.KindSandbox}
	dir := e.m.sandboxDir(rec.ID)
	record := filepath.Join(e.records, rec.Kind+"-"+rec.ID+".json")
	for _, d := range []string{dir, filepath.Join(record, "in-the-way")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.m.forget(rec, emptyWorkspace); err == nil {
		t.Error("the record can be removed")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("with its record there: %v, %v", names, err)
	}
	if err := os.RemoveAll(record); err != nil {
		t.Fatal(err)
	}
	for range 2 { // of nothing, too
		if err := e.m.forget(rec, emptyWorkspace); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its record: %v", err)
	}
}

// Of many at once, again and again, one takes down what has ended, and no directory stays.
func TestDownAtOnce(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	for i := range 50 {
		rec := store.Record{ID: fmt.Sprintf("abc%d", i), Kind: store.KindSandbox, Ready: true, Handle: []byte("{}"), Report: []byte("{}")}
		if err := e.m.Store.Owner(&rec); err != nil {
			t.Fatal(err)
		}
		rec.Start--
		if err := e.m.Store.Put(rec); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 6)
		for range cap(errs) {
			go func() { errs <- e.m.Down(within20(t), rec.ID, backendOf) }()
		}
		done := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				done++
			case !errors.Is(err, ErrNoSandbox):
				t.Error(err)
			}
		}
		if done != 1 {
			t.Errorf("%d took it down", done)
		}
		if _, err := os.Lstat(e.m.sandboxDir(rec.ID)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory: %v", err)
		}
	}
}

// A start that fails leaves nothing, and no handle.
func TestSandboxThatFails(t *testing.T) {
	s := newStage(t)
	for _, step := range []string{"home", "create", "attach", "start", "verify", ""} {
		s.Fail, s.Deny = step, step == ""
		cmd, h := s.up(t)
		if h.SandboxID != "" || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%q: handle %+v, %v", step, h, cmd.ProcessState)
		}
		s.gone(t)
	}
}

// The client's death is the end of its command: first it is asked, then killed.
func TestClientDies(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	sign := filepath.Join(t.TempDir(), "hup")
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		in, w := io.Pipe()
		defer w.Close()
		// Nothing of it is told to the command but the end of the connection.
		_, _ = s.m.Exec(ctx, h.SandboxID, ExecRequest{
			Command: []string{"sh", "-c", `trap 'echo hup > "$1"; exit' HUP; echo on; for i in $(seq 600); do sleep 0.05; done`, "sh", sign},
			Streams: backend.Streams{Stdin: in, Stdout: first(started), Stderr: io.Discard},
		})
	}()
	<-started
	cancel()
	<-ended
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(sign); err == nil && string(b) == "hup\n" {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the command was not told that its client is gone")
		}
	}
	if err := s.m.Down(within20(t), h.SandboxID, backendOf); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
}

// Signals get to the command, and its end comes back.
func TestExecSignal(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1} {
		signals := make(chan os.Signal, 1)
		started := make(chan struct{})
		go func() {
			<-started
			signals <- sig
		}()
		code, err := s.m.Exec(within20(t), h.SandboxID, ExecRequest{
			Command: []string{"sh", "-c", "echo on; exec sleep 30"}, Signals: signals,
			Streams: backend.Streams{Stdout: first(started), Stderr: io.Discard},
		})
		if code != 128+int(sig) || err != nil {
			t.Errorf("%v: exit %d, %v", sig, code, err)
		}
	}
}

// Nobody reads the output: the command learns it as it would anywhere.
func TestExecOutputClosed(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	r, w := io.Pipe()
	r.Close()
	code, err := s.m.Exec(within20(t), h.SandboxID, ExecRequest{Command: []string{"yes"}, Streams: backend.Streams{Stdout: w, Stderr: io.Discard}})
	if err != nil || code != 128+int(syscall.SIGPIPE) && code != 1 {
		t.Errorf("exit %d, %v", code, err)
	}
}

// No more than so many at a time, and the next when one has ended.
func TestExecBound(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	ctx, cancel := context.WithCancel(within20(t))
	var wg sync.WaitGroup
	var in []io.Closer
	for range spec.MaxExecs {
		started := make(chan struct{})
		r, w := io.Pipe()
		in = append(in, w)
		wg.Go(func() {
			_, _ = s.m.Exec(ctx, h.SandboxID, ExecRequest{
				Command: []string{"sh", "-c", "echo on; exec cat"}, Streams: backend.Streams{Stdin: r, Stdout: first(started), Stderr: io.Discard},
			})
		})
		select {
		case <-started:
		case <-ctx.Done():
			t.Fatal("a command below the bound does not start")
		}
	}
	if r := s.exec(t, h.SandboxID, "", "true"); r.code != ExitFailed || r.err == nil || !strings.Contains(r.err.Error(), "wait for one of them to end") {
		t.Errorf("beyond the bound: exit %d, %v", r.code, r.err)
	}
	in[0].Close()
	for {
		r := s.exec(t, h.SandboxID, "", "true")
		if r.code == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("one has ended: exit %d, %v", r.code, r.err)
		}
	}
	cancel()
	wg.Wait()
}

// A client that makes no sense ends nothing but itself.
func TestExecNonsense(t *testing.T) {
	s := newStage(t)
	_, h := s.up(t)
	socket := filepath.Join(s.Runtime, h.SandboxID, execSocket)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	for _, text := range []string{"", "\x00\x00\x00\x02{}", "\xff\xff\xff\xff", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x0b{\"other\":1}"} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if errors.Is(err, syscall.ECONNRESET) { // it reads no more than it has to
			err = nil
		}
		if err != nil || !bytes.Contains(answer, []byte("makes no sense")) {
			t.Errorf("%q is answered %q, %v", text, answer, err)
		}
		c.Close()
	}
	for _, hello := range []execHello{{Version: 2, Command: [][]byte{[]byte("true")}}, {Version: 1}, {Version: 1, Command: [][]byte{[]byte("a\x00b")}}, {Version: 1, Command: [][]byte{[]byte("true")}, Cols: 3}} {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.WriteFrame(c, toServer{Exec: &hello}); err != nil {
			t.Fatal(err)
		}
		if _, err := streams(c.(*net.UnixConn)); err == nil {
			t.Errorf("%+v is taken", hello)
		}
		c.Close()
	}
	if r := s.exec(t, h.SandboxID, "", "true"); r.code != 0 {
		t.Errorf("after all that: exit %d, %v", r.code, r.err)
	}
}

func TestCheckPeer(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(newStage(t).Runtime, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := checkPeer(c, os.Getuid()); err != nil {
		t.Error(err)
	}
	if err := checkPeer(c, os.Getuid()+1); err == nil {
		t.Error("a process of another user is served")
	}
}

func TestWithTerm(t *testing.T) {
	for term, want := range map[string]string{
		"xterm-256color": "A=1 TERM=xterm-256color", "": "A=1", "a\nb": "A=1", "a b": "A=1", "/etc": "A=1", strings.Repeat("x", 65): "A=1",
	} {
		if got := strings.Join(withTerm([]string{"TERM=dumb", "A=1"}, term), " "); got != want {
			t.Errorf("%q: %s", term, got)
		}
	}
}

// A log has an end, and what it says is no reason to end a command.
func TestLog(t *testing.T) {
	l, err := openLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.left = 10
	for range 5 {
		if n, err := l.Write([]byte("12345678")); n != 8 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	b, err := os.ReadFile(l.Name())
	if err != nil || !strings.HasPrefix(string(b), "1234567812\nai-sandbox: the log has") || strings.Count(string(b), "\n") != 2 {
		t.Errorf("%q, %v", b, err)
	}
}
