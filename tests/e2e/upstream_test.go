//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ai-sandbox/tests/e2e/upstreamtest"
)

// Behind a company's proxy.
func TestUpstream(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"squid", "builtin"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.T = t
			dirs := []string{filepath.Join(w.home, "e2e", "state"), filepath.Join(w.home, "e2e", "cache")}
			for _, name := range []string{"overlay-containers", "libpod", "db.sql"} {
				if dir := filepath.Join(w.home, ".local/share/containers/storage", name); exists(dir) {
					dirs = append(dirs, dir)
				}
			}
			upstreamtest.Upstream(t, upstreamtest.Place{
				Box: b, Engine: engine, Named: engine == "squid", Net: w.net, Runtime: filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox"),
				Dirs: dirs, As: []string{"podman", "unshare"},
				Inspect: func(session string) string {
					out, _ := exec.Command("podman", "inspect", "aisb-"+session, "aisb-gate-"+session).CombinedOutput() // builtin has no gate's container
					return string(out)
				},
			})
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
