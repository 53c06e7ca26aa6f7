// Changing what a running session may reach, from outside: its owner listens at a unix
// socket that nothing inside can see and that only this user's processes are answered
// at.

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// steerVersion is that of the messages below.
const steerVersion = 1

// steerSocket is the socket's name in the session's runtime directory.
const steerSocket = "steer.sock"

// A Steering asks for a change of a session's lists, or with none of them for what is
// in force.
type Steering struct {
	// Allow and AllowPrivate are entries to add, and Deny such to take away, with all
	// that each covers.
	Allow        []policy.Entry `json:"allow,omitempty"`
	AllowPrivate []policy.Entry `json:"allow_private,omitempty"`
	Deny         []policy.Entry `json:"deny,omitempty"`
	// Lists take the place of both lists. Nothing else is asked for then.
	Lists *Lists `json:"lists,omitempty"`
}

// Lists are what a gate lets through.
type Lists struct {
	// Gate is the named gate whose lists these are, or "".
	Gate         string         `json:"gate,omitempty"`
	Allow        []policy.Entry `json:"allow"`
	AllowPrivate []policy.Entry `json:"allow_private"`
}

func (s Steering) empty() bool {
	return len(s.Allow)+len(s.AllowPrivate)+len(s.Deny) == 0 && s.Lists == nil
}

// A Change is a Steering that was carried out.
type Change struct {
	Time string `json:"time"` // RFC 3339
	// Gate is the named gate that got another list, which the session has since then.
	Gate string `json:"gate,omitempty"`
	// The lists are entries as they are written.
	Allow        []string `json:"allow,omitempty"`
	AllowPrivate []string `json:"allow_private,omitempty"`
	Deny         []string `json:"deny,omitempty"`
	// Cut is how many connections that was the end of.
	Cut int `json:"cut"`
}

type steerRequest struct {
	Version int `json:"version"`
	Steering
}

// A Force is what is in force in a session.
type Force struct {
	Refused string `json:"refused,omitempty"`
	// Policy is as --print-policy=json prints it.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Hash is that of the lists, with which the gate itself has answered; "" where
	// there is no gate.
	Hash string `json:"hash,omitempty"`
	Cut  int    `json:"cut,omitempty"`
}

// A steerer serves one session.
type steerer struct {
	r      *run
	l      *net.UnixListener
	closed chan struct{}
	wg     sync.WaitGroup
	one    sync.Mutex // a change at a time
	net    policy.Net // what is in force
}

// steer begins to listen.
func (r *run) steer() (*steerer, error) {
	l, err := r.listen(steerSocket, "changes of what the session may reach")
	if err != nil {
		return nil, err
	}
	s := &steerer{r: r, l: l, closed: make(chan struct{}), net: r.req.Policy.Net}
	s.wg.Go(func() { acceptEach(l, &s.wg, s.serve) })
	return s, nil
}

// Close ends it, and waits for a change that is under way.
func (s *steerer) Close() error {
	close(s.closed)
	err := s.l.Close()
	s.wg.Wait()
	return err
}

func (s *steerer) serve(conn *net.UnixConn) {
	if checkPeer(conn, os.Getuid()) != nil {
		return // it is told nothing
	}
	_ = conn.SetDeadline(time.Now().Add(helloTime + 4*changeTime))
	var req steerRequest
	_ = conn.SetReadDeadline(time.Now().Add(helloTime))
	err := spec.ReadFrame(conn, &req)
	if err != nil || req.Version != steerVersion {
		err = errors.New("the request makes no sense to this session's ai-sandbox: it is of another version")
	}
	var f Force
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.closed:
				cancel()
			case <-ctx.Done():
			}
		}()
		f, err = s.carryOut(ctx, req.Steering)
	}
	if err != nil {
		f = Force{Refused: s.r.req.Redact.Text(err.Error())}
	}
	_ = spec.WriteFrame(conn, f) // a client that is gone can ask again
}

// carryOut changes the lists and tells what is in force then.
func (s *steerer) carryOut(ctx context.Context, want Steering) (f Force, err error) {
	s.one.Lock()
	defer s.one.Unlock()
	r := s.r
	if !want.empty() {
		if f.Cut, err = s.change(ctx, want); err != nil {
			return f, err
		}
	}
	p := r.req.Policy.Filled(r.id, 0)
	p.Net = s.net
	if p.Net.Gated() {
		if err := r.gate.confirm(ctx); err != nil {
			return f, err
		}
		f.Hash = r.gate.config().PolicyHash
		if f.Hash != PolicyHash(p.Net) {
			return f, errors.New("the gate goes by other lists than the session's policy has: end the session")
		}
	}
	p.InForce = &policy.InForce{Hash: f.Hash, Confirmed: f.Hash != ""}
	text, err := p.Redacted(r.req.Redact).JSON()
	f.Policy = json.RawMessage(r.req.Redact.Text(string(text)))
	return f, err
}

func (s *steerer) change(ctx context.Context, want Steering) (cut int, err error) {
	r := s.r
	n := s.net
	switch {
	case !n.Gated():
		return 0, fmt.Errorf("the session has no gate (net is %s), so nothing can be let through or refused", n.Mode)
	case n.Learn:
		return 0, errors.New("the session learns (--net learn), so every public host is let through")
	}
	before := slices.Concat(n.Allow, n.AllowPrivate)
	if n, err = Steered(n, want); err != nil {
		return 0, err
	}
	was := r.gate.config()
	if want.Lists != nil && was.PolicyHash == PolicyHash(n) {
		return 0, nil // squids that read their lists anew are deaf for a moment
	}
	c := was
	c.Allow, c.AllowPrivate, c.PolicyHash = n.Allow, n.AllowPrivate, PolicyHash(n)
	c.Classes = classesOf(was, c)
	if cut, err = r.gate.change(ctx, c); err != nil {
		return 0, err
	}
	r.gate.setConfig(c)
	s.net = n
	r.gateLog.setRules(gate.NewRules(n.Allow, n.AllowPrivate))
	var words []string
	changed := Change{Time: time.Now().UTC().Format(time.RFC3339), Cut: cut}
	if l := want.Lists; l != nil {
		if changed.Gate = l.Gate; l.Gate != "" {
			words = append(words, "gate reload "+l.Gate)
		}
		want.Allow, want.AllowPrivate = without(n.Allow, before), without(n.AllowPrivate, before)
		want.Deny = without(before, slices.Concat(n.Allow, n.AllowPrivate))
	}
	changed.Allow, changed.AllowPrivate, changed.Deny = texts(want.Allow), texts(want.AllowPrivate), texts(want.Deny)
	for _, l := range []struct {
		what string
		list []policy.Entry
	}{{"allow", want.Allow}, {"allow_private", want.AllowPrivate}, {"deny", want.Deny}} {
		if len(l.list) > 0 {
			words = append(words, l.what+" "+strings.Join(texts(l.list), " "))
		}
	}
	if r.trace != nil {
		r.traceForce(n)
		r.trace.Add(trace.Event{Event: trace.Changed, Reason: strings.Join(words, "; ")})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Changes) >= maxChanges {
		r.report.Changes = r.report.Changes[1:]
	}
	r.report.Changes = append(r.report.Changes, changed)
	return cut, nil
}

// without are the entries of a list that another one has not.
func without(list, other []policy.Entry) []policy.Entry {
	return slices.DeleteFunc(slices.Clone(list), func(e policy.Entry) bool { return slices.Contains(other, e) })
}

// maxChanges bounds what a report has of them: the last ones.
const maxChanges = 1000

// Steered are a network's lists after a change.
func Steered(n policy.Net, want Steering) (policy.Net, error) {
	for _, e := range slices.Concat(want.Allow, want.AllowPrivate, want.Deny) {
		if !e.Valid() {
			return n, fmt.Errorf("%s is no entry that the grammar gives", policy.Quote(e.String()))
		}
	}
	if l := want.Lists; l != nil {
		for _, e := range slices.Concat(l.Allow, l.AllowPrivate) {
			if !e.Valid() {
				return n, fmt.Errorf("%s is no entry that the grammar gives", policy.Quote(e.String()))
			}
		}
		n.Allow, n.AllowPrivate = policy.Normalise(l.Allow), policy.Normalise(l.AllowPrivate)
		return n, nil
	}
	for _, d := range want.Deny {
		found := false
		drop := func(list []policy.Entry) []policy.Entry {
			return slices.DeleteFunc(slices.Clone(list), func(e policy.Entry) bool {
				found = found || d.Covers(e)
				return d.Covers(e)
			})
		}
		n.Allow, n.AllowPrivate = drop(n.Allow), drop(n.AllowPrivate)
		for _, e := range slices.Concat(n.Allow, n.AllowPrivate) {
			if e.Covers(d) {
				return n, fmt.Errorf("%s is let through by %s, and a list has no exceptions: deny that, and allow what you want of it", d, e)
			}
		}
		if !found {
			return n, fmt.Errorf("nothing on the list lets %s through, so it is refused already", d)
		}
	}
	n.Allow = policy.Normalise(slices.Concat(n.Allow, want.Allow))
	n.AllowPrivate = policy.Normalise(slices.Concat(n.AllowPrivate, want.AllowPrivate))
	return n, nil
}

// ErrNotRunning is returned when no session of that id runs.
var ErrNotRunning = errors.New("no such session runs")

// Steer changes what a running session may reach, and tells what is in force then.
func (m *Manager) Steer(ctx context.Context, id string, want Steering) (f Force, err error) {
	if _, ok := m.Traces().Dir(id); !ok {
		return f, fmt.Errorf("session %s: %w", policy.Quote(id), ErrNotRunning)
	}
	path, err := socketPath(filepath.Join(m.RuntimeDir, id, steerSocket))
	if err != nil {
		return f, err
	}
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return f, fmt.Errorf("session %s: %w", id, ErrNotRunning)
	case err != nil:
		return f, fmt.Errorf("reach session %s: %w", id, err)
	}
	defer dialled.Close()
	stop := context.AfterFunc(ctx, func() { dialled.Close() })
	defer stop()
	conn, ok := dialled.(*net.UnixConn)
	if !ok {
		return f, fmt.Errorf("reach session %s: not a unix socket", id)
	}
	if err := checkPeer(conn, os.Getuid()); err != nil {
		return f, err
	}
	if err := spec.WriteFrame(conn, steerRequest{steerVersion, want}); err != nil {
		return f, fmt.Errorf("ask session %s: %w", id, err)
	}
	if err := spec.ReadFrame(conn, &f); err != nil {
		return f, fmt.Errorf("ask session %s: %w", id, err)
	}
	if f.Refused != "" {
		return f, errors.New(f.Refused)
	}
	return f, nil
}
