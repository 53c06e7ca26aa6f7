// Other rules for a gate that runs.

package builtin

import (
	"fmt"
	"net/netip"
	"slices"

	"ai-sandbox/gate"
)

// A ruleset is what a gate goes by at a time.
type ruleset struct {
	gate.Rules
	ready string
}

func newRuleset(c Config) (*ruleset, error) {
	ready := gate.Config{Nonce: c.Nonce, PolicyHash: c.PolicyHash}
	if err := ready.CheckReady(); err != nil {
		return nil, err
	}
	if c.Upstream != nil {
		if err := c.Upstream.Check(); err != nil {
			return nil, err
		}
	}
	for _, e := range slices.Concat(c.Allow, c.AllowPrivate) {
		if !e.Valid() {
			return nil, fmt.Errorf("gate entry %+q: not one that the grammar gives", e.String())
		}
	}
	rules := gate.NewRules(c.Allow, c.AllowPrivate)
	rules.Learn, rules.Upstream = c.Learn, c.Upstream
	return &ruleset{rules, ready.ReadyLine()}, nil
}

// Change makes the gate go by c's lists and answer with its hash. When it returns,
// what they do not let through any more is ended; all else stays open. It tells how
// many connections were ended.
func (g *Gate) Change(c Config) (cut int, err error) {
	c.Upstream = g.rules.Load().Upstream
	rules, err := newRuleset(c)
	if err != nil {
		return 0, err
	}
	// From here on, whoever opens a connection sees that it is let through no more.
	g.rules.Store(rules)
	g.mu.Lock()
	all := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		if s.barred() {
			s.close()
			cut++
		}
	}
	return cut, nil
}

// An opened is what a client has open beyond the gate.
type opened struct {
	head *head
	addr netip.Addr // that it led to
	sni  string     // in the hello of a tunnel, once that was judged
}

// barred tells whether what the session has open would be refused now.
func (s *session) barred() bool {
	s.mu.Lock()
	o := s.has
	up := s.up
	s.mu.Unlock()
	if up == nil || o.head == nil {
		return false
	}
	rules := s.g.rules.Load()
	// Of what goes through the proxy it is not known where it leads.
	wrongly := (o.head.via == nil || rules.Far(o.head.host, o.head.port)) && rules.Addresses(o.head.host, o.head.port, []netip.Addr{o.addr}) != ""
	return rules.Request(o.head.host, o.head.port) != "" || wrongly ||
		o.sni != "" && !rules.Name(o.sni, o.head.port)
}
