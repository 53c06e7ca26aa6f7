package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// tree makes what a list names: "path" is a program, "path -> to" a link, "path/"
// a directory, and "path: #!line" a script.
func tree(t *testing.T, base string, list ...string) {
	t.Helper()
	for _, item := range list {
		path, to, link := strings.Cut(item, " -> ")
		path, script, _ := strings.Cut(path, ": ")
		full := filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case link && filepath.IsAbs(to):
			err = os.Symlink(filepath.Join(base, to), full)
		case link:
			err = os.Symlink(to, full)
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			err = os.WriteFile(full, []byte(strings.ReplaceAll(script, "BASE", base)+"\n"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindTool(t *testing.T) {
	const nvm = "home/.nvm/versions/node/v22/"
	for _, c := range []struct {
		name    string
		tree    []string
		path    string // what the shell looks through
		command string
		want    string // the mounts, a space between
		dirs    string
	}{
		{"nvm, with its own node",
			[]string{nvm + "bin/node", nvm + "bin/tool -> ../lib/node_modules/@x/tool/cli.js", nvm + "lib/node_modules/@x/tool/cli.js: #!/usr/bin/env node", nvm + "share/"},
			nvm + "bin", nvm + "bin/tool", nvm + "bin " + nvm + "lib", nvm + "bin"},
		{"npm's prefix, with the system's node",
			[]string{"home/.npm-global/bin/tool -> ../lib/node_modules/tool/bin/cli.js", "home/.npm-global/lib/node_modules/tool/bin/cli.js: #!/bin/sh", "home/.npm-global/lib/node_modules/other/x"},
			"home/.npm-global/bin", "home/.npm-global/bin/tool",
			"home/.npm-global/bin/tool->home/.npm-global/lib/node_modules/tool/bin/cli.js home/.npm-global/lib/node_modules/tool", "home/.npm-global/bin"},
		{"the prefix ~/.local, whose node is the user's too",
			[]string{"home/.local/bin/node", "home/.local/bin/tool -> ../lib/node_modules/tool/cli.js", "home/.local/lib/node_modules/tool/cli.js: #!/usr/bin/env node", "home/.local/share/secret"},
			"home/.local/bin", "home/.local/bin/tool",
			"home/.local/bin/node home/.local/bin/tool->home/.local/lib/node_modules/tool/cli.js home/.local/lib/node_modules/tool", "home/.local/bin"},
		{"an interpreter elsewhere",
			[]string{nvm + "bin/node", nvm + "lib/node_modules/npm/x", "home/p/bin/tool -> ../lib/node_modules/tool/cli.js", "home/p/lib/node_modules/tool/cli.js: #!/usr/bin/env -S node --flag"},
			"home/p/bin:" + nvm + "bin", "home/p/bin/tool",
			nvm + "bin " + nvm + "lib home/p/bin/tool->home/p/lib/node_modules/tool/cli.js home/p/lib/node_modules/tool", "home/p/bin " + nvm + "bin"},
		{"a program in versions",
			[]string{"home/.local/bin/tool -> /home/.local/share/tool/versions/1.2.3", "home/.local/share/tool/versions/1.2.3", "home/.local/share/other/secret"},
			"home/.local/bin", "home/.local/bin/tool",
			"home/.local/bin/tool->home/.local/share/tool/versions/1.2.3 home/.local/share/tool/versions/1.2.3", "home/.local/bin"},
		{"a plain program", []string{"home/bin/tool", "home/bin/other"}, "home/bin", "home/bin/tool", "home/bin/tool", "home/bin"},
		{"bun",
			[]string{"home/.bun/bin/bun", "home/.bun/bin/tool -> ../install/global/node_modules/tool/cli.js", "home/.bun/install/global/node_modules/tool/cli.js: #!/usr/bin/env bun", "home/.bun/install/cache/"},
			"home/.bun/bin", "home/.bun/bin/tool",
			"home/.bun/bin/bun home/.bun/bin/tool->home/.bun/install/global/node_modules/tool/cli.js home/.bun/install/global/node_modules", "home/.bun/bin"},
		{"pipx",
			[]string{"home/.local/bin/tool -> /home/.local/share/pipx/venvs/tool/bin/tool", "home/.local/share/pipx/venvs/tool/pyvenv.cfg",
				"home/.local/share/pipx/venvs/tool/bin/tool: #!BASE/home/.local/share/pipx/venvs/tool/bin/python", "home/.local/share/pipx/venvs/tool/bin/python -> /home/.uv/cpython/bin/python3",
				"home/.uv/cpython/bin/python3", "home/.uv/cpython/lib/python3.12/x"},
			"home/.local/bin", "home/.local/bin/tool",
			"home/.local/bin/tool->home/.local/share/pipx/venvs/tool/bin/tool home/.local/share/pipx/venvs/tool home/.uv/cpython/bin home/.uv/cpython/lib",
			"home/.local/bin home/.local/share/pipx/venvs/tool/bin"},
		{"homebrew",
			[]string{"brew/.linuxbrew/bin/tool -> ../Cellar/tool/1/bin/tool", "brew/.linuxbrew/Cellar/tool/1/bin/tool"},
			"brew/.linuxbrew/bin", "brew/.linuxbrew/bin/tool", "brew/.linuxbrew", "brew/.linuxbrew/bin"},
		{"a stand-in before the real one",
			[]string{"home/.asdf/shims/tool: #!/bin/sh", "home/.volta/bin/tool -> volta-shim", "home/.volta/bin/volta-shim", "home/bin/tool"},
			"home/.asdf/shims:home/.volta/bin:home/bin", "home/bin/tool", "home/bin/tool", "home/bin"},
		{"in the project, and after it",
			[]string{"home/project/node_modules/.bin/tool", "home/bin/tool"},
			"home/project/node_modules/.bin:home/bin", "home/bin/tool", "home/bin/tool", "home/bin"},
	} {
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		tree(t, base, append(c.tree, "home/project/")...)
		f := facts(t, base, c.path)
		got, err := FindTool(f, "tool")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		short := func(p string) string { return strings.TrimPrefix(p, base+"/") }
		var mounts, dirs []string
		for _, m := range got.Mounts {
			switch {
			case m.Kind == policy.KindSymlink:
				mounts = append(mounts, short(m.Target)+"->"+short(m.Source))
			case m.Kind == policy.KindBind && m.ReadOnly && m.Source == m.Target:
				mounts = append(mounts, short(m.Target))
			default:
				t.Errorf("%s: %+v", c.name, m)
			}
		}
		for _, d := range got.Path {
			dirs = append(dirs, short(d))
		}
		want := strings.Fields(c.want)
		if !sameSet(mounts, want) {
			t.Errorf("%s: mounts\n%s\nand not\n%s", c.name, strings.Join(mounts, "\n"), strings.Join(want, "\n"))
		}
		if short(got.Command) != c.command || strings.Join(dirs, " ") != c.dirs {
			t.Errorf("%s: %s, path %q", c.name, got.Command, dirs)
		}
	}
}

func sameSet(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// facts has the SearchPath that Probe would find.
func facts(t *testing.T, base, path string) Facts {
	t.Helper()
	var dirs []string
	for _, p := range strings.Split(path, ":") {
		dirs = append(dirs, filepath.Join(base, p))
	}
	f, err := Probe(Input{
		Cwd: filepath.Join(base, "home/project"), Home: filepath.Join(base, "home"), Env: map[string]string{"PATH": strings.Join(dirs, ":")},
		Config: filepath.Join(base, "home/.config/ai-sandbox"), State: filepath.Join(base, "home/.local/state/ai-sandbox"),
		Cache: filepath.Join(base, "home/.cache/ai-sandbox"), Runtime: filepath.Join(base, "run"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSystemTool: what every jail has anyway takes no mount.
func TestSystemTool(t *testing.T) {
	base := t.TempDir()
	tree(t, base, "home/project/")
	got, err := FindTool(facts(t, base, "nowhere"), "env")
	if err != nil || got.Command == "" || len(got.Mounts) > 0 || len(got.Path) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFindToolRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		tree       []string
		path, want string
		change     func(*Facts)
	}{
		"nowhere":       {nil, "home/bin", "is not installed here", nil},
		"only stand-in": {[]string{"home/.volta/bin/tool -> volta-shim", "home/.volta/bin/volta-shim"}, "home/.volta/bin", "version manager's stand-in", nil},
		"a loop":        {[]string{"home/bin/tool -> tool"}, "home/bin", "is not installed here", nil},
		"a secret":      {[]string{"home/.ssh/bin/tool"}, "home/.ssh/bin", "holds credentials", nil},
		"lost interpreter": {[]string{"home/bin/tool: #!/usr/bin/env there-is-no-such-thing"}, "home/bin",
			"there-is-no-such-thing is not installed here", nil},
		"relative interpreter": {[]string{"home/bin/tool: #!bin/sh"}, "home/bin", "not an absolute path", nil},
		"the project below": {[]string{"home/bin/tool -> /home/lib/node_modules/tool/x", "home/lib/node_modules/tool/x"}, "home/bin", "change its own program",
			func(f *Facts) { f.Project.Path = f.Home + "/lib/node_modules/tool/src" }},
		"our state": {[]string{"home/bin/tool -> /home/lib/node_modules/tool/x", "home/lib/node_modules/tool/x"}, "home/bin", "ai-sandbox's own",
			func(f *Facts) { f.Dirs.State = f.Home + "/lib/node_modules/tool/state" }},
	} {
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		tree(t, base, append(c.tree, "home/project/")...)
		f := facts(t, base, c.path)
		if c.change != nil {
			c.change(&f)
		}
		_, err = FindTool(f, "tool")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "nowhere" && !errors.Is(err, ErrNoTool) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := FindTool(Facts{}, "a/b"); err == nil {
		t.Error("a path is looked up")
	}
}
