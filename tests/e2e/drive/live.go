// Runs that go on while the test does something else.

package drive

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Live is an ai-sandbox that runs while the test does something else.
type Live struct {
	T    *testing.T
	Cmd  *exec.Cmd
	In   io.WriteCloser
	Out  Buffer
	Err  Buffer
	Done chan struct{}
}

// A Buffer may be read while a process writes to it.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// cut takes an end away, and tells whether it was there.
func (b *Buffer) cut(end string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !bytes.HasSuffix(b.b.Bytes(), []byte(end)) {
		return false
	}
	b.b.Truncate(b.b.Len() - len(end))
	return true
}

// Start starts one; the test ends it, or its cleanup does.
func (b *Box) Start(t *testing.T, args ...string) *Live {
	t.Helper()
	return Started(t, b.Command(context.Background(), args...))
}

// Started is Start for a command of the test's own.
func Started(t *testing.T, cmd *exec.Cmd) *Live {
	t.Helper()
	l := &Live{T: t, Cmd: cmd, Done: make(chan struct{})}
	var err error
	if l.In, err = l.Cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	l.Cmd.Stdout, l.Cmd.Stderr = &l.Out, &l.Err
	if err := l.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.Cmd.Wait() // the state tells
		close(l.Done)
	}()
	t.Cleanup(func() {
		select {
		case <-l.Done:
			return
		default:
		}
		_ = l.Cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
		select {
		case <-l.Done:
		case <-time.After(30 * time.Second):
			t.Errorf("ai-sandbox does not end on SIGTERM")
			_ = l.Cmd.Process.Kill() // likewise
			<-l.Done
		}
	})
	return l
}

// Wait returns the result of one that ends by itself.
func (l *Live) Wait(limit time.Duration) Result {
	l.T.Helper()
	limit = max(limit, 2*time.Minute) // on a busy machine
	select {
	case <-l.Done:
	case <-time.After(limit):
		l.T.Fatalf("ai-sandbox has not ended within %v\nstdout: %s\nstderr: %s", limit, Tail(l.Out.String()), Tail(l.Err.String()))
	}
	code := l.Cmd.ProcessState.ExitCode()
	if ws, ok := l.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = -int(ws.Signal())
	}
	return Result{Code: code, Out: l.Out.String(), Err: l.Err.String()}
}

// Background runs one until stop, which ends its input and expects exit code 0.
func (b *Box) Background(t *testing.T, args ...string) (l *Live, stop func()) {
	t.Helper()
	l = b.Start(t, args...)
	return l, func() {
		t.Helper()
		l.In.Close()
		if r := l.Wait(30 * time.Second); r.Code != 0 {
			t.Errorf("the session in the background: %s", r)
		}
	}
}
