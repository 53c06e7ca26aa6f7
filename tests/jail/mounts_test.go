//go:build e2e

package jail

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"golang.org/x/sys/unix"

	"ai-sandbox/tests/e2e/mounttest"
)

// mountStage is what the tests of mounts stand on here.
func mountStage(t *testing.T) mounttest.Stage {
	t.Helper()
	box := map[*mounttest.Box]*box{}
	return mounttest.Stage{
		New: func(t *testing.T) *mounttest.Box {
			t.Helper()
			b := newBox(t)
			if dir := mirrorable(t); dir != "" {
				var err error
				if b.Dir, err = os.MkdirTemp(dir, "p"); err != nil {
					t.Fatal(err)
				}
			}
			m := &mounttest.Box{T: t, Dir: b.Dir}
			m.Run = func(dir string, args ...string) mounttest.Result {
				t.Helper()
				in := *b.Box
				in.Dir, in.Env = dir, slices.Concat(in.Env, m.Env)
				return mounttest.Result(in.Run(args...))
			}
			box[m] = b
			return m
		},
		Home:  filepath.Join(w.own, "home"),
		Tree:  submount(t),
		Local: true,
		Between: func(m *mounttest.Box, f func(), args ...string) mounttest.Result {
			m.T.Helper()
			return between(box[m], f, args...)
		},
	}
}

// mirrorable is a directory where a project is seen at its own path, or "" where
// the tests' own is one: root's home would hide the sandbox's.
func mirrorable(t *testing.T) string {
	t.Helper()
	if !strings.HasPrefix(w.own, "/root/") {
		return ""
	}
	if err := onMnt(); err != nil {
		t.Fatal(err)
	}
	return "/mnt/aisb"
}

// onMnt is in the run's own mount namespace.
var onMnt = sync.OnceValue(func() error {
	return errors.Join(unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "mode=0755"), os.Mkdir("/mnt/aisb", 0o700))
})

// submount is a directory with another one mounted in it: the run's own in the
// test host, where only root mounts.
func submount(t *testing.T) string {
	t.Helper()
	if w.testHost {
		return "/jail/tree"
	}
	dir, err := os.MkdirTemp(filepath.Join(w.own, "projects"), "tree")
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "sub")
	write(t, filepath.Join(dir, "f"), "outer\n", 0o600)
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", inner, "tmpfs", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(inner, 0); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(inner, "s"), "inner\n", 0o600)
	return dir
}

// between puts a bubblewrap of our own in the way, which waits.
func between(b *box, f func(), args ...string) mounttest.Result {
	b.T.Helper()
	fake := b.T.TempDir()
	at, on := filepath.Join(fake, "at"), filepath.Join(fake, "on")
	real := strings.TrimSpace(drive.Output(b.T, "sh", "-c", "command -v bwrap"))
	write(b.T, filepath.Join(fake, "bwrap"), "#!/bin/bash\ncase \"$*\" in *\"aisb-entrypoint session\"*) : >'"+at+"'; until test -e '"+on+"'; do sleep 0.01; done;; esac\nexec -a \"$0\" "+real+" \"$@\"\n", 0o755)
	in := *b.Box
	in.Env = append(in.Env, "PATH="+fake+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(context.Background(), drive.RunTime)
	defer cancel()
	cmd := in.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	drive.Eventually(b.T, 20*time.Second, "the start", func() bool {
		_, err := os.Lstat(at)
		return err == nil
	})
	f()
	write(b.T, on, "", 0o600)
	_ = cmd.Wait() // its state tells
	return mounttest.Result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}

func TestSwappedMount(t *testing.T)      { mounttest.Swapped(t, mountStage(t)) }
func TestAgentsDefault(t *testing.T)     { mounttest.AgentsDefault(t, mountStage(t)) }
func TestMirrored(t *testing.T)          { t.Parallel(); mounttest.Mirrored(t, mountStage(t)) }
func TestWorkdir(t *testing.T)           { t.Parallel(); mounttest.Workdir(t, mountStage(t)) }
func TestOddPaths(t *testing.T)          { t.Parallel(); mounttest.OddPaths(t, mountStage(t)) }
func TestMountOption(t *testing.T)       { t.Parallel(); mounttest.Mounts(t, mountStage(t)) }
func TestMountRefused(t *testing.T)      { t.Parallel(); mounttest.Refused(t, mountStage(t)) }
func TestUnixSockets(t *testing.T)       { t.Parallel(); mounttest.Sockets(t, mountStage(t)) }
func TestReadOnlyRecursive(t *testing.T) { t.Parallel(); mounttest.ReadOnly(t, mountStage(t)) }
func TestAgents(t *testing.T)            { t.Parallel(); mounttest.Agents(t, mountStage(t)) }

// TestAnotherName: what the host has bound elsewhere is found by what it is.
func TestAnotherName(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	write(t, filepath.Join(b.Dir, ".git", "hooks", "pre-commit"), "", 0o700)
	write(t, filepath.Join(b.Dir, "src", "f"), "", 0o600)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(source, mode string) (int, string) {
		t.Helper()
		alias := t.TempDir()
		ctx, cancel := context.WithTimeout(context.Background(), drive.RunTime)
		defer cancel()
		cmd := b.Command(ctx, "--print-policy", "--net", "none", "--mount", alias+":/mnt/x:"+mode, "--", "true")
		cmd.Args = append([]string{"unshare", "--map-current-user", "--keep-caps", "--mount", "sh", "-ec", `mount --bind "$0" "$1"; shift; exec "$@"`, source, alias}, cmd.Args...)
		var err error
		if cmd.Path, err = exec.LookPath("unshare"); err != nil {
			t.Fatal(err)
		}
		out, _ := cmd.CombinedOutput() // its state tells
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for _, part := range []string{"", ".git", ".git/hooks", "src"} {
		if code, out := run(filepath.Join(b.Dir, part), "rw"); code != 125 || !strings.Contains(out, "by another name") {
			t.Errorf("%q: %d %s", part, code, out)
		}
		if code, out := run(filepath.Join(b.Dir, part), "ro"); code != 0 {
			t.Errorf("%q, read-only: %d %s", part, code, out)
		}
	}
	if code, out := run(other, "rw"); code != 0 {
		t.Errorf("what is no part of it: %d %s", code, out)
	}
}
