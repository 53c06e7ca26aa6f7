package gate

import (
	"net/netip"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// The credentials are one word of one line in squid's configuration, whatever they hold,
// and nowhere else.
func TestUpstreamLogin(t *testing.T) {
	allow, err := policy.ParseEntries([]string{"api.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	const secret = "u s#er:p\"a'ss\n%41 \\ü"
	u := &Upstream{Upstream: policy.Upstream{Host: "proxy.test", Port: 3128, Credentials: true}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Auth: policy.NewSecret("x", secret)}
	files, err := Files(Config{Allow: allow, Upstream: u, FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"})
	if err != nil {
		t.Fatal(err)
	}
	const login = " login=u%20s%23er%3Ap%22a%27ss%0A%2541%20%5C%C3%BC"
	for name, text := range files {
		n := 0
		if name == PeekConf { // the other one goes nowhere else
			n = 2
		}
		if strings.Count(string(text), login+"\n") != n || strings.Contains(string(text), secret) {
			t.Errorf("%s: want the login %d times: %s", name, n, text)
		}
	}
	for conf, lines := range map[string][]string{FrontConf: nil, PeekConf: {"cache_peer 10.0.0.1 parent 3128 ", "cache_peer [fd00::1] parent 3128 "}} {
		for _, line := range append(lines, "http_access deny upstream_port upstream_name why_upstream\n") {
			if strings.Count(string(files[conf]), line) != 1 {
				t.Errorf("%s: want %q once", conf, line)
			}
		}
	}
	for _, bad := range []Upstream{
		{}, {Upstream: u.Upstream, Auth: u.Auth}, {Upstream: u.Upstream, Addrs: u.Addrs},
		{Upstream: policy.Upstream{Host: "a", Port: 1}, Addrs: u.Addrs, Auth: u.Auth},
		{Upstream: policy.Upstream{Host: "a", Port: 1}, Addrs: []netip.Addr{{}}},
	} {
		if _, err := Files(Config{Allow: allow, Upstream: &bad, FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// Behind a proxy the name decides, and of addresses those that were asked for as such.
func TestUpstreamRules(t *testing.T) {
	list := func(s ...string) []policy.Entry {
		out, err := policy.ParseEntries(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	r := NewRules(list("api.example.com", "10.0.0.0/8:443", "10.0.0.1:3128", ".corp.example:3128"), list("db.example.com", "192.168.1.1:3128"))
	r.Upstream = &Upstream{Upstream: policy.Upstream{Host: "proxy.corp.example", Port: 3128}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	private := []netip.Addr{netip.MustParseAddr("10.0.0.9")}
	for _, c := range []struct {
		host    string
		port    uint16
		led     []netip.Addr
		request string
		far     bool
		then    string
	}{
		{"api.example.com", 443, nil, "", true, ""},
		{"api.example.com", 443, private, "", true, ""},
		{"10.0.0.9", 443, private, "", true, ReasonPrivate},
		{"10.0.0.1", 3128, nil, ReasonUpstream, true, ReasonUpstream},
		{"proxy.corp.example", 3128, nil, ReasonUpstream, true, ""},
		{"other.corp.example", 3128, nil, "", true, ""},
		{"db.example.com", 443, private, "", false, ""},
		{"db.example.com", 443, nil, "", false, ReasonLookup},
		{"no.example.com", 443, nil, ReasonName, true, ""},
	} {
		h := ParseHost(c.host)
		if got := r.Request(h, c.port); got != c.request {
			t.Errorf("%s:%d: %q, want %q", c.host, c.port, got, c.request)
		}
		if got := r.Far(h, c.port); got != c.far {
			t.Errorf("%s:%d: far is %v", c.host, c.port, got)
		}
		if got := r.Addresses(h, c.port, c.led); got != c.then {
			t.Errorf("%s:%d: its addresses are %q, want %q", c.host, c.port, got, c.then)
		}
	}
	r.Learn = true
	for host, want := range map[string]string{"any.example.org": "", "8.8.8.8": "", "2130706433": ReasonName, "0x7f.1": ReasonName, "intranet": ReasonName, "localhost": ReasonName, "x.localhost": ReasonName} {
		if got := r.Request(ParseHost(host), 443); got != want {
			t.Errorf("learning, %s: %q, want %q", host, got, want)
		}
	}
}
