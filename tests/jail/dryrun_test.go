//go:build e2e

package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// The command line of bubblewrap that --dry-run prints is the one that runs: word
// for word, but for the numbers of descriptors and what a start assigns.
func TestDryRunIsExact(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"unix": {"--fs", "ro"},
		"none": {"--net", "none", "--ephemeral-home"},
		"host": {"--net", "host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			args := append(append([]string{}, flags...), "--", "sh", "-c", "echo on; cat")
			_, section, ok := strings.Cut(b.OK(append([]string{"--dry-run"}, args...)...).Out, "\n--- bwrap command line of the sandbox ---\n")
			if !ok {
				t.Fatal("--dry-run prints no command line")
			}
			section, _, _ = strings.Cut(section, "\n--- ")
			want := shellWords(t, section)
			l := b.Start(t, args...)
			defer func() {
				l.In.Close()
				l.Wait(30 * time.Second)
			}()
			var got []string
			drive.Eventually(t, 20*time.Second, "bubblewrap", func() bool {
				for _, p := range processesBelow(l.Cmd.Process.Pid) {
					data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
					// Not the jail that a start tries where another one of a machine was tried last.
					if words := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"); err == nil && filepath.Base(words[0]) == "bwrap" && strings.Contains(string(data), "aisb-entrypoint") {
						got = words
						return true
					}
				}
				return false
			})
			if len(got) != len(want) {
				t.Fatalf("%d words run, and %d are printed\n%q\n%q", len(got), len(want), got, want)
			}
			session := ""
			for i := range want {
				w := want[i]
				switch {
				case i == 0: // its path on this machine
					continue
				case strings.HasPrefix(w, "<fd of "):
					if n, err := strconv.Atoi(got[i]); err != nil || n < 3 {
						t.Errorf("%s is %q", w, got[i])
					}
					continue
				case w == "<entrypoint>":
					if !strings.Contains(got[i], "aisb-entrypoint") {
						t.Errorf("the entrypoint is %q", got[i])
					}
					continue
				case strings.Contains(w, "<session>"):
					before, after, _ := strings.Cut(w, "<session>")
					id := strings.TrimSuffix(strings.TrimPrefix(got[i], before), after)
					if session == "" {
						session = id
					}
					if !regexp.MustCompile(`^[0-9a-z]+$`).MatchString(session) {
						t.Fatalf("%s is %s", w, got[i])
					}
					w = strings.ReplaceAll(w, "<session>", session)
				}
				if got[i] != w {
					t.Errorf("word %d is %q, and printed as %q", i, got[i], w)
				}
			}
		})
	}
}

// shellWords takes a printed command line apart: a placeholder, a quoted or a
// plain word each.
func shellWords(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	word := regexp.MustCompile(`<fd of [^>]*>|"(?:[^"\\]|\\.)*"|\S+`)
	for _, w := range word.FindAllString(strings.ReplaceAll(text, "\\\n", "\n"), -1) {
		if w[0] == '"' {
			plain, err := strconv.Unquote(w)
			if err != nil {
				t.Fatalf("%s: %v", w, err)
			}
			w = plain
		}
		out = append(out, w)
	}
	return out
}
