package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParsePublish(t *testing.T) {
	for s, want := range map[string]Publish{
		"8000":                  {Port: 8000, HostPort: 8000},
		"1":                     {Port: 1, HostPort: 1},
		"65535":                 {Port: 65535, HostPort: 65535},
		"9000:8000":             {Port: 8000, HostPort: 9000},
		":8000":                 {Port: 8000},
		"127.0.0.1:9000:8000":   {Addr: "127.0.0.1", Port: 8000, HostPort: 9000},
		"0.0.0.0:80:8080":       {Addr: "0.0.0.0", Port: 8080, HostPort: 80},
		"[::1]:9000:8000":       {Addr: "::1", Port: 8000, HostPort: 9000},
		"[::]:1:1":              {Addr: "::", Port: 1, HostPort: 1},
		"[2001:DB8:0::7]:9:8":   {Addr: "2001:db8::7", Port: 8, HostPort: 9},
		"[0:0:0:0:0:0:0:1]:9:8": {Addr: "::1", Port: 8, HostPort: 9},
	} {
		if got, err := ParsePublish(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"127.0.0.1:8000":          "has an address, which needs a host port and a port behind it",
		"[::1]:8000":              "has an address, which needs a host port and a port behind it",
		"":                        "has an empty port",
		":":                       "has an empty port",
		"8000:":                   "has an empty port",
		"0":                       "has 0 for a port, which is not a number from 1 to 65535",
		":0":                      "has 0 for a port",
		"0:8000":                  "has 0 for a port",
		"08000":                   "has 08000 for a port",
		"+8000":                   "has +8000 for a port",
		" 8000":                   `has " 8000" for a port`,
		"8000\n":                  `has "8000\n" for a port`,
		"65536":                   "has 65536 for a port",
		"8080-8090":               "has a range, and an entry is one port",
		"8080-8090:80-90":         "has a range, and an entry is one port",
		"8000/tcp":                "names a protocol, and only TCP is published",
		"53:53/udp":               "names a protocol, and only TCP is published",
		"localhost:8000":          "has localhost for a port",
		"localhost:9000:8000":     "has localhost for an address, which is not an IP address",
		"http:9000:8000":          "has http for an address",
		"127.1:9000:8000":         "has 127.1 for an address",
		"0127.0.0.1:9000:8000":    "has 0127.0.0.1 for an address",
		"2130706433:9000:8000":    "has 2130706433 for an address",
		"127.0.0.1/8:9000:8000":   "has 127.0.0.1/8 for an address",
		"127.0.0.1::8000":         "has an address and no host port",
		"[::1]::8000":             "has an address and no host port",
		"::8000":                  "has an empty address",
		":9000:8000":              "has an empty address",
		"::1:9000:8000":           "has too many parts (an IPv6 address goes in brackets)",
		"1:2:3:4":                 "has too many parts",
		"[127.0.0.1]:9000:8000":   "has no IPv6 address in its brackets",
		"[::1:9000:8000":          `has a [ without a "]:" behind the address`,
		"[::1]9000:8000":          `has a [ without a "]:"`,
		"[fe80::1%eth0]:1:1":      "has an address with a zone",
		"[::ffff:127.0.0.1]:1:1":  "has an IPv4 address in the form of an IPv6 one",
		"224.0.0.1:1:1":           "has an address of many machines",
		"[ff02::1]:1:1":           "has an address of many machines",
		"255.255.255.255:1:1":     "has an address of many machines",
		"\x1b[2J":                 `publish "\x1b[2J" has`,
		strings.Repeat("8", 1000): "is longer than any entry",
	} {
		got, err := ParsePublish(s)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "write "+PublishGrammar) || len(err.Error()) > 300 {
			t.Errorf("%q: %+v, %v\nwant %s", s, got, err, want)
		}
	}
}

// What is taken has one form, and that form is taken again for the same.
func FuzzParsePublish(f *testing.F) {
	for _, s := range []string{"8000", "9000:8000", ":8000", "127.0.0.1:9000:8000", "[::1]:9000:8000", "127.0.0.1:8000", "8000/udp", "1-2:1-2", "[::ffff:1.2.3.4]:1:1", "[fe80::1%\x1b]:1:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePublish(s)
		if err != nil {
			for _, r := range err.Error() {
				if r < ' ' || r == 0x7f || r == '\ufeff' || r == '\u202e' {
					t.Errorf("the error of %q holds %q", s, r)
				}
			}
			return
		}
		if p.Port == 0 || p.HostPort == 0 && p.Addr != "" {
			t.Errorf("%q: %+v", s, p)
		}
		again := fmt.Sprintf(":%d", p.Port)
		switch {
		case p.Addr != "":
			again = p.Host() + fmt.Sprintf(":%d", p.Port)
		case p.HostPort != 0:
			again = fmt.Sprintf("%d:%d", p.HostPort, p.Port)
		}
		if q, err := ParsePublish(again); err != nil || q != p {
			t.Errorf("%q is %+v, and %q is %+v, %v", s, p, again, q, err)
		}
	})
}

// An address that is taken is that of one machine, in its one form; what is refused
// is short and can be shown.
func FuzzParsePublishAddr(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::1", "0:0::1", "::ffff:1.2.3.4", "fe80::1%eth0\x1b", "224.0.0.1", "1.2.3.4:5", "[::1]", "localhost", "", strings.Repeat("1", 5000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		addr, err := ParsePublishAddr(s)
		if err != nil {
			if len(err.Error()) > 500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("%q: %d bytes: %.500q", s, len(err.Error()), err)
			}
			return
		}
		a, err := netip.ParseAddr(addr)
		if err != nil || a.String() != addr || a.Zone() != "" || a.IsMulticast() || a.Is4In6() {
			t.Errorf("%q is %q: %v", s, addr, err)
		}
		if again, err := ParsePublishAddr(addr); err != nil || again != addr {
			t.Errorf("%q is %q, and that %q, %v", s, addr, again, err)
		}
		// It fits the entries' grammar.
		if p, err := ParsePublish(Publish{Addr: addr, HostPort: 1, Port: 2}.Host() + ":2"); err != nil || p.Addr != addr {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	})
}

func publishes(t *testing.T, list ...string) []Publish {
	t.Helper()
	var out []Publish
	for _, s := range list {
		p, err := ParsePublish(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestResolvePublish(t *testing.T) {
	for _, tc := range []struct {
		name    string
		list    []string
		change  func(*Input)
		want    []Publish
		refused string
	}{
		{name: "nothing"},
		{name: "loopback unless spelled out", list: []string{"3000", ":8080", "0.0.0.0:81:3000"},
			want: []Publish{{"127.0.0.1", 3000, 3000}, {"127.0.0.1", 0, 8080}, {"0.0.0.0", 81, 3000}}},
		{name: "publish_addr", list: []string{"3000", "127.0.0.1:81:3000"}, change: func(in *Input) { in.PublishAddr = "192.0.2.1" },
			want: []Publish{{"192.0.2.1", 3000, 3000}, {"127.0.0.1", 81, 3000}}},
		{name: "the same twice", list: []string{"3000", "127.0.0.1:3000:3000", "3000:3000"}, want: []Publish{{"127.0.0.1", 3000, 3000}}},
		{name: "one port on two host ports", list: []string{"3000", "3001:3000", ":3000"},
			want: []Publish{{"127.0.0.1", 3000, 3000}, {"127.0.0.1", 3001, 3000}, {"127.0.0.1", 0, 3000}}},
		{name: "the gate's port where it is not", list: []string{"3128"}, want: []Publish{{"127.0.0.1", 3128, 3128}}},
		{name: "one host port for two", list: []string{"3000", "3000:3001"}, refused: "publish 127.0.0.1:3000:3001 has a host port that is published already; give each its own"},
		{name: "one host port and every address", list: []string{"3000", "0.0.0.0:3000:3001"}, refused: "publish 0.0.0.0:3000:3001 has a host port that is published already; give each its own"},
		{name: "every address of both kinds", list: []string{"0.0.0.0:3000:3000", "[::1]:3000:3000"}, refused: "publish [::1]:3000:3000 has a host port that is published already; give each its own"},
		{name: "none", list: []string{"3000"}, change: func(in *Input) { in.Net = NetNone }, refused: "with net none nothing is published; drop publish, or use another network"},
		{name: "host", list: []string{"3000"}, change: func(in *Input) { *in = jailed(); in.Net = NetHost },
			refused: "with net host a server inside listens on this machine's own ports, so there is nothing to publish; drop publish, or use net unix"},
		{name: "a port of root's", list: []string{"8080:80", "3000"}, refused: "publish 127.0.0.1:8080:80 has a port inside at which only root can listen; let the server inside listen at 1024 or above"},
		{name: "the gate's port", list: []string{"9000:3128"}, change: func(in *Input) { *in = jailed() },
			refused: "publish 127.0.0.1:9000:3128 is the gate's own port inside; let the server inside listen at another"},
		{name: "IPv6 of the network", list: []string{"[::]:3000:3000"}, refused: "publish [::]:3000:3000 can't be reached over IPv6 with net gated; use an IPv4 address, [::1], or net unix"},
		{name: "IPv6 loopback", list: []string{"[::1]:3000:3000"}, want: []Publish{{"::1", 3000, 3000}}},
		{name: "IPv6 of the network without a device", list: []string{"[::]:3000:3000"}, change: func(in *Input) { in.Net = NetUnix }, want: []Publish{{"::", 3000, 3000}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := plain()
			if tc.change != nil {
				tc.change(&in)
			}
			in.Publish = publishes(t, tc.list...)
			p, err := Resolve(in)
			if tc.refused != "" {
				if err == nil || err.Error() != tc.refused {
					t.Errorf("%v\nwant %s", err, tc.refused)
				}
				return
			}
			if err != nil || !slices.Equal(p.Publish, tc.want) {
				t.Errorf("%+v, %v\nwant %+v", p.Publish, err, tc.want)
			}
		})
	}
	in := plain()
	for n := range maxPublish + 1 {
		in.Publish = append(in.Publish, Publish{HostPort: uint16(n + 1), Port: 3000})
	}
	if _, err := Resolve(in); err == nil {
		t.Error("any number of ports is published")
	}
}

// What other machines reach is marked, and said again when a run starts.
func TestPublishIsMarked(t *testing.T) {
	in := plain()
	in.Publish = publishes(t, "3000", "[::1]:3001:3000", "127.9.9.9:1:3000")
	p, err := Resolve(in)
	if err != nil || len(p.Loud()) != 0 || strings.Contains(p.Text(), "LAN-FACING") {
		t.Errorf("%q, %v", p.Loud(), err)
	}
	for _, s := range []string{"0.0.0.0:80:3000", "192.0.2.1:80:3000"} {
		in.Publish = publishes(t, s)
		p, err := Resolve(in)
		if err != nil || len(p.Loud()) != 1 || !strings.HasPrefix(p.Loud()[0], "LAN-FACING: "+p.Publish[0].Host()) || !strings.Contains(p.Text(), "! LAN-FACING") {
			t.Errorf("%s: %q, %v", s, p.Loud(), err)
		}
	}
	in.Publish, in.PublishAddr = publishes(t, "3000"), "192.0.2.1"
	if p, err := Resolve(in); err != nil || len(p.Loud()) != 1 {
		t.Errorf("publish_addr: %q, %v", p.Loud(), err)
	}
}

func TestParsePublishAddr(t *testing.T) {
	for s, want := range map[string]string{"127.0.0.1": "127.0.0.1", "::1": "::1", "0.0.0.0": "0.0.0.0", "2001:DB8::1": "2001:db8::1"} {
		if got, err := ParsePublishAddr(s); err != nil || got != want {
			t.Errorf("%s: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "localhost", "[::1]", "127.0.0.1:80", "fe80::1%lo", "::ffff:127.0.0.1", "ff02::1", "\x1b"} {
		if got, err := ParsePublishAddr(s); err == nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}
