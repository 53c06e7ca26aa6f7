//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// tagOf is the image's tag, which is known before anything is built.
func tagOf(t *testing.T, b *drive.Box) string {
	t.Helper()
	tag := regexp.MustCompile(`localhost/ai-sandbox:[0-9a-f]{12}`).FindString(b.OK("--print-policy=json", "--", "true").Out)
	if tag == "" {
		t.Fatal("the policy names no image")
	}
	return tag
}

// One changed byte of each input gives another tag.
func TestTagIsContent(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	first := tagOf(t, b)
	if again := tagOf(t, b); again != first {
		t.Fatalf("%s and %s", first, again)
	}
	seen := map[string]string{first: "nothing"}
	differs := func(what string, b *drive.Box) {
		t.Helper()
		tag := tagOf(t, b)
		if was, ok := seen[tag]; ok {
			t.Errorf("changing %s gives the same tag as changing %s", what, was)
		}
		seen[tag] = what
	}
	ca, err := os.ReadFile(w.caPEM)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(ca, []byte("-----END CERTIFICATE-----\n")) + len("-----END CERTIFICATE-----\n")
	fewer := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(fewer, ca[i:], 0o600); err != nil {
		t.Fatal(err)
	}
	other := newBox(t)
	other.Env = []string{"AISB_CA_FILE=" + fewer}
	differs("the CA file", other)
	// Of another version of Node the checksum is remembered from its first use.
	cache := t.TempDir()
	for _, part := range []string{"base", "node"} { // another test may build in the rest
		to := filepath.Join(cache, "ai-sandbox", part)
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(w.home, "e2e", "cache", "ai-sandbox", part, "[^.]*"))
		if err != nil || len(files) == 0 {
			t.Fatal(part, err)
		}
		for _, from := range files {
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.Base(from)), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, sum := range []string{strings.Repeat("ab", 32), strings.Repeat("cd", 32)} {
		const tarball = "node-v22.22.0-linux-x64.tar.xz"
		record := fmt.Sprintf(`{"file": %q, "sha256": %q, "site": "x", "seen": "2026-01-01T00:00:00Z"}`, tarball, sum)
		if err := os.WriteFile(filepath.Join(cache, "ai-sandbox", "node", tarball+".json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		other = newBox(t)
		other.Env = []string{"AISB_NODE_VERSION=22.22.0", "XDG_CACHE_HOME=" + cache}
		differs("the tarball of Node "+sum[:2], other)
	}
	other = newBox(t)
	other.Env = []string{"AISB_BASE=127.0.0.1:5000/debian@sha256:" + strings.Repeat("ab", 32)}
	differs("the base's digest", other)
	other = newBox(t)
	other.Bin = filepath.Join(w.bin, "ai-sandbox-testhook")
	differs("the entrypoint", other)
	// The package list, the harness and the Containerfile: unit tests of
	// package image, which can change them.
}

// A warm start touches no network and builds nothing.
func TestWarmStart(t *testing.T) {
	b := newBox(t)
	b.OK("--net", "none", "--", "true")
	images := drive.Output(t, "podman", "images", "-aq", "--no-trunc")
	asked, hits := len(w.net.Queries("")), len(w.net.Hits(""))
	// The registry and the mirror answer nobody.
	var stopped []process
	for _, name := range []string{"docker-registry serve", "http.server 5001"} {
		stopped = append(stopped, find(t, name)...)
	}
	if len(stopped) < 2 {
		t.Fatalf("the registry and the mirror do not run: %v", stopped)
	}
	for _, p := range stopped {
		if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, p := range stopped {
			if err := syscall.Kill(p.pid, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}()
	start := time.Now()
	// A start that asked and got no answer would say that the base stays as pinned.
	for _, c := range []struct {
		args []string
		said string // the beginning of its one line
	}{{[]string{"--net", "none", "--", "true"}, ""}, {[]string{"--", "true"}, "ai-sandbox: the allowlist is empty, "}, {[]string{"build"}, ""}} {
		r := b.OK(c.args...)
		if first, rest, _ := strings.Cut(r.Err, "\n"); rest != "" || !strings.HasPrefix(first, c.said) || c.said == "" && first != "" {
			t.Errorf("a warm start builds, or asks: %q: %s", c.args, r)
		}
	}
	t.Logf("two warm starts and a build took %v", time.Since(start))
	if n := len(w.net.Queries("")); n != asked {
		t.Errorf("names were looked up: %q", w.net.Queries("")[asked:])
	}
	if n := len(w.net.Hits("")); n != hits {
		t.Errorf("servers were reached: %+v", w.net.Hits("")[hits:])
	}
	if now := drive.Output(t, "podman", "images", "-aq", "--no-trunc"); now != images {
		t.Errorf("images changed: %s\n%s", images, now)
	}
}

// An image of the right name that somebody else made is not used.
func TestTagSquatting(t *testing.T) {
	b := newBox(t)
	tag := tagOf(t, b)
	honest := strings.TrimSpace(drive.Output(t, "podman", "image", "inspect", "--format", "{{.Id}}", tag))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Containerfile"), []byte("FROM "+honest+"\nRUN echo squatted >/etc/squatted\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	squatter := strings.TrimSpace(drive.Output(t, "podman", "build", "-q", "--pull=never", "-t", tag, dir))
	t.Cleanup(func() {
		drive.Output(t, "podman", "tag", honest, tag)
		drive.Output(t, "podman", "rmi", "-f", squatter)
	})
	r := b.Run("--net", "none", "--", "sh", "-c", "cat /etc/squatted; true")
	if strings.Contains(r.Out, "squatted") {
		t.Fatalf("the squatter's image ran: %s", r)
	}
	// The positive control: the name does lead to the squatter.
	if out := drive.Output(t, "podman", "run", "--rm", "--network=none", tag, "cat", "/etc/squatted"); !strings.Contains(out, "squatted") {
		t.Errorf("the positive control failed: %s", out)
	}
	// Without a record, too: nothing vouches for the image but its name.
	b.Env = []string{"XDG_STATE_HOME=" + filepath.Join(w.home, "e2e", "state-"+b.Token)}
	t.Cleanup(func() { removeAll(t, filepath.Join(w.home, "e2e", "state-"+b.Token)) })
	r = b.Run("--net", "none", "--", "sh", "-c", "cat /etc/squatted; true")
	if strings.Contains(r.Out, "squatted") {
		t.Fatalf("the squatter's image ran: %s", r)
	}
}

// Two builds from two empty stores give images of equal content. Each store is
// in a home of its own, with a service of its own.
func TestReproducibleBuild(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	// The first is the one that the tests run on; the second is made here, from
	// nothing: no pin, no layer, no cache of downloads.
	other := filepath.Join(w.home, "e2e", "again")
	runtime := fmt.Sprintf("%s/e2e-again", os.Getenv("XDG_RUNTIME_DIR"))
	t.Cleanup(func() {
		for _, p := range find(t, "podman", "system service", runtime) {
			killWait(t, p)
		}
		removeStore(t, other)
		removeStore(t, runtime)
	})
	removeStore(t, other)
	for _, d := range []string{other, runtime} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + other, "XDG_RUNTIME_DIR=" + runtime, "XDG_STATE_HOME=" + other + "/state", "XDG_CACHE_HOME=" + other + "/cache", "XDG_CONFIG_HOME=" + other + "/config", "XDG_DATA_HOME=" + other + "/data"}
	b.Env = env
	built := strings.Fields(b.OK("build").Out) // both images: each a name and its id
	b.Env = nil
	if len(built) != 4 || !slices.Contains(built, tagOf(t, b)) {
		t.Fatalf("built: %q", built)
	}
	tree := func(tag string, env []string) []string {
		t.Helper()
		cmd := exec.Command("sh", "-c", `set -e; id=$(podman create --network=none `+tag+` true); podman export "$id"; podman rm "$id" >/dev/null`)
		cmd.Env = append(os.Environ(), env...)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text, err := listTar(pipe)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, errOut.String())
		}
		return strings.Split(text, "\n")
	}
	for _, tag := range []string{built[0], built[2]} {
		one, two := tree(tag, nil), tree(tag, env)
		if len(one) < 3000 {
			t.Errorf("%s has only %d files", tag, len(one))
		}
		for _, d := range append(minus(one, two), minus(two, one)...) {
			t.Errorf("%s differs: %s", tag, d)
		}
	}
}

func minus(a, b []string) []string {
	in := map[string]bool{}
	for _, s := range b {
		in[s] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return in[s] })
}

// A rebuild ignores the cached layers and keeps the pin: the tag is the same.
// The image that it replaces goes, so it is one that no other test uses.
func TestRebuild(t *testing.T) {
	t.Parallel()
	b := newPinBox(t)
	state := b.state
	b.OK("build")
	tag := tagOf(t, b.Box)
	removeAll(t, state)
	// build returns how often each image's log says that a layer was there, and
	// the layers of the sandbox's image.
	build := func(args ...string) (cached map[string]int, layers []string) {
		t.Helper()
		r := b.OK(append([]string{"build"}, args...)...)
		if !strings.Contains(r.Out, tag) {
			t.Fatalf("want %s: %s", tag, r)
		}
		logs, err := filepath.Glob(filepath.Join(state, "ai-sandbox", "images", "*.log"))
		if err != nil || len(logs) != 2 {
			t.Fatalf("want the logs of two images: %q, %v", logs, err)
		}
		cached = map[string]int{}
		for _, path := range logs {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), "STEP 1/") {
				t.Errorf("%s holds no steps: %s", path, drive.Tail(string(data)))
			}
			kind, _, _ := strings.Cut(filepath.Base(path), "-")
			cached[kind] = strings.Count(string(data), "Using cache")
		}
		id := regexp.MustCompile(`"id": ?"([0-9a-f]{64})"`).FindStringSubmatch(readOne(t, filepath.Join(state, "ai-sandbox", "images", "sandbox-*.json")))
		if id == nil {
			t.Fatal("no record of the image")
		}
		return cached, strings.Fields(drive.Output(t, "podman", "image", "inspect", "--format", "{{range .RootFS.Layers}}{{.}} {{end}}", id[1]))
	}
	// The positive control: with no record but with the layers, they are used.
	cached, before := build()
	if cached["sandbox"] == 0 || cached["gate"] == 0 {
		t.Fatalf("the positive control failed: %v cached layers", cached)
	}
	cached, layers := build("--rebuild")
	if cached["sandbox"] != 0 || cached["gate"] != 0 {
		t.Errorf("%v cached layers were used", cached)
	}
	if len(layers) < 2 || len(layers) != len(before) || layers[0] != before[0] {
		t.Errorf("it is not built on the same base: %q, and before %q", layers, before)
	}
	b.OK("--net", "none", "--", "true")
}

// readOne reads the one file that a pattern stands for.
func readOne(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q, %v", pattern, files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A build that fails names its step and the log, which holds what that step
// said. The base is one without a package manager.
func TestBuildFailureNamesItsLog(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	state := filepath.Join(w.home, "e2e", "state-"+b.Token)
	t.Cleanup(func() { removeAll(t, state) })
	// Every "apt-get" of this base fails, after it has said a word.
	word, ref := "said-"+b.Token, "127.0.0.1:5000/broken-"+b.Token
	dir := t.TempDir()
	containerfile := "FROM " + setting(t, "AISB_BASE") + "\nRUN printf '#!/bin/sh\\necho " + word + "; exit 9\\n' >/usr/bin/apt-get\n"
	if err := os.WriteFile(filepath.Join(dir, "Containerfile"), []byte(containerfile), 0o600); err != nil {
		t.Fatal(err)
	}
	drive.Output(t, "podman", "build", "-q", "--no-cache", "-t", ref+":x", dir)
	t.Cleanup(func() { drive.Output(t, "podman", "rmi", "-f", ref+":x") })
	drive.Output(t, "podman", "push", "-q", "--tls-verify=false", ref+":x")
	b.Env = []string{"XDG_STATE_HOME=" + state, "AISB_BASE=" + ref + ":x"}
	r := b.Run("build")
	failure := regexp.MustCompile(`(?m)^ai-sandbox: error: build localhost/ai-sandbox\S*: step (\d+) of \d+, .* \(its output is in (\S+)\)$`).FindStringSubmatch(r.Err)
	if r.Code != 1 || failure == nil {
		t.Fatalf("the failure does not name its step and its log: %s", r)
	}
	if strings.Contains(r.Err, word) {
		t.Errorf("the build's output is on the terminal, too: %s", r)
	}
	data, err := os.ReadFile(failure[2])
	if err != nil {
		t.Fatal(err)
	}
	if _, step, ok := strings.Cut(string(data), "STEP "+failure[1]+"/"); !ok || !strings.Contains(step, "\n"+word+"\n") || !strings.HasPrefix(failure[2], state+"/") {
		t.Errorf("%s does not hold the output of step %s: %s", failure[2], failure[1], drive.Tail(string(data)))
	}
	if r := b.Run("build", "--verbose"); r.Code != 1 || !strings.Contains(r.Err, "| "+word+"\n") {
		t.Errorf("--verbose does not show the build's output: %s", r)
	}
}
