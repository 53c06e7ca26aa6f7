package engine

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/host"
)

// No variable by which podman or the registry's client is led to a file is obeyed
// where it leads into the project.
func TestSteeringVariables(t *testing.T) {
	names := slices.Clone(serviceEnv)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:env|Environ)\["([A-Za-z_]+)"\]`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	if !slices.Contains(names, "REGISTRIES_CONFIG_PATH") {
		t.Errorf("the resolver's variables are not found: %q", names)
	}
	// No names of files.
	others := []string{"USER", "LOGNAME", "LANG", "TERM", "DBUS_SESSION_BUS_ADDRESS", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}
	project := t.TempDir()
	for _, name := range names {
		f, err := host.Probe(host.Input{Cwd: project, Env: map[string]string{name: filepath.Join(project, "x")}, Home: "/nonexistent"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := slices.Contains(f.Steered, name), !slices.Contains(others, name); got != want {
			t.Errorf("%s: steers %v", name, got)
		}
	}
}
