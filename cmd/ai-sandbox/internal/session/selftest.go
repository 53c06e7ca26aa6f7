// The host's side of a start's self-test.

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// A canary answers at a port of 127.0.0.1 for the time of a start.
type canary struct {
	spec.Canary
	l net.Listener
}

// singTime is how long a word to or from the canary may take: not long for a machine that
// is busy with other starts.
const singTime = 15 * time.Second

// newCanary is nil where nothing is shut.
func (r *run) newCanary() (*canary, error) {
	if r.req.Policy.Net.Mode == policy.NetHost {
		return nil, nil
	}
	l, err := listenApart(r.taken)
	if err != nil {
		return nil, fmt.Errorf("listen for the start's self-test: %w", err)
	}
	c := &canary{l: l}
	c.Port, c.Hello = uint16(l.Addr().(*net.TCPAddr).Port), nonce() //nolint:gosec,forcetypeassert // of a TCP network
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, say
				time.Sleep(time.Millisecond)
				continue
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(singTime))
				_, _ = io.WriteString(conn, c.Hello) // who does not read it has no answer
			}()
		}
	}()
	return c, nil
}

// close ends it; it may be called again.
func (c *canary) close() {
	if c != nil {
		c.l.Close()
	}
}

// sings tells whether it answers here, where nothing is in its way: else its silence
// inside says nothing.
func (c *canary) sings() error {
	if c == nil {
		return nil
	}
	got := ""
	conn, err := (&net.Dialer{Timeout: singTime}).DialContext(context.Background(), "tcp4", c.l.Addr().String())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(singTime))
		var text []byte
		text, err = io.ReadAll(io.LimitReader(conn, int64(len(c.Hello))+1))
		got = string(text)
	}
	if err == nil && got == c.Hello {
		return nil
	}
	why := "something else answers in its place"
	if err != nil {
		why = err.Error()
	}
	return &refusedError{spec.Refused{Code: ExitUnenforced, Control: "network",
		Reason: "the host's canary does not answer on the host, so its silence inside says nothing: " + why}}
}

// gateTest is what the entrypoint has to hear from the gate before it starts the
// command.
func (r *run) gateTest() *spec.GateTest {
	if r.gate == nil {
		return nil
	}
	return &spec.GateTest{Host: gate.ReadyHost, Answer: r.gate.config().ReadyLine()}
}

// tested adds to the time that the self-test has taken, here and inside.
func (r *run) tested(took time.Duration) {
	if r.canary == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Timings["selftest"] += float64(took.Microseconds()) / 1000
}
