// Named gates, reaping and cleaning.

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// PolicyHash is what a gate answers its probe with: the hash of what it lets
// through.
func PolicyHash(n policy.Net) string {
	b, err := json.Marshal(struct {
		Allow, AllowPrivate []string
		Learn               bool             `json:",omitempty"`
		Upstream            *policy.Upstream `json:",omitempty"`
	}{texts(n.Allow), texts(n.AllowPrivate), n.Learn, n.Upstream})
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func texts(entries []policy.Entry) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.String())
	}
	return out
}

// gateName is what a named gate may be called: it becomes a container's name.
var gateName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`) })

// ErrNoGate is returned when no gate of that name is up.
var ErrNoGate = errors.New("no such gate")

// CheckGateName refuses a name that can't be a gate's.
func CheckGateName(name string) error {
	if !gateName().MatchString(name) {
		return fmt.Errorf("gate name %s: use up to 40 of a-z, 0-9 and -, not beginning with -", policy.Quote(name))
	}
	return nil
}

// A GateRequest is what a named gate is to be.
type GateRequest struct {
	Name  string
	Image string // its id
	Net   policy.Net
	// TTL is for how long it may be without a session; 0 is for ever.
	TTL time.Duration
	// Given are its lists as far as flags gave them: pairs of a setting and its value.
	Given [][2]string
}

// GateUp starts a gate that stays until GateDown, or until no session has used it for
// its TTL.
func (m *Manager) GateUp(ctx context.Context, be backend.Backend, r GateRequest) (store.Record, error) {
	name, n := r.Name, r.Net
	if err := CheckGateName(name); err != nil {
		return store.Record{}, err
	}
	unlock, err := m.Store.WaitLock("gate-" + name)
	if err != nil {
		return store.Record{}, err
	}
	defer unlock()
	if old, ok, err := m.Store.Gate(name); err != nil {
		return store.Record{}, err
	} else if ok && m.Store.Liveness(old) == store.Alive && !m.gateGone(ctx, old) {
		return store.Record{}, fmt.Errorf("gate %s is up already: end it with %s", name, endOf(old))
	} else if ok && old.Unit != "" {
		return store.Record{}, fmt.Errorf("gate %s is a unit: start it with %s", name, beginOf(old))
	} else if ok {
		if err := m.remove(ctx, be, old); err != nil {
			return store.Record{}, err
		}
	}
	up, err := m.upstream(ctx, n)
	if err != nil {
		return store.Record{}, err
	}
	dir := filepath.Join(m.StateDir, "gates", name)
	rec := store.Record{ID: name, Kind: "gate", Runtime: be.Capabilities().Runtime, Containers: []string{"aisb-gate-" + name}, Dirs: []string{dir},
		Allow: texts(n.Allow), AllowPrivate: texts(n.AllowPrivate), Nonce: nonce(), PolicyHash: PolicyHash(n), GateImage: r.Image, GateTTL: int64(r.TTL / time.Second), GateGiven: r.Given}
	if n.Upstream != nil {
		rec.Upstream, rec.UpstreamAuth = n.Upstream.URL(), n.Upstream.Credentials
	}
	if err := m.Store.Owner(&rec); err != nil {
		return rec, err
	}
	rec.PID, rec.Start = 0, 0 // it belongs to nobody
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return rec, fmt.Errorf("make the gate's directory: %w", err)
	}
	if err := m.Store.Put(rec); err != nil {
		return rec, err
	}
	if err := m.keepAuth(name); err != nil {
		return rec, errors.Join(err, m.remove(context.WithoutCancel(ctx), be, rec))
	}
	var u undo
	cfg := gate.Config{Allow: n.Allow, AllowPrivate: n.AllowPrivate, Upstream: up, Nonce: rec.Nonce, PolicyHash: rec.PolicyHash}
	g := backend.Gate{Name: rec.Containers[0], GateName: name, Image: r.Image, Idle: r.TTL}
	in := place{conf: dir, log: dir, taken: func(uint16) bool { return false }}
	rg, err := m.startGate(ctx, be, g, cfg, in, &u, nil)
	if err == nil {
		rec.GatePort, rec.GatePeek, rec.GateLog = rg.port, rg.cfg.PeekPort, rg.logDir
		for _, d := range []string{gateConf(rec), rec.GateLog} {
			err = errors.Join(err, os.Mkdir(filepath.Join(d, spec.GateSessions), 0o700))
		}
	}
	if err == nil {
		err = m.Store.Put(rec)
	}
	if err != nil {
		return rec, errors.Join(err, u.run(), m.remove(context.WithoutCancel(ctx), be, rec))
	}
	return rec, nil
}

// gateGone tells whether a named gate's process is surely gone: nobody listens at its
// socket, which it does for as long as it lives. One that is on its way up has a lock.
func (m *Manager) gateGone(ctx context.Context, g store.Record) bool {
	if g.GatePort == 0 {
		return true // its start was cut off
	}
	line, err := callGate(ctx, g, "")
	if err == nil {
		line.close()
	}
	return errors.Is(err, errNotUp)
}

// GateDown ends a named gate.
func (m *Manager) GateDown(ctx context.Context, be backend.Backend, name string) error {
	if err := CheckGateName(name); err != nil {
		return err
	}
	rec, ok, err := m.Store.Gate(name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("gate %s: %w; ai-sandbox gate ls lists those that are up", name, ErrNoGate)
	}
	if rec.Unit != "" {
		return fmt.Errorf("gate %s is a unit: end it with %s", name, endOf(rec))
	}
	return m.remove(ctx, be, rec)
}

// Gates lists the named gates.
func (m *Manager) Gates() ([]store.Record, error) {
	all, err := m.Store.List()
	var out []store.Record
	for _, r := range all {
		if r.Kind == "gate" {
			out = append(out, r)
		}
	}
	return out, err
}

// GateGiven is what a named gate's lists were given by flags.
func (m *Manager) GateGiven(name string) ([][2]string, error) {
	if err := CheckGateName(name); err != nil {
		return nil, err
	}
	rec, ok, err := m.Store.Gate(name)
	if err == nil && !ok {
		err = noGate(name)
	}
	return rec.GateGiven, err
}

// Sharing are the sessions that share a named gate, or are about to.
func (m *Manager) Sharing(name string) ([]store.Record, error) {
	all, err := m.Store.List()
	return slices.DeleteFunc(all, func(r store.Record) bool {
		return r.Kind == "gate" || r.Gate != name || r.Kept || m.Store.Liveness(r) == store.Gone
	}), err
}

// GateNet is what a named gate lets through, for the policy of a run that uses it.
func (m *Manager) GateNet(name string) (policy.Net, error) {
	if err := CheckGateName(name); err != nil {
		return policy.Net{}, err
	}
	rec, ok, err := m.Store.Gate(name)
	if err != nil {
		return policy.Net{}, err
	}
	if !ok {
		return policy.Net{}, noGate(name)
	}
	n := policy.Net{Mode: policy.NetGated, GateName: name}
	if n.Upstream, err = upstreamOf(rec); err != nil {
		return n, err
	}
	for _, l := range []struct {
		from []string
		to   *[]policy.Entry
	}{{rec.Allow, &n.Allow}, {rec.AllowPrivate, &n.AllowPrivate}} {
		for _, s := range l.from {
			e, err := policy.ParseEntry(s)
			if err != nil {
				return n, fmt.Errorf("read the record of gate %s: %w", name, err)
			}
			*l.to = append(*l.to, e)
		}
	}
	return n, nil
}

// remove takes down everything that a record names, and the record last.
func (m *Manager) remove(ctx context.Context, be backend.Backend, r store.Record) error {
	if err := m.removeParts(ctx, be, r); err != nil {
		return err
	}
	return m.Store.Delete(r)
}

func (m *Manager) removeParts(ctx context.Context, be backend.Backend, r store.Record) error {
	var errs []error
	for _, c := range r.Containers {
		if !strings.HasPrefix(c, "aisb-") {
			return fmt.Errorf("the record of %s names the container %s, which is not ours; nothing was removed", r.ID, policy.Quote(c))
		}
		errs = append(errs, be.Remove(ctx, c))
	}
	for _, v := range r.Volumes {
		errs = append(errs, be.RemoveVolume(ctx, v))
	}
	if err := errors.Join(errs...); err == nil { // or something may still run in the project
		errs = append(errs, m.letGo(r, nil))
	}
	for _, d := range r.Dirs {
		if !m.ours(d) {
			return fmt.Errorf("the record of %s names the directory %s, which is not ours; it was not removed", r.ID, policy.Quote(d))
		}
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

// ours tells whether a directory lies below our own.
func (m *Manager) ours(dir string) bool {
	for _, root := range []string{m.RuntimeDir, m.StateDir} {
		if rel, err := filepath.Rel(root, dir); err == nil && rel != "." && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// Reap removes what has surely no living owner any more, and tells how much
// it was. Records whose owner is in doubt are left alone and named. What is on
// another runtime than be's waits for a command that uses that one.
func (m *Manager) Reap(ctx context.Context, be backend.Backend) (removed int, doubt []string, err error) {
	records, err := m.Store.List()
	errs := []error{err}
	for _, r := range records {
		if r.Runtime != be.Capabilities().Runtime || r.Kept {
			continue
		}
		if m.pastUse(ctx, r) {
			if err := m.removeGate(ctx, be, r.ID, m.pastUse); !errors.Is(err, errBack) {
				errs = append(errs, err)
				removed++
			}
			continue
		}
		switch m.Store.Liveness(r) {
		case store.Gone:
			gone, err := m.reap(ctx, be, r)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if gone {
				removed++
			}
		case store.Unknown:
			doubt = append(doubt, r.ID)
		}
	}
	return removed, doubt, errors.Join(errs...)
}

// pastUse tells whether a named gate with a TTL has ended, be it for that or otherwise.
func (m *Manager) pastUse(ctx context.Context, r store.Record) bool {
	return r.Kind == "gate" && r.GateTTL > 0 && r.Unit == "" && m.Store.Liveness(r) == store.Alive && m.gateGone(ctx, r)
}

// errBack is of a gate that was gone when somebody looked, and is no more.
var errBack = errors.New("it came up again, or another ai-sandbox works on it just now")

// removeGate removes what is left of a named gate, unless that is errBack: past tells of
// its record of now whether it is gone.
func (m *Manager) removeGate(ctx context.Context, be backend.Backend, name string, past func(context.Context, store.Record) bool) error {
	unlock, err := m.Store.Lock("gate-" + name)
	if err != nil {
		return errBack
	}
	defer unlock()
	r, ok, err := m.Store.Gate(name)
	switch {
	case err != nil || !ok:
		return err
	case !past(ctx, r):
		return errBack
	}
	return m.remove(ctx, be, r)
}

// reap removes what is left of one whose owner is gone. gone is false where there was
// nothing to remove, or somebody else does it.
func (m *Manager) reap(ctx context.Context, be backend.Backend, r store.Record) (gone bool, err error) {
	// An owner that ended by itself since the record was read has removed it.
	r, gone, err = m.Store.Again(r)
	if err != nil || !gone {
		return false, err
	}
	switch {
	case r.Kind == store.KindSandbox:
		gone, err = m.reapSandbox(ctx, be, r.ID)
	case r.Keep:
		err = m.reapKept(ctx, be, r)
	default:
		err = m.remove(ctx, be, r)
	}
	if err != nil || !gone {
		return false, err
	}
	return true, m.Traces().Append(r.ID, trace.Event{Event: trace.Reaped})
}

// reapLater reaps beside a start, and never ends it: what it can't remove now
// the next command tries again.
func (m *Manager) reapLater(ctx context.Context, be backend.Backend) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		if _, _, err := m.Reap(ctx, be); err != nil {
			m.Say("leftovers of an earlier session could not be removed: %v", err)
		}
		if _, err := m.Traces().Prune(m.Retention, m.known); err != nil {
			m.Say("old sessions could not be removed: %v", err)
		}
	}()
	return done
}

// Answers tells whether a named gate is there and is the one recorded.
func (m *Manager) Answers(ctx context.Context, r store.Record) bool {
	if r.GatePort == 0 {
		return false
	}
	ready, err := probe(ctx, r.GatePort, gate.Config{Nonce: r.Nonce, PolicyHash: r.PolicyHash})
	return err == nil && ready
}
