//go:build e2e

package e2e

import (
	"os/exec"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// TestSessions is the same on each runtime: see drive.TestSessions.
func TestSessions(t *testing.T) {
	drive.TestSessions(t, newBox(t), func(id string) (container, home bool) {
		return exec.Command("podman", "container", "exists", "aisb-"+id).Run() == nil, exec.Command("podman", "volume", "exists", "aisb-home-"+id).Run() == nil
	})
}
