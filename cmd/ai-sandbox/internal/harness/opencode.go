// OpenCode, 1.18.18.

package harness

var _ = add(Harness{
	Order: 6, Name: "opencode", Command: []string{"opencode"}, About: "OpenCode",
	Package: "opencode-ai", Version: "1.18.18",
	// Its script would choose by the processor that builds, and install what is
	// missing past the lock file. The baseline program runs on every amd64.
	Programs: map[string]string{"amd64": "opencode-linux-x64-baseline", "arm64": "opencode-linux-arm64"},
	Unwanted: []string{"opencode-linux-x64", "opencode-linux-x64-musl", "opencode-linux-x64-baseline-musl", "opencode-linux-arm64-musl"},
	// Which host and which variable it needs is its provider's matter.
	// --auto is of its window and of run, behind which it has to stand: it asks for
	// little unless it is configured to.
	Session: Session{Resume: []string{"--session", ID}, Last: []string{"--continue"}},
	Model:   "--model",
	// Its login is with those of all providers, and stays out.
	guide:   ".config/opencode/AGENTS.md",
	dir:     ".config/opencode",
	dangers: "configuration, commands, plugins, agents and MCP servers",
	project: []string{".opencode/", "opencode.json", "opencode.jsonc"},
})
