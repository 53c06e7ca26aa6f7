// Cleaning up.

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

// temporaryFiles are the names of files that are written and then renamed, and of
// directories that are there while something is tried.
func temporaryFiles(mc cli.Machine) []string {
	state := mc.Facts.Dirs.State
	return []string{
		filepath.Join(state, "tools.json.*"), filepath.Join(state, "homes", "*.new-*"), filepath.Join(state, "entrypoint", "new-*"),
		filepath.Join(state, "trust", ".new-*"), filepath.Join(mc.Facts.Dirs.Runtime(), ".containers.conf-*"),
		filepath.Join(state, ".tmp-*"), filepath.Join(state, "*", ".tmp-*"),
		filepath.Join(os.TempDir(), "aisb-doctor-*-*"), filepath.Join(os.TempDir(), "aisb-signature-*-*"),
		filepath.Join(mc.Facts.Dirs.Cache, ".tmp-*"), filepath.Join(mc.Facts.Dirs.Cache, "*", ".tmp-*"),
	}
}

// clean removes on the local runtime, which needs nothing for it, and on podman's
// where that is the chosen one: what can't be seen there is no reason to leave the
// rest, and an error only where there may be something.
func (e *engine) clean(ctx context.Context, r cli.CleanRequest) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	m, err := manager(r.Machine)
	if err != nil {
		return err
	}
	runtimes := []backend.Backend{jail(r.Machine, "")}
	unseen := r.NoPodman
	var items, images []session.CleanItem
	if r.Runtime != policy.RuntimeLocal && unseen == nil {
		var c *podman.Client
		if c, unseen = connect(ctx, r.Machine); unseen == nil {
			runtimes = append(runtimes, c)
			if images, err = builds(ctx, r.Machine, c); err != nil {
				return err
			}
		}
	}
	for _, be := range runtimes {
		list, err := m.Cleanable(ctx, be, session.CleanRequest{All: r.All, Homes: r.Homes})
		if err != nil {
			return err
		}
		items = append(items, list...)
	}
	items = append(items, images...) // when no container is left of them
	strays, err := m.Strays(temporaryFiles(r.Machine))
	if err != nil {
		return err
	}
	items = append(items, strays...)
	running := 0
	for _, i := range items {
		if i.Running {
			running++
		}
	}
	if running > 0 && !r.DryRun {
		for _, i := range items {
			if i.Running {
				m.Say("%s runs", i.What)
			}
		}
		if err := r.Confirm(running); err != nil {
			return err
		}
	}
	var errs []error
	if unseen != nil {
		unseen = fmt.Errorf("podman was not asked what is left there: %w", unseen)
		if used, err := m.Uses(policy.RuntimePodman); err != nil || used || r.NoPodman == nil {
			errs = append(errs, err, unseen)
		} else {
			m.Say("%v", unseen)
		}
	}
	for _, i := range items {
		goes := !i.Stays()
		if goes && !r.DryRun {
			if goes, err = i.Do(ctx); err != nil {
				errs = append(errs, fmt.Errorf("remove the %s: %w", i.What, err))
				continue
			}
		}
		r.Tell(cli.Cleaned{What: i.What, Why: i.Why, Goes: goes})
	}
	return errors.Join(errs...)
}

// What people are told of leftovers.
const (
	leftLoad = "load of images"
	leftWhy  = "it did not come to its end"
)

// builds are what failed builds and killed builders have left.
func builds(ctx context.Context, mc cli.Machine, c *podman.Client) ([]session.CleanItem, error) {
	req := imagebuild.Request{CacheDir: mc.Facts.Dirs.Cache, StateDir: mc.Facts.Dirs.State}
	names, err := req.Leftovers(ctx, c)
	var out []session.CleanItem
	for _, name := range names {
		what := "build " + name
		switch name {
		case imagebuild.LoadName:
			what = leftLoad
		case imagebuild.TrialName:
			what = "image of a doctor's trial"
		}
		out = append(out, session.Removal(what, leftWhy, func(ctx context.Context) error {
			return req.RemoveLeftover(ctx, c, name)
		}))
	}
	return out, err
}
