// What the kernel knows of the unix sockets that are bound to files: not only the
// name that each was given, but which file it is (sock_diag(7)).

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A boundSocket is one that somebody can be reached at.
type boundSocket struct {
	// Name is what bind(2) was given: maybe relative, and the file may have been
	// moved since.
	name string
	// File is which it is now.
	file socketFile
}

// A socketFile is an inode, of which sock_diag tells the lower half, on the device
// of a file system ("259:1", as the table of mounts has it).
type socketFile struct {
	dev string
	ino uint32
}

// Of linux/unix_diag.h and include/net/tcp_states.h.
const (
	showName    = 1
	showFile    = 2
	attrName    = 0
	attrFile    = 1
	established = 1
)

// diagSockets lists the bound sockets of this network namespace. A stream's end
// that somebody has accepted has the name of where it was accepted, and is left
// out: it can't be connected to.
func diagSockets() ([]boundSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for its sockets: %w", err)
	}
	defer unix.Close(fd)
	le := binary.NativeEndian
	req := make([]byte, unix.NLMSG_HDRLEN+24)
	le.PutUint32(req, uint32(len(req))) //nolint:gosec // 40
	le.PutUint16(req[4:], unix.SOCK_DIAG_BY_FAMILY)
	le.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req[16] = unix.AF_UNIX
	le.PutUint32(req[20:], ^uint32(0)) // in every state
	le.PutUint32(req[28:], showName|showFile)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask the kernel for its sockets: %w", err)
	}
	var out []boundSocket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the kernel's sockets: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			size := int(le.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return nil, errors.New("the kernel's list of sockets makes no sense")
			}
			switch le.Uint16(b[4:]) {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				return nil, errors.New("the kernel does not list its sockets")
			}
			if s, ok := readDiag(b[unix.NLMSG_HDRLEN:size]); ok {
				out = append(out, s)
			}
			b = b[min(align4(size), len(b)):]
		}
	}
}

// readDiag reads a struct unix_diag_msg and its attributes. One that is no file's
// is not ok.
func readDiag(msg []byte) (s boundSocket, ok bool) {
	if len(msg) < 16 || msg[2] == established && msg[1] != unix.SOCK_DGRAM {
		return s, false
	}
	le := binary.NativeEndian
	for b := msg[16:]; len(b) >= unix.SizeofRtAttr; {
		size := int(le.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return s, false
		}
		switch value := b[unix.SizeofRtAttr:size]; le.Uint16(b[2:]) {
		case attrName:
			name, _, _ := bytes.Cut(value, []byte{0})
			s.name = string(name)
		case attrFile:
			if len(value) >= 8 {
				// The kernel's own dev_t: twenty bits of minor number.
				dev := le.Uint32(value[4:])
				s.file, ok = socketFile{fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1)), le.Uint32(value)}, true
			}
		}
		b = b[min(align4(size), len(b)):]
	}
	return s, ok
}

func align4(n int) int { return (n + 3) &^ 3 }
