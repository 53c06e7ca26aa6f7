// What is kept of a session after it has ended: its directory (package trace), and
// with Request.Keep its container and home.

package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/policy"
)

// Traces are the directories of all sessions.
func (m *Manager) Traces() trace.Store { return trace.At(filepath.Join(m.StateDir, "sessions")) }

// gateLogs is the directory of the log that a session's own squids write. It goes
// with them: what is kept of it is in the session's directory, above it.
func (m *Manager) gateLogs(id string) string {
	return filepath.Join(m.StateDir, "sessions", id, FirstGate)
}

// traceBegin writes down that the session has begun, and beside the start, what it
// may do.
func (r *run) traceBegin(rec store.Record) error {
	p := r.req.Policy.Filled(r.id, 0).Redacted(r.req.Redact)
	net := p.Net.Mode
	if p.Net.Learn {
		net = policy.NetLearn
	}
	w, err := r.m.Traces().Begin(r.id, r.req.Redact.Text, trace.Event{
		Kind: rec.Kind, Runtime: p.Runtime, Net: net, Project: p.Project, Command: p.Command, PID: os.Getpid(), Keep: r.req.Keep,
	})
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	r.trace, r.policied = w, sync.OnceValue(func() error { return <-written })
	go func() {
		text, err := p.JSON()
		if err == nil {
			err = w.Policy(text)
		}
		written <- err
	}()
	return nil
}

// traceForce writes down what the session may do since a change of its lists.
func (r *run) traceForce(n policy.Net) {
	if r.trace == nil || r.policied() != nil {
		return // which the end tells
	}
	p := r.req.Policy.Filled(r.id, 0)
	p.Net = n
	text, err := p.Redacted(r.req.Redact).JSON()
	r.trace.Replace(text, err)
}

// traceEnd writes down how the session ended.
func (r *run) traceEnd() {
	if r.trace == nil {
		return
	}
	if err := r.policied(); err != nil {
		r.m.Say("not all is kept of session %s: %v", r.id, err)
	}
	last := trace.Event{Event: trace.Ended, ExitCode: &r.report.ExitCode, EndedBy: r.report.EndedBy, Reason: r.report.Reason}
	if r.kept {
		last.Event = trace.Kept
	}
	if err := r.trace.End(r.report, last); err != nil {
		r.m.Say("not all is kept of session %s: %v", r.id, err)
	}
}

// keepTime bounds the end of a container that is kept, after its lifeline has ended.
const keepTime = 20 * time.Second

// endBox takes the sandbox away, or with Keep waits until it has ended: the end of
// its lifeline is the end of all that runs in it. One that does not end is not kept.
func (r *run) endBox(ctx context.Context, name string) error {
	if !r.req.Keep || !stays(r.be) {
		return r.be.Remove(ctx, name)
	}
	ctx2, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	_, err := r.be.Exit(ctx2, name)
	if err == nil || errors.Is(err, backend.ErrNotExist) {
		return nil
	}
	r.m.Say("the container %s is not kept, as it does not end: %v", name, err)
	return r.be.Remove(ctx, name)
}

// stays tells whether a backend's containers outlive what runs in them.
func stays(be backend.Backend) bool {
	return be.Capabilities().Isolation == policy.IsolationContainer
}

// settle is the last step of the undoing: the record goes, unless something is kept
// that it has to name.
func (r *run) settle(rec store.Record) error {
	if !r.req.Keep {
		return r.m.Store.Delete(rec)
	}
	r.kept = true
	return r.m.keep(rec)
}

// keep makes a record one of what is kept.
func (m *Manager) keep(rec store.Record) error {
	rec.Kept, rec.Placeholders, rec.Dirs = true, nil, nil
	rec.Containers = rec.Containers[:min(1, len(rec.Containers))] // not the gate's
	return m.Store.Put(rec)
}

// reapKept ends what a session with Keep has left running when its owner was killed,
// and keeps the rest.
func (m *Manager) reapKept(ctx context.Context, be backend.Backend, rec store.Record) error {
	if len(rec.Containers) == 0 {
		return m.keep(rec)
	}
	box, rest := rec.Containers[0], rec
	if stays(be) {
		rest.Containers = rec.Containers[1:]
		ctx, cancel := context.WithTimeout(ctx, keepTime)
		defer cancel()
		if _, err := be.Exit(ctx, box); err != nil && !errors.Is(err, backend.ErrNotExist) {
			return fmt.Errorf("keep the container %s: %w", box, err)
		}
	}
	rest.Volumes = nil
	if err := m.removeParts(ctx, be, rest); err != nil {
		return err
	}
	return m.keep(rec)
}

// known tells whether a record still names a session: what is kept of it is not for
// the retention to remove.
func (m *Manager) known(id string) bool {
	_, ok, err := m.Store.Session(id)
	return ok || err != nil
}
