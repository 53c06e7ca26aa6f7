//go:build kernel

package entrypoint

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"

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
}
