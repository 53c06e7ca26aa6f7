//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/mounttest"
)

// mounts is what the tests of mounts stand on here.
func mounts() mounttest.Stage {
	box := map[*mounttest.Box]*drive.Box{}
	return mounttest.Stage{
		New: func(t *testing.T) *mounttest.Box {
			t.Helper()
			b := newBox(t)
			m := &mounttest.Box{T: t, Dir: b.Dir}
			m.Run = func(dir string, args ...string) mounttest.Result {
				t.Helper()
				in := *b
				in.Dir, in.Env = dir, slices.Concat(in.Env, m.Env)
				return mounttest.Result(in.Run(args...))
			}
			box[m] = b
			return m
		},
		Home: w.home,
		Tree: "/e2e/tree", // see run
		Between: func(m *mounttest.Box, f func(), args ...string) mounttest.Result {
			m.T.Helper()
			return between(box[m], f, args...)
		},
	}
}

// between holds the lock that each making of a container waits for, so nothing
// else may run meanwhile.
func between(b *drive.Box, f func(), args ...string) mounttest.Result {
	b.T.Helper()
	lock, err := os.OpenFile(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox", "create.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		b.T.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		b.T.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), drive.RunTime)
	defer cancel()
	cmd := b.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		b.T.Fatal(err)
	}
	// Its control channel is made when everything is decided.
	drive.Eventually(b.T, 20*time.Second, "the start", func() bool {
		found, err := filepath.Glob(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox", "*", "control", "in"))
		return err == nil && len(found) == 1
	})
	f()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		b.T.Fatal(err)
	}
	_ = cmd.Wait() // its state tells
	return mounttest.Result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}

func TestSwappedMount(t *testing.T)      { mounttest.Swapped(t, mounts()) }
func TestAgentsDefault(t *testing.T)     { mounttest.AgentsDefault(t, mounts()) }
func TestMirrored(t *testing.T)          { t.Parallel(); mounttest.Mirrored(t, mounts()) }
func TestWorkdir(t *testing.T)           { t.Parallel(); mounttest.Workdir(t, mounts()) }
func TestOddPaths(t *testing.T)          { t.Parallel(); mounttest.OddPaths(t, mounts()) }
func TestMountOption(t *testing.T)       { t.Parallel(); mounttest.Mounts(t, mounts()) }
func TestMountRefused(t *testing.T)      { t.Parallel(); mounttest.Refused(t, mounts()) }
func TestUnixSockets(t *testing.T)       { t.Parallel(); mounttest.Sockets(t, mounts()) }
func TestReadOnlyRecursive(t *testing.T) { t.Parallel(); mounttest.ReadOnly(t, mounts()) }
func TestAgents(t *testing.T)            { t.Parallel(); mounttest.Agents(t, mounts()) }
