//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A project's file counts when it is trusted, and not a setting more: what is
// written from inside stops the next run. TestProjectConfig of tests/jail is the
// same on bubblewrap.
func TestProjectConfig(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	file := filepath.Join(b.dir, ".ai-sandbox", "config")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fetch := []string{"--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://" + b.host("ok.test") + "/"}
	stopped := func(r result, want string) {
		t.Helper()
		if r.Code != 125 || !strings.Contains(r.Err, want) || !strings.Contains(r.Err, "ai-sandbox trust") || r.Out != "" {
			t.Errorf("%s", r)
		}
	}
	trusted := "allow = " + b.host("ok.test") + "\n"
	write(trusted)
	stopped(b.run(fetch...), "+ "+strings.TrimSpace(trusted)+"  # widens")
	stopped(b.run(append([]string{"up", "."}, fetch...)...), "is not trusted")
	if r := b.run(append([]string{"--ignore-project-config"}, fetch...)...); strings.TrimSpace(r.Out) != "403" {
		t.Errorf("without the file: %s", r)
	}
	b.ok("trust", "--yes")
	if r := b.ok(fetch...); strings.TrimSpace(r.Out) != "200" {
		t.Errorf("trusted: %s", r)
	}

	// From inside, by every way that leads to the file.
	program, err := os.ReadFile(b.bin)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "ai-sandbox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	const more = "allow = more.no.test"
	inside := b.ok("--", "sh", "-c", `
		echo '`+more+`' >>.ai-sandbox/config
		rm -f .ai-sandbox/config; mv .ai-sandbox .old && mkdir .ai-sandbox
		echo '`+more+`' >>.ai-sandbox/config
		mkdir -p config state && echo '`+more+`' >config/config
		echo XDG_CONFIG_HOME=$PWD/config >.env
		mkdir -p other/.ai-sandbox && echo '`+more+`' >other/.ai-sandbox/config
		./ai-sandbox trust --yes other && ./ai-sandbox trust --yes; echo trusts: $?`)
	data, err := os.ReadFile(file)
	if err != nil || string(data) != trusted {
		t.Logf("the file could be written from inside: %q (%v)", data, err)
		stopped(b.run(fetch...), "+ "+more+"  # widens")
		write(trusted)
	} else if !strings.Contains(inside.Err, "Read-only") {
		t.Errorf("it was not written, and nothing says why: %s", inside)
	}
	if r := b.ok(fetch...); strings.TrimSpace(r.Out) != "200" {
		t.Errorf("as trusted: %s", r)
	}
	write(trusted + more + "\n")
	stopped(b.run(fetch...), "+ "+more+"  # widens")

	// Trust that is said inside is not the host's.
	if !strings.Contains(inside.Out, "trusts: 0") {
		t.Errorf("inside: %s", inside)
	}
	other := *b
	other.dir = filepath.Join(b.dir, "other")
	stopped(other.run(fetch...), "+ "+more+"  # widens")

	// It narrows without a word, also what was trusted.
	write("net = none\n")
	if r := b.run(fetch...); r.Code == 0 || r.Code == 125 {
		t.Errorf("narrowed: %s", r)
	}
	b.ok("trust", "--yes")
	write("")
	stopped(b.run(fetch...), "- net = none  # widens")
}
