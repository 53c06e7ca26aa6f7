// The verb clean.

package cli

import "ai-sandbox/cmd/ai-sandbox/internal/config"

var cleanVerb = &verb{
	name:     "clean",
	about:    "Remove what ended runs have left behind. Running ones and homes stay.",
	examples: []string{"ai-sandbox clean"},
	exit:     usualExit,
	action: func(a *app, _ Invocation, flagLayer []config.Item) error {
		s, err := a.prepare(flagLayer, forVerb)
		if err != nil {
			return err
		}
		return a.engine.Clean(a.ctx, s.Machine)
	},
}
