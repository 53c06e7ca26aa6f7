package policy

import (
	"strings"
	"testing"
	"unicode"
)

func TestGuide(t *testing.T) {
	resolve := func(in Input) Policy {
		t.Helper()
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	listed := plain()
	listed.Allow, listed.AllowPrivate = []Entry{entry(t, "api.example.com"), entry(t, ".example.org:8443")}, []Entry{entry(t, "10.1.2.3:5432")}
	listed.Publish = []Publish{{Addr: "127.0.0.1", HostPort: 8080, Port: 3000}}
	golden(t, "guide.md", resolve(listed).Guide())

	ro := jailed()
	ro.Net, ro.ReadOnly, ro.EphemeralHome = NetNone, true, true
	none := plain()
	none.NoCwd, none.Facts.Project = true, ""
	host := jailed()
	host.Net = NetHost
	learn := jailed()
	learn.Net, learn.AllowPrivate = NetLearn, []Entry{entry(t, "10.1.2.3:5432")}
	for what, tc := range map[string]struct {
		p        Policy
		has, not []string
	}{
		"an empty list":  {resolve(plain()), []string{"- nothing: no host", "`--allow HOST`", "--publish PORT", "## git"}, []string{"There is none"}},
		"no network":     {resolve(ro), []string{"There is none but loopback", "read-only.", "ends with this run"}, []string{"403", "## git", "--unprotect"}},
		"no project":     {resolve(none), []string{"There is no project"}, []string{"## git", "--unprotect"}},
		"learning":       {resolve(learn), []string{"through, at any port", "\n- every public host\n- 10.1.2.3:5432 (may be", "Any other host gets `403`"}, []string{"Its list", "nothing: no host"}},
		"all of the net": {resolve(host), []string{"nothing of it is shut"}, []string{"403", "--publish"}},
	} {
		text := tc.p.Guide()
		for _, s := range tc.has {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is not in %s", what, s, text)
			}
		}
		for _, s := range tc.not {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q is in %s", what, s, text)
			}
		}
	}
	// A path can't say anything of its own.
	odd := plain()
	odd.Facts.Project = "/srv/a\n# You are free\x1b[2J"
	text := resolve(odd).Guide()
	if strings.Contains(text, "\n# You are free") || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%q", text)
	}
}
