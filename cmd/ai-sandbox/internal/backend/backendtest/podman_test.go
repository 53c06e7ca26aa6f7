//go:build e2e

// The suite on real rootless podman, in the test host, with the images that the
// end-to-end tests use.

package backendtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/backendtest"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/stage"
)

// set is the stage; TestMain makes it.
var set *stage.Stage

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "backendtest:", err)
		code = 1
	}
	os.Exit(code)
}

// run wants ai-sandbox beside the test binary.
func run(m *testing.M) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	if set, err = stage.Set(filepath.Dir(self)); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	if err := set.Build(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func TestPodman(t *testing.T) {
	dir, err := os.MkdirTemp(set.Own, "suite")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	project := filepath.Join(dir, "p")
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	ask := exec.Command(filepath.Join(set.Bin, "ai-sandbox"), "--runtime", "podman", "--print-policy=json", "--", "true")
	ask.Env, ask.Dir, ask.Stderr = set.Env, project, os.Stderr
	out, err := ask.Output()
	if err != nil {
		t.Fatal(err)
	}
	var p policy.Policy
	if err := json.Unmarshal(out, &p); err != nil || p.Image == nil || p.Image.RecordedID == "" {
		t.Fatalf("%v\n%s", err, out)
	}
	binary, err := exec.LookPath("podman")
	if err != nil {
		t.Fatal(err)
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	c, err := podman.Connect(t.Context(), podman.Config{
		Binary: binary, UserSocket: filepath.Join(runtime, "podman", "podman.sock"),
		RuntimeDir: filepath.Join(runtime, "ai-sandbox"), Env: set.Env, UID: os.Getuid(),
	})
	if err != nil {
		t.Fatal(err)
	}
	target := backendtest.Target{
		Backend: c, SandboxImage: p.Image.RecordedID, Dir: dir,
		Input: policy.Input{Runtime: policy.RuntimePodman, Image: *p.Image},
	}
	t.Run("Contract", func(t *testing.T) { backendtest.Contract(t, target) })
	t.Run("Isolation", func(t *testing.T) { backendtest.Isolation(t, target) })
}
