// Claude Code, 2.1.332.

package harness

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

var _ = add(Harness{
	Order: 2, Name: "claude", Command: []string{"claude"}, About: "Claude Code",
	Package: "@anthropic-ai/claude-code", Version: "2.1.332",
	// It puts the program of the platform, which is a package of its own, in
	// the place of one that only says that it is not there.
	Scripts: []string{"@anthropic-ai/claude-code"},
	Skip: Skip{
		Flag: "--dangerously-skip-permissions",
		Chosen: Chosen{Choices: []string{
			"--dangerously-skip-permissions", "--allow-dangerously-skip-permissions",
			"--permission-mode", // the flag would win
			"--restricted",      // with the flag it refuses to start
		}},
	},
	Credentials: []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"},
	Hosts:       []string{"api.anthropic.com"}, BaseURL: "ANTHROPIC_BASE_URL",
	Session: Session{New: []string{"--session-id", ID}, Resume: []string{"--resume", ID}, Last: []string{"--continue"}},
	Model:   "--model",
	// It has no less than low.
	Thinking: Thinking{
		Flag: "--effort", Hold: "--settings", Settings: claudeThinks,
		Words: map[string]string{
			"off": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
		},
		Chosen: Chosen{Choices: []string{"--effort"}, Vars: []string{"CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_DISABLE_THINKING", "MAX_THINKING_TOKENS"}},
	},
	// attach, logs, stop, kill, respawn and rm have to come first: behind
	// the flag they are the text of a prompt.
	Verbs: []string{
		"agents", "attach", "auth", "auto-mode", "bridge", "daemon", "doctor", "gateway", "import", "install",
		"kill", "logs", "mcp", "plugin", "plugins", "project", "purge", "remote", "remote-control", "respawn",
		"rm", "self-hosted-agent-proxy", "self-hosted-runner", "setup-token", "stop", "sync", "ultrareview",
		"update", "upgrade",
	},
	guide:  ".claude/CLAUDE.md",
	extras: map[Extra]string{Skill: ".claude/skills", Prompt: ".claude/commands", Prompts: ".claude/commands"},
	dir:    ".claude", credential: ".claude/.credentials.json", transcripts: claudeTranscripts, obeyed: "memory", seeds: claudeSeeds,
	dangers: "settings, hooks, skills, plugins, agents and memories",
	project: []string{".claude/", "CLAUDE.md", "CLAUDE.local.md"},
})

// claudeThinks: variables count for more than the flag, and those in a settings file, of
// the home or the project, for more than those that it is started with. What is given by
// the flag counts for more than either; two of these switch thinking off.
func claudeThinks(word string) string {
	return `{"env":{"CLAUDE_CODE_EFFORT_LEVEL":"` + word + `","CLAUDE_CODE_DISABLE_THINKING":"0","MAX_THINKING_TOKENS":""},"alwaysThinkingEnabled":true}`
}

// claudeSeeds: without the first claude looks for its maker's hosts and asks for
// a theme and for trust, and starts with none of them; without the second it
// asks, at each start with the flag, whether it may go without asking. It also asks,
// with a no as its answer, whether it may use a key of its environment, and knows the
// key again by its end. A key that this would be much of is left to be asked about.
func claudeSeeds(workdir string, value func(string) string) []Seed {
	const end, enough = 20, 60
	own := map[string]any{
		"hasCompletedOnboarding": true,
		"theme":                  "dark",
		"projects":               map[string]any{workdir: map[string]any{"hasTrustDialogAccepted": true}},
	}
	if key := strings.TrimSpace(value("ANTHROPIC_API_KEY")); len(key) >= enough {
		own["customApiKeyResponses"] = map[string]any{"approved": []string{key[len(key)-end:]}, "rejected": []string{}}
	}
	return []Seed{
		{Path: ".claude.json", Mode: 0o600, Content: asJSON(own)},
		{Path: ".claude/settings.json", Mode: 0o600, Content: asJSON(map[string]any{"skipDangerousModePermissionPrompt": true})},
	}
}

// claudeTranscripts is where claude keeps a project's sessions. Each UTF-16 unit
// of the path that is no ASCII letter or digit becomes "-", and a name of more
// than 200 is cut and told apart by a hash. Short names are not: a.b and a-b
// share theirs.
func claudeTranscripts(project string) string {
	const longest = 200
	var name strings.Builder
	var hash int32
	for _, u := range utf16.Encode([]rune(project)) {
		hash = hash*31 + int32(u)
		if u < 0x80 && (u >= '0' && u <= '9' || u|0x20 >= 'a' && u|0x20 <= 'z') {
			name.WriteByte(byte(u))
		} else {
			name.WriteByte('-')
		}
	}
	dir := name.String()
	if len(dir) > longest {
		n := int64(hash)
		if n < 0 {
			n = -n
		}
		dir = dir[:longest] + "-" + strconv.FormatInt(n, 36)
	}
	return ".claude/projects/" + dir
}
