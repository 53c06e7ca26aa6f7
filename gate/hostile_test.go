package gate

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/policy"
	"ai-sandbox/tests/hostile"
)

// reread reads a squid.conf of ours as squid does: a directive a line, words
// between white space, a word in quotes that could be a file's name, "#" for a
// comment. It returns the lines that do not depend on the list, and the values that
// do.
func reread(t *testing.T, what, text string) (fixed, values []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") || strings.ContainsAny(line, "\r\x00") || len(line) > 2000 {
			t.Fatalf("%s: a line of another kind: %.200q", what, line)
		}
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "acl" && regexp.MustCompile(`^(listed|inward|spelled|sni)_[0-9]+_(names|addrs|ports)$`).MatchString(words[1]) {
			for _, w := range words[2:] {
				if w == "dstdomain" || w == "dst" || w == "port" || w == "ssl::server_name" || w == "-n" {
					continue
				}
				values = append(values, w)
			}
			continue
		}
		fixed = append(fixed, strings.TrimSpace(regexp.MustCompile(`(listed|inward|spelled|sni)_[0-9]+`).ReplaceAllString(line, "$1")))
	}
	return fixed, values
}

// FuzzFiles: whatever is on a list, it is refused, or squid reads the rules that it
// always reads, and the list's own hosts and addresses as values.
func FuzzFiles(f *testing.F) {
	for _, s := range hostile.Strings {
		f.Add(s, "b.example.com", uint16(0), false)
		f.Add("a.example.com", s, uint16(8443), true)
	}
	f.Add("192.0.2.0/24", "2001:db8::1", uint16(443), true)
	value := regexp.MustCompile(`^(\.?[a-z0-9.-]+|[0-9a-f:.]+/[0-9]+|[0-9]+)$`)
	base, err := Files(Config{Allow: parse(f, "a.example.com", "192.0.2.1"), AllowPrivate: parse(f, "b.example.com"), FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"})
	if err != nil {
		f.Fatal(err)
	}
	rules := regexp.MustCompile(`^(http_access|ssl_bump|deny_info|cache_peer_access|never_direct|always_direct|http_port|on_unsupported_protocol) `)
	f.Fuzz(func(t *testing.T, a, b string, port uint16, byHand bool) {
		c := Config{FrontPort: 1, PeekPort: 2, Nonce: "n", PolicyHash: "h"}
		for i, s := range []string{a, b} {
			e := policy.Entry{Name: s, Port: port}
			if !byHand {
				var err error
				if e, err = policy.ParseEntry(s); err != nil {
					return
				}
			}
			if i == 0 {
				c.Allow = []policy.Entry{e}
			} else {
				c.AllowPrivate = []policy.Entry{e}
			}
		}
		files, err := Files(c)
		if err != nil {
			if err := hostile.Printed(err.Error()); err != nil {
				t.Fatal(err)
			}
			return
		}
		for _, name := range []string{FrontConf, PeekConf} {
			known, _ := reread(t, name, string(base[name]))
			fixed, values := reread(t, name, string(files[name]))
			for _, v := range values {
				if !value.MatchString(v) {
					t.Fatalf("%s: %q as a value", name, v)
				}
			}
			var was, is []string
			for _, l := range known {
				if rules.MatchString(l) && !strings.Contains(l, "literal") && !strings.Contains(l, "spelled") && !strings.Contains(l, "tunnel other") {
					was = append(was, l)
				}
			}
			for _, l := range fixed {
				l = strings.ReplaceAll(l, " !spelled", "")
				if rules.MatchString(l) && !strings.Contains(l, "literal") && !strings.Contains(l, "tunnel other") && l != "ssl_bump splice sni" {
					is = append(is, l)
				}
			}
			was = slices.DeleteFunc(was, func(l string) bool { return l == "ssl_bump splice sni" })
			if !slices.Equal(was, is) {
				t.Fatalf("%s: %q and %q make other rules\n%q\n%q", name, a, b, was, is)
			}
		}
	})
}

// TestHostileConfig: the strings that a config has besides the lists.
func TestHostileConfig(t *testing.T) {
	accepted, refused := 0, 0
	for _, s := range append([]string{"plain"}, hostile.Strings...) {
		for what, change := range map[string]func(*Config){
			"nonce": func(c *Config) { c.Nonce = s }, "hash": func(c *Config) { c.PolicyHash = s },
			"directory": func(c *Config) { c.Dir = s }, "logs": func(c *Config) { c.Logs = s },
		} {
			c := config(t)
			change(&c)
			files, err := Files(c)
			if err != nil {
				refused++
				if err := hostile.Printed(err.Error()); err != nil {
					t.Errorf("%s %.60q: %v", what, s, err)
				}
				continue
			}
			accepted++
			for name, text := range files {
				if err := hostile.Printed(string(text)); err != nil {
					t.Errorf("%s %.60q: %s: %v", what, s, name, err)
				}
			}
			if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-._/ABCDEFGHIJKLMNOPQRSTUVWXYZ:") != "" {
				t.Errorf("%s %.60q is taken", what, s)
			}
		}
	}
	if accepted < 4 || refused < 80 {
		t.Errorf("%d were taken and %d refused", accepted, refused)
	}
	// What a refused client reads: one line, of bytes that a host can have.
	for _, s := range hostile.Strings {
		for reason := range pages {
			if page := Page(reason, "0123456789ab", s, 443); strings.ContainsFunc(page, func(r rune) bool { return r < ' ' || r >= 0x7f }) || len(page) > 2000 {
				t.Errorf("the page for %.60q is %.300q", s, page)
			}
		}
	}
}
