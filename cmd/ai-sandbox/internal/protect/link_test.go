package protect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Where a protected path leads that is a link, in all the ways that one can.
func TestLinks(t *testing.T) {
	outside := real(t)
	many, deep := map[string]string{}, map[string]string{}
	for i := range maxLinks + 1 {
		many[fmt.Sprintf(".claude/l%03d", i)] = fmt.Sprintf("-> ../t%03d", i)
	}
	for i := range maxInside + 1 {
		deep[fmt.Sprintf(".claude/f%04d", i)] = ""
	}
	for name, c := range map[string]struct {
		files map[string]string
		links string // path>to, or path>>outside
		found string // of what is led to, with _ for a space
		note  string
	}{
		"a file":         {files: map[string]string{".envrc": "-> cfg/envrc", "cfg/envrc": ""}, links: ".envrc>cfg/envrc", found: "cfg:directory cfg/envrc:file"},
		"a directory":    {files: map[string]string{".vscode": "-> cfg/vscode", "cfg/vscode/x": ""}, links: ".vscode>cfg/vscode", found: "cfg:directory cfg/vscode:directory"},
		"nothing yet":    {files: map[string]string{".vscode": "-> cfg/vscode", "cfg/": ""}, links: ".vscode>cfg/vscode", found: "cfg:empty_directory"},
		"absolute":       {files: map[string]string{".envrc": "-> /PROJECT/cfg", "cfg": ""}, links: ".envrc>cfg", found: "cfg:file"},
		"a chain":        {files: map[string]string{".envrc": "-> a", "a": "-> d/../b", "d": "-> e/f", "e/f/": "", "e/b": ""}, links: ".envrc>a .envrc>d .envrc>e/b", found: "a:symbolic_link d:symbolic_link e:directory e/b:file"},
		"elsewhere":      {files: map[string]string{".claude": "-> " + outside}, links: ".claude>>/OUTSIDE"},
		"there and back": {files: map[string]string{".envrc": "-> " + outside + "/back/cfg", "cfg": ""}, links: ".envrc>cfg", found: "cfg:file"},
		"nowhere":        {files: map[string]string{".claude": "-> .claude"}},
		"itself":         {files: map[string]string{".vscode": "-> ."}, note: ".vscode leads to /PROJECT, which can't be read-only by itself"},
		"what it is in":  {files: map[string]string{".vscode": "-> ../.."}, note: "can't be read-only by itself"},
		"a repository":   {files: map[string]string{".vscode": "-> .git", ".git/HEAD": ""}, note: ".vscode leads to /PROJECT/.git, which can't"},
		"odd names":      {files: map[string]string{".vscode": "-> a\tb"}, note: "can't be read-only by itself"},
		"hooks":          {files: map[string]string{".git/HEAD": "", ".git/hooks": "-> ../githooks", "githooks/x": ""}, links: ".git/hooks>githooks", found: "githooks:directory"},
		"a hook":         {files: map[string]string{".git/HEAD": "", ".git/hooks/pre-commit": "-> ../../ci/check", "ci/check": ""}, links: ".git/hooks/pre-commit>ci/check", found: "ci:directory ci/check:file"},
		"deep in a directory": {files: map[string]string{".claude/a/b": "-> ../../x", ".claude/c": "-> a", "x/y": "-> ../z", "z": ""},
			links: ".claude/a/b/y>z .claude/a/b>x", found: "x:directory z:file"},
		"where the configuration leads": {files: map[string]string{".git/HEAD": "", ".git/config": "[core]\nhooksPath = hl", "hl": "-> real", "real/x": ""}, links: "hl>real", found: "hl:symbolic_link real:directory"},
		"the configuration":             {files: map[string]string{".git/HEAD": "", ".git/config": "-> ../cfg", "cfg": "[core]\nhooksPath = real", "real/x": ""}, links: ".git/config>cfg", found: "cfg:file real:directory"},
		"info":                          {files: map[string]string{".git/HEAD": "", ".git/info": "-> ../i", "i/": ""}, links: ".git/info/attributes>i/attributes", found: "i:empty_directory"},
		"modules":                       {files: map[string]string{".git/HEAD": "", ".git/modules": "-> ../m", "m/": ""}, links: ".git/modules>m", found: "m:directory"},
		"worktrees":                     {files: map[string]string{".git/HEAD": "", ".git/worktrees": "-> ../w", "w/": ""}, links: ".git/worktrees>w", found: "w:directory"},
		"a submodule": {files: map[string]string{".git/HEAD": "", ".git/modules/m": "-> ../../m", "m/hooks/x": ""},
			links: ".git/modules/m/commondir>m/commondir .git/modules/m/config.worktree>m/config.worktree .git/modules/m/config>m/config .git/modules/m/hooks>m/hooks .git/modules/m/info/attributes>m/info/attributes .git/modules/m/modules>m/modules",
			found: ".git/modules:directory .git/modules/m:symbolic_link m:directory m/hooks:directory"},
		"a worktree": {files: map[string]string{".git/HEAD": "", ".git/worktrees/w": "-> ../../w", "w/gitdir": ""},
			links: ".git/worktrees/w/commondir>w/commondir .git/worktrees/w/config.worktree>w/config.worktree .git/worktrees/w/gitdir>w/gitdir .git/worktrees/w/modules>w/modules",
			found: ".git/worktrees:directory .git/worktrees/w:symbolic_link w:directory w/gitdir:file"},
		"a submodule's modules": {files: map[string]string{".git/HEAD": "", ".git/modules/m/HEAD": "", ".git/modules/m/modules": "-> ../../../n", "n/": ""},
			links: ".git/modules/m/modules>n", found: ".git/modules:directory .git/modules/m:directory .git/modules/m/modules:symbolic_link n:directory"},
		"too many links": {files: many, note: "more links among the protected paths than are followed"},
		"too many names": {files: deep, note: "more in .claude than is looked at"},
	} {
		dir := real(t)
		for k, v := range c.files {
			c.files[k] = strings.ReplaceAll(v, "/PROJECT", dir)
		}
		if name == "there and back" {
			plant(t, outside, map[string]string{"back": "-> " + dir})
		}
		plant(t, dir, c.files)
		p, err := Look(dir, "", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		show := strings.NewReplacer(dir, "/PROJECT", outside, "/OUTSIDE").Replace
		var got []string
		for _, l := range p.Tree.Links {
			if l.To != "" {
				got = append(got, l.Path+">"+l.To)
			} else {
				got = append(got, l.Path+">>"+show(l.Outside))
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != c.links && name != "too many links" {
			t.Errorf("%s: links %s\nand not %s", name, got, c.links)
		}
		for _, k := range strings.Fields(c.found) {
			k, want, _ := strings.Cut(strings.ReplaceAll(k, "_", " "), ":")
			if got := p.Tree.Found[k]; got != want {
				t.Errorf("%s: found %q at %s", name, got, k)
			}
		}
		if note := show(strings.Join(p.Tree.Notes, "\n")); !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%s: notes %q", name, note)
		}
	}
}
