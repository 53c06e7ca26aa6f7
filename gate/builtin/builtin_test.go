// The gate on loopback: what it promises beside the table, limits first. Far
// servers are reached by an allow-private entry of the test's own.

package builtin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ai-sandbox/gate"
	"ai-sandbox/gate/gatetest"
	"ai-sandbox/policy"
)

// patience is for what has to happen; no verdict is that something takes less.
const patience = time.Minute

func entries(t testing.TB, list ...string) []policy.Entry {
	t.Helper()
	out, err := policy.ParseEntries(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A far is a server beyond the gate, at a port of 127.0.0.1.
type far struct {
	addr string
	mu   sync.Mutex
	hits int
}

func (f *far) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

func (f *far) port() string { return f.addr[strings.LastIndexByte(f.addr, ':')+1:] }

func startFar(t testing.TB, serve func(*net.TCPConn)) *far {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{addr: l.Addr().String()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.hits++
			f.mu.Unlock()
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return f
}

// echoes sends back what comes, until it ends.
func echoes(c *net.TCPConn) { io.Copy(c, c) }

type options struct {
	config func(*Config)
	limits func(*limits)
	unix   bool
}

// start serves a gate that lets f through.
func start(t testing.TB, f *far, o options) (*Gate, string) {
	t.Helper()
	c := Config{Nonce: "n0nce", PolicyHash: "sha256:0", UID: os.Getuid(), Allow: entries(t, "ok.test", ".wild.test")}
	if f != nil {
		c.AllowPrivate = entries(t, f.addr)
	}
	if o.config != nil {
		o.config(&c)
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if o.limits != nil {
		o.limits(&g.limits)
	}
	l := listen(t, o.unix)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return g, l.Addr().String()
}

func listen(t testing.TB, onUnix bool) net.Listener {
	t.Helper()
	network, addr := "tcp", "127.0.0.1:0"
	if onUnix {
		// Not t.TempDir: a socket's path is short (unix(7)).
		dir, err := os.MkdirTemp("", "gate")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		network, addr = "unix", filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t testing.TB, addr string) stream {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(stream)
}

// openTunnel opens one.
func openTunnel(t testing.TB, addr, to string) stream {
	t.Helper()
	c := dial(t, addr)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	if head := headOf(t, c); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Fatalf("CONNECT %s: %q", to, head)
	}
	return c
}

// headOf reads an answer's head and not a byte more.
func headOf(t testing.TB, r io.Reader) string {
	t.Helper()
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("an answer's head: %v after %q", err, head)
		}
	}
	return string(head)
}

// ask sends bytes and returns all that comes back until the end.
func ask(t testing.TB, addr, send string) string {
	t.Helper()
	c := dial(t, addr)
	io.WriteString(c, send)
	b, _ := io.ReadAll(c)
	return string(b)
}

// ended fails where the other side does not end the connection.
func ended(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was left open")
	}
}

// until waits for what has to happen.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func both(t *testing.T, f func(t *testing.T, onUnix bool)) {
	t.Run("tcp", func(t *testing.T) { f(t, false) })
	t.Run("unix", func(t *testing.T) { f(t, true) })
}

const readyGet = "GET http://" + gate.ReadyHost + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

func TestReady(t *testing.T) {
	both(t, func(t *testing.T, onUnix bool) {
		var log gatetest.Record
		_, addr := start(t, nil, options{unix: onUnix, config: func(c *Config) { c.Decided = log.Add }})
		line := gate.Config{Nonce: "n0nce", PolicyHash: "sha256:0"}.ReadyLine() + "\n"
		for _, send := range []string{
			readyGet, "CONNECT " + gate.ReadyHost + ":443 HTTP/1.1\r\n\r\n",
			"POST http://" + gate.ReadyHost + "/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
		} {
			if got := ask(t, addr, send); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.HasSuffix(got, "\r\n\r\n"+line) {
				t.Errorf("%q: %q", send, got)
			}
		}
		if list := log.All(); len(list) > 0 {
			t.Errorf("the probe counts as a decision: %+v", list)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := Config{Nonce: "n", PolicyHash: "h", Allow: entries(t, "ok.test")}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"nonce":      func(c *Config) { c.Nonce = "a\r\n" },
		"hash":       func(c *Config) { c.PolicyHash = "" },
		"user":       func(c *Config) { c.UID = -1 },
		"by hand":    func(c *Config) { c.Allow = []policy.Entry{{Name: "com", Subdomains: true}} },
		"zero entry": func(c *Config) { c.AllowPrivate = []policy.Entry{{}} },
		"everything": func(c *Config) { c.Allow = []policy.Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: makes a gate", name)
		}
	}
}

// TestServeRefuses: a gate that other machines could reach does not serve.
func TestServeRefuses(t *testing.T) {
	g, err := New(Config{Nonce: "n", PolicyHash: "h", UID: os.Getuid()})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"0.0.0.0:0", ":0"} {
		l, err := net.Listen("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Serve(l); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is left open: %v", at, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Serve(listen(t, false)); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// TestStranger: a gate for another user answers this one nothing.
func TestStranger(t *testing.T) {
	both(t, func(t *testing.T, onUnix bool) {
		f := startFar(t, echoes)
		_, own := start(t, f, options{unix: onUnix})
		if got := ask(t, own, readyGet); !strings.Contains(got, "n0nce") {
			t.Fatalf("the gate does not answer its own user: %q", got)
		}
		_, addr := start(t, f, options{unix: onUnix, config: func(c *Config) { c.UID++ }})
		for _, send := range []string{readyGet, "CONNECT " + f.addr + " HTTP/1.1\r\n\r\n"} {
			if got := ask(t, addr, send); !strings.Contains(got, "another user's") || strings.Contains(got, "n0nce") {
				t.Errorf("%q: %q", send, got)
			}
		}
		if f.count() > 0 {
			t.Error("the far server was reached")
		}
	})
}

// TestNoOwner: a client that is gone before it could be told whose it was gets
// nothing done, although its request is there.
func TestNoOwner(t *testing.T) {
	f := startFar(t, echoes)
	for _, gone := range []bool{false, true} {
		g, err := New(Config{Nonce: "n", PolicyHash: "h", UID: os.Getuid(), AllowPrivate: entries(t, f.addr)})
		if err != nil {
			t.Fatal(err)
		}
		l := listen(t, false)
		c := dial(t, l.Addr().String())
		fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", f.addr)
		if gone {
			c.Close()
		} else {
			// One that has said all it will is still somebody's. It is not
			// closed for writing here: the gate takes that for its end.
			go io.Copy(io.Discard, c)
		}
		go g.Serve(l)
		if !gone {
			until(t, "the far server is reached", func() bool { return f.count() == 1 })
		} else {
			time.Sleep(200 * time.Millisecond)
		}
		if f.count() != 1 {
			t.Errorf("gone %v: the far server was reached %d times", gone, f.count())
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHalfClosed: what one side still says when the other is done arrives.
func TestHalfClosed(t *testing.T) {
	data := make([]byte, 4<<20)
	rand.Read(data)
	data[0] = 'x' // at random it is now and then what a TLS hello begins with
	both(t, func(t *testing.T, onUnix bool) {
		t.Run("client first", func(t *testing.T) {
			f := startFar(t, func(c *net.TCPConn) {
				if b, err := io.ReadAll(c); err == nil && string(b) == "question" {
					time.Sleep(50 * time.Millisecond)
					c.Write(data)
				}
			})
			_, addr := start(t, f, options{unix: onUnix})
			c := openTunnel(t, addr, f.addr)
			io.WriteString(c, "question")
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d arrived: %v", len(got), len(data), err)
			}
		})
		t.Run("server first", func(t *testing.T) {
			got := make(chan []byte, 1)
			f := startFar(t, func(c *net.TCPConn) {
				io.WriteString(c, "bye")
				c.CloseWrite()
				b, _ := io.ReadAll(c)
				got <- b
			})
			_, addr := start(t, f, options{unix: onUnix})
			c := openTunnel(t, addr, f.addr)
			if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
				t.Fatalf("%q %v", b, err)
			}
			if _, err := c.Write(data); err != nil {
				t.Fatal(err)
			}
			c.CloseWrite()
			if b := <-got; !bytes.Equal(b, data) {
				t.Errorf("%d bytes of %d arrived", len(b), len(data))
			}
		})
	})
}

// TestIdle: a tunnel without a byte ends; one with a byte now and then does not.
func TestIdle(t *testing.T) {
	t.Parallel()
	if usual.idle < time.Hour {
		t.Errorf("a tunnel may be idle for %v; agents wait longer for a model", usual.idle)
	}
	f := startFar(t, echoes)
	_, addr := start(t, f, options{limits: func(l *limits) { l.idle = 6 * time.Second }})
	busy, idle := openTunnel(t, addr, f.addr), openTunnel(t, addr, f.addr)
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		for {
			select {
			case <-stop:
				failed <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := busy.Write(b); err != nil {
				failed <- err
				return
			}
			if _, err := io.ReadFull(busy, b); err != nil {
				failed <- err
				return
			}
		}
	}()
	io.WriteString(idle, "x")
	io.ReadFull(idle, make([]byte, 1))
	ended(t, idle)
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("the busy one ended, too: %v", err)
	}
	if usual.idle != time.Hour {
		t.Errorf("idle tunnels end after %v", usual.idle)
	}
}

func TestTooManyClients(t *testing.T) {
	both(t, func(t *testing.T, onUnix bool) {
		f := startFar(t, echoes)
		g, addr := start(t, f, options{unix: onUnix, limits: func(l *limits) { l.conns = 2 }})
		a, b := openTunnel(t, addr, f.addr), openTunnel(t, addr, f.addr)
		c := dial(t, addr)
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 503 ") {
			t.Errorf("the third is answered %q", got)
		}
		// The first two go on, and there is room again after one.
		io.WriteString(b, "x")
		if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		a.Close()
		until(t, "there is room again", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.sessions) < 2
		})
		openTunnel(t, addr, f.addr)
	})
}

// TestTooManyOpening: tunnels that say nothing are bounded on their own, and are
// ended.
func TestTooManyOpening(t *testing.T) {
	t.Parallel()
	_, addr := start(t, nil, options{
		config: func(c *Config) { c.AllowPrivate = entries(t, "127.0.0.1") },
		limits: func(l *limits) { l.opening, l.hello = 2, 6*time.Second },
	})
	a, b := openTunnel(t, addr, "127.0.0.1:443"), openTunnel(t, addr, "127.0.0.1:443")
	if got := ask(t, addr, "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("the third is answered %q", got)
	}
	if got := ask(t, addr, readyGet); !strings.Contains(got, "n0nce") {
		t.Errorf("a plain request meanwhile: %q", got)
	}
	ended(t, a)
	ended(t, b)
	openTunnel(t, addr, "127.0.0.1:443")
}

// TestSlowHead: a head has to come in time, whatever comes of it.
func TestSlowHead(t *testing.T) {
	_, addr := start(t, nil, options{limits: func(l *limits) { l.head, l.wait = 300*time.Millisecond, 3*time.Second }})
	slow := dial(t, addr)
	io.WriteString(slow, "GET http://ok.test/ HTTP/1.1\r\n")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				fmt.Fprintf(slow, "X-%d: y\r\n", i)
			}
		}
	}()
	b, err := io.ReadAll(slow)
	if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(b), "HTTP/1.1 408 ") {
		t.Errorf("a slow head: %q %v", b, err)
	}
	silent := dial(t, addr)
	if b, err := io.ReadAll(silent); err != nil || len(b) > 0 {
		t.Errorf("a client that says nothing: %q %v", b, err)
	}
}

// TestSlowHello: so has a hello, and nothing is connected to for it.
func TestSlowHello(t *testing.T) {
	f := startFar(t, echoes)
	var log gatetest.Record
	_, addr := start(t, f, options{config: func(c *Config) { c.Decided = log.Add }, limits: func(l *limits) { l.hello = 300 * time.Millisecond }})
	c := dial(t, addr)
	fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n\x16\x03\x01", f.addr) // at once: silence is another thing
	headOf(t, c)
	ended(t, c)
	if f.count() > 0 {
		t.Error("the far server was reached")
	}
	if hosts := log.Refused(); len(hosts) != 1 || hosts[0].Reason != gate.ReasonNotTLS {
		t.Errorf("refused: %+v", hosts)
	}
}

// TestLateHello: a client that lets the server speak first cannot say a hello
// that would have been refused.
func TestLateHello(t *testing.T) {
	got := make(chan string, 1)
	f := startFar(t, func(c *net.TCPConn) {
		io.WriteString(c, "220 speak\r\n")
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	var log gatetest.Record
	_, addr := start(t, f, options{config: func(c *Config) { c.Decided = log.Add }, limits: func(l *limits) { l.serverFirst = 20 * time.Millisecond }})
	speak := func(say string) string {
		c := openTunnel(t, addr, f.addr)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "220 speak\r\n" {
			t.Fatalf("%q %v", line, err)
		}
		io.WriteString(c, say)
		c.CloseWrite()
		return <-got
	}
	if got := speak("EHLO x\r\n"); got != "EHLO x\r\n" {
		t.Errorf("what is no hello arrives as %q", got)
	}
	if got := speak(""); got != "" {
		t.Errorf("nothing arrives as %q", got)
	}
	if got := speak(helloOf(t, "no.test")); got != "" {
		t.Errorf("the far server got a hello for no.test: %q", got)
	}
	hosts := log.Refused()
	if len(hosts) != 1 || hosts[0].Host != "no.test" || hosts[0].Reason != gate.ReasonSNI {
		t.Errorf("refused: %+v", hosts)
	}
}

// helloOf is what a real client says first.
func helloOf(t testing.TB, name string) string {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	buf := make([]byte, maxHello)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// TestClose: nothing is left when it returns.
func TestClose(t *testing.T) {
	far0 := make(chan error, 8)
	f := startFar(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		far0 <- err
	})
	before := runtime.NumGoroutine()
	g, err := New(Config{Nonce: "n", PolicyHash: "h", UID: os.Getuid(), AllowPrivate: entries(t, f.addr)})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, false)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	addr := l.Addr().String()
	var clients []net.Conn
	for range 3 {
		c := openTunnel(t, addr, f.addr)
		io.WriteString(c, "x")
		clients = append(clients, c)
	}
	waiting := dial(t, addr)
	plain := dial(t, addr)
	fmt.Fprintf(plain, "GET http://%s/ HTTP/1.1\r\n\r\n", f.addr)
	opening := openTunnel(t, addr, f.addr)
	until(t, "the far server is reached", func() bool { return f.count() >= 4 })
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, c := range append(clients, waiting, plain, opening) {
		ended(t, c)
	}
	for range 4 {
		<-far0
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("it still listens")
	}
	if err := g.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
	until(t, "the gate's goroutines end", func() bool { return runtime.NumGoroutine() <= before+1 })
}

// TestBugIsContained: it ends its connection, is told at the end, and that is all.
func TestBugIsContained(t *testing.T) {
	f := startFar(t, echoes)
	g, err := New(Config{Nonce: "n", PolicyHash: "h", UID: os.Getuid(), AllowPrivate: entries(t, f.addr), Decided: func(d gate.Decision) {
		if d.Reason != "" {
			panic("a bug")
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, false)
	go g.Serve(l)
	addr := l.Addr().String()
	other := openTunnel(t, addr, f.addr)
	c := dial(t, addr)
	io.WriteString(c, "GET http://no.test/ HTTP/1.1\r\n\r\n")
	ended(t, c)
	io.WriteString(other, "x")
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
		t.Errorf("another tunnel: %v", err)
	}
	openTunnel(t, addr, f.addr)
	if err := g.Close(); err == nil || !strings.Contains(err.Error(), "a bug") || !strings.Contains(err.Error(), "1 connection") {
		t.Errorf("Close says %v", err)
	}
}

// TestDecisionForging: whatever is asked for, there is one decision for each refusal,
// and what is kept of it is one line that says so.
func TestDecisionForging(t *testing.T) {
	var log gatetest.Record
	_, addr := start(t, nil, options{config: func(c *Config) { c.Decided = log.Add }})
	const forged = `{"verdict":"allowed"}`
	hosts := []string{"plain.test", "a%0Afront.test", "a%20b.test", "-", "%2D", "a;b.test", "a'b`c$d.test", strings.Repeat("x", 5000) + ".test", "aisb-ready.invalid.test", "2001", "[2001:db8::1]"}
	for _, h := range hosts {
		ask(t, addr, "GET http://"+h+"/ HTTP/1.1\r\nConnection: close\r\n\r\n")
		ask(t, addr, forged+" http://"+h+"/ HTTP/1.1\r\nConnection: close\r\n\r\n")
	}
	list := log.All()
	if len(list) != len(hosts) {
		t.Fatalf("%d decisions for %d refusals: %+v", len(list), len(hosts), list)
	}
	for _, n := range []string{"no.test", "no.test\n" + forged + "\n", "\x1b[2J", "-", string([]byte{0xff, 0}), "\u202eevil"} {
		list = append(list, gate.Decision{Squid: "peek", Method: "CONNECT", Host: "ok.test", Port: 443, Status: 200, Reason: gate.ReasonSNI, SNI: n})
	}
	for _, d := range list {
		text, err := json.Marshal(d.Event(gate.Rules{}))
		if err != nil || len(text) > 1<<10 || strings.Contains(string(text), `"allowed"`) || strings.ContainsFunc(string(text), func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%+v is %s, %v", d, text, err)
		}
	}
	if list[0].Host != "plain.test" || list[0].Port != 80 || list[0].Method != "GET" || list[0].Status != 403 || list[0].ClientPort == 0 || list[0].Received == 0 || list[0].Sent == 0 {
		t.Errorf("the first one reads %+v", list[0])
	}
}

// TestClientGone: the far server of a plain request learns that nobody waits for
// its answer.
func TestClientGone(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan error, 1)
	f := startFar(t, func(c *net.TCPConn) {
		headOf(t, c)
		close(asked)
		_, err := c.Read(make([]byte, 1))
		gone <- err
	})
	_, addr := start(t, f, options{})
	c := dial(t, addr)
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\n\r\n", f.addr)
	<-asked
	c.Close()
	if err := <-gone; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it still works for nobody")
	}
}

// TestAnswers: how a far server's answer reaches the client.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("0123456789", 20000)
	for _, c := range []struct {
		name, say string
		request   string // with HOST for the far server; a plain GET where empty
		status    int
		body      string
		header    map[string]string // "" for a field that is not there
		again     bool              // the connection serves one more request
		cut       bool              // the body breaks off, and the client can tell
	}{
		{name: "length", say: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-A: b\r\n\r\nbody", status: 200, body: "body", header: map[string]string{"X-A": "b"}, again: true},
		{name: "long", say: fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long), status: 200, body: long, again: true},
		{name: "chunks", say: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n4\r\nbody\r\n0\r\nT: x\r\n\r\n", status: 200, body: "body", header: map[string]string{"Trailer": ""}, again: true},
		{name: "to the end", say: "HTTP/1.1 200 OK\r\n\r\n" + long, status: 200, body: long, again: true},
		{name: "http/1.0 client", say: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", request: "GET http://HOST/ HTTP/1.0\r\n\r\n", status: 200, body: "body", header: map[string]string{"Transfer-Encoding": "", "Connection": "close"}},
		{name: "http/1.0 server", say: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody", status: 200, body: "body", again: true},
		{name: "head", say: "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", request: "HEAD http://HOST/ HTTP/1.1\r\n\r\n", status: 200, header: map[string]string{"Content-Length": "7"}, again: true},
		{name: "no content", say: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, again: true},
		{name: "not modified", say: "HTTP/1.1 304 Not Modified\r\nEtag: x\r\n\r\n", status: 304, header: map[string]string{"Etag": "x"}, again: true},
		{name: "hop-by-hop", say: "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: x\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n", status: 200,
			header: map[string]string{"X-Hop": "", "Keep-Alive": "", "Proxy-Authenticate": "", "Upgrade": "", "Connection": ""}, again: true},
		{name: "continue", say: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", request: "POST http://HOST/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", status: 100, again: true},
		{name: "cut short", say: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbody", status: 200, body: "body", cut: true},
		{name: "cut in a chunk", say: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nbody", status: 200, body: "body", cut: true},
		{name: "more than it says", say: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", status: 200, body: "body", again: true},
		{name: "nothing", say: "", status: 502},
		{name: "nonsense", say: "SSH-2.0-x\r\n", status: 502},
		{name: "upgrade", say: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", status: 502},
		{name: "informs without end", say: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), request: "GET http://HOST/ HTTP/1.0\r\n\r\n", status: 502},
		{name: "endless head", say: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+long[:1000]+"\r\n", 1000) + "\r\n", status: 502},
		{name: "length twice", say: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody", status: 502},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			f := startFar(t, func(conn *net.TCPConn) {
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.Copy(io.Discard, req.Body)
					io.WriteString(conn, c.say)
				}
			})
			_, addr := start(t, f, options{})
			conn := dial(t, addr)
			r := bufio.NewReader(conn)
			request := c.request
			if request == "" {
				request = "GET http://HOST/ HTTP/1.1\r\n\r\n"
			}
			for i := range 2 {
				io.WriteString(conn, strings.ReplaceAll(request, "HOST", f.addr))
				method, _, _ := strings.Cut(request, " ")
				resp, err := http.ReadResponse(r, &http.Request{Method: method})
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				if resp.StatusCode == 100 {
					if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
						t.Fatalf("after 100: %v %v", resp, err)
					}
					resp.StatusCode, resp.Body = 100, http.NoBody
					r.Discard(4)
				}
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || c.status != 502 && string(body) != c.body || (err != nil) != c.cut {
					t.Fatalf("request %d: %s %.100q %v", i, resp.Status, body, err)
				}
				for name, want := range c.header {
					got := resp.Header.Get(name)
					if name == "Transfer-Encoding" {
						got = strings.Join(resp.TransferEncoding, ",")
					}
					if name == "Connection" && resp.Close {
						got = "close"
					}
					if got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if !c.again {
					if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
						t.Errorf("after it: %q %v", b, err)
					}
					return
				}
			}
		})
	}
}

// TestEarlyAnswer: an answer before the whole body came reaches the client, and
// what is left of the body is no request.
func TestEarlyAnswer(t *testing.T) {
	f := startFar(t, func(c *net.TCPConn) {
		headOf(t, c)
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
	})
	_, addr := start(t, f, options{})
	c := dial(t, addr)
	fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", f.addr)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 413 {
		t.Fatal(resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	io.WriteString(c, readyGet)
	if b, _ := io.ReadAll(r); len(b) > 0 {
		t.Errorf("the body was read as a request: %q", b)
	}
}

// TestEarlyAnswerUnread: also where the far server never reads the body.
func TestEarlyAnswerUnread(t *testing.T) {
	stay := make(chan struct{})
	defer close(stay)
	f := startFar(t, func(c *net.TCPConn) {
		headOf(t, c)
		time.Sleep(100 * time.Millisecond) // the body fills what lies between
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-stay
	})
	_, addr := start(t, f, options{})
	c := dial(t, addr)
	go func() {
		fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n", f.addr)
		c.Write(make([]byte, 100000000))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 413 {
		t.Fatal(resp, err)
	}
	ended(t, c)
}

// TestBadBody: a body that makes no sense is told, and nothing after it counts.
func TestBadBody(t *testing.T) {
	f := startFar(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	_, addr := start(t, f, options{})
	for _, body := range []string{"zz\r\n", "4\r\nbodyX", "4\nbody\n0\n\n", "fffffffffffffffff\r\n", "-1\r\n", "0x4\r\n", "\r\n", " 4\r\n", "0\r\nT: x\n\r\n", "4;" + strings.Repeat("x", 5000) + "\r\n"} {
		got := ask(t, addr, "POST http://"+f.addr+"/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"+body+readyGet)
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Contains(got, "n0nce") {
			t.Errorf("%.20q: %q", body, got)
		}
	}
}

// TestRefusedBody: what follows a refused request is no request.
func TestRefusedBody(t *testing.T) {
	_, addr := start(t, nil, options{})
	for _, send := range []string{
		fmt.Sprintf("POST http://no.test/ HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(readyGet), readyGet),
		"CONNECT no.test:443 HTTP/1.1\r\n\r\n" + readyGet,
		"GET http://no.test/ HTTP/1.0\r\n\r\n" + readyGet,
	} {
		if got := ask(t, addr, send); !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Contains(got, "n0nce") {
			t.Errorf("%q: %q", send, got)
		}
	}
	if got := ask(t, addr, "GET http://no.test/ HTTP/1.1\r\n\r\n"+readyGet); !strings.Contains(got, "n0nce") {
		t.Errorf("a request after a refused one that has no body: %q", got)
	}
}

// TestDial: one address that does not answer is no end, and a refusal of all is
// told.
func TestDial(t *testing.T) {
	f := startFar(t, echoes)
	g, _ := start(t, f, options{})
	to := netip.MustParseAddrPort(f.addr)
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), to.Port())
	c, err := g.dial([]netip.AddrPort{dead, dead, to})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := g.dial([]netip.AddrPort{dead}); err == nil {
		c.Close()
		t.Error("connected to nobody")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dialOne(ctx, to); err == nil {
		t.Error("connected after the end")
	}
}

// TestPumpAll: all bytes arrive, in any size and between any two sockets, and the
// pipes come back.
func TestPumpAll(t *testing.T) {
	data := make([]byte, 6<<20+12345)
	rand.Read(data)
	pairOf := func(onUnix bool) (conn, conn) {
		l := listen(t, onUnix)
		defer l.Close()
		a := dial(t, l.Addr().String())
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		x, err1 := newConn(a)
		y, err2 := newConn(b)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return x, y
	}
	for _, from := range []bool{false, true} {
		for _, to := range []bool{false, true} {
			for _, step := range []int{1000, chunkSize, 300000} {
				in, src := pairOf(from)
				dst, out := pairOf(to)
				go func() {
					for i, part := range slices.Collect(slices.Chunk(data, step)) {
						if i == 3 {
							time.Sleep(2 * pause)
						}
						in.Write(part)
					}
					in.CloseWrite()
				}()
				done := make(chan error, 1)
				go func() {
					done <- pump(dst, src, func(int) {})
					dst.CloseWrite()
				}()
				got, err := io.ReadAll(out)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("unix %v to %v by %d: %d bytes of %d, %v", from, to, step, len(got), len(data), err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
	}
	if len(pipes) != maxPipes {
		t.Errorf("%d pipes of %d came back", len(pipes), maxPipes)
	}
	// A transfer that breaks off leaves no bytes in a pipe for the next.
	in, src := pairOf(false)
	dst, out := pairOf(false)
	go in.Write(data)
	done := make(chan error, 1)
	go func() { done <- pump(dst, src, func(int) {}) }()
	io.ReadFull(out, make([]byte, 100<<10))
	out.SetLinger0()
	out.Close()
	if err := <-done; err == nil {
		t.Error("a pump to nobody ends in order")
	}
	if len(pipes) != maxPipes {
		t.Errorf("%d pipes of %d came back", len(pipes), maxPipes)
	}
}

func (c conn) SetLinger0() { c.stream.(*net.TCPConn).SetLinger(0) }

// TestNoPipes: where none is left, bytes are copied.
func TestNoPipes(t *testing.T) {
	for range maxPipes {
		p := takePipe()
		defer func() { givePipe(p, true) }()
	}
	if p := takePipe(); p != nil {
		t.Fatal("there is one more")
	}
	f := startFar(t, echoes)
	_, addr := start(t, f, options{})
	c := openTunnel(t, addr, f.addr)
	data := make([]byte, 1<<20)
	rand.Read(data)
	data[0] = 'x' // at random it is now and then what a TLS hello begins with
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
}
