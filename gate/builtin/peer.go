// Who is at the other end of a client's connection.

package builtin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// errStranger is why a connection is refused whose client is another user, or
// may be.
var errStranger = errors.New("the client belongs to another user")

// checkPeer returns nil where the client of c belongs to the user uid, and an
// error otherwise, also where that cannot be told.
func checkPeer(c conn, uid int) error {
	owner, err := peerOf(c)
	if err != nil {
		return err
	}
	if owner != uint32(uid) {
		return fmt.Errorf("%w: %d", errStranger, owner)
	}
	return nil
}

func peerOf(c conn) (uint32, error) {
	if _, ok := c.stream.(*net.UnixConn); ok {
		var cred *unix.Ucred
		var err error
		if cerr := c.raw.Control(func(fd uintptr) {
			cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}); cerr != nil {
			return 0, cerr
		}
		if err != nil {
			return 0, fmt.Errorf("ask for the client's credentials: %w", err)
		}
		return cred.Uid, nil
	}
	client, ok1 := c.RemoteAddr().(*net.TCPAddr)
	gate, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return 0, errors.New("the client's socket is neither unix nor TCP")
	}
	return tcpOwner(client.AddrPort(), gate.AddrPort())
}

// tcpOwner asks the kernel who owns the TCP socket of this network namespace
// that is at local and connected to remote (sock_diag(7), inet_diag.h).
//
// A socket that no process holds any more has no inode, and its owner reads as
// root's: nobody is known to own it.
func tcpOwner(local, remote netip.AddrPort) (uint32, error) {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, fmt.Errorf("open a sock_diag socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, fmt.Errorf("limit how long sock_diag may take: %w", err)
	}
	if err := unix.Sendto(fd, diagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask sock_diag: %w", err)
	}
	var b [1024]byte
	for {
		n, from, err := unix.Recvfrom(fd, b[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read sock_diag's answer: %w", err)
		}
		if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
			continue // not the kernel's
		}
		return diagOwner(b[:n], local, remote)
	}
}

// Sizes and places in inet_diag.h and netlink.h. Ports and addresses are in the
// network's byte order there, all else is in the machine's.
const (
	nlHeader   = 16
	diagIDSize = 4 + 16 + 16 + 4 + 8
	diagID     = 4 // in inet_diag_msg: after family, state, timer, retrans
	diagUID    = diagID + diagIDSize + 12
	diagInode  = diagUID + 4
)

// diagRequest is an inet_diag_req_v2 for one socket.
func diagRequest(local, remote netip.AddrPort) []byte {
	b := binary.NativeEndian.AppendUint32(nil, nlHeader+8+diagIDSize)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence number, port id
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = append(b, sockID(local, remote)...)
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie known
}

// sockID is the part of an inet_diag_sockid that says which socket it is.
func sockID(local, remote netip.AddrPort) []byte {
	b := binary.BigEndian.AppendUint16(nil, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		var at [16]byte
		copy(at[:], a.AsSlice())
		b = append(b, at[:]...)
	}
	return b
}

// diagOwner reads the answer to diagRequest.
func diagOwner(b []byte, local, remote netip.AddrPort) (uint32, error) {
	if len(b) < nlHeader {
		return 0, errors.New("sock_diag's answer is too short")
	}
	kind, body := binary.NativeEndian.Uint16(b[4:]), b[nlHeader:]
	if kind == unix.NLMSG_ERROR && len(body) >= 4 {
		return 0, fmt.Errorf("sock_diag does not know the client's socket: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	}
	if kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagInode+4 {
		return 0, errors.New("sock_diag's answer is none")
	}
	// Where no connection fits, it takes a listener that does.
	if id := sockID(local, remote); string(body[diagID:diagID+len(id)]) != string(id) {
		return 0, errors.New("sock_diag knows another socket than the client's")
	}
	if binary.NativeEndian.Uint32(body[diagInode:]) == 0 {
		return 0, errors.New("no process holds the client's socket any more")
	}
	return binary.NativeEndian.Uint32(body[diagUID:]), nil
}

// proveOwners makes sure that the kernel tells who owns a socket, with a
// connection of this process to itself.
func proveOwners(at netip.Addr, uid int) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		return fmt.Errorf("listen to a connection of this process: %w", err)
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		return fmt.Errorf("connect to this process: %w", err)
	}
	defer c.Close()
	owner, err := tcpOwner(c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return err
	}
	if int(owner) != uid {
		return fmt.Errorf("the kernel says that %d owns what %d opened", owner, uid)
	}
	return nil
}
