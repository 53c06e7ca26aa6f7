// Package harness is the table of the agent programs that ai-sandbox knows by
// name: what a name runs, and what of the host and of its own home it needs for
// that. It is pure data. An entry that needs code of its own gets a sub-package.
//
// The facts in the table were read off the real programs: claude 2.1.332, codex
// 0.171.0, pi 1.6.0. Those about kiro are from its documentation.
package harness

import (
	"slices"
	"strings"
)

// Default is what runs when the command line names no harness, verb or command.
const Default = "pi"

// A Harness is one agent program. The zero Harness is a command given after
// "--": it has no flags, no binds and no seeds.
type Harness struct {
	// Name is the word on ai-sandbox's command line.
	Name string
	// Command is what runs inside; the user's arguments follow it.
	Command []string
	// About is one line for the help.
	About string
	// Package and Version are what npm installs it from; "" when npm has none.
	Package, Version string
	// Token is the variable that the program reads its access token from, passed
	// on where it is set; "" for a program whose login is in a file.
	Token string
	// Bridge: the program's configuration on this machine is rewritten for it, by
	// pibridge, and Token is the default of pi_token_env.
	Bridge bool
	// Skip makes the program work without asking for permission.
	Skip Skip
	// Verbs are first arguments that are commands of the program itself (mcp,
	// login, ...) and not the agent's: they follow Command's first word, alone.
	Verbs []string

	// dir is the program's directory below the home; the three below are in it.
	dir string
	// credential is the file with the login, "" when it can't be had alone.
	credential string
	// transcripts is where a project's own are, nil when they can't be told
	// from other projects'.
	transcripts func(project string) string
	// obeyed is a directory in transcripts that later sessions take
	// instructions from.
	obeyed string
	// seeds are the files that spare the first run its questions.
	seeds func(workdir string) []Seed
	// dangers says what of dir the program obeys on the host.
	dangers string
}

// Skip is how a program is told to work without asking for permission. Inside,
// the sandbox says what is possible, so the flag is on in every run of ours: with
// --net host too, where the files and processes are shut all the same.
type Skip struct {
	// Flag is "" for a program that has none.
	Flag string
	// Choices are flags by which users say themselves how much they want to be
	// asked, each alone or with "=value". Flag would override or contradict
	// them, so it is not added to them.
	Choices []string
	// Short are Choices of one dash, whose value may follow without a space.
	Short []string
}

// Table lists every harness, in the order of the help.
var Table = []Harness{
	{
		Name: "pi", Command: []string{"pi"}, About: "the pi coding agent (default)",
		Package: "@earendil-works/pi-coding-agent", Version: "1.6.0",
		Token: "AI_API_TOKEN", Bridge: true,
		dir: ".pi", credential: ".pi/agent/auth.json", transcripts: piTranscripts, seeds: piSeeds,
		dangers: "extensions, skills, MCP servers and the commands that auth.json may name",
	},
	{
		Name: "claude", Command: []string{"claude"}, About: "Claude Code",
		Package: "@anthropic-ai/claude-code", Version: "2.1.332",
		Skip: Skip{
			Flag: "--dangerously-skip-permissions",
			Choices: []string{
				"--dangerously-skip-permissions", "--allow-dangerously-skip-permissions",
				"--permission-mode", // the flag would win
				"--restricted",      // with the flag it refuses to start
			},
		},
		// attach, logs, stop, kill, respawn and rm have to come first: behind
		// the flag they are the text of a prompt.
		Verbs: []string{
			"agents", "attach", "auth", "auto-mode", "bridge", "daemon", "doctor", "gateway", "import", "install",
			"kill", "logs", "mcp", "plugin", "plugins", "project", "purge", "remote", "remote-control", "respawn",
			"rm", "self-hosted-agent-proxy", "self-hosted-runner", "setup-token", "stop", "sync", "ultrareview",
			"update", "upgrade",
		},
		dir: ".claude", credential: ".claude/.credentials.json", transcripts: claudeTranscripts, obeyed: "memory", seeds: claudeSeeds,
		dangers: "settings, hooks, skills, plugins, agents and memories",
	},
	{
		Name: "codex", Command: []string{"codex"}, About: "OpenAI's Codex",
		Package: "@openai/codex", Version: "0.171.0",
		// It is an option of codex itself, and counts for exec, resume, fork
		// and review when it stands before them.
		Skip: Skip{
			Flag: "--dangerously-bypass-approvals-and-sandbox",
			Choices: []string{
				// It is an error twice, and with each of these but the sandbox's,
				// which it would override.
				"--dangerously-bypass-approvals-and-sandbox", "--yolo",
				"--ask-for-approval", "--approve-for-me", "--sandbox",
			},
			Short: []string{"-a", "-s"},
		},
		Verbs: []string{
			"a", "agents", "app-server", "apply", "archive", "cloud", "completion", "debug", "delete", "doctor",
			"exec-server", "features", "help", "login", "logout", "mcp", "migrate-nfs-db", "migrate-rollouts",
			"plugin", "queue", "remote-control", "sandbox", "unarchive", "update",
		},
		// Its sessions are filed by date, all projects' together, and stay out.
		dir: ".codex", credential: ".codex/auth.json", seeds: codexSeeds,
		dangers: "configuration, hooks, skills, plugins, MCP servers and rules, and, where its background server runs, the socket that commands it",
	},
	{
		Name: "kiro", Command: []string{"kiro-cli", "chat"}, About: "Kiro's command line",
		Verbs: []string{
			"--help-all", "--version", "-V", "acp", "agent", "chat", "diagnostic", "doctor", "help", "inline",
			"integrations", "issue", "login", "logout", "mcp", "settings", "theme", "translate", "update",
			"version", "whoami",
		},
		// Its login is in .local/share/kiro-cli/data.sqlite3, with every
		// project's conversations, and it has to write there: it stays out.
		dir:     ".kiro",
		dangers: "settings, hooks, steering files, agents and MCP servers",
	},
}

// Lookup finds a harness by its name.
func Lookup(name string) (Harness, bool) {
	for _, h := range Table {
		if h.Name == name {
			return h, true
		}
	}
	return Harness{}, false
}

// Argv is the command line inside: the harness with the user's arguments, and
// with Skip's flag before them where it means something and the user has not
// chosen. It stands first, for new and resumed runs alike: there no option that
// takes a list, and no "--", can swallow it.
func (h Harness) Argv(args []string) []string {
	switch {
	case len(args) > 0 && slices.Contains(h.Verbs, args[0]):
		return slices.Concat(h.Command[:1], args)
	case h.Skip.Flag == "" || h.Skip.chosen(args):
		return slices.Concat(h.Command, args)
	}
	return slices.Concat(h.Command, []string{h.Skip.Flag}, args)
}

// chosen tells whether args hold one of the choices. A value that looks like one
// counts too: then the program asks, which is the harmless mistake.
func (s Skip) chosen(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains(s.Choices, name) {
			return true
		}
		for _, short := range s.Short {
			if strings.HasPrefix(arg, short) {
				return true
			}
		}
	}
	return false
}
