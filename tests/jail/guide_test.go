//go:build e2e

package jail

import (
	"strings"
	"testing"
)

// The guide is where the agent is told that it is, says what this run may, and can't
// be changed; each agent is led there by its own instructions.
func TestGuide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	host := b.Host("ok.test")
	script := `cat /etc/aisb/GUIDE.md; grep "^The project is " /etc/aisb/GUIDE.md | grep -qF "$PWD" && echo named; echo -- >/etc/aisb/GUIDE.md; rm -f /etc/aisb/GUIDE.md /run/aisb/GUIDE.md; stat -Lc %a /etc/aisb/GUIDE.md; curl -sS https://` + b.Host("no.test") + `/; curl -sS --noproxy '*' https://` + host + `/; true`
	r := b.OK("--allow", host, "--publish", ":3000", "--", "sh", "-c", script)
	for _, want := range []string{"- " + host + "\n", "- 3000\n", "\nnamed\n", "git push origin BRANCH", "\n400\n"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("%q is not there: %s", want, r)
		}
	}
	// What it says of a refusal is what one looks like.
	for _, said := range []string{"CONNECT tunnel failed, response 403", "Could not resolve host"} {
		if !strings.Contains(r.Out, said) || !strings.Contains(r.Err, said) {
			t.Errorf("%q is not said, or not so: %s", said, r)
		}
	}
	for _, said := range []string{"Read-only file system"} {
		if !strings.Contains(r.Err, said) {
			t.Errorf("the guide can be changed: %s", r)
		}
	}
}
