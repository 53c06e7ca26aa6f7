// Published ports, seen from inside. Where there is no network the host asks us
// for connections to them; where there is one, we look whether the servers can be
// reached over it.

package entrypoint

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// doorTime bounds a connection to a server inside, which answers at once unless
// its queue is full.
const doorTime = 10 * time.Second

// A door is the host's way to the published ports.
type door struct {
	conn  *net.UnixConn
	ports []uint16
}

// newDoor connects to the host. It comes before the command: who is there first is
// the one that the host listens to.
func newDoor(p spec.Publish) (*door, error) {
	name := filepath.Join(spec.Dir, spec.PublishName)
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err == nil {
		_, err = conn.Write([]byte(p.Hello))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the host for the published ports: %w", err)
	}
	return &door{conn: conn, ports: p.Ports}, nil
}

// serve answers for as long as the host asks.
func (d *door) serve() {
	slots := make(chan struct{}, spec.MaxCalls)
	buf := make([]byte, spec.PublishMessage)
	for {
		n, err := d.conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		c, err := spec.ParseCall(buf[:n])
		if err != nil {
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			d.answer(c)
		}()
	}
}

// answer connects, hands the connection out, and keeps nothing of it.
func (d *door) answer(c spec.Call) {
	r := spec.Reply{ID: c.ID}
	conn, err := d.dial(c.Port)
	var rights []byte
	if err == nil {
		defer conn.Close()
		var raw interface{ Control(func(uintptr)) error }
		if raw, err = conn.SyscallConn(); err == nil {
			err = raw.Control(func(fd uintptr) { rights = unix.UnixRights(int(fd)) })
		}
	}
	if err != nil {
		var errno unix.Errno
		if !errors.As(err, &errno) {
			errno = unix.ETIMEDOUT
		}
		r.Errno = uint32(errno) //nolint:gosec // small
	}
	_, _, _ = d.conn.WriteMsgUnix(r.Bytes(), rights, nil) // the host's end is ours
}

// dial tries both loopback addresses: a server that listens at "localhost" has
// one of them.
func (d *door) dial(port uint16) (*net.TCPConn, error) {
	if !slices.Contains(d.ports, port) {
		return nil, unix.EACCES
	}
	dialer := net.Dialer{Timeout: doorTime}
	dialer.SetMultipathTCP(false) // which the filter refuses
	var first error
	for _, to := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		c, err := dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(to, port).String())
		if err == nil {
			return c.(*net.TCPConn), nil //nolint:forcetypeassert // of a TCP network
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// lookTime is between two looks at who listens: a person waits for the page.
const lookTime = time.Second

// watchListeners tells the host of each published port whose server listens on
// loopback addresses alone: what comes over the network does not get there.
func (s *session) watchListeners(ports []uint16) {
	told := map[uint16]bool{}
	for len(told) < len(ports) {
		time.Sleep(lookTime)
		for port, alone := range loopbackListeners("/proc/self/net", ports) {
			if told[port] {
				continue
			}
			if !alone {
				continue // for now: it may be started anew
			}
			told[port] = true
			if s.send(spec.ToHost{LoopbackOnly: port}) != nil {
				return
			}
		}
	}
}

// loopbackListeners has those of the ports that are listened at, and whether that
// is on loopback addresses alone. Source: proc_net_tcp (the kernel's
// Documentation/networking/proc_net_tcp.rst).
func loopbackListeners(dir string, ports []uint16) map[uint16]bool {
	out := map[uint16]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // a kernel without IPv6, or a hint that is not given
		}
		for line := range strings.Lines(string(table)) {
			addr, ok := listener(line)
			if !ok || !slices.Contains(ports, addr.Port()) {
				continue
			}
			alone, seen := out[addr.Port()]
			out[addr.Port()] = addr.Addr().IsLoopback() && (alone || !seen)
		}
	}
	return out
}

// listener reads a line of the table.
func listener(line string) (netip.AddrPort, bool) {
	const listening = "0A" // TCP_LISTEN
	f := strings.Fields(line)
	if len(f) < 4 || f[3] != listening {
		return netip.AddrPort{}, false
	}
	host, port, _ := strings.Cut(f[1], ":")
	n, err := strconv.ParseUint(port, 16, 16)
	b, herr := hex.DecodeString(host)
	if err != nil || herr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	// Each four bytes are a number of this machine's, which are little-endian
	// wherever this runs (amd64, arm64).
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}
