//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// left are the images, and the files but locks, that ai-sandbox has left in a home.
func (h *ownHome) left() []string {
	h.t.Helper()
	out := strings.Fields(h.podman("images", "-aq", "--no-trunc"))
	for _, top := range []string{"cache", "state"} {
		err := filepath.WalkDir(filepath.Join(h.dir, top), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".lock") {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return out
}

// killed starts a command, and kills it when it says a line with those words and meanwhile
// is over.
func killed(t *testing.T, cmd *exec.Cmd, words string, meanwhile func()) {
	t.Helper()
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		text += lines.Text() + "\n"
		if strings.Contains(lines.Text(), words) {
			meanwhile()
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("it came to its end: %s", text)
	}
}

// The images of one store start sessions in another, empty one, which no registry
// answers: the base is known by its registry's digest, and ours by their ids. What was
// tampered with, or interrupted, leaves nothing.
func TestAirGap(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	p.one = p.wrap() // as bases for several architectures are; TestAirGapSession has a bare image
	built := p.OK("build").Out
	file := filepath.Join(p.Dir, "images.tar")
	r := p.OK("image", "save", "images.tar")
	if want := built + p.ref + " " + p.one + "\n"; r.Out != want {
		t.Errorf("saved %q, and not %q", r.Out, want)
	}
	has(t, p.Run("image", "save", "images.tar"), 1, "is there already")

	h := newHome(t, p.Token)
	there := &pinBox{Box: newBox(t), ref: p.ref}
	there.Env = append(append([]string{"AISB_BASE=" + p.ref, "AISB_NODE_MIRROR=http://127.0.0.1:1"}, h.env...), p.noRegistry()...)
	session := func(code int, parts ...string) {
		t.Helper()
		has(t, there.Run("--net", "none", "--", "cat", "/etc/variant"), code, parts...)
	}
	session(125)
	empty := h.left()
	nothing := func(what string) {
		t.Helper()
		if now := h.left(); !slices.Equal(now, empty) {
			t.Errorf("%s leaves %q", what, now)
		}
	}

	// A save that is killed leaves nothing beside the file that it was to write.
	names := func() (out []string) {
		t.Helper()
		list, err := os.ReadDir(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out = append(out, e.Name())
		}
		return out
	}
	before := names()
	killed(t, p.Command(t.Context(), "image", "save", "other.tar"), "copying localhost/", func() {})
	if now := names(); !slices.Equal(now, before) {
		t.Errorf("a killed save leaves %q of %q", now, before)
	}

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]int{"a changed layer": len(data) / 2, "a shorter file": -1} {
		bad := bytes.Clone(data[:len(data)/3*2])
		if at >= 0 {
			bad = bytes.Clone(data)
			bad[at] ^= 1
		}
		if err := os.WriteFile(filepath.Join(there.Dir, "bad.tar"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		has(t, there.Run("image", "load", "bad.tar"), 1, "the archive can't be loaded")
		nothing(what)
	}

	// Ctrl-C, when podman has the base and begins with our images.
	cmd := there.Command(t.Context(), "image", "load", file)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hit := false
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "loading localhost/") && !hit { // a second one ends it at once
			hit = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it goes on after Ctrl-C")
	}
	nothing("Ctrl-C")

	// Killed, when podman has the base and the gate's image: clean finds what is left.
	// It can't go on from there, as it would make a container then.
	lock, err := os.OpenFile(filepath.Join(strings.TrimPrefix(h.env[1], "XDG_RUNTIME_DIR="), "ai-sandbox", "create.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	killed(t, there.Command(t.Context(), "image", "load", file), "loading localhost/ai-sandbox-gate:", func() {
		drive.Eventually(t, 60*time.Second, "podman has the gate's image", func() bool { return len(strings.Fields(h.podman("images", "-aq"))) > 1 })
	})
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if len(h.left()) == len(empty) {
		t.Error("a killed load leaves nothing to clean")
	}
	has(t, there.Run("clean", "--dry-run"), 0, "would remove load of images: ")
	has(t, there.Run("clean"), 0, "removed load of images: ")
	nothing("a killed load, and clean")

	// Killed when the gate's image is whole: that stays, with the base, until clean --images
	// removes both.
	killed(t, there.Command(t.Context(), "image", "load", file), "loading localhost/ai-sandbox:", func() {})
	there.Run("clean") // of the sandbox's image there may be something or nothing
	if ids := strings.Fields(h.podman("images", "-q", "--no-trunc")); len(ids) != 2 {
		t.Errorf("killed behind the gate's image: %q is left", ids)
	}
	if r := there.Run("clean", "--dry-run"); r.Code != 0 || strings.Contains(r.Out, "load of images") {
		t.Errorf("the base of the gate's image would go: %s", r)
	}
	for _, dry := range []bool{true, false} {
		args, what := []string{"clean", "--images"}, "removed "
		if dry {
			args, what = append(args, "--dry-run"), "would remove "
		}
		has(t, there.Run(args...), 0, what+"localhost/ai-sandbox-gate:", what+"load of images: ")
	}
	if out := h.podman("images", "-aq"); out != "" {
		t.Errorf("clean --images leaves %q", out)
	}

	if loaded := there.OK("image", "load", file); loaded.Out != r.Out {
		t.Errorf("loaded %q, and not %q", loaded.Out, r.Out)
	}
	session(0, "one\n")
	has(t, there.Run("build"), 0, built)
	if again := there.OK("image", "load", file); again.Out != r.Out || strings.Contains(again.Err, "loading localhost/") {
		t.Errorf("once more: %s", again)
	}
	// Builds to come find the base.
	pinned := strings.TrimSuffix(p.ref, ":x") + "@" + p.one
	if err := os.WriteFile(filepath.Join(there.Dir, "Containerfile"), []byte("FROM "+pinned+"\nRUN cat /etc/token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := h.podman("build", "--pull=never", there.Dir); !strings.Contains(out, p.Token) {
		t.Errorf("the base is not %s: %s", pinned, out)
	}

	// Where another base has been pinned since, what is newer stays.
	record := strings.TrimSpace(drive.Output(t, "sh", "-c", "grep -l "+p.one+" "+h.dir+"/cache/ai-sandbox/base/*.json"))
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(p.one), []byte("sha256:"+strings.Repeat("ab", 32)))
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, there.Run("image", "load", file), 1, "nothing is loaded", record)
	if now, err := os.ReadFile(record); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the pin is now %s, %v", now, err)
	}
}

// The images that all tests run on, in a home whose podman has nothing, no registry and
// no site to fetch Node from: they get there in a file, and a session starts on them
// whose gate lets through what it is to, and nothing else.
func TestAirGapSession(t *testing.T) {
	t.Parallel()
	from := newBox(t)
	saved := from.OK("image", "save", "images.tar")
	words := strings.Fields(saved.Out) // sandbox, gate, base: each a name and what it is
	if len(words) != 6 {
		t.Fatalf("saved: %s", saved)
	}

	h := newHome(t, from.Token)
	b := newBox(t)
	conf := filepath.Join(t.TempDir(), "registries.conf")
	if err := os.WriteFile(conf, []byte("[[registry]]\nprefix = \"127.0.0.1:5000\"\nlocation = \"127.0.0.1:1\"\ninsecure = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Env = append(slices.Clone(h.env), "CONTAINERS_REGISTRIES_CONF="+conf, "AISB_NODE_MIRROR=http://127.0.0.1:1")
	// The control: there is nothing to run on, and nothing to make it from.
	gated := []string{"--allow", b.Host("ok.test"), "--", "sh", "-c", "curl -sS --max-time 20 https://" + b.Host("ok.test") + "/hello; curl -sS --max-time 20 https://" + b.Host("no.test") + "/hello; cat /etc/aisb/manifest.txt"}
	has(t, b.Run(gated...), 125, "127.0.0.1:1")
	if out := h.podman("images", "-aq"); out != "" {
		t.Fatalf("podman has %q", out)
	}

	// Where a signature is demanded, the refusal says that a file has none, and what to do.
	h.write("policy.json", `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"127.0.0.1:5000":[{"type":"reject"}]}}}`)
	has(t, b.Run("image", "load", filepath.Join(from.Dir, "images.tar")), 1, "policy.json does not accept "+words[4], "an archive carries none", "let policy.json accept this base on this machine")
	// Nor is it where no image from a file is accepted, which podman says.
	h.write("policy.json", `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"oci-archive":{"":[{"type":"reject"}]}}}`)
	has(t, b.Run("image", "load", filepath.Join(from.Dir, "images.tar")), 1, "policy.json does not accept what is loaded from a file", "have policy.json accept files of images")
	h.write("policy.json", "")

	loaded := b.OK("image", "load", filepath.Join(from.Dir, "images.tar"))
	if loaded.Out != saved.Out {
		t.Errorf("loaded %q, and not %q", loaded.Out, saved.Out)
	}
	r := b.OK(gated...)
	if strings.Count(r.Out, w.net.Marker) != 1 || !w.net.Reached(b.Host("ok.test")) || !strings.Contains(r.Out, "npm @earendil-works/pi-coding-agent ") ||
		!strings.Contains(r.Err, "refused: "+b.Host("no.test")) || strings.Contains(r.Err, "step 1 of") {
		t.Errorf("the session: %s", r)
	}
	if hits := w.net.Hits(b.Host("no.test")); len(hits) > 0 {
		t.Errorf("the far server was reached: %+v", hits)
	}
	// Nothing was made here: ours by the ids that they had, the base by its registry's digest.
	if ids := slices.Sorted(slices.Values(slices.Compact(strings.Fields(h.podman("images", "-q", "--no-trunc", "--filter", "label=aisb.recipe"))))); !slices.Equal(ids, slices.Sorted(slices.Values([]string{"sha256:" + words[1], "sha256:" + words[3]}))) {
		t.Errorf("podman has %q, and %q were saved", ids, saved.Out)
	}
	name := words[4][:strings.LastIndex(words[4], ":")] + "@" + words[5]
	if out := h.podman("image", "inspect", "--format", "{{.RepoDigests}}", name); !strings.Contains(out, name) {
		t.Errorf("the base is %s, and not %s", out, name)
	}
	has(t, b.Run("inspect", "--offline"), 0, "id           "+words[1]+"\n", "id           "+words[3]+"\n", "label        aisb.base-digest="+words[5]+"\n")
	has(t, b.Run("inspect", "--offline", name), 0, "  digest     "+words[5]+"\n", "package      deb base-files ", "package      deb apt ")
}
