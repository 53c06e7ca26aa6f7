package policy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is a project with git, two submodules and a worktree of its own.
func repository() Input {
	in := plain()
	found := map[string]string{}
	for _, d := range []string{".git", ".git/hooks", ".git/info", ".git/modules", ".git/modules/lib", ".git/modules/lib/foo", ".git/modules/lib/foo/hooks",
		".git/worktrees", ".git/worktrees/fix", ".claude"} {
		found[d] = FoundDir
	}
	for _, f := range []string{".git/config", ".git/modules/lib/foo/config", ".git/worktrees/fix/commondir", ".git/worktrees/fix/gitdir", ".npmrc", ".claude/settings.json"} {
		found[f] = FoundFile
	}
	found[".git/modules/lib/foo/info"] = FoundEmpty
	in.Facts.Tree = Tree{Found: found, Repos: []string{".git", ".git/modules/lib/foo"}, Worktrees: []string{".git/worktrees/fix"}}
	return in
}

// worktree is a project that is a worktree of a repository elsewhere.
func worktree() Input {
	in := plain()
	in.Facts.Tree = Tree{Found: map[string]string{".git": FoundFile}}
	in.Facts.Git = &GitDir{
		Tree: Tree{Root: "/home/dev/main/.git", Found: map[string]string{
			"hooks": FoundDir, "config": FoundFile, "info": FoundDir, "worktrees": FoundDir, "worktrees/fix": FoundDir,
			"worktrees/fix/commondir": FoundFile, "worktrees/fix/gitdir": FoundFile,
		}},
		Own: "worktrees/fix",
	}
	return in
}

// guards are the mounts of the protected paths, a line each: mode, path and
// placeholder.
func guards(p Policy) []string {
	var out []string
	for _, m := range p.Mounts {
		mode := map[bool]string{true: "ro ", false: "rw "}[m.ReadOnly]
		switch m.Why {
		case WhyProtected, WhyHeld:
			line := mode + strings.TrimPrefix(m.Source, p.Project+"/")
			if m.Placeholder != "" {
				line += " (" + m.Placeholder + ")"
			}
			out = append(out, line)
		case WhyGitDir:
			out = append(out, mode+m.Source+" itself")
		}
	}
	return out
}

func TestProtected(t *testing.T) {
	const others = "ro .ai-sandbox (directory)\nro .claude (directory)\nro .cursor (directory)\nro .devcontainer (directory)\nro .envrc (directory)\n"
	const last = "ro .idea (directory)\nro .mcp.json (directory)\nro .npmrc (directory)\nro .pre-commit-config.yaml (directory)\nro .vscode (directory)"
	link := plain()
	link.Facts.Tree.Found = map[string]string{".git": FoundLink, ".claude": FoundLink, ".envrc": FoundOther}
	readOnly := repository()
	readOnly.ReadOnly = true
	readOnlyTree := worktree()
	readOnlyTree.ReadOnly = true
	empty := plain()
	empty.Facts.Tree.Found = map[string]string{".git": FoundEmpty}
	shut := plain()
	shut.Facts.Tree.Found = map[string]string{".git": FoundDir, ".git/hooks": FoundShut, ".git/config": FoundFile, ".git/config.worktree": FoundShut, ".git/commondir": FoundShut, ".git/info": FoundShut}
	linked := plain()
	linked.Facts.Tree = Tree{Found: map[string]string{".npmrc": FoundFile, ".envrc": FoundFile}, Linked: []string{".npmrc", ".envrc"}}
	linked.Unprotect = []string{".envrc"}
	fresh := plain()
	fresh.Facts.Tree = Tree{Found: map[string]string{".git": FoundDir}, Repos: []string{".git"}, Whole: []string{".git/modules"}}
	led := plain()
	led.Facts.Tree = Tree{Found: map[string]string{"ci": FoundDir, "ci/hooks": FoundDir}, Obeyed: []string{"ci/hooks", "ci/none", "shared.conf"}, Files: []string{"shared.conf"}, Notes: []string{"x leads to y"}}
	many := repository()
	many.Facts.Tree.Repos, many.Facts.Tree.Whole = []string{".git"}, []string{".git/modules"}
	hidden := worktree()
	hidden.Facts.Git.Root = "/tmp/main/.git"
	inside := worktree() // as "git -C bare worktree add shop" has it
	inside.Facts.Git.Root = "/home/dev/work"
	covered := worktree()
	covered.Workdir = "/home/dev/main"
	for name, c := range map[string]struct {
		in     Input
		want   string
		notes  string // a regular expression for all of them
		unheld string
	}{
		"nothing there": {in: plain(), want: others + "ro .git (directory)\n" + last},
		"a repository": {in: repository(), want: `ro .ai-sandbox (directory)
ro .claude
ro .cursor (directory)
ro .devcontainer (directory)
ro .envrc (directory)
rw .git
ro .git/commondir (file)
ro .git/config
ro .git/config.worktree (file)
ro .git/hooks
rw .git/info
ro .git/info/attributes (file)
rw .git/modules
rw .git/modules/lib
rw .git/modules/lib/foo
ro .git/modules/lib/foo/commondir (file)
ro .git/modules/lib/foo/config
ro .git/modules/lib/foo/config.worktree (file)
ro .git/modules/lib/foo/hooks
ro .git/modules/lib/foo/info
rw .git/worktrees
rw .git/worktrees/fix
ro .git/worktrees/fix/commondir
ro .git/worktrees/fix/config.worktree (file)
ro .git/worktrees/fix/gitdir
ro .idea (directory)
ro .mcp.json (directory)
ro .npmrc
ro .pre-commit-config.yaml (directory)
ro .vscode (directory)`},
		"too many submodules": {in: many, want: `ro .ai-sandbox (directory)
ro .claude
ro .cursor (directory)
ro .devcontainer (directory)
ro .envrc (directory)
rw .git
ro .git/commondir (file)
ro .git/config
ro .git/config.worktree (file)
ro .git/hooks
rw .git/info
ro .git/info/attributes (file)
ro .git/modules
rw .git/worktrees
rw .git/worktrees/fix
ro .git/worktrees/fix/commondir
ro .git/worktrees/fix/config.worktree (file)
ro .git/worktrees/fix/gitdir
ro .idea (directory)
ro .mcp.json (directory)
ro .npmrc
ro .pre-commit-config.yaml (directory)
ro .vscode (directory)`},
		"a file with another name": {in: linked, want: "ro .ai-sandbox (directory)\nro .claude (directory)\nro .cursor (directory)\nro .devcontainer (directory)\nro .git (directory)\n" + strings.Replace(last, ".npmrc (directory)", ".npmrc", 1),
			notes: `NOT HELD: \.npmrc has another name, by a hard link: .*\nUNPROTECTED: .*`},
		"where git's configuration leads": {in: led, want: others + "ro .git (directory)\n" + last + "\nrw ci\nro ci/hooks\nro ci/none (directory)\nro shared.conf (file)", notes: "NOT HELD: x leads to y"},
		"no submodules yet": {in: fresh, want: others + `rw .git
ro .git/commondir (file)
ro .git/config (file)
ro .git/config.worktree (file)
ro .git/hooks (directory)
ro .git/info (directory)
ro .git/modules (directory)
` + last},
		"a .git of another user": {in: shut, want: others + "rw .git\nro .git/config\n" + last},
		// Another session's placeholder is one: nothing may be made in it.
		"an empty .git": {in: empty, want: others + "ro .git\n" + last},
		"a worktree": {in: worktree(), want: others + "ro .git\n" + last + `
rw /home/dev/main/.git itself
ro /home/dev/main/.git/commondir (file)
ro /home/dev/main/.git/config
ro /home/dev/main/.git/config.worktree (file)
ro /home/dev/main/.git/hooks
rw /home/dev/main/.git/info
ro /home/dev/main/.git/info/attributes (file)
ro /home/dev/main/.git/worktrees
rw /home/dev/main/.git/worktrees/fix
ro /home/dev/main/.git/worktrees/fix/commondir
ro /home/dev/main/.git/worktrees/fix/config.worktree (file)
ro /home/dev/main/.git/worktrees/fix/gitdir`},
		"a worktree of what can't be seen": {in: hidden, want: others + "ro .git\n" + last,
			notes: `GIT: the git directory of this worktree is not mounted: its path /tmp/main/\.git would hide /tmp of the sandbox`},
		"a worktree in its git directory": {in: inside, want: others + "ro .git\n" + last,
			notes: `GIT: the git directory of this worktree is not mounted: the project lies in it \(/home/dev/work\), where nothing of it would be protected; .*`},
		"a worktree mounted over its git directory": {in: covered, want: others + "ro .git\n" + last,
			notes: `GIT: the git directory of this worktree is not mounted: the project lies in it .*`},
		"links": {in: link, want: "ro .ai-sandbox (directory)\nro .cursor (directory)\nro .devcontainer (directory)\n" + last,
			notes:  `NOT HELD: \.claude is a symbolic link, .*\nNOT HELD: \.envrc is a special file, .*\nNOT HELD: \.git is a symbolic link, .*`,
			unheld: "/home/dev/work/shop/.claude /home/dev/work/shop/.envrc /home/dev/work/shop/.git"},
		"read-only":            {in: readOnly},
		"a read-only worktree": {in: readOnlyTree, want: "ro /home/dev/main/.git itself"},
	} {
		p, err := Resolve(c.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.Join(guards(p), "\n"); got != c.want {
			t.Errorf("%s:\n%s", name, got)
		}
		notes := strings.Join(slices.DeleteFunc(slices.Clone(p.Unusual), func(u string) bool { return strings.HasPrefix(u, "the allowlist is empty") }), "\n")
		if !regexp.MustCompile("^(?:" + c.notes + ")$").MatchString(notes) {
			t.Errorf("%s: notes %s", name, notes)
		}
		if got := strings.Join(p.Unheld, " "); got != c.unheld {
			t.Errorf("%s: unheld %s", name, got)
		}
	}
}

// Each mount lies below one that comes before it, and seen from the project's other
// place the same.
func TestProtectedMountedElsewhere(t *testing.T) {
	in := repository()
	in.Facts.Project = "/tmp/shop"
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	n := 0
	for _, m := range p.Mounts {
		if m.Why == WhyProject {
			seen[m.Target] = m.Source
		}
		if m.Why != WhyProtected && m.Why != WhyHeld {
			continue
		}
		n++
		i := strings.LastIndexByte(m.Target, '/')
		if seen[m.Target[:i]]+m.Target[i:] != m.Source || m.Kind != KindBind || m.Relabel {
			t.Errorf("%+v lies in %q", m, seen[m.Target[:i]])
		}
		seen[m.Target] = m.Source
	}
	if n < 20 {
		t.Errorf("%d mounts", n)
	}
}

func TestUnprotect(t *testing.T) {
	all := func(in Input) []string {
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		return guards(p)
	}
	for _, c := range []struct {
		in      Input
		lift    []string
		without []string // of all
		with    []string
	}{
		{repository(), []string{".git/hooks"}, []string{"ro .git/hooks"}, nil},
		{repository(), []string{"./.git/hooks/"}, []string{"ro .git/hooks"}, nil},
		{repository(), []string{".npmrc", ".vscode"}, []string{"ro .npmrc", "ro .vscode (directory)"}, nil},
		{repository(), []string{".git/info/attributes"}, []string{"ro .git/info/attributes (file)", "rw .git/info"}, nil},
		{repository(), []string{".git/modules"}, slices.DeleteFunc(all(repository()), func(s string) bool { return !strings.Contains(s, ".git/modules") }), nil},
		{repository(), []string{".git"}, slices.DeleteFunc(all(repository()), func(s string) bool { return !strings.Contains(s, ".git") }), nil},
		{plain(), []string{".git"}, []string{"ro .git (directory)"}, nil},
		{repository(), []string{".claude/settings.json"}, nil, []string{"rw .claude/settings.json"}},
		{worktree(), []string{".git/hooks"}, []string{"ro /home/dev/main/.git/hooks"}, nil},
		{worktree(), []string{".git/worktrees/fix/gitdir"}, []string{"ro /home/dev/main/.git/worktrees/fix/gitdir"}, nil},
	} {
		want := slices.DeleteFunc(all(c.in), func(s string) bool { return slices.Contains(c.without, s) })
		want = append(want, c.with...)
		c.in.Unprotect = c.lift
		p, err := Resolve(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.lift, err)
			continue
		}
		got := guards(p)
		slices.Sort(want)
		sorted := slices.Sorted(slices.Values(got))
		if !slices.Equal(sorted, want) {
			t.Errorf("%q: %s\nand not %s", c.lift, strings.Join(sorted, "\n"), strings.Join(want, "\n"))
		}
		if n := strings.Count(strings.Join(p.Unusual, "\n"), "UNPROTECTED: "); n != len(c.lift) {
			t.Errorf("%q: %q", c.lift, p.Unusual)
		}
	}
	for _, c := range []struct{ lift, want string }{
		{"Makefile", `^unprotect Makefile: it is not protected; of these one can be given free: .git, .ai-sandbox, .*\.vscode$`},
		{"", `it is not protected`},
		{".", `it is not protected`},
		{"..", `it is not protected`},
		{"/home/dev/work/shop/.git/hooks", `it is not protected`},
		{".git/hooks2", `it is not protected`},
		{"../.git", `it is not protected`},
		{"\x1b[2J", `^unprotect "\\x1b\[2J": `},
		{".claude/none", `^unprotect .claude/none: there is no such file or directory, and what it would lie in is read-only; make it first, or give all of that free$`},
	} {
		in := repository()
		in.Unprotect = []string{c.lift}
		if _, err := Resolve(in); err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%q: %v", c.lift, err)
		}
	}
}

// A writable mount that leads to something protected another way is refused.
func TestReachedAgain(t *testing.T) {
	const again = " at /other is writable and shows the project a second time"
	for source, want := range map[string]string{
		"/home/dev/work/shop/.git":           " at /other is writable and leads to /home/dev/work/shop/.git/",
		"/home/dev/work/shop/.git/hooks":     " at /other is writable and leads to /home/dev/work/shop/.git/hooks, which is protected",
		"/home/dev/work/shop/.claude/agents": " at /other is writable and leads to /home/dev/work/shop/.claude, which is protected",
		"/home/dev/work/shop":                again,
		"/home/dev/work":                     again,
		"/home/dev/work/shop/src":            "",
		"/home/dev/work/sho":                 "",
	} {
		for _, readOnly := range []bool{false, true} {
			in := repository()
			in.Binds = []Mount{{Kind: KindBind, Source: source, Target: "/other", ReadOnly: readOnly, Why: "more"}}
			_, err := Resolve(in)
			switch {
			case want == "" || readOnly:
				if err != nil {
					t.Errorf("%s, read-only %v: %v", source, readOnly, err)
				}
			case err == nil || !strings.Contains(err.Error(), want):
				t.Errorf("%s: %v", source, err)
			}
		}
	}
	// A project that can't be written has nothing protected, and is not to be
	// written elsewhere.
	in := repository()
	in.ReadOnly = true
	in.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/work", Target: "/other", Why: "more"}}
	if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), again) {
		t.Errorf("a read-only project: %v", err)
	}
	in.Binds[0].Source = "/home/dev/work/shop/.git/hooks"
	if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), "leads to /home/dev/work/shop/.git/hooks, which is protected") {
		t.Errorf("hooks of a read-only project: %v", err)
	}
	in.Binds[0].Source = "/home/dev/work/shop/src"
	if _, err := Resolve(in); err != nil {
		t.Errorf("a part of a read-only project: %v", err)
	}
	// Neither is what is protected in the git directory of a worktree, whether that is
	// written here, is read-only, or can't be mounted.
	for _, c := range []struct {
		readOnly bool
		root     string
	}{{false, "/home/dev/main/.git"}, {true, "/home/dev/main/.git"}, {false, "/tmp/main/.git"}} {
		in := worktree()
		in.ReadOnly, in.Facts.Git.Root = c.readOnly, c.root
		in.Binds = []Mount{{Kind: KindBind, Source: c.root + "/hooks", Target: "/other", Why: "more"}}
		if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), "leads to "+c.root+"/hooks, which is protected") {
			t.Errorf("hooks of a worktree, %+v: %v", c, err)
		}
		in.Binds[0].ReadOnly = true
		if _, err := Resolve(in); err != nil {
			t.Errorf("hooks of a worktree, read-only, %+v: %v", c, err)
		}
		in.Binds[0].ReadOnly, in.Unprotect = false, []string{".git/hooks"}
		if _, err := Resolve(in); err != nil {
			t.Errorf("hooks of a worktree, given free, %+v: %v", c, err)
		}
	}
	// What is given free may be reached twice.
	in = repository()
	in.Unprotect = []string{".claude"}
	in.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/work/shop/.claude", Target: "/other", Why: "more"}}
	if _, err := Resolve(in); err != nil {
		t.Errorf("unprotected: %v", err)
	}
}

// Where a protected path leads that is a link is protected like it, and given free
// with it; where that is elsewhere, no other mount may make it writable.
func TestProtectedThroughLinks(t *testing.T) {
	linked := func(lift ...string) Input {
		in := plain()
		in.Unprotect = lift
		in.Facts.Tree = Tree{Found: map[string]string{".git": FoundDir, ".git/hooks": FoundLink, "githooks": FoundDir, ".envrc": FoundLink, "cfg": FoundDir, "cfg/a": FoundLink, "cfg/envrc": FoundFile, ".claude": FoundLink, ".mcp.json": FoundLink},
			Links: []Link{{Path: ".git/hooks", To: "githooks"}, {Path: ".envrc", To: "cfg/a"}, {Path: ".envrc", To: "cfg/envrc"}, {Path: ".mcp.json", To: "cfg/mcp"}, {Path: ".claude", Outside: "/home/dev/shared"}},
			Files: []string{"cfg/mcp"}}
		return in
	}
	for _, c := range []struct {
		lift []string
		want string
	}{
		{nil, "rw cfg, ro cfg/envrc, ro cfg/mcp (file), ro githooks"},
		{[]string{".git/hooks"}, "rw cfg, ro cfg/envrc, ro cfg/mcp (file)"},
		{[]string{"githooks"}, "rw cfg, ro cfg/envrc, ro cfg/mcp (file)"},
		{[]string{".envrc", ".mcp.json"}, "ro githooks"},
		{[]string{"cfg"}, "ro githooks"},
	} {
		p, err := Resolve(linked(c.lift...))
		if err != nil {
			t.Errorf("%q: %v", c.lift, err)
			continue
		}
		got := slices.DeleteFunc(guards(p), func(s string) bool { return strings.Contains(s, " .") })
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%q: %s", c.lift, got)
		}
	}
	p, err := Resolve(linked())
	if err != nil || !slices.Contains(p.Unheld, p.Project+"/cfg/a") {
		t.Errorf("a link on the way is not looked at: %q, %v", p.Unheld, err)
	}
	for source, want := range map[string]string{"/home/dev/shared": "leads to /home/dev/shared, which is protected in the project", "/home/dev/shared/x": "is protected in the project", "/home/dev/other": ""} {
		for _, lift := range [][]string{nil, {".claude"}} {
			in := linked(lift...)
			in.Binds = []Mount{{Kind: KindBind, Source: source, Target: "/other", Why: "more"}}
			_, err := Resolve(in)
			if refused := want != "" && lift == nil; refused != (err != nil) || refused && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %q: %v", source, lift, err)
			}
		}
	}
	// In the git directory of a worktree, and from the project into it.
	in := worktree()
	in.Facts.Git.Found["x"] = FoundFile
	in.Facts.Git.Links = []Link{{Path: ".envrc", To: "x"}, {Path: ".git/hooks/pre-commit", Outside: "/home/dev/main/ci/check"}}
	if p, err := Resolve(in); err != nil || !slices.Contains(guards(p), "ro /home/dev/main/.git/x") {
		t.Errorf("%v, %v", guards(p), err)
	}
	in.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/main/ci", Target: "/other", Why: "more"}}
	if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), "leads to /home/dev/main/ci/check") {
		t.Errorf("%v", err)
	}
}
