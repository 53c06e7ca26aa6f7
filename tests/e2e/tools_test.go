//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// output runs a program of the test host.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out.String(), errOut.String())
	}
	return out.String()
}

// A live is an ai-sandbox that runs while the test does something else.
type live struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bytes.Buffer
	err  *bytes.Buffer
	done chan struct{}
}

// start starts one; the test ends it, or its cleanup does.
func (b *box) start(t *testing.T, args ...string) *live {
	t.Helper()
	l := &live{t: t, cmd: b.command(context.Background(), args...), out: &bytes.Buffer{}, err: &bytes.Buffer{}, done: make(chan struct{})}
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	l.cmd.Stdout, l.cmd.Stderr = l.out, l.err
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // the state tells
		close(l.done)
	}()
	t.Cleanup(func() {
		select {
		case <-l.done:
			return
		default:
		}
		_ = l.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
		select {
		case <-l.done:
		case <-time.After(30 * time.Second):
			t.Errorf("ai-sandbox does not end on SIGTERM")
			_ = l.cmd.Process.Kill() // likewise
			<-l.done
		}
	})
	return l
}

// wait returns the result of one that ends by itself.
func (l *live) wait(limit time.Duration) result {
	l.t.Helper()
	select {
	case <-l.done:
	case <-time.After(limit):
		l.t.Fatalf("ai-sandbox has not ended within %v", limit)
	}
	code := l.cmd.ProcessState.ExitCode()
	if ws, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = -int(ws.Signal())
	}
	return result{Code: code, Out: l.out.String(), Err: l.err.String()}
}

// background runs one until stop, which ends its input and expects exit code 0.
func (b *box) background(t *testing.T, args ...string) (stop func()) {
	t.Helper()
	l := b.start(t, args...)
	return func() {
		t.Helper()
		l.in.Close()
		if r := l.wait(30 * time.Second); r.Code != 0 {
			t.Errorf("the session in the background: %s", r)
		}
	}
}

// file waits for a file of the project and returns what is in it.
func (b *box) file(t *testing.T, name string) string {
	t.Helper()
	var data []byte
	eventually(t, time.Minute, "the file "+name+" of the project", func() bool {
		var err error
		data, err = os.ReadFile(filepath.Join(b.dir, name))
		return err == nil && len(data) > 0
	})
	return strings.TrimSpace(string(data))
}

// size is the length of a file of the project, 0 when it is not there.
func (b *box) size(name string) int64 {
	info, err := os.Stat(filepath.Join(b.dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}
