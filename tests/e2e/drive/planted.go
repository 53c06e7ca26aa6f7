// What a sandbox can leave in its home for its next start.

package drive

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var mendedBy = regexp.MustCompile(`mend it with: ai-sandbox (.*?)(?:, or where.*)?\n`)

// CheckPlanted leaves in an agent's directory what a sandbox can leave there, and does
// what the next start says that mends it. pi runs what follows it, and has a
// models.json like want.
func (b *Box) CheckPlanted(t *testing.T, want string, pi ...string) {
	t.Helper()
	plain := func(s string) string { return strings.Join(strings.Fields(s), "") }
	script := func(s string) Result { return b.OK(append(pi, "sh", "-c", s)...) }
	for _, tc := range []struct {
		plant string
		runs  int // of what is printed, until all is as it was
	}{
		{"mkdir models.json.new settings.json.new .aisb-models.json.wrote.new", 0},
		{"rm models.json; mkfifo models.json", 1},
		{"rm models.json .aisb-models.json.wrote; mkdir -p models.json/x/y .aisb-models.json.wrote/x; chmod 000 models.json/x models.json", 2},
		{"rm models.json; chmod 555 .", 1},
		{"rm models.json; chmod 000 ..", 1},
		{"mkdir -p ~/.aisb-links/x", 1},
	} {
		script("cd ~/.pi/agent && { " + tc.plant + "; }")
		for n := 0; ; n++ {
			r := script("test ! -f ~/.pi/agent/models.json || cat ~/.pi/agent/models.json; true")
			m := mendedBy.FindStringSubmatch(r.Err)
			if m == nil {
				if n != tc.runs || plain(r.Out) != plain(want) || strings.Contains(r.Err, "in this sandbox") {
					t.Errorf("%s: after %d of %d times: %s", tc.plant, n, tc.runs, r)
				}
				break
			}
			if n == tc.runs {
				t.Errorf("%s: it does not help: %s", tc.plant, r)
				break
			}
			// A shell takes the line apart, as the user's does.
			args, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+m[1]).Output()
			if err != nil {
				t.Fatalf("%s: %v: %s", tc.plant, err, m[1])
			}
			b.OK(append([]string{"--net", "none"}, strings.Split(strings.TrimSuffix(string(args), "\n"), "\n")...)...)
		}
	}
}
