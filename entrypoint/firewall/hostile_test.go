package firewall

import (
	"regexp"
	"strings"
	"testing"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/tests/hostile"
)

// ruleForm is every rule that a ruleset of ours can have, in nft's syntax.
var ruleForm = regexp.MustCompile(`^((iifname|oifname) "lo" accept|` +
	`(ip (saddr|daddr) [0-9.]+ )?(tcp (sport|dport) [0-9]+ )?(meta l4proto tcp )?(ct state established )?(counter packets 0 bytes 0 (log group 77 )?)?(accept|reject|reject with tcp reset)( comment "aisb-publish")?)$`)

// No string of a spec's is nft's syntax: it is refused, or the text is a table of
// the rules that there are.
func FuzzBuild(f *testing.F) {
	for _, s := range append([]string{"169.254.77.1", "::1", "0.0.0.0"}, hostile.Strings...) {
		f.Add("gated", s, uint16(3128))
		f.Add(s, "169.254.77.1", uint16(3128))
	}
	f.Fuzz(func(t *testing.T, mode, addr string, port uint16) {
		rs, err := Build(spec.Firewall{Mode: mode, GateAddr: addr, GatePort: port})
		if err != nil {
			if err := hostile.Printed(err.Error()); err != nil {
				t.Fatal(err)
			}
			return
		}
		text := rs.Text()
		if err := hostile.Printed(text); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			switch line = strings.TrimSpace(line); {
			case line == "", line == "}", line == "table inet aisb {", regexp.MustCompile(`^chain (input|forward|output) \{$`).MatchString(line),
				regexp.MustCompile(`^type filter hook (input|forward|output) priority filter; policy drop;$`).MatchString(line), ruleForm.MatchString(line):
			default:
				t.Fatalf("%q, %q: a line %q", mode, addr, line)
			}
		}
		if strings.Count(text, "policy drop;") != 3 {
			t.Fatalf("%q: %s", addr, text)
		}
	})
}
