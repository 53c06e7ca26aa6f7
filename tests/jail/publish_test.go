//go:build e2e

package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/tests/e2e/internet"
)

// shut tells whether nobody listens at an address.
func shut(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// A published port is reached from this machine and from nowhere else, whichever
// loopback address the server listens at; no other one is; the gate refuses as
// ever; and with the session the listener is gone.
func TestPublished(t *testing.T) {
	eachEngine(t, func(t *testing.T, b *box) {
		for _, listen := range []string{"127.0.0.1", "[::1]", "0.0.0.0"} {
			no := b.Host("no.test")
			at := drive.FreePort(t)
			script := "rm -f gate; { " + curl + "https://" + b.Host("ok.test") + "/; " + curl + "https://" + no + "/; ls -I GUIDE.md /run/aisb; } >gate 2>&1; " +
				"exec ./probe serve " + b.Token + " " + listen + ":5173 " + listen + ":5174"
			l := b.Start(t, "--report", filepath.Join(w.own, b.Token), "--publish", at+":5173", "--publish", ":5173", "--allow", b.Host("ok.test"), "--", "sh", "-c", script)
			body := l.Answers(t, "http://127.0.0.1:"+at)
			if !strings.HasPrefix(body, b.Token+"\n") || !regexp.MustCompile(`(?s)\nUid:\s+1000\s+1000\s+1000\s+1000\n.*\nCapPrm:\s+0+\nCapEff:\s+0+\nCapBnd:\s+0+\n.*\nNoNewPrivs:\s+1\n`).MatchString(body) {
				t.Errorf("the server is not uid 1000 without capabilities: %s", body)
			}
			if gate := b.File(t, "gate"); !strings.Contains(gate, w.net.Marker) || !strings.HasSuffix(gate, "000 403") {
				t.Errorf("the gate, and an empty control directory: %s", gate)
			}
			unseen(t, no)
			m := regexp.MustCompile(`(?m)^ai-sandbox: published http://127\.0\.0\.1:(\d+) -> 5173 inside$`).FindAllStringSubmatch(l.Err.String(), -1)
			if len(m) != 2 || m[0][1] != at {
				t.Fatalf("want two published ports: %q", l.Err.String())
			}
			free := m[1][1]
			if code, body := drive.Fetched("http://127.0.0.1:" + free); code != 200 || !strings.HasPrefix(body, b.Token) {
				t.Errorf("the free port %s: %d %s", free, code, body)
			}
			for _, addr := range []string{"127.0.0.1:5174", internet.Allowed + ":" + at, "[::1]:" + at, "127.0.0.2:" + at} {
				if !shut(addr) {
					t.Errorf("somebody listens at %s", addr)
				}
			}
			carries(t, b, "127.0.0.1:"+at)
			l.In.Close()
			r := l.Wait(30 * time.Second)
			if r.Code != 0 || strings.Contains(r.Err, "127.0.0.1 only") {
				t.Errorf("%s", r)
			}
			if !shut("127.0.0.1:"+at) || !shut("127.0.0.1:"+free) {
				t.Error("somebody listens still")
			}
			var rep struct {
				Published []struct {
					Addr     string `json:"addr"`
					HostPort int    `json:"host_port"`
					Port     int    `json:"port"`
				} `json:"published"`
			}
			text, err := os.ReadFile(filepath.Join(w.own, b.Token))
			if err == nil {
				err = json.Unmarshal(text, &rep)
			}
			if err != nil || len(rep.Published) != 2 || strconv.Itoa(rep.Published[0].HostPort) != at || strconv.Itoa(rep.Published[1].HostPort) != free || rep.Published[1].Port != 5173 || rep.Published[1].Addr != "127.0.0.1" {
				t.Errorf("the report: %v: %s", err, text)
			}
		}
	})
}

// carries checks what a proxy may get wrong: a protocol of its own, an end of one
// direction, a reset, many at once, idle ones, and more than are carried at a time.
func carries(t *testing.T, b *box, addr string) {
	t.Helper()
	idle := make([]net.Conn, 50)
	for i := range idle {
		var err error
		if idle[i], err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		defer idle[i].Close()
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	payload := strings.Repeat("0123456789abcdef", 1<<16)
	go func() {
		_, _ = io.WriteString(conn, payload)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	all, err := io.ReadAll(conn)
	if head, rest, _ := strings.Cut(string(all), "\r\n\r\n"); err != nil || !strings.HasPrefix(head, "HTTP/1.1 101 ") || rest != payload+"bye "+b.Token {
		t.Errorf("an upgraded connection with an end of one direction: %v: %q, %d bytes", err, head, len(rest))
	}
	if code, text := drive.Fetched("http://" + addr + "/reset"); code != 0 {
		t.Errorf("a reset looks like an end: %d %s", code, text)
	}
	for i, c := range idle {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
		if text, err := io.ReadAll(c); !strings.Contains(string(text), b.Token) {
			t.Fatalf("idle connection %d: %v %s", i, err, text)
		}
	}
	// 700 at once, of which 512 are carried: the others wait.
	var many []net.Conn
	defer func() {
		for _, c := range many {
			c.Close()
		}
	}()
	for range 700 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, c)
		fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	}
	for i, c := range many {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if text, err := io.ReadAll(c); !strings.Contains(string(text), b.Token) {
			t.Fatalf("connection %d of many: %v %s", i, err, text)
		}
		c.Close()
	}
}

// The listener goes with ai-sandbox also when that is killed.
func TestPublishedIsKilled(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	at := drive.FreePort(t)
	l := b.Start(t, "--ephemeral-home", "--publish", at+":5173", "--", "./probe", "serve", b.Token, "127.0.0.1:5173")
	l.Answers(t, "http://127.0.0.1:"+at)
	if err := l.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-l.Done
	drive.Eventually(t, 2*time.Second, "the end of the listener", func() bool { return shut("127.0.0.1:" + at) })
	b.OK("--net", "none", "--ephemeral-home", "--", "true") // it reaps; clean would forget what others have ended and still ask about
}

// Two sessions at once publish the same port, each its own, and a sandbox of up
// tells in its handle what it publishes.
func TestPublishedTwice(t *testing.T) {
	t.Parallel()
	a, b := newBox(t), newBox(t)
	at := drive.FreePort(t)
	l := a.Start(t, "--publish", at+":5173", "--", "./probe", "serve", a.Token, "127.0.0.1:5173")
	h := b.up(t, "--publish", ":5173", b.Dir, "--", "sh", "-c", "sleep 1000 | ./probe serve "+b.Token+" 127.0.0.1:5173")
	if len(h.Published) != 1 || h.Published[0].Port != 5173 || h.Published[0].Addr != "127.0.0.1" {
		t.Fatalf("the handle: %+v", h)
	}
	if body := l.Answers(t, "http://127.0.0.1:"+at); !strings.HasPrefix(body, a.Token+"\n") {
		t.Errorf("%s", body)
	}
	place := fmt.Sprintf("127.0.0.1:%d", h.Published[0].HostPort)
	if body := l.Answers(t, "http://"+place); !strings.HasPrefix(body, b.Token+"\n") {
		t.Errorf("%s", body)
	}
	// A third one that wants the first one's is told so, and nothing is started.
	c := newBox(t)
	if r := c.Run("--publish", at+":5173", "--", "touch", "ran"); r.Code != 125 || c.Size("ran") != 0 ||
		!oneError(r, `publish port 5173 at 127\.0\.0\.1:`+at+`: the host port is in use; see by whom with ss -ltnp 'sport = :`+at+`', or write --publish :5173 for a free one`) {
		t.Errorf("%s", r)
	}
	b.OK("down", h.ID)
	if !shut(place) {
		t.Error("somebody listens after down")
	}
}

// Another address is reached there, with a warning.
func TestPublishedToTheNetwork(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"198.51.100.14", "[::]", "0.0.0.0"} {
		b := newBox(t)
		port := drive.FreePort(t)
		l := b.Start(t, "--publish", at+":"+port+":5173", "--", "./probe", "serve", b.Token, "127.0.0.1:5173")
		place := strings.NewReplacer("[::]", "[2001:db8:1::11]", "0.0.0.0", "198.51.100.15").Replace(at) + ":" + port
		if body := l.Answers(t, "http://"+place); !strings.HasPrefix(body, b.Token+"\n") {
			t.Errorf("%s", body)
		}
		if at == "198.51.100.14" && !shut("127.0.0.1:"+port) {
			t.Error("127.0.0.1 answers too")
		}
		if !strings.Contains(l.Err.String(), "LAN-FACING: "+at+":"+port+":") {
			t.Errorf("no warning: %s", l.Err.String())
		}
		l.In.Close()
		l.Wait(30 * time.Second)
		if !shut(place) {
			t.Error("somebody listens still")
		}
	}
}

// What can't be published is refused before anything is started.
func TestPublishRefused(t *testing.T) {
	t.Parallel()
	const grammar = `; write PORT, HOST_PORT:PORT, ADDRESS:HOST_PORT:PORT or :PORT \(a free host port\) \(from --publish\)`
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"none":        {[]string{"--net", "none", "--publish", "5173"}, `with net none nothing is published; .*`},
		"host":        {[]string{"--net", "host", "--publish", "5173"}, `with net host a server inside listens on this machine's own ports, so there is nothing to publish; .*`},
		"two parts":   {[]string{"--publish", "127.0.0.1:8000"}, `publish 127.0.0.1:8000 has an address, which needs a host port and a port behind it` + grammar},
		"escape":      {[]string{"--publish", "\x1b[2J"}, `publish "\\x1b\[2J" has .*` + grammar},
		"address":     {[]string{"--publish", "5173", "--publish-addr", "localhost"}, `publish_addr localhost is not an IP address; .* \(from --publish-addr\)`},
		"not here":    {[]string{"--publish", "192.0.2.77:8000:5173"}, `publish port 5173 at 192.0.2.77:8000: this machine has no such address; .*`},
		"the relay's": {[]string{"--publish", "8000:3128"}, `publish 127.0.0.1:8000:3128 is the gate's own port inside; .*`},
		"root's":      {[]string{"--publish", "8000:80"}, `publish 127.0.0.1:8000:80 has a port inside at which only root can listen; .*`},
	} {
		b := newBox(t)
		if r := b.Run(append(tc.args, "--", "touch", "ran")...); r.Code != 125 || !oneError(r, tc.want) || b.Size("ran") != 0 {
			t.Errorf("%s: %s", name, r)
		}
		if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil {
			t.Errorf("%s: the command has run", name)
		}
	}
	// A project's file may not say where; and what to publish only when trusted.
	for _, text := range []string{"publish_addr = 0.0.0.0\n", "publish = 5173\n"} {
		b := newBox(t)
		if err := os.Mkdir(filepath.Join(b.Dir, ".ai-sandbox"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(b.Dir, ".ai-sandbox", "config"), text, 0o600)
		if r := b.Run("--", "touch", "ran"); r.Code != 125 {
			t.Errorf("a project's file says %s: %s", text, r)
		}
		if r := b.Run("trust", "--yes"); (r.Code == 0) != strings.HasPrefix(text, "publish =") {
			t.Errorf("trust of %s: %s", text, r)
		}
	}
	newBox(t).OK("--publish", drive.FreePort(t)+":5173", "--", "true") // the positive control
}
