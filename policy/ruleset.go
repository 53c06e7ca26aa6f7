// The ruleset of the sandbox's network namespace, as a policy shows it. It is made
// elsewhere, from the policy, in nft's syntax, and belongs to the policy as lines.

package policy

import "strings"

// WithRuleset returns the policy with the ruleset that text is, in nft's syntax,
// with PortPlaceholder where the gate's port comes.
func (p Policy) WithRuleset(text string) Policy {
	p.Ruleset = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return p
}

// noRuleset says why there is none.
func noRuleset(n Net) string {
	if n.Mode == NetHost {
		return "none: nothing is shut"
	}
	return "none: the network namespace has no device but its loopback"
}

// ruleset shows the rules as nft lists them.
func (b *page) ruleset(p Policy) {
	if len(p.Ruleset) == 0 {
		b.text("ruleset", noRuleset(p.Net))
		return
	}
	b.WriteString("ruleset inside, as nft lists it\n")
	for _, line := range p.Ruleset {
		line = Printable(strings.ReplaceAll(line, "\t", "  "))
		b.WriteString(strings.TrimRight("  "+line, " ") + "\n")
	}
}
