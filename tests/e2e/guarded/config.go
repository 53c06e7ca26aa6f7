// The project's own configuration, as a run meets it.

package guarded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Config: a project's file counts when it is trusted, and not a setting more. It
// can't be written from inside, and what changes it on the host stops the next run.
// host is a far server that answers 200 where it is allowed, program ai-sandbox.
func (s Suite) Config(t *testing.T, host, program string) {
	b := s.New(t)
	const file = ".ai-sandbox/config"
	fetch := []string{"--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://" + host + "/"}
	stopped := func(b Box, want string, args ...string) {
		t.Helper()
		code, out, errOut := b.Run(append(args, fetch...)...)
		if code != 125 || !strings.Contains(errOut, want) || !strings.Contains(errOut, "ai-sandbox trust") || out != "" {
			t.Errorf("exit %d, %q, %s", code, out, errOut)
		}
	}
	status := func(when, want string, args ...string) {
		t.Helper()
		if code, out, errOut := b.Run(append(args, fetch...)...); strings.TrimSpace(out) != want {
			t.Errorf("%s: exit %d, %q, %s", when, code, out, errOut)
		}
	}
	trusted := "allow = " + host + "\n"
	b.put(t, file, trusted)
	stopped(b, "+ "+strings.TrimSpace(trusted)+"  # widens")
	stopped(b, "is not trusted", "up", ".")
	status("without the file", "403", "--ignore-project-config")
	b.ok(t, "trust", "--yes")
	status("trusted", "200")

	// From inside, by every way that leads to the file.
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProgram(filepath.Join(b.Dir, "ai-sandbox"), data); err != nil {
		t.Fatal(err)
	}
	const more = "allow = more.no.test"
	out, errOut := b.ok(t, "--", "sh", "-c", `
		echo '`+more+`' >>.ai-sandbox/config
		rm -f .ai-sandbox/config; mv .ai-sandbox .old && mkdir .ai-sandbox
		echo '`+more+`' >>.ai-sandbox/config
		mkdir -p config state && echo '`+more+`' >config/config
		echo XDG_CONFIG_HOME=$PWD/config >.env
		mkdir -p other/.ai-sandbox && echo '`+more+`' >other/.ai-sandbox/config
		./ai-sandbox trust --yes other && ./ai-sandbox trust --yes; echo trusts: $?`)
	if data, err := os.ReadFile(filepath.Join(b.Dir, file)); err != nil || string(data) != trusted || !strings.Contains(errOut, "Read-only") {
		t.Errorf("written from inside: %q (%v): %s", data, err, errOut)
	}
	status("as trusted", "200")
	b.put(t, file, trusted+more+"\n")
	stopped(b, "+ "+more+"  # widens")

	// Trust that is said inside is not the host's.
	if !strings.Contains(out, "trusts: 0") {
		t.Errorf("inside: %s%s", out, errOut)
	}
	stopped(b.In(filepath.Join(b.Dir, "other")), "+ "+more+"  # widens")

	// It narrows without a word, also what was trusted.
	b.put(t, file, "net = none\n")
	if code, out, errOut := b.Run(fetch...); code == 0 || code == 125 {
		t.Errorf("narrowed: exit %d, %q, %s", code, out, errOut)
	}
	b.ok(t, "trust", "--yes")
	b.put(t, file, "")
	stopped(b, "- net = none  # widens")
}
