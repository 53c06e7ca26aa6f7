// The verb gate: gates that outlive a run.

package cli

import (
	"fmt"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

var gateVerb = &verb{
	name:     "gate",
	about:    "Start, end and list gates that stay, for runs with --gate NAME.",
	examples: []string{"ai-sandbox gate up work --allow .example.com", "ai-sandbox --gate work pi"},
	exit:     usualExit,
	subs: []*verb{
		{
			name: "up", args: "NAME", about: "Start a gate that stays.",
			use:      config.UseGate,
			examples: []string{"ai-sandbox gate up work --allow .example.com"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				s, err := a.prepare(flagLayer, forVerb)
				if err != nil {
					return err
				}
				allow, private, err := s.lists()
				if err != nil {
					return err
				}
				net := policy.Net{
					Mode: policy.NetGated, Engine: "squid", GateName: inv.Args[0],
					Allow: policy.Normalise(allow), AllowPrivate: policy.Normalise(private),
				}
				if len(net.Allow)+len(net.AllowPrivate) == 0 {
					a.notef("the allowlist is empty, so the gate refuses every host; --allow HOST lets one through")
				}
				return a.engine.GateUp(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image}, inv.Args[0], net)
			},
		},
		{
			name: "down", args: "NAME", about: "End a gate.",
			examples: []string{"ai-sandbox gate down work"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				s, err := a.prepare(flagLayer, forVerb)
				if err != nil {
					return err
				}
				return a.engine.GateDown(a.ctx, s.Machine, inv.Args[0])
			},
		},
		{
			name: "ls", about: "List the gates that stay.",
			examples: []string{"ai-sandbox gate ls"},
			exit:     usualExit,
			action: func(a *app, _ Invocation, flagLayer []config.Item) error {
				s, err := a.prepare(flagLayer, forVerb)
				if err != nil {
					return err
				}
				return a.engine.GateList(a.ctx, s.Machine)
			},
		},
	},
	action: func(_ *app, inv Invocation, _ []config.Item) error {
		return fmt.Errorf("gate %v: no such verb", inv.Args) // checkArgs lets none through
	},
}
