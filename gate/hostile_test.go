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

// The page proposes what the grammar takes, and nothing else.
func TestPageProposes(t *testing.T) {
	for _, c := range []struct {
		reason, session, host string
		port                  uint16
		want                  string
	}{
		{ReasonName, "0123456789ab", "no.test", 80, "aisb-gate: refused (rule name): no.test is not allowed on port 80; to open it, ask the user for --allow no.test; or, while this session runs: ai-sandbox allow 0123456789ab no.test"},
		{ReasonName, "", "no.test", 443, "aisb-gate: refused (rule name): no.test is not allowed on port 443; to open it, ask the user for --allow no.test"},
		{ReasonName, "", "no.test", 8080, "aisb-gate: refused (rule name): no.test is not allowed on port 8080; to open it, ask the user for --allow no.test:8080"},
		{ReasonPort, "", "no.test", 22, "aisb-gate: refused (rule port): port 22 is not allowed; to open it, ask the user for --allow no.test:22"},
		{ReasonPrivate, "x", "no.test", 80, "aisb-gate: refused (rule private): no.test leads to a private address; to open it, ask the user for --allow-private no.test; or, while this session runs: ai-sandbox allow x --private no.test"},
		{ReasonAddress, "x", "no.test", 80, "aisb-gate: refused (rule address): no.test leads to an address that stays shut unless --allow-private spells it out"},
		{ReasonName, "x", "--runtime", 80, "aisb-gate: refused (rule name): --runtime is not allowed on port 80; no entry can name it: "},
		{ReasonName, "x", "$(id).test", 80, "aisb-gate: refused (rule name): %24%28id%29.test is not allowed on port 80; no entry can name it: "},
		{ReasonName, "x", "a\r\nX", 80, "aisb-gate: refused (rule name): a%0D%0AX is not allowed on port 80; no entry can name it: "},
		{ReasonPort, "x", "-x.test", 22, "aisb-gate: refused (rule port): port 22 is not allowed; no entry can name it: "},
	} {
		got := Page(c.reason, c.session, c.host, c.port)
		if got != c.want && (!strings.HasSuffix(c.want, ": ") || !strings.HasPrefix(got, c.want)) || strings.Contains(c.want, "no entry") && strings.Contains(got, "allow ") {
			t.Errorf("%s %q\n got %s\nwant %s", c.reason, c.host, got, c.want)
		}
	}
}
