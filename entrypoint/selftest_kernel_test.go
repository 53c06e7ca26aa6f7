//go:build kernel

package entrypoint

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

const (
	hello  = "0123456789abcdef0123456789abcdef"
	answer = "aisb-gate ready nonce=0123 policy=4567"
)

var gateTest = spec.GateTest{Host: "aisb-ready.invalid", Answer: answer}

// says answers every request with one text.
func says(text string) func(c *net.UnixConn) {
	return func(c *net.UnixConn) {
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		if strings.HasPrefix(string(b[:n]), "GET http://aisb-ready.invalid/ HTTP/1.1\r\n") {
			io.WriteString(c, text)
		}
	}
}

// TestGateIsTested: the command runs when the gate has answered with what is expected
// of it, and not otherwise.
func TestGateIsTested(t *testing.T) {
	jail := func(t *testing.T, command ...string) *box { return newJail(t, 0, command...) }
	for _, make := range []func(*testing.T, ...string) *box{newBox, jail} {
		for _, c := range []struct {
			name, text, reason string
		}{
			{"right", "HTTP/1.1 403 Forbidden\r\n\r\n" + answer + "\n", ""},
			{"nonce", "HTTP/1.1 403 Forbidden\r\n\r\n" + strings.Replace(answer, "0123", "3210", 1), "has not this session's nonce"},
			{"policy", "HTTP/1.1 403 Forbidden\r\n\r\n" + strings.Replace(answer, "4567", "7654", 1), "has not this session's nonce and the hash of its policy"},
			{"silent", "", "the gate does not answer"},
		} {
			b := make(t, "touch", "/proj/ran")
			withRelay(b, says(c.text))
			b.test = &gateTest
			b.begin()
			f := b.recv()
			if c.reason == "" {
				if b.tested == 0 {
					t.Errorf("%s: it does not tell how long it took", c.name)
				}
				if !f.Started || b.recv().Exited == nil || b.end() != 0 {
					t.Errorf("%s: %+v", c.name, f)
				}
				continue
			}
			if f.Refused == nil || f.Refused.Code != spec.ExitUnenforced || f.Refused.Control != "gate" || !strings.Contains(f.Refused.Reason, c.reason) {
				t.Errorf("%s: %+v", c.name, f)
			}
			if code := b.end(); code != spec.ExitUnenforced {
				t.Errorf("%s: exit code %d", c.name, code)
			}
			if _, err := os.Stat(b.path("proj/ran")); err == nil {
				t.Errorf("%s: the command ran", c.name)
			}
		}
	}
}

// TestCanary: a sandbox in which the canary can be heard, or could not have been, is
// refused.
func TestCanary(t *testing.T) {
	b := newBox(t, "touch", "/proj/ran")
	b.Spec.Canary = &spec.Canary{Port: 9, Hello: hello}
	b.refused(spec.ExitUnenforced, "network", "the host's canary does not answer before the ruleset is there")

	b = newJail(t, 0, "true")
	b.Spec.Firewall = spec.Firewall{Mode: spec.ModeNone}
	b.Spec.Canary = &spec.Canary{Port: 9, Hello: hello}
	if _, e := b.run(); e.Code != 0 {
		t.Errorf("a jail without a network: %+v", e)
	}

	// A jail in which something answers at the canary's port.
	b = newJail(t, 0, "touch", "/proj/ran")
	b.sing("127.0.0.1", hello, false)
	b.refused(spec.ExitUnenforced, "network", "a port of the host's that is not the gate's still answers")

	// In a container, an address of its own stands for the host's: no ruleset is in the
	// way to it.
	for _, c := range []struct {
		says   string
		once   bool
		reason string
	}{
		{strings.Repeat("f", len(hello)), false, "something else answers in the place of the host's canary: \"ffff"},
		{hello, false, "a port of the host's that is not the gate's still answers"},
		{hello, true, "the kernel did not tell of a packet that it refused"},
	} {
		b = newBox(t, "touch", "/proj/ran")
		b.Spec.Firewall.GateAddr = "169.254.77.2"
		b.sing(b.Spec.Firewall.GateAddr, c.says, c.once)
		b.refused(spec.ExitUnenforced, "network", c.reason)
		if _, err := os.Stat(b.path("proj/ran")); err == nil {
			t.Errorf("%s: the command ran", c.reason)
		}
	}
}

// sing puts a canary into the sandbox's own network before its entrypoint looks for it,
// which says something else than is wanted of it, or is gone once it has been heard.
func (b *box) sing(addr, says string, once bool) {
	b.Spec.Canary = &spec.Canary{Hello: hello}
	b.before = func() {
		b.t.Helper()
		l := b.listenInside(addr)
		b.t.Cleanup(func() { l.Close() })
		b.Spec.Canary.Port = uint16(l.Addr().(*net.TCPAddr).Port)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if once {
					l.Close()
				}
				io.WriteString(c, says)
				c.Close()
			}
		}()
	}
}

// listenInside listens in the network namespace of the sandbox, once the address is there
// and can be reached.
func (b *box) listenInside(addr string) net.Listener {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l, err := b.tryInside(addr)
		if err == nil {
			return l
		}
		if time.Now().After(end) {
			b.t.Fatal(err)
		}
	}
}

func (b *box) tryInside(addr string) (net.Listener, error) {
	pid := b.cmd.Process.Pid
	if b.opts != nil { // bubblewrap's child
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return nil, err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return nil, err
		}
	}
	var ours, its unix.Stat_t
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	if err := errors.Join(unix.Stat("/proc/self/ns/net", &ours), unix.Stat(path, &its)); err != nil {
		return nil, err
	}
	if ours.Ino == its.Ino {
		return nil, errors.New("it has no network of its own yet")
	}
	ns, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	// The thread must not end there: it may be the one that bubblewrap dies with.
	runtime.LockOSThread()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer func() {
		b.must(unix.Setns(int(home.Fd()), unix.CLONE_NEWNET))
		runtime.UnlockOSThread()
	}()
	l, err := net.Listen("tcp4", net.JoinHostPort(addr, "0"))
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp4", l.Addr().String(), time.Second)
	if err == nil {
		defer c.Close()
		var accepted net.Conn
		if accepted, err = l.Accept(); err == nil {
			accepted.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
