// Values in what the verbs print.

package canary

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// Verbs has each verb that prints something of what was asked for, of a file or of a
// record print a value of BY_NAME, which is in the box's environment, and looks for it
// in what comes. args name that variable and others.
func (s *Set) Verbs(t *testing.T, b *drive.Box, value string, args []string) {
	t.Helper()
	env := b.Env
	defer func() { b.Env = env }()
	b.Env = append(env[:len(env):len(env)], "AISB_ENV=BY_NAME")
	see := func(want string, args ...string) {
		t.Helper()
		r := b.Run(args...)
		if in := s.In(r.Out + r.Err); len(in) > 0 || !strings.Contains(r.Out+r.Err, want) {
			t.Errorf("%q prints %q, or not %q: %s", args, in, want, r)
		}
	}
	put := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host := strings.NewReplacer("_", "-").Replace(strings.ToLower(value)) + ".test"
	see("no/[BY_NAME]", append([]string{"explain", "/no/" + value}, args...)...)
	b.Env = append(b.Env, "HOSTLIKE="+strings.TrimSuffix(host, ".test"))
	if r := b.Run(append([]string{"explain", "--env", "HOSTLIKE", host}, args...)...); strings.Contains(r.Out+r.Err, host) || !strings.Contains(r.Out, "[HOSTLIKE].test:443: refused") {
		t.Errorf("explain %s: %s", host, r)
	}

	before := b.OK(append(append([]string{"--print-policy=json"}, args...), "--", "true")...).Out
	own := t.TempDir()
	a, z := put(filepath.Join(own, "a"), before), put(filepath.Join(own, "z"), strings.ReplaceAll(before, `"of all"`, `"`+value+`"`))
	see("PUBLIC=[BY_NAME]", "policy", "diff", a, z)
	see("PUBLIC=[BY_NAME]", "policy", "diff", "--json", a, z)

	// The project's own file, which is not trusted, and stops a run, too.
	file := put(filepath.Join(b.Dir, ".ai-sandbox/config"), "mount = /no/"+value+"\n")
	see("mount = /no/[BY_NAME]", "trust")
	see("mount = /no/[BY_NAME]", "--", "true")
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	see("ID ", "ls")
	see(`"sessions"`, "ls", "--json")
}
