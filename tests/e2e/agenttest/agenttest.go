//go:build e2e

// Package agenttest has the real agents work in a sandbox of either runtime, with a
// model of the test's own at the far side of the gate.
package agenttest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/internet"
	"ai-sandbox/tests/e2e/model"
)

// An Agent is how a test speaks with one.
type Agent struct {
	Name string
	// Key is the variable with its key.
	Key string
	// Turns are what its model says: a file is made in dir, hashed, and the host no
	// is asked for, with the agent's own tools.
	Turns func(dir, no string) []model.Turn
	// Flags are of ai-sandbox, for a model that is at an address; and Once the agent's
	// arguments to do one thing and end.
	Flags func(at string) []string
	Once  []string
	// Options is where in Once options and commands may stand.
	Options int
	Login   Login
	// Always are arguments of every run.
	Always []string
	// New begins a session, under ID where it can be given one, and Resume are ways to
	// go on with it.
	New    []string
	Resume [][]string
	// Effort is found in a request, before how much to reason; and so is Thinks, without
	// which it means nothing.
	Effort, Thinks string
	// Overrides are by what it reasons as much as Low says at its next start, if that is
	// left to the host.
	Overrides []Override
	// Configured: where its model is, its configuration says, which is not read for it.
	Configured bool
	// Prompts: it has a place for a user's own.
	Prompts bool
	// Deltas are in what it prints of an answer's parts, or "" where it prints
	// whole ones. Parts finds their text, where the whole is never printed.
	Deltas string
	Parts  *regexp.Regexp
}

// A Login is a file below the user's home, with LOGIN where the key is, and the call of a
// tool that runs a script.
type Login struct {
	File, Text string
	Turn       func(script string) model.Turn
}

// An Override are files that say how much to reason, by what may lie where in the
// sandbox's home and on this machine in the project; or with which arguments a session
// was begun before, and is gone on with.
type Override struct {
	Home, Project map[string]string
	Begun, Again  []string
	Low           string
}

// ID stands for a session's id.
const ID = "ID"

const content = "made by the agent\n"

// Claude is Claude Code, Codex OpenAI's, Gemini Google's and OpenCode is OpenCode.
var (
	Claude = Agent{
		Name: "claude", Key: "ANTHROPIC_API_KEY",
		Turns: func(dir, no string) []model.Turn {
			return []model.Turn{
				{Tool: "Write", Args: map[string]any{"file_path": dir + "/made.txt", "content": content}},
				{Tool: "Bash", Args: map[string]any{"command": "sha256sum made.txt | tee sum", "description": "hash"}},
				{Tool: "Bash", Args: map[string]any{"command": "curl -sS https://" + no + "/ 2>&1; true", "description": "fetch"}},
			}
		},
		Flags: func(at string) []string {
			return []string{"--env", "ANTHROPIC_BASE_URL=http://" + at, "--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		},
		Once: []string{"--output-format", "stream-json", "--verbose", "--include-partial-messages", "-p"},
		Login: Login{
			File: ".claude/.credentials.json",
			Text: `{"claudeAiOauth":{"accessToken":"LOGIN","refreshToken":"none","expiresAt":4102444800000,"scopes":["user:inference","user:profile"],"subscriptionType":"max"}}`,
			Turn: func(script string) model.Turn {
				return model.Turn{Tool: "Bash", Args: map[string]any{"command": script, "description": "look"}}
			},
		},
		New: []string{"--session-id", ID}, Resume: [][]string{{"--resume", ID}, {"--continue"}},
		Effort: `"effort":`, Thinks: `"thinking":{"type":"adaptive"`, Deltas: `"text_delta"`, Prompts: true,
		Overrides: []Override{
			{Home: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_EFFORT_LEVEL":"low"}}`}, Low: "low"},
			{Project: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_EFFORT_LEVEL":"medium"}}`}, Low: "medium"},
			{Home: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_DISABLE_THINKING":"1","MAX_THINKING_TOKENS":"0"},"alwaysThinkingEnabled":false}`}, Low: ""},
			{Home: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_EFFORT_LEVEL":"low","CLAUDE_CODE_DISABLE_THINKING":"1"},"effortLevel":"low"}`},
				Project: map[string]string{".claude/settings.json": `{"env":{"CLAUDE_CODE_EFFORT_LEVEL":"low"}}`}, Low: ""},
		},
	}
	Codex = Agent{
		Name: "codex", Key: "OPENAI_API_KEY",
		Always: []string{"-c", "model=m"}, // one that it does not know gets tools in the form that the model here has
		Turns: func(_, no string) []model.Turn {
			return []model.Turn{
				{Tool: "exec_command", Args: map[string]any{"cmd": "echo made by the agent >made.txt"}},
				{Tool: "exec_command", Args: map[string]any{"cmd": "sha256sum made.txt | tee sum"}},
				{Tool: "exec_command", Args: map[string]any{"cmd": "curl -sS https://" + no + "/ 2>&1; true"}},
			}
		},
		Flags: func(at string) []string { return []string{"--env", "OPENAI_BASE_URL=http://" + at + "/v1"} },
		Once:  []string{"exec", "--skip-git-repo-check", "--json"}, Options: 3,
		Login: Login{
			File: ".codex/auth.json", Text: `{"OPENAI_API_KEY":"LOGIN"}`,
			Turn: func(script string) model.Turn {
				return model.Turn{Tool: "exec_command", Args: map[string]any{"cmd": script}}
			},
		},
		Resume: [][]string{{"resume", ID}, {"resume", "--last"}},
		Effort: `"reasoning":{"effort":`,
		Overrides: []Override{
			{Home: map[string]string{".codex/config.toml": "model_reasoning_effort = \"low\"\n"}, Low: "low"},
		},
	}
	Gemini = Agent{
		Name: "gemini", Key: "GEMINI_API_KEY",
		Always: []string{"--model", "m"}, // without one it asks a small one which to ask
		Turns: func(dir, no string) []model.Turn {
			return []model.Turn{
				{Tool: "write_file", Args: map[string]any{"file_path": dir + "/made.txt", "content": content}},
				{Tool: "run_shell_command", Args: map[string]any{"command": "sha256sum made.txt | tee sum", "description": "hash"}},
				{Tool: "run_shell_command", Args: map[string]any{"command": "curl -sS https://" + no + "/ 2>&1; true", "description": "fetch"}},
			}
		},
		Flags: func(at string) []string { return []string{"--env", "GOOGLE_GEMINI_BASE_URL=http://" + at} },
		Once:  []string{"-o", "stream-json", "-p"},
		New:   []string{"--session-id", ID}, Resume: [][]string{{"--resume", ID}, {"--resume", "latest"}},
		Deltas: `"delta":true`, Parts: regexp.MustCompile(`"content":"([^"]*)","delta":true`),
	}
	OpenCode = Agent{
		Name: "opencode", Key: "OPENAI_API_KEY",
		Turns: func(dir, no string) []model.Turn {
			return []model.Turn{
				{Tool: "write", Args: map[string]any{"filePath": dir + "/made.txt", "content": content}},
				{Tool: "bash", Args: map[string]any{"command": "sha256sum made.txt | tee sum", "description": "hash"}},
				// Outside of the project, which it asks about.
				{Tool: "bash", Args: map[string]any{"command": "cat /etc/hostname; curl -sS https://" + no + "/ 2>&1; true", "description": "fetch", "workdir": "/tmp"}},
			}
		},
		Flags: func(at string) []string {
			return []string{"--env", "OPENCODE_CONFIG_CONTENT=" + `{"model":"own/m","provider":{"own":{"npm":"@ai-sdk/openai-compatible",` +
				`"options":{"baseURL":"http://` + at + `/v1","apiKey":"{env:OPENAI_API_KEY}"},"models":{"m":{}}}}}`}
		},
		Once: []string{"run", "--format", "json"}, Options: 1,
		Resume:     [][]string{{"--session", ID}, {"--continue"}},
		Configured: true,
	}
)

// serve starts a model at an address that is like one of the internet's.
func serve(t *testing.T, m *model.Model) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", internet.Allowed+":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	s := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // ends with the test
	t.Cleanup(func() { s.Close() })
	return port
}

// modelFor is a model for an agent in a box that says turns, the flags that lead there,
// and the address.
func (a Agent) modelFor(t *testing.T, b *drive.Box, turns ...model.Turn) (m *model.Model, flags []string, at string) {
	t.Helper()
	// As long as a real one.
	return a.keyedModel(t, b, "key-"+strings.Repeat("0123456789", 6)+"-"+b.Token, turns...)
}

func (a Agent) keyedModel(t *testing.T, b *drive.Box, key string, turns ...model.Turn) (m *model.Model, flags []string, at string) {
	t.Helper()
	m = &model.Model{Key: key, Turns: turns}
	at = "model.ok.test:" + serve(t, m) // one with the test's token would be taken for a key
	b.Env = append(b.Env, a.Key+"="+m.Key)
	return m, append([]string{"--allow", at, "--env", a.Key}, a.Flags(at)...), at
}

// done are an agent's last words in a box.
func done(b *drive.Box) string { return "The task of " + b.Token + " is done." }

// Pi is pi, with a model that its configuration leads to, which has puts below the home's
// .pi/agent.
func Pi(has func(name, text string)) Agent {
	return Agent{
		Name: "pi", Key: "AI_API_TOKEN",
		Turns: func(_, no string) []model.Turn {
			return []model.Turn{
				{Tool: "write", Args: map[string]any{"path": "made.txt", "content": "made by the agent\n"}},
				{Tool: "bash", Args: map[string]any{"command": "sha256sum made.txt | tee sum"}},
				{Tool: "bash", Args: map[string]any{"command": "curl -sS https://" + no + "/ 2>&1; true"}},
			}
		},
		Flags: func(at string) []string {
			has("models.json", fmt.Sprintf(`{"providers":{"acme":{"baseUrl":"http://%s/v1","api":"openai-completions","apiKey":"never sent","compat":{"supportsReasoningEffort":true},
				"models":[{"id":"m","reasoning":true,"thinkingLevelMap":{"xhigh":"xhigh"}}]}}}`, at))
			return nil
		},
		Once: []string{"--mode", "json", "-p"},
		New:  []string{"--session-id", ID}, Resume: [][]string{{"--session", ID}, {"--continue"}},
		Login: Login{
			File: ".pi/agent/auth.json", Text: `{"acme":{"type":"api_key","key":"LOGIN"}}`,
			Turn: func(script string) model.Turn {
				return model.Turn{Tool: "bash", Args: map[string]any{"command": script}}
			},
		},
		Effort: `"reasoning_effort":`, Deltas: `"type":"message_update"`, Prompts: true,
		Overrides: []Override{
			{Home: map[string]string{".pi/agent/settings.json": `{"defaultProvider":"acme","defaultModel":"m","enabledModels":["acme/m:low"]}`}, Low: "low"},
			{Home: map[string]string{".pi/agent/settings.json": `{"defaultProvider":"acme","defaultModel":"m"}`},
				Project: map[string]string{".pi/settings.json": `{"defaultThinkingLevel":"off"}`}, Low: ""},
			{Project: map[string]string{".pi/settings.json": `{"modelThinkingLevels":{"acme/m":"minimal"}}`}, Low: "minimal"},
			{Home: map[string]string{".pi/agent/settings.json": `{"defaultProvider":"acme","defaultModel":"m","enabledModels":["acme/m:low"]}`},
				Project: map[string]string{".pi/settings.json": `{"defaultThinkingLevel":"off","modelThinkingLevels":{"acme/m":"minimal"}}`},
				Begun:   []string{"--thinking", "low"}, Again: []string{"--continue"}, Low: "low"},
		},
	}
}

// Task is a whole one: the agent makes a file, runs a command, tries a host that is off
// the list, and ends.
func Task(t *testing.T, b *drive.Box, a Agent) {
	no := b.Host("no.test")
	m, flags, at := a.modelFor(t, b, append(a.Turns(b.Dir, no), model.Turn{Text: done(b)})...)

	// Without its host on the list that is said, and nothing is asked.
	r := b.Run(slices.Concat([]string{"--allow", "example.test"}, flags[2:], []string{a.Name, "--version"})...)
	if !a.Configured && !strings.Contains(r.Err, a.Name+" has its model at "+at+", which the allowlist does not let through; add: --allow "+at+"\n") || len(m.Asked()) > 0 {
		t.Errorf("%s", r)
	}

	report := filepath.Join(t.TempDir(), "report")
	r = b.Run(slices.Concat([]string{"--report", report}, flags, []string{a.Name}, a.Always, a.Once, []string{"do it"})...)
	asked := m.Asked()
	if r.Code != 0 || strings.Contains(r.Err, "does not let through") != a.Configured {
		t.Errorf("%s", r)
	}
	if len(asked) != len(m.Turns) {
		t.Fatalf("the model was asked %d times: %s", len(asked), r)
	}
	events, refused := m.Streamed()
	words := r.Out
	if a.Parts != nil {
		for _, p := range a.Parts.FindAllStringSubmatch(r.Out, -1) {
			words += p[1]
		}
	}
	if events < 3*len(m.Turns) || refused > 0 || !strings.Contains(words, done(b)) || a.Deltas != "" && strings.Count(r.Out, a.Deltas) < 3 {
		t.Errorf("%d events were streamed, %d requests without the key: %s", events, refused, r)
	}
	sum := sha256.Sum256([]byte(content))
	hash := hex.EncodeToString(sum[:])
	if got := b.File(t, "sum"); !strings.HasPrefix(got, hash) || b.File(t, "made.txt") != strings.TrimSpace(content) {
		t.Errorf("the tree has %q and %q", b.File(t, "made.txt"), got)
	}
	// What the model was told: the guide, the hash and the refusal.
	for i, want := range []string{"/etc/aisb/GUIDE.md", "", hash, "response 403"} {
		if !strings.Contains(asked[i], want) {
			t.Errorf("request %d has no %q: %s", i, want, drive.Tail(asked[i]))
		}
	}
	if got := a.effort(asked[0]); a.Effort != "" && got != "xhigh" {
		t.Errorf("%q was asked for: %s", got, drive.Tail(asked[0]))
	}
	// It may ask its maker's hosts too.
	rep := drive.ReadReport(t, report)
	if !slices.ContainsFunc(rep.Refused, func(r map[string]any) bool { return r["host"] == no }) || rep.EndedBy != "command" {
		t.Errorf("%+v", rep)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "."+a.Name)); err == nil {
		t.Errorf("%s left something in the project", a.Name)
	}
}

// effort is how much to reason by a request, or "".
func (a Agent) effort(body string) string {
	if m := regexp.MustCompile(regexp.QuoteMeta(a.Effort) + `"([a-z]*)"`).FindStringSubmatch(body); m != nil && strings.Contains(body, a.Thinks) {
		return m[1]
	}
	return ""
}

// Levels asks for each amount of reasoning: words are what has to come of them.
func Levels(t *testing.T, b *drive.Box, a Agent, words map[string]string) {
	m, flags, _ := a.modelFor(t, b)
	for level, word := range words {
		before := len(m.Asked())
		r := b.OK(slices.Concat([]string{"--thinking", level}, flags, []string{a.Name}, a.Always, a.Once, []string{"hi"})...)
		asked := m.Asked()
		if len(asked) != before+1 {
			t.Fatalf("%s: asked %d times: %s", level, len(asked)-before, r)
		}
		if got := a.effort(asked[before]); got != word {
			t.Errorf("%s: %q was asked for, want %q", level, got, word)
		}
	}
}

// Overrides plants what would have the agent reason little. Each does, where that is left
// to the host, and the last one has all of them, and does not where the policy says it.
func Overrides(t *testing.T, b *drive.Box, a Agent) {
	m, flags, _ := a.modelFor(t, b)
	ask := func(flag []string, args ...string) string {
		t.Helper()
		before := len(m.Asked())
		r := b.OK(slices.Concat(flag, flags, []string{a.Name}, a.Always, slices.Insert(slices.Clone(a.Once), a.Options, args...), []string{"hi"})...)
		asked := m.Asked()
		if len(asked) != before+1 {
			t.Fatalf("asked %d times: %s", len(asked)-before, r)
		}
		return a.effort(asked[before])
	}
	for i, o := range a.Overrides {
		// The agent may have removed one, or a start taken out of it what another says.
		for path, text := range o.Home {
			if r := b.RunWith(strings.NewReader(text), "--net", "none", "--", "sh", "-c", `mkdir -p ~/"$(dirname "$1")" && cat >~/"$1"`, "-", path); r.Code != 0 {
				t.Fatalf("%s", r)
			}
		}
		for path, text := range o.Project {
			path := filepath.Join(b.Dir, path)
			t.Cleanup(func() { _ = os.Remove(path) }) // the project's end tells
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if o.Begun != nil {
			ask([]string{"--thinking", "host"}, o.Begun...)
		}
		if got := ask([]string{"--thinking", "host"}, o.Again...); got != o.Low {
			t.Errorf("override %d is none: %q was asked for, want %q", i, got, o.Low)
		}
		if i == len(a.Overrides)-1 {
			if got := ask(nil, o.Again...); got != "xhigh" {
				t.Errorf("%q was asked for", got)
			}
		}
	}
}

// Sessions begins one and goes on with it, as the table in docs/harnesses.md has it: the
// model is told what it said before.
func Sessions(t *testing.T, b *drive.Box, a Agent) {
	id := "5a1f4c52-0c5d-4b7e-9d63-8f0c1b2a3d4e"
	turns := []model.Turn{{Text: "First words of " + b.Token}}
	for range a.Resume {
		turns = append(turns, model.Turn{Text: "More."})
	}
	m, flags, _ := a.modelFor(t, b, turns...)
	for i, session := range append([][]string{a.New}, a.Resume...) {
		args := slices.Clone(session)
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], ID, id)
		}
		r := b.OK(slices.Concat(flags, []string{a.Name}, a.Always, slices.Insert(slices.Clone(a.Once), a.Options, args...), []string{"words"})...)
		if found := regexp.MustCompile(`"(?:thread_id|sessionID)":"([^"]+)"`).FindStringSubmatch(r.Out); found != nil { // codex and opencode say it
			id = found[1]
		}
		asked := m.Asked()
		if len(asked) != i+1 || strings.Contains(asked[i], "First words of "+b.Token) != (i > 0) {
			t.Errorf("%q: asked %d times: %s", session, len(asked), r)
		}
	}
}

// questions are parts of what agents ask in a first run, without spaces, as a screen has
// them: of trust in the directory, of the risk, of a login and a theme. Some would take the
// enter for a yes.
var questions = regexp.MustCompile(`trustthisfolder|trustthefiles|trustandcontinue|trustfolder|yes,iaccept|howwouldyouliketoauthenticate|signinwith|choosethetext|customapikey|connectaprovider`)

// escapes are those of a terminal (ECMA-48, 5.4).
var escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[ -/]*[0-~])|[\s\x00-\x1f]`)

// Terminal is a first run that a user types in: nothing is asked before.
func Terminal(t *testing.T, b *drive.Box, a Agent) {
	// Codex asks for trust in one.
	if out, err := exec.Command("git", "init", "-q", b.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// It is asked as often as enter came through, and a screen has the last answer. The first
	// part of it is drawn at once.
	m, flags, _ := a.modelFor(t, b, slices.Repeat([]model.Turn{{Text: "Said-to-" + b.Token}}, 100)...)
	a.typed(t, b, m, flags)
}

// Keys are such runs with one key and another one in one home. Its commands have the key,
// and nothing of it stays.
func Keys(t *testing.T, b *drive.Box, a Agent) {
	const has = "its length is "
	keys := []string{"key-" + strings.Repeat("0123456789", 6) + "-" + rand.Text(), "short-" + rand.Text()[:10]}
	for _, key := range keys {
		m, flags, _ := a.keyedModel(t, b, key, a.Login.Turn("echo "+has+"${#"+a.Key+"}"), model.Turn{Text: "Said-to-" + b.Token})
		a.typed(t, b, m, flags)
		if asked := m.Asked(); len(asked) < 2 || !strings.Contains(asked[1], fmt.Sprint(has, len(key))) {
			t.Errorf("a command of it has not %d bytes of a key: %s", len(key), drive.Tail(asked[len(asked)-1]))
		}
	}
	// The control: what is in there is found.
	look := "cd; grep -rlaF -e " + b.Token + " . | head -c 1 | wc -c; grep -rlaF -e " + keys[0][len(keys[0])-10:] + " -e " + keys[1][len(keys[1])-10:] + " . ; true"
	if r := b.OK("--net", "none", "--", "sh", "-c", look); r.Out != "1\n" {
		t.Errorf("of the keys there is: %s", r)
	}
}

// typed is a run on a terminal, until its model has said its last words.
func (a Agent) typed(t *testing.T, b *drive.Box, m *model.Model, flags []string) {
	t.Helper()
	term := b.OnTerminal(t, slices.Concat(flags, []string{a.Name}, a.Always)...)
	// It listens some time after its first line, and what is typed too early is lost.
	// Enter by itself: in a burst it is a part of the text.
	answered, tick := 0, 0
	drive.Eventually(t, 5*time.Minute, a.Name+" to ask its model", func() bool {
		switch tick++; tick % 20 {
		case 1:
			term.Send("hello")
		case 8:
			term.Send("\r")
		}
		// Where the cursor is, which codex wants to know.
		for ; answered < strings.Count(term.Out.String(), "\x1b[6n"); answered++ {
			term.Send("\x1b[1;1R")
		}
		time.Sleep(100 * time.Millisecond)
		return len(m.Asked()) > 0
	})
	var screen string
	drive.Eventually(t, 5*time.Minute, a.Name+" to show the answer", func() bool {
		time.Sleep(100 * time.Millisecond)
		screen = strings.ToLower(escapes.ReplaceAllString(term.Out.String(), ""))
		return strings.Contains(screen, "said-to")
	})
	if asked := questions.FindString(screen); asked != "" {
		t.Errorf("%s asks %q: %s", a.Name, asked, drive.Tail(screen))
	}
	if err := term.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	term.Wait()
}

// A Row is an agent that npm has, of the table in docs/harnesses.md.
type Row struct{ Name, Package, Version, Text string }

// Table are all of them.
func Table(t *testing.T) []Row {
	t.Helper()
	text, err := os.ReadFile("/src/docs/harnesses.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []Row
	for _, m := range regexp.MustCompile("(?m)^\\| ([a-z]+) \\| `([^`]+)` ([0-9.]+) \\|.*$").FindAllStringSubmatch(string(text), -1) {
		out = append(out, Row{m[1], m[2], m[3], m[0]})
	}
	if len(out) < 4 {
		t.Fatalf("the table has only %q", out)
	}
	return out
}

// Of is the row of one of them.
func Of(t *testing.T, name string) Row {
	t.Helper()
	all := Table(t)
	i := slices.IndexFunc(all, func(r Row) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("the table has no %s", name)
	}
	return all[i]
}

// said are all flags that an adapter has, those among them by which a user has chosen.
func said(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("/src/cmd/ai-sandbox/internal/harness/testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	list, ok := strings.CutPrefix(line, "flags: ")
	if !ok || len(strings.Fields(list)) < 2 {
		t.Fatalf("%s has no flags: %s", name, line)
	}
	return strings.Fields(list)
}

// Flags looks the flags and versions of the adapters up in the real programs.
func Flags(t *testing.T, b *drive.Box, names ...string) {
	for _, row := range Table(t) {
		name := row.Name
		if !slices.Contains(names, name) {
			continue
		}
		ask := func(args ...string) string {
			r := b.OK(slices.Concat([]string{"--net", "none", "--no-pi-config", name}, args)...)
			return r.Out + r.Err // opencode's is there
		}
		help := ask("--help")
		verbs(t, name, help, ask)
		if name == "codex" {
			help += ask("resume", "--help")
		}
		if version := ask("--version"); !strings.Contains(version, row.Version) {
			t.Errorf("%s has the version %s: %s", name, version, row.Text)
		}
		flags := regexp.MustCompile("--[a-z-]+|`resume").FindAllString(row.Text, -1)
		for _, flag := range slices.Concat(flags, said(t, name)) {
			if strings.HasPrefix(flag, "--no-") || name == "codex" && flag == "--yolo" {
				continue // another name, which its help does not have
			}
			if !helps(help, strings.Trim(flag, "`")) {
				t.Errorf("%s has no %s: %s", name, flag, help)
			}
		}
		if len(flags) < 3 {
			t.Errorf("looked for %q: %s", flags, row.Text)
		}
	}
}

// helps tells whether a program's help has a flag, which another one may begin with.
func helps(help, flag string) bool {
	return regexp.MustCompile(`(?m)(^|[ ,])` + flag + `([ =,<\[|]|$)`).MatchString(help)
}

// LoggedIn is the agent with the file that the user has in his home, which it is shown
// alone and read-only.
func LoggedIn(t *testing.T, b *drive.Box, a Agent, home string) {
	l := a.Login
	dir := filepath.Dir(filepath.Join(home, l.File))
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the next test tells
	key := "login-" + b.Token + "-" + strings.Repeat("0123456789", 6)
	for path, text := range map[string]string{
		filepath.Join(home, l.File): strings.ReplaceAll(l.Text, "LOGIN", key), filepath.Join(dir, "planted-1"): "OTHER-" + b.Token, filepath.Join(dir, "skills/x/planted-2"): "OTHER-" + b.Token,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "cd; ( echo x >>" + l.File + " ) 2>&1; grep -rlF OTHER''-" + b.Token + " ~ /run /tmp 2>/dev/null; echo looked"
	m, _, at := a.modelFor(t, b, l.Turn(script), model.Turn{Text: done(b)})
	m.Key, b.Env = key, b.Env[:len(b.Env)-1]
	args := slices.Concat([]string{"--credentials", "host", "--allow", at}, a.Flags(at), []string{a.Name}, a.Always, a.Once, []string{"do it"})
	r := b.OK(args...)
	asked := m.Asked()
	if len(asked) != 2 || !strings.Contains(r.Out, done(b)) {
		t.Fatalf("asked %d times: %s", len(asked), r)
	}
	if !strings.Contains(asked[1], "looked") || !strings.Contains(asked[1], "Read-only file system") || strings.Contains(asked[1], "planted-") {
		t.Errorf("%s", drive.Tail(asked[1]))
	}
	if text, err := os.ReadFile(filepath.Join(home, l.File)); err != nil || !strings.Contains(string(text), key) || strings.Contains(string(text), "x\n") {
		t.Errorf("the login is now %q, %v", text, err)
	}
	// It is for this run alone, and for who asks.
	if r := b.OK("--net", "none", "--", "sh", "-c", "grep -rlF "+key+" ~ /run /tmp; true"); r.Out != "" {
		t.Errorf("it stayed: %s", r)
	}
}

// Extras shows the agent a skill and a prompt of the user's, which its model is told.
func Extras(t *testing.T, b *drive.Box, a Agent) {
	own := t.TempDir()
	skill, prompt := filepath.Join(own, "probe"), filepath.Join(own, "askme.md")
	if err := os.Mkdir(skill, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(skill, "SKILL.md"): "---\nname: probe\ndescription: SKILL-" + b.Token + "\n---\nNothing more.\n",
		prompt:                           "PROMPT-" + b.Token + " $ARGUMENTS\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, flags, _ := a.modelFor(t, b)
	flags, say, want := append(flags, "--harness-extra", skill), "hi", []string{"SKILL-" + b.Token}
	if a.Prompts {
		flags, say, want = append(flags, "--harness-extra", prompt), "/askme now", append(want, "PROMPT-"+b.Token+" now")
	}
	r := b.OK(slices.Concat(flags, []string{a.Name}, a.Always, a.Once, []string{say})...)
	asked := m.Asked()
	for _, text := range want {
		if len(asked) != 1 || !strings.Contains(asked[0], text) {
			t.Errorf("asked %d times, and not told %q: %s", len(asked), text, r)
		}
	}
}
