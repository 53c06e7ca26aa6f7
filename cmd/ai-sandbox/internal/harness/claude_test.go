package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestClaude(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	const c = "claude --dangerously-skip-permissions"
	argv(t, "claude", []called{
		{"", c},
		{"hello", c + " hello"},
		{"-p hello --model opus", c + " -p hello --model opus"},
		{"--resume " + id, c + " --resume " + id},
		{"--resume=" + id + " -p on", c + " --resume=" + id + " -p on"},
		{"-c", c + " -c"},
		{"--continue -p on", c + " --continue -p on"},
		{"--session-id " + id, c + " --session-id " + id},
		{"--add-dir a b", c + " --add-dir a b"},
		{"--version", c + " --version"},
		{"-- --permission-mode", c + " -- --permission-mode"},
		{"--debug mcp list", c + " --debug mcp list"},
		{"the mcp server", c + " the mcp server"},
		// Never twice, and never against what the user chose.
		{"--dangerously-skip-permissions", "claude --dangerously-skip-permissions"},
		{"-p hi --dangerously-skip-permissions", "claude -p hi --dangerously-skip-permissions"},
		{"--allow-dangerously-skip-permissions", "claude --allow-dangerously-skip-permissions"},
		{"--permission-mode plan --resume " + id, "claude --permission-mode plan --resume " + id},
		{"--permission-mode=plan", "claude --permission-mode=plan"},
		{"--restricted", "claude --restricted"},
		// Commands of its own, some of which have to come first.
		{"mcp list", "claude mcp list"},
		{"logs 01234567", "claude logs 01234567"},
		{"attach 01234567", "claude attach 01234567"},
		{"rm 01234567", "claude rm 01234567"},
		{"agents --json", "claude agents --json"},
		{"auth status", "claude auth status"},
		{"setup-token", "claude setup-token"},
	})
	const held = ` --settings {"env":{"CLAUDE_CODE_EFFORT_LEVEL":"%s","CLAUDE_CODE_DISABLE_THINKING":"0","MAX_THINKING_TOKENS":""},"alwaysThinkingEnabled":true}`
	xhigh := c + " --effort xhigh" + fmt.Sprintf(held, "xhigh")
	thinking(t, "claude", []thought{
		{"xhigh", "-p hi", xhigh + " -p hi"},
		{"xhigh", "-p 'explain the --effort flag'", xhigh + " -p explain the --effort flag"},
		{"xhigh", "-p '--effort, what is it?'", xhigh + " -p --effort, what is it?"},
		{"off", "", c + " --effort low" + fmt.Sprintf(held, "low")},
		// The user's settings are not replaced.
		{"xhigh", "--settings mine.json", c + " --effort xhigh --settings mine.json"},
		{"host", "", "claude --dangerously-skip-permissions"},
		{"xhigh", "--effort low", "claude --dangerously-skip-permissions --effort low"},
		{"xhigh", "--effort=low", "claude --dangerously-skip-permissions --effort=low"},
		{"xhigh", "-- --effort", xhigh + " -- --effort"},
		{"xhigh", "mcp list", "claude mcp list"},
	})
	for _, name := range []string{"CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_DISABLE_THINKING", "MAX_THINKING_TOKENS"} {
		line(t, "claude", "-p hi", "xhigh", Vars{name: "x"}, c+" -p hi")
	}
	line(t, "claude", "-p hi", "xhigh", Vars{"OTHER": "x"}, xhigh+" -p hi")
	const unsure = "--effort max (unless its settings say another)"
	if got := lookup(t, "claude").Reasons([]string{"--settings", "mine.json"}, "max", nil); got != unsure {
		t.Errorf("%q", got)
	}
	placed(t, "claude", map[Extra]string{Skill: ".claude/skills/x", Prompt: ".claude/commands/x", Prompts: ".claude/commands"})
}

// A key is told by a helper, which asks nothing, and is written down nowhere.
func TestClaudeKey(t *testing.T) {
	const (
		c    = "claude --dangerously-skip-permissions"
		key  = `"ANTHROPIC_API_KEY":""`
		file = `,"CLAUDE_ENV_FILE":"/home/sandbox/.aisb-claude-env.sh"`
		tell = `,"apiKeyHelper":"tr '\\0' '\\n' </proc/$PPID/environ | sed -n s/^ANTHROPIC_API_KEY=//p"`
	)
	keyed(t, "claude", []given{
		{"-p hi", Vars{"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "http://llm.test"}, c + " --settings {\"env\":{" + key + file + "}" + tell + "} -p hi"},
		{"-p hi", Vars{"ANTHROPIC_API_KEY": "", "CLAUDE_ENV_FILE": "/mine"}, c + " --settings {\"env\":{" + key + "}" + tell + "} -p hi"},
		{"-p hi", Vars{"CLAUDE_CODE_OAUTH_TOKEN": ""}, c + " -p hi"},
		// The user's settings are not replaced, and its own commands ask nothing.
		{"--settings mine.json", Vars{"ANTHROPIC_API_KEY": ""}, c + " --settings mine.json"},
		{"mcp list", Vars{"ANTHROPIC_API_KEY": ""}, "claude mcp list"},
	})
	line(t, "claude", "-p hi", "max", Vars{"ANTHROPIC_API_KEY": ""}, c+` --effort max --settings {"env":{"CLAUDE_CODE_EFFORT_LEVEL":"max","CLAUDE_CODE_DISABLE_THINKING":"0","MAX_THINKING_TOKENS":"",`+
		key+file+`},"alwaysThinkingEnabled":true`+tell+"} -p hi")
	// It is JSON, and the program that it names tells what a parent was started with.
	held := claudeHeld("", Vars{"ANTHROPIC_API_KEY": ""})
	var settings struct {
		Helper string `json:"apiKeyHelper"`
	}
	if err := json.Unmarshal([]byte(held), &settings); err != nil {
		t.Fatalf("%v: %s", err, held)
	}
	script := ""
	for _, s := range lookup(t, "claude").Seeds(project, nil, func(string) string { return "sk-CANARY-" + strings.Repeat("0123456789", 10) }) {
		if strings.Contains(string(s.Content), "CANARY") || strings.Contains(string(s.Content), "0123456789") {
			t.Errorf("%s: %s", s.Path, s.Content)
		}
		if s.Path == ".aisb-claude-env.sh" {
			script = string(s.Content)
		}
	}
	for what, argv := range map[string][]string{
		"the helper": {"sh", "-c", "unset ANTHROPIC_API_KEY; sh -c \"$1\"; true", "-", settings.Helper},
		"the script": {"sh", "-c", "ANTHROPIC_API_KEY= sh -c \"$1\"; true", "-", script + `echo "$ANTHROPIC_API_KEY"`},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "A=ANTHROPIC_API_KEY=no", "ANTHROPIC_API_KEY=sk-a=b c"}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "sk-a=b c\n" {
			t.Errorf("%s: %q %v", what, out, err)
		}
	}
}
