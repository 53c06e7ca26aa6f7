package harness

import (
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
	for _, h := range Table {
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

// TestArgv has every harness new and resumed. Each line with the flag, or with a
// reason not to have it, was tried on the real program.
func TestArgv(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	const c, x = "claude --dangerously-skip-permissions", "codex --dangerously-bypass-approvals-and-sandbox"
	for _, tc := range []struct{ harness, args, want string }{
		{"pi", "", "pi"},
		{"pi", "-c", "pi -c"},
		{"pi", "--session " + id, "pi --session " + id},
		{"pi", "-p hello", "pi -p hello"},

		{"claude", "", c},
		{"claude", "hello", c + " hello"},
		{"claude", "-p hello --model opus", c + " -p hello --model opus"},
		{"claude", "--resume " + id, c + " --resume " + id},
		{"claude", "--resume=" + id + " -p on", c + " --resume=" + id + " -p on"},
		{"claude", "-c", c + " -c"},
		{"claude", "--continue -p on", c + " --continue -p on"},
		{"claude", "--session-id " + id, c + " --session-id " + id},
		{"claude", "--add-dir a b", c + " --add-dir a b"},
		{"claude", "--version", c + " --version"},
		{"claude", "-- --permission-mode", c + " -- --permission-mode"},
		{"claude", "--debug mcp list", c + " --debug mcp list"},
		{"claude", "the mcp server", c + " the mcp server"},
		// Never twice, and never against what the user chose.
		{"claude", "--dangerously-skip-permissions", "claude --dangerously-skip-permissions"},
		{"claude", "-p hi --dangerously-skip-permissions", "claude -p hi --dangerously-skip-permissions"},
		{"claude", "--allow-dangerously-skip-permissions", "claude --allow-dangerously-skip-permissions"},
		{"claude", "--permission-mode plan --resume " + id, "claude --permission-mode plan --resume " + id},
		{"claude", "--permission-mode=plan", "claude --permission-mode=plan"},
		{"claude", "--restricted", "claude --restricted"},
		// Commands of its own, some of which have to come first.
		{"claude", "mcp list", "claude mcp list"},
		{"claude", "logs 01234567", "claude logs 01234567"},
		{"claude", "attach 01234567", "claude attach 01234567"},
		{"claude", "rm 01234567", "claude rm 01234567"},
		{"claude", "agents --json", "claude agents --json"},
		{"claude", "auth status", "claude auth status"},
		{"claude", "setup-token", "claude setup-token"},

		{"codex", "", x},
		{"codex", "hello", x + " hello"},
		{"codex", "-m o3 hello", x + " -m o3 hello"},
		{"codex", "resume " + id, x + " resume " + id},
		{"codex", "resume --last", x + " resume --last"},
		{"codex", "fork " + id, x + " fork " + id},
		{"codex", "exec hello", x + " exec hello"},
		{"codex", "e hello", x + " e hello"},
		{"codex", "exec resume " + id + " on", x + " exec resume " + id + " on"},
		{"codex", "review --uncommitted", x + " review --uncommitted"},
		{"codex", "--version", x + " --version"},
		{"codex", "exec -- -s", x + " exec -- -s"},
		{"codex", "--search", x + " --search"},
		{"codex", "--dangerously-bypass-approvals-and-sandbox", x},
		{"codex", "exec --dangerously-bypass-approvals-and-sandbox hello", "codex exec --dangerously-bypass-approvals-and-sandbox hello"},
		{"codex", "--yolo", "codex --yolo"},
		{"codex", "-a on-request", "codex -a on-request"},
		{"codex", "-anever", "codex -anever"},
		{"codex", "--ask-for-approval=never resume " + id, "codex --ask-for-approval=never resume " + id},
		{"codex", "exec -s read-only hello", "codex exec -s read-only hello"},
		{"codex", "--sandbox read-only", "codex --sandbox read-only"},
		{"codex", "exec --approve-for-me hello", "codex exec --approve-for-me hello"},
		{"codex", "login status", "codex login status"},
		{"codex", "mcp list", "codex mcp list"},
		{"codex", "sandbox true", "codex sandbox true"},

		{"kiro", "", "kiro-cli chat --trust-all-tools"},
		{"kiro", "hello", "kiro-cli chat --trust-all-tools hello"},
		{"kiro", "--resume", "kiro-cli chat --trust-all-tools --resume"},
		{"kiro", "--trust-tools=read", "kiro-cli chat --trust-tools=read"},
		{"gemini", "-p hi", "gemini --yolo -p hi"},
		{"gemini", "--approval-mode plan", "gemini --approval-mode plan"},
		{"gemini", "mcp list", "gemini mcp list"},
		{"opencode", "run hi", "opencode run hi"},
		{"kiro", "--resume-id " + id, "kiro-cli chat --trust-all-tools --resume-id " + id},
		{"kiro", "chat --resume", "kiro-cli chat --resume"},
		{"kiro", "login --use-device-flow", "kiro-cli login --use-device-flow"},
		{"kiro", "--version", "kiro-cli --version"},

		// A command after "--".
		{"", "mytool --resume " + id, "mytool --resume " + id},
		{"", "claude", "claude"},
		{"", "", ""},
	} {
		h := Harness{}
		if tc.harness != "" {
			h = lookup(t, tc.harness)
		}
		args := strings.Fields(tc.args)
		kept := slices.Clone(args)
		if got := strings.Join(h.Argv(args, "", nil), " "); got != tc.want {
			t.Errorf("%s with %q:\n%s\ninstead of\n%s", tc.harness, tc.args, got, tc.want)
		}
		if !slices.Equal(args, kept) {
			t.Errorf("%s with %q changed its arguments", tc.harness, tc.args)
		}
	}
}

// TestThinking: the level as each program says it, and not where the user has said it
// or where the first argument is a command of the program's own.
func TestThinking(t *testing.T) {
	for _, tc := range []struct{ harness, level, args, want string }{
		{"claude", "xhigh", "-p hi", "claude --dangerously-skip-permissions --effort xhigh -p hi"},
		{"claude", "off", "", "claude --dangerously-skip-permissions --effort low"},
		{"claude", "host", "", "claude --dangerously-skip-permissions"},
		{"claude", "xhigh", "--effort low", "claude --dangerously-skip-permissions --effort low"},
		{"claude", "xhigh", "--effort=low", "claude --dangerously-skip-permissions --effort=low"},
		{"claude", "xhigh", "-- --effort", "claude --dangerously-skip-permissions --effort xhigh -- --effort"},
		{"claude", "xhigh", "mcp list", "claude mcp list"},
		{"codex", "xhigh", "exec hi", "codex --dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh exec hi"},
		{"codex", "off", "", "codex --dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=low"},
		{"codex", "max", "-s read-only", "codex -c model_reasoning_effort=max -s read-only"},
		{"codex", "xhigh", `exec -c model_reasoning_effort="low"`, `codex --dangerously-bypass-approvals-and-sandbox exec -c model_reasoning_effort="low"`},
		{"codex", "xhigh", "login", "codex login"},
		{"pi", "xhigh", "", "pi"}, // it is in its settings
		{"gemini", "xhigh", "", "gemini --yolo"},
		{"kiro", "xhigh", "", "kiro-cli chat --trust-all-tools"},
	} {
		h := lookup(t, tc.harness)
		args := strings.Fields(tc.args)
		got := strings.Join(h.Argv(args, tc.level, nil), " ")
		if got != tc.want {
			t.Errorf("%s %s with %q:\n%s\ninstead of\n%s", tc.harness, tc.level, tc.args, got, tc.want)
		}
		if r := h.Reasons(args, tc.level); r != "" && !strings.Contains(got, " "+r) || r == "" && strings.Contains(got, "effort") && !strings.Contains(tc.args, "effort") {
			t.Errorf("%s %s with %q: %q", tc.harness, tc.level, tc.args, r)
		}
	}
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

// TestKeyed: where a program takes its key from, when the run passes it one.
func TestKeyed(t *testing.T) {
	const at = ` -c model_provider=openai-key -c model_providers.openai-key={name="OpenAI", base_url="%s", env_key="%s", wire_api="responses"}`
	const x = "codex --dangerously-bypass-approvals-and-sandbox"
	own := fmt.Sprintf(at, "https://api.openai.com/v1", "OPENAI_API_KEY")
	for _, tc := range []struct {
		harness, args string
		vars          Vars
		want          string
	}{
		{"codex", "exec hi", nil, x + " exec hi"},
		{"codex", "exec hi", Vars{"OTHER": ""}, x + " exec hi"},
		{"codex", "exec hi", Vars{"OPENAI_BASE_URL": "http://llm.test"}, x + ` -c openai_base_url="http://llm.test" exec hi`},
		{"codex", "-c openai_base_url=x", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "http://llm.test"}, x + ` -c openai_base_url=x`},
		{"codex", "exec hi", Vars{"OPENAI_API_KEY": ""}, x + own + " exec hi"},
		{"codex", "", Vars{"CODEX_API_KEY": ""}, x + fmt.Sprintf(at, "https://api.openai.com/v1", "CODEX_API_KEY")},
		{"codex", "", Vars{"CODEX_API_KEY": "", "OPENAI_API_KEY": ""}, x + own},
		{"codex", "", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": `http://llm.test:8080/v1"`}, x + fmt.Sprintf(at, `http://llm.test:8080/v1\"`, "OPENAI_API_KEY")},
		{"codex", "", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}, x},
		{"codex", "resume --last", Vars{"OPENAI_API_KEY": ""}, x + own + " resume --last"},
		// Not against what the user chose, and not for its commands.
		{"codex", "-c model_provider=mine", Vars{"OPENAI_API_KEY": ""}, x + " -c model_provider=mine"},
		{"codex", "-p mine", Vars{"OPENAI_API_KEY": ""}, x + " -p mine"},
		{"codex", "--profile=mine", Vars{"OPENAI_API_KEY": ""}, x + " --profile=mine"},
		{"codex", "exec --oss hi", Vars{"OPENAI_API_KEY": ""}, x + " exec --oss hi"},
		{"codex", "login status", Vars{"OPENAI_API_KEY": ""}, "codex login status"},
		{"claude", "-p hi", Vars{"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "http://llm.test"}, "claude --dangerously-skip-permissions -p hi"},
	} {
		if got := strings.Join(lookup(t, tc.harness).Argv(strings.Fields(tc.args), "", tc.vars), " "); got != tc.want {
			t.Errorf("%s with %q and %q:\n%s\ninstead of\n%s", tc.harness, tc.args, tc.vars, got, tc.want)
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
var full = machine{
	"/home/dev/.claude/", "/home/dev/.claude/.credentials.json", "/home/dev/.claude/settings.json",
	"/home/dev/.claude/projects/-home-dev-work-my-shop-v2/", "/home/dev/.claude/projects/-home-dev-work-my-shop-v2/memory/",
	"/home/dev/.claude/projects/-home-dev-work-other/", "/home/dev/.claude/projects/-home-dev-work-other/memory/",
	"/home/dev/.claude/projects/-tmp-shop/", "/home/dev/.claude/projects/-tmp-shop/memory/",
	"/home/dev/.codex/", "/home/dev/.codex/auth.json", "/home/dev/.codex/sessions/", "/home/dev/.codex/config.toml",
	"/home/dev/.gemini/", "/home/dev/.config/opencode/",
	"/home/dev/.kiro/", "/home/dev/.kiro/sessions/", "/home/dev/.local/share/kiro-cli/data.sqlite3",
	"/home/dev/.pi/", "/home/dev/.pi/agent/auth.json", "/home/dev/.pi/agent/sessions/--home-dev-work-my_shop.v2--/",
	"/home/dev/.pi/agent/sessions/--tmp-shop--/",
}

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

func TestBinds(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		title   string
		m       machine
		project string
		whole   bool
	}{
		{"everything there", full, project, false},
		{"a project that is not at its own path inside", full, "/tmp/shop", false},
		{"nothing there", nil, project, false},
		{"never used in this project", full, "/home/dev/work/new", false},
		{"--bind-harness-home", full, project, true},
		{"--bind-harness-home, nothing there", nil, project, true},
	} {
		for _, h := range append(slices.Clone(Table), Harness{}) {
			fmt.Fprintf(&b, "%s: %q\n", c.title, h.Name)
			text(&b, h.Binds(c.m.input(c.project, c.whole)))
		}
	}
	golden(t, "binds.txt", b.String())
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

func TestPlace(t *testing.T) {
	for _, tc := range []struct {
		harness string
		kind    Extra
		want    string
	}{
		{"pi", Skill, ".pi/agent/skills/x"}, {"pi", Extension, ".pi/agent/extensions/x"}, {"pi", Prompts, ".pi/agent/prompts"}, {"claude", Prompt, ".claude/commands/x"},
		{"codex", Skill, ".codex/skills/x"}, {"codex", Prompt, ""}, {"claude", Extension, ""}, {"kiro", Skill, ""},
	} {
		if got := lookup(t, tc.harness).Place(tc.kind, "x"); got != tc.want {
			t.Errorf("%s, %s: %q", tc.harness, tc.kind, got)
		}
	}
}

// unset is a run that passes no variable.
func unset(string) string { return "" }

func TestSeeds(t *testing.T) {
	var b strings.Builder
	for _, dir := range []string{project, "/project", "/home/dev/a \"b\"\\c\n\x7f<é>"} {
		for _, h := range append(slices.Clone(Table), Harness{}) {
			fmt.Fprintf(&b, "%q in %q\n", h.Name, dir)
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
	}
	golden(t, "seeds.txt", b.String())

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

// TestClaudeKey: claude knows a key that it may use by its end, and of a key that this
// would be much of nothing is written down.
func TestClaudeKey(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "sk-short-0123456789-0123456789-0123456789": "",
		"sk-ant-" + strings.Repeat("x", 60) + "0123456789abcdefghij": "0123456789abcdefghij",
		strings.Repeat("y", 80) + "9876543210abcdefghij\n":           "9876543210abcdefghij",
	} {
		var own struct {
			Responses struct{ Approved []string } `json:"customApiKeyResponses"`
		}
		asked := lookup(t, "claude").Seeds(project, nil, func(name string) string {
			if name != "ANTHROPIC_API_KEY" {
				return ""
			}
			return key
		})
		if err := json.Unmarshal(asked[0].Content, &own); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(own.Responses.Approved, " "); got != want || len(asked[0].Content) > 400 {
			t.Errorf("%q: %q is approved: %s", key, got, asked[0].Content)
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
