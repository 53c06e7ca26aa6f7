// Package gatetest is what every gate engine must pass: a table of raw requests
// with their verdicts, and the small internet that they are sent into. It is
// test support: nothing in a program imports it.
//
// A verdict is what the far servers and the DNS server saw, never what the
// client was told alone. The world lives in a network namespace of its own, at
// public-looking addresses, so that no verdict depends on an exception.
package gatetest

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver is where the world's DNS server listens.
var Resolver = netip.MustParseAddr("127.0.0.53")

// addresses are put on the namespace's loopback device. Those that a gate must
// never lead to are there too: a refusal has to be the gate's, not the lack of
// a route.
var addresses = []string{
	"198.51.100.10", "198.51.100.11", "198.51.100.20", "198.51.100.40", "198.51.100.41",
	"203.0.113.5", "203.0.113.20",
	"10.1.2.3", "100.64.1.1", "169.254.169.254", "169.254.169.253", "172.16.9.9", "192.0.0.8", "192.168.7.7",
	"2001:db8::10", "2001:db8::40", "2001:db8::41",
	"fd00::7", "fec0::7", "64:ff9b::7f00:9", "64:ff9b::a01:203", "64:ff9b:1::7f00:9", "2002:7f00:9::1", "2001:0:7f00:9::1", "::7f00:9", "::ffff:0:7f00:9",
}

// inNetns marks the second run of the test binary.
const inNetns = "AISB_GATETEST_NETNS"

// Main runs the tests of a package in a network namespace of their own: it runs
// the test binary again there and returns its exit code. As a normal user it
// makes a user namespace for that. It is for TestMain.
func Main(m *testing.M) int {
	if os.Getenv(inNetns) != "" {
		if err := setup(); err != nil {
			fmt.Fprintln(os.Stderr, "gatetest: prepare the network namespace:", err)
			return 1
		}
		return m.Run()
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gatetest:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inNetns+"=1")
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		const netAdmin, netBind = 12, 10
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{netAdmin, netBind}
	}
	cmd.SysProcAttr = attr
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "gatetest: no network namespace for the tests:", err)
		}
		return 1
	}
	return 0
}

func setup() error {
	run := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		return nil
	}
	if err := run("link", "set", "lo", "up"); err != nil {
		return err
	}
	for _, s := range addresses {
		a := netip.MustParseAddr(s)
		args := []string{"addr", "add", fmt.Sprintf("%s/%d", s, a.BitLen()), "dev", "lo"}
		if a.Is6() {
			args = append(args, "nodad")
		}
		if err := run(args...); err != nil {
			return err
		}
	}
	// The kernel takes an IPv6 address into use aside, later.
	for _, s := range addresses {
		if err := connects(s); err != nil {
			return fmt.Errorf("address %s of the world: %w", s, err)
		}
	}
	return nil
}

// connects waits until a connection to an address of this namespace works.
func connects(addr string) error {
	try := func() error {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// A Hit is one connection that reached a far server.
type Hit struct {
	At   string // local address and port
	SNI  string
	Data string // first bytes
}

// A World is the far servers and the DNS server.
type World struct {
	mu      sync.Mutex
	row     int // counts the Resets
	hits    []Hit
	queries []string
	zone    map[string]func(q dnsmessage.Type) Answer
	tlsConf *tls.Config
	ports   []int
	// Release lets the second half of an answer to /stream go.
	Release chan struct{}
}

// An Answer is what the DNS server says.
type Answer struct {
	Addrs []string
	RCode dnsmessage.RCode
	Drop  bool
}

// NewWorld starts it; it ends with the test.
func NewWorld(t *testing.T) *World {
	t.Helper()
	w := &World{zone: map[string]func(dnsmessage.Type) Answer{}, Release: make(chan struct{})}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	w.tlsConf = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"}}

	pc, err := net.ListenPacket("udp", netip.AddrPortFrom(Resolver, 53).String())
	if err != nil {
		t.Fatalf("the world's DNS server: %v", err)
	}
	t.Cleanup(func() { pc.Close() })
	go w.serveDNS(pc)
	for port, serve := range map[int]func(net.Conn, *Hit){
		80: w.serveHTTP, 8080: w.serveHTTP, 21: w.serveHTTP,
		443: w.serveTLS, 8443: w.serveTLS,
		22: w.serveBanner, 2222: w.serveBanner,
	} {
		w.ports = append(w.ports, port)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatalf("a far server: %v", err)
		}
		t.Cleanup(func() { l.Close() })
		go w.accept(l, serve)
	}
	return w
}

// Set answers lookups of name (A and AAAA by the addresses' kind).
func (w *World) Set(name string, addrs ...string) {
	w.SetFunc(name, func(dnsmessage.Type) Answer { return Answer{Addrs: addrs} })
}

// SetFunc answers lookups of name by calling f.
func (w *World) SetFunc(name string, f func(dnsmessage.Type) Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.zone[name] = f
}

// Reset forgets what was seen.
func (w *World) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.row++
	w.hits, w.queries = nil, nil
}

// surveyor is where settle's connections come from, and nothing else's.
var surveyor = netip.MustParseAddr("127.0.0.99")

// settle waits until each connection that was made to a far server is a hit: a
// listener takes them in the order in which they came.
func (w *World) settle() error {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(surveyor, 0)), Timeout: patience}
	for _, port := range w.ports {
		c, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return fmt.Errorf("the far server on port %d: %w", port, err)
		}
		c.SetDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
		c.Close()
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("the far server on port %d: %w", port, err)
		}
	}
	return nil
}

// Hits are the connections that were made since Reset.
func (w *World) Hits() []Hit {
	err := w.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	hits := slices.Clone(w.hits)
	if err != nil { // which no row expects
		hits = append(hits, Hit{At: err.Error()})
	}
	return hits
}

// Queries are the names looked up since Reset.
func (w *World) Queries() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.queries)
}

func (w *World) serveDNS(pc net.PacketConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		var p dnsmessage.Parser
		h, err := p.Start(buf[:n])
		if err != nil {
			continue
		}
		q, err := p.Question()
		if err != nil {
			continue
		}
		name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
		w.mu.Lock()
		w.queries = append(w.queries, name)
		f := w.zone[name]
		w.mu.Unlock()
		a := Answer{RCode: dnsmessage.RCodeNameError}
		if f != nil {
			a = f(q.Type)
		}
		if a.Drop {
			continue
		}
		msg := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: a.RCode},
			Questions: []dnsmessage.Question{q},
		}
		for _, s := range a.Addrs {
			ip, err := netip.ParseAddr(s)
			var body dnsmessage.ResourceBody
			switch {
			case err != nil && q.Type == dnsmessage.TypePTR:
				body = &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(s)}
			case err == nil && ip.Is4() && q.Type == dnsmessage.TypeA:
				body = &dnsmessage.AResource{A: ip.As4()}
			case err == nil && ip.Is6() && q.Type == dnsmessage.TypeAAAA:
				body = &dnsmessage.AAAAResource{AAAA: ip.As16()}
			default:
				continue
			}
			msg.Answers = append(msg.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0},
				Body:   body,
			})
		}
		if out, err := msg.Pack(); err == nil {
			pc.WriteTo(out, from)
		}
	}
}

func (w *World) accept(l net.Listener, serve func(net.Conn, *Hit)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); from.Unmap() == surveyor {
			c.Close()
			continue
		}
		at := c.LocalAddr().(*net.TCPAddr).AddrPort()
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		// Seen at once: the connection is the verdict, not what it says.
		w.mu.Lock()
		w.hits = append(w.hits, Hit{At: at.String()})
		i, row := len(w.hits)-1, w.row
		w.mu.Unlock()
		go func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(60 * time.Second))
			h := &Hit{At: at.String()}
			serve(c, h)
			w.mu.Lock()
			if row == w.row {
				w.hits[i] = *h
			}
			w.mu.Unlock()
		}()
	}
}

// serveHTTP answers each request with a marker that names the server, and the
// request head as it came.
func (w *World) serveHTTP(c net.Conn, h *Hit) {
	// One request: a connection that the gate kept would let one of a later row
	// through unseen.
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, _ := io.ReadAll(req.Body)
	var head bytes.Buffer
	req.Header.Write(&head)
	h.Data += req.Method + " " + req.URL.RequestURI() + " host=" + req.Host + "\n" + head.String() + string(body)
	if req.URL.Path == "/ws" && req.Header.Get("Upgrade") == "websocket" { // RFC 6455, as far as a gate could mind
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, c)
		return
	}
	if req.URL.Path == "/stream" {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n")
		<-w.Release
		fmt.Fprint(c, "data: 2\n\n")
		return
	}
	answer := fmt.Sprintf("MARKER at=%s host=%s", h.At, req.Host)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nServer: far\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
}

func (w *World) serveTLS(c net.Conn, h *Hit) {
	conf := w.tlsConf.Clone()
	conf.GetConfigForClient = func(hi *tls.ClientHelloInfo) (*tls.Config, error) {
		h.SNI = hi.ServerName
		return nil, nil
	}
	t := tls.Server(c, conf)
	if err := t.Handshake(); err != nil {
		h.Data = "no TLS"
		return
	}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		fmt.Fprintf(t, "MARKER at=%s h2", h.At)
		t.CloseWrite()
		io.Copy(io.Discard, t)
		return
	}
	w.serveHTTP(t, h)
}

// serveBanner speaks first, as SSH and SMTP servers do, and then echoes a line.
func (w *World) serveBanner(c net.Conn, h *Hit) {
	fmt.Fprintf(c, "SSH-2.0-MARKER at=%s\r\n", h.At)
	line, _ := bufio.NewReader(c).ReadString('\n')
	h.Data = line
}
