//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/policy"
)

// A named gate stays, serves sessions with its own list, and goes.
func TestNamedGate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name := b.Token
	t.Cleanup(func() { b.Run("gate", "down", name) })
	r := b.OK("gate", "up", name, "--allow", b.Host("ok.test"))
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(r.Out)
	if addr == "" || !strings.HasPrefix(r.Out, name+" ") {
		t.Fatalf("%s", r)
	}
	if r := b.Run("gate", "up", name); r.Code != 1 || !strings.Contains(r.Err, "is up already") {
		t.Errorf("twice: %s", r)
	}
	if r := b.OK("gate", "ls"); !regexp.MustCompile(`(?m)^` + name + ` +up +` + addr + ` +` + regexp.QuoteMeta(b.Host("ok.test")) + `$`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	for range 2 { // it outlives the session
		r = b.OK("--gate", name, "--", "sh", "-c", `echo "via ${http_proxy##*:}"; `+curl+"https://"+b.Host("ok.test")+"/; "+curl+"https://"+b.Host("no.test")+"/; true")
		if strings.Contains(r.Out, "via "+addr[len("127.0.0.1:"):]+"\n") { // each session has a port of its own
			t.Errorf("%s", r)
		}
		if !strings.Contains(r.Out, w.net.Marker) || !strings.Contains(r.Out, "\n000 403\n") {
			t.Errorf("%s", r)
		}
		if !strings.Contains(r.Err, "refused by gate "+name+": "+b.Host("no.test")+", port 443, once; to let it through, give ai-sandbox gate reload "+name+", beside the rest of its list, --allow "+b.Host("no.test")) {
			t.Errorf("what the gate refused is not named: %s", r)
		}
	}
	unseen(t, b.Host("no.test"))
	// Its list is its own.
	if r := b.Run("--gate", name, "--allow", b.Host("no.test"), "--", "true"); r.Code != 125 || !strings.Contains(r.Err, "is its own") {
		t.Errorf("%s", r)
	}
	if r := b.OK("--gate", name, "--print-policy", "--", "true"); !strings.Contains(r.Out, b.Host("ok.test")) {
		t.Errorf("the policy does not show the gate's list: %s", r)
	}
	// "clean" leaves it alone.
	b.OK("clean")
	if r := b.OK("gate", "ls"); !strings.Contains(r.Out, name+" ") {
		t.Errorf("clean took the gate: %s", r)
	}
	b.OK("gate", "down", name)
	if r := b.Run("--gate", name, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, "no such gate") {
		t.Errorf("%s", r)
	}
	if r := b.OK("gate", "ls"); strings.Contains(r.Out, name) {
		t.Errorf("%s", r)
	}
	if r := b.Run("gate", "down", name); r.Code != 1 {
		t.Errorf("%s", r)
	}
	if out := drive.Output(t, "podman", "ps", "-a", "--format", "{{.Names}}"); strings.Contains(out, name) {
		t.Errorf("left behind: %s", out)
	}
}

// A gate that has died is said to be down, its sessions are refused and not
// left without one, and it can be made again. Not parallel: another test's clean removes a
// gate without a container.
func TestNamedGateDies(t *testing.T) {
	b := newBox(t)
	name := b.Token
	t.Cleanup(func() { b.Run("gate", "down", name) })
	b.OK("gate", "up", name, "--ttl", "none", "--allow", b.Host("ok.test")) // one with a TTL goes with anybody's next run
	drive.Output(t, "podman", "kill", "aisb-gate-"+name)
	down := regexp.MustCompile(`(?m)^` + name + ` +down `)
	drive.Eventually(t, drive.RunTime, "the gate is said to be down", func() bool { return down.MatchString(b.OK("gate", "ls").Out) })
	if r := b.Run("--gate", name, "--", "true"); r.Code != 125 || !strings.Contains(r.Err, name) {
		t.Errorf("%s", r)
	}
	b.Run("gate", "down", name)
	b.OK("gate", "up", name, "--allow", b.Host("ok.test"))
	b.OK("--gate", name, "--", "curl", "-sS", "http://"+b.Host("ok.test")+"/")
}

// Sessions side by side in one project do not meet: none sees another's
// processes, home, loopback or gate, and each has its own list.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const sessions = 4
	var all []*drive.Live
	for i := range sessions {
		// Each is up, and all are, before any looks at the others.
		script := fmt.Sprintf(`echo mine-%[1]d >$HOME/mine-%[1]d; echo mine-%[1]d >/tmp/mine-%[1]d; echo mine-%[1]d >/dev/shm/mine-%[1]d
python3 -m http.server %[2]d --bind 127.0.0.1 --directory $HOME >/dev/null 2>&1 &
exec -a marker-%[1]d sleep 600 &
until ./probe tcp 127.0.0.1:%[2]d | grep -q ' open '; do sleep 0.1; done
echo "${http_proxy##*:}" >port-%[1]d; read go
cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -o '^marker-[0-9]' | sort -u
ls $HOME /tmp /dev/shm | grep '^mine-' | sort -u
for i in 0 1 2 3; do ./probe tcp 127.0.0.1:$((8200 + i)) | grep ' open ' | cut -d' ' -f2; done
for p in 0 1 2 3; do ./probe tcp %[3]s:$(cat port-$p) | grep -q ' open ' && echo "gate-$p"; done
for i in 0 1 2 3; do curl -sS -o /dev/null -w "host-$i %%{http_code}\n" http://h$i.%[4]s/; done
read end`, i, 8200+i, policy.GateAddr, b.Host("ok.test"))
		all = append(all, b.Start(t, "--ephemeral-home", "--allow", fmt.Sprintf("h%d.%s", i, b.Host("ok.test")), "--", "bash", "-c", script))
	}
	for i := range sessions {
		b.File(t, fmt.Sprintf("port-%d", i))
	}
	for _, l := range all {
		if _, err := io.WriteString(l.In, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		// They stay until all have looked.
		last := fmt.Sprintf("h%d.%s", i, b.Host("ok.test"))
		drive.Eventually(t, time.Minute, "the request of session "+strconv.Itoa(i), func() bool { return w.net.Reached(last) })
	}
	for i, l := range all {
		want := fmt.Sprintf("marker-%[1]d\nmine-%[1]d\n127.0.0.1:%[2]d\ngate-%[1]d\n", i, 8200+i)
		for j := range sessions {
			want += fmt.Sprintf("host-%d %s\n", j, map[bool]string{true: "200", false: "403"}[i == j])
		}
		if _, err := io.WriteString(l.In, "end\n"); err != nil {
			t.Error(err)
		}
		l.In.Close()
		if r := l.Wait(drive.RunTime); r.Code != 0 || r.Out != want {
			t.Errorf("session %d: want only its own:\n%s\n%s", i, want, r)
		}
	}
}
