// The pure side: what is rendered, and what is read back from a hostile log.

package gate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/policy"
)

var update = flag.Bool("update", false, "write the golden files")

func parse(t testing.TB, list ...string) []policy.Entry {
	t.Helper()
	out, err := policy.ParseEntries(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func config(t testing.TB) Config {
	return Config{
		Allow:        parse(t, "api.example.com", ".example.org", "www.example.org", "alt.example.net:8443", "192.0.2.7", "2001:db8::/32"),
		AllowPrivate: parse(t, ".corp.example", "10.0.0.0/8:5432", "169.254.169.254"),
		FrontPort:    3128, PeekPort: 3129, Nonce: "n", PolicyHash: "sha256:0",
	}
}

func TestGolden(t *testing.T) {
	files, err := Files(config(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{FrontConf, PeekConf} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, files[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(files[name], want) {
			t.Errorf("%s differs from %s; go test ./gate -update writes it", name, path)
		}
	}
	again, err := Files(config(t))
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s is not the same twice", name)
		}
	}
}

// TestRules holds what no golden should be trusted to hold.
func TestRules(t *testing.T) {
	for name, c := range map[string]Config{
		"some": config(t),
		"none": {FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"},
		"open": {Allow: parse(t, "a.example"), FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"},
	} {
		files, err := Files(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{FrontConf, PeekConf} {
			s := string(files[f])
			access := regexp.MustCompile(`(?m)^http_access .*$`).FindAllString(s, -1)
			if last := access[len(access)-1]; !strings.HasPrefix(last, "http_access deny all ") {
				t.Errorf("%s %s: the last rule is %q", name, f, last)
			}
			allows := 0
			for _, l := range access {
				if strings.HasPrefix(l, "http_access allow") {
					allows++
					if l != "http_access allow listed anyip" {
						t.Errorf("%s %s: %q", name, f, l)
					}
				}
			}
			if want := min(1, len(c.Allow)); allows != want {
				t.Errorf("%s %s: %d allow rules, want %d", name, f, allows, want)
			}
			for _, word := range []string{"include", "localnet", "to_localhost", "auth_param", "external_acl", "_program", "/usr", "squid/"} {
				if strings.Contains(s, word) {
					t.Errorf("%s %s: has %q", name, f, word)
				}
			}
			for _, l := range strings.Split(s, "\n") {
				if strings.Contains(l, "dstdomain") && !strings.Contains(l, " dstdomain -n ") {
					t.Errorf("%s %s: looks addresses up backwards: %q", name, f, l)
				}
				if strings.Contains(l, " dst ") && !strings.Contains(l, " dst -n ") && regexp.MustCompile(`\d`).MatchString(l) &&
					!regexp.MustCompile(`^acl (unroutable|linklocal|private|anyip) `).MatchString(l) {
					t.Errorf("%s %s: resolves to compare: %q", name, f, l)
				}
				if len(l) > 2000 {
					t.Errorf("%s %s: a line of %d bytes", name, f, len(l))
				}
			}
			for m := range strings.FieldsSeq(s) {
				if strings.HasPrefix(m, "0.0.0.0:") {
					t.Errorf("%s %s: listens everywhere", name, f)
				}
			}
		}
		if !strings.Contains(string(files["errors/AISB_READY"]), c.ReadyLine()) {
			t.Errorf("%s: the ready page is %q", name, files["errors/AISB_READY"])
		}
	}
}

// A link-local address stands beside the range that it is in, for which the range has
// no effect: squid is told of it once in each ACL.
func TestRangeAndAddress(t *testing.T) {
	c := config(t)
	c.AllowPrivate = parse(t, "169.254.0.0/16", "169.254.169.254")
	files, err := Files(c)
	if err != nil {
		t.Fatal(err)
	}
	conf := string(files[FrontConf])
	for _, line := range []string{"acl inward_0_addrs dst -n 169.254.0.0/16\n", "acl spelled_0_addrs dst -n 169.254.169.254/32\n"} {
		if !strings.Contains(conf, line) {
			t.Errorf("no %q in\n%s", line, conf)
		}
	}
	r := NewRules(c.Allow, c.AllowPrivate)
	for host, want := range map[string]string{"169.254.169.254": "", "169.254.169.253": ReasonAddress} {
		h := ParseHost(host)
		if got := r.Request(h, 80) + r.Addresses(h, 80, []netip.Addr{h.Addr}); got != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}

func TestFilesRefuses(t *testing.T) {
	good := config(t)
	for name, change := range map[string]func(*Config){
		"no front port":  func(c *Config) { c.FrontPort = 0 },
		"one port":       func(c *Config) { c.PeekPort = c.FrontPort },
		"nonce":          func(c *Config) { c.Nonce = "a\nhttp_access allow all" },
		"empty nonce":    func(c *Config) { c.Nonce = "" },
		"hash":           func(c *Config) { c.PolicyHash = "%H" },
		"directory":      func(c *Config) { c.Dir = "/a b" },
		"name by hand":   func(c *Config) { c.Allow = append(c.Allow, policy.Entry{Name: "a.example\nhttp_access allow all"}) },
		"upper case":     func(c *Config) { c.Allow = append(c.Allow, policy.Entry{Name: "A.example"}) },
		"suffix by hand": func(c *Config) { c.Allow = append(c.Allow, policy.Entry{Name: "com", Subdomains: true}) },
		"zero entry":     func(c *Config) { c.AllowPrivate = append(c.AllowPrivate, policy.Entry{}) },
		"name and address": func(c *Config) {
			c.Allow = append(c.Allow, policy.Entry{Name: "a.example", Prefix: netip.MustParsePrefix("0.0.0.0/0")})
		},
		"wide range": func(c *Config) {
			c.Allow = append(c.Allow, policy.Entry{Prefix: netip.MustParsePrefix("0.0.0.0/0")})
		},
	} {
		c := good
		c.Allow, c.AllowPrivate = slices.Clone(good.Allow), slices.Clone(good.AllowPrivate)
		change(&c)
		if files, err := Files(c); err == nil {
			t.Errorf("%s: rendered: %s", name, files[FrontConf])
		}
	}
}

func TestRangesCoverSpecialAddresses(t *testing.T) {
	all := ranges(unroutable, linkLocal, private, tunnels)
	in := func(s string) bool {
		a := netip.MustParseAddr(s).Unmap()
		return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	for _, s := range strings.Fields(`0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254
		169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.170 192.168.1.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
		:: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 fc00::1 fd00::1 fe80::1 febf::1 fec0::1 ff02::1
		64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b::a9fe:a9fe 64:ff9b::c0a8:101 64:ff9b:1::1 2002:7f00:1:: 2002:a00:1:: 2002:c0a8:101::1 2002:a9fe:a9fe::
		2001:0:7f00:1::`) {
		if !in(s) {
			t.Errorf("%s is not refused", s)
		}
	}
	// Documentation ranges stay open: some networks' mirrors live there.
	for _, s := range strings.Fields(`1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 172.15.255.255 172.32.0.0
		192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 223.255.255.255 2606:4700::1111 2001:db8::1 2002:808:808::1 64:ff9b::808:808 2001:1::1`) {
		if in(s) {
			t.Errorf("%s is refused", s)
		}
	}
}

// TestIdleHour: squid ends no tunnel for being idle within an hour.
func TestIdleHour(t *testing.T) {
	files, err := Files(Config{Allow: parse(t, "ok.test"), FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{FrontConf, PeekConf} {
		for _, key := range []string{"read_timeout", "write_timeout"} {
			var hours int
			_, rest, ok := strings.Cut(string(files[name]), "\n"+key+" ")
			if n, err := fmt.Sscanf(rest, "%d hours", &hours); !ok || err != nil || n != 1 || hours < 1 {
				t.Errorf("%s: %s is %.20q", name, key, rest)
			}
		}
	}
}

func TestCert(t *testing.T) {
	a, err := Cert(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := Cert(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a, b) || !bytes.Contains(a, []byte("PRIVATE KEY")) {
		t.Error("want a new key each time")
	}
}

const sampleLog = `front 1795973340.731 36276 GET b%C3%BCcher.test 80 TCP_DENIED 403 382 76 0 - name - AISB_NAME -
front 1795973334.681 35986 GET %5B2001:db8::40%5D 80 TCP_MISS 200 181 80 12 2001:db8::40 - - - -
front 1795973340.732 36292 - - - NONE_NONE 400 238 68 0 - - - ERR_INVALID_URL -
peek 1795973360.832 35170 CONNECT alt.test 8443 NONE_NONE 200 0 105 0 - sni OK.test - -
`

func TestParseLog(t *testing.T) {
	list, err := ParseLog(strings.NewReader(sampleLog))
	if err != nil || len(list) != 4 {
		t.Fatalf("%d decisions, %v", len(list), err)
	}
	want := Decision{
		Squid: "front", Time: time.UnixMilli(1795973334681).UTC(), ClientPort: 35986, Method: "GET", Host: "2001:db8::40", Port: 80,
		Verdict: "TCP_MISS", Status: 200, Sent: 181, Received: 80, Duration: 12 * time.Millisecond, Server: "2001:db8::40",
	}
	if list[1] != want {
		t.Errorf("got %+v\nwant %+v", list[1], want)
	}
	if list[0].Host != "b%C3%BCcher.test" || list[0].Reason != ReasonName {
		t.Errorf("got %+v", list[0])
	}
	if list[3].SNI != "OK.test" || list[3].Reason != ReasonSNI {
		t.Errorf("got %+v", list[3])
	}
}

// A clock that was set back in between makes no line disappear.
func TestParseLogClock(t *testing.T) {
	line := strings.SplitAfter(sampleLog, "\n")[1]
	back := strings.Replace(line, " 12 ", " -86400000 ", 1)
	list, err := ParseLog(strings.NewReader(back))
	if err != nil || back == line || len(list) != 1 || list[0].Duration != 0 || list[0].Sent != 181 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestParseLogHostile(t *testing.T) {
	good := strings.SplitAfter(sampleLog, "\n")[1]
	for name, in := range map[string]string{
		"long line":   good + "front " + strings.Repeat("a", 1<<20) + "\n" + good,
		"nonsense":    good + "GET / HTTP/1.1\n" + good,
		"empty line":  good + "\n" + good,
		"escape":      good + strings.Replace(good, "GET", "\x1b[2J", 1) + good,
		"extra field": good + strings.TrimSuffix(good, "\n") + " x\n" + good,
		"other squid": good + strings.Replace(good, "front", "other", 1) + good,
		"negative":    good + strings.Replace(good, " 181 ", " -181 ", 1) + good,
		"huge number": good + strings.Replace(good, " 181 ", " 99999999999999999999 ", 1) + good,
		"port":        good + strings.Replace(good, " 80 TCP", " 65536 TCP", 1) + good,
	} {
		list, err := ParseLog(strings.NewReader(in))
		var bad *MalformedError
		if !errors.As(err, &bad) || bad.Lines != 1 || bad.First != 2 || len(list) != 2 {
			t.Errorf("%s: %d decisions, %v", name, len(list), err)
		}
	}
	if list, err := ParseLog(strings.NewReader(good + good[:40])); err != nil || len(list) != 1 {
		t.Errorf("a line being written: %d decisions, %v", len(list), err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		host   string
		port   uint16
		reason string
		sni    string
		flag   string
		why    string
	}{
		{"a.example", 443, ReasonName, "", "--allow a.example", ""},
		{"A.example.", 80, ReasonName, "", "--allow a.example", ""},
		{"a.example", 8443, ReasonPort, "", "--allow a.example:8443", ""},
		{"192.0.2.1", 443, ReasonName, "", "--allow 192.0.2.1", ""},
		{"2001:db8::1", 22, ReasonPort, "", "--allow [2001:db8::1]:22", ""},
		{"10.0.0.1", 443, ReasonName, "", "--allow-private 10.0.0.1", ""},
		{"127.0.0.1", 5432, ReasonPort, "", "--allow-private 127.0.0.1:5432", ""},
		{"169.254.169.254", 80, ReasonName, "", "--allow-private 169.254.169.254", ""},
		{"169.254.169.254", 80, ReasonAddress, "", "--allow-private 169.254.169.254", ""},
		{"meta.example", 80, ReasonAddress, "", "", "spells it out"},
		{"0.0.0.0", 80, ReasonName, "", "", "no connection"},
		{"db.example", 443, ReasonPrivate, "", "--allow-private db.example", ""},
		{"a.example", 443, ReasonSNI, "b.example", "--allow b.example", ""},
		{"a.example", 8443, ReasonSNI, "b.example", "--allow b.example:8443", ""},
		{"a.example", 443, ReasonNoSNI, "", "", "no server name"},
		{"a.example", 443, ReasonNotTLS, "", "", "not TLS"},
		{"a.example", 443, ReasonLookup, "", "", "resolve"},
		{"localhost", 80, ReasonName, "", "", "single label"},
		{"b%C3%BCcher.test", 80, ReasonName, "", "", "no entry"},
		{"x;rm -rf", 80, ReasonName, "", "", "no entry"},
	} {
		got := Refused([]Decision{{Host: c.host, Port: c.port, Reason: c.reason, SNI: c.sni}})
		if len(got) != 1 || got[0].AllowFlag != c.flag || !strings.Contains(got[0].Why, c.why) || (got[0].Why == "") != (c.why == "") {
			t.Errorf("%s:%d %s: got %+v, want %q %q", c.host, c.port, c.reason, got, c.flag, c.why)
		}
	}
	got := Refused([]Decision{
		{Host: "a.example", Port: 443, Reason: ReasonName}, {Host: "b.example", Port: 443},
		{Host: "a.example", Port: 80, Reason: ReasonName}, {Host: "a.example", Port: 22, Reason: ReasonPort},
	})
	if len(got) != 2 || got[0].Count != 2 || got[1].AllowFlag != "--allow a.example:22" {
		t.Errorf("got %+v", got)
	}
	var tally Tally
	for i := range maxHosts + 5 {
		tally.Add(Decision{Host: strings.Repeat("a", i%60+1) + string(rune('a'+i%26)) + strings.Repeat("b", i/60) + ".example", Port: 443, Reason: ReasonName})
	}
	if len(tally.Refused()) > maxHosts {
		t.Errorf("%d hosts are told apart", len(tally.Refused()))
	}
}

// FuzzEvent: whatever a client chose, what is kept of it is one short line of
// printable ASCII.
func FuzzEvent(f *testing.F) {
	f.Add("GET", "a.example", uint16(443), "name", "peer.example")
	f.Add("-", "a b\nfront 1.000 1", uint16(0), "%41", "\xff")
	f.Fuzz(func(t *testing.T, method, host string, port uint16, reason, sni string) {
		d := Decision{Squid: "peek", Time: time.UnixMilli(1795973334681), Method: method, Host: host, Port: port, Status: 403, Sent: -1, Received: 5, Reason: reason, SNI: sni}
		text, err := json.Marshal(d.Event(NewRules(nil, nil)))
		if err != nil || len(text) > 1<<10 || strings.ContainsFunc(string(text), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%+v is %s, %v", d, text, err)
		}
		var back Event
		if err := json.Unmarshal(text, &back); err != nil || back != d.Event(NewRules(nil, nil)) {
			t.Fatalf("%s reads %+v, %v", text, back, err)
		}
	})
}

// TestJoiner: a tunnel that is refused for its content is one decision, in whatever
// order the two squids have logged it.
func TestJoiner(t *testing.T) {
	tunnel := Decision{Squid: "front", Method: "CONNECT", Host: "ok.test", Port: 443, Status: 200, LocalPort: 7}
	other := Decision{Squid: "front", Method: "CONNECT", Host: "ok.test", Port: 443, Status: 200, LocalPort: 8}
	get := Decision{Squid: "front", Method: "GET", Host: "ok.test", Port: 80, Status: 200}
	nothing := Decision{Squid: "front", Status: 400}
	no := Decision{Squid: "peek", Method: "CONNECT", Host: "ok.test", Port: 443, ClientPort: 7, Reason: ReasonSNI, SNI: "no.test"}
	for name, steps := range map[string][][2][]Decision{
		"at once":     {{{tunnel, other, get, nothing}, {no}}},
		"peek first":  {{nil, {no}}, {{tunnel, other, get, nothing}, nil}},
		"front first": {{{tunnel, other, get, nothing}, nil}, {nil, {no}}},
	} {
		var j Joiner
		var got []Decision
		for i, s := range steps {
			got = append(got, j.Add(s[0], s[1], i == len(steps)-1)...)
		}
		slices.SortFunc(got, func(a, b Decision) int {
			return cmp.Or(strings.Compare(a.Method, b.Method), int(a.LocalPort)-int(b.LocalPort))
		})
		if !slices.Equal(got, []Decision{no, other, get}) {
			t.Errorf("%s: %+v", name, got)
		}
		if more := j.Add([]Decision{tunnel}, nil, true); len(more) != 1 {
			t.Errorf("%s: a later tunnel on the same port is %+v", name, more)
		}
	}
	var j Joiner
	for range 3 * maxJoined {
		j.Add(nil, []Decision{no}, false)
	}
	if len(j.refused) > maxJoined+1 {
		t.Errorf("%d are remembered", len(j.refused))
	}
}

// TestRule: what lets a host through is the entry that does, and there is one exactly
// where the rules let it through.
func TestRule(t *testing.T) {
	r := NewRules(parse(t, "ok.test", ".wild.test", "alt.test:8443", "198.51.100.0/24", "2001:db8::40"), parse(t, "db.test", "10.0.0.0/8:5432"))
	for _, c := range []struct {
		host string
		port uint16
		want string
	}{
		{"ok.test", 443, "allow ok.test"}, {"OK.test.", 80, "allow ok.test"}, {"a.ok.test", 443, ""}, {"wild.test", 443, "allow .wild.test"},
		{"a.b.wild.test", 80, "allow .wild.test"}, {"notwild.test", 80, ""}, {"alt.test", 8443, "allow alt.test:8443"}, {"alt.test", 443, ""},
		{"198.51.100.7", 443, "allow 198.51.100.0/24"}, {"::ffff:198.51.100.7", 443, "allow 198.51.100.0/24"}, {"2001:db8::40", 443, "allow 2001:db8::40"},
		{"db.test", 443, "allow_private db.test"}, {"10.1.2.3", 5432, "allow_private 10.0.0.0/8:5432"}, {"10.1.2.3", 443, ""}, {"a b", 443, ""}, {"", 443, ""},
	} {
		h := ParseHost(c.host)
		if got := r.Rule(h, c.port); got != c.want || (got == "") != (r.Request(h, c.port) != "") {
			t.Errorf("%s:%d: %q, want %q; the rules say %q", c.host, c.port, got, c.want, r.Request(h, c.port))
		}
	}
}

// FuzzParseLog: whatever the log holds, what is suggested is an entry and
// nothing else.
func FuzzParseLog(f *testing.F) {
	f.Add([]byte(sampleLog))
	f.Add([]byte("peek 1.000 1 CONNECT a 443 X 200 0 0 0 - sni %0a - 7\n"))
	flagForm := regexp.MustCompile(`^(--allow(-private)? [a-z0-9.:\[\]-]+)?$`)
	f.Fuzz(func(t *testing.T, b []byte) {
		list, _ := ParseLog(bytes.NewReader(b))
		for _, h := range Refused(list) {
			if !flagForm.MatchString(h.AllowFlag) {
				t.Errorf("suggests %q", h.AllowFlag)
			}
			if (h.AllowFlag == "") == (h.Why == "") {
				t.Errorf("%+v: want a flag or a reason", h)
			}
			if strings.ContainsFunc(h.Host, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
				t.Errorf("host %q is not fit to print", h.Host)
			}
		}
	})
}
