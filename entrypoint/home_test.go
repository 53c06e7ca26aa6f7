package entrypoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/entrypoint/spec"
)

func TestSeedHome(t *testing.T) {
	home, host := t.TempDir(), t.TempDir()
	at := func(p string) string { return filepath.Join(home, p) }
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	seed := func(links []spec.Link, seeds ...spec.Seed) {
		t.Helper()
		if _, err := seedHome(&spec.Spec{Links: links, Seeds: seeds}); err != nil {
			t.Fatal(err)
		}
	}
	login := filepath.Join(host, "login")
	write(login, "the host's")
	linked := []spec.Link{{Path: at(".agent/auth"), To: login}}
	unlinked := []spec.Link{{Path: at(".agent/auth")}}

	seed(linked) // nothing was there
	read(at(".agent/auth"), "the host's")
	seed(unlinked)
	if _, err := os.Lstat(at(".agent/auth")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link stayed: %v", err)
	}
	write(at(".agent/auth"), "its own")
	seed(linked)
	read(at(".agent/auth"), "the host's")
	read(at(".agent/auth.own"), "its own")
	seed(linked) // again
	read(at(".agent/auth.own"), "its own")
	seed(unlinked)
	read(at(".agent/auth"), "its own")
	read(login, "the host's")

	// A link that was planted where a seed goes leads nowhere, and its target
	// stays as it is.
	victim := filepath.Join(host, "victim")
	if err := os.Symlink(victim, at("config")); err != nil {
		t.Fatal(err)
	}
	files := []spec.Seed{{Path: at("config"), Content: []byte("x"), Mode: 0o600}, {Path: at("a/b/c"), Content: []byte("seed"), Mode: 0o640}}
	seed(nil, files...)
	if _, err := os.Lstat(victim); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a seed went through a link: %v", err)
	}
	read(at("a/b/c"), "seed")
	write(at("a/b/c"), "changed")
	seed(nil, files...)
	read(at("a/b/c"), "changed")

	// A link on the way is told, once for all that is behind it.
	if err := os.Symlink(host, at("way")); err != nil {
		t.Fatal(err)
	}
	notes, err := seedHome(&spec.Spec{Seeds: []spec.Seed{{Path: at("way/x"), Mode: 0o600}, {Path: at("way/y/z"), Mode: 0o600}}})
	if err != nil || len(notes) != 1 || notes[0].State != spec.NoteUnread || !strings.HasSuffix(notes[0].Path, "/way") {
		t.Errorf("%+v, %v", notes, err)
	}
	for _, name := range []string{"x", "y"} {
		if _, err := os.Lstat(filepath.Join(host, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a seed went through a link on the way: %v", err)
		}
	}
}
