// OpenCode, 1.18.18.

package harness

var opencode = Harness{
	Name: "opencode", Command: []string{"opencode"}, About: "OpenCode",
	Package: "opencode-ai", Version: "1.18.18",
	// Which host and which variable it needs is its provider's matter.
	// --auto is of its window and of run, behind which it has to stand: it asks for
	// little unless it is configured to.
	Session: Session{Resume: []string{"--session", ID}, Last: []string{"--continue"}},
	Model:   "--model",
	// Its login is with those of all providers, and stays out.
	guide:   ".config/opencode/AGENTS.md",
	dir:     ".config/opencode",
	dangers: "configuration, commands, plugins, agents and MCP servers",
}
