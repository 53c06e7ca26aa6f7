package entrypoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

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
		if notes := seedHome(home, &spec.Spec{Links: links, Seeds: seeds}); notes != nil {
			t.Fatal(notes)
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
	told := seedHome(home, &spec.Spec{Mounts: []string{home, mounted}, Links: []spec.Link{{Path: at("mnt")}, {Path: at("mnt/gone")}, {Path: at("mnt/there"), To: host}, {Path: at("mnt/a/b"), To: host}}})
	if len(told) != 1 || told[0].Path != "mnt" || listing(t, mounted) != was {
		t.Errorf("in a mount: %+v\n%s", told, listing(t, mounted))
	}
	// Nor is anything written there, or through a link that the user's mount is seen by;
	// right beside it is.
	plant(t, filepath.Join(mounted, "m"), "the host's")
	was = listing(t, mounted)
	shown := &spec.Spec{
		Mounts: []string{home, mounted}, Links: []spec.Link{{Path: at("shown/m"), To: filepath.Join(mounted, "m")}, {Path: at("shown/s"), To: filepath.Join(mounted, "s")}},
		Seeds:   []spec.Seed{{Path: at("mnt/seed"), Mode: 0o600}, {Path: at("shown/s"), Mode: 0o600}, {Path: at("mnt2/seed"), Content: []byte("x"), Mode: 0o600}},
		Managed: []spec.Managed{{Home: home, Path: "mnt/m", Content: []byte("x"), Mode: 0o600}, {Home: home, Path: "shown/m", Content: []byte("x"), Mode: 0o600}, {Home: home, Path: "mnt2/m", Content: []byte("x"), Mode: 0o600}},
	}
	told = seedHome(home, shown)
	if len(told) != 2 || told[0].Path != "mnt" || told[0].Mend != spec.MendMount || told[1].Path != "shown/m" || listing(t, mounted) != was {
		t.Errorf("files in a mount: %+v\n%s", told, listing(t, mounted))
	}
	read(at("mnt2/seed"), "x")
	read(at("mnt2/m"), "x")
	read(at("shown/m"), "the host's")

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
	notes := seedHome(home, &spec.Spec{Seeds: []spec.Seed{{Path: at("way/x"), Mode: 0o600}, {Path: at("way/y/z"), Mode: 0o600}}})
	if len(notes) != 1 || notes[0].State != spec.NoteUnread || notes[0].Path != "way" {
		t.Errorf("%+v", notes)
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
		notes := seedHome(home, &spec.Spec{Links: []spec.Link{{Path: filepath.Join(home, tc.link), To: tc.to}}})
		told := len(notes) == 1 && notes[0].State == spec.NoteUnread && notes[0].Path == tc.on
		if told != (tc.to != "") {
			t.Errorf("%s: %+v", tc.what, notes)
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

// What an earlier start linked goes when it is not asked for any more, and what was
// there before comes back.
func TestLinksGo(t *testing.T) {
	home := t.TempDir()
	at := func(p string) string { return filepath.Join(home, p) }
	start := func(links map[string]string) {
		t.Helper()
		sp := &spec.Spec{}
		for p, to := range links {
			sp.Links = append(sp.Links, spec.Link{Path: at(p), To: to})
		}
		if notes := seedHome(home, sp); notes != nil {
			t.Errorf("%+v", notes)
		}
	}
	holds := func(what, want string) {
		t.Helper()
		got := strings.TrimPrefix(listing(t, home), ": d---------\n")
		if got != want {
			t.Errorf("%s:\n%swant\n%s", what, got, want)
		}
	}
	const before = "/a: d---------\n/a/prompts: d---------\n/a/prompts/mine: x\n"
	plant(t, at("a/prompts/mine"), "x")
	start(map[string]string{"a/prompts": "/run/aisb-mounts/1"})
	holds("linked", "/.aisb-links: [\"a/prompts\"]\n/a: d---------\n/a/prompts: /run/aisb-mounts/1\n/a/prompts.own: d---------\n/a/prompts.own/mine: x\n")
	start(map[string]string{"a/prompts/one": "/run/aisb-mounts/2"}) // where the other led elsewhere
	holds("linked below", "/.aisb-links: [\"a/prompts/one\"]\n"+before+"/a/prompts/one: /run/aisb-mounts/2\n")
	start(nil)
	holds("not linked any more", before)
	start(map[string]string{"a/prompts": "/run/aisb-mounts/1"})
	if err := os.Remove(at("a/prompts")); err != nil {
		t.Fatal(err)
	}
	plant(t, at("a/prompts"), "-> mine") // the sandbox's own link stays
	start(nil)
	holds("replaced by a link", "/a: d---------\n/a/prompts: mine\n/a/prompts.own: d---------\n/a/prompts.own/mine: x\n")
}

// What can't be taken away yet is taken away as soon as it can be.
func TestLinksGoLater(t *testing.T) {
	for _, tc := range []struct {
		what, rel string
		mode      os.FileMode
		mounted   bool
	}{
		{"its directory can't be written", "a/b", 0o555, false},
		{"its directory is shut", "a/b", 0, false},
		{"the one above is", "a/c/d", 0, false},
		{"a mount hides it", "a/b", 0o700, true},
	} {
		home := t.TempDir()
		a := filepath.Join(home, "a")
		plant(t, filepath.Join(home, tc.rel+spec.OwnSuffix), "x")
		// As no root, and on a thread that ends with it.
		t.Run(tc.what, func(t *testing.T) {
			runtime.LockOSThread()
			if os.Getuid() == 0 {
				const nobody = 65534
				err := filepath.WalkDir(home, func(p string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chown(p, nobody, nobody)) })
				if err = errors.Join(err, os.Chmod(filepath.Dir(home), 0o755), unix.Setfsuid(nobody)); err != nil {
					t.Fatal(err)
				}
			}
			start := func(mounts []string, links ...spec.Link) {
				seedHome(home, &spec.Spec{Mounts: mounts, Links: links})
			}
			holds := func(when, want string) {
				t.Helper()
				if got, err := os.Readlink(filepath.Join(home, tc.rel)); got != want {
					t.Errorf("%s it is %q, %v", when, got, err)
				}
			}
			start(nil, spec.Link{Path: filepath.Join(home, tc.rel), To: "/run/aisb-mounts/1"})
			holds("linked", "/run/aisb-mounts/1")
			var mounts []string
			if tc.mounted {
				mounts = []string{a}
			}
			if err := os.Chmod(a, tc.mode); err != nil {
				t.Fatal(err)
			}
			start(mounts)
			start(mounts)
			if err := os.Chmod(a, 0o700); err != nil {
				t.Fatal(err)
			}
			holds("not taken away yet", "/run/aisb-mounts/1")
			start(nil)
			holds("taken away", "")
			if _, err := os.Stat(filepath.Join(home, tc.rel)); err != nil {
				t.Errorf("what was there: %v", err)
			}
			if _, err := os.Stat(filepath.Join(home, spec.LinksRecord)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the record: %v", err)
			}
		})
	}
}

// The record of links is the sandbox's to write: whatever is in it leads to nothing but
// links of ours beneath the home.
func TestLinksForged(t *testing.T) {
	home, victim := t.TempDir(), t.TempDir()
	mounted := filepath.Join(home, "mnt")
	for _, dir := range []string{victim, mounted} {
		for p, text := range map[string]string{"link": "-> /run/aisb-mounts/1", "gone.own/deep": "x", "there": "y", "there.own": "z"} {
			plant(t, filepath.Join(dir, p), text)
		}
	}
	plant(t, filepath.Join(home, "way"), "-> "+victim)
	plant(t, filepath.Join(home, "file"), "x")
	plant(t, filepath.Join(home, "file.own"), "y")
	plant(t, filepath.Join(home, "theirs"), "-> file")
	rel, err := filepath.Rel(home, victim)
	if err != nil {
		t.Fatal(err)
	}
	want, outside := listing(t, home), listing(t, victim)
	forged := []string{"", ".", "..", "/", "file", "file/x", "theirs", "way", "a\x00b", "file.own"}
	for _, name := range []string{"link", "gone", "there", "gone.own/deep"} {
		forged = append(forged, "way/"+name, "mnt/"+name, rel+"/"+name, victim+"/"+name, "./way/"+name)
	}
	text, err := json.Marshal(forged)
	if err != nil {
		t.Fatal(err)
	}
	// The control: the same, for a link of ours.
	plant(t, filepath.Join(home, "ours"), "-> /run/aisb-mounts/1")
	for _, record := range []string{string(text), strings.Replace(string(text), `"file"`, `"ours"`, 1), "null", "{}", "[1]", `["`, "", "-> " + filepath.Join(victim, "there"), "|"} {
		plant(t, filepath.Join(home, spec.LinksRecord), record)
		if notes := seedHome(home, &spec.Spec{Mounts: []string{home, mounted}}); notes != nil {
			t.Errorf("%q: %+v", record, notes)
		}
		got := strings.Replace(listing(t, home), "/ours: /run/aisb-mounts/1\n", "", 1)
		// What is below a mount may be there without it.
		got = strings.Replace(got, `/.aisb-links: ["mnt/link","mnt/gone","mnt/there","mnt/gone.own/deep"]`+"\n", "", 1)
		if got != want || listing(t, victim) != outside {
			t.Errorf("%q: the home is\n%sand outside\n%s", record, got, listing(t, victim))
		}
		if _, err := os.Lstat(filepath.Join(home, "ours")); (err == nil) != (record == string(text)) {
			t.Errorf("%q: a link of ours: %v", record, err)
		}
	}
}

// Starts on one home at once are not in each other's way.
func TestStartsAtOnce(t *testing.T) {
	home := t.TempDir()
	for round := range 20 {
		sp := &spec.Spec{
			Links:   []spec.Link{{Path: filepath.Join(home, "a/b"), To: "/run/aisb-mounts/1"}, {Path: filepath.Join(home, "c"), To: fmt.Sprint("/run/aisb-mounts/", round)}},
			Managed: []spec.Managed{{Home: home, Path: "a/m", Content: fmt.Append(nil, round), Mode: 0o600}},
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if notes := seedHome(home, sp); notes != nil {
					t.Errorf("%+v", notes)
				}
			})
		}
		all.Wait()
		want := fmt.Sprintf(": d---------\n/.aisb-links: [\"a/b\",\"c\"]\n/a: d---------\n/a/.aisb-m.wrote: %d\n/a/b: /run/aisb-mounts/1\n/a/m: %d\n/c: /run/aisb-mounts/%d\n", round, round, round)
		if got := listing(t, home); got != want {
			t.Errorf("%s, want\n%s", got, want)
		}
	}
}
