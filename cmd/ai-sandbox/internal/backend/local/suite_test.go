//go:build jail

package local_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/backendtest"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/local"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// TestSuite: the real entrypoint under the real bubblewrap.
func TestSuite(t *testing.T) {
	target := realTarget(t, "")
	t.Run("Contract", func(t *testing.T) { backendtest.Contract(t, target) })
	t.Run("Isolation", func(t *testing.T) { backendtest.Isolation(t, target) })
}

// realTarget takes the entrypoint that make bin/aisb-entrypoint has built.
func realTarget(t *testing.T, squid string) backendtest.Target {
	t.Helper()
	dir, err := os.MkdirTemp("", "aisb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	program := os.Getenv("AISB_TEST_ENTRYPOINT")
	if program == "" {
		program = "../../../../../bin/aisb-entrypoint"
	}
	entrypoint, err := os.ReadFile(program)
	if err != nil {
		t.Fatalf("%v; make bin/aisb-entrypoint first", err)
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	return backendtest.Target{
		Dir: dir,
		Backend: local.New(local.Config{
			Bwrap: bwrap, StateDir: state, System: host.SystemMounts(), Squid: squid,
			Entrypoint: func() (*io.SectionReader, string, error) {
				return io.NewSectionReader(bytes.NewReader(entrypoint), 0, int64(len(entrypoint))), fmt.Sprintf("%08x", crc32.ChecksumIEEE(entrypoint)), nil
			},
		}),
		Input: policy.Input{
			Runtime: policy.RuntimeLocal,
			Facts:   policy.Facts{Local: policy.LocalFacts{System: host.SystemMounts(), Homes: local.Homes(state)}},
		},
	}
}
