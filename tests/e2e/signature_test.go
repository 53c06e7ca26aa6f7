//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// An ownHome is a home with a podman of its own: its store, its service and what is
// configured for it.
type ownHome struct {
	t   *testing.T
	dir string
	env []string
}

func newHome(t *testing.T, name string) *ownHome {
	t.Helper()
	h := &ownHome{t: t, dir: filepath.Join(w.home, "e2e", "home-"+name)}
	runtime := fmt.Sprintf("%s/home-%s", os.Getenv("XDG_RUNTIME_DIR"), name)
	t.Cleanup(func() {
		for _, p := range find(t, "podman", "system service", runtime) {
			killWait(t, p)
		}
		removeStore(t, h.dir)
		removeStore(t, runtime)
	})
	for _, d := range []string{runtime, filepath.Join(h.dir, ".config", "containers", "registries.d")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.env = []string{"HOME=" + h.dir, "XDG_RUNTIME_DIR=" + runtime, "XDG_STATE_HOME=" + h.dir + "/state", "XDG_CACHE_HOME=" + h.dir + "/cache",
		"XDG_CONFIG_HOME=" + h.dir + "/config", "XDG_DATA_HOME=" + h.dir + "/data"}
	return h
}

// write makes a file of podman's configuration; "" takes it away.
func (h *ownHome) write(name, text string) {
	h.t.Helper()
	path := filepath.Join(h.dir, ".config", "containers", name)
	if text == "" {
		removeAll(h.t, path)
	} else if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// podman is this home's own.
func (h *ownHome) podman(args ...string) string {
	h.t.Helper()
	cmd := exec.Command("podman", args...)
	cmd.Env = append(os.Environ(), h.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("podman %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Where policy.json demands a signature, a base without one is neither pinned nor
// pulled nor built on, whatever was pinned before.
func TestSignatures(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	h := newHome(t, p.Token)
	p.Env = append(p.Env, h.env...)
	repo := strings.TrimSuffix(p.ref, ":x")
	on := func(base string, env ...string) []string { return append([]string{"AISB_BASE=" + base}, env...) }

	// The image that is pushed is signed as :signed; it lies without a signature in
	// another repository, and has another tag in the same.
	key, other := filepath.Join(h.dir, "key"), repo+"/copy:x"
	if err := os.WriteFile(key+".pass", []byte("open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	drive.Output(t, "skopeo", "generate-sigstore-key", "--output-prefix", key, "--passphrase-file", key+".pass")
	attach := "docker:\n  127.0.0.1:5000: {use-sigstore-attachments: true}\n"
	h.write("registries.d/tests.yaml", attach)
	skopeo := []string{"copy", "-q", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false", "--registries.d", filepath.Join(h.dir, ".config", "containers", "registries.d")}
	for _, to := range []string{other, repo + ":retagged", repo + ":before"} {
		drive.Output(t, "skopeo", append(skopeo, "docker://"+p.ref, "docker://"+to)...)
	}

	// The control: nothing is demanded, and any of them is pinned. There is no Node, and
	// so no build, which would take its time.
	noNode := "AISB_NODE_MIRROR=http://127.0.0.1:1"
	has(t, p.with(on(other, noNode), "build"), 1, "127.0.0.1:1")
	has(t, p.with(on(other), "--print-policy", "--", "true"), 0, p.one)
	has(t, p.with(on(repo+":before", noNode), "build"), 1, "127.0.0.1:1")

	drive.Output(t, "skopeo", append(skopeo, "--sign-by-sigstore-private-key", key+".private", "--sign-passphrase-file", key+".pass", "docker://"+p.ref, "docker://"+repo+":signed")...)
	demand := `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"` + repo + `":[{"type":"sigstoreSigned","keyPath":"` + key + `.pub"}]}}}`
	h.write("policy.json", demand)
	all := p.Env
	p.Env = append(all, on(repo+":signed")...)
	fetches(t, p.Box)
	p.Env = all

	const refused = "policy.json does not accept "
	// Another tag, of which nothing is known yet; and the pin of before.
	has(t, p.with(on(repo+":retagged"), "build"), 1, refused+repo+":retagged")
	has(t, p.with(on(other), "build"), 1, refused+other, "ai-sandbox update")
	has(t, p.with(on(other), "update"), 1, refused+other)
	// The pin of a tag that is not the one which was signed, of the same image, also where
	// podman, which judges a digest by any tag, would be asked.
	has(t, p.with(on(repo+":before"), "build"), 1, refused+repo+":before", "is not accepted", "ai-sandbox update")
	has(t, p.with(on(repo+":before", p.noRegistry()...), "build"), 1, refused+repo+":before", "none could be checked")
	has(t, p.with(on(other), "--net", "none", "--", "true"), 125, refused+other)
	has(t, p.with(on(other, p.offline()...), "--net", "none", "--", "true"), 125, refused+other, "none could be checked")
	has(t, p.with(on(strings.TrimSuffix(other, ":x")+"@"+p.one), "build"), 1, refused)
	// Where podman is asked to pull, it is podman that refuses.
	has(t, p.with(on(repo+":retagged", p.noRegistry()...), "build"), 1, refused+repo+":retagged")
	if out := h.podman("images", "--format", "{{.Repository}}:{{.Tag}}"); strings.Contains(out, "retagged") {
		t.Errorf("it was pulled: %s", out)
	}
	removeAll(t, filepath.Join(h.dir, "cache", "ai-sandbox", "base"))
	removeAll(t, filepath.Join(h.dir, "cache", "ai-sandbox", "node")) // which the build above has fetched
	has(t, p.with(on(repo+":signed", append(p.noRegistry(), noNode)...), "build"), 1, "was pulled to find its digest", "127.0.0.1:1")

	// A policy.json that can't be read accepts nothing, whatever was checked before.
	h.write("policy.json", "{")
	has(t, p.with(on(repo+":signed"), "--net", "none", "--", "true"), 125, refused+repo+":signed", "invalid policy")
	h.write("policy.json", demand)
	has(t, p.with(on(repo+":signed", noNode), "build"), 1, "127.0.0.1:1")

	// What is built on is named by its digest, and podman judges that by itself.
	h.podman("rmi", "-af")
	h.write("policy.json", `{"default":[{"type":"reject"}],"transports":{"docker":{"`+repo+`:signed":[{"type":"insecureAcceptAnything"}]}}}`)
	has(t, p.with(on(repo+":signed"), "build"), 1, refused+"the base")
}
