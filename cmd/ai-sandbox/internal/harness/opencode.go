// OpenCode, 1.18.18.

package harness

var _ = add(Harness{
	Order: 6, Name: "opencode", Command: []string{"opencode"}, About: "OpenCode",
	Package: "opencode-ai", Version: "1.18.18",
	// Its script would choose by the processor that builds, and install what is
	// missing past the lock file. The baseline program runs on every amd64.
	Programs: map[string]string{"amd64": "opencode-linux-x64-baseline", "arm64": "opencode-linux-arm64"},
	Unwanted: []string{"opencode-linux-x64", "opencode-linux-x64-musl", "opencode-linux-x64-baseline-musl", "opencode-linux-arm64-musl"},
	// Its providers are many: these are what it takes without a configuration, and the
	// first one is where it goes with no key at all.
	Credentials: []string{"OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"},
	Hosts:       []string{"opencode.ai"},
	HostOf: map[string]string{
		"OPENCODE_API_KEY": "opencode.ai", "ANTHROPIC_API_KEY": "api.anthropic.com", "OPENAI_API_KEY": "api.openai.com",
		"GOOGLE_GENERATIVE_AI_API_KEY": "generativelanguage.googleapis.com",
	},
	// Without it nothing outside of the project can be touched: run refuses, its window asks.
	Skip:    Skip{Flag: "--auto", Chosen: Chosen{Choices: []string{"--auto", "--no-auto"}}, Behind: []string{"run"}},
	Session: Session{Resume: []string{"--session", ID}, Last: []string{"--continue"}},
	Model:   "--model",
	// How much it reasons is a matter of its model's variants (run --variant), which have
	// other names for each.
	Verbs: []string{
		"acp", "agent", "attach", "auth", "completion", "db", "debug", "export", "github", "import", "mcp", "models",
		"plug", "plugin", "pr", "providers", "serve", "session", "stats", "uninstall", "upgrade", "web",
	},
	// Its login is with those of all providers, and stays out.
	guide:   ".config/opencode/AGENTS.md",
	dir:     ".config/opencode",
	dangers: "configuration, commands, plugins, agents and MCP servers",
	project: []string{".opencode/", "opencode.json", "opencode.jsonc"},
})
