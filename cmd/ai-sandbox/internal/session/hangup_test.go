package session

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/fake"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// attaching tells what streams it was given.
type attaching struct {
	*fake.Backend
	streams chan backend.Streams
}

func (a attaching) Attach(ctx context.Context, id string, tty bool, s backend.Streams, ready chan<- struct{}) error {
	a.streams <- s
	return a.Backend.Attach(ctx, id, tty, s, ready)
}

// What is written to a terminal after it has gone away is no error, and what can't be
// written elsewhere is one.
func TestOutliveTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	// As a session hands it to the backend.
	e := newEnv(t, exits(spec.Exited{}))
	p, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: e.project, RuntimeDir: e.m.RuntimeDir, EnvSet: func(string) bool { return false }},
		Runtime: policy.RuntimePodman, Command: []string{"true"}, Net: policy.NetNone,
	})
	if err != nil {
		t.Fatal(err)
	}
	be := attaching{e.be, make(chan backend.Streams, 1)}
	if _, err := e.m.Run(t.Context(), be, Request{Policy: p, Streams: backend.Streams{Stdout: slave}, Signals: e.signals, Start: time.Now(), Project: e.id}); err != nil {
		t.Fatal(err)
	}
	s := <-be.streams
	if s.Stderr != nil {
		t.Errorf("a stream that is not there became %T", s.Stderr)
	}
	if _, err := io.WriteString(s.Stdout, "here"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(master, got); err != nil || string(got) != "here" {
		t.Fatalf("%q, %v", got, err)
	}
	master.Close()
	if _, err := slave.WriteString("x"); err == nil {
		t.Fatal("the terminal is still there")
	}
	for range 2 {
		if n, err := io.WriteString(s.Stdout, "gone"); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if _, err := io.WriteString(outlive(full), "x"); err == nil {
		t.Error("what a full device does not take is no error")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if outlive(w) != io.Writer(w) {
		t.Error("a pipe is no longer one")
	}
}
