// Named gates.

package engine

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

func (e *engine) gateNet(m cli.Machine, name string) (policy.Net, error) {
	mgr, err := manager(m)
	if err != nil {
		return policy.Net{}, err
	}
	return mgr.GateNet(name)
}

func askUpstream(ctx context.Context, mc cli.Machine, u policy.Upstream) (answer, err error) {
	m := &session.Manager{UpstreamAuth: mc.UpstreamAuth}
	return m.AskUpstream(ctx, policy.Net{Upstream: &u})
}

func (e *engine) gateUp(ctx context.Context, r cli.BuildRequest, g cli.GateRequest) error {
	if r.Runtime == policy.RuntimeLocal {
		return errNoImages
	}
	return interruptible(ctx, func(ctx context.Context) error {
		m, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		plan, err := e.ensure(ctx, r.Machine, r.Image, c, true)
		if err != nil {
			return err
		}
		rec, err := m.GateUp(ctx, c, session.GateRequest{Name: g.Name, Image: plan.Gate.ID, Net: g.Net, TTL: g.TTL, Given: g.Given})
		if err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "%s 127.0.0.1:%d\n", rec.ID, rec.GatePort)
		return nil
	})
}

func (e *engine) gateUnit(ctx context.Context, r cli.BuildRequest, g cli.GateRequest, dir string) error {
	if r.Runtime == policy.RuntimeLocal {
		return errNoImages
	}
	return interruptible(ctx, func(ctx context.Context) error {
		m, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		plan, err := e.ensure(ctx, r.Machine, r.Image, c, true)
		if err != nil {
			return err
		}
		file, err := m.GateUnit(ctx, c, session.GateRequest{Name: g.Name, Image: plan.Gate.ID, Net: g.Net, TTL: g.TTL, Given: g.Given}, dir, podman.Quadlet)
		if err != nil {
			return err
		}
		unit := strings.TrimSuffix(filepath.Base(file), ".container")
		fmt.Fprintf(r.Out, "%s\nstart it with: systemctl --user daemon-reload && systemctl --user start %s\n", policy.Printable(file), unit)
		return nil
	})
}

func gateUnitRemove(ctx context.Context, mc cli.Machine, name string) error {
	m, err := manager(mc)
	if err != nil {
		return err
	}
	return m.GateUnitRemove(ctx, name)
}

func gateGiven(mc cli.Machine, name string) ([][2]string, error) {
	m, err := manager(mc)
	if err != nil {
		return nil, err
	}
	return m.GateGiven(name)
}

func gateReload(ctx context.Context, mc cli.Machine, g cli.GateRequest) (session.Reloaded, error) {
	m, err := manager(mc)
	if err != nil {
		return session.Reloaded{}, err
	}
	return m.GateReload(ctx, session.GateRequest{Name: g.Name, Net: g.Net, Given: g.Given})
}

func namedLog(ctx context.Context, mc cli.Machine, name string, follow bool, f func(gate.Event) error) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	m, err := manager(mc)
	if err != nil {
		return err
	}
	bad, err := m.NamedLog(ctx, name, follow, f)
	if bad > 0 {
		m.Say("%d lines of the log of gate %s make no sense and are not shown", bad, name)
	}
	return err
}

func (e *engine) gateDown(ctx context.Context, mc cli.Machine, name string) error {
	m, c, err := open(ctx, mc)
	if err != nil {
		return err
	}
	return m.GateDown(ctx, c, name)
}

func (e *engine) gateList(ctx context.Context, mc cli.Machine) ([]cli.GateState, error) {
	m, _, err := open(ctx, mc)
	if err != nil {
		return nil, err
	}
	gates, err := m.Gates()
	if err != nil {
		return nil, err
	}
	out := []cli.GateState{}
	for _, g := range gates {
		state := "up"
		if m.Store.Liveness(g) != store.Alive || !m.Answers(ctx, g) {
			state = "down"
		}
		list, err := m.Sharing(g.ID)
		if err != nil {
			return nil, err
		}
		sessions := []cli.GateSession{}
		for _, s := range list {
			sessions = append(sessions, cli.GateSession{Session: s.ID, Port: s.GatePort})
		}
		out = append(out, cli.GateState{
			Name: g.ID, State: state, Port: g.GatePort, Allow: append([]string{}, g.Allow...), AllowPrivate: append([]string{}, g.AllowPrivate...),
			TTLSeconds: g.GateTTL, Sessions: sessions, Unit: g.Unit,
		})
	}
	return out, nil
}

func gateNames(mc cli.Machine) ([]string, error) {
	m, err := manager(mc)
	if err != nil {
		return nil, err
	}
	gates, err := m.Gates()
	var out []string
	for _, g := range gates {
		out = append(out, g.ID)
	}
	return out, err
}
