// Kiro's command line, from its documentation (kiro.dev/docs/cli: the references of
// commands and of its headless mode, and session management): npm has no package of it,
// and no real one was run.

package harness

var _ = add(Harness{
	Order: 4, Name: "kiro", Command: []string{"kiro-cli", "chat"}, About: "Kiro's command line",
	Credentials: []string{"KIRO_API_KEY"},
	Hosts:       []string{"q.us-east-1.amazonaws.com"},
	Skip:        Skip{Flag: "--trust-all-tools", Chosen: Chosen{Choices: []string{"--trust-all-tools", "--trust-tools"}, Short: []string{"-a"}}},
	Session:     Session{Resume: []string{"--resume-id", ID}, Last: []string{"--resume"}},
	Model:       "--model",
	// Its --effort has levels by model, and what becomes of another one is not said.
	Verbs: []string{
		"--help-all", "--version", "-V", "acp", "agent", "chat", "diagnostic", "doctor", "help", "inline",
		"integrations", "issue", "login", "logout", "mcp", "settings", "theme", "translate", "update",
		"version", "whoami",
	},
	// Its login is in .local/share/kiro-cli/data.sqlite3, with every
	// project's conversations, and it has to write there: it stays out.
	guide:   ".kiro/steering/sandbox.md",
	dir:     ".kiro",
	dangers: "settings, hooks, steering files, agents and MCP servers",
	project: []string{".kiro/"},
})
