//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/guarded"
)

// protected are the tests of protected paths, which are the same on each runtime.
var protected = guarded.Suite{New: func(t *testing.T) guarded.Box { return newBox(t).guarded(t) }}

func (b *box) guarded(t *testing.T) guarded.Box {
	t.Helper()
	return guarded.Box{
		Dir: b.dir,
		Run: func(args ...string) (int, string, string) {
			r := b.run(args...)
			return r.Code, r.Out, r.Err
		},
		Start: func(args ...string) (func() (int, string), func()) {
			l := b.start(t, args...)
			return func() (int, string) {
					l.in.Close()
					r := l.wait(time.Minute)
					return r.Code, r.Err
				}, func() {
					_ = l.cmd.Process.Kill() // the wait tells
				}
		},
	}
}

// in is the same in another directory of the box's.
func in(t *testing.T) func(b guarded.Box, dir string) guarded.Box {
	return func(b guarded.Box, dir string) guarded.Box {
		t.Helper()
		at := b.Dir
		if filepath.Base(at) != dir {
			at = filepath.Join(at, dir)
		}
		return (&box{t: t, dir: at, bin: filepath.Join(w.bin, "ai-sandbox"), token: filepath.Base(b.Dir)}).guarded(t)
	}
}

func TestProtectedPaths(t *testing.T)         { protected.Plant(t, in(t)) }
func TestUnprotect(t *testing.T)              { protected.Unprotect(t, in(t)) }
func TestPlaceholdersAfterAKill(t *testing.T) { protected.Killed(t) }
func TestSessionsShareAProject(t *testing.T)  { protected.Shared(t) }
func TestManySessionsInAProject(t *testing.T) { protected.Storm(t, 4, 8) }
func TestHostToolsAndPlaceholders(t *testing.T) {
	protected.HostTools(t, in(t))
}
func TestReplacedOnTheHost(t *testing.T)         { protected.Replaced(t) }
func TestChangedFilesAreTold(t *testing.T)       { protected.Notices(t) }
func TestNothingInAReadOnlyProject(t *testing.T) { protected.ReadOnly(t) }
func TestWorktree(t *testing.T)                  { protected.Worktree(t, in(t), true) }
func TestProtectedLinks(t *testing.T)            { protected.Links(t) }
