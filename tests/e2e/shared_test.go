//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// sharedGate makes a named gate that lets everything below the box's host through.
func sharedGate(t *testing.T, b *drive.Box, args ...string) (name, host string) {
	t.Helper()
	name, host = b.Token, b.Host("ok.test")
	b.OK(append([]string{"gate", "up", name, "--allow", "." + host}, args...)...)
	t.Cleanup(func() { b.Run("gate", "down", name) })
	return name, host
}

// nonceOf asks the gate who it is, from inside.
const nonceOf = `curl -sS http://aisb-ready.invalid/ | grep -o 'nonce=[0-9a-f]*'` + "\n"

// Sessions that share a gate have a port, a list and a log each: none reaches another's
// port or learns its nonce, one is cut off alone, one's owner is killed, and the third
// one's tunnel stays open all the while.
func TestSharedGate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name, host := sharedGate(t, b)
	const sessions = 3
	var all []*drive.Live
	for i := range sessions {
		script := fmt.Sprintf(`own=s%[1]d.%[2]s
(openssl s_client -proxy ${https_proxy#http://} -connect $own:443 -servername $own -brief < <(sleep 1000) >/tmp/o 2>&1; touch /tmp/end) &
for i in $(seq 3000); do grep -q ESTABLISHED /tmp/o && break; sleep 0.02; done; grep -q ESTABLISHED /tmp/o || exit 3
echo $AISB_SESSION >id-%[1]d; echo "${http_proxy##*:}" >port-%[1]d
until [ -e go ]; do sleep 0.05; done
for p in 0 1 2; do ./probe tcp %[3]s:$(cat port-$p) | grep -q ' open ' && echo "gate-$p"; done
test %[1]d != 0 || for i in $(seq 1000); do [ -e /tmp/end ] && break; sleep 0.05; done
[ -e /tmp/end ] && echo CUT || echo KEPT
curl -sS -o /dev/null -w '%%{http_code}\n' http://$own/
%[4]s`, i, host, policy.GateAddr, nonceOf)
		all = append(all, b.Start(t, "--ephemeral-home", "--gate", name, "--", "bash", "-c", script))
	}
	ports := map[string]bool{}
	for i := range sessions {
		ports[b.File(t, fmt.Sprintf("port-%d", i))] = true
	}
	if len(ports) != sessions {
		t.Fatalf("ports %v", ports)
	}
	ids := map[string]string{} // by the host that the session has asked for
	list := b.OK("gate", "ls", "--json").Out
	for _, s := range b.Sessions(t) {
		if !strings.Contains(list, s.ID) {
			t.Errorf("gate ls does not name session %s: %s", s.ID, list)
		}
		for i := range sessions {
			own := fmt.Sprintf("s%d.%s", i, host)
			if strings.Contains(strings.Join(s.Command, " "), "own=s"+fmt.Sprint(i)+".") {
				ids[own] = s.ID
			}
		}
	}
	id := func(i int) string { return ids[fmt.Sprintf("s%d.%s", i, host)] }
	if r := b.OK("deny", id(0), "--all"); !strings.Contains(r.Out, "connections cut: 1\n") {
		t.Errorf("%s", r)
	}
	// Its port goes with it, and nobody else's.
	dead := "127.0.0.1:" + strings.TrimSpace(b.File(t, "port-1"))
	if err := all[1].Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-all[1].Done
	drive.Eventually(t, drive.RunTime, "the killed session's port is shut", func() bool { code, _ := drive.Fetched("http://" + dead + "/"); return code == 0 })
	if err := os.WriteFile(filepath.Join(b.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nonces := map[string]bool{}
	for i, want := range map[int]string{0: "gate-0\nCUT\n403\n", 2: "gate-2\nKEPT\n200\n"} {
		r := all[i].Wait(drive.RunTime)
		nonce := regexp.MustCompile(`nonce=[0-9a-f]{32}\n$`).FindString(r.Out)
		nonces[nonce] = true
		if r.Code != 0 || nonce == "" || strings.TrimSuffix(r.Out, nonce) != want {
			t.Errorf("session %d: want %s\n%s", i, want, r)
		}
		log := b.OK("log", id(i), "--json").Out
		if own := fmt.Sprintf(`"host":"s%d.`, i); !strings.Contains(log, own) || strings.Count(log, `"host":"s`) != strings.Count(log, own) {
			t.Errorf("the log of session %d: %s", i, log)
		}
	}
	if len(nonces) != 2 {
		t.Errorf("one nonce for two sessions: %v", nonces)
	}
	// What the killed one has left goes, and the gate stays.
	b.OK("clean")
	b.OK("--ephemeral-home", "--gate", name, "--", "curl", "-sS", "http://s9."+host+"/")
	if left, err := filepath.Glob(filepath.Join(w.home, "e2e", "state", "ai-sandbox", "gates", name, "*", "*", "s", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Sessions that begin at once on one gate have a port and a nonce each, or say why not.
func TestSharedGateManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name, host := sharedGate(t, b)
	n := 6
	if s := os.Getenv("AISB_TEST_SESSIONS"); s != "" { // more than all tests together have time for
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(err)
		}
	}
	results := make([]drive.Result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			results[i] = b.Run("--ephemeral-home", "--gate", name, "--", "bash", "-c", fmt.Sprintf("curl -sS -o /dev/null -w '%%{http_code}\n' http://s%d.%s/; echo ${http_proxy##*:}\n", i, host)+nonceOf)
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, r := range results {
		f := strings.Fields(r.Out)
		if r.Code != 0 || len(f) != 3 || f[0] != "200" || seen[f[1]] || seen[f[2]] {
			t.Errorf("session %d: %s", i, r)
			continue
		}
		seen[f[1]], seen[f[2]] = true, true
	}
}

// A gate that no session has used for its TTL ends by itself, and what it leaves goes with
// the next run. One in use stays.
func TestNamedGateEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name, host := sharedGate(t, b, "--ttl", "30s")
	b.OK("--ephemeral-home", "--gate", name, "--", "sh", "-c", "sleep 31; curl -sS -o /dev/null http://"+host+"/")
	container := func() bool {
		return strings.Contains(drive.Output(t, "podman", "ps", "-a", "--format", "{{.Names}}"), "aisb-gate-"+name+"\n")
	}
	drive.Eventually(t, drive.RunTime, "the gate's container is gone", func() bool { return !container() })
	// Another test's run may have taken it away already.
	ended := regexp.MustCompile(`it has ended: start it anew with ai-sandbox gate up ` + name + `|no such gate; start it with ai-sandbox gate up ` + name)
	if r := b.Run("--gate", name, "--", "true"); r.Code != 125 || !ended.MatchString(r.Err) {
		t.Errorf("%s", r)
	}
	b.OK("--net", "none", "--", "true") // or another's, which may be at it still
	drive.Eventually(t, time.Minute, "the gate is not listed", func() bool { return !strings.Contains(b.OK("gate", "ls").Out, name) })
	drive.Eventually(t, time.Minute, "its files are gone", func() bool {
		_, err := os.Stat(filepath.Join(w.home, "e2e", "state", "ai-sandbox", "gates", name))
		return errors.Is(err, os.ErrNotExist)
	})
	for _, ttl := range []string{"0", "1ms", "x"} {
		if r := b.Run("gate", "up", name, "--ttl", ttl); r.Code != 2 || !strings.Contains(r.Err, "--ttl: time ") {
			t.Errorf("%s: %s", ttl, r)
		}
	}
}

// A gate's container that is not what "gate up" made is not used, though it answers with
// the nonce and the hash that are recorded. Not parallel: for a moment the gate has no
// container, and another test's clean removes such.
func TestSharedGateIsReadBack(t *testing.T) {
	b := newBox(t)
	name, host := sharedGate(t, b, "--ttl", "none")
	b.OK("--ephemeral-home", "--gate", name, "--", "curl", "-sS", "-o", "/dev/null", "http://"+host+"/")
	container := "aisb-gate-" + name
	source := func(target string) string {
		return strings.TrimSpace(drive.Output(t, "podman", "inspect", "--format", `{{range .Mounts}}{{if eq .Destination "`+target+`"}}{{.Source}}{{end}}{{end}}`, container))
	}
	conf, log := source("/etc/aisb/gate"), source("/var/log/aisb")
	image := strings.TrimSpace(drive.Output(t, "podman", "inspect", "--format", "{{.Image}}", container))
	drive.Output(t, "podman", "rm", "-f", container)
	drive.Output(t, "podman", "run", "-d", "--name", container, "--label", "aisb.kind=gate", "--userns", "keep-id:uid=1000,gid=1000", "--user", "1000:1000",
		"--network", "host", "--entrypoint", "/usr/libexec/aisb-entrypoint", "-v", conf+":/etc/aisb/gate", "-v", log+":/var/log/aisb", image, "gate", "--detached", "/etc/aisb/gate/peek.conf", "/etc/aisb/gate/front.conf")
	drive.Eventually(t, drive.RunTime, "a session is refused for what the container is", func() bool {
		r := b.Run("--ephemeral-home", "--gate", name, "--", "true")
		if r.Code != 125 {
			t.Errorf("%s", r)
		}
		return strings.Contains(r.Err, "use gate "+name+": the container is not as asked for: ")
	})
}

// Another list for a gate counts for each session that shares it and for the gate itself,
// confirmed by the hash that each answers with, and cuts what it does not let through.
func TestGateReload(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name, host := b.Token, b.Host("ok.test")
	keep, gone, later := "keep."+host, "gone."+host, "later."+host
	b.OK("gate", "up", name, "--allow", keep, "--allow", gone)
	t.Cleanup(func() { b.Run("gate", "down", name) })
	const sessions = 2
	var all []*drive.Live
	for i := range sessions {
		script := fmt.Sprintf("cd /tmp\nfor h in %[2]s %[3]s; do (openssl s_client -proxy ${https_proxy#http://} -connect $h:443 -servername $h -brief < <(sleep 1000) >o-$h 2>&1; touch end-$h) &\n"+
			"for i in $(seq 3000); do grep -q ESTABLISHED o-$h && break; sleep 0.02; done; grep -q ESTABLISHED o-$h || exit 3; done\n"+
			"cd - >/dev/null; echo up >up-%[1]d; until [ -e go ]; do sleep 0.05; done\n"+
			"for i in $(seq 1000); do [ -e /tmp/end-%[3]s ] && break; sleep 0.05; done; [ -e /tmp/end-%[3]s ] && echo CUT; [ -e /tmp/end-%[2]s ] || echo KEPT\n"+
			"for h in %[2]s %[3]s %[4]s; do curl -sS -o /dev/null -w '%%{http_code}\n' http://$h/; done", i, keep, gone, later)
		all = append(all, b.Start(t, "--ephemeral-home", "--gate", name, "--", "bash", "-c", script))
	}
	var ids []string
	for i := range sessions {
		b.File(t, fmt.Sprintf("up-%d", i))
	}
	for _, s := range b.Sessions(t) {
		ids = append(ids, s.ID)
	}
	b.OK("allow", ids[0], "own."+host) // which the next list has not
	r := b.OK("gate", "reload", name, "--allow", keep, "--allow", later, "--json")
	var got struct {
		Hash           string
		Added, Removed []string
		Sessions       []string
		Cut            int
	}
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || fmt.Sprint(got.Added, got.Removed) != fmt.Sprint([]string{later}, []string{gone}) || len(got.Sessions) != sessions || got.Cut != sessions {
		t.Errorf("%v: %s", err, r)
	}
	for _, id := range ids {
		if r := b.OK("policy", "show", id); !strings.Contains(r.Out, got.Hash) || got.Hash == "" || strings.Contains(r.Out, "own.") {
			t.Errorf("session %s does not confirm it: %s", id, r)
		}
	}
	if r := b.OK("gate", "reload", name); !strings.Contains(r.Out, "the list is as it was\n") || !strings.Contains(r.Out, "it has answered with "+got.Hash) {
		t.Errorf("without flags it is not the same: %s", r)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if r := l.Wait(drive.RunTime); r.Code != 0 || r.Out != "CUT\nKEPT\n200\n403\n200\n" {
			t.Errorf("session %d: %s", i, r)
		}
	}
	// Who comes later has the list, and the gate's log the lines of all.
	if r := b.OK("--ephemeral-home", "--gate", name, "--", "sh", "-c", "for h in "+gone+" "+later+"; do curl -sS -o /dev/null -w '%{http_code} ' http://$h/; done"); r.Out != "403 200 " {
		t.Errorf("%s", r)
	}
	seen := map[string]int{}
	for line := range strings.Lines(b.OK("gate", "logs", name, "--denied", "--json").Out) {
		var e gate.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Gate != name || e.Host != gone {
			t.Errorf("%v: %s", err, line)
		}
		seen[e.Session]++
	}
	if len(seen) != sessions+1 || seen[ids[0]] != 1 {
		t.Errorf("the gate's log of %q: %v: %s", ids, seen, b.OK("gate", "logs", name, "--json").Out)
	}
	if r := b.OK("gate", "logs", name, "--session", ids[0]); strings.Count(r.Out, ids[0]) != strings.Count(r.Out, "\n") || strings.Count(r.Out, "\n") < 3 {
		t.Errorf("of one session: %s", r)
	}
	if r := b.Run("gate", "reload", "none-"+name); r.Code != 1 || !strings.Contains(r.Err, "no such gate") {
		t.Errorf("%s", r)
	}
}

// What podman makes of a unit's quadlet is the gate that sessions ask for, and one that is
// less is refused.
func TestGateUnit(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	name, host := b.Token, b.Host("ok.test")
	file := strings.TrimSpace(strings.SplitN(b.OK("gate", "unit", name, "--allow", host).Out, "\n", 2)[0])
	container := "aisb-gate-" + name
	t.Cleanup(func() {
		drive.Output(t, "podman", "rm", "-f", "--ignore", container)
		b.OK("gate", "unit", name, "--remove")
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the unit stays: %v", err)
		}
	})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// start runs what systemd would, but for what only systemd can give.
	start := func(text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		units := drive.Output(t, "env", "QUADLET_UNIT_DIRS="+dir, "/usr/libexec/podman/quadlet", "-user", "-dryrun")
		run := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(units)
		if run == nil {
			t.Fatalf("no unit comes of %s: %s", text, units)
		}
		line := strings.NewReplacer("--cgroups=split", "", "--sdnotify=conmon", "", "%t", t.TempDir(), "%N", "x").Replace(run[1])
		drive.Output(t, "sh", "-c", line)
	}
	refused := func(want string) {
		t.Helper()
		drive.Eventually(t, 20*time.Second, want, func() bool {
			r := b.Run("--ephemeral-home", "--gate", name, "--", "true")
			if r.Code != 125 {
				t.Errorf("%s", r)
			}
			return strings.Contains(r.Err, want)
		})
	}
	refused("start it anew with systemctl --user start aisb-gate-" + name)
	start(strings.Replace(string(text), "ReadOnly=true", "ReadOnly=false", 1))
	refused("the container is not as asked for: a writable root file system")
	drive.Output(t, "podman", "rm", "-f", container)
	drive.Eventually(t, 20*time.Second, "the wider one is gone", func() bool { return regexp.MustCompile(`(?m)^` + name + ` +down `).MatchString(b.OK("gate", "ls").Out) })
	start(string(text))
	drive.Eventually(t, 20*time.Second, "it is up", func() bool { return regexp.MustCompile(`(?m)^` + name + ` +up `).MatchString(b.OK("gate", "ls").Out) })
	r := b.OK("--ephemeral-home", "--gate", name, "--", "sh", "-c", "for h in "+host+" "+b.Host("no.test")+"; do curl -sS -o /dev/null -w '%{http_code} ' http://$h/; done")
	if r.Out != "200 403 " {
		t.Errorf("%s", r)
	}
	b.OK("gate", "reload", name, "--allow", b.Host("no.test"))
	for args, want := range map[string]string{"down": "is a unit: end it with systemctl --user stop ", "up": "is up already: end it with systemctl --user stop ", "unit": "there is a gate"} {
		if r := b.Run("gate", args, name); r.Code != 1 || !strings.Contains(r.Err, want) {
			t.Errorf("%s", r)
		}
	}
	b.OK("clean")
	if r := b.Run("gate", "unit", name, "--remove"); r.Code != 1 || !strings.Contains(r.Err, "stop it first") {
		t.Errorf("%s", r)
	}
}
