// The verb build.

package cli

import (
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// verboseFlag is of the verbs that build.
var verboseFlag = ownFlag{name: "verbose", usage: "show what the builds write, without secrets"}

var buildVerb = &verb{
	name:     "build",
	about:    "Build the images that runs stand on.",
	use:      config.UseBuild,
	flags:    []ownFlag{{name: "rebuild", usage: "ignore every cached layer; the pinned base stays"}, verboseFlag},
	examples: []string{"ai-sandbox build", "ai-sandbox build --rebuild --verbose"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		s, err := a.prepare(flagLayer, forBuild)
		if err != nil {
			return err
		}
		return a.engine.Build(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image,
			Rebuild: slices.Contains(inv.Own, "rebuild"), Verbose: slices.Contains(inv.Own, verboseFlag.name)})
	},
}
