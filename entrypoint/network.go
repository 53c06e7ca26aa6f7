// Looks at the network beyond the ruleset: what devices and routes there are,
// and that a packet really is refused.

package entrypoint

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/netfilter"
	"ai-sandbox/entrypoint/spec"
)

// discard is RFC 863's port, where nothing answers.
const discard = 9

// checkDevices refuses a network with more ways out than the one that was asked
// for. Devices that are down do not count: some kernels put their tunnels into
// every new namespace, and nobody inside can bring one up.
func checkDevices(mode string) error {
	table, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var up []string
	loopback := false
	for line := range strings.Lines(string(table)) {
		name, _, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok {
			continue // the two lines of headings have no colon
		}
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
			return fmt.Errorf("flags of %s: %w", name, err)
		}
		switch isUp := ifr.Uint16()&unix.IFF_UP != 0; {
		case name == "lo":
			loopback = isUp
		case isUp:
			up = append(up, name)
		}
	}
	most := 0
	if mode == spec.ModeGated {
		most = 1
	}
	if len(up) > most {
		return fmt.Errorf("devices %q are up, where mode %s has %d", up, mode, most)
	}
	if mode == spec.ModeUnix && !loopback {
		return errors.New("the loopback device is down, and nobody could reach the relay")
	}
	return nil
}

// checkRoutes refuses a route over anything but the loopback device.
func checkRoutes() error {
	for _, f := range []struct {
		file   string
		column int // that names the device: the first one, or (for IPv6) the last
	}{{"/proc/self/net/route", 0}, {"/proc/self/net/ipv6_route", 9}} {
		table, err := os.ReadFile(f.file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return err
		}
		if via := foreignRoute(string(table), f.column); via != "" {
			return fmt.Errorf("there is a route over %s", via)
		}
	}
	return nil
}

// foreignRoute returns the device of a route that is not over loopback, or "".
func foreignRoute(table string, column int) string {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "Iface" {
			continue
		}
		if len(f) <= column {
			return fmt.Sprintf("a device that a line does not tell: %q", line)
		}
		if f[column] != "lo" {
			return f[column]
		}
	}
	return ""
}

// probe sends one datagram where nothing may go, and hears of it in the log. Without
// a route (modes unix and none) there is nothing to try.
func probe(f spec.Firewall, log *netfilter.Log) error {
	if f.Mode != spec.ModeGated {
		return nil
	}
	addr, err := netip.ParseAddr(f.GateAddr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The verdict of the output hook is the call's own result.
	err = unix.Sendto(fd, nil, 0, &unix.SockaddrInet4{Port: discard, Addr: addr.As4()})
	switch {
	case errors.Is(err, unix.EPERM):
		return log.Expect(netfilter.Packet{Proto: "udp", Dst: addr, Port: discard})
	case err != nil:
		return fmt.Errorf("try a datagram past the gate: %w", err)
	}
	return errors.New("a datagram past the gate was not refused")
}
