package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

func project(t *testing.T, text string) config.File {
	t.Helper()
	f, err := config.ParseProject(config.ProjectFile, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func shown(d Decision) string {
	var b strings.Builder
	for _, l := range d.Diff {
		mark := ""
		if l.Widens {
			mark = " !"
		}
		fmt.Fprintf(&b, "%c %s%s\n", l.Op, l.Text, mark)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestDecide(t *testing.T) {
	const none = "\x00"
	for _, tc := range []struct {
		name, user, flag string // flag is a profile
		trusted, now     string
		obey             bool
		diff             string
	}{
		{name: "no file", trusted: none, obey: true},
		{name: "narrows", trusted: none, now: "fs = ro\nnet = none", obey: true, diff: "+ fs = ro\n+ net = none"},
		{name: "widens", trusted: none, now: "fs = ro\nallow = x.test", diff: "+ fs = ro\n+ allow = x.test !"},
		{name: "says what the user says", user: "allow = x.test", trusted: none, now: "allow = x.test", obey: true, diff: "+ allow = x.test"},
		{name: "trusted", trusted: "allow = x.test", now: "# again\nallow=x.test", obey: true, diff: "  allow = x.test !"},
		{name: "one more", trusted: "allow = x.test", now: "allow = x.test\nallow = y.test", diff: "  allow = x.test !\n+ allow = y.test !"},
		// The hash is of everything: a run stops although each line was seen.
		{name: "another order", trusted: "allow = x.test\nallow = y.test", now: "allow = y.test\nallow = x.test", diff: "- allow = x.test\n  allow = y.test !\n+ allow = x.test !"},
		{name: "one fewer of what widens", trusted: "allow = x.test\nallow = y.test", now: "allow = x.test", diff: "  allow = x.test !\n- allow = y.test"},
		{name: "nothing of what widens is left", trusted: "allow = x.test", now: "fs = ro", obey: true, diff: "- allow = x.test\n+ fs = ro"},
		{name: "a file that narrows is gone", trusted: "fs = ro", now: "", diff: "- fs = ro !"},
		{name: "a line that narrows is gone", trusted: "fs = ro\nnet = none", now: "fs = ro", diff: "  fs = ro\n- net = none !"},
		{name: "narrows less", trusted: "net = none", now: "net = unix", diff: "- net = none\n+ net = unix !"},
		{name: "narrows more", trusted: "net = unix", now: "net = none\nfs = ro", obey: true, diff: "- net = unix\n+ net = none\n+ fs = ro"},
		{name: "narrowing that makes no difference is gone", user: "fs = ro", trusted: "fs = ro", now: "", obey: true, diff: "- fs = ro"},
		{name: "emptied", user: "fs = ro\ngate = work", trusted: none, now: "fs =\ngate =", diff: "+ fs = !\n+ gate = !"},
		{name: "a list emptied", user: "allow = x.test", trusted: none, now: "allow =", obey: true, diff: "+ allow ="},
		{name: "allow_private emptied", user: "allow_private = x.test", trusted: none, now: "allow_private =", obey: true, diff: "+ allow_private ="},
		{name: "behind a proxy, which judges less", user: "upstream_proxy = http://proxy.example.com:3128\nallow_private = x.test", trusted: none, now: "allow_private =", diff: "+ allow_private = !"},
		{name: "an emptied list is full again", user: "allow = x.test", trusted: "allow =", now: "", diff: "- allow = !"},
		{name: "chooses a profile", user: "[profile open]\nallow = x.test", trusted: none, now: "profile = open", diff: "+ profile = open !"},
		{name: "a profile that is not chosen", trusted: none, now: "[profile a]\nallow = x.test\n[profile b]\nfs = ro", obey: true, diff: "+ [profile a]\n+ allow = x.test !\n+ [profile b]\n+ fs = ro"},
		{name: "a profile that is chosen", flag: "a", trusted: none, now: "[profile a]\nallow = x.test", diff: "+ [profile a]\n+ allow = x.test !"},
		{name: "moved into a profile", trusted: "net = none\nfs = ro", now: "net = none\n[profile a]\nfs = ro", diff: "  net = none\n- fs = ro !\n+ [profile a]\n+ fs = ro"},
		{name: "the user's profile lies below", flag: "a", user: "[profile a]\nnet = none", trusted: none, now: "net = gated", diff: "+ net = gated !"},
		{name: "a built-in profile is narrowed", flag: "local", trusted: none, now: "net = none\n[profile local]\nfs = ro", obey: true, diff: "+ net = none\n+ [profile local]\n+ fs = ro"},
	} {
		user, err := config.ParseFile("user", []byte(tc.user))
		if err != nil {
			t.Fatal(err)
		}
		l := config.Layers{User: user, Project: project(t, tc.now)}
		if tc.flag != "" {
			l.Flags = []config.Item{{Key: "profile", Value: tc.flag, Origin: "--profile"}}
		}
		var trusted config.File
		if tc.trusted != none {
			trusted = project(t, tc.trusted)
		}
		d := Decide(l, trusted, tc.trusted != none)
		if d.Obey != tc.obey || shown(d) != tc.diff || d.Known != (tc.trusted != none) || d.Trusted != (d.Known && tc.name == "trusted") {
			t.Errorf("%s: %+v\n%s", tc.name, d, shown(d))
		}
	}
}

// A script counts by its content, and each line of it is shown.
func TestDecideScript(t *testing.T) {
	with := func(text, script string) config.File {
		f := project(t, text)
		f.Scripts = []config.ScriptFile{{Path: "x.sh", Text: script}}
		return f
	}
	trusted := with("setup = x.sh", "one\ntwo\n")
	for script, want := range map[string]string{
		"one\ntwo\n":           "  setup = x.sh !\n  [x.sh, which is run as root when the image is built]\n  | one\n  | two",
		"one\ntwo":             "  setup = x.sh !\n  [x.sh, which is run as root when the image is built]\n  | one\n  | two\n+ \\ no newline at the end",
		"one\nevil\ntwo\n":     "  setup = x.sh !\n  [x.sh, which is run as root when the image is built]\n  | one\n+ | evil\n  | two",
		"two\n":                "  setup = x.sh !\n  [x.sh, which is run as root when the image is built]\n- | one\n  | two",
		"one\ntwo\n[x]\n| y\n": "  setup = x.sh !\n  [x.sh, which is run as root when the image is built]\n  | one\n  | two\n+ | [x]\n+ | | y",
	} {
		d := Decide(config.Layers{Project: with("setup = x.sh", script)}, trusted, true)
		if d.Obey != (script == "one\ntwo\n") || d.Obey != d.Trusted || shown(d) != want {
			t.Errorf("%q: %t\n%s", script, d.Obey, shown(d))
		}
	}
	// Another script of the same content is another one, and so is one that is not the
	// project's any more.
	if d := Decide(config.Layers{Project: project(t, "setup = y.sh")}, trusted, true); d.Obey {
		t.Error("another script is obeyed")
	}
	if d := Decide(config.Layers{Project: project(t, "")}, trusted, true); d.Obey {
		t.Error("that the script is gone goes by in silence")
	}
}

func TestDiff(t *testing.T) {
	long := func(n int) config.File { return project(t, strings.Repeat("allow = x.test\n", n)) }
	if n := len(diff(long(4000).Lines(), long(3000).Lines())); n != 4000 {
		t.Errorf("%d lines", n)
	}
	old, now := long(4000).Lines(), long(3000).Lines()
	slices.Reverse(now)
	now[0].Text, now[2999].Text = "a", "b"
	if d := diff(old, now); len(d) != 7000 || d[0].Op != '-' || d[6999].Op != '+' {
		t.Errorf("%d lines beyond the bound", len(d))
	}
}

func TestStore(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	s := In(state)
	const text = "allow = x.test\n[profile a]\nfs = ro\n"
	if _, ok, err := s.Load("/home/u/shop"); ok || err != nil {
		t.Errorf("before: %v, %v", ok, err)
	}
	if was, err := s.Forget("/home/u/shop"); was || err != nil {
		t.Errorf("forgot %v, %v", was, err)
	}
	saved := project(t, text)
	saved.Scripts = []config.ScriptFile{{Path: "x.sh", Text: "#!/bin/sh\ntrue \x1b <é>\n"}}
	for _, f := range []config.File{project(t, "net = none\n"), saved} { // the later one counts
		if err := s.Save("/home/u/shop", f); err != nil {
			t.Fatal(err)
		}
	}
	f, ok, err := s.Load("/home/u/shop")
	if !ok || err != nil || f.Canonical() != text || !f.Same(saved) {
		t.Errorf("%v, %v: %q, %q", ok, err, f.Canonical(), f.Scripts)
	}
	if all, err := s.All(); err != nil || len(all) != 1 || all[0].Path != "/home/u/shop" || !all[0].Same(saved) || !all[0].Items[0].FromProject() {
		t.Errorf("all are %v, %v", all, err)
	}
	if _, ok, err := s.Load("/home/u/shop2"); ok || err != nil {
		t.Errorf("another project: %v, %v", ok, err)
	}
	path := s.path("/home/u/shop")
	for name, want := range map[string]os.FileMode{filepath.Dir(path): 0o700 | os.ModeDir, path: 0o600} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != want {
			t.Errorf("%s is %v (%v)", name, info.Mode(), err)
		}
	}
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 1 {
		t.Errorf("left behind: %v (%v)", list, err)
	}

	// A record counts only where it was written, and as it was written.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, want string) {
		t.Helper()
		if _, ok, err := s.Load("/home/u/shop"); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
	}
	write := func(data string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range data {
		changed := slices.Clone(data)
		changed[i] ^= 1
		write(string(changed))
		if f, ok, err := s.Load("/home/u/shop"); err == nil && (!ok || !f.Same(saved)) || err == nil && i < len(data)-1 && c != ' ' && c != '\n' {
			t.Fatalf("byte %d (%q) changed: %v, %v", i, c, ok, err)
		}
	}
	write("")
	refused("empty", "is damaged")
	if _, err := s.All(); err == nil {
		t.Error("all of a damaged record: no error")
	}
	write(string(data))
	if err := os.Rename(path, s.path("/home/u/shop2")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Load("/home/u/shop2"); ok || err == nil {
		t.Errorf("another project's record: %v, %v", ok, err)
	}
	write(string(data))
	if _, ok, err := s.Load("/home/u/shop"); !ok || err != nil {
		t.Errorf("restored: %v, %v", ok, err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	refused("writable by others", "this user alone can write")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.path("/home/u/shop2"), path); err != nil {
		t.Fatal(err)
	}
	refused("a link", "too many levels of symbolic links")
	if was, err := s.Forget("/home/u/shop"); !was || err != nil {
		t.Errorf("forgot %v, %v", was, err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Save("/home/u/shop", project(t, text)); err == nil || !strings.Contains(err.Error(), "open to other users") {
		t.Errorf("open directory: %v", err)
	}
}
