//go:build e2e

package jail

import "testing"

// TestProjectConfig is the same on each runtime: see guarded.Suite.
func TestProjectConfig(t *testing.T) {
	b := newBox(t)
	protected.Config(t, in(t), b.host("ok.test"), b.bin)
}
