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
		{name: "json", usage: "print JSON; docs/operations.md has its schema"},
	},
	examples: []string{"ai-sandbox clean", "ai-sandbox clean --dry-run --all", "ai-sandbox clean --dry-run --json", "ai-sandbox clean --volumes=aisb-home-shop-*", "ai-sandbox clean --images"},
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
		list := cleaning{Version: 1, DryRun: r.DryRun, Items: []Cleaned{}}
		r.Tell = func(c Cleaned) {
			list.Items = append(list.Items, c)
			if !on("json") {
				a.tellCleaned(c, r.DryRun)
			}
		}
		var all ImagesRequest
		if on("images") {
			if all, err = a.imagesRequest(flagLayer); err != nil {
				return err
			}
		}
		err = a.engine.Clean(a.ctx, r)
		if err == nil && on("images") {
			err = a.engine.CleanImages(a.ctx, all, r.DryRun, r.Tell)
		}
		// What was removed before something failed is told as well.
		if on("json") {
			return errors.Join(err, printJSON(a.Out, list))
		}
		if err == nil || len(list.Items) > 0 {
			fmt.Fprintf(a.Out, "%s %d\n", removal(r.DryRun), list.gone())
		}
		return err
	},
}

// A cleaning is what clean --json prints.
type cleaning struct {
	Version int       `json:"version"`
	DryRun  bool      `json:"dry_run"`
	Items   []Cleaned `json:"items"`
}

func (c cleaning) gone() int {
	n := 0
	for _, i := range c.Items {
		if i.Goes {
			n++
		}
	}
	return n
}

func removal(dry bool) string {
	if dry {
		return "would remove"
	}
	return "removed"
}

// tellCleaned is a line a thing: of what stays, for whoever reads, and of what goes.
func (a *app) tellCleaned(c Cleaned, dry bool) {
	if !c.Goes {
		a.notef("%s stays: %s", c.What, c.Why)
		return
	}
	fmt.Fprintf(a.Out, "%s %s: %s\n", removal(dry), policy.Printable(c.What), policy.Printable(c.Why))
}
