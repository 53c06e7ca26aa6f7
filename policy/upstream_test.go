package policy

import (
	"strings"
	"testing"
	"unicode"
)

func TestParseUpstream(t *testing.T) {
	for s, want := range map[string]string{
		"http://proxy.example.com:3128":  "http://proxy.example.com:3128",
		"HTTP://Proxy.Example.com.:8080": "http://proxy.example.com:8080",
		"http://proxy:3128/":             "http://proxy:3128",
		"http://127.0.0.1:3128":          "http://127.0.0.1:3128",
		"http://[2001:db8::7]:3128":      "http://[2001:db8::7]:3128",
		"http://[::ffff:10.0.0.1]:3128":  "http://10.0.0.1:3128",
	} {
		u, err := ParseUpstream(s)
		if err != nil || u.URL() != want {
			t.Errorf("%q: %q, %v; want %q", s, u.URL(), err, want)
			continue
		}
		if again, err := ParseUpstream(u.URL()); err != nil || again != u {
			t.Errorf("%q is read back as %+v, %v", u.URL(), again, err)
		}
	}
	for s, why := range map[string]string{
		"":                                   "has no scheme",
		"proxy.example.com:3128":             "has no scheme",
		"https://proxy.example.com:3128":     "is spoken to with TLS",
		"socks5://proxy.example.com:1080":    "is no HTTP proxy",
		"http://proxy.example.com":           "is no host with a port",
		"http://proxy.example.com:":          "has a bad port",
		"http://proxy.example.com:0":         "has a bad port",
		"http://proxy.example.com:99999":     "has a bad port",
		"http://2001:db8::7:3128":            "is no host with a port",
		"http://[proxy]:3128":                "is no host with a port",
		"http://:3128":                       "has a bad host",
		"http://0.0.0.0:3128":                "is at an address that no connection can go to",
		"http://2130706433:3128":             "has a bad host",
		"http://a b:3128":                    "has a bad host",
		"http://a\n:3128":                    "has a bad host",
		"http://proxy.example.com:3128/x":    "is no host with a port",
		"http://proxy.example.com:3128?x":    "is no host with a port",
		"http://me:s3cret-word@proxy.test:1": "has a user in it",
		"me:s3cret-word@proxy.test:1":        "has a user in it",
	} {
		if u, err := ParseUpstream(s); err == nil || !strings.Contains(err.Error(), "upstream_proxy "+why) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %+v, %v; want %q", s, u, err, why)
		}
	}
}

func FuzzParseUpstream(f *testing.F) {
	for _, s := range []string{"http://proxy.example.com:3128", "HTTP://[2001:db8::7]:1/", "http://me:passw0rd@p.test:1", "https://a:1", "http://ü.example:80", "http://0x7f.1:1", "http://[::ffff:1.2.3.4%25x]:1", "http://\xcdxample.coP:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseUpstream(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x00\x1b") {
				t.Errorf("%q: the error is not for a terminal: %q", s, err)
			}
			return
		}
		// It stands in squid.conf.
		if strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-:") != "" || u.Host == "" || u.Port == 0 || u.Credentials {
			t.Errorf("%q: %+v", s, u)
		}
		if again, err := ParseUpstream(u.URL()); err != nil || again != u {
			t.Errorf("%q is %+v, read back as %+v, %v", s, u, again, err)
		}
	})
}

func FuzzParseUpstreamAuth(f *testing.F) {
	for _, s := range []string{"user:passw0rd\n", "a:b", "*:passw0rd", "ü:pässword", "u:p\x00ssw0rd!", "u:passw0rd\nx"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseUpstreamAuth(data)
		if err != nil {
			if got.Reveal() != "" {
				t.Errorf("%q is refused and kept", data)
			}
			return
		}
		s := got.Reveal()
		user, password, _ := strings.Cut(s, ":")
		if s != strings.TrimSuffix(string(data), "\n") || user == "" || strings.IndexFunc(s, unicode.IsControl) >= 0 && strings.ContainsAny(s, "\r\n\x00") {
			t.Errorf("%q is read as %q", data, s)
		}
		// What is accepted can be hidden.
		if text := NewRedactor([]Secret{got, NewSecret(UpstreamAuth, password)}).Text("x " + password + " y"); strings.Contains(text, password) {
			t.Errorf("%q is shown: %q", password, text)
		}
	})
}

func TestParseUpstreamAuth(t *testing.T) {
	for _, s := range []string{"user:passw0rd", "dom\\us er:p:ss w#rd%\n", "ü:pässword"} {
		if got, err := ParseUpstreamAuth([]byte(s)); err != nil || got.Reveal() != strings.TrimSuffix(s, "\n") || got.String() != "[upstream_auth_file]" {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "\n", "user", "user:", ":passw0rd", "user:passw0rd\r\n", "user:passw0rd\nmore", "user:pass\x00w0rd", "user:pass\xffw0rd",
		"*:passw0rd", "NEGOTIATE:passw0rd", "user:short", "user:aaaaaaaaaaaa"} {
		if got, err := ParseUpstreamAuth([]byte(s)); err == nil || strings.Contains(err.Error(), "passw0rd") {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func TestDiffUpstream(t *testing.T) {
	a := Upstream{Host: "a.test", Port: 1}
	b, c := a, Upstream{Host: "b.test", Port: 1}
	b.Credentials = true
	for _, x := range []struct {
		from, to              *Upstream
		more, less, otherwise int
	}{{nil, &a, 1, 0, 0}, {&a, nil, 0, 1, 0}, {&a, &c, 0, 0, 1}, {&a, &b, 0, 0, 1}, {&a, &a, 0, 0, 0}, {nil, nil, 0, 0, 0}} {
		d := Diff(Policy{Net: Net{Upstream: x.from}}, Policy{Net: Net{Upstream: x.to}})
		if len(d.More) != x.more || len(d.Less) != x.less || len(d.Otherwise) != x.otherwise {
			t.Errorf("%v to %v: %+v", x.from, x.to, d)
		}
	}
}
