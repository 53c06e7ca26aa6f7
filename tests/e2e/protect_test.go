//go:build e2e

package e2e

import (
	"testing"

	"ai-sandbox/tests/e2e/guarded"
)

// protected are the tests of protected paths, which are the same on each runtime.
var protected = guarded.Suite{New: func(t *testing.T) guarded.Box { return newBox(t).Guarded(t) }}

func TestProtectedPaths(t *testing.T)         { protected.Plant(t) }
func TestUnprotect(t *testing.T)              { protected.Unprotect(t) }
func TestPlaceholdersAfterAKill(t *testing.T) { protected.Killed(t) }
func TestSessionsShareAProject(t *testing.T)  { protected.Shared(t) }
func TestManySessionsInAProject(t *testing.T) { protected.Storm(t, 4, 8) }
func TestHostToolsAndPlaceholders(t *testing.T) {
	protected.HostTools(t)
}
func TestReplacedOnTheHost(t *testing.T)         { protected.Replaced(t) }
func TestChangedFilesAreTold(t *testing.T)       { protected.Notices(t) }
func TestNothingInAReadOnlyProject(t *testing.T) { protected.ReadOnly(t) }
func TestWorktree(t *testing.T)                  { protected.Worktree(t, true) }
func TestProtectedLinks(t *testing.T)            { protected.Links(t) }
func TestThroughProtectedLinks(t *testing.T)     { protected.Through(t) }
