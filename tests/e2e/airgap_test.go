//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// The images of one store start sessions in another, empty one, which no registry
// answers: the base is known by its registry's digest, and ours by their ids. What was
// tampered with, or interrupted, leaves nothing.
func TestAirGap(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
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
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "loading localhost/") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it goes on after Ctrl-C")
	}
	nothing("Ctrl-C")

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
