package harness

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

func lookup(t *testing.T, name string) Harness {
	t.Helper()
	h, ok := Lookup(name)
	if !ok {
		t.Fatalf("there is no harness %s", name)
	}
	return h
}

func TestTable(t *testing.T) {
	var names []string
	for i, h := range Table {
		if slices.Contains(names, h.Name) || h.Name == "" || len(h.Command) == 0 || h.About == "" {
			t.Errorf("%+v has a name that was there, or lacks something", h)
		}
		names = append(names, h.Name)
		if got, ok := Lookup(h.Name); !ok || got.Name != h.Name {
			t.Errorf("Lookup(%q) = %q, %t", h.Name, got.Name, ok)
		}
		// Not sandboxed, the command is the bare one.
		if f := h.Skip.Flag; f != "" && (slices.Contains(h.Command, f) || !slices.Contains(h.Skip.Choices, f)) {
			t.Errorf("%s: the flag belongs into Skip and among its choices, and nowhere else", h.Name)
		}
		if !slices.IsSorted(h.Verbs) {
			t.Errorf("%s: sort the verbs", h.Name)
		}
		if h.credential != "" && !strings.HasPrefix(h.credential, h.dir+"/") {
			t.Errorf("%s: %s is not in %s", h.Name, h.credential, h.dir)
		}
		if h.dir != "" && h.dangers == "" {
			t.Errorf("%s: say why its directory is not to be bound lightly", h.Name)
		}
		if (h.Package == "") != (h.Version == "") {
			t.Errorf("%s: a package without a version, or the reverse", h.Name)
		}
		if h.Package != "" && h.Command[0] != h.Name { // which is what podman's image calls it
			t.Errorf("%s: its program is %s", h.Name, h.Command[0])
		}
		if i > 0 && h.Order <= Table[i-1].Order || h.Order < 1 {
			t.Errorf("%s: its order is %d, which another one has", h.Name, h.Order)
		}
		for _, file := range []string{h.Name + ".go", h.Name + "_test.go"} {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s is in a file that is not called so: %v", h.Name, err)
			}
		}
	}
	if !slices.Contains(names, Default) {
		t.Errorf("the default, %s, is not in the table", Default)
	}
	for _, name := range []string{"", "generic", "bash", "Claude"} {
		if _, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) finds something", name)
		}
	}
}

// Each agent's own test has what ai-sandbox makes of its command lines, in rows of these.
type (
	// called is without a level and a variable, thought with a level, and given with what
	// the run passes.
	called  struct{ args, want string }
	thought struct{ level, args, want string }
	given   struct {
		args string
		vars Vars
		want string
	}
)

// argv has an agent's command lines, new and resumed: each with the flag, or with a reason
// not to have it, was tried on the real program.
func argv(t *testing.T, name string, rows []called) {
	t.Helper()
	for _, r := range rows {
		line(t, name, r.args, "", nil, r.want)
	}
}

// line is one command line; "" is the agent that is none.
func line(t *testing.T, name, args, level string, vars Vars, want string) {
	t.Helper()
	h := Generic
	if name != "" {
		h = lookup(t, name)
	}
	words := split(args)
	kept := slices.Clone(words)
	got := strings.Join(h.Argv(words, level, vars), " ")
	if got != want {
		t.Errorf("%s %s with %q and %q:\n%s\ninstead of\n%s", name, level, args, vars, got, want)
	}
	if !slices.Equal(words, kept) {
		t.Errorf("%s with %q changed its arguments", name, args)
	}
	said := strings.TrimSuffix(h.Reasons(words, level, vars), " (unless its settings say another)")
	if without := strings.Join(h.Argv(words, "", vars), " "); (said == "") != (got == without) || !strings.Contains(got, said) {
		t.Errorf("%s %s with %q: %q", name, level, args, said)
	}
}

// split is like a shell, for words of which some have spaces and stand in quotes.
func split(line string) []string {
	var out []string
	for i, part := range strings.Split(line, `'`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// thinking has the level as the program says it, and not where the user has said it or
// where the first argument is a command of the program's own.
func thinking(t *testing.T, name string, rows []thought) {
	t.Helper()
	for _, r := range rows {
		line(t, name, r.args, r.level, nil, r.want)
	}
}

func keyed(t *testing.T, name string, rows []given) {
	t.Helper()
	for _, r := range rows {
		line(t, name, r.args, "", r.vars, r.want)
	}
}

// placed has where a user's extras called x are seen.
func placed(t *testing.T, name string, want map[Extra]string) {
	t.Helper()
	for _, kind := range []Extra{Skill, Prompt, Prompts, Extension} {
		h, _ := Lookup(name)
		if got := h.Place(kind, "x"); got != want[kind] {
			t.Errorf("%s, %s: %q", name, kind, got)
		}
	}
}

// TestLevels: a program that is told how much to reason has a word for each level.
func TestLevels(t *testing.T) {
	for _, h := range Table {
		for _, level := range Levels {
			if (h.Thinking.Words[level] == "") != (h.Thinking.Flag == "") {
				t.Errorf("%s has no word for %s", h.Name, level)
			}
		}
		if len(h.Thinking.Words) > len(Levels) {
			t.Errorf("%s has words for more than there is", h.Name)
		}
	}
}

// TestArgvOwnsItsTable: what a caller appends to one argv is not in the next.
func TestArgvOwnsItsTable(t *testing.T) {
	for _, h := range Table {
		_ = append(h.Argv(nil, "high", nil), "--planted")
		_ = append(h.Argv([]string{"login"}, "high", nil), "--planted")
		if slices.Contains(h.Argv([]string{"x"}, "high", nil), "--planted") || slices.Contains(h.Command, "--planted") {
			t.Errorf("%s: the table can be written through an argv", h.Name)
		}
	}
}

// machine is a host's home: directories end in "/".
type machine []string

func (m machine) exists(p string) (isDir, ok bool) {
	return slices.Contains(m, p+"/"), slices.Contains(m, p+"/") || slices.Contains(m, p)
}

const (
	hostHome = "/home/dev"
	project  = "/home/dev/work/my_shop.v2"
)

// full is a home in which everything has been used, in more than this project.
var full = func() machine {
	out := machine{hostHome + "/.local/share/kiro-cli/data.sqlite3"}
	for _, h := range Table {
		in := func(path string) { out = append(out, hostHome+"/"+path) }
		in(h.dir + "/")
		in(h.dir + "/sessions/")
		in(h.dir + "/settings.json")
		if h.credential != "" {
			in(h.credential)
		}
		for _, p := range []string{project, "/tmp/shop", hostHome + "/work/other"} {
			if h.transcripts == nil {
				continue
			}
			in(h.transcripts(p) + "/")
			if h.obeyed != "" {
				in(h.transcripts(p) + "/" + h.obeyed + "/")
			}
		}
	}
	return out
}()

func (m machine) input(project string, whole bool) BindInput {
	dir, _ := policy.Workdir(project)
	return BindInput{Home: hostHome, Project: project, Workdir: dir, Exists: m.exists, WholeHome: whole, Login: true}
}

func text(b *strings.Builder, a Access) {
	for _, m := range a.Binds {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		fmt.Fprintf(b, "  %s %s %s %s (%s)\n", m.Kind, mode, m.Source, m.Target, m.Why)
	}
	for _, l := range a.Links {
		fmt.Fprintf(b, "  ~/%s -> %s\n", l.Path, l.To)
	}
	for _, s := range a.Loud {
		fmt.Fprintf(b, "  LOUD %s\n", s)
	}
	for _, s := range a.Notes {
		fmt.Fprintf(b, "  note %s\n", s)
	}
}

// TestBindsShut: what the issue keeps out stays out, whatever is there.
func TestBindsShut(t *testing.T) {
	everywhere := func(dirs bool) func(string) (bool, bool) {
		return func(string) (bool, bool) { return dirs, true }
	}
	for _, h := range Table {
		for _, dirs := range []bool{true, false} {
			in := full.input(project, false)
			in.Exists = everywhere(dirs)
			for _, m := range h.Binds(in).Binds {
				rel := strings.TrimPrefix(m.Source, hostHome+"/")
				transcript := h.transcripts != nil && rel == h.transcripts(project)
				memory := h.obeyed != "" && rel == path.Join(h.transcripts(project), h.obeyed) && m.ReadOnly
				if m.Kind == policy.KindTmpfs && m.Source == "" && h.locks {
					continue
				}
				if rel != h.credential && !transcript && !memory {
					t.Errorf("%s binds %s", h.Name, m.Source)
				}
				if rel == h.credential && !m.ReadOnly {
					t.Errorf("%s: the login is writable", h.Name)
				}
				if !strings.HasPrefix(m.Target, RunDir+"/") {
					t.Errorf("%s: %s is mounted at %s, which the sandbox could have planted", h.Name, m.Source, m.Target)
				}
			}
		}
	}
	claude := lookup(t, "claude")
	dir := "/home/dev/.claude/projects/-home-dev-work-my-shop-v2"
	targets := func(m machine) (out []string) {
		for _, b := range claude.Binds(m.input(project, false)).Binds {
			out = append(out, fmt.Sprint(b.Target, b.ReadOnly))
		}
		return out
	}
	// Positive control: the transcripts are writable, what is obeyed is not.
	if got := targets(machine{dir + "/", dir + "/memory/"}); !slices.Equal(got, []string{RunDir + "/transcripts" + "false", RunDir + "/transcripts/memory" + "true"}) {
		t.Errorf("with a directory of memories: %q", got)
	}
	// A link, or nothing, can't be held: the transcripts stay out, and it is said.
	for _, m := range []machine{{dir + "/"}, {dir + "/", dir + "/memory"}} {
		if got := targets(m); got != nil {
			t.Errorf("with %q: %q", m, got)
		}
		if n := claude.Binds(m.input(project, false)).Notes; len(n) != 1 || !strings.Contains(n[0], "memory") {
			t.Errorf("with %q the notes are %q", m, n)
		}
	}
	// A directory in the place of the login, and a file in that of the transcripts.
	if got := targets(machine{"/home/dev/.claude/.credentials.json/", dir}); got != nil {
		t.Errorf("with the wrong kinds: %q", got)
	}
	// A home that is not known.
	in := full.input(project, false)
	in.Home = ""
	if a := claude.Binds(in); a.Binds != nil || a.Links != nil {
		t.Errorf("without a home: %+v", a)
	}
}

// TestLinks: a link stands for every bind but one inside another, parents come
// first, and an unused place is still named, so that an old link goes.
func TestLinks(t *testing.T) {
	for _, h := range Table {
		none := h.Binds(machine(nil).input(project, false)).Links
		for _, whole := range []bool{false, true} {
			a := h.Binds(full.input(project, whole))
			for i, l := range a.Links {
				if path.IsAbs(l.Path) || path.Clean(l.Path) != l.Path || strings.HasPrefix(l.Path, "..") {
					t.Errorf("%s: %s is not below the home", h.Name, l.Path)
				}
				if l.To != "" && !slices.ContainsFunc(a.Binds, func(m policy.Mount) bool { return m.Target == l.To }) {
					t.Errorf("%s: ~/%s leads to %s, where nothing is mounted", h.Name, l.Path, l.To)
				}
				for _, before := range a.Links[:i] {
					if strings.HasPrefix(before.Path, l.Path+"/") {
						t.Errorf("%s: %s comes after %s", h.Name, l.Path, before.Path)
					}
					if before.To != "" && strings.HasPrefix(l.Path, before.Path+"/") {
						t.Errorf("%s: ~/%s would be made on the host, in ~/%s", h.Name, l.Path, before.Path)
					}
				}
				if !slices.ContainsFunc(none, func(n Link) bool { return n.Path == l.Path && n.To == "" }) {
					t.Errorf("%s: nobody takes the link at ~/%s away", h.Name, l.Path)
				}
			}
		}
	}
}

// TestLogin: the login is bound where it is asked for, alone; in a container nothing
// else of the home ever is.
func TestLogin(t *testing.T) {
	for _, h := range Table {
		for _, asked := range []bool{true, false} {
			in := full.input("", false)
			in.Login, in.Container = asked, true
			got := h.Binds(in)
			want := asked && h.credential != ""
			got.Binds = slices.DeleteFunc(got.Binds, func(m policy.Mount) bool {
				return h.locks && m.Kind == policy.KindTmpfs && path.Dir(m.Target) == RunDir
			})
			if got.LoggedIn != want || (len(got.Binds) == 1) != want || want && (got.Binds[0].Source != hostHome+"/"+h.credential || !got.Binds[0].ReadOnly) || len(got.Loud) > 0 {
				t.Errorf("%s, %t: %+v", h.Name, asked, got)
			}
			for _, l := range got.Links { // an earlier run's is taken away
				if l.Path != h.credential || (l.To != "") != want {
					t.Errorf("%s, %t: %+v", h.Name, asked, l)
				}
			}
			if (len(got.Links) == 1) != (h.credential != "") {
				t.Errorf("%s, %t: %+v", h.Name, asked, got.Links)
			}
		}
	}
}

// unset is a run that passes no variable.
func unset(string) string { return "" }

// TestWhatItGets holds what each agent gets: of the host's home, in its own, and as a layer
// of the image.
func TestWhatItGets(t *testing.T) {
	for _, h := range append(slices.Clone(Table), Generic) {
		var b strings.Builder
		// The end-to-end tests look these up in the real programs (agenttest.Flags).
		flags := slices.Concat([]string{h.Skip.Flag, h.Model, h.Provider, h.Models, h.Thinking.Flag}, h.Session.New, h.Session.Resume, h.Session.Last, h.Session.Others, h.Setting, []string{h.Held.Flag})
		for _, c := range []Chosen{h.Skip.Chosen, h.Keyed.Chosen, h.Thinking.Chosen} {
			flags = slices.Concat(flags, c.Choices, c.Short, c.Levels)
		}
		flags = slices.DeleteFunc(flags, func(f string) bool { return !strings.HasPrefix(f, "-") })
		slices.Sort(flags)
		fmt.Fprintf(&b, "flags: %s\nverbs: %s\n", strings.Join(slices.Compact(flags), " "), strings.Join(slices.Concat(h.Verbs, h.Skip.Behind), " "))
		for _, c := range []struct {
			title   string
			m       machine
			project string
			whole   bool
		}{
			{"everything there", full, project, false},
			{"a project that is not at its own path inside", full, "/tmp/shop", false},
			{"nothing there", nil, project, false},
			{"never used in this project", full, hostHome + "/work/new", false},
			{"--bind-harness-home", full, project, true},
			{"--bind-harness-home, nothing there", nil, project, true},
		} {
			fmt.Fprintf(&b, "%s:\n", c.title)
			text(&b, h.Binds(c.m.input(c.project, c.whole)))
		}
		for _, dir := range []string{project, "/project", "/home/dev/a \"b\"\\c\n\x7f<é>"} {
			fmt.Fprintf(&b, "seeds in %q:\n", dir)
			for _, s := range h.Seeds(dir, h.Binds(full.input(project, false)).Links, unset) {
				fmt.Fprintf(&b, "~/%s %o\n%s", s.Path, s.Mode, s.Content)
				if path.IsAbs(s.Path) || s.Mode != 0o600 {
					t.Errorf("%s: ~/%s has mode %o", h.Name, s.Path, s.Mode)
				}
				if strings.HasSuffix(s.Path, ".json") {
					var back map[string]any
					if err := json.Unmarshal(s.Content, &back); err != nil {
						t.Errorf("%s: %s: %v", h.Name, s.Path, err)
					}
					if s.Path == ".pi/agent/trust.json" && back[dir] != true {
						t.Errorf("%s does not name %q", s.Path, dir)
					}
				}
			}
		}
		if h.Package != "" {
			fmt.Fprintf(&b, "in the image:\n%s", layer(t, h.Name))
		}
		golden(t, cmp.Or(h.Name, "generic")+".txt", b.String())
	}
}

func TestSeeds(t *testing.T) {
	// Nothing is written through a link into the host's home.
	for _, h := range Table {
		own := h.Seeds(project, h.Binds(machine(nil).input(project, true)).Links, unset)
		for _, s := range h.Seeds(project, h.Binds(full.input(project, true)).Links, unset) {
			if strings.HasPrefix(s.Path, h.dir+"/") {
				t.Errorf("%s: ~/%s is seeded on the host", h.Name, s.Path)
			}
		}
		want := 1 // the guide
		if h.seeds != nil {
			want += len(h.seeds(project, unset))
		}
		if len(own) != want {
			t.Errorf("%s: its own directory is not seeded when the host has none", h.Name)
		}
	}
}

// TestTranscripts compares with the directories that the real programs made.
func TestTranscripts(t *testing.T) {
	times := strings.Repeat
	long := "/home/dev/" + times("a", 120) + "/" + times("b", 100)
	for _, c := range []struct{ project, claude, pi string }{
		{"/home/dev/my_proj.x", "-home-dev-my-proj-x", "--home-dev-my_proj.x--"},
		{"/project", "-project", "--project--"},
		{"/home/dev/a b/C.d-e", "-home-dev-a-b-C-d-e", "--home-dev-a b-C.d-e--"},
		{"/home/dev/é_ü", "-home-dev----", "--home-dev-é_ü--"},
		{"/home/dev/e\u0301", "-home-dev-e-", "--home-dev-e\u0301--"},
		{"/home/dev/😀x", "-home-dev---x", "--home-dev-😀x--"},
		{"/home/dev/" + times("x", 190), "-home-dev-" + times("x", 190), "--home-dev-" + times("x", 190) + "--"},
		{"/home/dev/" + times("x", 191), "-home-dev-" + times("x", 190) + "-mf0zgj", "--home-dev-" + times("x", 191) + "--"},
		{long, "-home-dev-" + times("a", 120) + "-" + times("b", 69) + "-5ho1g", "--home-dev-" + times("a", 120) + "-" + times("b", 100) + "--"},
		{"/home/dev/" + times("é", 90) + times("😀", 10) + "/" + times("é", 90), "-home-dev-" + times("-", 190) + "-ujzxp2",
			"--home-dev-" + times("é", 90) + times("😀", 10) + "-" + times("é", 90) + "--"},
	} {
		if got := claudeTranscripts(c.project); got != ".claude/projects/"+c.claude {
			t.Errorf("claude has %q in\n%s\nand not in\n%s", c.project, got, c.claude)
		}
		if got := piTranscripts(c.project); got != ".pi/agent/sessions/"+c.pi {
			t.Errorf("pi has %q in\n%s\nand not in\n%s", c.project, got, c.pi)
		}
	}
	// No project leads out of the directory, whatever it is called.
	for _, p := range []string{"/..", "/../../x", "/", "/.", `/a\..\b`} {
		for _, dir := range []string{claudeTranscripts(p), piTranscripts(p)} {
			if parts := strings.Split(dir, "/"); slices.Contains(parts, "..") || path.Clean(dir) != dir {
				t.Errorf("%q leads to %q", p, dir)
			}
		}
	}
}
