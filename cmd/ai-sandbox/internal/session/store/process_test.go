package store

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// owned is the record of a process.
func owned(t *testing.T, s *Store, pid int) Record {
	t.Helper()
	r := Record{ID: "x", Kind: KindSandbox}
	if err := s.Owner(&r); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.PID, r.Start, err = pid, 0, nil; pid > 0 {
		r.Start, _, err = s.stat(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOpenProcess(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "30")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := owned(t, s, cmd.Process.Pid)
	for name, change := range map[string]func(*Record){
		"another start time": func(r *Record) { r.Start++ },
		"another boot":       func(r *Record) { r.BootID = "x" },
		"nobody":             func(r *Record) { r.PID = 0 },
		"init":               func(r *Record) { r.PID = 1 },
	} {
		other := r
		change(&other)
		if p, err := s.OpenProcess(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	far := r
	far.PIDNS = "pid:[1]"
	if p, err := s.OpenProcess(far); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("of another namespace: %v, %v", p, err)
	}
	p, err := s.OpenProcess(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it lives: %v", err)
	}
	if err := p.KillGroup(); err != nil {
		t.Error(err)
	}
	long, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Wait(long); err != nil {
		t.Errorf("it was killed: %v", err)
	}
	// Dead, and its parent does not know yet.
	if got := s.Liveness(r); got != Gone {
		t.Errorf("a process that has ended is %v", got)
	}
	if _, err := s.OpenProcess(r); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
	_ = cmd.Wait() // it was killed
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := p.Signal(sig); err != nil {
			t.Errorf("a signal to nobody: %v", err)
		}
	}
}

func TestSandboxRecord(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := Record{ID: "abc", Kind: KindSandbox, Handle: []byte(`{"a":1}`), Workspace: &Workspace{Path: "/w", Ino: 1 << 60, Born: 1}}
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	got, ok, err := s.Sandbox("abc")
	if err != nil || !ok || string(got.Handle) != `{"a":1}` || *got.Workspace != *r.Workspace {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	for _, id := range []string{"", "other", "../x", "abc/", "/"} {
		if _, ok, err := s.Sandbox(id); ok || err != nil {
			t.Errorf("%q: %v, %v", id, ok, err)
		}
	}
}
