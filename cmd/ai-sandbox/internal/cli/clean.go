// The verb clean.

package cli

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

var cleanVerb = &verb{
	name:  "clean",
	about: "Remove what nobody owns any more. What runs, is kept or is in doubt stays.",
	use:   config.UseDoctor,
	flags: []ownFlag{
		{name: "all", usage: "end what runs as well: sessions, sandboxes and named gates; asks on a terminal first"},
		{name: "yes", usage: "do not ask"},
		{name: "volumes", arg: "GLOB", bare: "*", usage: "remove the homes of all projects, or those whose name matches GLOB, but for those in use"},
		{name: "images", usage: "remove the images as well that no configuration, session, gate or container uses"},
		{name: "dry-run", usage: "only say what would be removed"},
	},
	examples: []string{"ai-sandbox clean", "ai-sandbox clean --dry-run --all", "ai-sandbox clean --volumes=aisb-home-shop-*", "ai-sandbox clean --images"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		s, err := a.prepare(flagLayer, forClean)
		if err != nil {
			return err
		}
		on := func(name string) bool { return slices.Contains(inv.Own, name) }
		r := CleanRequest{Machine: s.Machine, All: on("all"), DryRun: on("dry-run"), Homes: inv.Values["volumes"]}
		if s.Runtime == policy.RuntimePodman {
			if p := host.Problems(host.Check(s.Facts, s.Runtime)); len(p) > 0 {
				r.NoPodman = errors.New(p[0].Problem)
			}
		}
		if _, err := path.Match(r.Homes, ""); err != nil {
			return &errUsage{text: fmt.Sprintf("--volumes %s is not a pattern; write it as aisb-home-shop-*", quote(r.Homes)), verb: true}
		}
		r.Confirm = func(running int) error {
			if on("yes") {
				return nil
			}
			return a.confirm(fmt.Sprintf("end %d that run? Write yes: ", running), "nothing was removed", "look at what runs with ai-sandbox clean --all --dry-run, then: ai-sandbox clean --all --yes")
		}
		if !on("images") {
			return a.engine.Clean(a.ctx, r)
		}
		all, err := a.imagesRequest(flagLayer)
		if err != nil {
			return err
		}
		if err := a.engine.Clean(a.ctx, r); err != nil {
			return err
		}
		return a.engine.CleanImages(a.ctx, all, r.DryRun)
	},
}
