// The kernel's account of packets that the ruleset refused (NFLOG). It is opened with
// the privileges that the ruleset needs, and is read without them.

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/spec"
)

// Of linux/netfilter/nfnetlink_log.h, which x/sys/unix has not.
const (
	logPacket = 0 // NFULNL_MSG_PACKET
	logConfig = 1 // NFULNL_MSG_CONFIG

	cfgCommand = 1 // NFULA_CFG_CMD
	cfgMode    = 2 // NFULA_CFG_MODE
	cfgQueue   = 5 // NFULA_CFG_QTHRESH

	commandBind = 1 // NFULNL_CFG_CMD_BIND
	copyPacket  = 2 // NFULNL_COPY_PACKET

	attrPayload = 9 // NFULA_PAYLOAD
)

// snapLen is how much of a packet is looked at, in bytes: the longest headers that are
// read here.
const snapLen = 128

// A Packet is where one that was refused would have gone.
type Packet struct {
	Proto string // "tcp", "udp" or "icmp"
	Dst   netip.Addr
	Port  uint16 // 0 for icmp
}

// A Log hears of refused packets.
type Log struct {
	conn *netlink.Conn
	raw  syscall.RawConn
	// mu is held from when something is taken out of the socket until it is counted.
	mu sync.Mutex
}

// ErrLost: the kernel had more to tell than there was room for.
var ErrLost = errors.New("not every refused packet was told")

// OpenLog listens to firewall.LogGroup of this network namespace.
func OpenLog() (*Log, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netfilter's netlink: %w", err)
	}
	mode := binary.BigEndian.AppendUint32(nil, snapLen)
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: cfgCommand, Data: []byte{commandBind}},
		{Type: cfgMode, Data: append(mode, copyPacket, 0)},
		// At once: the default is to wait for a hundred of them, or a second.
		{Type: cfgQueue, Data: []byte{0, 0, 0, 1}},
	})
	if err == nil {
		header := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, firewall.LogGroup}
		_, err = c.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_ULOG<<8 | logConfig, Flags: netlink.Request | netlink.Acknowledge},
			Data:   append(header, attrs...),
		})
	}
	var raw syscall.RawConn
	if err == nil {
		raw, err = c.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the kernel's log of refused packets (%s nfnetlink_log): %w", spec.MissingModule, err), c.Close())
	}
	return &Log{conn: c, raw: raw}, nil
}

// Read waits for refused packets, and gives them to count. ErrLost comes without any,
// and the next call goes on.
func (l *Log) Read(count func([]Packet)) error {
	var err error
	rerr := l.raw.Read(func(fd uintptr) bool {
		err = l.take(int(fd), count)
		return !errors.Is(err, unix.EAGAIN)
	})
	return logError(errors.Join(rerr, err))
}

// Rest gives the packets to count that have been told by now and not counted. It does
// not wait.
func (l *Log) Rest(count func([]Packet)) error {
	var err error
	rerr := l.raw.Control(func(fd uintptr) {
		for err == nil {
			err = l.take(int(fd), count)
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return logError(errors.Join(rerr, err))
}

func (l *Log) take(fd int, count func([]Packet)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, err := receive(fd)
	if len(list) > 0 {
		count(list)
	}
	return err
}

func logError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOBUFS):
		return ErrLost
	}
	return fmt.Errorf("read the kernel's log of refused packets: %w", err)
}

func receive(fd int) ([]Packet, error) {
	buf := make([]byte, 8<<10) // one message has one packet, and is of snapLen and some
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	msgs, err := syscall.ParseNetlinkMessage(buf[:n])
	if err != nil {
		return nil, nil //nolint:nilerr // it was cut short, or is none
	}
	var out []Packet
	for _, m := range msgs {
		if m.Header.Type != unix.NFNL_SUBSYS_ULOG<<8|logPacket || len(m.Data) < 4 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			continue
		}
		for ad.Next() {
			if ad.Type() == attrPayload {
				if p, ok := ParsePacket(ad.Bytes()); ok {
					out = append(out, p)
				}
			}
		}
	}
	return out, nil
}

// logTime bounds the wait for a packet that was refused just now.
const logTime = 2 * time.Second

// Expect reads until it has heard of a packet, and returns an error when it does not.
func (l *Log) Expect(want Packet) error {
	if err := l.conn.SetReadDeadline(time.Now().Add(logTime)); err != nil {
		return fmt.Errorf("wait for a refused packet: %w", err)
	}
	for found := false; !found; {
		err := l.Read(func(list []Packet) { found = found || slices.Contains(list, want) })
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("the kernel did not tell of a packet that it refused, to %s port %d", want.Dst, want.Port)
		}
		if err != nil {
			return err
		}
	}
	if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for a refused packet: %w", err)
	}
	return nil
}

// ParsePacket reads the headers of a packet that a process has sent: the first one of
// a TCP connection, a datagram, or a ping. What the kernel sends by itself (neighbours,
// groups, resets) is none of these.
func ParsePacket(b []byte) (Packet, bool) {
	if len(b) == 0 {
		return Packet{}, false
	}
	var p Packet
	var proto byte
	var rest []byte
	switch b[0] >> 4 {
	case 4:
		size := int(b[0]&0xf) * 4
		if size < 20 || len(b) < size {
			return Packet{}, false
		}
		proto, p.Dst, rest = b[9], netip.AddrFrom4([4]byte(b[16:20])), b[size:]
	case 6:
		if len(b) < 40 {
			return Packet{}, false
		}
		// A process needs a privilege for headers in between.
		proto, p.Dst, rest = b[6], netip.AddrFrom16([16]byte(b[24:40])), b[40:]
	default:
		return Packet{}, false
	}
	const syn, ack = 0x02, 0x10
	const echo, echo6 = 8, 128
	switch {
	case proto == unix.IPPROTO_TCP && len(rest) >= 14 && rest[13]&(syn|ack) == syn:
		p.Proto, p.Port = "tcp", binary.BigEndian.Uint16(rest[2:4])
	case proto == unix.IPPROTO_UDP && len(rest) >= 4:
		p.Proto, p.Port = "udp", binary.BigEndian.Uint16(rest[2:4])
	case proto == unix.IPPROTO_ICMP && len(rest) > 0 && rest[0] == echo,
		proto == unix.IPPROTO_ICMPV6 && len(rest) > 0 && rest[0] == echo6:
		p.Proto = "icmp"
	default:
		return Packet{}, false
	}
	return p, true
}
