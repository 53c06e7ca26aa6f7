// Claude Code, 2.1.332.

package harness

import (
	"strconv"
	"strings"
	"unicode/utf16"

	"ai-sandbox/policy"
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
	// With these it is another's model, at a host that depends on more.
	Keyed: Keyed{Chosen: Chosen{Vars: []string{
		"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE",
		"CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD", "CLAUDE_CODE_USE_GATEWAY",
	}}},
	Session: Session{New: []string{"--session-id", ID}, Resume: []string{"--resume", ID}, Last: []string{"--continue"}},
	Model:   "--model",
	// It has no less than low.
	Thinking: Thinking{
		Flag: "--effort",
		Words: map[string]string{
			"off": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
		},
		Chosen: Chosen{Choices: []string{"--effort"}, Vars: []string{"CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_DISABLE_THINKING", "MAX_THINKING_TOKENS"}},
	},
	Held: Held{Flag: "--settings", Of: claudeHeld},
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

// claudeHeld: variables count for more than the flag of the level, and those in a settings
// file, of the home or the project, for more than those that it is started with. What is
// given by this flag counts for more than either; two of these switch thinking off.
//
// Of a key in its environment claude asks whether it may use it, with a no as its answer,
// and writes the key's end down. It asks nothing of one that a helper tells: that looks it
// up in claude's own environment, as it was at the start, and claude takes it for empty. Its
// shells get the key back by a script that claude runs ahead of each command.
func claudeHeld(word string, vars Vars) string {
	var env []string
	rest := ""
	if word != "" {
		env = append(env, `"CLAUDE_CODE_EFFORT_LEVEL":"`+word+`","CLAUDE_CODE_DISABLE_THINKING":"0","MAX_THINKING_TOKENS":""`)
		rest += `,"alwaysThinkingEnabled":true`
	}
	if _, ok := vars[claudeKey]; ok {
		env = append(env, `"`+claudeKey+`":""`)
		if _, own := vars[claudeEnvFile]; !own {
			env = append(env, `"`+claudeEnvFile+`":"`+policy.HomeDir+"/"+claudeShell+`"`)
		}
		rest += `,"apiKeyHelper":"` + strings.ReplaceAll(claudeTells, `\`, `\\`) + `"`
	}
	if len(env) == 0 {
		return ""
	}
	return `{"env":{` + strings.Join(env, ",") + `}` + rest + `}`
}

const (
	claudeKey, claudeEnvFile = "ANTHROPIC_API_KEY", "CLAUDE_ENV_FILE"
	// claudeShell is where the script is, below the home, and not below .claude, which may
	// be the host's.
	claudeShell = ".aisb-claude-env.sh"
	// claudeTells is what says the key to a program that claude has started.
	claudeTells = `tr '\0' '\n' </proc/$PPID/environ | sed -n s/^` + claudeKey + `=//p`
)

// claudeSeeds: without the first claude looks for its maker's hosts and asks for
// a theme and for trust, and starts with none of them; without the second it
// asks, at each start with the flag, whether it may go without asking.
func claudeSeeds(workdir string, _ func(string) string) []Seed {
	return []Seed{
		{Path: ".claude.json", Mode: 0o600, Content: asJSON(map[string]any{
			"hasCompletedOnboarding": true,
			"theme":                  "dark",
			"projects":               map[string]any{workdir: map[string]any{"hasTrustDialogAccepted": true}},
		})},
		{Path: ".claude/settings.json", Mode: 0o600, Content: asJSON(map[string]any{"skipDangerousModePermissionPrompt": true})},
		{Path: claudeShell, Mode: 0o600, Content: []byte("# The key of a run that passes one: " + claudeKey + " is empty in claude itself.\n" +
			"[ -n \"$" + claudeKey + "\" ] || export " + claudeKey + "=\"$(" + claudeTells + ")\"\n")},
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
