// The verb gate: gates that outlive a run.

package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
			flags:    []ownFlag{ttlFlag},
			examples: []string{"ai-sandbox gate up work --allow .example.com --ttl 8h"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				ttl, err := inv.ttl()
				if err != nil {
					return err
				}
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
				return a.engine.GateUp(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image}, GateRequest{Name: inv.Args[0], Net: net, TTL: ttl})
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
			flags:    []ownFlag{{name: "json", usage: "print JSON; docs/operations.md has its schema"}},
			examples: []string{"ai-sandbox gate ls", "ai-sandbox gate ls --json"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				s, err := a.prepare(flagLayer, forVerb)
				if err != nil {
					return err
				}
				list, err := a.engine.GateList(a.ctx, s.Machine)
				if err != nil {
					return err
				}
				if slices.Contains(inv.Own, "json") {
					return printJSON(a.Out, struct {
						Version int         `json:"version"`
						Gates   []GateState `json:"gates"`
					}{1, list})
				}
				return writeText(a.Out, gatesText(list))
			},
		},
	},
	action: func(_ *app, inv Invocation, _ []config.Item) error {
		return fmt.Errorf("gate %v: no such verb", inv.Args) // checkArgs lets none through
	},
}

// ttlFlag is how long a gate may idle. The sandboxes that used it are gone by then, so
// nothing is lost but a second at the next gate up.
var ttlFlag = ownFlag{name: "ttl", arg: "TIME", usage: "end the gate when no session has used it for TIME, as in 90m or 8h (8h unless given); none: it stays until gate down"}

const defaultTTL = 8 * time.Hour

func (inv Invocation) ttl() (time.Duration, error) {
	text, ok := inv.Values[ttlFlag.name]
	if !ok {
		return defaultTTL, nil
	}
	seconds, err := policy.ParseTime(text)
	if err != nil {
		return 0, &errUsage{text: "--ttl: " + err.Error(), verb: true}
	}
	return time.Duration(seconds) * time.Second, nil
}

// gatesText has a line for each gate.
func gatesText(gates []GateState) string {
	var b strings.Builder
	for _, g := range gates {
		list := slices.Clone(g.Allow)
		for _, e := range g.AllowPrivate {
			list = append(list, e+" (private)")
		}
		if len(list) == 0 {
			list = []string{"nothing"}
		}
		fmt.Fprintf(&b, "%-20s %-5s 127.0.0.1:%-6d %s\n", policy.Printable(g.Name), g.State, g.Port, policy.Printable(strings.Join(list, " ")))
		for _, s := range g.Sessions {
			fmt.Fprintf(&b, "  session %s at 127.0.0.1:%d\n", policy.Printable(s.Session), s.Port)
		}
		if len(g.Sessions) == 0 && g.TTLSeconds > 0 && g.State == "up" {
			fmt.Fprintf(&b, "  no session; it ends after %s without one\n", time.Duration(g.TTLSeconds)*time.Second)
		}
	}
	return b.String()
}
