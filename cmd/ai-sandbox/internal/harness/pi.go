// Pi, 1.6.0.

package harness

import (
	"strings"
)

var _ = add(Harness{
	Order: 1, Name: "pi", Command: []string{"pi"}, About: "the pi coding agent (default)",
	Package: "@earendil-works/pi-coding-agent", Version: "1.6.0",
	Token: "AI_API_TOKEN", Bridge: true, Credentials: []string{"AI_API_TOKEN"},
	// Its hosts are its providers' (see pibridge).
	Session: Session{New: []string{"--session-id", ID}, Resume: []string{"--session", ID}, Last: []string{"--continue"}, Others: []string{"-c", "--resume", "-r", "--fork"}},
	Model:   "--model", Provider: "--provider", Models: "--models",
	// It is in its settings, too (pibridge), for whatever else starts it inside. But there
	// a session's own level, a project's settings and a model's count for more.
	Thinking: Thinking{
		Flag: "--thinking", Chosen: Chosen{Choices: []string{"--thinking"}, Levels: []string{"--model", "--models"}},
		Words: map[string]string{
			"off": "off", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
		},
	},
	// They have to come first.
	Verbs:  []string{"auth", "config", "install", "list", "mcp", "remove", "uninstall", "update"},
	guide:  ".pi/agent/AGENTS.md",
	extras: map[Extra]string{Skill: ".pi/agent/skills", Prompt: ".pi/agent/prompts", Prompts: ".pi/agent/prompts", Extension: ".pi/agent/extensions"},
	dir:    ".pi", credential: ".pi/agent/auth.json", locks: true, transcripts: piTranscripts, seeds: piSeeds,
	dangers: "extensions, skills, MCP servers and the commands that auth.json may name",
	project: []string{".pi/"},
})

// piSeeds: without it pi asks for trust in a project with a .pi directory, and
// does without that when it can't ask.
func piSeeds(workdir string, _ func(string) string) []Seed {
	return []Seed{{Path: ".pi/agent/trust.json", Mode: 0o600, Content: asJSON(map[string]any{workdir: true})}}
}

// piTranscripts is where pi keeps a project's sessions.
func piTranscripts(project string) string {
	name := strings.NewReplacer("/", "-", `\`, "-", ":", "-").Replace(strings.TrimPrefix(project, "/"))
	return ".pi/agent/sessions/--" + name + "--"
}
