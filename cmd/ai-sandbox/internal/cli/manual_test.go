package cli

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
)

var update = flag.Bool("update", false, "write docs/reference.md")

// The document is what the command line's definitions say.
func TestReference(t *testing.T) {
	const file = "../../../../docs/reference.md"
	if *update {
		if err := os.WriteFile(file, []byte(Reference()), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != Reference() {
		t.Errorf("%s is not as the definitions are (%v): go test ./cmd/ai-sandbox/internal/cli -run TestReference -update", file, err)
	}
}

// Every verb has a page with its examples and all of its flags, and no text of ours is
// taken for a request of the formatter's.
func TestManPages(t *testing.T) {
	for _, name := range append([]string{""}, verbNames()...) {
		text := ManPage(name)
		for _, part := range []string{".SH NAME\nai\\-sandbox", ".SH SYNOPSIS\nai\\-sandbox", ".SH \"EXAMPLES\"\n.PP\n.EX\n", ` "EXIT STATUS"`} {
			if !strings.Contains(text, part) {
				t.Errorf("%q has no %q", name, part)
			}
		}
		use, own := config.UseRun, []ownFlag(nil)
		if v, ok := lookupVerb(name); ok {
			use, own = v.use, v.flags
		}
		for _, o := range config.Options {
			if o.In(config.InFlag) && o.Use&use != 0 && !strings.Contains(text, ".B \\-\\-"+strings.ReplaceAll(o.Flag(), "-", `\-`)) {
				t.Errorf("%q does not tell of --%s", name, o.Flag())
			}
		}
		for _, f := range own {
			if !strings.Contains(text, ".B \\-\\-"+strings.ReplaceAll(f.name, "-", `\-`)) {
				t.Errorf("%q does not tell of --%s", name, f.name)
			}
		}
		for line := range strings.Lines(text) {
			request, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			known := []string{".TH", ".SH", ".SS", ".br", ".PP", ".EX", ".EE", ".TP", ".B", ".BR"}
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !slices.Contains(known, request) {
				t.Errorf("%q: %q", name, line)
			}
		}
	}
	s := newStage(t)
	if s.do("manual", "exec") != 0 || s.out.String() != ManPage("exec") {
		t.Errorf("%s%s", s.out.String(), s.err.String())
	}
	if s.do("manual", "x") != 2 || s.do("manual", "--markdown") != 0 || s.out.String() != Reference() {
		t.Errorf("%s%s", s.out.String(), s.err.String())
	}
	if got := roffLine(`.a 'b' \c --d`); got != "\\&.a \\(aqb\\(aq \\ec \\-\\-d\n" {
		t.Errorf("%q", got)
	}
}

// What has sub-verbs says of each which flags it takes and how it ends: no code or flag
// stands there for another's.
func TestManualOfSubVerbs(t *testing.T) {
	reference := Reference()
	for _, v := range verbs() {
		if len(v.subs) > 0 && v.exit != nil {
			t.Errorf("%s does nothing itself and has exit codes", v.name)
		}
		man := ManPage(v.name)
		for _, sub := range v.subs {
			name := v.name + " " + sub.name
			_, part, ok := strings.Cut(reference, "\n### ai-sandbox "+name+"\n")
			part, _, _ = strings.Cut(part, "\n##")
			_, manPart, inMan := strings.Cut(man, ".SH \""+strings.ToUpper(name)+"\"\n")
			manPart, _, _ = strings.Cut(manPart, ".SH ")
			if !ok || !inMan || len(sub.exit) == 0 {
				t.Errorf("%s has no part of its own", name)
				continue
			}
			want := map[string]bool{}
			for _, f := range sub.flags {
				want["--"+f.name] = true
			}
			for _, o := range config.Options {
				if o.In(config.InFlag) && o.Use&sub.use != 0 {
					want["--"+o.Flag()] = true
				}
			}
			got := map[string]bool{}
			for line := range strings.Lines(part) {
				if flag, ok := strings.CutPrefix(line, "| `--"); ok {
					got["--"+flag[:strings.IndexAny(flag, " `,[")]] = true
				}
			}
			if !maps.Equal(want, got) {
				t.Errorf("%s: flags %v, not %v", name, got, want)
			}
			for _, e := range sub.exit {
				if !strings.Contains(part, "| `"+e[0]+"` | "+e[1]+" |\n") || !strings.Contains(manPart, ".B "+e[0]+"\n"+roffLine(e[1])) {
					t.Errorf("%s does not tell of its %q", name, e)
				}
			}
			if n := strings.Count(manPart, "\n.TP\n"); n != len(want)+len(sub.exit) {
				t.Errorf("%s: %d items in its man page, not %d: %s", name, n, len(want)+len(sub.exit), manPart)
			}
		}
	}
}

func TestCandidates(t *testing.T) {
	s := newStage(t)
	s.write(s.config, "[profile mine]\nnet = none\n")
	s.write(filepath.Join(s.project, config.ProjectFile), "[profile theirs]\nnet = none\n")
	s.engine.Sessions = func(Machine) ([]session.Summary, error) {
		return []session.Summary{
			{ID: "00000000000a", State: session.StateLive, Kind: "session", Command: []string{"pi", "\x1b[2J"}},
			{ID: "00000000000b", State: session.StateLive, Kind: store.KindSandbox},
			{ID: "00000000000c", State: session.StateEnded, Kind: "session"},
			{ID: "00000000000d", State: session.StateKept, Kind: "session"},
			{ID: "00000000000e", State: session.StateKept, Kind: store.KindSandbox},
			{ID: "$(reboot)", State: session.StateLive, Kind: "session"},
		}, nil
	}
	net, _ := config.Lookup("net")
	for _, c := range []struct {
		words string // after a "|" each
		want  string
		has   bool // want is among others
	}{
		{"|bui", "build", false},
		{"|pi", "pi", false},
		{"|gate|", "up down ls unit logs reload", false},
		{"|gate|down|", "work wide", false},
		{"|gate|up|", "", false},
		{"|gate|reload|w", "work wide", false},
		{"|gate|unit|w", "work wide", false},
		{"|gate|logs|work|--session|", "00000000000a 00000000000b 00000000000c 00000000000d 00000000000e", false},
		{"|--net|", strings.Join(net.Values, " "), false},
		{"|--net=u", "--net=unix", false},
		{"|--net|none|--fs|r", "rw ro", false},
		{"|--keep=", "--keep=true --keep=false", false},
		{"|--no-ag", "--no-agents", false},
		{"|--gate|w", "work wide", false},
		{"|--profile|", "mine theirs bwrap-local gated local", false},
		{"|up|--profile=m", "--profile=mine", false},
		{"|exec|", "00000000000a 00000000000b", false},
		{"|stop|", "00000000000a 00000000000b", false},
		{"|rm|", "00000000000c 00000000000d", false},
		{"|down|", "00000000000b 00000000000e", false},
		{"|logs|", "00000000000a 00000000000b 00000000000c 00000000000d 00000000000e", false},
		{"|wait|--timeout|5s|", "00000000000b 00000000000e", false},
		{"|wait|00000000000b|--r", "--ready", false},
		{"|exec|00000000000a|", "", false},
		{"|help|wa", "wait", false},
		{"|help|gate|", "up down ls unit logs reload", false},
		{"|help|gate|up|", "", false},
		{"|help|ls|", "", false},
		{"|policy|show|", "00000000000a 00000000000b", false},
		{"|allow|", "00000000000a 00000000000b", false},
		{"|completion|", "bash zsh fish", false},
		{"|clean|--v", "--volumes", false},
		{"|--allow|", "", false}, // any host
		{"|--ca-file|", "", false},
		// What is a command's or a harness's is not ours to complete.
		{"|--|b", "", false},
		{"|pi|--ne", "", false},
		{"|exec|00000000000a|--|--n", "", false},
		{"|--unknown|b", "", false},
		{"|--hel", "--help", false},
		{"|", "ls", true},
		{"|", "claude", true},
	} {
		words := strings.Split(c.words, "|")[1:]
		if code := s.do(append([]string{"completion", "zsh", "--"}, words...)...); code != 0 || s.err.Len() > 0 {
			t.Errorf("%q: exit %d: %s", words, code, s.err.String())
		}
		var got []string
		for line := range strings.Lines(s.out.String()) {
			word, about, ok := strings.Cut(line, "\t")
			if !ok || strings.ContainsAny(about, "\x1b\t") {
				t.Errorf("%q: %q", words, line)
			}
			got = append(got, word)
		}
		if c.has && !slices.Contains(got, c.want) || !c.has && strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q", words, got)
		}
	}
	for line, want := range map[string]string{"--net|=|u": "unix\t\n", "--net|=": strings.Join(net.Values, "\t\n") + "\t\n", "--net=u": "unix\t\n", "--net|u": "unix\t\n"} {
		if s.do(append([]string{"completion", "bash", "--"}, strings.Split(line, "|")...)...); s.out.String() != want {
			t.Errorf("%s: %q", line, s.out.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if s.do("completion", shell) != 0 || s.out.String() != completionScripts[shell] {
			t.Errorf("%s: %s", shell, s.err.String())
		}
	}
	if code := s.do("completion", "tcsh"); code != 2 {
		t.Errorf("exit %d", code)
	}
}

// bash itself asks with the words up to the cursor and takes what it is told.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "completion.bash")
	program := filepath.Join(dir, "ai-sandbox")
	if err := os.WriteFile(script, []byte(completionScripts["bash"]), 0o600); err != nil {
		t.Fatal(err)
	}
	const says = "#!/bin/sh\nprintf '%s|' \"$@\" >\"$0.asked\"\nprintf 'down\\tEnd a gate; $(touch \"$0.obeyed\")\\nls\\tList gates.\\n'\n"
	if err := os.WriteFile(program, []byte(says), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	out, err := exec.Command("bash", "--norc", "-c", `source "$1"; complete -p ai-sandbox; COMP_WORDS=("$2" gate "" more); COMP_CWORD=2; _ai_sandbox; printf '<%s>' "${COMPREPLY[@]}"`, "bash", script, program).CombinedOutput()
	if err != nil || string(out) != "complete -o bashdefault -o default -F _ai_sandbox ai-sandbox\n<down><ls>" {
		t.Errorf("%v: %s", err, out)
	}
	asked, err := os.ReadFile(program + ".asked")
	if err != nil || string(asked) != "completion|bash|--|gate||" {
		t.Errorf("asked %q, %v", asked, err)
	}
	if _, err := os.Stat(program + ".obeyed"); err == nil {
		t.Error("what a candidate is was run")
	}
}
