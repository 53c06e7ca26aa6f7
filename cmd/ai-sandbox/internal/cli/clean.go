// The verb clean.

package cli

import (
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

var cleanVerb = &verb{
	name:     "clean",
	about:    "Remove what ended runs have left behind. Running ones and homes stay.",
	use:      config.UseDoctor,
	flags:    []ownFlag{{name: "volumes", usage: "remove the homes of all projects as well, but those in use"}},
	examples: []string{"ai-sandbox clean", "ai-sandbox clean --volumes"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		s, err := a.prepare(flagLayer, forVerb)
		if err != nil {
			return err
		}
		return a.engine.Clean(a.ctx, s.Machine, slices.Contains(inv.Own, "volumes"))
	},
}
