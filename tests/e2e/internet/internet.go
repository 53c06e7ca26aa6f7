// Package internet is the far side of the end-to-end tests and of the demo in
// the test host: a DNS server that records every question, web servers with
// names and a certificate authority of their own, and servers at addresses that
// a sandbox must never reach. A verdict is what these saw.
//
// Everything is at addresses of the test host's own network namespace
// (tests/host): public-looking ones, so that no test depends on an exception,
// and private ones, so that a refusal is the gate's and not a missing route.
package internet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Addresses of the test host.
const (
	// DNS is where names are resolved (host run --dns-test).
	DNS = "198.51.100.53"
	// Allowed is what the names below ok.test lead to, Refused what those
	// below no.test lead to.
	Allowed  = "198.51.100.10"
	Refused  = "198.51.100.11"
	Refused6 = "2001:db8:1::11"
	// Private and Metadata are what a name on the list must not lead to.
	Private  = "10.99.0.10"
	Metadata = "169.254.169.254"
)

// A Hit is something that reached a far server.
type Hit struct {
	At   string // local address and port
	Net  string // "tcp", "udp" or "http"
	Host string // of an HTTP request
	SNI  string
	Path string
	Via  string // the headers Via, Forwarded and X-Forwarded-For, joined
	Data string // first bytes of anything else
}

// An Internet is all far servers of one run.
type Internet struct {
	// Marker is in every answer, and nobody else knows it.
	Marker string

	ca       *authority
	upstream string
	root     string // files under /files/, or ""

	mu      sync.Mutex
	hits    []Hit
	queries []string
	closers []func() error
}

// Options of Start.
type Options struct {
	// CADir keeps the certificate authority: its certificate is part of the
	// images, and a new one for each run would build them again.
	CADir string
	// Upstream is the name server that answers for every other name, or "".
	Upstream string
	// Files is served below /files/, or "".
	Files string
}

// Start brings the servers up.
func Start(o Options) (*Internet, error) {
	ca, err := loadAuthority(o.CADir)
	if err != nil {
		return nil, err
	}
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	in := &Internet{Marker: "marker-" + hex.EncodeToString(b[:]), ca: ca, upstream: o.Upstream, root: o.Files}
	steps := []func() error{in.startDNS}
	for _, ip := range []string{Allowed, Refused, Private, Metadata} {
		steps = append(steps, func() error { return in.startWeb(ip) })
	}
	steps = append(steps,
		func() error { return in.startWeb("127.0.0.1:8888") },
		func() error { return in.startWeb("[" + Refused6 + "]") },
	)
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, in.Close())
		}
	}
	return in, nil
}

// Close ends the servers.
func (in *Internet) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	var errs []error
	for _, c := range in.closers {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	in.closers = nil
	return errors.Join(errs...)
}

func (in *Internet) onClose(f func() error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closers = append(in.closers, f)
}

func (in *Internet) record(h Hit) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hits = append(in.hits, h)
}

// Hits are those that mention token, in the host, the path, the SNI or the
// data; all of them when token is "". Tests that run side by side tell their
// own by it.
func (in *Internet) Hits(token string) []Hit {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []Hit
	for _, h := range in.hits {
		if token == "" || strings.Contains(h.Host+" "+h.SNI+" "+h.Path+" "+h.Data, token) {
			out = append(out, h)
		}
	}
	return out
}

// Queries are the questions to the DNS server that mention token, as
// "name TYPE".
func (in *Internet) Queries(token string) []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []string
	for _, q := range in.queries {
		if strings.Contains(q, strings.ToLower(token)) {
			out = append(out, q)
		}
	}
	return out
}

// A Listener is a server of one test's own: whatever reaches it is that test's.
type Listener struct {
	Addr string // address and port

	mu    sync.Mutex
	count int
	close func() error
}

// Count is how many connections or datagrams have come.
func (l *Listener) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Close ends it.
func (l *Listener) Close() error { return l.close() }

func (l *Listener) seen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
}

// Listen answers TCP connections at addr ("ip:0" picks a port) with the marker.
func (in *Internet) Listen(addr string) (*Listener, error) {
	s, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for a test: %w", err)
	}
	l := &Listener{Addr: s.Addr().String(), close: s.Close}
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			l.seen()
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // a test server: the write tells
				fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\n%s\n", in.Marker)
				if t, ok := c.(*net.TCPConn); ok {
					_ = t.CloseWrite()
				}
				buf := make([]byte, 512)
				_, _ = c.Read(buf) // what a client sends before it is done must not end in a reset
			}()
		}
	}()
	return l, nil
}

// ListenUDP answers datagrams at addr with the marker.
func (in *Internet) ListenUDP(addr string) (*Listener, error) {
	s, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for a test: %w", err)
	}
	l := &Listener{Addr: s.LocalAddr().String(), close: s.Close}
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := s.ReadFrom(buf)
			if err != nil {
				return
			}
			l.seen()
			_, _ = s.WriteTo([]byte(in.Marker), from) // the client's end tells
		}
	}()
	return l, nil
}

// WriteCA writes the certificates of our authority and of the files in more
// (bundles that are trusted as well) to path.
func (in *Internet) WriteCA(path string, more ...string) error {
	out := append([]byte{}, in.ca.pem...)
	for _, name := range more {
		b, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a CA bundle: %w", err)
		}
		out = append(append(out, '\n'), b...)
	}
	old, err := os.ReadFile(path)
	if err == nil && string(old) == string(out) {
		return nil
	}
	if err := os.WriteFile(path, out, 0o644); err != nil {
		return fmt.Errorf("write the CA bundle: %w", err)
	}
	return nil
}

// Asked tells whether a web server was asked for a path.
func (in *Internet) Asked(path string) bool {
	return slices.ContainsFunc(in.Hits(path), func(h Hit) bool { return h.Net == "http" && strings.TrimPrefix(h.Path, "/") == path })
}

// Reached tells whether a web server was asked for anything of a host.
func (in *Internet) Reached(host string) bool {
	return slices.ContainsFunc(in.Hits(host), func(h Hit) bool { return h.Net == "http" })
}
