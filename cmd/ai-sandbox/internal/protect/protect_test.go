package protect

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// plant makes files, or directories where a name ends with a slash.
func plant(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		full := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		case strings.HasPrefix(text, "-> "):
			err = os.Symlink(text[3:], full)
		default:
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// real is a new directory by its real path.
func real(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLook(t *testing.T) {
	outside := real(t)
	plant(t, outside, map[string]string{"hooks/": "", "x": ""})
	many := map[string]string{}
	for i := range maxRepos + 1 {
		many[fmt.Sprintf(".git/modules/m%d/HEAD", i)] = ""
		many[fmt.Sprintf(".git/worktrees/w%d/", i)] = ""
	}
	deep := map[string]string{".git/modules/" + strings.Repeat("d/", maxDirs+1): ""}
	for name, c := range map[string]struct {
		files     map[string]string
		unprotect []string
		found     map[string]string
		repos     string
		worktrees string
		whole     string
		note      string
	}{
		"nothing": {},
		"some": {files: map[string]string{".git/HEAD": "", ".git/hooks/x": "", ".git/config": "", ".git/info/": "", ".vscode/": "", ".npmrc": "", ".claude/a/b": ""},
			unprotect: []string{".claude/a/b", "../../etc/passwd", "/etc/passwd", ".claude/none"},
			found: map[string]string{".git": policy.FoundDir, ".git/hooks": policy.FoundDir, ".git/config": policy.FoundFile, ".git/info": policy.FoundEmpty,
				".vscode": policy.FoundDir, ".npmrc": policy.FoundFile, ".claude": policy.FoundDir, ".claude/a": policy.FoundDir, ".claude/a/b": policy.FoundFile}, repos: ".git", whole: ".git/modules"},
		"an empty .git": {files: map[string]string{".git/": ""}, found: map[string]string{".git": policy.FoundEmpty}, repos: ".git", whole: ".git/modules"},
		"links are not followed": {files: map[string]string{".git": "-> " + outside, ".vscode": "-> nowhere", ".idea": "-> " + outside},
			found: map[string]string{".git": policy.FoundLink, ".vscode": policy.FoundLink, ".idea": policy.FoundLink}},
		"nor below .git": {files: map[string]string{".git/HEAD": "", ".git/hooks": "-> " + outside, ".git/info": "-> " + outside, ".git/modules": "-> " + outside, ".git/worktrees": "-> " + outside},
			found: map[string]string{".git": policy.FoundDir, ".git/hooks": policy.FoundLink, ".git/info": policy.FoundLink, ".git/modules": policy.FoundLink, ".git/worktrees": policy.FoundLink}, repos: ".git", whole: ".git/modules .git/worktrees"},
		"no submodules yet": {files: map[string]string{".git/modules/lib/": ""},
			found: map[string]string{".git": policy.FoundDir, ".git/modules": policy.FoundDir}, repos: ".git", whole: ".git/modules"},
		"a worktree's submodules": {files: map[string]string{".git/modules/": "", ".git/worktrees/w/modules/a/HEAD": ""},
			found: map[string]string{".git": policy.FoundDir, ".git/modules": policy.FoundDir, ".git/worktrees": policy.FoundDir, ".git/worktrees/w": policy.FoundDir,
				".git/worktrees/w/modules": policy.FoundDir, ".git/worktrees/w/modules/a": policy.FoundDir},
			repos: ".git .git/worktrees/w/modules/a", worktrees: ".git/worktrees/w", whole: ".git/modules .git/worktrees/w/modules/a/modules"},
		"submodules": {files: map[string]string{".git/modules/a/HEAD": "", ".git/modules/lib/b/config": "", ".git/modules/a/modules/c/HEAD": "", ".git/modules/none/": "", ".git/worktrees/w/gitdir": ""},
			found: map[string]string{".git": policy.FoundDir, ".git/modules": policy.FoundDir, ".git/modules/a": policy.FoundDir, ".git/modules/lib": policy.FoundDir, ".git/modules/lib/b": policy.FoundDir,
				".git/modules/lib/b/config": policy.FoundFile, ".git/modules/a/modules": policy.FoundDir, ".git/modules/a/modules/c": policy.FoundDir,
				".git/worktrees": policy.FoundDir, ".git/worktrees/w": policy.FoundDir, ".git/worktrees/w/gitdir": policy.FoundFile},
			repos: ".git .git/modules/a .git/modules/a/modules/c .git/modules/lib/b", worktrees: ".git/worktrees/w",
			whole: ".git/modules/a/modules/c/modules .git/modules/lib/b/modules .git/worktrees/w/modules"},
		"too many": {files: many, found: map[string]string{".git": policy.FoundDir, ".git/modules": policy.FoundDir, ".git/worktrees": policy.FoundDir},
			repos: ".git", whole: ".git/modules .git/worktrees"},
		"too deep": {files: deep, found: map[string]string{".git": policy.FoundDir, ".git/modules": policy.FoundDir}, repos: ".git", whole: ".git/modules"},
		"a bare repository in the project": {files: map[string]string{".git": "gitdir: ./.bare\n", ".bare/HEAD": "", ".bare/hooks/": ""},
			found: map[string]string{".git": policy.FoundFile, ".bare": policy.FoundDir, ".bare/hooks": policy.FoundDir}, repos: ".bare", whole: ".bare/modules"},
		"a bare repository": {files: map[string]string{"HEAD": "", "objects/": "", "refs/": "", "hooks/x": "", "config": ""},
			found: map[string]string{"hooks": policy.FoundDir, "config": policy.FoundFile}, repos: ".", whole: "modules"},
		"a .git that makes no sense": {files: map[string]string{".git": strings.Repeat("x", 1<<20)}, found: map[string]string{".git": policy.FoundFile}, note: "git can't read"},
	} {
		dir := real(t)
		plant(t, dir, c.files)
		p, err := Look(dir, "", c.unprotect)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := fmt.Sprint(p.Tree.Found), fmt.Sprint(c.found); got != want {
			t.Errorf("%s: found %s\nand not %s", name, got, want)
		}
		for _, l := range []struct {
			got  []string
			want string
		}{{p.Tree.Repos, c.repos}, {p.Tree.Worktrees, c.worktrees}, {p.Tree.Whole, c.whole}} {
			if got := strings.Join(l.got, " "); got != l.want {
				t.Errorf("%s: %q and not %q", name, got, l.want)
			}
		}
		if !strings.Contains(p.Note, c.note) || (p.Note == "") != (c.note == "") {
			t.Errorf("%s: note %q", name, p.Note)
		}
	}
}

// A .git file is followed where the repository says the same of it, and nowhere
// else.
func TestLookAtWorktree(t *testing.T) {
	for name, c := range map[string]struct {
		change func(main, project string) map[string]string // of files in main
		note   string
	}{
		"a worktree": {nil, ""},
		"with relative paths": {func(_, _ string) map[string]string {
			return map[string]string{"worktrees/fix/gitdir": "../../../../project/.git\n"}
		}, ""},
		"another's checkout in the repository": {func(main, _ string) map[string]string {
			return map[string]string{"worktrees/feat/gitdir": main + "/feat/.git\n"}
		}, "would show the checkout of another worktree"},
		"the same by a relative path": {func(_, _ string) map[string]string {
			return map[string]string{"worktrees/feat/gitdir": "../../feat/.git\n", "feat/.git": ""}
		}, "would show the checkout of another worktree"},
		"the same by a link": {func(main, project string) map[string]string {
			return map[string]string{"worktrees/feat/gitdir": project + "/way/feat/.git\n", "feat/.git": "", "../../project/way": "-> " + main}
		}, "would show the checkout of another worktree"},
		"another's checkout elsewhere": {func(_, project string) map[string]string {
			return map[string]string{"worktrees/feat/gitdir": project + "-feat/.git\n"}
		}, ""},
		"another's in a link": {func(main, _ string) map[string]string {
			return map[string]string{"worktrees/feat/gitdir": "-> " + main + "/x"}
		}, "read where worktrees/feat has its checkout"},
		"no way back": {func(_, _ string) map[string]string {
			return map[string]string{"worktrees/fix/gitdir": "-> /nonexistent"}
		}, "does not say whose it is"},
		"a way back elsewhere": {func(main, _ string) map[string]string {
			return map[string]string{"worktrees/fix/gitdir": main + "/.git\n"}
		}, "another worktree"},
		"a way back to a child": {func(_, project string) map[string]string {
			return map[string]string{"worktrees/fix/gitdir": project + "/sub/.git\n"}
		}, "another worktree"},
		"another repository": {func(_, project string) map[string]string {
			return map[string]string{"worktrees/fix/commondir": project + "\n"}
		}, "names another repository"},
		"a linked commondir": {func(_, _ string) map[string]string {
			return map[string]string{"worktrees/fix/commondir": "-> ../../HEAD"}
		}, "does not say what repository"},
		"no repository": {func(_, _ string) map[string]string { return map[string]string{"HEAD": ""} }, "is not a repository's"},
	} {
		parent := real(t)
		main, project := filepath.Join(parent, "main/.git"), filepath.Join(parent, "project")
		plant(t, project, map[string]string{".git": "gitdir: " + main + "/worktrees/fix\n", "sub/": ""})
		files := map[string]string{"HEAD": "ref: x\n", "objects/": "", "hooks/": "", "config": "", "modules/m/HEAD": "", "worktrees/other/HEAD": "",
			"worktrees/fix/gitdir": project + "/.git\n", "worktrees/fix/commondir": "../..\n", "worktrees/fix/HEAD": ""}
		if c.change != nil {
			for k, v := range c.change(main, project) {
				files[k] = v
				if k == "HEAD" {
					delete(files, k)
				}
			}
		}
		plant(t, main, files)
		p, err := Look(project, "", []string{".git/hooks/x"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(p.Note, c.note) || (p.Note == "") != (c.note == "") || (p.Git == nil) != (c.note != "") {
			t.Errorf("%s: %q, %+v", name, p.Note, p.Git)
		}
		if p.Git != nil && (p.Git.Root != main || p.Git.Own != "worktrees/fix" || strings.Join(p.Git.Repos, " ") != "modules/m" || strings.Join(p.Git.Whole, " ") != "modules/m/modules worktrees/fix/modules" || p.Git.Found["worktrees/fix"] != policy.FoundDir || p.Git.Found["worktrees/other"] != "") {
			t.Errorf("%s: %+v", name, p.Git)
		}
	}
}

// project is a Hold of a project that has files, when a command has begun.
func project(t *testing.T, files map[string]string) (string, *Hold) {
	t.Helper()
	dir := real(t)
	plant(t, dir, files)
	p, err := Look(dir, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: dir, RuntimeDir: "/run/x", Tree: p.Tree, Git: p.Git},
		Runtime: policy.RuntimePodman, Command: []string{"true"}, Net: policy.NetNone,
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := Open(pol, spec.Bind{}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	list, err := h.Claims(nil)
	if err == nil {
		_, err = h.Make(list)
	}
	if err == nil {
		_, err = h.Binds()
	}
	if err == nil {
		err = h.Begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, h
}

// older makes what is there older than the files of a run, as far as their times
// can tell: the kernel has no event for its clock's tick.
func older() { time.Sleep(2 * slack) }

func TestDifferences(t *testing.T) {
	dir, h := project(t, map[string]string{".git/HEAD": "", ".git/config": "a", ".git/hooks/x": "", ".npmrc": "a", ".claude": "-> a", ".cursor": "-> a"})
	if got := h.Differences(); len(got) > 0 {
		t.Fatalf("nothing changed: %v", got)
	}
	older()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "new"), []byte("a"), 0o644),
		os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, ".git/config")), // as git does
		os.WriteFile(filepath.Join(dir, ".npmrc"), []byte("b"), 0o644),
		os.Chtimes(filepath.Join(dir, ".npmrc"), time.Unix(1, 0), time.Unix(1, 0)),
		os.Remove(filepath.Join(dir, ".claude")),
		os.Symlink("a", filepath.Join(dir, ".claude")),
		os.Remove(filepath.Join(dir, ".vscode")),
		os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("free"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, c := range h.Differences() {
		got = append(got, c.Path+": "+c.What)
	}
	slices.Sort(got)
	want := []string{".claude: " + WhatUnheld, ".git/config: " + WhatReplaced, ".npmrc: " + WhatProtected, ".vscode: " + WhatReplaced}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// told are what a walk has found, a line each.
func told(h *Hold) []string {
	var out []string
	for _, c := range h.Look().Changes {
		out = append(out, c.Path+": "+c.What)
	}
	return out
}

// What was made just before the command began is not told as its work.
func TestPlaceholdersAreNotTold(t *testing.T) {
	for range 5 {
		_, h := project(t, map[string]string{".git/HEAD": "", ".git/objects/": "", ".git/refs/": "", ".git/info/x": "", ".git/modules/a/HEAD": "", ".git/modules/a/config": "", ".git/worktrees/w/HEAD": ""})
		got := slices.DeleteFunc(told(h), func(s string) bool { return !strings.HasPrefix(s, ".git/") })
		if len(got) > 0 {
			t.Fatalf("told: %q", got)
		}
	}
}

// What appears where git looks for submodules and worktrees is told, whatever it
// looks like.
func TestPlantedSubmodules(t *testing.T) {
	dir, h := project(t, map[string]string{
		".git/HEAD": "", ".git/objects/": "", ".git/refs/": "", ".git/modules/a/HEAD": "", ".git/modules/a/config": "", ".git/modules/a/objects/": "", ".git/modules/a/refs/": "",
		".git/worktrees/w/HEAD": "", ".git/worktrees/w/commondir": "../..", "evil/config": "", "evil/HEAD": "", "src/x": "",
	})
	older()
	if err := h.Begin(); err != nil {
		t.Fatal(err)
	}
	plant(t, dir, map[string]string{
		".git/modules/half/HEAD": "", ".git/modules/half/commondir": "../../../src", ".git/modules/half/odd": "", ".git/modules/half/hooks/post-checkout": "", ".git/modules/half/objects/x": "",
		".git/modules/deep/er/config": "", ".git/modules/link": "-> ../../src", ".git/modules/a/b/config": "",
		".git/modules/a/index": "", ".git/modules/a/objects/x": "", ".git/modules/a/logs/HEAD": "", ".git/worktrees/w/index": "",
		".git/worktrees/new/gitdir": "", "src/HEAD": "", "src/commondir": "x", "src/y": "",
	})
	if err := os.Rename(filepath.Join(dir, "evil"), filepath.Join(dir, ".git/modules/moved")); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range strings.Fields(".git/modules/a/b/config .git/modules/deep/er/config .git/modules/half/commondir " +
		".git/modules/half/hooks/post-checkout .git/modules/link .git/modules/moved .git/worktrees/new/gitdir src/commondir") {
		want = append(want, p+": "+whatGit)
	}
	if got := told(h); !slices.Equal(got, want) {
		t.Errorf("%s\nand not %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// git's configuration is read as git reads it.
func TestParseConfig(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "[]",
		"[core]\n\thooksPath = a b ; c\n":    "[{core hookspath a b}]",
		"[CORE]HooksPath=a\\\nb # x\r\nbare": "[{core hookspath ab} {core bare }]",
		"[core]\nhooksPath = \" a;b \"c\\t\\\"\\\\\n":              "[{core hookspath  a;b c\t\"\\}]",
		"[includeIf \"gitdir:a]\\\"b\"] path = x\n[include]path=y": "[{includeif path x} {include path y}]",
		"[include.x]\npath = a":                                    "[{include path a}]",
		"[a]b = x \\\n":                                            "[{a b x }]",
		"[a]b = \"\" \\\n x\r":                                     "[{a b x}]",
		"\ufeff# x\n[a]b":                                          "[{a b }]",
		"x = 1":                                                    "bad", "[core\nx = 1": "bad", "[core]\nx = \"a\nb\"": "bad", "[core]\nx = \\q": "bad", "[core \"a\n\"]": "bad", "[core]\n= x": "bad", "[core]\nx y": "bad", "[core]\x00": "bad", "[]": "bad", "[\"]x": "bad",
	} {
		got, err := parseConfig(text)
		out := fmt.Sprint(got)
		if err != nil {
			out = "bad"
		}
		if out != want {
			t.Errorf("%q: %q and not %q", text, out, want)
		}
	}
}

// Where git's configuration leads into the project, that is protected; where that
// can't be, it is said.
func TestConfiguredPaths(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for config, c := range map[string]struct{ obeyed, note string }{
		"[core]\nhooksPath = ci/hooks":                          {obeyed: "ci/hooks"},
		"[core]\nhooksPath = /PROJECT/none":                     {obeyed: "none"},
		"[core]\nattributesFile = attr":                         {obeyed: "attr"},
		"[core]\nhooksPath = ../elsewhere":                      {},
		"[core]\nhooksPath = /dev/null":                         {},
		"[core]\nhooksPath = ~/ci/hooks":                        {obeyed: "ci/hooks"},
		"[core]\nhooksPath = ~":                                 {note: "can't be read-only by itself"},
		"[core]\nhooksPath = :(optional)ci/hooks":               {obeyed: "ci/hooks"},
		"[core]\nhooksPath = ~" + me.Username + "/x":            {},
		"[core]\nhooksPath = ~" + me.Username + "/TOP/ci/hooks": {obeyed: "ci/hooks"},
		"[core]\nhooksPath = ~no-such-user/x":                   {note: "config has hookspath \"~no-such-user/x\", and it is not known where that begins"},
		"[core]\nhooksPath = %(prefix)/x":                       {note: "it is not known where that begins"},
		"[include]\npath = ~no-such-user/x":                     {note: "it is not known where that begins"},
		"[core]\nhooksPath = ci/up/../x":                        {obeyed: "ci/up ci/x deep/x"},
		"[include]\npath = ../ci/up/../shared":                  {obeyed: "ci/shared ci/up deep/shared from/deep"},
		"[core]\nhooksPath = .":                                 {note: "can't be read-only by itself"},
		"[core]\nhooksPath = .git":                              {note: "can't be read-only by itself"},
		"[core]\nhooksPath = \"a\\tb\"":                         {note: "can't be read-only by itself"},
		"[core":                                                 {note: "git can't read it"},
		"[include]\npath = ../shared.conf":                      {obeyed: "from/shared shared.conf"},
		"[includeIf \"gitdir:/x\"]\npath = extra":               {obeyed: ".git/extra"},
		"[include]\npath = config":                              {obeyed: ".git/config"},
		"[core]\nx=" + strings.Repeat("x", 300000):              {note: "larger than is read"},
		"[include]\npath = ../link":                             {obeyed: "from/shared link"},
	} {
		dir := real(t)
		plant(t, dir, map[string]string{".git/HEAD": "", ".git/config": strings.NewReplacer("/PROJECT", dir, "/TOP", strings.Repeat("/..", 30)+dir).Replace(config), "ci/hooks/x": "", "shared.conf": "[core]\nhooksPath = from/shared", "link": "-> shared.conf", "ci/up": "-> ../deep/down", "deep/down/": "", "deep/shared": "[core]\nhooksPath = from/deep"})
		p, err := Look(dir, dir, nil)
		if err != nil {
			t.Errorf("%.40s: %v", config, err)
			continue
		}
		slices.Sort(p.Tree.Obeyed)
		if got := strings.Join(p.Tree.Obeyed, " "); got != c.obeyed {
			t.Errorf("%.40s: obeyed %q", config, got)
		}
		note := strings.ReplaceAll(strings.Join(p.Tree.Notes, "\n"), dir, "/PROJECT")
		if !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%.40s: note %q", config, note)
		}
	}
}

// So it is where links outside of the project lead there, to what is not there yet,
// too; where they can't be followed, that is said.
func TestConfiguredThroughLinks(t *testing.T) {
	for value, c := range map[string]struct{ obeyed, note string }{
		"~/link/ci/hooks":              {obeyed: "ci/hooks"}, // the positive control: it is there
		"~/link/a":                     {obeyed: "a"},
		"~/link/a/hooks":               {obeyed: "a/hooks"},
		"~/link/a/b/c/hooks":           {obeyed: "a/b/c/hooks"},
		"~/above/PROJECT/a/hooks":      {obeyed: "a/hooks"},
		"~/../HOME/link/a/hooks":       {obeyed: "a/hooks"},
		"~/chain/a/hooks":              {obeyed: "a/hooks"},
		"~/turn/a/hooks":               {obeyed: "real/a/hooks turn"},
		"~/new":                        {obeyed: "new/hooks"},
		"~/elsewhere/a/hooks":          {},
		"~/none/a/hooks":               {},
		"~/loop/a/hooks":               {note: "where that leads is not known: too many levels of symbolic links"},
		"/proc/self/cwd/a/hooks":       {note: "leads through /proc/self, which is another place for each program"},
		"/proc/self/root/PATH/a/hooks": {obeyed: "a/hooks", note: "leads through /proc/self, which is another place for each program"},
		"/dev/fd/3/a/hooks":            {note: "which is another place for each program"},
	} {
		for _, section := range []string{"[core]\nhooksPath = ", "[include]\npath = "} {
			home, outside, dir := real(t), real(t), real(t)
			plant(t, home, map[string]string{"link": "-> " + dir, "above": "-> " + filepath.Dir(dir), "chain": "-> " + outside + "/on", "turn": "-> " + dir + "/turn",
				"new": "-> link/new/hooks", "elsewhere": "-> " + outside, "loop": "-> loop"})
			plant(t, outside, map[string]string{"on": "-> " + dir})
			config := section + strings.NewReplacer("PROJECT", filepath.Base(dir), "HOME", filepath.Base(home), "PATH", dir).Replace(value)
			plant(t, dir, map[string]string{".git/HEAD": "", ".git/config": config, "ci/hooks": "", "turn": "-> real", "real/": ""})
			p, err := Look(dir, home, nil)
			if err != nil {
				t.Errorf("%s: %v", config, err)
				continue
			}
			slices.Sort(p.Tree.Obeyed)
			if got := strings.Join(p.Tree.Obeyed, " "); got != c.obeyed {
				t.Errorf("%s: obeyed %q", config, got)
			}
			note := strings.Join(p.Tree.Notes, "\n")
			if !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
				t.Errorf("%s: note %q", config, note)
			}
		}
	}
}

// The configuration of a repository elsewhere is read for its worktree, and for a
// submodule, mounted or not.
func TestConfiguredElsewhere(t *testing.T) {
	for own, feat := range map[string]string{"worktrees/fix": "", "worktrees/two": "/main/.git/feat/.git", "modules/m": ""} {
		parent := real(t)
		main, project := filepath.Join(parent, "main/.git"), filepath.Join(parent, "project")
		const config = "[core]\nhooksPath = ci/hooks\n[include]\npath = extra"
		plant(t, project, map[string]string{".git": "gitdir: " + main + "/" + own + "\n"})
		plant(t, main, map[string]string{"HEAD": "", "objects/": "", "config": config, "modules/m/config": config,
			own + "/gitdir": project + "/.git\n", own + "/commondir": "../..\n"})
		if feat != "" {
			plant(t, main, map[string]string{"worktrees/feat/gitdir": parent + feat})
		}
		p, err := Look(project, "", nil)
		if err != nil || strings.Join(p.Tree.Obeyed, " ") != "ci/hooks" {
			t.Errorf("%s: %v, %q", own, err, p.Tree.Obeyed)
		}
		if mounted := own == "worktrees/fix"; (p.Git != nil) != mounted || mounted && !slices.Contains(p.Git.Obeyed, "extra") {
			t.Errorf("%s: %+v", own, p.Git)
		}
	}
}

// Worktree finds the git directory that is mounted, and no other.
func TestWorktree(t *testing.T) {
	for name, c := range map[string]struct {
		project map[string]string
		back    string // what the repository says
		want    bool
	}{
		"a worktree":             {map[string]string{".git": "gitdir: ../main/.git/worktrees/w\n"}, "/project/.git", true},
		"by a link":              {map[string]string{".git": "-> dot", "dot": "gitdir: ../main/.git/worktrees/w\n"}, "/project/.git", true},
		"another's":              {map[string]string{".git": "gitdir: ../main/.git/worktrees/w\n"}, "/other/.git", false},
		"a submodule":            {map[string]string{".git": "gitdir: ../main/.git/modules/m\n"}, "/project/.git", false},
		"a repository":           {map[string]string{".git/HEAD": ""}, "/project/.git", false},
		"none":                   {map[string]string{"x": ""}, "/project/.git", false},
		"the root":               {map[string]string{".git": "gitdir: /worktrees/w\n"}, "/project/.git", false},
		"what git can't read":    {map[string]string{".git": "../main/.git/worktrees/w\n"}, "/project/.git", false},
		"a link to nowhere":      {map[string]string{".git": "-> .git"}, "/project/.git", false},
		"a link to a repository": {map[string]string{".git": "-> ../main/.git"}, "/project/.git", false},
	} {
		parent := real(t)
		project, main := filepath.Join(parent, "project"), filepath.Join(parent, "main/.git")
		plant(t, parent, map[string]string{"other/": ""})
		plant(t, project, c.project)
		plant(t, main, map[string]string{"HEAD": "", "objects/": "", "modules/m/HEAD": "", "worktrees/w/gitdir": parent + c.back + "\n", "worktrees/w/commondir": "../..\n"})
		p, err := Look(project, "", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := Worktree(project)
		if c.want != (got == main) || !c.want && got != "" || (p.Git != nil) != (got != "") {
			t.Errorf("%s: %q, and %+v is mounted", name, got, p.Git)
		}
	}
	if got := Worktree(""); got != "" {
		t.Errorf("no project: %q", got)
	}
}

// What changed where git's configuration leads is told.
func TestConfiguredPathsAreTold(t *testing.T) {
	dir, h := project(t, map[string]string{".git/HEAD": "", ".git/config": "[core]\nhooksPath = ci/hooks\n[include]\npath = ../shared", "ci/hooks/x": ""})
	older()
	if err := h.Begin(); err != nil {
		t.Fatal(err)
	}
	if s, err := os.Stat(filepath.Join(dir, "shared")); err != nil || !s.Mode().IsRegular() {
		t.Errorf("no placeholder: %v", err)
	}
	plant(t, dir, map[string]string{"ci/hooks/pre-commit": "", "ci/plain": "", "shared": "x"})
	want := []string{"ci/hooks: " + WhatProtected, "ci/hooks/pre-commit: " + whatGit, "shared: " + WhatProtected}
	if got := told(h); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A file with another name is mounted, and said not to be held.
func TestSecondName(t *testing.T) {
	dir := real(t)
	plant(t, dir, map[string]string{".npmrc": "a", ".envrc": "a", ".git/HEAD": "", ".git/config": ""})
	for from, to := range map[string]string{".npmrc": "other", ".git/config": ".git/x"} {
		if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Look(dir, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(p.Tree.Linked)
	if got := strings.Join(p.Tree.Linked, " "); got != ".git/config .npmrc" {
		t.Errorf("%q", got)
	}
}

// The walk ends, however large or odd a tree is, and says when it has not seen all.
func TestWalkIsBounded(t *testing.T) {
	dir, h := project(t, nil)
	for i := range maxChanges + 10 {
		plant(t, dir, map[string]string{fmt.Sprintf("d%d/Makefile", i): ""})
	}
	found := h.Look()
	if len(found.Changes) != maxChanges || found.More != 10 || found.Partly {
		t.Errorf("%d, %d, %v", len(found.Changes), found.More, found.Partly)
	}

	dir, h = project(t, nil)
	fd, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	for range 100 { // far beyond the longest path that a call takes
		name := strings.Repeat("d", 200)
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, nerr := unix.Openat(fd, name, unix.O_DIRECTORY, 0)
		unix.Close(fd)
		fd, err = next, nerr
	}
	unix.Close(fd)
	plant(t, dir, map[string]string{"Makefile": "", "loop": "-> .", "shut/": "", "a/b": "-> ../.."})
	if err := os.Chmod(filepath.Join(dir, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	if found := h.Look(); len(found.Changes) != 1 || !found.Partly {
		t.Errorf("%+v", found)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}

// What Remove takes away is what was made, and nothing else.
func TestRemove(t *testing.T) {
	dir := real(t)
	plant(t, dir, map[string]string{"d/": "", "full/x": "", "f": "", "g": "x"})
	of := func(name string, file bool) store.Placeholder {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		s, err := look(fd, "")
		if err != nil {
			t.Fatal(err)
		}
		return store.Placeholder{Root: dir, Path: name, File: file, Dev: s.dev, Ino: s.ino, Born: s.born}
	}
	full, d, f, g := of("full", false), of("d", false), of("f", true), of("g", true)
	other := d
	other.Ino++
	for _, p := range []store.Placeholder{other, full, g, {Root: filepath.Join(dir, "gone"), Path: "x"}} {
		if err := Remove(p); err != nil {
			t.Errorf("%s: %v", p.Path, err)
		}
	}
	names := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "d f full g" {
		t.Errorf("left: %s", got)
	}
	for range 2 { // what is gone is no error
		for _, p := range []store.Placeholder{d, f} {
			if err := Remove(p); err != nil {
				t.Errorf("%s: %v", p.Path, err)
			}
		}
	}
	if got := names(); got != "full g" {
		t.Errorf("left: %s", got)
	}
}

// A link is followed on the way to the project, and not in it.
func TestOpenDir(t *testing.T) {
	outside, project := real(t), real(t)
	plant(t, project, map[string]string{"a/b/": "", "out": "-> " + outside, "a/up": "-> ..", "a/self": "-> " + project})
	plant(t, outside, map[string]string{"link": "-> " + project, "x/": "", "y": "-> x"})
	for dir, want := range map[string]bool{
		project: true, project + "/": true, project + "/a/b": true, outside + "/link/a/b": true, outside + "/link": true, project + "/a/../a": true,
		outside + "/y":   true, // no project on the way
		project + "/out": false, project + "/out/x": false, project + "/a/up/a": false, project + "/a/self": false, outside + "/link/out": false, project + "/none": false,
	} {
		fd, err := OpenDir(dir, project)
		if (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}
