package harness

import (
	"encoding/json"
	"fmt"
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

// It reads its variables by itself.
func TestClaudeReadsItsKey(t *testing.T) {
	keyed(t, "claude", []given{
		{"-p hi", Vars{"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": "http://llm.test"}, "claude --dangerously-skip-permissions -p hi"},
	})
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
