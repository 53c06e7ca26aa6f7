//go:build e2e

package jail

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/internet"
)

// curl prints the status of the far answer or of the refused CONNECT.
const curl = `curl -sS --max-time 20 -w '\n%{http_code} %{http_connect}\n' `

// engines are the gates that are there: the test host has squid.
func engines() []string {
	if w.testHost {
		return []string{"builtin", "squid"}
	}
	return []string{"builtin"}
}

// eachEngine runs a test with every gate.
func eachEngine(t *testing.T, f func(t *testing.T, b *box)) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.Env = []string{"AISB_GATE_ENGINE=" + engine}
			f(t, b)
		})
	}
}

// unseen fails when anything of token got out, in a connection or a lookup.
func unseen(t *testing.T, token string) {
	t.Helper()
	if hits := w.net.Hits(token); len(hits) > 0 {
		t.Errorf("a far server saw %q: %+v", token, hits)
	}
	if queries := w.net.Queries(token); len(queries) > 0 {
		t.Errorf("the DNS server saw %q: %q", token, queries)
	}
}

// Without the squid that was asked for nothing runs.
func TestEngineIsNamed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, engine := range engines() {
		if p := b.printed("--gate-engine", engine, "--allow", b.Host("ok.test"), "--", "true"); p.Net.Engine != engine {
			t.Errorf("the policy names engine %q", p.Net.Engine)
		}
	}
	if p := b.printed("--allow", b.Host("ok.test"), "--", "true"); p.Net.Engine != "builtin" {
		t.Errorf("the local runtime's own is %q", p.Net.Engine)
	}
	r := b.Run("--gate-engine", "squid", "--allow", b.Host("ok.test"), "--", "touch", "ran")
	if w.testHost {
		if r.Code != 0 {
			t.Errorf("%s", r)
		}
		return
	}
	if r.Code != 125 || !oneError(r, `squid is not installed at /usr/sbin/squid; install squid-openssl, or use --gate-engine builtin`) {
		t.Errorf("%s", r)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil {
		t.Error("the command has run")
	}
}

func TestAllowedHost(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		for _, scheme := range []string{"https", "http"} {
			r := b.OK(b.Gated("sh", "-c", curl+scheme+"://"+b.Host("ok.test")+"/hello")...)
			if !strings.Contains(r.Out, w.net.Marker+" "+b.Host("ok.test")) || !strings.Contains(r.Out, "\n200 ") {
				t.Errorf("no answer: %s", r)
			}
		}
		for _, h := range w.net.Hits(b.Token) {
			if h.Via != "" {
				t.Errorf("the far server is told about the gate: %+v", h)
			}
		}
		if !w.net.Reached(b.Host("ok.test")) || len(w.net.Queries(b.Host("ok.test"))) == 0 {
			t.Error("the servers saw nothing, so their silence elsewhere would say nothing")
		}
	})
}

func TestRefusedHost(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		control(t, "http://"+internet.Refused) // it would answer
		no := b.Host("no.test")
		script := curl + "https://" + b.Host("ok.test") + "/\n" +
			curl + "https://" + no + "/\n" + curl + "http://" + no + "/\n" + curl + "http://" + internet.Refused + "/" + b.Token + "\n" +
			curl + "https://" + internet.Refused + "/" + b.Token + "\ntrue"
		r := b.OK(b.Gated("sh", "-c", script)...)
		if strings.Count(r.Out, w.net.Marker) != 1 {
			t.Fatalf("want the marker once: %s", r)
		}
		if n := strings.Count(r.Out, "\n000 403\n"); n != 2 {
			t.Errorf("%d of 2 CONNECTs were answered 403: %s", n, r)
		}
		if n := strings.Count(r.Out, "\n403 000\n"); n != 2 {
			t.Errorf("%d of 2 plain requests were answered 403: %s", n, r)
		}
		unseen(t, no)
		for _, h := range w.net.Hits(b.Token) {
			if !strings.Contains(h.Host+h.SNI, "ok.test") {
				t.Errorf("a refused request reached a server: %+v", h)
			}
		}
		if regexp.MustCompile(`squid/\d|Generated .* by`).MatchString(r.Out) {
			t.Errorf("the error page tells about the gate: %s", r)
		}
	})
}

// Each refused host is named once at the end, with its count and the flag that
// would let it through; and that flag does let it through.
func TestRefusedHostIsNamed(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		host := "other." + b.Host("ok.test")
		file := filepath.Join(t.TempDir(), "report.json")
		get := "curl -sS -o /dev/null https://" + host + "/; "
		r := b.OK(append([]string{"--report", file}, b.Gated("sh", "-c", get+get+get+"true")...)...)
		flag := regexp.MustCompile(`--allow ([^\s)]+)`).FindStringSubmatch(r.Err)
		named := regexp.MustCompile(`(?m)^.*\brefused: `+regexp.QuoteMeta(host)+`\b.*$`).FindAllString(r.Err, -1)
		if len(named) != 1 || !strings.Contains(named[0], " 3 times") || flag == nil || !strings.Contains(named[0], flag[0]) {
			t.Fatalf("the refused host is not named once with its count and its flag: %q: %s", named, r)
		}
		rep := drive.ReadReport(t, file)
		if len(rep.Refused) != 1 || rep.Refused[0]["host"] != host || rep.Refused[0]["count"] != 3.0 || rep.Refused[0]["allow_flag"] != flag[0] {
			t.Errorf("report: %+v, want %s three times, and %s", rep, host, flag[0])
		}
		// What decided can be told later.
		enforced := regexp.MustCompile(`(?m)^enforced by  (the gate that is built in, of ai-sandbox \S+|squid [0-9]+\.[0-9]+\S*, installed on the machine)$`)
		if told := b.OK("inspect", "--offline", rep.Session); !enforced.MatchString(told.Out) {
			t.Errorf("the session: %s", told)
		}
		unseen(t, host)
		r = b.OK("--allow", flag[1], "--", "sh", "-c", curl+"https://"+host+"/")
		if !strings.Contains(r.Out, w.net.Marker) || !w.net.Reached(host) {
			t.Errorf("--allow %s does not let it through: %s", flag[1], r)
		}
	})
}

// Nothing that the agent asks for can imitate a line of ours.
func TestRefusedHostIsPrintable(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		script := `printf 'CONNECT a\033]0;x\007%s:443 HTTP/1.1\r\n\r\n' ` + b.Token + ` | timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; cat >&3; head -1 <&3'; curl -s https://` + b.Host("no.test") + `/; true`
		r := b.OK(b.Gated("bash", "-c", script)...)
		if strings.ContainsAny(r.Err, "\033\007\r") || !strings.Contains(r.Err, b.Host("no.test")) {
			t.Errorf("%s", r)
		}
	})
}

func TestNameThatLeadsInside(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		control(t, "http://"+internet.Private)
		control(t, "http://"+internet.Metadata)
		control(t, "http://127.0.0.1:8888")
		args := []string{"--allow", b.Host("ok.test")}
		script := curl + "http://" + b.Host("ok.test") + "/\n"
		zones := []string{"private.test", "meta.test", "loop.test", "map.test", "loop6.test", "ula.test", "shared.test"}
		for _, zone := range zones {
			args = append(args, "--allow", b.Host(zone), "--allow", b.Host(zone)+":8888")
			script += curl + "http://" + b.Host(zone) + "/\n" + curl + "https://" + b.Host(zone) + "/\n" + curl + "http://" + b.Host(zone) + ":8888/\n"
		}
		r := b.OK(append(args, "--", "sh", "-c", script+"true")...)
		if strings.Count(r.Out, w.net.Marker) != 1 {
			t.Errorf("want the marker once, from the control: %s", r)
		}
		if n := strings.Count(r.Out, "\n000 403\n") + strings.Count(r.Out, "\n403 000\n"); n != 3*len(zones) {
			t.Errorf("%d of %d requests were answered 403: %s", n, 3*len(zones), r)
		}
		for _, h := range w.net.Hits(b.Token) {
			if h.Host != b.Host("ok.test") {
				t.Errorf("reached: %+v", h)
			}
		}
		// It is the address that decides: the same name passes when the user says so.
		r = b.OK("--allow-private", b.Host("private.test"), "--", "sh", "-c", curl+"http://"+b.Host("private.test")+"/control")
		if !strings.Contains(r.Out, w.net.Marker) {
			t.Errorf("--allow-private lets nothing through: %s", r)
		}
		r = b.OK("--allow-private", b.Host("meta.test"), "--", "sh", "-c", curl+"http://"+b.Host("meta.test")+"/")
		if strings.Contains(r.Out, w.net.Marker) {
			t.Errorf("--allow-private of a name opens link-local addresses: %s", r)
		}
		r = b.OK("--allow-private", internet.Metadata, "--", "sh", "-c", curl+"http://"+internet.Metadata+"/control")
		if !strings.Contains(r.Out, w.net.Marker) {
			t.Errorf("a spelled out link-local address is refused: %s", r)
		}
	})
}

// A hello for another name than the CONNECT's ends the connection.
func TestForgedSNI(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		ok, no := b.Host("ok.test"), b.Host("no.test")
		hello := func(name string) string {
			return `timeout 20 python3 -c '
import socket, ssl
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT ` + ok + `:443 HTTP/1.1\r\nHost: ` + ok + `:443\r\n\r\n")
a = s.recv(4096)
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
print("CONNECT", a.split(b"\r\n")[0])
try:
    t = c.wrap_socket(s, server_hostname="` + name + `")
    print("ESTABLISHED")
except Exception as e:
    print(e)
'
`
		}
		r := b.OK(b.Gated("sh", "-c", hello(ok)+"echo honest\n"+hello(no)+"echo forged")...)
		honest, forged, _ := strings.Cut(r.Out, "honest")
		if !strings.Contains(honest, "ESTABLISHED") {
			t.Fatalf("the positive control failed: %s", r)
		}
		if strings.Contains(forged, "ESTABLISHED") || !strings.Contains(forged, "forged") {
			t.Errorf("the forged hello got an answer: %s", r)
		}
		if hits := w.net.Hits(no); len(hits) > 0 {
			t.Errorf("the forged name reached a server: %+v", hits)
		}
		if len(w.net.Hits(ok)) == 0 {
			t.Error("the honest name reached no server")
		}
	})
}

// Whatever does not go through the gate has no way at all, and fails at once.
func TestDirectConnection(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		var servers, datagrams []*internet.Listener
		for _, ip := range []string{internet.Allowed, internet.Refused, "[" + internet.Refused6 + "]", internet.Private, internet.Metadata, "127.0.0.1", "[::1]"} {
			l, err := w.net.Listen(ip + ":0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			servers = append(servers, l)
		}
		for _, ip := range []string{internet.Allowed, "[" + internet.Refused6 + "]", "127.0.0.1"} {
			l, err := w.net.ListenUDP(ip + ":0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			datagrams = append(datagrams, l)
		}
		tcp, udp := []string{"./probe", "tcp"}, []string{"./probe", "udp"}
		for _, s := range servers {
			tcp = append(tcp, s.Addr)
		}
		for _, s := range datagrams {
			udp = append(udp, s.Addr)
		}
		script := strings.Join(tcp, " ") + "; " + strings.Join(udp, " ") + "; " +
			"./probe dns " + b.Host("ok.test") + " " + internet.DNS + ":53; " +
			"./probe fetch-direct http://" + internet.Allowed + "/" + b.Token + "; " +
			"curl -sS --noproxy '*' --max-time 5 http://" + internet.Allowed + "/" + b.Token + "; " +
			"curl -sS --noproxy '*' --max-time 5 http://" + b.Host("ok.test") + "/; " +
			"getent hosts " + b.Host("ok.test") + " && echo RESOLVED; " +
			"bash -c 'exec 3<>/dev/tcp/" + internet.Allowed + "/80' && echo CONNECTED; true"
		r := b.OK(b.Gated("sh", "-c", script)...)
		for _, s := range slices.Concat(servers, datagrams) {
			if s.Count() != 0 {
				t.Errorf("%s was reached %d times", s.Addr, s.Count())
			}
		}
		unseen(t, b.Token)
		if strings.Contains(r.Out, w.net.Marker) || strings.Contains(r.Out, " open ") || strings.Contains(r.Out, "RESOLVED") || strings.Contains(r.Out, "CONNECTED") {
			t.Errorf("something answered: %s", r)
		}
		n := 0
		for line := range strings.Lines(r.Out) {
			if f := strings.Fields(line); len(f) == 4 && f[0] == "tcp" {
				n++
				if f[2] != "ENETUNREACH" && f[2] != "ECONNREFUSED" { // and not ETIMEDOUT
					t.Errorf("not refused at once: %s", line)
				}
			}
		}
		if n != len(servers) {
			t.Errorf("%d probes of %d ran: %s", n, len(servers), r)
		}
		// The positive control: the same probe, from outside, reaches them all.
		out, err := exec.Command(filepath.Join(w.bin, "probe"), tcp[1:]...).CombinedOutput()
		if err != nil || strings.Count(string(out), w.net.Marker) != len(servers) {
			t.Errorf("the positive control failed: %v: %s", err, out)
		}
		out, err = exec.Command(filepath.Join(w.bin, "probe"), udp[1:]...).CombinedOutput()
		if err != nil || strings.Count(string(out), " open ") != len(datagrams) {
			t.Errorf("the positive control failed: %v: %s", err, out)
		}
	})
}

// Of all loopback ports inside only the relay's answers, and the socket behind
// it gives no more than it does.
func TestGateSocket(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		l, err := w.net.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ask := `python3 -c '
import socket, glob, sys
path = [p for p in glob.glob("/run/aisb-gate/*")]
print("sockets", len(path))
for host in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(path[0])
    s.sendall(("GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (host, host)).encode())
    a = b""
    while True:
        d = s.recv(4096)
        if not d: break
        a += d
    print(host, a.split(b"\r\n")[0].decode(), a.strip().split(b"\n")[-1][:200])
' `
		script := "./probe sweep 127.0.0.1; ./probe sweep ::1; " + ask + strings.Join([]string{b.Host("ok.test"), b.Host("no.test"), l.Addr, "127.0.0.1:8888", "localhost:8888"}, " ") +
			"; ls -ln /run/aisb-gate; touch /run/aisb-gate/x || echo read-only; rm /run/aisb-gate/* || echo read-only"
		r := b.OK(b.Gated("sh", "-c", script)...)
		if open := regexp.MustCompile(`(?m)^open (\d+)$`).FindAllString(r.Out, -1); len(open) != 1 || open[0] != "open 3128" {
			t.Errorf("want only the relay's port open: %s", r)
		}
		for _, want := range []string{"sockets 1\n", b.Host("ok.test") + " HTTP/1.1 200 OK b'" + w.net.Marker, b.Host("no.test") + " HTTP/1.1 403", l.Addr + " HTTP/1.1 403", "127.0.0.1:8888 HTTP/1.1 403", "localhost:8888 HTTP/1.1 403"} {
			if !strings.Contains(r.Out, want) {
				t.Errorf("no %q: %s", want, r)
			}
		}
		if strings.Count(r.Out, "read-only") != 2 {
			t.Errorf("the gate's directory is writable inside: %s", r)
		}
		unseen(t, b.Host("no.test"))
		if l.Count() != 0 {
			t.Error("the host's loopback was reached")
		}
	})
}

// The gate listens on no port of the host, and its socket serves this user alone.
func TestGateIsTheUsers(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		_, stop := b.Background(t, b.Gated("sh", "-c", "echo up >up; cat")...)
		defer stop()
		b.File(t, "up")
		var sockets []string
		found, err := filepath.Glob(filepath.Join(runtimeDir(), b.Sessions(t)[0].ID, "gate", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range found {
			info, err := os.Lstat(s)
			if err != nil || info.Mode()&os.ModeSocket == 0 {
				continue
			}
			for dir := filepath.Dir(s); dir != filepath.Dir(runtimeDir()); dir = filepath.Dir(dir) {
				if info, err := os.Stat(dir); err == nil && info.Mode().Perm() != 0o700 {
					t.Errorf("%s has mode %v", dir, info.Mode())
				}
			}
			sockets = append(sockets, s)
		}
		if len(sockets) == 0 {
			t.Fatalf("no socket of a gate below %s", runtimeDir())
		}
		if os.Getuid() != 0 {
			return
		}
		// Root can be anybody: another user, to whom the way is opened, is not
		// served, and this one is.
		path := sockets[len(sockets)-1]
		mine := ""
		for _, s := range sockets {
			if c, err := net.Dial("unix", s); err == nil {
				fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", b.Host("ok.test"), b.Host("ok.test"))
				_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // the answer tells
				text, _ := io.ReadAll(c)
				c.Close()
				if strings.Contains(string(text), w.net.Marker) {
					mine, path = string(text), s
				}
			}
		}
		if mine == "" {
			t.Fatalf("the positive control failed: no socket serves its own user: %q", sockets)
		}
		// In front of squid there is no such check: the directories' modes are all.
		served := asOther(t, path, b.Host("ok.test"))
		if strings.Contains(served, w.net.Marker) && b.Env[0] == "AISB_GATE_ENGINE=builtin" {
			t.Errorf("another user is served: %s", served)
		}
	})
}

// asOther asks the gate at a socket as another user, over a descriptor of its
// directory, since the directories above are shut.
func asOther(t *testing.T, socket, host string) string {
	t.Helper()
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, s := range []string{filepath.Dir(socket), socket} {
		info, err := os.Stat(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(s, 0o777); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Chmod(s, info.Mode().Perm()); err != nil {
				t.Error(err)
			}
		}()
	}
	cmd := exec.Command("/usr/bin/python3", "-c", `
import os, socket, sys
os.fchdir(3)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.settimeout(5)
s.connect(sys.argv[1])
print("connected")
try:
    s.sendall(("GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (sys.argv[2], sys.argv[2])).encode())
    while True:
        d = s.recv(4096)
        if not d: break
        print(d)
except OSError as e: print(e)
`, filepath.Base(socket), host)
	cmd.ExtraFiles = []*os.File{dir}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "connected") {
		t.Fatalf("the positive control failed: another user can't even connect: %v: %s", err, out)
	}
	return string(out)
}

// A session can't use another one's gate.
func TestOtherSessionsGate(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		a := newBox(t)
		a.Env = b.Env
		_, stop := b.Background(t, "--allow", ".ok.test", "--", "sh", "-c", `echo up >up; cat`)
		defer stop()
		b.File(t, "up")
		host := b.Host("ok.test") // on B's list alone
		r := a.OK(a.Gated("sh", "-c", curl+"http://"+host+"/; "+curl+"http://"+a.Host("ok.test")+"/; ls -d "+runtimeDir()+"/*; cat /proc/net/unix | wc -l")...)
		if strings.Contains(r.Out, w.net.Marker+" "+host) || !strings.Contains(r.Out, w.net.Marker+" "+a.Host("ok.test")) || strings.Contains(r.Out, runtimeDir()) {
			t.Errorf("want only A's own gate to answer: %s", r)
		}
		unseen(t, host)
	})
}

func TestNetNone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", "env | grep -i proxy; ./probe tcp "+internet.Allowed+":80 127.0.0.1:3128; ls /run/aisb-gate; "+
		"python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 300); do ./probe tcp 127.0.0.1:8000 | grep ' open ' && break; sleep 0.1; done")
	if strings.Count(r.Out, " open ") != 1 || !regexp.MustCompile(`tcp 127.0.0.1:8000 open`).MatchString(r.Out) {
		t.Errorf("want only the sandbox's own loopback: %s", r)
	}
	if strings.Contains(strings.ToLower(r.Out), "http_proxy") {
		t.Errorf("proxy variables without a gate: %s", r)
	}
}

// --net host reaches everything, and says so wherever it is told.
func TestNetHost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	l, err := w.net.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := b.OK("--net", "host", "--", "sh", "-c", "env | grep -i proxy; ./probe tcp "+l.Addr+"; curl -sS --max-time 10 http://"+b.Host("ok.test")+"/")
	if l.Count() != 1 || strings.Count(r.Out, w.net.Marker) != 2 || strings.Contains(strings.ToLower(r.Out), "http_proxy") {
		t.Errorf("%s", r)
	}
	if !strings.Contains(r.Err, "HOST NETWORK: nothing is shut") {
		t.Errorf("nothing is said about it at the start: %s", r)
	}
	text := b.OK("--net", "host", "--print-policy", "--", "true").Out
	if !regexp.MustCompile(`(?m)^unusual +! HOST NETWORK: nothing is shut`).MatchString(text) {
		t.Errorf("the printout is not loud about it: %s", text)
	}
	if r := b.OK("--net", "host", "--allow", b.Host("ok.test"), "--", "true"); !strings.Contains(r.Err, "no effect with --net host") {
		t.Errorf("%s", r)
	}
	// Never by itself: without the flag there is no such network.
	if p := b.printed("--", "true"); p.Net.Mode != "unix" {
		t.Errorf("the local runtime's own network is %q", p.Net.Mode)
	}
}

// An empty list refuses everything, and says so.
func TestEmptyAllowlist(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		r := b.OK("--", "sh", "-c", curl+"https://"+b.Host("ok.test")+"/; true")
		if !strings.Contains(r.Out, "\n000 403\n") || !strings.Contains(r.Err, "allowlist is empty") {
			t.Errorf("%s", r)
		}
		unseen(t, b.Token)
	})
}

// Nothing of the gate answers beside the proxy, and nothing is cached.
func TestGateManager(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		var script strings.Builder
		for _, path := range []string{"menu", "info", "config"} {
			fmt.Fprintf(&script, "curl -sS --max-time 5 --noproxy '*' -w '\\n%%{http_code}\\n' $http_proxy/squid-internal-mgr/%s; ", path)
			fmt.Fprintf(&script, "curl -sS --max-time 5 -w '\\n%%{http_code}\\n' $http_proxy/squid-internal-mgr/%s; ", path)
		}
		r := b.OK(b.Gated("sh", "-c", script.String()+"true")...)
		if strings.Contains(r.Out, "\n200\n") || strings.Count(r.Out, "\n403\n")+strings.Count(r.Out, "\n400\n")+strings.Count(r.Out, "\n404\n") != 6 {
			t.Errorf("%s", r)
		}
		url := "http://" + b.Host("ok.test") + "/cached"
		b.OK(b.Gated("sh", "-c", curl+url+"; "+curl+url)...)
		n := 0
		for _, h := range w.net.Hits(b.Token) {
			if h.Net == "http" && h.Path == "/cached" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("the far server saw %d of 2 requests", n)
		}
	})
}

// Many connections at once pass, big ones whole, and half-closed ones are drained.
func TestGateUnderLoad(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		blob := strings.Repeat("0123456789abcdef", 1<<20)
		write(t, filepath.Join(w.own, "files", b.Token), blob, 0o644)
		r := b.OK(b.Gated("sh", "-c", "for i in $(seq 12); do curl -sS --max-time 50 -o /dev/null -w '%{http_code} %{size_download}\\n' https://"+b.Host("ok.test")+"/files/"+b.Token+" & done; wait")...)
		if n := strings.Count(r.Out, "200 16777216\n"); n != 12 {
			t.Errorf("%d of 12: %s", n, r)
		}
		// A client that ends its side first still gets the answer.
		r = b.OK(b.Gated("bash", "-c", `python3 -c '
import socket
s = socket.create_connection(("127.0.0.1", 3128)); s.settimeout(20)
s.sendall(b"CONNECT `+b.Host("ok.test")+`:80 HTTP/1.1\r\nHost: x\r\n\r\n")
print(s.recv(4096).split(b"\r\n")[0])
s.sendall(b"GET /drained HTTP/1.0\r\nHost: `+b.Host("ok.test")+`\r\n\r\n"); s.shutdown(socket.SHUT_WR)
a = b""
while True:
    d = s.recv(4096)
    if not d: break
    a += d
print(a.decode())
'`)...)
		if !strings.Contains(r.Out, w.net.Marker) && b.Env[0] == "AISB_GATE_ENGINE=builtin" {
			t.Errorf("a half-closed tunnel lost its answer: %s", r)
		}
	})
}

// Sessions side by side in one project do not meet.
func TestSideBySide(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		const sessions = 3
		var all []*drive.Live
		for i := range sessions {
			script := fmt.Sprintf(`echo mine-%[1]d >$HOME/mine-%[1]d; echo mine-%[1]d >/tmp/mine-%[1]d; echo mine-%[1]d >/dev/shm/mine-%[1]d
python3 -m http.server %[2]d --bind 127.0.0.1 --directory $HOME >/dev/null 2>&1 &
exec -a marker-%[1]d sleep 600 &
until grep -q ^marker-%[1]d /proc/$!/cmdline; do sleep 0.1; done
until ./probe tcp 127.0.0.1:%[2]d | grep -q ' open '; do sleep 0.1; done
echo up >up-%[1]d; read go
cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -o '^marker-[0-9]' | sort -u
ls $HOME /tmp /dev/shm | grep '^mine-' | sort -u
for i in 0 1 2; do ./probe tcp 127.0.0.1:$((8200 + i)) | grep ' open ' | cut -d' ' -f2; done
for i in 0 1 2; do curl -sS -o /dev/null -w "host-$i %%{http_code}\n" http://h$i.%[3]s/; done
read end`, i, 8200+i, b.Host("ok.test"))
			all = append(all, b.Start(t, "--ephemeral-home", "--allow", fmt.Sprintf("h%d.%s", i, b.Host("ok.test")), "--", "bash", "-c", script))
		}
		for i := range sessions {
			b.File(t, fmt.Sprintf("up-%d", i))
		}
		for _, l := range all {
			if _, err := io.WriteString(l.In, "go\n"); err != nil {
				t.Fatal(err)
			}
		}
		for i := range all {
			drive.Eventually(t, time.Minute, "the request of session "+strconv.Itoa(i), func() bool { return w.net.Reached(fmt.Sprintf("h%d.%s", i, b.Host("ok.test"))) })
		}
		for i, l := range all {
			want := fmt.Sprintf("marker-%[1]d\nmine-%[1]d\n127.0.0.1:%[2]d\n", i, 8200+i)
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
	})
}
