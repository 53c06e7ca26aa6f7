package relay

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// through starts a TCP server, a relay to it, and returns a way to connect.
func through(t *testing.T, serve func(*net.TCPConn)) (dial func() *net.UnixConn, r *Relay) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	path := filepath.Join(t.TempDir(), "s")
	ul, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r = New(netip.MustParseAddrPort(l.Addr().String()), os.Getuid())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ul) }()
	t.Cleanup(func() {
		r.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return func() *net.UnixConn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		return c.(*net.UnixConn)
	}, r
}

// Bytes arrive as they are, both ways, and an end of one way leaves the other.
func TestRelay(t *testing.T) {
	dial, _ := through(t, func(c *net.TCPConn) {
		defer c.Close()
		got, err := io.ReadAll(c) // the end of the client's half
		if err != nil {
			return
		}
		c.Write(got)
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			want := make([]byte, 1+i*20_000)
			rand.Read(want)
			c := dial()
			defer c.Close()
			c.Write(want)
			c.CloseWrite()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: got %d, %v", len(want), len(got), err)
			}
		})
	}
	wg.Wait()
}

// Close ends what is open, and a gate that is not there is an end at once.
func TestClose(t *testing.T) {
	dial, r := through(t, func(c *net.TCPConn) { fmt.Fprintln(c, "hello") })
	c := dial()
	defer c.Close()
	b := make([]byte, 6)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := c.Read(b); err == nil {
		t.Error("the connection outlives the relay")
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("serves after its end: %v", err)
	}
}

// A process of another user gets nothing through.
func TestOtherUser(t *testing.T) {
	dial, r := through(t, func(c *net.TCPConn) { fmt.Fprintln(c, "hello"); c.Close() })
	read := func() string {
		c := dial()
		defer c.Close()
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := read(); got != "hello\n" {
		t.Fatalf("the user's own: %q", got)
	}
	r.uid++
	if got := read(); got != "" {
		t.Errorf("another user's: %q", got)
	}
}
