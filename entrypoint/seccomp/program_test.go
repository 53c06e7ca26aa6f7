// The program, judged by a BPF machine in this process: no kernel needed.

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func run(t *testing.T, arch, nr uint32, args ...uint64) int {
	t.Helper()
	vm, err := bpf.NewVM(Instructions(Table()))
	if err != nil {
		t.Fatal(err)
	}
	// struct seccomp_data. The machine loads words big endian.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNr:], nr)
	binary.BigEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(a>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const (
	deny  = unix.SECCOMP_RET_ERRNO | int(unix.EPERM)
	allow = retAllow
)

func TestProgram(t *testing.T) {
	const high = 1 << 32
	for _, c := range []struct {
		name string
		nr   uint32
		args []uint64
		want int
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"clone3", unix.SYS_CLONE3, nil, unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)},
		{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, deny},
		{"a time namespace", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME}, deny},
		{"unshare of files", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, allow},
		{"tcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, allow},
		{"udp6", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK, 0}, allow},
		{"unix seqpacket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, allow},
		{"route", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, deny},
		{"raw", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_RAW, 1}, deny},
		{"raw with flags", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 1}, deny},
		{"raw, high bits", unix.SYS_SOCKET, []uint64{high | unix.AF_INET, high | unix.SOCK_RAW, 1}, deny},
		{"old packet", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_PACKET, 0}, deny},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, deny},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, deny},
		{"alg", unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, deny},
		{"family 0", unix.SYS_SOCKET, []uint64{0, unix.SOCK_STREAM, 0}, deny},
		{"pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, allow},
		{"pair of tipc", unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, deny},
		{"winsize", unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
		{"sti", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, deny},
		{"sti, high bits", unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSTI}, deny},
		{"linux", unix.SYS_IOCTL, []uint64{0, tiocLinux}, deny},
		{"personality query", unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
		{"personality linux32", unix.SYS_PERSONALITY, []uint64{perLinux32}, allow},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x400000}, deny},
	} {
		if got := run(t, auditArch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	if got := run(t, unix.AUDIT_ARCH_I386, unix.SYS_READ); uint32(got) != retKill {
		t.Errorf("foreign architecture: %#x", got)
	}
	if x32Bit != 0 {
		if got := run(t, auditArch, x32Bit|unix.SYS_READ); got != deny {
			t.Errorf("x32: %#x", got)
		}
	}
}

func TestProgramFits(t *testing.T) {
	prog, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	if len(Bytes(prog)) != 8*len(prog) || len(prog) > unix.BPF_MAXINSNS {
		t.Errorf("%d instructions, %d bytes", len(prog), len(Bytes(prog)))
	}
}

func TestEveryRowHasAReason(t *testing.T) {
	for _, r := range Table() {
		if r.Name == "" || r.Reason == "" || r.Errno == 0 {
			t.Errorf("row %+v", r)
		}
	}
}
