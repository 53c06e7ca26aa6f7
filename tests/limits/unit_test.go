//go:build vm

package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// systemd starts a gate by the quadlet that "gate unit" has written, and again when it
// dies, but not where its port is taken. What comes of that is read back by each session,
// which has a port of its own and goes through the gate's upstream proxy; and nothing is
// left when it is removed. A session's squids go on when the clock is set.
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
	at := far(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) }))
	defer proxy.Close()
	// The gate has answered from inside with the session's own nonce before this runs.
	session := func(code int) result {
		t.Helper()
		r := b.wait(b.bare, []string{"--runtime", "podman", "--ephemeral-home", "--gate", "unit-test", "--", "curl", "-sS", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{http_code}", "http://no.test/", "http://ok.test/"})
		if r.Code != code || code == 0 && r.Out != "403202" {
			t.Errorf("a session: %s", r)
		}
		return r
	}
	r := b.verb(t, "gate", "unit", "unit-test", "--allow", "ok.test", "--allow-private", at, "--upstream-proxy", proxy.URL)
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
		return err == nil && strings.TrimSpace(string(out)) != "0"
	}
	for end := time.Now().Add(2 * time.Minute); !again(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("systemd did not start it again")
		}
	}
	state("up")
	squidClock(t, b, at)
	systemctl("stop", "aisb-gate-unit-test")
	takenPort(t, b, systemctl)
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

// takenPort has another process listen at the gate's port while systemd starts it: it fails
// once and says why, and starts when the port is free.
func takenPort(t *testing.T, b *box, systemctl func(...string)) {
	t.Helper()
	var list struct {
		Gates []struct {
			Name string
			Port int
		}
	}
	if err := json.Unmarshal([]byte(b.verb(t, "gate", "ls", "--json").Out), &list); err != nil {
		t.Fatal(err)
	}
	port := 0
	for _, g := range list.Gates {
		if g.Name == "unit-test" {
			port = g.Port
		}
	}
	if port == 0 {
		t.Fatal("it has no port")
	}
	var l net.Listener
	eventually(t, "its port is free", func() (ok bool) { // its pasta quits by itself
		var err error
		l, err = net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil
	})
	_ = exec.Command("systemctl", "--user", "start", "aisb-gate-unit-test").Run() // whichever comes first
	var shown string
	eventually(t, "the unit fails", func() bool {
		out, _ := exec.Command("systemctl", "--user", "show", "-p", "ActiveState,ExecMainStatus,NRestarts", "aisb-gate-unit-test").Output()
		shown = string(out)
		return strings.Contains(shown, "ActiveState=failed")
	})
	if !strings.Contains(shown, "ExecMainStatus=75\n") || !strings.Contains(shown, "NRestarts=0\n") {
		t.Errorf("with a port that is taken: %s", shown)
	}
	if r := b.wait(b.bare, []string{"--runtime", "podman", "--gate", "unit-test", "--", "true"}); r.Code != 125 || !strings.Contains(r.Err, fmt.Sprintf("port %d of 127.0.0.1, which is its own, has another process", port)) {
		t.Errorf("a session then: %s", r)
	}
	l.Close()
	systemctl("start", "aisb-gate-unit-test")
}

// squidClock sets the clock while a tunnel is open through squid. An hour without a byte
// does not end it, and neither does a clock that says so; more than a day does, which
// shows that squid goes by that clock. New ones open all the while, and no line of the log
// is lost.
func squidClock(t *testing.T, b *box, at string) {
	t.Helper()
	t.Cleanup(func() { setClock(t, 0) })
	asks := begin(t, b.bare(context.Background(), "--runtime", "podman", "--ephemeral-home", "--gate", "unit-test", "--report", b.dir+".json", "--", "bash", "-c", fmt.Sprintf(asking, at)))
	for n, step := range []struct {
		by   time.Duration
		want string
	}{
		{0, "old-0\nnew-0\n"},
		{61 * time.Minute, "old-1\nnew-1\n"},
		{27 * time.Hour, "new-2\n"},
		{-1000 * 24 * time.Hour, "new-3\n"},
	} {
		eventually(t, "a tunnel through squid", func() bool {
			_, err := os.Stat(filepath.Join(b.dir, "open"))
			if asks.ended() {
				t.Fatalf("it has ended: %s", asks.wait())
			}
			return err == nil
		})
		if step.by != 0 {
			setClock(t, step.by)
		}
		if err := os.WriteFile(filepath.Join(b.dir, fmt.Sprint("ask-", n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var text []byte
		eventually(t, fmt.Sprint("an answer to ", n), func() (ok bool) {
			var err error
			text, err = os.ReadFile(filepath.Join(b.dir, fmt.Sprint("answer-", n)))
			if asks.ended() && err != nil {
				t.Fatalf("it has ended: %s", asks.wait())
			}
			return err == nil
		})
		if string(text) != step.want {
			t.Errorf("with the clock set by %s: %q", step.by, text)
		}
	}
	if r := asks.wait(); r.Code != 7 {
		t.Errorf("%s", r)
	}
	setClock(t, 0)
	var rep struct {
		Used []struct {
			Host  string
			Count int
		}
	}
	text, err := os.ReadFile(b.dir + ".json")
	if err == nil {
		err = json.Unmarshal(text, &rep)
	}
	host, _, _ := net.SplitHostPort(at)
	if err != nil || len(rep.Used) != 1 || rep.Used[0].Host != host || rep.Used[0].Count != 5 {
		t.Errorf("%v: the report has %s", err, text)
	}
}
