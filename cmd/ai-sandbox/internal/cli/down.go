// The verb down.

package cli

import "ai-sandbox/cmd/ai-sandbox/internal/config"

var downVerb = &verb{
	name: "down", args: "ID",
	about:    "End a sandbox and remove all that was made for it.",
	examples: []string{"ai-sandbox down 0123456789ab"},
	exit:     append(usualExit[:len(usualExit):len(usualExit)], [2]string{"3", "there is no such sandbox: it was never there, or is down already"}),
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		return aboutSandbox(a.engine.Down(a.ctx, m, inv.Args[0]))
	},
}
