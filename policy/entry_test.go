package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestParseEntry(t *testing.T) {
	for in, want := range map[string]string{
		"example.com":                   "example.com",
		"API.Example.COM":               "api.example.com",
		"example.com.":                  "example.com",
		".example.com":                  ".example.com",
		"*.example.com":                 ".example.com",
		"*.example.com.":                ".example.com",
		"example.com:8443":              "example.com:8443",
		".example.com.:8443":            ".example.com:8443",
		"example.com:443":               "example.com:443",
		"b\u00fccher.example":           "xn--bcher-kva.example",
		"B\u00dcCHER.example":           "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":         "xn--bcher-kva.example",
		"www\uff0eexample\u3002com":     "www.example.com",
		"r3---sn-abc.example.com":       "r3---sn-abc.example.com",
		"1.example.com":                 "1.example.com",
		"user.github.io":                "user.github.io",
		".user.github.io":               ".user.github.io",
		"github.io":                     "github.io",
		"s3.amazonaws.com":              "s3.amazonaws.com",
		"metadata.google.internal":      "metadata.google.internal",
		".corp.internal":                ".corp.internal",
		"printer.local:631":             "printer.local:631",
		"192.0.2.7":                     "192.0.2.7",
		"192.0.2.7:8443":                "192.0.2.7:8443",
		"192.0.2.0/24":                  "192.0.2.0/24",
		"192.0.2.0/24:22":               "192.0.2.0/24:22",
		"192.0.2.7/32":                  "192.0.2.7",
		"10.0.0.0/8":                    "10.0.0.0/8",
		"127.0.0.1:5432":                "127.0.0.1:5432",
		"169.254.169.254":               "169.254.169.254",
		"2001:DB8::7":                   "2001:db8::7",
		"[2001:db8::7]":                 "2001:db8::7",
		"[2001:db8:0:0::7]:8443":        "[2001:db8::7]:8443",
		"2001:db8::/32":                 "2001:db8::/32",
		"[2001:db8::/32]:443":           "[2001:db8::/32]:443",
		"::1":                           "::1",
		strings.Repeat("a", 63) + ".de": strings.Repeat("a", 63) + ".de",
	} {
		e, err := ParseEntry(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if e.String() != want {
			t.Errorf("%q: got %q, want %q", in, e, want)
		}
		if !e.Valid() {
			t.Errorf("%q: its own form %q is not valid", in, e)
		}
	}
}

func TestParseEntryRefuses(t *testing.T) {
	// Each with a part of what it has to say.
	for in, say := range map[string]string{
		"":                               "empty",
		"  ":                             "empty",
		"*":                              "every host",
		".":                              "every host",
		"*.":                             "every host",
		"*:443":                          "every host",
		"**.example.com":                 "whole labels",
		"a*.example.com":                 "whole labels",
		"api.*.com":                      "whole labels",
		"*example.com":                   "whole labels",
		"..example.com":                  "empty label",
		"example..com":                   "empty label",
		"example.com..":                  "empty label",
		"localhost":                      "127.0.0.1",
		".localhost":                     "127.0.0.1",
		"app.localhost":                  "127.0.0.1",
		"db":                             "db.example.com",
		"db:5432":                        "single label",
		"none":                           "single label",
		"all":                            "single label",
		"com":                            "single label",
		".com":                           "single label",
		"-n":                             "hyphen",
		"-n.example.com":                 "hyphen",
		"a-.example.com":                 "hyphen",
		"co.uk":                          "registry",
		".co.uk":                         "anyone can have a name",
		"*.co.uk":                        "anyone can have a name",
		".github.io":                     "anyone can have a name",
		"*.s3.amazonaws.com":             "anyone can have a name",
		".foo.ck":                        "anyone can have a name",
		"https://example.com/":           "write example.com",
		"https://u:p@example.com:8443":   "write example.com:8443",
		"http://":                        "not a host",
		"://x":                           "not a host",
		"example.com/path":               "write example.com",
		"user@example.com":               "write example.com",
		"example.com:":                   "port number",
		"example.com:0":                  "not 0",
		"example.com:00":                 "leading zero",
		"example.com:0443":               "leading zero",
		"example.com:+443":               "cannot be in",
		"example.com:443x":               "port number",
		"example.com:65536":              "65535",
		"example.com:99999999999":        "65535",
		"example.com:https":              "port number",
		"example.com:443:80":             "IPv6",
		"example.com,example.org":        "cannot be in a host name",
		"example.com example.org":        "cannot be in a host name",
		" example.com":                   "cannot be in a host name",
		"example.com\n":                  "cannot be in a host name",
		"example.com\r\nacl x":           "cannot be in a host name",
		"exam\x00ple.com":                "cannot be in a host name",
		"example.com\x7f":                "cannot be in a host name",
		"example.com#x":                  "cannot be in a host name",
		`"/etc/passwd"`:                  "cannot be in",
		`"example.com"`:                  "cannot be in a host name",
		"'example.com'":                  "cannot be in a host name",
		"example.com%00":                 "cannot be in a host name",
		"%2eexample.com":                 "cannot be in a host name",
		`example.com\`:                   "cannot be in a host name",
		"!example.com":                   "cannot be in a host name",
		"a_b.example.com":                "cannot be in a host name",
		"example.com\u202e":              "internationalised",
		"xn--\u00fc.example":             "internationalised",
		"xn--zz--.example":               "internationalised",
		"\xff\xfe.example":               "not text",
		"2130706433":                     "ends in a number",
		"0x7f000001":                     "ends in a number",
		"0x7f.1":                         "ends in a number",
		"127.1":                          "ends in a number",
		"0177.0.0.1":                     "ends in a number",
		"1.2.3.4.5":                      "ends in a number",
		"256.1.1.1":                      "ends in a number",
		".127.0.0.1":                     "ends in a number",
		"0.0.0.0/0":                      "/8",
		"0.0.0.0/7":                      "/8",
		"::/0":                           "/8",
		"2000::/3":                       "/8",
		"10.1.2.3/8":                     "10.0.0.0/8",
		"192.0.2.0/33":                   "write 192.0.2.0",
		"0.0.0.0":                        "no connection",
		"::":                             "no connection",
		"224.0.0.1":                      "no connection",
		"255.255.255.255":                "no connection",
		"ff02::1":                        "no connection",
		"::ffff:10.0.0.1":                "10.0.0.1",
		"[::ffff:127.0.0.1]:80":          "127.0.0.1",
		"fe80::1%eth0":                   "zone",
		"[example.com]":                  "brackets",
		"[192.0.2.1]:80":                 "brackets",
		"[2001:db8::1":                   "brackets",
		"[2001:db8::1]x":                 "brackets",
		"[2001:db8::1]:0":                "not 0",
		"2001:db8::xyz":                  "IPv6",
		strings.Repeat("a", 64) + ".de":  "63 bytes",
		strings.Repeat("a.", 200) + "de": "253 bytes",
		strings.Repeat("a", 5000):        "too long",
	} {
		e, err := ParseEntry(in)
		var bad *EntryError
		if !errors.As(err, &bad) {
			t.Errorf("%q: got %q, %v; want an *EntryError", in, e, err)
			continue
		}
		msg := err.Error()
		if !strings.Contains(msg, say) {
			t.Errorf("%q: says %q, want %q in it", in, msg, say)
		}
		if bad.Hint == "" {
			t.Errorf("%q: does not say what to write instead: %q", in, msg)
		}
		if strings.ContainsFunc(msg, func(r rune) bool { return r < ' ' || r >= 0x7f }) || len(msg) > 900 {
			t.Errorf("%q: the message is not fit for a terminal: %q", in, msg)
		}
		if len(in) > 0 && len(in) < 60 && !strings.Contains(msg, fmt.Sprintf("%+q", in)) {
			t.Errorf("%q: the message does not name it: %q", in, msg)
		}
	}
}

func TestEntryMatch(t *testing.T) {
	for _, c := range []struct {
		entry, host string
		port        uint16
		want        bool
	}{
		{"example.com", "example.com", 443, true},
		{"example.com", "EXAMPLE.com.", 80, true},
		{"example.com", "example.com", 8443, false},
		{"example.com", "www.example.com", 443, false},
		{"example.com", "notexample.com", 443, false},
		{"example.com", "example.com.evil.test", 443, false},
		{"example.com:8443", "example.com", 8443, true},
		{"example.com:8443", "example.com", 443, false},
		{".example.com", "example.com", 443, true},
		{".example.com", "a.b.example.com", 443, true},
		{".example.com", "notexample.com", 443, false},
		{".example.com", ".example.com", 443, false},
		{".example.com", "example.com.evil.test", 443, false},
		{"192.0.2.0/24", "192.0.2.7", 443, true},
		{"192.0.2.0/24", "::ffff:192.0.2.7", 443, true},
		{"192.0.2.0/24", "192.0.3.7", 443, false},
		{"192.0.2.0/24", "example.com", 443, false},
		{"[2001:db8::7]:22", "[2001:db8::7]", 22, true},
		{"2001:db8::7", "2001:db8::8", 443, false},
	} {
		e, err := ParseEntry(c.entry)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Match(c.host, c.port); got != c.want {
			t.Errorf("%s matches %s:%d: %v", c.entry, c.host, c.port, got)
		}
	}
	if (Entry{}).Match("", 443) || (Entry{}).Match("example.com", 80) || (Entry{}).Valid() {
		t.Error("the zero entry matches")
	}
}

func TestNormalise(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"b.example a.example b.example", "a.example b.example"},
		{"x.example .x.example", ".x.example"},
		{"a.x.example .x.example .a.x.example", ".x.example"},
		{"x.example:443 x.example", "x.example"},
		{"x.example:8443 .x.example", ".x.example x.example:8443"},
		{"a.x.example:8443 .x.example:8443", ".x.example:8443"},
		{".x.example:443 x.example", ".x.example:443 x.example"},
		{"notx.example .x.example", "notx.example .x.example"},
		{"10.0.0.0/8 10.1.0.0/16 10.1.2.3:443 10.1.2.3:22", "10.0.0.0/8 10.1.2.3:22"},
		// A range opens no link-local address in it: Entry.LinkLocal.
		{"169.254.0.0/16 169.254.169.254 169.254.169.254:80", "169.254.0.0/16 169.254.169.254"},
		{"169.254.0.0/16 169.254.1.0/24 fe80::/10 fe80::1", "169.254.0.0/16 fe80::/10 fe80::1"},
		{"2001:db8::1 192.0.2.1 z.example", "z.example 192.0.2.1 2001:db8::1"},
	} {
		list, err := ParseEntries(strings.Fields(c.in))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			got = append(got, e.String())
		}
		want := strings.Fields(c.want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", c.in, got, want)
		}
	}
}

// TestNormaliseKeepsMeaning compares the list and its normal form, and the quick
// way to find what covers an entry with the plain one.
func TestNormaliseKeepsMeaning(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	names := strings.Fields("x.example a.x.example b.a.x.example y.example ax.example")
	addrs := strings.Fields("10.0.0.0/8 10.1.0.0/16 10.1.2.3 2001:db8::/32 2001:db8::1")
	ports := []uint16{0, 80, 443, 22}
	for range 500 {
		var list []Entry
		for range rnd.IntN(8) {
			s := names[rnd.IntN(len(names))]
			if rnd.IntN(3) == 0 {
				s = addrs[rnd.IntN(len(addrs))]
			} else if rnd.IntN(2) == 0 {
				s = "." + s
			}
			e, err := ParseEntry(s)
			if err != nil {
				t.Fatal(err)
			}
			e.Port = ports[rnd.IntN(len(ports))]
			list = append(list, e)
		}
		norm := Normalise(list)
		set := map[Entry]bool{}
		for _, e := range norm {
			set[e] = true
		}
		for _, e := range list {
			if !Covered(set, e) || Covered(map[Entry]bool{norm[0]: true}, e) != norm[0].Covers(e) {
				t.Fatalf("%v: Covered is wrong of %v", norm, e)
			}
		}
		any := func(l []Entry, h string, p uint16) bool {
			return slices.ContainsFunc(l, func(e Entry) bool { return e.Match(h, p) })
		}
		for _, h := range slices.Concat(names, strings.Fields("10.1.2.3 10.2.3.4 2001:db8::1 c.y.example z.b.a.x.example")) {
			for _, p := range []uint16{22, 80, 443, 8443} {
				if any(list, h, p) != any(norm, h, p) {
					t.Fatalf("%v and %v differ for %s:%d", list, norm, h, p)
				}
			}
		}
		for i, e := range norm {
			for j, o := range norm {
				if i != j && e.Covers(o) {
					t.Fatalf("%v: %v covers %v", norm, e, o)
				}
			}
		}
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if !slices.Equal(Normalise(list), norm) {
			t.Fatalf("%v: the order of the list matters", list)
		}
	}
}

func TestEntryJSON(t *testing.T) {
	list, err := ParseEntries([]string{".example.com", "[2001:db8::1]:22"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(list)
	if err != nil || string(b) != `[".example.com","[2001:db8::1]:22"]` {
		t.Fatalf("%s %v", b, err)
	}
	var again []Entry
	if err := json.Unmarshal(b, &again); err != nil || !slices.Equal(again, list) {
		t.Fatalf("%v %v", again, err)
	}
	if err := json.Unmarshal([]byte(`["*"]`), &again); err == nil {
		t.Error("JSON lets * in")
	}
}

func TestParseEntriesReportsEach(t *testing.T) {
	_, err := ParseEntries([]string{"a.example", "*", "b.example", "com"})
	if err == nil || !strings.Contains(err.Error(), `"*"`) || !strings.Contains(err.Error(), `"com"`) {
		t.Errorf("got %v", err)
	}
}

// FuzzParseEntry: what parses reads back as the same, and has no byte that means
// anything to squid, a shell or a terminal.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:8443", "[2001:db8::/32]:443", "192.0.2.0/24", "b\u00fccher.example.", "https://a.example/", "xn--bcher-kva.example", "0x7f.1"} {
		f.Add(s)
	}
	name := regexp.MustCompile(`^\.?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$`)
	addr := regexp.MustCompile(`^\[?[0-9a-f:.]+(/[0-9]{1,3})?\]?(:[1-9][0-9]{0,4})?$`)
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEntry(s)
		if err != nil {
			if e != (Entry{}) {
				t.Fatalf("%q: an entry with an error", s)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r >= 0x7f }) {
				t.Fatalf("%q: message %q", s, err)
			}
			return
		}
		out := e.String()
		if form := name; e.Name != "" && !form.MatchString(out) || e.Name == "" && !addr.MatchString(out) {
			t.Fatalf("%q: written as %q", s, out)
		}
		if again, err := ParseEntry(out); err != nil || again != e {
			t.Fatalf("%q: %q reads back as %q, %v", s, out, again, err)
		}
		if e.Name != "" && !e.Match(e.Name, e.Ports()[0]) || e.Name == "" && !e.Match(e.Prefix.Addr().String(), e.Ports()[0]) {
			t.Fatalf("%q does not match itself", s)
		}
	})
}
