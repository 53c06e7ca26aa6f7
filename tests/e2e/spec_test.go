//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// What podman says it runs, and the kernel under it, is the golden
// specification: whatever comes in by a default of podman, of the image or of
// crun shows here. -update DIR writes the new golden files there.
func TestEffectiveSpec(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	_, stop := b.Background(t, "--ephemeral-home", "--allow", b.Host("ok.test"), "--env", "PASSED=1", "--", "sh", "-c", `echo "p${http_proxy##*:}" >port; cat`)
	defer stop()
	b.File(t, "port")
	goldenSpec(t, b, "inspect-", "oci-")
}

// goldenSpec compares the containers of the box's session, in the golden files
// whose names begin with one of kinds.
func goldenSpec(t *testing.T, b *drive.Box, kinds ...string) {
	id := sessionOf(t, b)
	for name, container := range map[string]string{"sandbox": "aisb-" + id, "gate": "aisb-gate-" + id} {
		t.Run(name, func(t *testing.T) {
			normal := func(s string) string {
				s = strings.NewReplacer("/state-"+b.Token, "/state", b.Dir, "<project>", id, "<session>", w.home, "<home>", os.Getenv("XDG_RUNTIME_DIR"), "<runtime>").Replace(s)
				s = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(s, "<id>")
				s = regexp.MustCompile(`(localhost/ai-sandbox(?:-gate)?:)[0-9a-f]{12}`).ReplaceAllString(s, "$1<tag>")
				s = regexp.MustCompile(`("org.opencontainers.image.version": ")[0-9a-f]{12}`).ReplaceAllString(s, "$1<tag>")
				s = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`).ReplaceAllString(s, "<time>")
				return s
			}
			if slices.Contains(kinds, "inspect-") {
				golden(t, "inspect-"+name+".json", normal(pick(t, drive.Output(t, "podman", "inspect", container))))
			}
			// crun's own file is what was really asked of the kernel.
			path := strings.TrimSpace(drive.Output(t, "podman", "inspect", "--format", "{{.OCIConfigPath}}", container))
			config, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "oci-"+name+".json", normal(pick(t, string(config))))
			if name == "sandbox" {
				golden(t, "pasta.txt", strings.Join(strings.Fields(strings.ReplaceAll(pastaOf(t, container), netns(t, container), "<netns>")), "\n")+"\n")
			}
		})
	}
}

// pastaOf is the command line of a container's pasta, or "".
func pastaOf(t *testing.T, container string) string {
	t.Helper()
	ns := netns(t, container)
	if ns == "" {
		return ""
	}
	for _, p := range find(t, "pasta", "--netns "+ns) {
		return p.argv
	}
	return ""
}

func netns(t *testing.T, container string) string {
	t.Helper()
	return strings.TrimSpace(drive.Output(t, "podman", "inspect", "--format", "{{.NetworkSettings.SandboxKey}}", container))
}

// pick takes what differs from run to run, or from one podman to the next, out
// of a JSON text, and sorts it. What is left out decides nothing.
func pick(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	drop := []string{
		"State", "Created", "Id", "PidFile", "ConmonPidFile", "OCIConfigPath", "ResolvConfPath", "HostnamePath", "HostsPath", "StaticDir", "GraphDriver",
		"NetworkSettings", "ProcessLabel", "MountLabel", "lockNumber", "LockNumber", "Image", "ImageDigest", "SizeRw", "SizeRootFs",
		"ImageName", // whichever name the id has just now; the id is compared by ai-sandbox
		"seccomp",   // podman's profile: ours is on top of it and tested by what it does
		"resources", // the device list of crun
		"cgroupsPath", "CgroupPath", "hostname", "Hostname", "HOSTNAME",
		"rlimits", "Ulimits", // the machine's own
		"io.buildah.version", "ociVersion", "aisb.build",
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				if slices.Contains(drop, k) {
					delete(v, k)
					continue
				}
				v[k] = walk(v[k])
				if list, ok := v[k].([]any); ok && (k == "mounts" || k == "Mounts" || k == "Binds") {
					slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				}
			}
		case []any:
			out := []any{}
			for _, e := range v {
				if s, ok := e.(string); ok && strings.HasPrefix(s, "HOSTNAME=") {
					continue
				}
				out = append(out, walk(e))
			}
			return out
		}
		return v
	}
	out, err := json.MarshalIndent(walk(v), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update != "" {
		if err := os.WriteFile(filepath.Join(*update, name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	a, z := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range a {
		if !slices.Contains(z, line) {
			t.Errorf("%s: missing: %s", name, line)
		}
	}
	for _, line := range z {
		if !slices.Contains(a, line) {
			t.Errorf("%s: unexpected: %s", name, line)
		}
	}
	if !t.Failed() {
		t.Errorf("%s: lines in another order or number; got:\n%s", name, got)
	}
}
