//go:build e2e

// Package logtest are the tests of what a gate's log says and of changing what a session
// may reach, which both runtimes have to pass with each engine.
package logtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/internet"
)

// A Box starts ai-sandbox in a project.
type Box struct {
	// Run is one ai-sandbox from its start to its end.
	Run func(args ...string) (code int, out, err string)
	// Head is Run with a reader of the output that goes away after the first line.
	Head func(args ...string) (code int, out, err string)
	// Start is one that is not waited for yet.
	Start func(args ...string) (wait func() (code int, out, err string))
	Host  func(zone string) string
	Dir   string
	// State is where ai-sandbox keeps its sessions.
	State  string
	Engine string
	// Gated are the flags for a gate with such a list; nil: those of one of the session's
	// own.
	Gated func(allow ...string) []string
	// Packets: the runtime has a network device, so that packets can be refused.
	Packets bool
}

// command runs a script with a gate.
func (b Box) command(script string, allow ...string) []string {
	var args []string
	if b.Gated != nil {
		args = b.Gated(allow...)
	} else {
		args = []string{"--gate-engine", b.Engine}
		for _, a := range allow {
			args = append(args, "--allow", a)
		}
	}
	return append(args, "--", "bash", "-c", script)
}

// A report is what --report writes of the gate.
type report struct {
	Session string           `json:"session"`
	Used    []gate.UsedHost  `json:"used"`
	Refused []map[string]any `json:"refused"`
	Blocked []struct {
		Proto string `json:"proto"`
		Addr  string `json:"addr"`
		Port  int    `json:"port"`
		Count int    `json:"count"`
	} `json:"blocked"`
}

// Log: every decision of a session's gate can be seen afterwards, and nothing of it
// but the host.
func Log(t *testing.T, b Box) {
	ok, no := b.Host("ok.test"), b.Host("no.test")
	const curl = "curl -sS --max-time 20 "
	script := "cd /tmp\n" +
		curl + "https://" + ok + "/CANARY-path?q=CANARY-query -H 'X-Secret: CANARY-header' -o /dev/null\n" +
		curl + "http://" + ok + "/CANARY-path?q=CANARY-query -o /dev/null\n" +
		curl + "https://" + no + "/CANARY-path -o /dev/null || true\n" +
		curl + "https://" + no + "/CANARY-path -o /dev/null || true\n" +
		curl + "http://" + no + "/CANARY-path?q=CANARY-query\n" +
		// The reason phrase, for clients that show it.
		`p=${https_proxy#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:}; printf 'CONNECT ` + no + `:443 HTTP/1.1\r\nConnection: close\r\n\r\n' >&3; timeout 20 head -c 4096 <&3; exec 3>&-` + "\n" +
		"openssl s_client -proxy ${https_proxy#http://} -connect " + ok + ":443 -servername " + no + " -brief </dev/null >/dev/null 2>&1 || true\n" +
		curl + "--noproxy '*' http://" + internet.Refused + ":8443/CANARY-path >/dev/null 2>&1 || true\n" +
		curl + "--noproxy '*' http://" + internet.Refused + ":8443/CANARY-path >/dev/null 2>&1 || true\n" +
		"printf x >/dev/udp/" + internet.Refused + "/5353 || true\n" +
		// One that is open when the session ends.
		"sleep 600 | openssl s_client -proxy ${https_proxy#http://} -connect " + ok + ":443 -servername " + ok + " -brief >o 2>&1 &\n" +
		"for i in $(seq 3000); do grep -q ESTABLISHED o && break; sleep 0.02; done; grep ESTABLISHED o\n"
	file := filepath.Join(filepath.Dir(b.Dir), filepath.Base(b.Dir)+"-log.json")
	t.Cleanup(func() { os.Remove(file) })
	code, out, errs := b.Run(append([]string{"--report", file}, b.command(script, ok)...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, out, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}

	// What the client reads.
	if want := "aisb-gate: refused (rule name): " + no + " is not allowed on port 80; to open it, ask the user for --allow " + no; !strings.Contains(out, want) {
		t.Errorf("the page does not say %q: %s", want, out)
	}
	connect := "(rule name): " + no + " is not allowed on port 443"
	if b.Engine == "builtin" && !strings.Contains(out, "HTTP/1.1 403 aisb-gate: refused "+connect) || strings.Count(out, connect) == 0 {
		t.Errorf("a refused CONNECT does not say %q: %s", connect, out)
	}

	// The end of the run.
	by, how := "", ":"
	if b.Gated != nil {
		name := b.Gated()[1]
		by, how = " by gate "+name, ", give ai-sandbox gate reload "+name+", beside the rest of its list,"
	}
	for _, want := range []string{
		"let through" + by + ": " + ok + " (3 times)",
		"refused" + by + ": " + no + ", port 443, 5 times; to let it through" + how + " --allow " + no + "\n",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("the end does not say %q: %s", want, errs)
		}
	}
	blocked := "blocked by the kernel: tcp " + internet.Refused + ":8443 2 times"
	if strings.Contains(errs, blocked) != b.Packets || strings.Contains(errs, "blocked by the kernel: udp "+internet.Refused+":5353 once") != b.Packets {
		t.Errorf("packets past the gate, where some can be sent (%v): %s", b.Packets, errs)
	}
	counts := map[int]int{}
	for _, p := range rep.Blocked {
		counts[p.Port] = p.Count
	}
	if b.Packets && (len(rep.Blocked) != 2 || counts[8443] != 2 || counts[5353] != 1) || !b.Packets && len(rep.Blocked) > 0 {
		t.Errorf("the report has of packets %+v", rep.Blocked)
	}

	// The log.
	_, out, errs = b.Run("log", rep.Session, "--json")
	got := map[string]int{}
	for line := range strings.Lines(out) {
		var e gate.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Session != rep.Session || e.Time.IsZero() {
			t.Errorf("whose is it? %s", line)
		}
		if e.Verdict == gate.VerdictAllowed && (e.BytesIn == 0 || e.DurationMS < 0) {
			t.Errorf("nothing came: %s", line)
		}
		got[fmt.Sprintf("%s %s:%d %s %s%s", e.Method, e.Host, e.Port, e.Verdict, e.Rule, e.SNI)] += max(e.Count, 1)
	}
	want := map[string]int{
		"CONNECT " + ok + ":443 allowed allow " + ok: 2,
		"GET " + ok + ":80 allowed allow " + ok:      1,
		"CONNECT " + no + ":443 refused name":        3,
		"GET " + no + ":80 refused name":             1,
		"CONNECT " + ok + ":443 refused sni" + no:    1,
	}
	if b.Packets {
		want["tcp "+internet.Refused+":8443 blocked ruleset"] = 2
		want["udp "+internet.Refused+":5353 blocked ruleset"] = 1
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log says\n%v\nwant\n%v\n%s", got, want, errs)
	}
	_, denied, says := b.Run("log", "--denied", rep.Session)
	if strings.Contains(says, "no packets that the kernel could refuse") == b.Packets {
		t.Errorf("the log says of packets past the gate, where some can be sent (%v): %s", b.Packets, says)
	}
	if n := strings.Count(denied, "\n"); strings.Contains(denied, "allowed") || n < 5 || !strings.Contains(denied, "rule: name") {
		t.Errorf("what was refused: %s", denied)
	}

	// Nothing but the host is kept, and by nobody else.
	dir := filepath.Join(b.State, "sessions", rep.Session)
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the session's directory: %v, %v", info, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || !slices.Contains(names, filepath.Join(dir, "gate.jsonl")) {
		t.Fatalf("%q, %v", names, err)
	}
	kept, err := os.ReadFile(filepath.Join(dir, "gate.jsonl"))
	if err != nil || strings.Contains(string(kept), "CANARY") {
		t.Errorf("%v: the log has more than hosts: %s", err, kept)
	}
	if info, err := os.Stat(filepath.Join(dir, "gate.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// Unread: what is open when nobody reads the output any more, so that the command does not
// end by itself, is told of as well.
func Unread(t *testing.T, b Box) {
	ok := b.Host("ok.test")
	script := "cd /tmp\nsleep 600 | openssl s_client -proxy ${https_proxy#http://} -connect " + ok + ":443 -servername " + ok + " -brief >o 2>&1 &\n" +
		"for i in $(seq 3000); do grep -q ESTABLISHED o && break; sleep 0.02; done\n" +
		"while :; do grep ESTABLISHED o; sleep 0.02; done\n"
	file := filepath.Join(filepath.Dir(b.Dir), filepath.Base(b.Dir)+"-unread.json")
	t.Cleanup(func() { os.Remove(file) })
	code, out, errs := b.Head(append([]string{"--report", file}, b.command(script, ok)...)...)
	if code != 141 || !strings.Contains(out, "ESTABLISHED") {
		t.Fatalf("exit code %d: %s\n%s", code, out, errs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Used) != 1 || rep.Used[0].Host != ok || !strings.Contains(errs, ok+" (once)") {
		t.Errorf("the report has %+v of what was used: %s", rep.Used, errs)
	}
	if _, out, errs = b.Run("log", rep.Session); strings.Count(out, "\n") != 1 || !strings.Contains(out, ok) {
		t.Errorf("the log says %s%s", out, errs)
	}
}

// cutSome: the one that has not begun may have come too late to be open.
var cutSome = regexp.MustCompile(`connections cut: [23]\n`)

// Steer: what a running session may reach is changed from outside. What stays allowed
// stays open, and a tunnel to what is not is cut.
func Steer(t *testing.T, b Box) {
	keep := b.Host("ok.test")
	gone, later := "gone."+keep, "later."+keep
	tunnel := func(host, name string) string {
		return "(openssl s_client -proxy ${https_proxy#http://} -connect " + host + ":443 -servername " + host + " -brief < <(sleep 1000) >/tmp/" + name + " 2>&1; touch /tmp/" + name + ".end) &\n" +
			"for i in $(seq 3000); do grep -q ESTABLISHED /tmp/" + name + " && break; sleep 0.02; done; grep ESTABLISHED /tmp/" + name + " || exit 3\n"
	}
	// Plain answers under way, and one that has not begun.
	plain := func(host, path, name string) string {
		return "(curl -sSN http://" + host + path + " >/tmp/" + name + " 2>&1; touch /tmp/" + name + ".end) &\n"
	}
	begun := func(name string) string {
		return "for i in $(seq 3000); do grep -q begun /tmp/" + name + " && break; sleep 0.02; done; grep begun /tmp/" + name + " || exit 4\n"
	}
	script := tunnel(keep, "keep") + tunnel(gone, "gone") +
		plain(keep, "/open", "plainkeep") + plain(gone, "/open", "plaingone") + plain(gone, "/silent", "silent") + begun("plainkeep") + begun("plaingone") +
		"curl -sS http://" + later + "/ >page.new; mv page.new page\n" +
		"until [ -e go ]; do sleep 0.05; done\n" +
		"for n in gone plaingone silent; do for i in $(seq 1000); do [ -e /tmp/$n.end ] && break; sleep 0.05; done; [ -e /tmp/$n.end ] && echo CUT $n; done\n" +
		"for n in keep plainkeep; do [ -e /tmp/$n.end ] || echo KEPT $n; done\n" +
		"curl -sS -o /dev/null -w 'later %{http_code}\\n' http://" + later + "/\n" +
		"curl -sS -o /dev/null -w 'gone %{http_code}\\n' http://" + gone + "/\n" +
		"find /run /tmp /home -name steer.sock 2>/dev/null\n"
	file := filepath.Join(filepath.Dir(b.Dir), filepath.Base(b.Dir)+"-steer.json")
	t.Cleanup(func() { os.Remove(file) })
	// An entry that covers these comes later.
	narrow := []string{keep + ":80", keep + ":443"}
	wait := b.Start(append([]string{"--report", file}, b.command(script, append(narrow, gone)...)...)...)
	var page []byte
	for end := time.Now().Add(60 * time.Second); len(page) == 0; time.Sleep(20 * time.Millisecond) {
		page, _ = os.ReadFile(filepath.Join(b.Dir, "page"))
		if time.Now().After(end) {
			code, out, errs := wait()
			t.Fatalf("nothing is refused: %d\n%s\n%s", code, out, errs)
		}
	}
	asked := regexp.MustCompile(`ai-sandbox allow ([0-9a-f]{12}) (\S+)`).FindSubmatch(page)
	if asked == nil || string(asked[2]) != later {
		t.Fatalf("the page does not say what to ask for: %s", page)
	}
	id := string(asked[1])
	do := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := b.Run(args...)
		if code != want {
			t.Errorf("%q: exit code %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	inForce := func() string {
		t.Helper()
		code, out, errs := b.Run("policy", "show", "--json", id)
		p, err := policy.Decode(strings.NewReader(out))
		if code != 0 || err != nil || p.InForce == nil || !p.InForce.Confirmed || len(p.InForce.Hash) != 64 {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
		}
		code, out, errs = b.Run("policy", "show", id)
		if want := "the gate has answered with the hash of these lists, " + p.InForce.Hash; code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) || !strings.Contains(out, "  allow ") {
			t.Errorf("exit code %d, the text does not say %q: %s%s", code, want, out, errs)
		}
		return fmt.Sprint(p.Net.Allow)
	}
	if got, want := inForce(), fmt.Sprint(list(t, append(narrow, gone)...)); got != want {
		t.Errorf("at first %s is in force, not %s", got, want)
	}
	if out := do(0, "allow", id, later, keep); !strings.Contains(out, later) || !strings.Contains(out, "confirmed by its gate") {
		t.Errorf("allow says %s", out)
	}
	if out := do(0, "deny", id, gone); strings.Contains(out, gone) || !cutSome.MatchString(out) {
		t.Errorf("deny says %s", out)
	}
	if out := do(1, "deny", id, gone); !strings.Contains(out, "it is refused already") {
		t.Errorf("once more: %s", out)
	}
	do(2, "allow", id, "http://x/")
	do(2, "allow", id)
	if got, want := inForce(), fmt.Sprint(list(t, keep, later)); got != want {
		t.Errorf("then %s is in force, not %s", got, want)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := wait()
	if want := "CUT gone\nCUT plaingone\nCUT silent\nKEPT keep\nKEPT plainkeep\nlater 200\ngone 403\n"; code != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("exit code %d: %s\nwant %s\n%s", code, out, want, errs)
	}
	do(3, "policy", "show", id)
	do(3, "allow", id, later)
	var rep struct {
		Changes []struct {
			Allow, Deny []string
			Cut         int
		} `json:"changes"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &rep)
	}
	if err != nil || len(rep.Changes) != 2 || rep.Changes[0].Allow[0] != later || rep.Changes[1].Deny[0] != gone || rep.Changes[1].Cut < 2 {
		t.Errorf("%v: the report has %+v", err, rep.Changes)
	}
	// What is kept of the session has the lists that were in force at last.
	if text, err := os.ReadFile(filepath.Join(b.State, "sessions", id, "policy.json")); err != nil {
		t.Error(err)
	} else if p, err := policy.Decode(strings.NewReader(string(text))); err != nil || fmt.Sprint(p.Net.Allow) != fmt.Sprint(list(t, keep, later)) {
		t.Errorf("%v: the session's policy has %v", err, p.Net.Allow)
	}
	// What was cut is told of with what had let it through.
	_, out, errs = b.Run("log", id, "--json")
	cut := map[string]int{}
	for line := range strings.Lines(out) {
		var e gate.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Host == gone && e.Verdict == gate.VerdictAllowed && e.Rule == "allow "+gone {
			cut[e.Method]++
		}
	}
	if cut["CONNECT"] != 1 || cut["GET"] == 0 {
		t.Errorf("the log has %v of what was cut, with its rule: %s%s", cut, out, errs)
	}
}

func list(t *testing.T, hosts ...string) []policy.Entry {
	t.Helper()
	out, err := policy.ParseEntries(hosts)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Normalise(out)
}

// Learn: everything public is let through and told as lines of a list, which then lets
// the same through; nothing leads inward.
func Learn(t *testing.T, b Box) {
	no, private := "learned."+b.Host("ok.test"), b.Host("private.test")
	script := "curl -sS -o /dev/null -w '%{http_code}\n' https://" + no + "/; curl -sS -o /dev/null -w '%{http_code}\n' http://" + private + "/; curl -sS -o /dev/null -w '%{http_code}\n' http://" + no + ":80/\n"
	file := filepath.Join(filepath.Dir(b.Dir), filepath.Base(b.Dir)+"-learn.json")
	t.Cleanup(func() { os.Remove(file) })
	code, out, errs := b.Run("--report", file, "--net", "learn", "--", "bash", "-c", script)
	if code != 0 || out != "200\n403\n200\n" {
		t.Fatalf("exit code %d: %s\n%s", code, out, errs)
	}
	for _, want := range []string{"LEARN: the gate lets every public host through", "ai-sandbox: learned: ", "ai-sandbox:   allow = " + no + "\n", "refused: " + private} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not said: %s", want, errs)
		}
	}
	// And afterwards, wherever the session is told of.
	var rep struct {
		Session  string `json:"session"`
		Learning bool   `json:"learning"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &rep)
	}
	if err != nil || !rep.Learning {
		t.Errorf("%v: the report does not say that it learned: %s", err, text)
	}
	if _, logs, _ := b.Run("logs", rep.Session); !strings.Contains(logs, "--net learn") {
		t.Errorf("logs does not: %s", logs)
	}
	if _, ls, _ := b.Run("ls"); !regexp.MustCompile(`(?m)^` + rep.Session + `\s+ended\s+\S+\s+learn `).MatchString(ls) {
		t.Errorf("ls does not: %s", ls)
	}
	if strings.Contains(errs, "allow = "+private) {
		t.Errorf("what was refused is learned: %s", errs)
	}
	if code, out, errs = b.Run("--gate-engine", b.Engine, "--allow", no, "--", "bash", "-c", script); code != 0 || out != "200\n403\n200\n" {
		t.Errorf("with what was learned: exit code %d: %s\n%s", code, out, errs)
	}
}
