// Cleaning: what can go, and why; and what stays, and why.

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

// A CleanItem is something that a cleaning removes, or names since it stays.
type CleanItem struct {
	// What it is ("session 0123456789ab"), and Why it goes or stays.
	What, Why string
	// Running: it is ended, and so is whatever somebody does in it.
	Running bool
	// do removes it; nil: it stays.
	do func(context.Context) error
}

// Removal is an item of somebody else's, which do removes.
func Removal(what, why string, do func(context.Context) error) CleanItem {
	return CleanItem{What: what, Why: why, do: do}
}

// Stays tells whether the item is only named.
func (i CleanItem) Stays() bool { return i.do == nil }

// Do removes the item. done is false where it turned out that it has to stay, and Why
// says so then.
func (i *CleanItem) Do(ctx context.Context) (done bool, err error) {
	err = i.do(ctx)
	switch {
	case errors.Is(err, backend.ErrInUse):
		i.Why, i.do = "a container refers to it", nil
	case errors.Is(err, errBack):
		i.Why, i.do = errBack.Error(), nil
	default:
		return err == nil, err
	}
	return false, nil
}

// A CleanRequest says what to remove beside what nobody owns any more.
type CleanRequest struct {
	// All ends what runs.
	All bool
	// Homes is a pattern of path.Match for names of homes; "" is none.
	Homes string
}

// Cleanable lists what can be removed on be's runtime, and what stays, and removes
// nothing. Whose owner is in doubt stays.
func (m *Manager) Cleanable(ctx context.Context, be backend.Backend, r CleanRequest) ([]CleanItem, error) {
	records, err := m.Store.List()
	if err != nil {
		return nil, err // an unreadable one may name what is to stay
	}
	containers, err := be.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []CleanItem
	used, known := map[string]bool{}, map[string]bool{}
	for _, rec := range records {
		if rec.Runtime != be.Capabilities().Runtime {
			continue
		}
		item, stays := m.cleanable(ctx, be, rec, containers, r.All)
		if item.What != "" {
			out = append(out, item)
		}
		for _, c := range rec.Containers {
			known[c] = true
		}
		if stays {
			for _, v := range append(slices.Clone(rec.Volumes), rec.Home) {
				used[v] = true
			}
		}
	}
	for _, c := range containers {
		if stays(be) && !known[c.Name] {
			out = append(out, CleanItem{What: "container " + policy.Quote(c.Name), Why: "no record here names it, so its owner is in doubt; podman rm -f " + policy.Quote(c.Name) + " removes it"})
		}
	}
	homes, err := m.homes(ctx, be, r.Homes, used)
	return append(out, homes...), err
}

// Uses tells whether a record is of that runtime.
func (m *Manager) Uses(runtime string) (bool, error) {
	records, err := m.Store.List()
	return slices.ContainsFunc(records, func(r store.Record) bool { return r.Runtime == runtime }), err
}

// cleanable judges one record, and tells whether what it names stays.
func (m *Manager) cleanable(ctx context.Context, be backend.Backend, rec store.Record, containers []backend.Leftover, all bool) (i CleanItem, stays bool) {
	i.What = "session " + rec.ID
	switch rec.Kind {
	case "gate":
		i.What = "gate " + rec.ID
	case store.KindSandbox:
		i.What = "sandbox " + rec.ID
	}
	alive := m.Store.Liveness(rec)
	switch {
	case rec.Unit != "" && all:
		i.Why = "systemd starts it; to remove it: " + endOf(rec)
		return i, true
	case rec.Unit != "":
		return CleanItem{}, true
	case rec.Kept:
		i.Why = fmt.Sprintf("it is kept until: ai-sandbox rm %s", rec.ID)
		return i, true
	case alive == store.Unknown:
		i.Why = m.Store.WhyUnknown(rec) + "; whether it lives can't be told"
		return i, true
	case alive == store.Gone && rec.Kind == store.KindSandbox && !left(rec):
		if w := rec.Workspace; rec.Ready && w != nil && w.Own {
			i.Why = fmt.Sprintf("it has ended, and its workspace %s stays until: ai-sandbox down %s", policy.Quote(w.Path), rec.ID)
			return i, true
		}
		i.Why = "it has ended"
		i.do = func(ctx context.Context) error { return m.forgetEnded(ctx, rec) }
		return i, false
	case alive == store.Gone:
		i.Why = "its owner is gone"
		i.do = func(ctx context.Context) error {
			_, err := m.reap(ctx, be, rec)
			return err
		}
		return i, rec.Keep
	case rec.Kind == "gate" && !slices.ContainsFunc(containers, func(c backend.Leftover) bool { return slices.Contains(rec.Containers, c.Name) && c.Running }):
		// Unless it is on its way.
		if unlock, err := m.Store.Lock("gate-" + rec.ID); err == nil {
			unlock()
			i.Why = "its container does not run"
			i.do = func(ctx context.Context) error { return m.removeGate(ctx, be, rec.ID, m.gateGone) }
			return i, false
		}
		i.Why = "another ai-sandbox works on it just now"
		return i, true
	case all:
		i.Why, i.Running = "it runs", true
		i.do = func(ctx context.Context) error { return m.remove(ctx, be, rec) }
		if rec.Kind != "gate" {
			i.do = func(ctx context.Context) error {
				return m.Stop(ctx, rec.ID, func(context.Context, string) (backend.Backend, error) { return be, nil })
			}
		}
		return i, false
	case rec.Kind == "gate" && !m.Answers(ctx, rec):
		i.Why = fmt.Sprintf("it runs and does not answer; ai-sandbox gate down %s ends it", rec.ID)
		return i, true
	}
	return CleanItem{}, true // it lives, as it should
}

// homes are those that match, but for those that a record or a container refers to.
func (m *Manager) homes(ctx context.Context, be backend.Backend, pattern string, used map[string]bool) ([]CleanItem, error) {
	if pattern == "" {
		return nil, nil
	}
	homes, err := be.Homes(ctx)
	if err != nil {
		return nil, err
	}
	var out []CleanItem
	for _, h := range homes {
		match, err := path.Match(pattern, h.Name)
		if err != nil {
			return nil, fmt.Errorf("match the names of homes with %s: %w", policy.Quote(pattern), err)
		}
		if !match {
			continue
		}
		i := CleanItem{What: "home " + policy.Quote(h.Name)}
		switch {
		case used[h.Name]:
			i.Why = "a session uses it, or it is kept with one"
		case h.InUse:
			i.Why = "a container refers to it"
		default:
			i.Why = "asked for"
			i.do = func(ctx context.Context) error { return m.removeHome(ctx, be, h.Name) }
		}
		out = append(out, i)
	}
	return out, nil
}

// removeHome removes a home unless a session has begun to use it since it was listed.
func (m *Manager) removeHome(ctx context.Context, be backend.Backend, name string) error {
	records, err := m.Store.List()
	if err != nil {
		return err
	}
	for _, r := range records {
		if (r.Home == name || slices.Contains(r.Volumes, name)) && r.Runtime == be.Capabilities().Runtime && (r.Kept || m.Store.Liveness(r) != store.Gone) {
			return backend.ErrInUse
		}
	}
	return be.RemoveVolume(ctx, name)
}

// Strays lists what is no runtime's: what is kept of ended sessions for too long,
// temporary files and directories (as patterns of filepath.Glob), and directories that
// no record knows, which stay.
func (m *Manager) Strays(temporary []string) ([]CleanItem, error) {
	now := time.Now()
	old, err := m.Traces().Beyond(m.Retention, now, m.known)
	if err != nil {
		return nil, err
	}
	var out []CleanItem
	for _, id := range old {
		out = append(out, CleanItem{What: "the directory of session " + id, Why: "it is beyond sessions_days or sessions_size",
			do: func(context.Context) error { return m.Traces().Remove(id) }})
	}
	for _, pattern := range temporary {
		items, err := temporaryItems(pattern, now)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
	}
	entries, err := os.ReadDir(m.RuntimeDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for what sessions have left: %w", err)
	}
	for _, e := range entries {
		if _, ok := m.Traces().Dir(e.Name()); ok && e.IsDir() && !m.known(e.Name()) {
			out = append(out, CleanItem{What: "directory " + policy.Quote(filepath.Join(m.RuntimeDir, e.Name())),
				Why: "no record here names it: its session may be one of another XDG_STATE_HOME"})
		}
	}
	return out, nil
}
