// Sessions as a user sees them.

package engine

import (
	"context"
	"os/signal"
	"path/filepath"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/local"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

func sessions(mc cli.Machine) ([]session.Summary, error) {
	m, err := manager(mc)
	if err != nil {
		return nil, err
	}
	return m.Sessions()
}

func logs(mc cli.Machine, id string) (session.Logs, error) {
	m, err := manager(mc)
	if err != nil {
		return session.Logs{}, err
	}
	return m.Logs(id)
}

func stop(ctx context.Context, mc cli.Machine, id string) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	m, err := manager(mc)
	if err != nil {
		return err
	}
	return m.Stop(ctx, id, backendOf(mc))
}

func removeSession(ctx context.Context, mc cli.Machine, id string) error {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	m, err := manager(mc)
	if err != nil {
		return err
	}
	return m.Remove(ctx, id, backendOf(mc))
}

// backendOf finds the backend of a runtime when it turns out to be needed.
func backendOf(mc cli.Machine) func(ctx context.Context, runtime string) (backend.Backend, error) {
	return func(ctx context.Context, runtime string) (backend.Backend, error) {
		if runtime == policy.RuntimeLocal {
			return jail(mc, ""), nil
		}
		mc := mc
		mc.Facts = host.ProbeTools(mc.Facts, runtime)
		return connect(ctx, mc)
	}
}

// kept says what --keep has left, and how to get rid of it.
func kept(say func(string, ...any), r cli.RunRequest, rep session.Report) {
	if !r.Keep || rep.Session == "" {
		return
	}
	say("session %s is kept: ai-sandbox logs %s tells what happened, and ai-sandbox rm %s removes it", rep.Session, rep.Session, rep.Session)
	if r.Policy.Runtime == policy.RuntimePodman {
		say("its container is aisb-%s: look into it with podman inspect, podman diff and podman export", rep.Session)
	}
	if h := r.Policy.Filled(rep.Session, 0).Home; h.Ephemeral {
		where := h.Volume
		if r.Policy.Runtime == policy.RuntimeLocal {
			where = filepath.Join(local.Homes(r.Facts.Dirs.State), where)
		}
		say("its home is %s", where)
	}
}
