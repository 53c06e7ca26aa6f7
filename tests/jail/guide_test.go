//go:build e2e

package jail

import (
	"testing"
)

// The guide is where the agent is told that it is, says what this run may, and can't
// be changed; each agent is led there by its own instructions.
func TestGuide(t *testing.T) {
	t.Parallel()
	newBox(t).CheckGuide(t)
}
