//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// A named gate stays, serves sessions with its own list, and goes.
func TestNamedGate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name := b.token
	t.Cleanup(func() { b.run("gate", "down", name) })
	r := b.ok("gate", "up", name, "--allow", b.host("ok.test"))
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(r.Out)
	if addr == "" || !strings.HasPrefix(r.Out, name+" ") {
		t.Fatalf("%s", r)
	}
	if r := b.run("gate", "up", name); r.Code != 1 || !strings.Contains(r.Err, "is up already") {
		t.Errorf("twice: %s", r)
	}
	if r := b.ok("gate", "ls"); !regexp.MustCompile(`(?m)^` + name + ` +up +` + addr + ` +` + regexp.QuoteMeta(b.host("ok.test")) + `$`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	for range 2 { // it outlives the session
		r = b.ok("--gate", name, "--", "sh", "-c", `echo "via ${http_proxy##*:}"; `+curl+"https://"+b.host("ok.test")+"/; "+curl+"https://"+b.host("no.test")+"/; true")
		if !strings.Contains(r.Out, "via "+addr[len("127.0.0.1:"):]+"\n") || !strings.Contains(r.Out, w.net.Marker) || !strings.Contains(r.Out, "\n000 403\n") {
			t.Errorf("%s", r)
		}
	}
	unseen(t, b.host("no.test"))
	// Its list was fixed when it was made.
	if r := b.run("--gate", name, "--allow", b.host("no.test"), "--", "true"); r.Code != 125 || !strings.Contains(r.Err, "fixed when it was made") {
		t.Errorf("%s", r)
	}
	if r := b.ok("--gate", name, "--print-policy", "--", "true"); !strings.Contains(r.Out, b.host("ok.test")) {
		t.Errorf("the policy does not show the gate's list: %s", r)
	}
	// "clean" leaves it alone.
	b.ok("clean")
	if r := b.ok("gate", "ls"); !strings.Contains(r.Out, name+" ") {
		t.Errorf("clean took the gate: %s", r)
	}
	b.ok("gate", "down", name)
	if r := b.run("--gate", name, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, "no such gate") {
		t.Errorf("%s", r)
	}
	if r := b.ok("gate", "ls"); strings.Contains(r.Out, name) {
		t.Errorf("%s", r)
	}
	if r := b.run("gate", "down", name); r.Code != 1 {
		t.Errorf("%s", r)
	}
	if out := output(t, "podman", "ps", "-a", "--format", "{{.Names}}"); strings.Contains(out, name) {
		t.Errorf("left behind: %s", out)
	}
}

// A gate that has died is said to be down, its sessions are refused and not
// left without one, and it can be made again.
func TestNamedGateDies(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name := b.token
	t.Cleanup(func() { b.run("gate", "down", name) })
	b.ok("gate", "up", name, "--allow", b.host("ok.test"))
	output(t, "podman", "kill", "aisb-gate-"+name)
	if r := b.ok("gate", "ls"); !regexp.MustCompile(`(?m)^` + name + ` +down `).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	if r := b.run("--gate", name, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, name) {
		t.Errorf("%s", r)
	}
	b.run("gate", "down", name)
	b.ok("gate", "up", name, "--allow", b.host("ok.test"))
	b.ok("--gate", name, "--", "curl", "-sS", "http://"+b.host("ok.test")+"/")
}

// Sessions side by side in one project do not meet.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	var all []*live
	for range 4 {
		all = append(all, b.start(t, "--ephemeral-home", "--allow", b.host("ok.test"), "--", "sh", "-c", "curl -sS https://"+b.host("ok.test")+"/ && ls /proc | grep -c '^[0-9]' && cat"))
	}
	for _, l := range all {
		l.in.Close()
		if r := l.wait(runTime); r.Code != 0 || !strings.Contains(r.Out, w.net.Marker) {
			t.Errorf("%s", r)
		}
	}
}
