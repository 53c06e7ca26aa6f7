//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	out  buffer
	err  buffer
	done chan struct{}
}

// A buffer may be read while a process writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts one; the test ends it, or its cleanup does.
func (b *box) start(t *testing.T, args ...string) *live {
	t.Helper()
	l := &live{t: t, cmd: b.command(context.Background(), args...), done: make(chan struct{})}
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.err
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

// killWait ends a process that is not a child.
func killWait(t *testing.T, p process) {
	t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the end of "+p.String(), func() bool { return errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) || isZombie(p.pid) })
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func removeAll(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// removeStore removes a podman store: its files belong to subordinate ids.
func removeStore(t *testing.T, dir string) {
	t.Helper()
	output(t, "podman", "unshare", "rm", "-rf", "--one-file-system", dir)
}

// listTar is one line for each file of an archive: type, mode, owner, name, link
// and checksum. Times are not content.
func listTar(r io.Reader) (string, error) {
	var lines []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, archive); err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%c %o %d:%d %s -> %q %x", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Name, h.Linkname, sum.Sum(nil)[:8]))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
