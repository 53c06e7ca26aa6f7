// The project's protected paths while a session lasts. Placeholders stand in the
// project itself, so two sessions in one project share them: the kernel would undo
// the one's mount when the other removes what it is on.

package session

import (
	"context"
	"errors"
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
)

// placeholderLock is held while placeholders are recorded and made, or removed.
const placeholderLock = "placeholders"

// hold opens what the policy protects and makes the placeholders, after the record
// names them.
func (r *run) hold(rec store.Record) error {
	h, err := protect.Open(r.req.Policy, r.req.Project, r.req.Home)
	if err != nil {
		return err
	}
	r.held = h
	r.undo.push("let go of the protected paths", func(context.Context) error {
		defer h.Close()
		return r.m.letGo(rec, func() error { return r.claim(&rec, nil) })
	})
	// Everything that ran in the project is gone by then.
	r.undo.push("look at what changed", func(context.Context) error {
		look := h.Look()
		r.report.Changed, r.report.ChangedMore, r.report.ChangedPartly = look.Changes, look.More, look.Partly
		return nil
	})
	if h.Empty() {
		return nil
	}
	unlock, err := r.m.Store.WaitLock(placeholderLock)
	if err != nil {
		return err
	}
	defer unlock()
	others, err := r.m.claims(rec, false)
	if err != nil {
		r.m.Say("%v", err) // what it names may be taken for the project's own
	}
	list, err := h.Claims(others)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		if err := r.claim(&rec, list); err != nil {
			return err
		}
		list, err = h.Make(list)
		if err := errors.Join(err, r.claim(&rec, list)); err != nil {
			return err
		}
	}
	r.binds, err = h.Binds()
	return err
}

// claim writes down which placeholders the session uses.
func (r *run) claim(rec *store.Record, list []store.Placeholder) error {
	rec.Placeholders = list
	if sb := r.req.Sandbox; sb != nil {
		sb.rec.Placeholders = list
		rec = &sb.rec
	}
	return r.m.Store.Put(*rec)
}

// claims are the placeholders that other records name: all of them, or those whose
// owner may be alive.
func (m *Manager) claims(but store.Record, alive bool) ([]store.Placeholder, error) {
	records, err := m.Store.List()
	var out []store.Placeholder
	for _, r := range records {
		if len(r.Placeholders) == 0 || r.Kind == but.Kind && r.ID == but.ID || alive && m.Store.Liveness(r) == store.Gone {
			continue
		}
		out = append(out, r.Placeholders...)
	}
	return out, err
}

// letGo removes the placeholders that a record names, but for those that somebody
// else uses, who removes them in his turn; then it calls after, if there is one,
// before anybody else looks.
func (m *Manager) letGo(rec store.Record, after func() error) error {
	if len(rec.Placeholders) == 0 {
		return nil
	}
	unlock, err := m.Store.WaitLock(placeholderLock)
	if err != nil {
		return err
	}
	defer unlock()
	others, err := m.claims(rec, true)
	if err != nil {
		return err // it may be one of these that can't be read
	}
	var errs []error
	for _, p := range rec.Placeholders {
		used := slices.ContainsFunc(others, func(o store.Placeholder) bool { return o.Root == p.Root && o.Path == p.Path })
		if !used {
			errs = append(errs, protect.Remove(p))
		}
	}
	if err := errors.Join(errs...); err != nil || after == nil {
		return err
	}
	return after()
}
