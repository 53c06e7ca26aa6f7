//go:build squid

package gate_test

import (
	"os"
	"strings"
	"testing"

	"ai-sandbox/gate"
	"ai-sandbox/gate/gatetest"
)

// TestUpstream: behind a company's proxy, on a real squid.
func TestUpstream(t *testing.T) {
	w := gatetest.NewWorld(t)
	p := gatetest.NewUpstream(t)
	g := start(t, gate.Config{Allow: gatetest.UpstreamAllow, AllowPrivate: gatetest.UpstreamPrivate, Upstream: gatetest.BehindUpstream()})
	gatetest.Upstreamed(t, w, p, gatetest.Squid, g.addr)
	for _, l := range []string{"front.cache.log", "peek.cache.log", gate.FrontLog, gate.PeekLog, gate.UsedLog} {
		b, err := os.ReadFile(g.conf.Logs + "/" + l)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(b); strings.Contains(s, "ERROR") || strings.Contains(s, "WARNING") || strings.Contains(s, "o'rd") || strings.Contains(s, "o%27rd") {
			t.Errorf("%s: %s", l, b)
		}
	}
}

// TestUpstreamLast: without anything private nothing is connected to but the proxy.
func TestUpstreamLast(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	p := gatetest.NewUpstream(t)
	g := start(t, gate.Config{Allow: gatetest.UpstreamAllow, Upstream: gatetest.BehindUpstream()})
	for _, name := range []string{"get", "connect"} {
		if err := row(t, g.addr, name).Judge(w, g.addr); err != nil {
			t.Error(err)
		}
		if asked, bad := p.Requests(); len(asked) != 1 || bad > 0 {
			t.Errorf("%s: the proxy was asked %q, %d times without credentials", name, asked, bad)
		}
	}
	p.Close()
	for _, name := range []string{"get", "connect"} {
		if err := row(t, g.addr, name).Judge(w, g.addr); err == nil {
			t.Errorf("%s: reached although the proxy is gone, so not through it", name)
		}
	}
}
