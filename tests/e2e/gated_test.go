//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/internet"
)

// curl prints the status of the far answer or of the refused CONNECT.
const curl = `curl -sS --max-time 20 -w '\n%{http_code} %{http_connect}\n' `

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

func TestAllowedHost(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"https", "http"} {
		t.Run(scheme, func(t *testing.T) {
			b := newBox(t)
			r := b.OK(b.Gated("sh", "-c", curl+scheme+"://"+b.Host("ok.test")+"/hello")...)
			if !strings.Contains(r.Out, w.net.Marker+" "+b.Host("ok.test")) || !strings.Contains(r.Out, "\n200 ") {
				t.Errorf("no answer: %s", r)
			}
			hits := w.net.Hits(b.Token)
			if !w.net.Reached(b.Host("ok.test")) {
				t.Fatalf("the far server saw %+v", hits)
			}
			for _, h := range hits {
				if h.Via != "" {
					t.Errorf("the far server is told about the gate: %+v", h)
				}
			}
			if len(w.net.Queries(b.Host("ok.test"))) == 0 {
				t.Error("the DNS server saw no question, so its silence elsewhere would say nothing")
			}
		})
	}
}

func TestRefusedHost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	control(t, "http://"+internet.Refused) // it would answer
	no := b.Host("no.test")
	script := curl + "https://" + b.Host("ok.test") + "/\n" +
		curl + "https://" + no + "/\n" + curl + "http://" + no + "/\n" + curl + "http://" + internet.Refused + "/" + b.Token + "\n" +
		curl + "https://" + internet.Refused + "/" + b.Token + "\ntrue"
	r := b.OK(b.Gated("sh", "-c", script)...)
	if !strings.Contains(r.Out, w.net.Marker) {
		t.Fatalf("the positive control failed: %s", r)
	}
	// CONNECT 403 twice, plain 403 twice.
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
	if strings.Contains(r.Out, "squid") && regexp.MustCompile(`squid/\d|Generated .* by`).MatchString(r.Out) {
		t.Errorf("the error page tells about the gate: %s", r)
	}
}

// Each refused host is named once at the end, with its count and the flag that
// would let it through; and that flag does let it through.
func TestRefusedHostIsNamed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	host := "other." + b.Host("ok.test")
	file := filepath.Join(b.Dir, "..", filepath.Base(b.Dir)+".json")
	t.Cleanup(func() { os.Remove(file) })
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
	unseen(t, host)
	r = b.OK("--allow", flag[1], "--", "sh", "-c", curl+"https://"+host+"/")
	if !strings.Contains(r.Out, w.net.Marker) || !w.net.Reached(host) {
		t.Errorf("--allow %s does not let it through: %s", flag[1], r)
	}
}

func TestNameThatLeadsInside(t *testing.T) {
	t.Parallel()
	control(t, "http://"+internet.Private)
	control(t, "http://"+internet.Metadata)
	control(t, "http://127.0.0.1:8888")
	b := newBox(t)
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
	// ... but not to the metadata service, whose address has to be spelled out.
	r = b.OK("--allow-private", b.Host("meta.test"), "--", "sh", "-c", curl+"http://"+b.Host("meta.test")+"/")
	if strings.Contains(r.Out, w.net.Marker) {
		t.Errorf("--allow-private of a name opens link-local addresses: %s", r)
	}
	r = b.OK("--allow-private", internet.Metadata, "--", "sh", "-c", curl+"http://"+internet.Metadata+"/control")
	if !strings.Contains(r.Out, w.net.Marker) {
		t.Errorf("a spelled out link-local address is refused: %s", r)
	}
}

// A hello for another name than the CONNECT's ends the connection.
func TestForgedSNI(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	ok, no := b.Host("ok.test"), b.Host("no.test")
	hello := func(name string) string {
		return "timeout 20 openssl s_client -proxy ${https_proxy#http://} -connect " + ok + ":443 -servername " + name + " -verify_quiet -brief </dev/null 2>&1; echo"
	}
	r := b.OK(b.Gated("sh", "-c", hello(ok)+" honest; "+hello(no)+" forged")...)
	honest, forged, _ := strings.Cut(r.Out, "honest")
	if !strings.Contains(honest, "CONNECTION ESTABLISHED") {
		t.Fatalf("the positive control failed: %s", r)
	}
	if strings.Contains(forged, "CONNECTION ESTABLISHED") {
		t.Errorf("the forged hello got an answer: %s", r)
	}
	if hits := w.net.Hits(no); len(hits) > 0 {
		t.Errorf("the forged name reached a server: %+v", hits)
	}
	if len(w.net.Hits(ok)) == 0 {
		t.Error("the honest name reached no server")
	}
}

// Whatever does not go through the gate is refused by the kernel, at once.
func TestDirectConnection(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	listen := func(addr string) *internet.Listener {
		l, err := w.net.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	var servers []*internet.Listener
	for _, ip := range []string{internet.Allowed, internet.Refused, "[" + internet.Refused6 + "]", internet.Private, internet.Metadata, "127.0.0.1", "[::1]"} {
		servers = append(servers, listen(ip+":0"))
	}
	datagrams := []*internet.Listener{}
	for _, ip := range []string{internet.Allowed, "[" + internet.Refused6 + "]", "127.0.0.1"} {
		l, err := w.net.ListenUDP(ip + ":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		datagrams = append(datagrams, l)
	}
	tcp, udp := []string{"./probe", "tcp"}, []string{"./probe", "udp"}
	loopPort := strconv.Itoa(portOf(t, servers[5].Addr))
	for _, s := range servers {
		tcp = append(tcp, s.Addr)
	}
	for _, s := range datagrams {
		udp = append(udp, s.Addr)
	}
	for _, alias := range []string{policy.GateAddr, "169.254.1.1", "169.254.1.2"} {
		tcp = append(tcp, alias+":"+loopPort)
		udp = append(udp, alias+":"+strconv.Itoa(portOf(t, datagrams[2].Addr)))
	}
	tcp = append(tcp, "169.254.1.1:53")
	// There has to be a way to all of them, or nothing would have been refused.
	routes := "cat /proc/net/route /proc/net/ipv6_route; "
	script := routes + strings.Join(tcp, " ") + "; " + strings.Join(udp, " ") + "; " +
		"./probe dns " + b.Host("ok.test") + " 169.254.1.1:53 " + internet.DNS + ":53; " +
		"./probe fetch-direct http://" + internet.Allowed + "/" + b.Token + "; " +
		"curl -sS --noproxy '*' --max-time 5 http://" + internet.Allowed + "/" + b.Token + "; " +
		"curl -sS --noproxy '*' --max-time 5 http://" + b.Host("ok.test") + "/; " +
		"getent hosts " + b.Host("ok.test") + " && echo RESOLVED; " +
		"ping -c1 -W1 " + internet.Allowed + " && echo PINGED; true"
	r := b.OK(b.Gated("sh", "-c", script)...)
	for _, s := range slices.Concat(servers, datagrams) {
		if s.Count() != 0 {
			t.Errorf("%s was reached %d times", s.Addr, s.Count())
		}
	}
	unseen(t, b.Token)
	if strings.Contains(r.Out, w.net.Marker) || strings.Contains(r.Out, " open ") || strings.Contains(r.Out, "RESOLVED") || strings.Contains(r.Out, "PINGED") {
		t.Errorf("something answered: %s", r)
	}
	// The device comes first in the table of IPv4, and last in that of IPv6; the
	// one of lo is "unreachable".
	for version, route := range map[string]string{"IPv4": `(?m)^eth\d+\t0{8}\t.*$`, "IPv6": `(?m)^0{32} 00 .* eth\d+$`} {
		if !regexp.MustCompile(route).MatchString(r.Out) {
			t.Errorf("the sandbox has no default route of %s, so the ruleset is not what refuses: %s", version, r)
		}
	}
	// Refused, and at once: a tool must not hang.
	for line := range strings.Lines(r.Out) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "tcp" {
			if f[2] != "ECONNREFUSED" { // and not ETIMEDOUT
				t.Errorf("not refused at once: %s", line)
			}
		}
	}
	if n := strings.Count(r.Out, "tcp "); n < len(tcp)-2 {
		t.Errorf("%d probes of %d ran: %s", n, len(tcp)-2, r)
	}

	// The positive control: the same probe, from outside, reaches them all.
	out, err := exec.Command(filepath.Join(w.bin, "probe"), tcp[1:len(servers)+2]...).CombinedOutput()
	if err != nil || strings.Count(string(out), w.net.Marker) != len(servers) {
		t.Errorf("the positive control failed: %v: %s", err, out)
	}
	out, err = exec.Command(filepath.Join(w.bin, "probe"), udp[1:len(datagrams)+2]...).CombinedOutput()
	if err != nil || strings.Count(string(out), " open ") != len(datagrams) {
		t.Errorf("the positive control failed: %v: %s", err, out)
	}
}

// Of all ports of the host's loopback, only the gate's is there.
func TestHostLoopbackSweep(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	l, err := w.net.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := b.OK(b.Gated("sh", "-c", `echo "gate ${http_proxy##*:}"; ./probe sweep `+policy.GateAddr)...)
	gate := regexp.MustCompile(`gate (\d+)`).FindStringSubmatch(r.Out)
	open := regexp.MustCompile(`(?m)^open (\d+)$`).FindAllStringSubmatch(r.Out, -1)
	if gate == nil || len(open) != 1 || open[0][1] != gate[1] {
		t.Errorf("want only the gate's port open: %s", r)
	}
	if !strings.Contains(r.Out, "swept map[ECONNREFUSED:65534 open:1]") {
		t.Errorf("want all others refused: %s", r)
	}
	if l.Count() != 0 {
		t.Errorf("the marker server on the host's loopback was reached")
	}
	// The positive control: a bare container with the same pasta option gets there.
	image := strings.TrimSpace(drive.Output(t, "podman", "images", "--format", "{{.Id}}", "--filter", "reference=localhost/ai-sandbox", "--noheading"))
	image, _, _ = strings.Cut(image, "\n")
	out := drive.Output(t, "podman", "run", "--rm", "--network=pasta:--map-host-loopback,"+policy.GateAddr, "--http-proxy=false", image,
		"curl", "-sS", "--max-time", "10", fmt.Sprintf("http://%s:%d/", policy.GateAddr, portOf(t, l.Addr)))
	if !strings.Contains(out, w.net.Marker) {
		t.Errorf("the positive control failed: %s", out)
	}
}

// A session cannot use another one's gate.
func TestOtherSessionsGate(t *testing.T) {
	t.Parallel()
	a, b := newBox(t), newBox(t)
	// B's session, with a wider list, stays up until its input ends.
	_, stop := b.Background(t, "--allow", ".ok.test", "--", "sh", "-c", `echo "${http_proxy##*:}" >port; cat`)
	defer stop()
	port := b.File(t, "port")
	host := b.Host("ok.test") // on B's list alone
	get := "curl -sS --max-time 5 -x http://" + policy.GateAddr + ":" + port + " --noproxy '' http://" + host + "/"
	r := a.OK(a.Gated("sh", "-c", get+"; "+curl+"http://"+a.Host("ok.test")+"/")...)
	if strings.Contains(r.Out, w.net.Marker+" "+host) || !strings.Contains(r.Out, w.net.Marker+" "+a.Host("ok.test")) {
		t.Errorf("want only A's own gate to answer: %s", r)
	}
	unseen(t, host)
	// The positive control: outside, where no ruleset is, B's gate answers.
	out := drive.Output(t, "curl", "-sS", "--max-time", "10", "-x", "http://127.0.0.1:"+port, "--noproxy", "", "http://"+host+"/")
	if !strings.Contains(out, w.net.Marker) {
		t.Errorf("the positive control failed: %s", out)
	}
}

func TestNetNone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--net", "none", "--", "sh", "-c", "env | grep -i proxy; ./probe tcp "+internet.Allowed+":80 "+policy.GateAddr+":8888; "+
		"python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 300); do ./probe tcp 127.0.0.1:8000 | grep ' open ' && break; sleep 0.1; done")
	if strings.Count(r.Out, " open ") != 1 || !regexp.MustCompile(`tcp 127.0.0.1:8000 open`).MatchString(r.Out) {
		t.Errorf("want only the sandbox's own loopback: %s", r)
	}
	if strings.Contains(strings.ToLower(r.Out), "http_proxy") {
		t.Errorf("proxy variables without a gate: %s", r)
	}
}

// An empty list refuses everything, and says so.
func TestEmptyAllowlist(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("--", "sh", "-c", curl+"https://"+b.Host("ok.test")+"/; true")
	if !strings.Contains(r.Out, "\n000 403\n") || !strings.Contains(r.Err, "allowlist is empty") {
		t.Errorf("%s", r)
	}
	unseen(t, b.Token)
}

// The gate's cache manager answers nobody, and nothing is cached.
func TestGateManager(t *testing.T) {
	t.Parallel()
	b := newBox(t)
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
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
