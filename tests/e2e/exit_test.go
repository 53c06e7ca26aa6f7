//go:build e2e

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	drive.CheckExitCodes(t, newBox)
}

// Nothing that the command started outlives it, and what it orphaned is reaped.
func TestOrphans(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", "for i in 1 2 3 4 5; do (sh -c 'true' & ) ; done; (setsid sleep 61234 >/dev/null 2>&1 &); sleep 1; "+
		"for i in $(seq 100); do grep -l '^State:.Z' /proc/[0-9]*/status >/dev/null || break; sleep 0.1; done; grep -l '^State:.Z' /proc/[0-9]*/status; true")
	if strings.Contains(r.Out, "/proc/") {
		t.Errorf("zombies: %s", r)
	}
	if out, err := exec.Command("pgrep", "-f", "^sleep 61234$").Output(); err == nil {
		t.Errorf("a process outlived the session: %s", out)
	}
}

func TestStandardInput(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	in := bytes.Repeat([]byte("some input, line by line\n"), 200_000)
	sum := sha256.Sum256(in)
	r := b.RunWith(bytes.NewReader(in), "--net", "none", "--", "sha256sum")
	if r.Code != 0 || !strings.HasPrefix(r.Out, hex.EncodeToString(sum[:])) {
		t.Errorf("5 MB of input: %s", r)
	}
	// No input at all is an end at once.
	r = b.RunWith(nil, "--net", "none", "--", "wc", "-c")
	if r.Code != 0 || strings.TrimSpace(r.Out) != "0" {
		t.Errorf("no input: %s", r)
	}
	// A command that does not read ends all the same, with input left.
	r = b.RunWith(bytes.NewReader(in), "--net", "none", "--", "true")
	if r.Code != 0 {
		t.Errorf("unread input: %s", r)
	}
}

func TestBigOutput(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const size = 100 << 20
	cmd := b.Command(t.Context(), "--net", "none", "--", "sh", "-c", "head -c "+fmt.Sprint(size)+" /dev/urandom | tee /tmp/out; sha256sum </tmp/out >&2")
	h := sha256.New()
	var errOut bytes.Buffer
	count := &counter{}
	cmd.Stdout, cmd.Stderr = multi{h, count}, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, drive.Tail(errOut.String()))
	}
	if count.n != size || !strings.Contains(errOut.String(), hex.EncodeToString(h.Sum(nil))) {
		t.Errorf("%d of %d bytes, sum %x: %s", count.n, size, h.Sum(nil), errOut.String())
	}
}

type counter struct{ n int }

func (c *counter) Write(b []byte) (int, error) { c.n += len(b); return len(b), nil }

type multi []interface{ Write([]byte) (int, error) }

func (m multi) Write(b []byte) (int, error) {
	for _, w := range m {
		if n, err := w.Write(b); err != nil {
			return n, err
		}
	}
	return len(b), nil
}

// stdout and stderr stay apart.
func TestStreamsStayApart(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", "echo one; echo two >&2")
	if r.Out != "one\n" || !strings.HasSuffix(r.Err, "two\n") {
		t.Errorf("%s", r)
	}
}

// A reader that goes away ends the command, as in any pipe.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := b.Command(t.Context(), "--net", "none", "--", "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Error(err)
	}
	out.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !(ws.Exited() && ws.ExitStatus() == 141) && !(ws.Signaled() && ws.Signal() == syscall.SIGPIPE) {
			t.Errorf("ended with %v", cmd.ProcessState)
		}
	case <-time.After(2 * time.Minute):
		t.Error("still running after its reader has gone")
		cmd.Process.Kill()
		<-done
	}
}

// A signal to ai-sandbox reaches the command, whose own exit code counts.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "QUIT": syscall.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			l := b.Start(t, "--net", "none", "--", "sh", "-c", "trap 'echo caught >caught; exit 33' "+name+"; echo up >up; while :; do sleep 0.1; done")
			b.File(t, "up")
			if err := l.Cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			r := l.Wait(20 * time.Second)
			if r.Code != 33 || b.File(t, "caught") != "caught" {
				t.Errorf("%s", r)
			}
		})
	}
	t.Run("ignored TERM", func(t *testing.T) {
		b := newBox(t)
		l := b.Start(t, "--net", "none", "--", "sh", "-c", "trap '' TERM; echo up >up; while :; do sleep 0.1; done")
		b.File(t, "up")
		if err := l.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if r := l.Wait(40 * time.Second); r.Code == 0 {
			t.Errorf("%s", r)
		}
	})
}
