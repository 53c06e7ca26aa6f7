// Packages that an upgrade leaves as they are in an image, and that a build from the base
// may bring otherwise.

package image

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// policyForm is a line of apt-cache policy (apt-cache(8)): a package's name, its versions
// of now and to come, one of its table, or who has that.
var policyForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(\S+):|  Installed: (\S+)|  Candidate: (\S+)|(?: \*\*\*|    ) (\S+) .*| {6,}-?[0-9]+ (\S+).*)$`)
})

// ParseStays reads what UpgradesScript has written of them. Of those that are kept there is
// a newer version, which would need something else to go. Of those that are gone no mirror
// has the version any more, and To is the first of those that it has.
func ParseStays(kind Kind, out []byte) (kept, gone []Change) {
	upgrades := ParseUpgrades(kind, out)
	var name, installed, candidate, at string
	versions := map[string]bool{} // those of the table, and whether a mirror has them
	var order []string
	end := func() {
		c := Change{Kind: "deb", Image: kind, Name: name, From: installed, To: candidate}
		is := func(u Change) bool { return u.Name == c.Name }
		switch {
		case name == "" || !versions[candidate] && candidate != installed || installed == "(none)" || slices.ContainsFunc(upgrades, is):
		case candidate != installed:
			kept = append(kept, c)
		case !versions[installed] && len(order) > 0:
			c.To = order[0]
			gone = append(gone, c)
		}
		name, installed, candidate, at, order = "", "", "", "", nil
		clear(versions)
	}
	for line := range strings.Lines(string(out)) {
		m := policyForm().FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case m == nil:
		case m[1] != "":
			end()
			name = m[1]
		case m[2] != "":
			installed = m[2]
		case m[3] != "":
			candidate = m[3]
		case m[4] != "":
			at = m[4]
		case m[5] != DpkgPath && !versions[at]:
			versions[at] = true
			order = append(order, at)
		}
	}
	end()
	return kept, gone
}
