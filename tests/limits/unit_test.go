//go:build vm

package limits

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// systemd starts a gate by the quadlet that "gate unit" has written, and again when it
// dies. What comes of that is read back by each session, which has a port of its own; and
// nothing is left when it is removed.
func TestGateUnitOfSystemd(t *testing.T) {
	dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "p")
	if err != nil {
		t.Fatal(err)
	}
	b := newBoxAt(dir, "podman")
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(w.home, ".config")) // where systemd looks
	systemctl := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("systemctl", append([]string{"--user"}, args...)...).CombinedOutput(); err != nil {
			log, _ := exec.Command("journalctl", "--user", "--no-pager", "-n", "50").CombinedOutput()
			t.Fatalf("systemctl %v: %v: %s\n%s", args, err, out, log)
		}
	}
	state := func(want string) {
		t.Helper()
		is := regexp.MustCompile(`(?m)^unit-test +` + want + ` `)
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
			r := b.verb(t, "gate", "ls")
			if is.MatchString(r.Out) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the gate is not %s: %s", want, r)
			}
		}
	}
	// The gate has answered from inside with the session's own nonce before this runs.
	session := func(code int) result {
		t.Helper()
		r := b.wait(b.bare, []string{"--runtime", "podman", "--ephemeral-home", "--gate", "unit-test", "--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://no.test/"})
		if r.Code != code || code == 0 && r.Out != "403" {
			t.Errorf("a session: %s", r)
		}
		return r
	}
	r := b.verb(t, "gate", "unit", "unit-test", "--allow", "ok.test")
	file, _, _ := strings.Cut(r.Out, "\n")
	systemctl("daemon-reload")
	systemctl("start", "aisb-gate-unit-test")
	state("up")
	session(0)
	if out, err := exec.Command("podman", "kill", "aisb-gate-unit-test").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again := func() bool { // systemd waits some seconds before
		out, err := exec.Command("systemctl", "--user", "show", "-p", "NRestarts", "--value", "aisb-gate-unit-test").Output()
		return err == nil && strings.TrimSpace(string(out)) == "1"
	}
	for end := time.Now().Add(2 * time.Minute); !again(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("systemd did not start it again")
		}
	}
	state("up")
	session(0)
	systemctl("stop", "aisb-gate-unit-test")
	if r := session(125); !strings.Contains(r.Err, "systemctl --user start aisb-gate-unit-test") {
		t.Errorf("%s", r)
	}
	b.verb(t, "gate", "unit", "unit-test", "--remove")
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit stays: %v", err)
	}
	systemctl("daemon-reload")
}
