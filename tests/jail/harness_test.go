//go:build e2e

package jail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/model"
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
			name: "nvm", harness: "claude", path: ".nvm/versions/node/v22.1.0/bin", want: "claude called with --dangerously-skip-permissions --effort xhigh -p hi",
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
			name: "local share", harness: "claude", path: ".local/bin", want: "claude called with --dangerously-skip-permissions --effort xhigh -p hi",
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
		"claude":                                "--dangerously-skip-permissions --effort xhigh",
		"claude --resume x":                     "--dangerously-skip-permissions --effort xhigh --resume x",
		"claude --permission-mode plan":         "--effort xhigh --permission-mode plan",
		"claude mcp list":                       "mcp list",
		"codex exec hi":                         "--dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh exec hi",
		"codex resume x":                        "--dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh resume x",
		"codex -a on-request":                   "-c model_reasoning_effort=xhigh -a on-request",
		"kiro --resume":                         "chat --trust-all-tools --resume",
		"pi -c":                                 "-c",
		"claude --dangerously-skip-permissions": "--effort xhigh --dangerously-skip-permissions",
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

// The real claude and codex, from npm, in the test host (which has a way out):
// each starts, asks the far server through the gate, and works without asking.
func TestRealHarnesses(t *testing.T) {
	if !w.testHost {
		t.Fatal("npm can't be reached from here: this runs in the test host alone")
	}
	prefix := filepath.Join(os.Getenv("HOME"), "jail-harnesses") // the store keeps it
	for _, name := range []string{"@anthropic-ai/claude-code@2.1.332", "@openai/codex@0.171.0", "@google/gemini-cli@0.61.0", "opencode-ai@1.18.18"} {
		mark := filepath.Join(prefix, notPlain.ReplaceAllString(name, "-"))
		if _, err := os.Stat(mark); err == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, "npm", "install", "--global", "--prefix", prefix, "--no-audit", "--no-fund", name)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("install %s: %v: %s", name, err, out)
		}
		write(t, mark, "", 0o600)
	}
	mock := startMock(t)
	user := func(t *testing.T) *box {
		b := newBox(t)
		b.Env = append(b.Env, "HOME="+filepath.Join(w.own, "users", b.Token), "PATH="+filepath.Join(prefix, "bin")+":"+os.Getenv("PATH"))
		if err := os.MkdirAll(filepath.Join(w.own, "users", b.Token), 0o700); err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("flags", func(t *testing.T) {
		b := user(t)
		table, err := os.ReadFile("/src/docs/harnesses.md")
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, name := range []string{"claude", "codex", "gemini", "opencode"} {
			row := strings.Join(regexp.MustCompile(`(?m)^\| `+name+` \|.*$`).FindAllString(string(table), -1), "\n")
			r := b.OK("--net", "none", name, "--help")
			help := r.Out + r.Err // opencode's is there
			if name == "codex" {
				help += b.OK("--net", "none", name, "resume", "--help").Out
			}
			if version := regexp.MustCompile("` ([0-9.]+) \\|").FindStringSubmatch(row); version == nil || !strings.Contains(b.OK("--net", "none", name, "--version").Out, version[1]) {
				t.Errorf("%s has another version: %s", name, row)
			}
			for _, flag := range regexp.MustCompile("--[a-z-]+|`resume").FindAllString(row, -1) {
				seen++
				if !regexp.MustCompile(`(?m)(^|[ ,])` + strings.Trim(flag, "`") + `\b`).MatchString(help) {
					t.Errorf("%s has no %s: %s", name, flag, help)
				}
			}
		}
		if seen < 12 {
			t.Errorf("looked for %d flags: %s", seen, table)
		}
	})
	t.Run("claude", func(t *testing.T) {
		b := user(t)
		if r := b.OK("--net", "none", "claude", "--version"); !strings.Contains(r.Out, "2.1.332") {
			t.Errorf("%s", r)
		}
		b.Env = append(b.Env, "ANTHROPIC_API_KEY=k-"+b.Token)
		at := b.Host("ok.test") + ":" + mock.port
		args := []string{"--allow", at, "--env", "ANTHROPIC_API_KEY", "--env", "ANTHROPIC_BASE_URL=http://" + at, "--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		r := b.OK(append(args, "claude", "-p", "TOOLTEST", "--output-format", "stream-json", "--verbose")...)
		if !strings.Contains(r.Out, `"permissionMode":"bypassPermissions"`) || mock.asked("k-"+b.Token) == 0 {
			t.Errorf("the mock was asked %d times: %s", mock.asked("k-"+b.Token), r)
		}
		if !strings.Contains(mock.log.String(), `"effort":"xhigh"`) {
			t.Errorf("how much to reason did not get there: %s", mock.log.String())
		}
		if got := b.File(t, "marker-uid"); got != "1000" {
			t.Errorf("its tool ran as %q", got)
		}
		// It finds its own session again in the next run.
		if r := b.OK(append(args, "claude", "-c", "-p", "again")...); !strings.Contains(r.Out, "hello from mock") {
			t.Errorf("%s", r)
		}
		// Off the list it says that it can't get there, and ends.
		r = b.Run("--env", "ANTHROPIC_API_KEY", "--env", "ANTHROPIC_BASE_URL=http://"+b.Host("no.test")+":"+mock.port, "--env", "CLAUDE_CODE_MAX_RETRIES=0", "--", "timeout", "-k", "1", "20", "claude", "-p", "hi")
		if r.Code == 0 || strings.Contains(r.Out, "hello from mock") {
			t.Errorf("%s", r)
		}
		unseen(t, b.Host("no.test"))
	})
	// A whole task: a file, a command, a host off the list, the end.
	for _, tc := range []struct {
		name, key string
		turns     func(dir, no string) []model.Turn
		args      func(at string) []string
	}{
		{"claude", "ANTHROPIC_API_KEY", func(dir, no string) []model.Turn {
			return []model.Turn{
				{Tool: "Write", Args: map[string]any{"file_path": dir + "/made.txt", "content": "made by the agent\n"}},
				{Tool: "Bash", Args: map[string]any{"command": "sha256sum made.txt | tee sum", "description": "hash"}},
				{Tool: "Bash", Args: map[string]any{"command": "curl -sS https://" + no + "/ 2>&1; true", "description": "fetch"}},
			}
		}, func(at string) []string {
			return []string{"--env", "ANTHROPIC_BASE_URL=http://" + at, "--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "claude", "-p", "do it", "--output-format", "stream-json", "--verbose", "--include-partial-messages"}
		}},
		{"codex", "MOCK_KEY", func(_, no string) []model.Turn {
			return []model.Turn{
				{Tool: "exec_command", Args: map[string]any{"cmd": "echo made by the agent >made.txt"}},
				{Tool: "exec_command", Args: map[string]any{"cmd": "sha256sum made.txt | tee sum"}},
				{Tool: "exec_command", Args: map[string]any{"cmd": "curl -sS https://" + no + "/ 2>&1; true"}},
			}
		}, func(at string) []string {
			return []string{"codex", "exec", "--skip-git-repo-check", "--json", "-c", "model_provider=mock", "-c", "model_providers.mock.name=mock", "-c", "model_providers.mock.base_url=http://" + at + "/v1",
				"-c", "model_providers.mock.wire_api=responses", "-c", "model_providers.mock.env_key=MOCK_KEY", "-c", "model=m", "do it"}
		}},
	} {
		t.Run(tc.name+" does a task", func(t *testing.T) {
			b := user(t)
			no := b.Host("no.test")
			m := &model.Model{Key: "k-" + b.Token + "-0123", Turns: append(tc.turns(b.Dir, no), model.Turn{Text: "The task of " + b.Token + " is done."})}
			l, err := net.Listen("tcp", "198.51.100.10:0")
			if err != nil {
				t.Fatal(err)
			}
			s := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
			go func() { _ = s.Serve(l) }() // ends with the test
			t.Cleanup(func() { s.Close() })
			_, port, _ := net.SplitHostPort(l.Addr().String())
			at := b.Host("ok.test") + ":" + port
			report := filepath.Join(t.TempDir(), "report")
			b.Env = append(b.Env, tc.key+"="+m.Key)
			r := b.OK(append([]string{"--report", report, "--allow", at, "--env", tc.key}, tc.args(at)...)...)
			asked := m.Asked()
			if len(asked) != len(m.Turns) {
				t.Fatalf("the model was asked %d times: %s", len(asked), r)
			}
			sum := sha256.Sum256([]byte("made by the agent\n"))
			hash := hex.EncodeToString(sum[:])
			if got := b.File(t, "sum"); !strings.HasPrefix(got, hash) || b.File(t, "made.txt") != "made by the agent" {
				t.Errorf("the tree has %q", got)
			}
			for i, want := range []string{"/etc/aisb/GUIDE.md", "", hash, "response 403"} {
				if !strings.Contains(asked[i], want) {
					t.Errorf("request %d has no %q: %s", i, want, drive.Tail(asked[i]))
				}
			}
			events, _ := m.Streamed()
			if events < 15 || !strings.Contains(r.Out, "The task of "+b.Token+" is done.") || tc.name == "claude" && strings.Count(r.Out, `"text_delta"`) < 3 {
				t.Errorf("%d events: %s", events, r)
			}
			// Codex asks its maker's hosts too.
			rep := drive.ReadReport(t, report)
			if !slices.ContainsFunc(rep.Refused, func(r map[string]any) bool { return r["host"] == no }) || rep.EndedBy != "command" {
				t.Errorf("%+v", rep)
			}
			unseen(t, no)
		})
	}
	t.Run("codex", func(t *testing.T) {
		b := user(t)
		if r := b.OK("--net", "none", "codex", "--version"); !strings.Contains(r.Out, "0.171.0") {
			t.Errorf("%s", r)
		}
		b.Env = append(b.Env, "MOCK_KEY=k-"+b.Token)
		at := b.Host("ok.test") + ":" + mock.port
		r := b.OK("--allow", at, "--env", "MOCK_KEY", "codex", "exec", "--skip-git-repo-check",
			"-c", "model_provider=mock", "-c", "model_providers.mock.name=mock", "-c", "model_providers.mock.base_url=http://"+at+"/v1", "-c", "model_providers.mock.wire_api=responses",
			"-c", "model_providers.mock.env_key=MOCK_KEY", "-c", "model=m", "hi")
		if !strings.Contains(r.Out+r.Err, "hello from mock") || !strings.Contains(r.Err, "sandbox: danger-full-access") || !strings.Contains(r.Err, "approval: never") || !strings.Contains(r.Err, "reasoning effort: xhigh") || mock.asked("k-"+b.Token) == 0 {
			t.Errorf("the mock was asked %d times: %s", mock.asked("k-"+b.Token), r)
		}
	})
}

// A mock answers as Anthropic's and OpenAI's servers do.
type mock struct {
	port string
	log  drive.Buffer
}

func (m *mock) asked(key string) int { return strings.Count(m.log.String(), key) }

func startMock(t *testing.T) *mock {
	t.Helper()
	l, err := net.Listen("tcp", "198.51.100.10:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mock{}
	_, m.port, _ = strings.Cut(l.Addr().String(), ":")
	s := &http.Server{Handler: http.HandlerFunc(m.answer), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // ends with the test
	t.Cleanup(func() { s.Close() })
	return m
}

func (m *mock) answer(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fmt.Fprintln(&m.log, r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
	fmt.Fprintln(&m.log, regexp.MustCompile(`"effort":"[a-z]*"`).FindAllString(string(body), -1))
	type o = map[string]any
	event := func(name string, v o) {
		v["type"] = name
		text, err := json.Marshal(v)
		if err == nil {
			fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", name, text)
		}
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/messages"):
		var q struct {
			Model  string `json:"model"`
			Stream bool   `json:"stream"`
		}
		_ = json.Unmarshal(body, &q) // what is not there is not used
		message := o{"id": "msg_1", "type": "message", "role": "assistant", "model": q.Model, "content": []o{}, "stop_reason": nil, "stop_sequence": nil, "usage": o{"input_tokens": 1, "output_tokens": 1}}
		block, delta, stop := o{"type": "text", "text": ""}, o{"type": "text_delta", "text": "hello from mock"}, "end_turn"
		if bytes.Contains(body, []byte("TOOLTEST")) && !bytes.Contains(body, []byte("tool_result")) && bytes.Contains(body, []byte(`"Bash"`)) {
			block, stop = o{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": o{}}, "tool_use"
			delta = o{"type": "input_json_delta", "partial_json": `{"command": "id -u >marker-uid", "description": "t"}`}
		}
		if !q.Stream {
			rw.Header().Set("Content-Type", "application/json")
			message["content"], message["stop_reason"] = []o{{"type": "text", "text": "hello from mock"}}, "end_turn"
			_ = json.NewEncoder(rw).Encode(message) // the client tells
			return
		}
		event("message_start", o{"message": message})
		event("content_block_start", o{"index": 0, "content_block": block})
		event("content_block_delta", o{"index": 0, "delta": delta})
		event("content_block_stop", o{"index": 0})
		event("message_delta", o{"delta": o{"stop_reason": stop, "stop_sequence": nil}, "usage": o{"output_tokens": 2}})
		event("message_stop", o{})
	case strings.HasSuffix(r.URL.Path, "/responses"):
		event("response.created", o{"response": o{"id": "r1"}})
		event("response.output_item.done", o{"output_index": 0, "item": o{"type": "message", "role": "assistant", "id": "m1", "content": []o{{"type": "output_text", "text": "hello from mock"}}}})
		event("response.completed", o{"response": o{"id": "r1", "usage": o{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
	default:
		http.Error(rw, `{"error":{"type":"not_found_error","message":"nope"}}`, http.StatusNotFound)
	}
}
