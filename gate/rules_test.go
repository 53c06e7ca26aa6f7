package gate

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// TestListIsMatch: the tables decide as the entries do, one by one.
func TestListIsMatch(t *testing.T) {
	list := parse(t, "ok.test", ".wild.test", "sub.wild.test:8443", "alt.test:8443", ".alt.test", "198.51.100.40", "203.0.113.0/28", "203.0.113.0/24:8443", "2001:db8::/32", "[2001:db8::40]:22")
	l := newList(list)
	labels := []string{"ok", "wild", "sub", "alt", "test", "notok", "a", "xn--a", "198"}
	hosts := []string{"198.51.100.40", "198.51.100.41", "203.0.113.5", "203.0.113.20", "2001:db8::40", "2001:DB8::41", "2001:db9::1", "::ffff:198.51.100.40", "::ffff:203.0.113.99", "OK.Test.", "ok.test..", ".ok.test", "3325256744"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, labels[r.IntN(len(labels))])
		}
		hosts = append(hosts, strings.Join(parts, "."))
	}
	matched := 0
	for _, h := range hosts {
		for _, port := range []uint16{80, 443, 8443, 22, 1} {
			want := slices.ContainsFunc(list, func(e policy.Entry) bool { return e.Match(h, port) })
			if got := l.host(ParseHost(h), port); got != want {
				t.Errorf("%s at %d: %v, and its entries say %v", h, port, got, want)
			}
			if want {
				matched++
			}
		}
	}
	if matched < 50 {
		t.Errorf("only %d match", matched)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"ok.test": "ok.test", "OK.Test.": "ok.test", "a_b.test": "a_b.test", "-a.test": "-a.test", "a": "a",
		"": "", ".": "", "ok..test": "", ".ok.test": "", "ok.test..": "", "a b.test": "", "a\x00.test": "", "*.test": "", "a:b": "", "b\u00fccher.test": "", "a%00.test": "",
		strings.Repeat("a", 63) + ".test": strings.Repeat("a", 63) + ".test", strings.Repeat("a", 64) + ".test": "", strings.Repeat("a.", 127) + "test": "",
	} {
		if got := canonical(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestRequestRules(t *testing.T) {
	r := NewRules(parse(t, "ok.test", "198.51.100.40", "10.0.0.1"), parse(t, "db.test", "169.254.169.254", "10.0.0.0/8:5432", "169.254.0.0/16:81", "127.0.0.1"))
	for _, c := range []struct {
		host  string
		port  uint16
		addrs string
		want  string
	}{
		{"ok.test", 443, "198.51.100.1", ""},
		{"ok.test", 443, "", ReasonLookup},
		{"ok.test", 22, "", ReasonPort},
		{"no.test", 443, "", ReasonName},
		{"ok.test", 5432, "", ReasonName},
		{"ok.test", 443, "198.51.100.1 10.0.0.1", ReasonPrivate},
		{"ok.test", 443, "10.0.0.1 198.51.100.1", ReasonPrivate},
		{"ok.test", 443, "10.0.0.1 169.254.169.254", ReasonAddress},
		{"ok.test", 443, "::ffff:10.0.0.1", ReasonPrivate},
		{"ok.test", 443, "64:ff9b::a9fe:a9fe", ReasonAddress},
		{"ok.test", 443, "fe80::1%lo", ReasonAddress},
		{"ok.test", 443, "fe80::1", ReasonAddress},
		{"db.test", 443, "10.0.0.1 ::1 fd00::1", ""},
		{"db.test", 443, "169.254.169.254", ReasonAddress},
		{"db.test", 443, "0.0.0.0", ReasonAddress},
		{"169.254.169.254", 80, "169.254.169.254", ""},
		{"169.254.1.1", 81, "169.254.1.1", ReasonAddress},
		{"10.0.0.1", 443, "10.0.0.1", ReasonPrivate},
		{"10.0.0.1", 5432, "10.0.0.1", ""},
		{"::ffff:10.0.0.1", 5432, "10.0.0.1", ""},
		{"127.0.0.1", 443, "127.0.0.1", ""},
		{"127.0.0.2", 443, "", ReasonName},
		{"198.51.100.40", 80, "198.51.100.40", ""},
	} {
		h := ParseHost(c.host)
		got := r.Request(h, c.port)
		if got == "" {
			var addrs []netip.Addr
			for s := range strings.FieldsSeq(c.addrs) {
				addrs = append(addrs, netip.MustParseAddr(s))
			}
			got = r.Addresses(h, c.port, addrs)
		}
		if got != c.want {
			t.Errorf("%s at %d to %q: %q, want %q", c.host, c.port, c.addrs, got, c.want)
		}
	}
	if got := NewRules(nil, nil).Request(ParseHost("ok.test"), 443); got != ReasonName {
		t.Errorf("an empty list: %q", got)
	}
}

// FuzzAllow: the tables decide as the grammar's entry does, whatever is asked.
func FuzzAllow(f *testing.F) {
	f.Add("ok.test", "ok.test", uint16(443))
	f.Add(".wild.test:8443", "a.b.WILD.test.", uint16(8443))
	f.Add("192.0.2.0/24", "192.0.2.7", uint16(80))
	f.Add("[2001:db8::/32]:22", "2001:db8::7", uint16(22))
	f.Add("*.b\u00fccher.test", "x.xn--bcher-kva.test", uint16(80))
	f.Add("192.0.2.7", "::ffff:192.0.2.7", uint16(80))
	f.Fuzz(func(t *testing.T, entry, asked string, port uint16) {
		e, err := policy.ParseEntry(entry)
		if err != nil || e.Prefix.IsValid() && strings.Contains(asked, "%") {
			return
		}
		h := ParseHost(asked)
		got := newList([]policy.Entry{e}).host(h, port)
		if got && !e.Match(asked, port) {
			t.Fatalf("%s lets %q at %d through, and its grammar does not", e, asked, port)
		}
		// What is no name at all is refused although it ends like one.
		if !got && e.Match(asked, port) && (h.Name != "" || h.Addr.IsValid()) {
			t.Fatalf("%s refuses %q at %d, and its grammar does not", e, asked, port)
		}
	})
}
