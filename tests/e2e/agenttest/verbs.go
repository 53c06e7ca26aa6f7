//go:build e2e

// The commands of the adapters, in the real programs.

package agenttest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// prompted are commands that take a prompt as the program itself does, so that the flags
// stand before them, too.
var prompted = map[string][]string{"codex": {"exec", "e", "review", "resume", "fork"}}

// verbs looks an adapter's commands up in the real program. Each one in its help is an
// adapter's, or takes a prompt; and each of an adapter's is in its help, or is one all the
// same: then it has a help of its own.
func verbs(t *testing.T, name, help string, ask func(args ...string) string) {
	t.Helper()
	text, err := os.ReadFile("/src/cmd/ai-sandbox/internal/harness/testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^verbs: (.+)$`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("%s has no verbs", name)
	}
	known, listed := strings.Fields(m[1]), commands(name, help)
	for _, v := range listed {
		if !slices.Contains(known, v) && !slices.Contains(prompted[name], v) {
			t.Errorf("%s has a command %s: %q", name, v, known)
		}
	}
	for _, v := range known {
		if !slices.Contains(listed, v) && ask(v, "--help") == help {
			t.Errorf("%s has no command %s: %q", name, v, listed)
		}
	}
	if len(listed) < 5 {
		t.Errorf("%s has only %q: %s", name, listed, help)
	}
}

var (
	command = regexp.MustCompile(`^ {2}([a-z][a-z|-]*)( |$)`)
	aliases = regexp.MustCompile(`\[aliases: ([a-z, -]+)\]`)
)

// commands are those that a help has below "Commands:", by all their names.
func commands(name, help string) []string {
	_, below, _ := strings.Cut(help, "Commands:\n")
	below, _, _ = strings.Cut(below, "\n\n")
	var out []string
	for line := range strings.Lines(below) {
		line = strings.Replace(strings.TrimRight(line, "\n"), "  "+name+" ", "  ", 1)
		if m := command.FindStringSubmatch(line); m != nil {
			out = append(out, strings.Split(m[1], "|")...)
		}
	}
	for _, m := range aliases.FindAllStringSubmatch(below, -1) {
		out = append(out, strings.Split(m[1], ", ")...)
	}
	return out
}
