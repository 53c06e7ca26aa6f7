//go:build vm

package limits

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// typed types lines into a zsh that has ai-sandbox's completion, each with a tab at its
// end, and waits until the shell has made the line into what is to come of it.
const typed = `zmodload zsh/zpty || exit 1
zpty shell zsh -f -i || exit 1
zpty -w shell 'PS1="re""ady> "; fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -D'
zpty -r shell out '*ready> *' || exit 1
for line want in "$@"; do
	zpty -w -n shell "$line"$'\t'
	zpty -r shell out "*$want*" || exit 1
	zpty -w -n shell $'\C-u'
done
`

// zsh and fish themselves complete sessions, gates and profiles. (Of bash see TestBashCompletes.)
func TestShellsComplete(t *testing.T) {
	if os.Getuid() == 0 {
		return // it is told of a user's sessions
	}
	dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "shells")
	if err != nil {
		t.Fatal(err)
	}
	b := newBoxAt(dir, "local")
	var h struct {
		ID string `json:"sandbox_id"`
	}
	if err := json.Unmarshal([]byte(b.verb(t, "up", "--runtime", "local", "--net", "none", "--json", b.dir).Out), &h); err != nil || len(h.ID) < 8 {
		t.Fatalf("%+v, %v", h, err)
	}
	t.Cleanup(func() { b.verb(t, "down", h.ID) })
	images := newBoxAt(dir, "podman") // the local runtime has no named gates
	images.verb(t, "gate", "up", "shells-gate", "--allow", "a.test")
	t.Cleanup(func() { images.verb(t, "gate", "down", "shells-gate") })
	for path, text := range map[string]string{"_ai-sandbox": b.verb(t, "completion", "zsh").Out, "ai-sandbox.fish": b.verb(t, "completion", "fish").Out, "typed": typed} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := map[string]string{
		"ai-sandbox log " + h.ID[:6]:    h.ID,
		"ai-sandbox gate down shells":   "shells-gate",
		"ai-sandbox --profile bwrap-lo": "bwrap-local",
	}
	shell := func(args ...string) string {
		cmd := exec.Command("timeout", append([]string{"120"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(b.bare(t.Context()).Env, "PATH="+w.bin+":"+os.Getenv("PATH"), "TERM=dumb")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	zsh := []string{"zsh", "-f", "typed"}
	for line, want := range lines {
		zsh = append(zsh, line, want)
		found := false
		for got := range strings.Lines(shell("fish", "-c", `source ai-sandbox.fish; complete -C $argv[1]`, line)) {
			word, _, _ := strings.Cut(strings.TrimSpace(got), "\t")
			found = found || word == want
		}
		if !found {
			t.Errorf("fish does not make %q into %s", line, want)
		}
	}
	shell(zsh...)
}
