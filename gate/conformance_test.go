//go:build squid

// The configuration on a real squid: go test -tags squid ./gate. It needs
// squid-openssl and ip, and root or unprivileged user namespaces; where one is
// missing it fails.

package gate_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/gate/gatetest"
	"ai-sandbox/policy"
)

func TestMain(m *testing.M) { os.Exit(gatetest.Main(m)) }

// A running is a gate under test.
type running struct {
	conf  gate.Config
	addr  string
	pids  []int
	ready time.Duration
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// start runs both squids, as a user without privileges, and waits for their
// answer to the readiness probe.
func start(t *testing.T, c gate.Config, change ...func(files map[string][]byte)) *running {
	t.Helper()
	squid, err := exec.LookPath("squid")
	if err != nil {
		squid, err = exec.LookPath("/usr/sbin/squid")
	}
	if err != nil {
		t.Fatalf("squid-openssl has to be installed for this test: %v", err)
	}
	// Not t.TempDir: its parent is root's alone.
	dir, err := os.MkdirTemp("", "aisb-gate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.FrontPort, c.PeekPort = freePort(t), freePort(t)
	c.Nonce, c.PolicyHash = "n0nce", "sha256:0123"
	c.Dir, c.Logs = dir+"/conf", dir+"/log"
	c.Resolvers = []netip.Addr{gatetest.Resolver}
	files, err := gate.Files(c)
	if err != nil {
		t.Fatal(err)
	}
	if files[gate.TLSFile], err = gate.Cert(time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(files)
	}
	for name, b := range files {
		path := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.Logs, 0o755); err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
		if err := os.Chown(c.Logs, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &running{conf: c, addr: fmt.Sprintf("127.0.0.1:%d", c.FrontPort)}
	begin := time.Now()
	// The front squid asks at its start whether the other one is there, and
	// takes it for dead for a while when not: in this order, one by one.
	for _, which := range []struct {
		conf string
		port uint16
	}{{gate.PeekConf, c.PeekPort}, {gate.FrontConf, c.FrontPort}} {
		cmd := exec.Command(squid, gate.Args(c.Dir, which.conf)...)
		cmd.SysProcAttr = attr
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.pids = append(r.pids, cmd.Process.Pid)
		t.Cleanup(func() {
			// On SIGTERM it would take two seconds, whatever its
			// shutdown_lifetime.
			cmd.Process.Kill()
			cmd.Wait()
		})
		for {
			if a := probe(which.port); strings.Contains(a, c.ReadyLine()) {
				break
			} else if a != "" {
				t.Fatalf("port %d is not the gate's: %q", which.port, a)
			}
			if time.Since(begin) > time.Minute {
				logs := ""
				for _, l := range []string{"front", "peek"} {
					b, _ := os.ReadFile(c.Logs + "/" + l + ".cache.log")
					logs += string(b)
				}
				t.Fatalf("no answer on port %d: %s", which.port, logs)
			}
			time.Sleep(time.Millisecond)
		}
	}
	r.ready = time.Since(begin)
	return r
}

func probe(port uint16) string {
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", gate.ReadyHost, gate.ReadyHost)
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestConformance(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate})
	t.Logf("both squids answered %v after they were started", g.ready)
	gatetest.Run(t, w, gatetest.Squid, g.addr)
	for _, l := range []string{"front.cache.log", "peek.cache.log"} {
		b, _ := os.ReadFile(g.conf.Logs + "/" + l)
		if strings.Contains(string(b), "ERROR") || strings.Contains(string(b), "WARNING") {
			t.Errorf("%s: %s", l, b)
		}
	}
}

// row is the one of that name.
func row(t *testing.T, addr, name string) gatetest.Row {
	t.Helper()
	r, err := gatetest.RowOf(addr, name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEachControlCounts takes the controls away one by one: the row that each is
// there for has to go red, or it proves nothing.
func TestEachControlCounts(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	for _, m := range []struct{ name, old, new, red string }{
		{"sni", "ssl_bump terminate all why_sni", "ssl_bump splice all", "sni no"},
		{"no sni", "ssl_bump terminate no_sni why_nosni", "", "sni none"},
		{"not tls", "on_unsupported_protocol respond all why_nottls", "on_unsupported_protocol tunnel all", "ssh in 443"},
		{"sni by port", "acl sni any-of sni_0", "acl sni any-of sni_0_names sni_1_names sni_2_names sni_3_names sni_0", "sni of other port"},
		{"private", "http_access deny private !inward ", "http_access deny !all ", "get inward ten"},
		{"private of v6", "fc00::/7", "", "get inward ula"},
		{"private by nat64", "64:ff9b::7f00:0/104", "", "get inward nat64"},
		{"private by 6to4", "2002:7f00::/24", "", "get inward sixtofour"},
		{"link-local", "http_access deny linklocal !spelled why_address", "", "get inward metadata"},
		{"link-local for private names", "deny linklocal !spelled", "deny linklocal !inward", "get metadata by private name"},
		{"no reverse lookup", "dstdomain -n", "dstdomain", "get address with ptr"},
		{"addresses only spelled out", "dst -n", "dst", "get name at listed address"},
		{"failed lookup", "allow listed anyip", "allow listed", "get servfail"},
		{"name before lookup", "http_access deny !listed ", "http_access deny !all ", "get no"},
		{"name before its address", "http_access deny !listed literal_dead ", "http_access deny private why_private_odd\nhttp_access deny !listed literal_dead ", "get no"},
		{"bytes of a host", "http_access deny !hostname ", "http_access deny !all ", "get percent nul wild"},
		{"manager", "http_access deny manager why_manager", "", "manager via listed host"},
		{"scheme", "http_access deny !opens !web why_scheme", "", "get https url"},
	} {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			config := gate.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate}
			changed := false
			g := start(t, config, func(files map[string][]byte) {
				for _, name := range []string{gate.FrontConf, gate.PeekConf} {
					s := strings.ReplaceAll(string(files[name]), m.old, m.new)
					// "acl NAME dst" without a value is an error.
					changed = changed || s != string(files[name])
					files[name] = []byte(s)
				}
			})
			if !changed {
				t.Fatalf("%q is not in the configuration", m.old)
			}
			if r := row(t, g.addr, "get"); r.Judge(w, g.addr) != nil {
				t.Fatal("nothing passes at all")
			}
			if err := row(t, g.addr, m.red).Judge(w, g.addr); err == nil {
				t.Errorf("row %q stays green without this control", m.red)
			}
		})
	}
}

// TestRebinding: with the shortest life of an answer that squid has, so that many
// lookups fall into the test.
func TestRebinding(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow}, func(files map[string][]byte) {
		for _, n := range []string{gate.FrontConf, gate.PeekConf} {
			files[n] = []byte(strings.ReplaceAll(string(files[n]), "negative_dns_ttl 5 seconds", "negative_dns_ttl 1 second"))
		}
	})
	gatetest.Rebinding(t, w, g.addr)
}

// TestSaysNothing: and no query string is written down.
func TestSaysNothing(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	gatetest.SaysNothing(t, w, g.addr)
	logs, err := filepath.Glob(g.conf.Logs + "/*")
	if err != nil || len(logs) < 4 {
		t.Fatalf("logs: %q %v", logs, err)
	}
	for _, l := range logs {
		b, err := os.ReadFile(l)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "CANARY") {
			t.Errorf("%s holds a query string: %s", l, b)
		}
	}
}

func TestStreams(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	gatetest.Streams(t, w, start(t, gate.Config{Allow: gatetest.Allow}).addr)
}

// TestEachClass: what an entry lets through, in a tunnel or not, goes from one squid to the
// other from the entry's own address, and from the common one where there are too many.
func TestEachClass(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	names := []string{"alt.test:80", ".wild.test"}
	for i := range gate.MaxClasses - len(names) {
		names = append(names, fmt.Sprintf("h%d.example.com", i))
	}
	var classes []policy.Entry
	for _, n := range append(names, "ok.test") {
		e, err := policy.ParseEntry(n)
		if err != nil {
			t.Fatal(err)
		}
		classes = append(classes, e)
	}
	g := start(t, gate.Config{Allow: classes, Classes: classes})
	want := map[string]bool{}
	for _, c := range []struct{ send, from string }{
		{"GET http://alt.test/stream HTTP/1.1\r\nHost: alt.test\r\n\r\n", gate.ClassAddr(0).String()},
		{"CONNECT www.wild.test:80 HTTP/1.1\r\n\r\nGET /stream HTTP/1.1\r\nHost: x\r\n\r\n", gate.ClassAddr(1).String()},
		{"GET http://ok.test/stream HTTP/1.1\r\nHost: ok.test\r\n\r\n", gate.Unclassed.String()},
	} {
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, c.send)
		r := bufio.NewReader(conn)
		for line := ""; strings.TrimSpace(line) != "data: 1"; { // open until it is released
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatalf("%.40q: %v", c.send, err)
			}
		}
		defer func() { w.Release <- struct{}{} }()
		want[c.from] = true
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		var local uint32
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != fmt.Sprintf("0100007F:%04X", g.conf.PeekPort) || f[3] != "01" {
			continue
		}
		if _, err := fmt.Sscanf(f[1], "%x:", &local); err != nil {
			t.Fatal(err)
		}
		got[netip.AddrFrom4([4]byte{byte(local), byte(local >> 8), byte(local >> 16), byte(local >> 24)}).String()] = true
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("from %v, want %v", got, want)
	}
}

// TestIdleSetting: what ends a tunnel without a byte is read_timeout, which TestIdleHour
// reads: where it is a second a tunnel ends, and where nothing else is changed it does not.
func TestIdleSetting(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	idle := func(g *running) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		r := bufio.NewReader(c)
		io.WriteString(c, "CONNECT ok.test:80 HTTP/1.1\r\n\r\nGET /stream HTTP/1.1\r\nHost: ok.test\r\n\r\n")
		c.SetDeadline(time.Now().Add(30 * time.Second))
		for line := ""; line != "data: 1\n"; { // from here on the far server waits
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return c, r
	}
	_, stays := idle(start(t, gate.Config{Allow: gatetest.Allow}))
	_, ends := idle(start(t, gate.Config{Allow: gatetest.Allow}, func(files map[string][]byte) {
		for _, name := range []string{gate.FrontConf, gate.PeekConf} {
			text := strings.Replace(string(files[name]), "\nread_timeout 24 hours\n", "\nread_timeout 1 second\n", 1)
			if text == string(files[name]) {
				t.Fatalf("%s has no such setting", name)
			}
			files[name] = []byte(text)
		}
	}))
	if rest, err := io.ReadAll(ends); errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(rest), "data: 2") {
		t.Fatalf("with a second: %q, %v", rest, err)
	}
	for range 2 { // one for each far server, whether or not it still has a client
		select {
		case w.Release <- struct{}{}:
		case <-time.After(10 * time.Second):
		}
	}
	for line := ""; line != "data: 2\n"; {
		var err error
		if line, err = stays.ReadString('\n'); err != nil {
			t.Fatalf("with what is set it has ended, too: %v", err)
		}
	}
}

// TestHalfClose holds still what squid does with a client that shuts its writing
// side: the tunnel ends and the rest of the answer is lost (docs say so).
func TestHalfClose(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "CONNECT ok.test:80 HTTP/1.1\r\n\r\n")
	io.WriteString(c, "GET /stream HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	r := bufio.NewReader(c)
	for line := ""; line != "data: 1\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// squid ends its side before the far server writes any more.
	rest, err := io.ReadAll(r)
	w.Release <- struct{}{}
	if err != nil || strings.Contains(string(rest), "data: 2") {
		t.Errorf("after the half-close: %q, %v; squid has changed, and so must docs/networking.md", rest, err)
	}
}

// TestPeekGone: without the peeking squid no tunnel opens; the front one does
// not go there by itself.
func TestPeekGone(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	r := row(t, g.addr, "connect")
	if err := r.Judge(w, g.addr); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(g.pids[0], syscall.SIGKILL)
	w.Reset()
	status, got, _ := r.Exchange(g.addr)
	if status == 200 || len(w.Hits()) > 0 {
		t.Errorf("status %d %q, hits %+v", status, got, w.Hits())
	}
}

// TestOneProcessEach: no helper runs, and none is left.
func TestOneProcessEach(t *testing.T) {
	g := start(t, gate.Config{Allow: gatetest.Allow})
	for _, pid := range g.pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			t.Errorf("squid %d has children: %s", pid, b)
		}
	}
}

// TestLogged: of both squids' logs comes one list.
func TestLogged(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate})
	var all []gate.Decision
	var j gate.Joiner
	from := map[string]int{}
	gatetest.Logged(t, w, gatetest.Squid, g.addr, func() []gate.Decision {
		read := func(name string) []gate.Decision {
			list := parseLog(t, g, name)
			list = list[from[name]:]
			from[name] += len(list)
			return list
		}
		front := append(read(gate.FrontLog), read(gate.UsedLog)...)
		all = append(all, j.Add(front, read(gate.PeekLog), false)...)
		return all
	})
}

func TestPages(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	for _, session := range []string{"", "0123456789ab"} {
		gatetest.Pages(t, w, start(t, gate.Config{Allow: gatetest.Allow, AllowPrivate: gatetest.AllowPrivate, Session: session}).addr, session)
	}
}

func TestEmptyList(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	gatetest.EmptyList(t, w, start(t, gate.Config{}).addr)
}

// TestSuggestions: what the log says would let a host through, does.
func TestSuggestions(t *testing.T) {
	w := gatetest.NewWorld(t)
	gatetest.Zone(w)
	g := start(t, gate.Config{Allow: gatetest.Allow})
	gatetest.Suggestions(t, w, g.addr, func() []gate.RefusedHost { return readRefused(t, g) }, func(allow, private []policy.Entry) string {
		return start(t, gate.Config{Allow: allow, AllowPrivate: private}).addr
	})
}

func readRefused(t *testing.T, g *running) []gate.RefusedHost {
	t.Helper()
	var all []gate.Decision
	for _, name := range []string{gate.FrontLog, gate.PeekLog} {
		all = append(all, parseLog(t, g, name)...)
	}
	return gate.Refused(all)
}

func parseLog(t *testing.T, g *running, name string) []gate.Decision {
	t.Helper()
	f, err := os.Open(filepath.Join(g.conf.Logs, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := gate.ParseLog(f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
