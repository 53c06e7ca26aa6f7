// The verb gate: gates that outlive a run.

package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

var gateVerb = &verb{
	name:     "gate",
	about:    "Gates that stay, on podman, for runs with --gate NAME.",
	examples: []string{"ai-sandbox gate up work --allow .example.com", "ai-sandbox --gate work pi"},
	subs: []*verb{
		{
			name: "up", args: "NAME", about: "Start a gate that stays.",
			use:      config.UseGate,
			flags:    []ownFlag{ttlFlag},
			examples: []string{"ai-sandbox gate up work --allow .example.com --ttl 8h"},
			exit:     usualExit,
			action: func(a *app, inv Invocation, flagLayer []config.Item) error {
				s, g, err := a.newGate(inv, flagLayer, defaultTTL)
				if err != nil {
					return err
				}
				if len(g.Net.Allow)+len(g.Net.AllowPrivate) == 0 {
					a.notef("the allowlist is empty, so the gate refuses every host; --allow HOST lets one through")
				}
				return a.engine.GateUp(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image}, g)
			},
		},
		{
			name: "down", args: "NAME", about: "End a gate, and the sessions that share it.",
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
		gateUnitVerb,
		gateLogsVerb,
		gateReloadVerb,
	},
	action: func(_ *app, inv Invocation, _ []config.Item) error {
		return fmt.Errorf("gate %v: no such verb", inv.Args) // checkArgs lets none through
	},
}

// ttlFlag is how long a gate may idle. The sandboxes that used it are gone by then, so
// nothing is lost but a second at the next gate up.
var ttlFlag = ownFlag{name: "ttl", arg: "TIME", usage: "end the gate when no session has used it for TIME, as in 90m or 8h (8h unless given); none: it stays until gate down"}

const defaultTTL = 8 * time.Hour

func (inv Invocation) ttl(unless time.Duration) (time.Duration, error) {
	text, ok := inv.Values[ttlFlag.name]
	if !ok {
		return unless, nil
	}
	seconds, err := policy.ParseTime(text)
	if err != nil {
		return 0, &errUsage{text: "--ttl: " + err.Error(), verb: true}
	}
	return time.Duration(seconds) * time.Second, nil
}

// gateRequest is a gate with these lists. What flags gave of them is kept with it.
func gateRequest(inv Invocation, allow, private []policy.Entry, flagLayer []config.Item) GateRequest {
	g := GateRequest{Name: inv.Args[0], Net: policy.Net{
		Mode: policy.NetGated, Engine: policy.EngineSquid, GateName: inv.Args[0],
		Allow: policy.Normalise(allow), AllowPrivate: policy.Normalise(private),
	}}
	for _, it := range flagLayer {
		if slices.Contains(gateKeys, it.Key) {
			g.Given = append(g.Given, [2]string{it.Key, it.Value})
		}
	}
	return g
}

// newGate is what the settings and flags ask of a gate that is to be made; without a
// flag for it, its TTL is the one given.
func (a *app) newGate(inv Invocation, flagLayer []config.Item, ttl time.Duration) (s setup, g GateRequest, err error) {
	if ttl, err = inv.ttl(ttl); err != nil {
		return s, g, err
	}
	if s, err = a.prepare(flagLayer, forVerb); err != nil {
		return s, g, err
	}
	allow, private, err := s.lists()
	if err != nil {
		return s, g, err
	}
	g = gateRequest(inv, allow, private, flagLayer)
	g.TTL = ttl
	if g.Net.Upstream, s.UpstreamAuth, err = a.upstream(s.settings, s.Facts.Home); err != nil {
		return s, g, placed(s.settings, err)
	}
	return s, g, nil
}

// gateKeys are the settings that make a gate's lists.
var gateKeys = []string{"allow", "allow_private"}

var gateUnitVerb = &verb{
	name: "unit", args: "NAME", about: "Write a quadlet, with which systemd starts the gate.",
	use: config.UseGate,
	flags: []ownFlag{
		{name: "ttl", arg: "TIME", usage: "as with gate up; none unless given"},
		{name: "remove", usage: "take the quadlet and the gate's files away; it has to be stopped"},
	},
	examples: []string{"ai-sandbox gate unit work --allow .example.com", "ai-sandbox gate unit work --remove"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		if slices.Contains(inv.Own, "remove") {
			m, err := a.machine()
			if err != nil {
				return err
			}
			return a.engine.GateUnitRemove(a.ctx, m, inv.Args[0])
		}
		s, g, err := a.newGate(inv, flagLayer, 0)
		if err != nil {
			return err
		}
		units := filepath.Join(filepath.Dir(s.Facts.Dirs.Config), "containers", "systemd") // podman-systemd.unit(5)
		return a.engine.GateUnit(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image}, g, units)
	},
}

var gateReloadVerb = &verb{
	name: "reload", args: "NAME", about: "Give a gate, and all that share it, the list as it is configured now.",
	use:      config.UseGate,
	flags:    []ownFlag{{name: "json", usage: "print JSON; docs/networking.md says what is in it"}},
	examples: []string{"ai-sandbox gate reload work", "ai-sandbox gate reload work --allow .example.com --allow api.example.org"},
	exit:     [][2]string{{"0", "done, and the gate and each session's part of it have answered with the hash of the list"}, {"1", "ai-sandbox failed"}, {"2", "the command line makes no sense"}},
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(flagLayer, func(it config.Item) bool { return slices.Contains(gateKeys, it.Key) }) {
			given, err := a.engine.GateGiven(m, inv.Args[0])
			if err != nil {
				return err
			}
			for _, g := range given {
				flagLayer = append(flagLayer, config.Item{Key: g[0], Value: g[1], Origin: "--" + strings.ReplaceAll(g[0], "_", "-")})
			}
		}
		s, err := a.prepare(flagLayer, forVerb)
		if err != nil {
			return err
		}
		allow, private, err := s.lists()
		if err != nil {
			return err
		}
		if err := fixedProxy(s.settings, inv.Args[0]); err != nil {
			return err
		}
		r, err := a.engine.GateReload(a.ctx, s.Machine, gateRequest(inv, allow, private, flagLayer))
		if err != nil {
			return err
		}
		if slices.Contains(inv.Own, "json") {
			return printJSON(a.Out, struct {
				Version int `json:"version"`
				session.Reloaded
			}{1, r})
		}
		return writeText(a.Out, reloadText(inv.Args[0], r))
	},
}

func reloadText(name string, r session.Reloaded) string {
	var b strings.Builder
	for _, l := range []struct {
		sign string
		list []string
	}{{"+", r.Added}, {"-", r.Removed}} {
		for _, e := range l.list {
			fmt.Fprintf(&b, "%s %s\n", l.sign, policy.Printable(e))
		}
	}
	if len(r.Added)+len(r.Removed) == 0 {
		b.WriteString("the list is as it was\n")
	}
	fmt.Fprintf(&b, "gate %s goes by it (it has answered with %s)\n", policy.Printable(name), r.Hash)
	if len(r.Sessions) > 0 {
		fmt.Fprintf(&b, "and so do the sessions that share it: %s; connections cut: %d\n", policy.Printable(strings.Join(r.Sessions, " ")), r.Cut)
	}
	return b.String()
}

var gateLogsVerb = &verb{
	name: "logs", args: "NAME", about: "Show what a gate has decided, for all the sessions that shared it.",
	flags: []ownFlag{
		{name: "session", arg: "ID", usage: "only for that one"},
		{name: "denied", usage: "only what was refused: by the gate, or by the kernel beside it"},
		{name: "follow", usage: "go on until the gate has ended"},
		{name: "json", usage: "print the JSON lines; docs/networking.md says what is in them"},
	},
	examples: []string{"ai-sandbox gate logs work --denied", "ai-sandbox gate logs work --follow --json"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		line := a.eventLines(inv, func(e gate.Event) string { return e.Session + "  " + eventText(e) })
		id := inv.Values["session"]
		return a.engine.NamedLog(a.ctx, m, inv.Args[0], slices.Contains(inv.Own, "follow"), func(e gate.Event) error {
			if id != "" && e.Session != id {
				return nil
			}
			return line(e)
		})
	},
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
