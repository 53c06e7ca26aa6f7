package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is ai-sandbox's own, and the user's runtime directory, stays so where the
// variables of this start name others, or none.
func TestUsualDirs(t *testing.T) {
	home, elsewhere := t.TempDir(), t.TempDir()
	for _, d := range []string{"p", "dots/ai-sandbox", ".cache/ai-sandbox"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("dots", filepath.Join(home, ".config")); err != nil {
		t.Fatal(err)
	}
	in := Input{
		Cwd: filepath.Join(home, "p"), Home: home,
		Config: filepath.Join(elsewhere, "config"), State: filepath.Join(elsewhere, "state"), Cache: filepath.Join(elsewhere, "cache"),
	}
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	runtime := fmt.Sprintf("/run/user/%d", os.Getuid())
	for path, want := range map[string]string{
		runtime: "runtime directory", runtime + "/bus": "runtime directory", filepath.Join(home, "dots/ai-sandbox"): "configuration",
		filepath.Join(home, ".local/state/ai-sandbox/homes"): "state", filepath.Join(home, ".cache/ai-sandbox"): "cache",
		filepath.Join(elsewhere, "state"): "state", filepath.Join(home, "dots/nvim"): "", filepath.Join(home, ".cache/ai-sandbox-not"): "",
	} {
		got := MountProblem(f, "mount", Source{Path: path, Dir: true, Owner: f.UID}, false, nil)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("mount of %s: %q, want %q", path, got, want)
		}
		f.Project = Dir{Path: path, Owner: f.UID}
		if got := projectProblem(f); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("a project at %s: %q, want %q", path, got, want)
		}
	}
	// A workspace is in the state, wherever that is.
	f.Project = Dir{Path: filepath.Join(home, ".local/state/ai-sandbox/workspaces/x"), Owner: f.UID}
	f.Workspace = f.Project.Path
	if got := projectProblem(f); got != "" {
		t.Errorf("a workspace: %q", got)
	}
}
