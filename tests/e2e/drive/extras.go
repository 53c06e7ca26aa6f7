// What a user shows an agent of his own, over several runs in one home.

package drive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CheckExtras shows pi, which runs what follows it, a skill, a prompt and a directory of
// prompts, by turns and at once. home is the user's, and gets logins.
func (b *Box) CheckExtras(t *testing.T, home string, pi ...string) {
	t.Helper()
	dir := t.TempDir()
	for p, text := range map[string]string{
		filepath.Join(dir, "all/p.md"): "ALL", filepath.Join(dir, "one.md"): "ONE", filepath.Join(dir, "sk/SKILL.md"): "SK", filepath.Join(dir, "other/sk/SKILL.md"): "OTHER", filepath.Join(dir, "x.own/SKILL.md"): "x",
		filepath.Join(home, ".claude/.credentials.json"): "LOGIN", filepath.Join(home, ".claude/CLAUDE.md"): "x", filepath.Join(home, ".pi/agent/auth.json"): "{}", filepath.Join(home, ".pi/agent/y.md"): "Y",
	} {
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // the home may be other tests' too
		for _, p := range []string{".claude/.credentials.json", ".claude/CLAUDE.md", ".claude"} {
			_ = os.Remove(filepath.Join(home, p))
		}
	})
	flags := func(extras []string) (out []string) {
		for _, e := range extras {
			if !filepath.IsAbs(e) {
				e = filepath.Join(dir, e)
			}
			out = append(out, "--harness-extra", e)
		}
		return out
	}
	b.OK(append(pi, "sh", "-c", "cd ~/.pi/agent && mkdir -p prompts && echo OWN >prompts/own.md")...)
	// A link of the run before is gone, and what was in its place is back.
	for _, tc := range []struct {
		extras []string
		want   string
	}{
		{[]string{"all", "sk"}, "prompts/p.md ALL skills/sk/SKILL.md SK "},
		{[]string{"one.md", "other/sk"}, "prompts/one.md ONE prompts/own.md OWN skills/sk/SKILL.md OTHER "},
		{[]string{filepath.Join(home, ".pi/agent/y.md")}, "prompts/own.md OWN prompts/y.md Y "},
		{nil, "prompts/own.md OWN "},
	} {
		r := b.OK(append(flags(tc.extras), append(pi, "sh", "-c", "cd ~/.pi/agent && for f in prompts/* skills/*/*; do test ! -e $f || echo $f $(cat $f); done; find ~ -xtype l; ls -d prompts.own 2>/dev/null; true")...)...)
		if got := strings.ReplaceAll(r.Out, "\n", " "); strings.TrimSuffix(got, "prompts.own ") != tc.want || strings.HasSuffix(got, "prompts.own ") != (len(tc.extras) > 0 && tc.extras[0] == "all") {
			t.Errorf("%q: %q, want %q: %s", tc.extras, got, tc.want, r.Err)
		}
	}
	for _, tc := range []struct {
		extras []string
		want   string
	}{
		{[]string{"all", "one.md"}, "something else of this run is at"},
		{[]string{"one.md", "all"}, "something else of this run is at"},
		{[]string{"sk", "other/sk"}, "something else of this run is at"},
		{[]string{"x.own"}, ".own ends the name"},
		{[]string{filepath.Join(home, ".claude")}, "claude's login is in it"},
		{[]string{filepath.Join(home, ".pi/agent")}, "pi's login is in it"},
	} {
		if r := b.Run(append(flags(tc.extras), append(pi, "echo", "RAN")...)...); r.Code != 125 || !strings.Contains(r.Err, tc.want) || strings.Contains(r.Out, "RAN") {
			t.Errorf("%q: %s", tc.extras, r)
		}
	}
}
