//go:build e2e

package jail

import "testing"

// TestProjectConfig is the same on each runtime: see guarded.Suite.
func TestProjectConfig(t *testing.T) {
	b := newBox(t)
	protected.Config(t, b.Host("ok.test"), b.Bin)
}
