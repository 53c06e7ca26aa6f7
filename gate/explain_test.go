package gate

import (
	"strings"
	"testing"

	"ai-sandbox/policy"
)

func TestExplain(t *testing.T) {
	net := policy.Net{Mode: policy.NetGated,
		Allow:        parse(t, ".example.com", "alt.example.net:8443", "192.0.2.0/24", "10.0.0.1"),
		AllowPrivate: parse(t, "db.example.org:5432", "127.0.0.1:5432", "169.254.169.254")}
	for _, tc := range []struct {
		what    string
		reason  string
		entries string
		inward  bool
		open    bool
	}{
		{"www.example.com:443", "", ".example.com", false, true},
		{"EXAMPLE.com.:80", "", ".example.com", false, true},
		{"b\u00fccher.example.com:80", "", ".example.com", false, true},
		{"www.example.com:8443", ReasonName, "", false, false},
		{"www.example.com:22", ReasonPort, "", false, false},
		{"example.org:443", ReasonName, "", false, false},
		{"notexample.com:443", ReasonName, "", false, false},
		{"alt.example.net:8443", "", "alt.example.net:8443", false, true},
		{"192.0.2.7:443", "", "192.0.2.0/24", false, false},
		{"[::ffff:192.0.2.7]:443", "", "192.0.2.0/24", false, false},
		{"10.0.0.1:443", ReasonPrivate, "10.0.0.1", false, false},
		{"127.0.0.1:5432", "", "127.0.0.1:5432", true, false},
		{"127.0.0.1:443", ReasonName, "", false, false},
		{"169.254.169.254:80", "", "169.254.169.254", true, false},
		{"169.254.169.253:80", ReasonName, "", false, false},
		{"db.example.org:5432", "", "db.example.org:5432", true, true},
		{"2130706433:443", ReasonName, "", false, false},
		{"localhost:443", ReasonName, "", false, false},
	} {
		h, port, err := ParseTarget(tc.what)
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		a := Explain(net, h, port)
		var entries []string
		for _, e := range a.Entries {
			entries = append(entries, e.String())
		}
		if a.Reason != tc.reason || strings.Join(entries, " ") != tc.entries || a.Inward != tc.inward || a.Open != tc.open {
			t.Errorf("%s: %+v", tc.what, a)
		}
		if again, p, err := ParseTarget(a.String()); err != nil || p != port || again.Name != h.Name || again.Addr != h.Addr {
			t.Errorf("%s is shown as %s", tc.what, a)
		}
	}
	for _, s := range []string{
		"", ":", ":443", "a b", "a:", "a:0", "a:00", "a:0443", "a:+1", "a:65536", "a:x", "https://a.example/", "a/b", "*.example.com", ".example.com",
		"[a]:1", "[::1", "[::1]1", "[::1]:", "::1:x", "fe80::1%lo", "a\x00b", "a..b", "\xff", strings.Repeat("a", 300), "a\x1b[2J",
	} {
		if h, port, err := ParseTarget(s); err == nil {
			t.Errorf("%q is taken for %+v, %d", s, h, port)
		}
	}
	for s, want := range map[string]string{
		"x.com:99999":       "x.com:99999 has 99999 for a port, which is not a number from 1 to 65535; write ",
		"x.com:0":           "x.com:0 has 0 for a port, which is not a number from 1 to 65535; write ",
		"x.com:":            "x.com: has no port behind its colon; write ",
		"http://x.com":      "http://x.com is a URL, and the gate is asked for a host; write ",
		"http://x.com:80/a": "http://x.com:80/a is a URL, and the gate is asked for a host; write ",
		"x.com/a":           "x.com/a has a path, and the gate is asked for a host; write ",
	} {
		if _, _, err := ParseTarget(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", s, err, want)
		}
	}
}

// FuzzParseTarget: what is read is a host that a gate could be asked for, and is
// shown so that it reads back as the same.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"a.example", "a.example:8443", "[2001:db8::1]:22", "::1", "192.0.2.7:80", "b\u00fccher.example.", "a_b.example:1", "x:0x1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, port, err := ParseTarget(s)
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return policy.Printable(string(r)) != string(r) }) {
				t.Fatalf("%q: the error is not fit for a terminal: %q", s, err)
			}
			return
		}
		if (h.Name == "") == !h.Addr.IsValid() {
			t.Fatalf("%q: %+v", s, h)
		}
		a := Answer{Host: h, Port: max(port, 1)}
		if strings.Trim(a.String(), "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != "" {
			t.Fatalf("%q is shown as %q", s, a)
		}
		again, p, err := ParseTarget(a.String())
		if err != nil || again.Name != h.Name || again.Addr != h.Addr || p != a.Port {
			t.Fatalf("%q: %s reads back as %+v, %d, %v", s, a, again, p, err)
		}
	})
}
