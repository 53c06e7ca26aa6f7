package builtin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestChange: what a change shuts is ended at once, and what it leaves open does not
// notice.
func TestChange(t *testing.T) {
	both(t, func(t *testing.T, onUnix bool) {
		release := make(chan struct{})
		slow := func(c *net.TCPConn) {
			b := make([]byte, 1)
			if _, err := c.Read(b); err == nil && b[0] == 'G' { // a plain request
				headOf(t, c)
				io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
				<-release
				return
			}
			c.Write(b)
			io.Copy(c, c)
		}
		f, other := startFar(t, slow), startFar(t, slow)
		defer close(release)
		c := Config{Nonce: "n0nce", PolicyHash: "sha256:0", UID: os.Getuid(), AllowPrivate: entries(t, f.addr, other.addr)}
		g, addr := start(t, nil, options{unix: onUnix, config: func(to *Config) { *to = c }})
		echo := func(c net.Conn) error {
			if _, err := io.WriteString(c, "x"); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(patience))
			_, err := io.ReadFull(c, make([]byte, 1))
			return err
		}
		gone, stays := openTunnel(t, addr, f.addr), openTunnel(t, addr, other.addr)
		plain := dial(t, addr)
		fmt.Fprintf(plain, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", f.addr)
		if line, err := bufio.NewReader(plain).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("%q, %v", line, err)
		}
		if err := errors.Join(echo(gone), echo(stays)); err != nil {
			t.Fatal(err)
		}

		c.AllowPrivate, c.PolicyHash = entries(t, other.addr), "sha256:1"
		cut, err := g.Change(c)
		if err != nil || cut != 2 {
			t.Fatalf("%d connections were ended, %v", cut, err)
		}
		ended(t, gone)
		ended(t, plain)
		if err := echo(stays); err != nil {
			t.Errorf("a tunnel to a host that is still let through: %v", err)
		}
		if got := ask(t, addr, "CONNECT "+f.addr+" HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
			t.Errorf("a new one to the other: %q", got)
		}
		if got := ask(t, addr, readyGet); !strings.Contains(got, "policy=sha256:1") {
			t.Errorf("it answers %q", got)
		}

		c.AllowPrivate, c.PolicyHash = entries(t, other.addr, f.addr), "sha256:2"
		if cut, err := g.Change(c); err != nil || cut != 0 {
			t.Errorf("%d connections were ended, %v", cut, err)
		}
		if err := errors.Join(echo(openTunnel(t, addr, f.addr)), echo(stays)); err != nil {
			t.Errorf("let through again: %v", err)
		}
	})
}

// TestChangeByName: a tunnel is ended for the name in its hello, too.
func TestChangeByName(t *testing.T) {
	f := startFar(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	c := Config{Nonce: "n", PolicyHash: "1", UID: os.Getuid(), Allow: entries(t, "a.test:"+f.port(), "b.test:"+f.port()), AllowPrivate: entries(t, f.addr)}
	g, addr := start(t, nil, options{config: func(to *Config) { *to = c }, limits: func(l *limits) { l.serverFirst = patience }})
	a, b := openTunnel(t, addr, f.addr), openTunnel(t, addr, f.addr)
	io.WriteString(a, helloOf(t, "a.test"))
	io.WriteString(b, helloOf(t, "b.test"))
	until(t, "the gate has both in hand", func() bool { // the far server sees them before
		g.mu.Lock()
		defer g.mu.Unlock()
		n := 0
		for s := range g.sessions {
			s.mu.Lock()
			if s.up != nil {
				n++
			}
			s.mu.Unlock()
		}
		return n == 2
	})
	c.Allow = entries(t, "b.test:"+f.port())
	if n, err := g.Change(c); err != nil || n != 1 {
		t.Fatalf("%d connections were ended, %v", n, err)
	}
	ended(t, a)
	b.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the other one: %v", err)
	}
}
