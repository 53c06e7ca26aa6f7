//go:build netns || squid

// The table, and what no single row shows: go test -tags netns ./gate/builtin. It
// needs ip, and root or unprivileged user namespaces; where one is missing it
// fails.

package builtin_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/gate/builtin"
	"ai-sandbox/gate/gatetest"
	"ai-sandbox/policy"
)

func TestMain(m *testing.M) { os.Exit(gatetest.Main(m)) }

// serve starts a gate in the world and returns its address.
func serve(t *testing.T, c builtin.Config, network, addr string) (*builtin.Gate, string) {
	t.Helper()
	c.Nonce, c.PolicyHash, c.UID = "n", "h", os.Getuid()
	c.Resolvers = []netip.Addr{gatetest.Resolver}
	g, err := builtin.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g, l.Addr().String()
}

// TestWorld: a connection is seen as soon as it was made, so that a row that reached a
// server is not taken for one that did not.
func TestWorld(t *testing.T) {
	w := gatetest.NewWorld(t)
	for range 300 {
		w.Reset()
		c, err := net.Dial("tcp", "198.51.100.10:80")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if h := w.Hits(); len(h) != 1 || h[0].At != "198.51.100.10:80" {
			t.Fatalf("%+v", h)
		}
	}
}

func TestConformance(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	c := builtin.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate}
	t.Run("tcp", func(t *testing.T) {
		_, addr := serve(t, c, "tcp", "127.0.0.1:0")
		gatetest.Run(t, w, gatetest.Builtin, addr)
	})
	t.Run("unix", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "gate") // a socket's path is short
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		_, addr := serve(t, c, "unix", filepath.Join(dir, "s"))
		gatetest.Run(t, w, gatetest.Builtin, addr)
	})
}

// TestUpstream: behind a company's proxy.
func TestUpstream(t *testing.T) {
	w := gatetest.NewWorld(t)
	p := gatetest.NewUpstream(t)
	_, addr := serve(t, builtin.Config{Allow: gatetest.UpstreamAllow, AllowPrivate: gatetest.UpstreamPrivate, Upstream: gatetest.BehindUpstream()}, "tcp", "127.0.0.1:0")
	gatetest.Upstreamed(t, w, p, gatetest.Builtin, addr)
}

func TestRebinding(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	_, addr := serve(t, builtin.Config{Allow: gatetest.Allow}, "tcp", "127.0.0.1:0")
	gatetest.Rebinding(t, w, addr)
}

func TestSaysNothing(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	_, addr := serve(t, builtin.Config{Allow: gatetest.Allow}, "tcp", "127.0.0.1:0")
	gatetest.SaysNothing(t, w, addr)
}

func TestStreams(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	_, addr := serve(t, builtin.Config{Allow: gatetest.Allow}, "tcp", "127.0.0.1:0")
	gatetest.Streams(t, w, addr)
}

func TestLogged(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	var log gatetest.Record
	_, addr := serve(t, builtin.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate, Decided: log.Add}, "tcp", "127.0.0.1:0")
	gatetest.Logged(t, w, gatetest.Builtin, addr, log.All)
}

func TestPages(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	for _, session := range []string{"", "0123456789ab"} {
		_, addr := serve(t, builtin.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate, Session: session}, "tcp", "127.0.0.1:0")
		gatetest.Pages(t, w, addr, session)
	}
}

func TestEmptyList(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	_, addr := serve(t, builtin.Config{}, "tcp", "127.0.0.1:0")
	gatetest.EmptyList(t, w, addr)
}

// TestSuggestions: what was refused is told with what would let it through, as
// squid's log tells it, as soon as the client knows.
func TestSuggestions(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	var log gatetest.Record
	_, addr := serve(t, builtin.Config{Allow: gatetest.Allow, Decided: log.Add}, "tcp", "127.0.0.1:0")
	gatetest.Suggestions(t, w, addr, log.Refused, func(allow, private []policy.Entry) string {
		_, addr := serve(t, builtin.Config{Allow: allow, AllowPrivate: private}, "tcp", "127.0.0.1:0")
		return addr
	})
}

// TestLearn: what is let through is told, with what a list would need for it.
func TestLearn(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	var log gatetest.Record
	_, addr := serve(t, builtin.Config{Learn: true, Decided: log.Add}, "tcp", "127.0.0.1:0")
	gatetest.Learn(t, w, addr)
	rules := gate.NewRules(nil, nil)
	rules.Learn = true
	want := []string{"198.51.100.41", "canary.no.test", "no.test", "ok.test", "ok.test:8443"}
	var got []string
	var odd []gate.UsedHost
	// A tunnel is told at its end, which may come after its client has seen it.
	for deadline := time.Now().Add(5 * time.Second); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var used gate.Usage
		for _, d := range log.All() {
			used.Add(d.Event(rules))
		}
		var entries []policy.Entry
		entries, odd = gate.Learned(used.Used())
		got = nil
		for _, e := range entries {
			got = append(got, e.String())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(odd) > 0 {
		t.Errorf("learned %q and %v, want %q", got, odd, want)
	}
}
