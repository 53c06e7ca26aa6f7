//go:build e2e

package jail

import (
	"os"
	"path/filepath"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// TestSessions is the same on each runtime: see drive.TestSessions.
func TestSessions(t *testing.T) {
	b := newBox(t)
	settle(t)
	before := snapshot(t)
	drive.TestSessions(t, b.Box, func(id string) (container, home bool) {
		_, err := os.Stat(filepath.Join(stateDir(), "homes", "aisb-home-"+id))
		return false, err == nil
	})
	nothingLeft(t, before)
}
