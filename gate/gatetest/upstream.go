// A company's proxy, behind which a gate may be.

package gatetest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// UpstreamAddr is where the proxy of an UpstreamWorld is: no gate leads there without
// being told to.
var UpstreamAddr = netip.MustParseAddrPort("172.16.9.9:3128")

// UpstreamAuth is what it wants to be shown, with every byte that could end a word, a
// line or a string of a configuration.
const UpstreamAuth = `dom\us er:p#ss w"o'rd:%41;$x\ü`

// An UpstreamProxy lets everything through that shows its credentials. It alone knows
// the names that are not the World's.
type UpstreamProxy struct {
	mu       sync.Mutex
	auth     string
	resolve  func(name string) string
	requests []string
	badAuth  int
	refuse   bool
	l        net.Listener
}

// UpstreamAllow and UpstreamPrivate are the lists that Upstreamed is about.
var (
	UpstreamAllow   = entries("ok.test", ".wild.test", "alt.test:8443", "speak.test:2222", "198.51.100.40", "10.1.2.3", "172.16.9.9:3128", "proxy.test:3128")
	UpstreamPrivate = entries("db.test", ".corp.test", ".corp.test:3128", "192.168.0.0/16")
)

// BehindUpstream is the proxy as a gate takes it.
func BehindUpstream() *gate.Upstream {
	return &gate.Upstream{
		Upstream: policy.Upstream{Host: "proxy.test", Port: UpstreamAddr.Port(), Credentials: true},
		Addrs:    []netip.Addr{UpstreamAddr.Addr()}, Auth: policy.NewSecret(policy.UpstreamAuth, UpstreamAuth),
	}
}

// NewUpstream starts the proxy of Upstreamed; it ends with the test.
func NewUpstream(t *testing.T) *UpstreamProxy {
	t.Helper()
	names := map[string]string{
		"ok.test": "198.51.100.10", "alt.test": "198.51.100.11", "sub.wild.test": "198.51.100.20", "silent.wild.test": "198.51.100.20",
		"inward.wild.test": "10.1.2.3", "speak.test": "198.51.100.10", "db.test": "198.51.100.11", "no.test": "198.51.100.20",
	}
	return StartUpstream(t, UpstreamAddr.String(), UpstreamAuth, func(name string) string { return names[name] })
}

// StartUpstream starts one elsewhere. resolve gives the address of a name, or "".
func StartUpstream(t *testing.T, addr, auth string, resolve func(name string) string) *UpstreamProxy {
	t.Helper()
	p := &UpstreamProxy{auth: auth, resolve: resolve}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p.l = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// Addr is where it listens.
func (p *UpstreamProxy) Addr() string { return p.l.Addr().String() }

// Close makes it unreachable.
func (p *UpstreamProxy) Close() { p.l.Close() }

// Requests are what was asked for since the last call, as METHOD target.
func (p *UpstreamProxy) Requests() (list []string, badAuth int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, badAuth = p.requests, p.badAuth
	p.requests, p.badAuth = nil, 0
	return list, badAuth
}

// Refuse makes it want other credentials from now on.
func (p *UpstreamProxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

func (p *UpstreamProxy) serve(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	br := bufio.NewReader(c)
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.auth))
	p.mu.Lock()
	good := req.Header.Get("Proxy-Authorization") == want && !p.refuse
	if !good {
		p.badAuth++
	}
	p.requests = append(p.requests, req.Method+" "+req.RequestURI)
	p.mu.Unlock()
	if !good {
		fmt.Fprint(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"REALM\"\r\nContent-Length: 6\r\nConnection: close\r\n\r\nPLEASE")
		return
	}
	host := req.URL.Host
	if req.Method == http.MethodConnect {
		host = req.RequestURI
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		host += ":80"
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return
	}
	at := p.resolve(strings.ToLower(strings.TrimSuffix(name, ".")))
	if at == "" {
		at = name
	}
	if _, err := netip.ParseAddr(at); err != nil {
		fmt.Fprint(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	far, err := net.DialTimeout("tcp", net.JoinHostPort(at, port), 5*time.Second)
	if err != nil {
		fmt.Fprint(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	defer far.Close()
	if req.Method == http.MethodConnect {
		fmt.Fprint(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			io.Copy(far, br)
			far.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(c, far)
		return
	}
	req.Header.Del("Proxy-Authorization")
	req.Header.Set("Via", "1.1 company")
	if err := req.Write(far); err != nil {
		return
	}
	io.Copy(c, far)
}

// Upstreamed holds a gate at addr, which is behind p with the lists above, to what a
// company's proxy must and must not change.
func Upstreamed(t *testing.T, w *World, p *UpstreamProxy, engine, addr string) {
	w.Set("db.test", "192.168.7.7")
	w.Set("toproxy.corp.test", UpstreamAddr.Addr().String())
	w.Set("wrongly.corp.test", "169.254.169.254")
	w.SetFunc("silent.wild.test", func(dnsmessage.Type) Answer { return Answer{Drop: true} })
	tls := func(host, port, sni string) Row {
		return Row{Send: connect(host + ":" + port), Inside: hello(sni)}
	}
	secret := base64.StdEncoding.EncodeToString([]byte(UpstreamAuth))
	for _, c := range []struct {
		name string
		row  Row
		// asked is what the proxy has to be asked for, or "" for nothing.
		asked, reach string
		status       int
		page         string // a part of the answer
		lookup       string // that may be made
	}{
		{name: "get", row: Row{Send: get("http://ok.test/x")}, asked: "GET http://ok.test/x", reach: okAt + ":80"},
		{name: "connect", row: tls("ok.test", "443", "ok.test"), asked: "CONNECT ok.test:443", reach: okAt + ":443"},
		{name: "upper case", row: tls("OK.test.", "443", "ok.test"), asked: "CONNECT ok.test:443", reach: okAt + ":443"},
		{name: "wild", row: tls("sub.wild.test", "443", "ok.test"), asked: "CONNECT sub.wild.test:443", reach: "198.51.100.20:443"},
		{name: "other port", row: tls("alt.test", "8443", "alt.test"), asked: "CONNECT alt.test:8443", reach: "198.51.100.11:8443"},
		{name: "server first", row: Row{Send: connect("speak.test:2222"), Inside: Inside{ServerFirst: true}, Reach: "x"}, asked: "CONNECT speak.test:2222", reach: okAt + ":2222"},
		{name: "address", row: tls("198.51.100.40", "443", ""), asked: "CONNECT 198.51.100.40:443", reach: "198.51.100.40:443"},
		{name: "name that leads inward there", row: Row{Send: get("http://inward.wild.test/")}, asked: "GET http://inward.wild.test/", reach: "10.1.2.3:80"},
		{name: "credentials of the client", row: Row{Send: get("http://ok.test/", "Proxy-Authorization: Basic Q0FOQVJZ\r\n")}, asked: "GET http://ok.test/", reach: okAt + ":80"},
		{name: "resolver that says nothing", row: Row{Send: get("http://silent.wild.test/"), Patience: 15 * time.Second}, asked: "GET http://silent.wild.test/", reach: "198.51.100.20:80"},

		{name: "name not listed", row: Row{Send: get("http://no.test/")}, status: 403, page: "rule name"},
		{name: "connect not listed", row: tls("no.test", "443", "ok.test"), status: 403, page: "rule name"},
		{name: "port not listed", row: tls("ok.test", "22", "ok.test"), status: 403, page: "rule port"},
		{name: "sni not listed", row: tls("ok.test", "443", "no.test"), status: 200},
		{name: "no sni", row: tls("ok.test", "443", ""), status: 200},
		{name: "not tls", row: Row{Send: connect("ok.test:443"), Inside: Inside{Raw: "SSH-2.0-x\r\n"}, Patience: 8 * time.Second}, status: 200},
		{name: "private address", row: Row{Send: get("http://10.1.2.3/")}, status: 403, page: "rule private"},
		{name: "loopback", row: tls("127.0.0.9", "443", ""), status: 403, page: "rule name"},
		{name: "number", row: Row{Send: get("http://2130706441/")}, status: 403, page: "rule name"},

		{name: "proxy by address", row: Row{Send: get("http://172.16.9.9:3128/")}, status: 403, page: "rule upstream"},
		{name: "proxy by mapped address", row: Row{Send: get("http://[::ffff:172.16.9.9]:3128/")}, status: 403, page: "rule upstream"},
		{name: "connect to the proxy", row: Row{Send: connect("172.16.9.9:3128"), Inside: Inside{Raw: get("http://no.test/")}}, status: 403, page: "rule upstream"},
		{name: "proxy by name", row: Row{Send: connect("proxy.test:3128"), Inside: Inside{Raw: get("http://no.test/")}}, status: 403, page: "rule upstream"},
		{name: "proxy by name with dot", row: Row{Send: connect("PROXY.test.:3128"), Inside: Inside{Raw: get("http://no.test/")}}, status: 403, page: "rule upstream"},
		{name: "proxy by another name", row: Row{Send: connect("toproxy.corp.test:3128"), Inside: Inside{Raw: get("http://no.test/")}}, status: 403, page: "rule upstream", lookup: "toproxy.corp.test"},

		{name: "private", row: Row{Send: get("http://db.test/")}, reach: "192.168.7.7:80", lookup: "db.test"},
		{name: "connect private", row: tls("db.test", "443", "db.test"), reach: "192.168.7.7:443", lookup: "db.test"},
		{name: "private range", row: Row{Send: get("http://192.168.7.7/")}, reach: "192.168.7.7:80"},
		{name: "private that leads to the metadata", row: Row{Send: get("http://wrongly.corp.test/")}, status: 403, page: "rule address", lookup: "wrongly.corp.test"},
		{name: "private that is not known", row: Row{Send: get("http://nowhere.corp.test/")}, status: 403, page: "rule lookup", lookup: "nowhere.corp.test"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			w.Reset()
			p.Requests()
			began := time.Now()
			status, got, err := c.row.Exchange(addr)
			asked, bad := p.Requests()
			hits := w.Hits()
			all := fmt.Sprintf("status %d, read %.300q (%v); the proxy was asked %q, far servers saw %.600q, DNS %q", status, got, err, asked, fmt.Sprint(hits), w.Queries())
			if bad > 0 {
				t.Errorf("the proxy was not shown its credentials; %s", all)
			}
			if c.asked == "" && len(asked) > 0 || c.asked != "" && (len(asked) != 1 || asked[0] != c.asked) {
				t.Errorf("the proxy has to be asked %q; %s", c.asked, all)
			}
			switch {
			case c.reach == "" && len(hits) > 0:
				t.Errorf("a far server was reached; %s", all)
			case c.reach != "" && (len(hits) != 1 || hits[0].At != c.reach || !strings.Contains(got, "MARKER at="+c.reach)):
				t.Errorf("%s has to answer; %s", c.reach, all)
			case c.status != 0 && (status != c.status || !strings.Contains(got, c.page)):
				t.Errorf("want status %d with %q; %s", c.status, c.page, all)
			}
			for _, h := range hits {
				if strings.Contains(h.Data, secret) || strings.Contains(h.Data, "Q0FOQVJZ") {
					t.Errorf("a far server saw credentials; %s", all)
				}
			}
			if strings.Contains(got, secret) {
				t.Errorf("the client saw the credentials; %s", all)
			}
			for _, q := range w.Queries() {
				// squid asks for names as an aside, after it has let them through
				// (its netdb), and goes by nothing of the answer.
				aside := engine == Squid && c.asked != "" && strings.Contains(c.asked, q)
				if q != c.lookup && !aside {
					t.Errorf("%q was looked up; %s", q, all)
				}
			}
			if took := time.Since(began); strings.Contains(c.name, "says nothing") && took > 8*time.Second {
				t.Errorf("took %v, so something waited for the lookup", took)
			}
		})
	}

	plain, tunnel := Row{Send: get("http://ok.test/")}, tls("ok.test", "443", "ok.test")
	try := func(what string, r Row, want int, page string) {
		w.Reset()
		p.Requests()
		status, got, err := r.Exchange(addr)
		if len(w.Hits()) > 0 || status != want || !strings.Contains(got, page) || strings.Contains(got, "REALM") || strings.Contains(got, "PLEASE") || strings.Contains(got, secret) {
			t.Errorf("%s: status %d, read %q (%v), far servers saw %q", what, status, got, err, fmt.Sprint(w.Hits()))
		}
	}
	p.Refuse(true)
	try("credentials refused", plain, 502, "refuses the gate's credentials, or wants some (407)")
	try("credentials refused in a tunnel", tunnel, 200, "")
	p.Refuse(false)
	if _, got, _ := plain.Exchange(addr); !strings.Contains(got, "MARKER") {
		t.Errorf("after a refusal it does not work again: %q", got)
	}
	p.Close()
	try("proxy gone", plain, 503, "aisb-gate: ")
	try("proxy gone in a tunnel", tunnel, 200, "")
}
