// Another list for a named gate, and for every session that shares it.

package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// A Reloaded is what came of a GateReload.
type Reloaded struct {
	// Hash is what the gate and each of the sessions has answered with.
	Hash string `json:"hash"`
	// Added and Removed are entries, as they are written.
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	// Sessions share the gate, and Cut connections of theirs were ended.
	Sessions []string `json:"sessions"`
	Cut      int      `json:"cut"`
}

// reloadTime bounds the wait for a session that is still on its way up.
const reloadTime = 30 * time.Second

// GateReload gives a named gate another list, and with it every session that shares it:
// what was changed for one of those alone is gone then. Each gate has to answer with the
// list's hash. A session that does not take it is ended, and named.
func (m *Manager) GateReload(ctx context.Context, r GateRequest) (out Reloaded, err error) {
	if err := CheckGateName(r.Name); err != nil {
		return out, err
	}
	unlock, err := m.Store.WaitLock("gate-" + r.Name)
	if err != nil {
		return out, err
	}
	defer unlock()
	rec, ok, err := m.Store.Gate(r.Name)
	if err != nil {
		return out, err
	}
	if !ok || rec.GatePort == 0 {
		return out, noGate(r.Name)
	}
	lists := Lists{Gate: r.Name, Allow: policy.Normalise(r.Net.Allow), AllowPrivate: policy.Normalise(r.Net.AllowPrivate)}
	n := policy.Net{GateName: r.Name, Allow: lists.Allow, AllowPrivate: lists.AllowPrivate}
	if n.Upstream, err = upstreamOf(rec); err != nil { // that stays
		return out, err
	}
	up, err := m.upstream(ctx, n)
	if err != nil {
		return out, err
	}
	out = Reloaded{Hash: PolicyHash(n), Sessions: []string{}}
	out.Added, out.Removed = listDiff(rec, texts(lists.Allow), texts(lists.AllowPrivate))
	c := gate.Config{
		Allow: lists.Allow, AllowPrivate: lists.AllowPrivate, Upstream: up, FrontPort: rec.GatePort, PeekPort: rec.GatePeek,
		Nonce: rec.Nonce, PolicyHash: out.Hash, Classes: []policy.Entry{}, // no session's tunnels are its own
	}
	line, err := callGate(ctx, rec, "")
	if err == nil {
		defer line.close()
		if err = line.started(); err == nil {
			g := &runningGate{confDir: gateConf(rec), reload: line.reload, ended: line.ended}
			err = g.reconfigure(ctx, c)
		}
	}
	if err != nil {
		return out, fmt.Errorf("reload gate %s, which may go by either list now (to end it: %s): %w", r.Name, endOf(rec), err)
	}
	// Whoever begins from here on finds the new list; who began before is asked below.
	rec.Allow, rec.AllowPrivate, rec.PolicyHash, rec.GateGiven = texts(lists.Allow), texts(lists.AllowPrivate), out.Hash, r.Given
	if err := m.Store.Put(rec); err != nil {
		return out, err
	}
	sharing, err := m.Sharing(r.Name)
	if err != nil {
		return out, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, s := range sharing {
		wg.Go(func() {
			f, err := m.giveLists(ctx, s, lists, out.Hash)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrNotRunning): // it has ended meanwhile
			case err != nil:
				errs = append(errs, fmt.Errorf("session %s does not take the list; end it with ai-sandbox stop %s: %w", s.ID, s.ID, err))
			default:
				out.Sessions, out.Cut = append(out.Sessions, s.ID), out.Cut+f.Cut
			}
		})
	}
	wg.Wait()
	slices.Sort(out.Sessions)
	return out, errors.Join(errs...)
}

// listDiff tells what a list has that the record's has not, and the other way round.
func listDiff(rec store.Record, allow, private []string) (added, removed []string) {
	all := func(allow, private []string) []string {
		out := slices.Clone(allow)
		for _, e := range private {
			out = append(out, e+" (private)")
		}
		return out
	}
	before, after := all(rec.Allow, rec.AllowPrivate), all(allow, private)
	not := func(list, other []string) []string {
		return append([]string{}, slices.DeleteFunc(slices.Clone(list), func(e string) bool { return slices.Contains(other, e) })...)
	}
	return not(after, before), not(before, after)
}

// giveLists steers a session, and waits for one that is on its way up.
func (m *Manager) giveLists(ctx context.Context, s store.Record, lists Lists, hash string) (f Force, err error) {
	for end := time.Now().Add(reloadTime); ; time.Sleep(20 * time.Millisecond) {
		f, err = m.Steer(ctx, s.ID, Steering{Lists: &lists})
		if !errors.Is(err, ErrNotRunning) {
			break
		}
		if now, ok, rerr := m.Store.Session(s.ID); rerr != nil || !ok || m.Store.Liveness(now) == store.Gone {
			return f, errors.Join(err, rerr)
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return f, errors.New("it does not come up")
		}
	}
	if err == nil && f.Hash != hash {
		err = errors.New("its gate answers with another hash")
	}
	return f, err
}
