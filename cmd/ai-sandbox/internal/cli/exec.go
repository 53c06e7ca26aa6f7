// The verb exec.

package cli

import "ai-sandbox/cmd/ai-sandbox/internal/config"

var execVerb = &verb{
	name: "exec", args: "ID -- COMMAND...",
	about:    "Run a command in a session that lives.",
	asRun:    true,
	examples: []string{"ai-sandbox exec 0123456789ab -- npm test", "ai-sandbox exec 0123456789ab -- bash"},
	exit: [][2]string{
		{"the command's", "or 128 and the signal's number; 137 also when the sandbox ended under it"},
		{"125", "ai-sandbox failed or refused, or there is no such sandbox"},
		{"126", "the command can't be executed"},
		{"127", "the command is not there"},
	},
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return &exitError{code: exitFailed, err: err}
		}
		code, err := a.engine.Exec(a.ctx, m, inv.Args[0], inv.Command)
		if err != nil && code == 0 {
			code = exitFailed
		}
		if err == nil && code == 0 {
			return nil
		}
		return &exitError{code: code, err: err}
	},
}
