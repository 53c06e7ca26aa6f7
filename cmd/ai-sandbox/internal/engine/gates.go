// Named gates.

package engine

import (
	"context"
	"fmt"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

func (e *engine) gateNet(m cli.Machine, name string) (policy.Net, error) {
	mgr, err := manager(m)
	if err != nil {
		return policy.Net{}, err
	}
	return mgr.GateNet(name)
}

func (e *engine) gateUp(ctx context.Context, r cli.BuildRequest, name string, net policy.Net) error {
	if r.Runtime == policy.RuntimeLocal {
		return errNoImages
	}
	return interruptible(ctx, func(ctx context.Context) error {
		m, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		plan, err := e.ensure(ctx, r.Machine, r.Image, c)
		if err != nil {
			return err
		}
		rec, err := m.GateUp(ctx, c, name, plan.Gate.ID, net)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "%s 127.0.0.1:%d\n", rec.ID, rec.GatePort)
		return nil
	})
}

func (e *engine) gateDown(ctx context.Context, mc cli.Machine, name string) error {
	m, c, err := open(ctx, mc)
	if err != nil {
		return err
	}
	return m.GateDown(ctx, c, name)
}

func (e *engine) gateList(ctx context.Context, mc cli.Machine) error {
	m, _, err := open(ctx, mc)
	if err != nil {
		return err
	}
	gates, err := m.Gates()
	if err != nil {
		return err
	}
	for _, g := range gates {
		state := "up"
		if m.Store.Liveness(g) != store.Alive || !m.Answers(ctx, g) {
			state = "down"
		}
		list := append([]string{}, g.Allow...)
		for _, e := range g.AllowPrivate {
			list = append(list, e+" (private)")
		}
		if len(list) == 0 {
			list = []string{"nothing"}
		}
		fmt.Fprintf(mc.Out, "%-20s %-5s 127.0.0.1:%-6d %s\n", g.ID, state, g.GatePort, strings.Join(list, " "))
	}
	return nil
}
