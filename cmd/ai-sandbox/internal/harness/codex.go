// OpenAI's Codex, 0.171.0.

package harness

import (
	"fmt"
	"strings"
)

var _ = add(Harness{
	Order: 3, Name: "codex", Command: []string{"codex"}, About: "OpenAI's Codex",
	Package: "@openai/codex", Version: "0.171.0",
	// It is an option of codex itself, and counts for exec, resume, fork
	// and review when it stands before them.
	Skip: Skip{
		Flag: "--dangerously-bypass-approvals-and-sandbox",
		Chosen: Chosen{
			Choices: []string{
				// It is an error twice, and with each of these but the sandbox's,
				// which it would override.
				"--dangerously-bypass-approvals-and-sandbox", "--yolo",
				"--ask-for-approval", "--approve-for-me", "--sandbox",
			},
			Short: []string{"-a", "-s"},
			Keys:  []string{"approval_policy", "sandbox_mode", "default_permissions"}, // it would override them
		},
	},
	// It reads the second one itself in exec alone, and the others never.
	Credentials: []string{"OPENAI_API_KEY", "CODEX_API_KEY"},
	Keyed: Keyed{Args: codexKey, Chosen: Chosen{
		Keys: []string{"model_provider", "openai_base_url"}, Choices: []string{"--profile", "--oss", "--local-provider"}, Short: []string{"-p"},
	}},
	// The second is for a login with ChatGPT.
	Hosts: []string{"api.openai.com", "chatgpt.com"}, BaseURL: "OPENAI_BASE_URL",
	HostOf:  map[string]string{"OPENAI_API_KEY": "api.openai.com", "CODEX_API_KEY": "api.openai.com"},
	Session: Session{Resume: []string{"resume", ID}, Last: []string{"resume", "--last"}},
	Model:   "--model",
	Setting: []string{"--config", "-c"},
	// Its models have no less than low (codex debug models).
	Thinking: Thinking{Flag: "-c", Before: "model_reasoning_effort=", Chosen: Chosen{Keys: []string{"model_reasoning_effort"}}, Words: map[string]string{
		"off": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
	}},
	Verbs: []string{
		"a", "agents", "app-server", "apply", "archive", "cloud", "completion", "debug", "delete", "doctor",
		"exec-server", "features", "help", "login", "logout", "mcp", "migrate-nfs-db", "migrate-rollouts",
		"plugin", "queue", "remote-control", "sandbox", "unarchive", "update",
	},
	// Its sessions are filed by date, all projects' together, and stay out.
	guide:  ".codex/AGENTS.md",
	extras: map[Extra]string{Skill: ".codex/skills"},
	dir:    ".codex", credential: ".codex/auth.json", seeds: codexSeeds,
	dangers: "configuration, hooks, skills, plugins, MCP servers and rules, and, where its background server runs, the socket that commands it",
	project: []string{".codex/"},
})

// codexKey is a provider that differs from its own by taking the key from a variable,
// and so asks for no login. Its own can't be changed.
func codexKey(name, address string) []string {
	switch {
	case name == "" && address == "":
		return nil
	case name == "":
		return []string{"-c", "openai_base_url=" + tomlString(address)}
	case address == "":
		address = "https://api.openai.com/v1"
	}
	return []string{"-c", "model_provider=openai-key", "-c", fmt.Sprintf(
		`model_providers.openai-key={name="OpenAI", base_url=%s, env_key=%s, wire_api="responses"}`, tomlString(address), tomlString(name))}
}

// codexSeeds: without it codex asks for trust in a git repository.
func codexSeeds(workdir string, _ func(string) string) []Seed {
	text := "[projects." + tomlString(workdir) + "]\ntrust_level = \"trusted\"\n"
	return []Seed{{Path: ".codex/config.toml", Mode: 0o600, Content: []byte(text)}}
}

// tomlString is a TOML basic string (TOML 1.0, "String").
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
