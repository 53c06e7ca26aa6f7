//go:build e2e

package jail

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/agenttest"
	"ai-sandbox/tests/e2e/drive"
)

// ofUser gives the box a user's home of its own, with secrets in it, and a PATH.
func (b *box) ofUser(t *testing.T, path ...string) (home string) {
	t.Helper()
	home = filepath.Join(w.own, "users", b.Token)
	for _, name := range []string{".ssh/id_ed25519", ".netrc", ".npmrc", ".bash_history", ".claude.json", "Documents/private", ".nvm/alias/default", ".npm/_cacache/x", ".config/gh/hosts.yml", ".local/share/keyrings/x", ".local/bin/other"} {
		write(t, filepath.Join(home, name), "CANARY-"+b.Token, 0o600)
	}
	for i, p := range path {
		path[i] = filepath.Join(home, p)
	}
	b.Env = append(b.Env, "HOME="+home, "PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))
	return home
}

// tool is a program that says how it was called, and where; after "run" it runs
// what follows.
const tool = `case " $* " in *" run "*) ;; *) echo "$0 called with $*" ;; esac
while test $# -gt 0 && test "$1" != run; do shift; done
test $# -eq 0 || { shift; exec "$@"; }
`

// claudeHeld is what holds claude to the level, whatever a settings file says.
const claudeHeld = `--settings {"env":{"CLAUDE_CODE_EFFORT_LEVEL":"xhigh","CLAUDE_CODE_DISABLE_THINKING":"0","MAX_THINKING_TOKENS":""},"alwaysThinkingEnabled":true}`

// A program installed below the user's home is found, seen read-only at its own
// path with what it stands on, named in the printout, and nothing else of the home
// is there.
func TestInstalledInHome(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, harness, path, want string
		files                     map[string]string // in the home; "-> x" is a link
		bound                     []string          // below the home, and nothing else
	}{
		{
			name: "nvm", harness: "claude", path: ".nvm/versions/node/v22.1.0/bin", want: "claude called with --dangerously-skip-permissions --effort xhigh " + claudeHeld + " -p hi",
			files: map[string]string{
				".nvm/versions/node/v22.1.0/bin/node":                                             "#!/bin/sh\nexec sh \"$@\"\n",
				".nvm/versions/node/v22.1.0/bin/claude":                                           "-> ../lib/node_modules/@anthropic-ai/claude-code/cli.js",
				".nvm/versions/node/v22.1.0/lib/node_modules/@anthropic-ai/claude-code/cli.js":    "#!/usr/bin/env node\n" + tool,
				".nvm/versions/node/v22.1.0/lib/node_modules/@anthropic-ai/claude-code/vendor/rg": "here",
			},
			bound: []string{".nvm/versions/node/v22.1.0"},
		},
		{
			name: "npm prefix", harness: "codex", path: ".npm-global/bin", want: "codex called with --dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh -p hi",
			files: map[string]string{
				".npm-global/bin/codex":                                   "-> ../lib/node_modules/@openai/codex/bin/codex.js",
				".npm-global/lib/node_modules/@openai/codex/bin/codex.js": "#!/bin/sh\n" + tool,
			},
			bound: []string{".npm-global/bin", ".npm-global/lib/node_modules/@openai/codex"},
		},
		{
			name: "local bin", harness: "kiro", path: ".local/bin", want: "kiro-cli called with chat --trust-all-tools -p hi",
			files: map[string]string{".local/bin/kiro-cli": "#!/bin/sh\n" + tool},
			bound: []string{".local/bin/kiro-cli"},
		},
		{
			name: "local share", harness: "claude", path: ".local/bin", want: "claude called with --dangerously-skip-permissions --effort xhigh " + claudeHeld + " -p hi",
			files: map[string]string{
				".local/bin/claude": "-> ../share/claude/versions/2.1.0", ".local/share/claude/versions/2.1.0": "#!/bin/sh\n" + tool,
			},
			bound: []string{".local/bin/claude", ".local/share/claude/versions"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			home := b.ofUser(t, tc.path)
			for name, text := range tc.files {
				path := filepath.Join(home, name)
				if to, ok := strings.CutPrefix(text, "-> "); ok {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(to, path); err != nil {
						t.Fatal(err)
					}
					continue
				}
				write(t, path, text, 0o755)
			}
			r := b.OK("--net", "none", tc.harness, "-p", "hi")
			if !strings.Contains(r.Out, tc.want+"\n") {
				t.Errorf("want %q: %s", tc.want, r)
			}
			look := "find " + home + " -mindepth 1 2>/dev/null; grep -rl CANARY-" + b.Token + " " + home + " /home /root 2>/dev/null; for f in $(find " + home + " 2>/dev/null); do test ! -w $f || test -L $f || echo WRITABLE $f; done; true"
			r = b.OK("--net", "none", tc.harness, "run", "sh", "-c", look)
			seen := 0
			for line := range strings.Lines(r.Out) {
				path, ok := strings.CutPrefix(strings.TrimSpace(line), home+"/")
				if strings.HasPrefix(line, "WRITABLE") {
					t.Errorf("%s", line)
				}
				if !ok {
					continue
				}
				fits := false
				for _, bound := range tc.bound {
					fits = fits || strings.HasPrefix(path+"/", bound+"/") || strings.HasPrefix(bound+"/", path+"/")
				}
				if !fits || strings.HasSuffix(path, "/other") {
					t.Errorf("seen inside: %s", path)
				}
				seen++
			}
			if seen < 3 {
				t.Errorf("nothing was seen: %s", r)
			}
			// The printout names it, and it is as printed.
			p := b.printed("--net", "none", tc.harness, "-p", "hi")
			named := false
			for _, m := range p.Mounts {
				if strings.HasPrefix(m.Target, home+"/") {
					named = true
					if !m.ReadOnly && m.Kind != "symlink" {
						t.Errorf("writable: %+v", m)
					}
				}
			}
			if !named {
				t.Errorf("the printout names nothing below %s: %+v", home, p.Mounts)
			}
		})
	}
	// A program of the project's own directory is not found.
	b := newBox(t)
	b.ofUser(t)
	write(t, filepath.Join(b.Dir, "claude"), "#!/bin/sh\necho PROJECT\n", 0o755)
	b.Env = append(b.Env, "PATH="+b.Dir+":.:"+os.Getenv("PATH"))
	if r := b.Run("--net", "none", "claude", "--version"); r.Code != 125 || !oneError(r, `claude is not installed on this machine, .*npm install -g @anthropic-ai/claude-code.*`) {
		t.Errorf("%s", r)
	}
}

// The flag is added to runs and resumed runs, and not where the user has chosen.
func TestSkipFlags(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	home := b.ofUser(t, ".local/bin")
	for _, name := range []string{"claude", "codex", "kiro-cli", "pi"} {
		write(t, filepath.Join(home, ".local/bin", name), "#!/bin/sh\n"+tool, 0o755)
	}
	for args, want := range map[string]string{
		"claude":                                "--dangerously-skip-permissions --effort xhigh " + claudeHeld,
		"claude --resume x":                     "--dangerously-skip-permissions --effort xhigh " + claudeHeld + " --resume x",
		"claude --permission-mode plan":         "--effort xhigh " + claudeHeld + " --permission-mode plan",
		"claude mcp list":                       "mcp list",
		"codex exec hi":                         "--dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh exec hi",
		"codex resume x":                        "--dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh resume x",
		"codex -a on-request":                   "-c model_reasoning_effort=xhigh -a on-request",
		"kiro --resume":                         "chat --trust-all-tools --resume",
		"pi -c":                                 "--thinking xhigh -c",
		"claude --dangerously-skip-permissions": "--effort xhigh " + claudeHeld + " --dangerously-skip-permissions",
	} {
		r := b.OK(append([]string{"--net", "none"}, strings.Fields(args)...)...)
		if !strings.HasSuffix(strings.TrimSpace(r.Out), "called with "+want) {
			t.Errorf("%s: want %q: %s", args, want, r)
		}
	}
	// A command of the user's own is left alone.
	if r := b.OK("--net", "none", "--", "printf", "%s|", "claude", "--resume"); r.Out != "claude|--resume|" {
		t.Errorf("%s", r)
	}
}

var notPlain = regexp.MustCompile(`[^A-Za-z0-9]`)

// claudeUser is a user who works with claude on the host.
func (b *box) claudeUser(t *testing.T) (home, transcripts string) {
	t.Helper()
	home = b.ofUser(t, ".local/bin")
	write(t, filepath.Join(home, ".local/bin/claude"), "#!/bin/sh\n"+tool, 0o755)
	write(t, filepath.Join(home, ".claude/.credentials.json"), "LOGIN-"+b.Token, 0o600)
	write(t, filepath.Join(home, ".claude/settings.json"), `{"hooks":"CANARY-`+b.Token+`"}`, 0o600)
	write(t, filepath.Join(home, ".claude/skills/x/SKILL.md"), "CANARY-"+b.Token, 0o600)
	write(t, filepath.Join(home, ".claude/projects/-other-project/s.jsonl"), "CANARY-"+b.Token, 0o600)
	transcripts = filepath.Join(home, ".claude/projects", notPlain.ReplaceAllString(b.Dir, "-"))
	write(t, filepath.Join(transcripts, "old.jsonl"), "EARLIER-"+b.Token, 0o600)
	write(t, filepath.Join(transcripts, "memory/MEMORY.md"), "MEMORY-"+b.Token, 0o600)
	return home, transcripts
}

// The login is there to be read, this project's transcripts to be gone on with,
// and nothing else that the host's own claude reads.
func TestHarnessHome(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	home, transcripts := b.claudeUser(t)
	work := notPlain.ReplaceAllString(b.printed("--net", "none", "claude").Workdir, "-")
	script := `cd; cat .claude/.credentials.json; echo; cat .claude/projects/` + work + `/old.jsonl; echo; cat .claude/projects/` + work + `/memory/MEMORY.md; echo
echo NEW >.claude/projects/` + work + `/new.jsonl
( echo x >.claude/.credentials.json ) 2>/dev/null && echo WROTE login
( echo x >.claude/projects/` + work + `/memory/evil.md ) 2>/dev/null && echo WROTE memory
mv .claude/projects/` + work + `/memory .claude/projects/` + work + `/m 2>/dev/null && echo MOVED memory
rm -rf .claude/projects/` + work + `/memory 2>/dev/null; test -e .claude/projects/` + work + `/memory/MEMORY.md || echo REMOVED memory
ls .claude/projects; grep -rl CANARY-` + b.Token + ` / --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys --exclude-dir=opt 2>/dev/null
mkdir -p .claude/skills .claude/hooks && echo '{"hooks":{}}' >.claude/settings.json && echo own
test -s .claude.json && echo seeded; true`
	r := b.OK("--net", "none", "claude", "run", "sh", "-c", script)
	want := "LOGIN-" + b.Token + "\nEARLIER-" + b.Token + "\nMEMORY-" + b.Token + "\n" + work + "\nown\nseeded\n"
	if r.Out != want {
		t.Errorf("want %q: %s", want, r)
	}
	for name, text := range map[string]string{
		filepath.Join(home, ".claude/.credentials.json"): "LOGIN-" + b.Token, filepath.Join(home, ".claude/settings.json"): `{"hooks":"CANARY-` + b.Token + `"}`,
		filepath.Join(transcripts, "new.jsonl"): "NEW\n", filepath.Join(transcripts, "memory/MEMORY.md"): "MEMORY-" + b.Token,
	} {
		if data, err := os.ReadFile(name); err != nil || string(data) != text {
			t.Errorf("%s on the host: %v, %q", name, err, data)
		}
	}
	if names, err := filepath.Glob(filepath.Join(home, ".claude/*")); err != nil || len(names) != 4 {
		t.Errorf("on the host now: %q, %v", names, err)
	}
	// What it is comes in the printout, one line each.
	text := b.OK("--net", "none", "--print-policy", "claude").Out
	for _, line := range []string{`ro bind    /run/aisb-harness/login <-`, `rw bind    /run/aisb-harness/transcripts <-`, `ro bind    /run/aisb-harness/transcripts/memory <-`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q: %s", line, text)
		}
	}
	// A second run finds its own home as it left it, and one that finds a login
	// replaced by its agent puts the host's back.
	b.OK("--net", "none", "claude", "run", "sh", "-c", "rm -f ~/.claude/.credentials.json; echo mine >~/.claude/.credentials.json")
	if r := b.OK("--net", "none", "claude", "run", "sh", "-c", "cat ~/.claude/.credentials.json; cat ~/.claude/settings.json"); !strings.Contains(r.Out, "LOGIN-"+b.Token) || !strings.Contains(r.Out, `{"hooks":{}}`) {
		t.Errorf("%s", r)
	}
	// A command of the user's own gets nothing of it, nor does podman's or another harness.
	if r := b.OK("--net", "none", "--", "sh", "-c", "cat ~/.claude/.credentials.json; ls -A /run/aisb-harness; grep -r LOGIN- ~ /run 2>/dev/null; true"); strings.Contains(r.Out, "LOGIN") {
		t.Errorf("%s", r)
	}
}

// Where there is no memory directory that could be held read-only, the earlier
// sessions stay outside, and that is said.
func TestNoMemoryNoTranscripts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"missing": os.RemoveAll,
		"link": func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.Symlink("/etc", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			_, transcripts := b.claudeUser(t)
			if err := change(filepath.Join(transcripts, "memory")); err != nil {
				t.Fatal(err)
			}
			r := b.OK("--net", "none", "claude", "run", "sh", "-c", "grep -rl EARLIER- ~ /run 2>/dev/null; true")
			if r.Out != "" || !strings.Contains(r.Err, "stay outside") {
				t.Errorf("%s", r)
			}
		})
	}
}

// Links in the user's own directory, which an earlier sandbox could have planted,
// are not followed to what they lead to.
func TestHarnessLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".claude/.credentials.json", "transcripts"} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			home, transcripts := b.claudeUser(t)
			path := filepath.Join(home, name)
			secret := filepath.Join(home, "Documents")
			if name == "transcripts" {
				path = transcripts
				write(t, filepath.Join(secret, "memory/x"), "", 0o600)
			} else {
				secret = filepath.Join(secret, "private")
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(secret, path); err != nil {
				t.Fatal(err)
			}
			r := b.Run("--net", "none", "claude", "run", "sh", "-c", "grep -rl CANARY-"+b.Token+" ~ /run 2>/dev/null; true")
			if strings.Contains(r.Out, "/run/") || strings.Contains(r.Out, "/home/") {
				t.Errorf("%s", r)
			}
		})
	}
}

// A directory that the user mounts where an agent has its own stays as it is.
func TestMountIsNotSeeded(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	home := b.ofUser(t, ".local/bin")
	write(t, filepath.Join(home, ".local/bin/pi"), "#!/bin/sh\n"+tool, 0o755)
	write(t, filepath.Join(home, ".pi/agent/settings.json"), `{"theme":"light"}`, 0o600)
	mine := filepath.Join(home, "mine")
	write(t, filepath.Join(mine, "agent/settings.json"), `{"theme":"dark"}`, 0o600)
	const script = "cd ~/.pi && find . -type f | sort; cat agent/settings.json"
	if r := b.OK("--net", "none", "--thinking", "host", "pi", "run", "sh", "-c", script); !strings.Contains(r.Out, "./agent/AGENTS.md\n") || !strings.Contains(r.Out, `"light"`) {
		t.Errorf("without the mount: %s", r)
	}
	r := b.OK("--net", "none", "--mount", mine+":/home/sandbox/.pi:rw", "pi", "run", "sh", "-c", script)
	if r.Out != "./agent/settings.json\n"+`{"theme":"dark"}` || strings.Count(r.Err, "~/.pi in this sandbox can't be read or replaced (something is mounted there)") != 1 {
		t.Errorf("%s", r)
	}
}

// --bind-harness-home gives all of it, loudly.
func TestBindHarnessHome(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	home, _ := b.claudeUser(t)
	loud := regexp.MustCompile(`HARNESS HOME: the command can change this machine's ~/\.claude`)
	r := b.OK("--net", "none", "--bind-harness-home", "claude", "run", "sh", "-c", "cat ~/.claude/settings.json; echo planted >~/.claude/skills/x/SKILL.md; ls ~/.ssh ~/Documents 2>&1 | grep -c 'No such'")
	if !strings.Contains(r.Out, "CANARY-"+b.Token) || !strings.HasSuffix(r.Out, "2\n") || !loud.MatchString(r.Err) {
		t.Errorf("%s", r)
	}
	if data, err := os.ReadFile(filepath.Join(home, ".claude/skills/x/SKILL.md")); err != nil || string(data) != "planted\n" {
		t.Errorf("%v, %q", err, data)
	}
	if text := strings.Join(strings.Fields(b.OK("--net", "none", "--bind-harness-home", "--print-policy", "claude").Out), " "); !loud.MatchString(text) {
		t.Errorf("the printout is not loud about it: %s", text)
	}
	if text := b.OK("--net", "none", "--print-policy", "claude").Out; strings.Contains(text, "HARNESS HOME") {
		t.Errorf("without the flag: %s", text)
	}
}

// The real pi, claude, codex and gemini from npm, in the test host (which has a way out):
// each starts, asks the far server through the gate, and works without asking.
func TestRealHarnesses(t *testing.T) {
	if !w.testHost {
		t.Fatal("npm can't be reached from here: this runs in the test host alone")
	}
	prefix := filepath.Join(os.Getenv("HOME"), "jail-harnesses") // the store keeps it
	var names []string
	for _, row := range agenttest.Table(t) {
		if row.Name != "pi" { // whose flags TestPiReadsConfiguration looks for
			names = append(names, row.Name)
		}
		name := row.Package + "@" + row.Version
		mark := filepath.Join(prefix, notPlain.ReplaceAllString(row.Package, "-"))
		if have, err := os.ReadFile(mark); err == nil && string(have) == row.Version {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, "npm", "install", "--global", "--prefix", prefix, "--no-audit", "--no-fund", name)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("install %s: %v: %s", name, err, out)
		}
		write(t, mark, row.Version, 0o600)
	}
	user := func(t *testing.T) *drive.Box {
		b := newBox(t)
		home := filepath.Join(w.own, "users", b.Token)
		b.Env = append(b.Env, "HOME="+home, "PATH="+filepath.Join(prefix, "bin")+":"+os.Getenv("PATH"))
		if err := os.MkdirAll(home, 0o700); err != nil {
			t.Fatal(err)
		}
		return b.Box
	}
	t.Run("flags", func(t *testing.T) { agenttest.Flags(t, user(t), names...) })
	t.Run("pi", func(t *testing.T) {
		b := user(t)
		agenttest.Task(t, b, agenttest.Pi(func(name, text string) {
			write(t, filepath.Join(w.own, "users", b.Token, ".pi/agent", name), text, 0o600)
		}))
		unseen(t, b.Host("no.test"))
	})
	for _, a := range []agenttest.Agent{agenttest.Claude, agenttest.Codex, agenttest.Gemini} {
		t.Run(a.Name, func(t *testing.T) {
			b := user(t)
			agenttest.Task(t, b, a)
			unseen(t, b.Host("no.test"))
		})
		if a.Login.File == "" {
			continue
		}
		// The whole of it on podman (TestRealAgents, TestOtherAgents).
		t.Run(a.Name+" goes on", func(t *testing.T) { agenttest.Sessions(t, user(t), a) })
	}
}
