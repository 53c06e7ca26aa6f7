//go:build e2e

package jail

import (
	"path/filepath"
	"testing"

	"ai-sandbox/tests/e2e/upstreamtest"
)

// Behind a company's proxy.
func TestUpstream(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			home := filepath.Join(w.own, "home")
			upstreamtest.Upstream(t, upstreamtest.Place{
				Box: newBox(t).Box, Engine: engine, Net: w.net, Runtime: filepath.Join(w.own, "run", "ai-sandbox"),
				Dirs: []string{filepath.Join(home, "state"), filepath.Join(w.own, "tmp")},
			})
		})
	}
}
