// Sessions as a user sees them: which there are, what is known of each, and the end
// of one, also from another process than its owner.

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/policy"
)

// States of a session.
const (
	StateLive  = "live"
	StateEnded = "ended"
	// StateKept has ended, and its container and home are kept (--keep), or the
	// workspace of a sandbox.
	StateKept = "kept"
	// StateUnknown was started in another process namespace: whether it lives can't
	// be told here.
	StateUnknown = "unknown"
)

// A Summary is a session in a list.
type Summary struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// Kind is "session" or store.KindSandbox (of "up").
	Kind    string    `json:"kind"`
	Runtime string    `json:"runtime"`
	Net     string    `json:"net,omitempty"`
	Project string    `json:"project,omitempty"`
	Command []string  `json:"command"` // empty where none was given
	Begun   time.Time `json:"begun,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode and EndedBy are as in a Report. EndedByLoss without an exit code is a
	// session whose owner was killed.
	ExitCode *int   `json:"exit_code,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// PID is that of a live session's owner.
	PID int `json:"pid,omitempty"`
	// Containers, Volumes and Workspace are what is kept.
	Containers []string `json:"containers,omitempty"`
	Volumes    []string `json:"volumes,omitempty"`
	Workspace  string   `json:"workspace,omitempty"`
	// Dir is where more is known of it, if it has such a directory.
	Dir string `json:"dir,omitempty"`
}

// ErrNoSession is returned when nothing is known of a session.
var ErrNoSession = errors.New("no such session")

// Sessions lists all that are known of, the newest first. What can't be read is an
// error beside the others.
func (m *Manager) Sessions() ([]Summary, error) {
	ids, ierr := m.Traces().IDs()
	// After the directories: a session that ends now is in one of both.
	records, rerr := m.Store.List()
	byID := map[string]store.Record{}
	for _, r := range records {
		if r.Kind == "gate" || r.Kind == store.KindLook {
			continue
		}
		byID[r.ID] = r
		if !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	out := []Summary{}
	errs := []error{ierr, rerr}
	for _, id := range ids {
		rec, ok := byID[id]
		s, err := m.summary(id, rec, ok)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		if err == nil {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b Summary) int { return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(a.ID, b.ID)) })
	return out, errors.Join(errs...)
}

// summary puts together what the record and the events say of a session.
func (m *Manager) summary(id string, rec store.Record, recorded bool) (Summary, error) {
	s := Summary{ID: id, State: StateEnded, Command: []string{}}
	events, err := m.Traces().Events(id)
	if err != nil && !(recorded && errors.Is(err, fs.ErrNotExist)) {
		return s, fmt.Errorf("read the events of session %s: %w", id, err)
	}
	if err == nil {
		s.Dir, _ = m.Traces().Dir(id)
	}
	told := false
	for _, e := range events {
		switch e.Event {
		case trace.Begun:
			s.Kind, s.Runtime, s.Net, s.Project, s.Begun = e.Kind, e.Runtime, e.Net, e.Project, e.Time
			s.Command = append(s.Command, e.Command...)
		case trace.Ended, trace.Kept:
			told = true
			s.Ended, s.ExitCode, s.EndedBy, s.Reason = e.Time, e.ExitCode, e.EndedBy, e.Reason
		}
	}
	if recorded {
		s.Kind, s.Runtime = rec.Kind, rec.Runtime
		s.Project = cmp.Or(s.Project, rec.Project)
		switch alive := m.Store.Liveness(rec); {
		case rec.Kept:
			s.State, s.Containers, s.Volumes = StateKept, rec.Containers, rec.Volumes
		case alive == store.Alive:
			s.State, s.PID = StateLive, rec.PID
			return s, nil
		case alive == store.Unknown:
			s.State, s.PID = StateUnknown, rec.PID
			return s, nil
		case rec.Kind == store.KindSandbox && rec.Ready:
			if w := rec.Workspace; w != nil && w.Own {
				s.State, s.Workspace = StateKept, w.Path
			}
		}
	}
	if !told {
		s.EndedBy, s.Reason = EndedByLoss, "its ai-sandbox was killed"
	}
	return s, nil
}

// Logs are what is known of a session.
type Logs struct {
	Version int           `json:"version"` // 1
	Events  []trace.Event `json:"events"`
	// Output is the end of a sandbox's log, what its supervisor said included.
	Output string `json:"output,omitempty"`
}

// maxOutput is how much of a log is read, in bytes: its end.
const maxOutput = 1 << 20

// Logs reads what is known of a session.
func (m *Manager) Logs(id string) (Logs, error) {
	l := Logs{Version: 1}
	var err error
	if l.Events, err = m.Traces().Events(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l, fmt.Errorf("read the events of session %s: %w", policy.Quote(id), err)
	}
	none := err != nil
	if _, ok := m.Traces().Dir(id); ok {
		f, err := os.OpenFile(filepath.Join(m.sandboxDir(id), logName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return l, fmt.Errorf("read the log of sandbox %s: %w", id, err)
		default:
			defer f.Close()
			none = false
			if l.Output, err = end(f); err != nil {
				return l, fmt.Errorf("read the log of sandbox %s: %w", id, err)
			}
		}
	}
	if none {
		return l, fmt.Errorf("session %s: %w; ai-sandbox ls lists those that are known", policy.Quote(id), ErrNoSession)
	}
	return l, nil
}

// end is the end of a file.
func end(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxOutput), maxOutput))
	return string(text), err
}

// lookup finds the record of a session that may be asked about from here. ok tells
// whether there is one.
func (m *Manager) lookup(id string) (rec store.Record, alive store.Liveness, ok bool, err error) {
	if rec, ok, err = m.Store.Session(id); err != nil || !ok {
		return rec, store.Gone, false, err
	}
	if alive = m.Store.Liveness(rec); alive == store.Unknown && !rec.Kept {
		return rec, alive, true, fmt.Errorf("session %s may or may not live: %s; ask from where it was started", id, m.Store.WhyUnknown(rec))
	}
	return rec, alive, true, nil
}

// wasThere is nil where a session that has no record has left its directory.
func (m *Manager) wasThere(id string) error {
	_, err := m.Traces().Events(id)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session %s: %w; ai-sandbox ls lists those that are known", policy.Quote(id), ErrNoSession)
	}
	if err != nil {
		return fmt.Errorf("read the events of session %s: %w", policy.Quote(id), err)
	}
	return nil
}

// Stop ends a session, as a signal to its owner would: the command gets SIGTERM, and
// what was made for it is removed. What outlives a sandbox stays for Down.
func (m *Manager) Stop(ctx context.Context, id string, backendOf func(ctx context.Context, runtime string) (backend.Backend, error)) error {
	rec, alive, ok, err := m.lookup(id)
	switch {
	case err != nil:
		return err
	case !ok:
		if err := m.wasThere(id); err != nil {
			return err
		}
		return fmt.Errorf("session %s has ended already", id)
	case rec.Kept || alive == store.Gone:
		return fmt.Errorf("session %s has ended already; ai-sandbox rm %s removes what is kept of it", id, id)
	case rec.Kind == store.KindSandbox:
		err = m.endSupervisor(ctx, rec)
	default:
		err = m.endOwner(ctx, rec)
	}
	if err != nil {
		return err
	}
	// It has removed all of it, unless it had to be killed.
	if rec, _, ok, err = m.lookup(id); err != nil || !ok || rec.Kept || !left(rec) {
		return err
	}
	be, err := backendOf(ctx, rec.Runtime)
	if err != nil {
		return err
	}
	_, _, err = m.Reap(ctx, be)
	return err
}

// endOwner asks the process that owns a session to end, and kills it when it does
// not. Other processes of its group are the user's.
func (m *Manager) endOwner(ctx context.Context, rec store.Record) error {
	return m.endProcess(ctx, rec, (*store.Process).Kill)
}

// Remove takes away what is kept of a session that has ended. backendOf is asked only
// where a container or a home is.
func (m *Manager) Remove(ctx context.Context, id string, backendOf func(ctx context.Context, runtime string) (backend.Backend, error)) error {
	rec, alive, ok, err := m.lookup(id)
	switch {
	case err != nil:
		return err
	case !ok:
		if err := m.wasThere(id); err != nil {
			return err
		}
		return m.Traces().Remove(id)
	case alive == store.Alive && !rec.Kept:
		return fmt.Errorf("session %s lives; end it with ai-sandbox stop %s first", id, id)
	case rec.Kind == store.KindSandbox:
		return fmt.Errorf("session %s is a sandbox, which may have results in its workspace; remove both with ai-sandbox down %s", id, id)
	}
	if left(rec) {
		be, err := backendOf(ctx, rec.Runtime)
		if err != nil {
			return err
		}
		if err := m.removeParts(ctx, be, rec); err != nil {
			return err
		}
	}
	if err := m.Traces().Remove(id); err != nil {
		return err
	}
	return m.Store.Delete(rec)
}

// Stale counts the sessions and gates whose owner is gone and of which something is
// left to remove.
func (m *Manager) Stale() (int, error) {
	records, err := m.Store.List()
	n := 0
	for _, r := range records {
		if !r.Kept && m.Store.Liveness(r) == store.Gone && (r.Kind != store.KindSandbox || left(r)) {
			n++
		}
	}
	return n, err
}
