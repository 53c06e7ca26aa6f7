//go:build e2e

package jail

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	drive.CheckExitCodes(t, func(t *testing.T) *drive.Box { return newBox(t).Box })
	// Ours are 125, with nothing run and a report that says so.
	b := newBox(t)
	file := filepath.Join(t.TempDir(), "report.json")
	r := b.Run("--report", file, "--allow", "*", "--", "touch", "ran")
	if rep := drive.ReadReport(t, file); r.Code != 125 || rep.ExitCode != 125 || rep.EndedBy != "ai-sandbox" || rep.Reason == "" || b.Size("ran") != 0 {
		t.Errorf("a refusal: %s: %+v", r, rep)
	}
}

// What goes in comes out, byte for byte, and the two outputs stay apart.
func TestStreams(t *testing.T) {
	t.Parallel()
	in := make([]byte, 1<<20)
	rand.Read(in) // never fails (crypto/rand)
	t.Run("binary", func(t *testing.T) {
		b := newBox(t)
		r := b.RunWith(bytes.NewReader(in), "--net", "none", "--", "cat")
		if r.Code != 0 || r.Out != string(in) {
			t.Errorf("exit code %d, %d of %d bytes, and the same: %v", r.Code, len(r.Out), len(in), r.Out == string(in))
		}
		r = b.RunWith(bytes.NewReader(in), "--net", "none", "--", "sh", "-c", "cat >&2")
		if r.Code != 0 || r.Out != "" || !strings.HasSuffix(r.Err, string(in)) {
			t.Errorf("exit code %d, %d bytes on stdout, %d on stderr", r.Code, len(r.Out), len(r.Err))
		}
	})
	t.Run("apart", func(t *testing.T) {
		r := newBox(t).OK("--net", "none", "--", "sh", "-c", "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
		if r.Out != "out1\nout2\nout3\n" || !strings.HasSuffix(r.Err, "err1\nerr2\nerr3\n") {
			t.Errorf("%s", r)
		}
	})
	t.Run("much", func(t *testing.T) {
		r := newBox(t).OK("--net", "none", "--", "sh", "-c", "head -c 67108864 /dev/zero; echo end >&2")
		if len(r.Out) != 64<<20 || !strings.HasSuffix(r.Err, "end\n") {
			t.Errorf("%d bytes", len(r.Out))
		}
	})
	t.Run("none", func(t *testing.T) {
		if r := newBox(t).Run("--net", "none", "--", "wc", "-c"); r.Code != 0 || strings.TrimSpace(r.Out) != "0" {
			t.Errorf("%s", r)
		}
	})
	t.Run("unread", func(t *testing.T) {
		if r := newBox(t).RunWith(bytes.NewReader(in), "--net", "none", "--", "true"); r.Code != 0 {
			t.Errorf("%s", r)
		}
	})
	t.Run("closed", func(t *testing.T) {
		b := newBox(t)
		cmd := exec.Command("sh", "-c", `exec "$@" <&-`, "sh", filepath.Join(w.bin, "ai-sandbox"), "--net", "none", "--", "./probe", "fds")
		cmd.Dir, cmd.Env = b.Dir, w.env
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "1 pipe:") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("reader gone", func(t *testing.T) {
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
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill() // the test has failed already
			<-done
			t.Error("still running after its reader has gone")
		}
	})
}

// A directory for a standard input, and one that a shell has left open, would be
// ways to the host's files: neither gets in, nor anything else that was inherited.
func TestInheritedDescriptors(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, tc := range []struct{ name, redirect string }{{"stdin", "</"}, {"extra", "9</ 8</etc/passwd"}, {"output", "3>out"}} {
		t.Run(tc.name, func(t *testing.T) {
			script := "exec 7<&0; exec \"$@\" " + tc.redirect
			run := func(command ...string) string {
				t.Helper()
				cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, command...)...)
				cmd.Dir, cmd.Env = b.Dir, w.env
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%q: %v: %s", command, err, out)
				}
				return string(out)
			}
			look := "./probe fds; for n in 0 3 7 8 9; do ls /proc/self/fd/$n/../etc/ /proc/self/fd/$n/etc/; done 2>/dev/null; true"
			out := run(filepath.Join(w.bin, "ai-sandbox"), "--net", "none", "--", "sh", "-c", look)
			for line := range strings.Lines(out) {
				f := strings.Fields(line)
				if len(f) == 2 && strings.HasPrefix(f[1], "/proc/") || len(f) == 2 && strings.HasPrefix(f[1], "anon_inode:") {
					continue // the probe's own
				}
				if len(f) != 2 || !strings.HasPrefix(f[1], "pipe:") || f[0] > "2" || len(f[0]) > 1 {
					t.Errorf("inside: %s", line)
				}
			}
			// The positive control: without a jail, it is there.
			if out := run("sh", "-c", look); !strings.Contains(out, "7 ") || tc.name != "output" && !strings.Contains(out, "passwd") {
				t.Errorf("the positive control failed: %s", out)
			}
		})
	}
}

// Nor does bubblewrap itself have them, or what else ai-sandbox has open: read by
// root, who may.
func TestInheritedByBubblewrap(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := b.Command(context.Background(), "--allow", b.Host("ok.test"), "--", "sh", "-c", "echo up >up; cat")
	cmd.Args = append([]string{"sh", "-c", `exec 9</ 8</etc/passwd; exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait() // how it ends is not this test's
	}()
	b.File(t, "up")
	looked := 0
	for _, p := range tree(t, cmd.Process.Pid) {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			to, err := os.Readlink(l)
			if err != nil {
				continue // it may not be looked at
			}
			looked++
			if p.pid != cmd.Process.Pid && (strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/memfd:") && to != "/dev/null" && !strings.HasPrefix(to, "/proc") && !strings.Contains(to, "/run/aisb") && !strings.Contains(to, "(deleted)")) {
				t.Errorf("%s has %s open", p, to)
			}
		}
	}
	if looked < 10 {
		t.Errorf("only %d descriptors were looked at", looked)
	}
}

// Nothing that the command started outlives it, and what it orphaned is reaped.
func TestOrphans(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", "for i in 1 2 3 4 5; do (sh -c 'true' & ) ; done; (setsid sleep 600."+fmt.Sprint(os.Getpid())+" >/dev/null 2>&1 &); "+
		"(trap '' TERM HUP INT; exec setsid sleep 601."+fmt.Sprint(os.Getpid())+" >/dev/null 2>&1 &); sleep 1; for i in $(seq 100); do grep -l '^State:.Z' /proc/[0-9]*/status >/dev/null || break; sleep 0.1; done; grep -l '^State:.Z' /proc/[0-9]*/status; true")
	if strings.Contains(r.Out, "/proc/") {
		t.Errorf("zombies: %s", r)
	}
	if left := append(find(t, "sleep 600."), find(t, "sleep 601.")...); len(left) > 0 {
		t.Errorf("outlived the session: %v", left)
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
			if r := l.Wait(20 * time.Second); r.Code != 33 || b.File(t, "caught") != "caught" {
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

// A signal to PID 1, which tells how the command ended, is the command's: it
// decides nothing else, and PID 1 stays.
func TestSignalsToFirst(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, sig := range []string{"KILL", "STOP", "TERM", "INT", "QUIT", "HUP", "SEGV", "ABRT", "USR1", "CHLD", "PIPE"} {
		ignore := "trap '' " + sig + "; "
		if sig == "KILL" || sig == "STOP" {
			ignore = ""
		}
		r := b.Run("--net", "none", "--", "sh", "-c", ignore+"kill -"+sig+" 1; sleep 0.1; kill -"+sig+" 1; echo here; exit 7")
		if r.Code != 7 || r.Out != "here\n" {
			t.Errorf("%s: %s", sig, r)
		}
	}
}
