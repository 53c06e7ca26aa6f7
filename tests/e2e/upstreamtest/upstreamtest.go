//go:build e2e

// Package upstreamtest is the test of a machine behind a company's proxy, which both
// runtimes have to pass with each engine.
package upstreamtest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/gate/gatetest"
	"ai-sandbox/tests/e2e/canary"
	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/internet"
)

// A Place is where the test is.
type Place struct {
	Box    *drive.Box
	Engine string
	Net    *internet.Internet
	// Dirs are where ai-sandbox keeps anything, but for Runtime, its directory for what
	// lives as long as a session.
	Dirs    []string
	Runtime string
	// As comes before the command line that looks through them.
	As []string
	// Named: there are named gates.
	Named bool
	// Inspect is what else tells of a session, or nil.
	Inspect func(session string) string
}

// user makes the base64 of the password alone stand in that of "user:password".
const user = "corp01:"

// Upstream: public names are the proxy's alone to resolve, everything goes through it but
// what is private, and its credentials are nowhere.
func Upstream(t *testing.T, at Place) {
	b := at.Box
	c := canary.New()
	password := "PW" + rand.Text()
	c.Know("the password", password)
	proxy := gatetest.StartUpstream(t, "127.0.0.1:0", user+password, func(name string) string {
		if strings.HasSuffix(name, ".up.test") {
			return internet.Allowed
		}
		return ""
	})
	auth := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(auth, []byte(user+password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, later, no := b.Token+".up.test", "later."+b.Token+".up.test", b.Host("no.test")
	url := "http://" + proxy.Addr()
	report := filepath.Join(t.TempDir(), "report.json")
	settings := []string{"--gate-engine", at.Engine, "--upstream-proxy", url, "--upstream-auth-file", auth}
	args := append(slices.Clone(settings), "--report", report, "--allow", host, "--allow-private", proxy.Addr())
	for _, look := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		if r := b.OK(append(append([]string{look}, args...), "--", "true")...); len(c.In(r.Out+r.Err)) > 0 || !strings.Contains(r.Out, proxy.Addr()[len("127.0.0.1:"):]) || strings.Contains(r.Out, "%3A") {
			t.Errorf("%s: %s", look, r)
		}
	}
	const curl = "curl -sS --max-time 20 -w '\\n%{http_code} %{http_connect}\\n' "
	script := curl + "https://" + host + "/secure; " + curl + "http://" + host + "/plain; " + curl + "https://" + no + "/; " +
		// Not the way past the list, either, although somebody has allowed it.
		"echo PROXY; " + curl + "--noproxy '' -x $http_proxy http://" + proxy.Addr() + "/; " + curl + "--noproxy '' -p -x $http_proxy http://" + proxy.Addr() + "/; " +
		"cat /etc/aisb/GUIDE.md /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; find /run /etc/aisb 2>/dev/null; " +
		"touch up; until [ -e go ]; do sleep 0.05; done; echo LATER; " + curl + "https://" + later + "/"
	watch := c.Watch(func(string) bool { return false })
	l := b.Start(t, append(args, "--", "bash", "-c", script)...)
	drive.Eventually(t, time.Minute, "the session", func() bool { _, err := os.Stat(filepath.Join(b.Dir, "up")); return err == nil })
	id := b.Sessions(t)[0].ID
	if at.Inspect != nil {
		if out := at.Inspect(id); len(c.In(out)) > 0 || out == "" {
			t.Errorf("what is told of the containers has %q: %s", c.In(out), drive.Tail(out))
		}
	}
	hits, err := c.Sweep(at.As, append(slices.Clone(at.Dirs), b.Dir)...)
	if err != nil || len(hits) > 0 {
		t.Errorf("while it runs: %v, %q", err, hits)
	}
	// The gate's own configuration is the control: it is there that it has to be found.
	hits, err = c.Sweep(at.As, filepath.Join(at.Runtime, id))
	conf := filepath.Join(at.Runtime, id, "gate-0", "conf")
	want := []string{filepath.Join(conf, "peek.conf")} // the front one asks nobody else
	if at.Engine == "builtin" {
		want = nil
	}
	slices.Sort(hits)
	if err != nil || !slices.Equal(hits, want) {
		t.Errorf("in the session's runtime directory: %v, %q, want %q", err, hits, want)
	}
	for _, f := range want {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info, err)
		}
	}
	// A change of the list leaves the proxy as it is.
	b.OK("allow", id, later)
	watch.Round()
	if rounds, found, _ := watch.Stop(); rounds == 0 || len(found) > 0 {
		t.Errorf("in %d looks at all processes: %q", rounds, found)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := l.Wait(drive.RunTime)
	if r.Code != 0 || strings.Count(r.Out, at.Net.Marker) != 3 || !strings.Contains(r.Out, "\n000 403\n") || len(c.In(r.Out+r.Err)) > 0 {
		t.Errorf("want the marker three times, and no credentials (%q): %s", c.In(r.Out+r.Err), r)
	}
	if _, past, _ := strings.Cut(r.Out, "PROXY"); strings.Count(past, "rule upstream") == 0 || !strings.Contains(past, "\n403 000\n") || !strings.Contains(past, "\n000 403\n") {
		t.Errorf("the proxy itself is reached from inside: %s", r)
	}
	if strings.Contains(r.Err, "upstream_proxy") {
		t.Errorf("a proxy that works is complained of: %s", r)
	}
	if _, err := c.Sweep(at.As, filepath.Dir(report)); err != nil {
		t.Error(err)
	}
	hits, err = c.Sweep(at.As, append(slices.Clone(at.Dirs), b.Dir, at.Runtime, report)...)
	if err != nil || len(hits) > 0 {
		t.Errorf("afterwards: %v, %q", err, hits)
	}
	asked, bad := proxy.Requests()
	slices.Sort(asked)
	if ask := []string{"CONNECT aisb-ready.invalid:443", "CONNECT " + host + ":443", "CONNECT " + later + ":443", "GET http://" + host + "/plain"}; bad > 0 || !slices.Equal(asked, sorted(ask)) {
		t.Errorf("the proxy was asked for %q, %d times without credentials; want %q", asked, bad, ask)
	}
	if !at.Net.Reached(host) || len(at.Net.Queries(no)) > 0 || at.Engine == "builtin" && len(at.Net.Queries(host)) > 0 {
		t.Errorf("DNS was asked %q %q", at.Net.Queries(host), at.Net.Queries(no))
	}

	if at.Named {
		named(t, b, settings[2:], host, later, at.Net.Marker)
		asked, bad := proxy.Requests()
		if want := []string{"CONNECT " + host + ":443", "CONNECT " + later + ":443"}; bad > 0 || !slices.Equal(slices.DeleteFunc(asked, func(s string) bool { return strings.Contains(s, "aisb-ready") }), want) {
			t.Errorf("for the named gate, the proxy was asked for %q, %d times without credentials; want %q", asked, bad, want)
		}
	}

	// What is wrong with the proxy is said, and nothing goes another way.
	fails := func(what, says string, code int, more ...string) {
		t.Helper()
		args := append(append([]string{"--gate-engine", at.Engine, "--allow", b.Host("ok.test")}, more...), "--", "sh", "-c", curl+"http://"+b.Host("ok.test")+"/; sleep 8; exit 7")
		r := b.Run(args...)
		if r.Code != code || strings.Count(r.Err, says) != 1 || strings.Contains(r.Out, at.Net.Marker) || len(c.In(r.Out+r.Err)) > 0 {
			t.Errorf("%s: want %d and %q once: %s", what, code, says, r)
		}
	}
	fails("credentials missing", "ai-sandbox: upstream_proxy "+url+": it refuses the credentials of upstream_auth_file, or wants some (407); nothing can be reached through it", 7, "--upstream-proxy", url)
	proxy.Close()
	fails("proxy gone", "ai-sandbox: upstream_proxy "+url+": it does not answer: ", 7, settings[2:]...)
	fails("proxy unknown", "look up upstream_proxy http://nowhere.test:3128", 125, "--upstream-proxy", "http://nowhere.test:3128")
	fails("password in the URL", "upstream_proxy has a user in it", 125, "--upstream-proxy", "http://"+user+password+"@127.0.0.1:3128")
	if at.Net.Reached(b.Host("ok.test")) {
		t.Error("without the proxy, a far server was reached")
	}
	if err := os.Chmod(auth, 0o640); err != nil {
		t.Fatal(err)
	}
	fails("open to others", "upstream_auth_file "+auth+" is open to other users (mode 0640); shut it with: chmod 600 "+auth, 125, settings[2:]...)
}

// named: a named gate keeps the proxy that it was made with, for all who share it.
func named(t *testing.T, b *drive.Box, settings []string, host, later, marker string) {
	t.Cleanup(func() { b.Run("gate", "down", b.Token) })
	b.OK(append([]string{"gate", "up", b.Token, "--allow", host}, settings...)...)
	get := func(host string) {
		t.Helper()
		if r := b.OK("--gate", b.Token, "--", "curl", "-sS", "https://"+host+"/"); !strings.Contains(r.Out, marker) {
			t.Errorf("nothing comes through the named gate: %s", r)
		}
	}
	get(host)
	b.OK("gate", "reload", b.Token, "--allow", host, "--allow", later)
	get(later)
	b.OK("gate", "down", b.Token)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
