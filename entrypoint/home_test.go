package entrypoint

import (
	"errors"
	"fmt"
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
		if _, err := seedHome(home, &spec.Spec{Links: links, Seeds: seeds}); err != nil {
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

	// What was made in a link's place goes aside, and an older file for a newer one;
	// an older directory stays.
	write(at("twice"), "older")
	seed([]spec.Link{{Path: at("twice"), To: login}})
	if err := os.Remove(at("twice")); err != nil {
		t.Fatal(err)
	}
	write(at("twice"), "newer")
	seed([]spec.Link{{Path: at("twice"), To: login}})
	read(at("twice.own"), "newer")
	for _, text := range []string{"1", "2", "3"} {
		write(at("dir/x"), text)
		seed([]spec.Link{{Path: at("dir"), To: host}})
		read(at("dir/login"), "the host's")
		if err := os.Remove(at("dir")); err != nil {
			t.Fatal(err)
		}
	}
	read(at("dir.own/x"), "3")
	read(at("dir.own.1/x"), "1")
	read(at("dir.own.2/x"), "2")

	// What is mounted in the home is the host's: no link is made or taken away there.
	mounted := filepath.Join(home, "mnt")
	plant(t, filepath.Join(mounted, "gone"), "-> x")
	plant(t, filepath.Join(mounted, "there"), "x")
	was := listing(t, mounted)
	told, err := seedHome(home, &spec.Spec{Mounts: []string{home, mounted}, Links: []spec.Link{{Path: at("mnt")}, {Path: at("mnt/gone")}, {Path: at("mnt/there"), To: host}, {Path: at("mnt/a/b"), To: host}}})
	if err != nil || len(told) != 1 || told[0].Path != "mnt" || listing(t, mounted) != was {
		t.Errorf("in a mount: %+v, %v\n%s", told, err, listing(t, mounted))
	}

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
	notes, err := seedHome(home, &spec.Spec{Seeds: []spec.Seed{{Path: at("way/x"), Mode: 0o600}, {Path: at("way/y/z"), Mode: 0o600}}})
	if err != nil || len(notes) != 1 || notes[0].State != spec.NoteUnread || notes[0].Path != "way" {
		t.Errorf("%+v, %v", notes, err)
	}
	for _, name := range []string{"x", "y"} {
		if _, err := os.Lstat(filepath.Join(host, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a seed went through a link on the way: %v", err)
		}
	}
}

// A link that a sandbox planted on the way leads its next start to nothing: what is
// outside of the home stays as it is, and the one that can't be made is told.
func TestLinksFollowNothing(t *testing.T) {
	for _, tc := range []struct {
		what string
		on   string // where the planted link lies, below home
		link string // what is to be made, likewise
		to   string
	}{
		{"made", "a", "a/prompts", "/run/aisb-mounts/x"},
		{"made, deeper", "a/b", "a/b/prompts", "/run/aisb-mounts/x"},
		{"made, with nothing behind it", "a", "a/new/prompts", "/run/aisb-mounts/x"},
		{"taken away", "a", "a/gone", ""},
		{"taken away, a link", "a", "a/linked", ""},
	} {
		home, victim := t.TempDir(), t.TempDir()
		for p, text := range map[string]string{"prompts/precious": "x", "prompts.own/deep/precious": "y", "gone.own/precious": "z", "linked": "-> prompts"} {
			plant(t, filepath.Join(victim, p), text)
		}
		before := listing(t, victim)
		plant(t, filepath.Join(home, tc.on), "-> "+victim)
		notes, err := seedHome(home, &spec.Spec{Links: []spec.Link{{Path: filepath.Join(home, tc.link), To: tc.to}}})
		told := len(notes) == 1 && notes[0].State == spec.NoteUnread && notes[0].Path == tc.on
		if err != nil || told != (tc.to != "") {
			t.Errorf("%s: %+v, %v", tc.what, notes, err)
		}
		if after := listing(t, victim); after != before {
			t.Errorf("%s: outside was\n%sand is\n%s", tc.what, before, after)
		}
	}
}

// listing is what lies below a directory: each name, and what it is.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		what := d.Type().String()
		switch {
		case d.Type() == fs.ModeSymlink:
			what, err = os.Readlink(p)
		case d.Type().IsRegular():
			var data []byte
			data, err = os.ReadFile(p)
			what = string(data)
		}
		fmt.Fprintf(&b, "%s: %s\n", strings.TrimPrefix(p, dir), what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
