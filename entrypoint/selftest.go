// The self-test of a start: the host's canary answers before the ruleset is there and
// not after, and the gate answers through what is left.

package entrypoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/netfilter"
	"ai-sandbox/entrypoint/spec"
)

// selfTestTime bounds one try. Each takes a millisecond or two.
const selfTestTime = 15 * time.Second

// maxAnswer bounds what is read of the gate's answer, in bytes.
const maxAnswer = 64 << 10

// dialTest connects, for a test.
func dialTest(to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: selfTestTime}
	d.SetMultipathTCP(false) // which the filter refuses
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(selfTestTime))
}

// canaryAt is where the canary would be reached from inside.
func canaryAt(sp *spec.Spec) (netip.AddrPort, error) {
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if sp.Firewall.Mode == spec.ModeGated {
		var err error
		if addr, err = netip.ParseAddr(sp.Firewall.GateAddr); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(addr, sp.Canary.Port), nil
}

// canarySings wants an answer, before there is a ruleset.
func canarySings(sp *spec.Spec) error {
	if sp.Canary == nil || sp.Firewall.Mode != spec.ModeGated {
		return nil // without a network there is no way to it, ever
	}
	to, err := canaryAt(sp)
	if err != nil {
		return err
	}
	c, err := dialTest(to)
	if err != nil {
		return fmt.Errorf("the host's canary does not answer before the ruleset is there, so its silence after that would say nothing: %w", err)
	}
	defer c.Close()
	got, err := io.ReadAll(io.LimitReader(c, maxAnswer))
	if err != nil {
		return fmt.Errorf("hear the host's canary before the ruleset is there: %w", err)
	}
	if string(got) != sp.Canary.Hello {
		return fmt.Errorf("something else answers in the place of the host's canary: %.40q", got)
	}
	return nil
}

// canaryIsSilent wants a refusal, and with a network to hear of it.
func canaryIsSilent(sp *spec.Spec, log *netfilter.Log) error {
	if sp.Canary == nil {
		return nil
	}
	to, err := canaryAt(sp)
	if err != nil {
		return err
	}
	c, err := dialTest(to)
	switch {
	case err == nil:
		c.Close()
		return errors.New("a port of the host's that is not the gate's still answers (the canary of the start)")
	case !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENETUNREACH):
		return fmt.Errorf("try the host's canary: %w", err)
	case log == nil:
		return nil
	}
	return log.Expect(netfilter.Packet{Proto: "tcp", Dst: to.Addr(), Port: to.Port()})
}

// testGate asks the gate, the way that the command will.
func testGate(sp *spec.Spec, want spec.GateTest) error {
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	switch {
	case sp.Firewall.Mode == spec.ModeGated:
		addr, err := netip.ParseAddr(sp.Firewall.GateAddr)
		if err != nil {
			return err
		}
		to = netip.AddrPortFrom(addr, sp.Firewall.GatePort)
	case sp.Relay != nil:
		to = netip.AddrPortFrom(to.Addr(), sp.Relay.Port)
	default:
		return errors.New("there is no way to a gate")
	}
	got, err := askGate(to, want.Host)
	switch {
	case bytes.Contains(got, []byte(want.Answer)):
		return nil
	case err == nil && len(got) > 0:
		return errors.New("what answers in the gate's place has not this session's nonce and the hash of its policy")
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the gate does not answer: %w", err)
}

// askGate makes a plain request for a host, and returns all that comes back.
func askGate(to netip.AddrPort, host string) ([]byte, error) {
	c, err := dialTest(to)
	if err != nil {
		return nil, fmt.Errorf("reach the gate: %w", err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET http://%[1]s/ HTTP/1.1\r\nHost: %[1]s\r\nConnection: close\r\n\r\n", host); err != nil {
		return nil, fmt.Errorf("ask the gate: %w", err)
	}
	return io.ReadAll(io.LimitReader(c, maxAnswer))
}
