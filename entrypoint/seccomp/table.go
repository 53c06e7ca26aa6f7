// Package seccomp is the system call filter of both runtimes: what a sandboxed
// process has no business to call, closed whatever profile the runtime brings.
// The filter is built as plain values (Program); Install puts it on every
// thread of the process.
//
// The default is to allow: this is a list of what is refused, each with its
// reason, not a model of what programs need.
package seccomp

import "golang.org/x/sys/unix"

// A Row refuses one system call, always or when its arguments are as told.
type Row struct {
	Name string
	Nr   uint32
	// When: with no condition the call is always refused; with some, when all
	// of them hold. Two rows of one call are alternatives.
	When []Cond
	// Errno is what the caller gets.
	Errno  unix.Errno
	Reason string
}

// A Cond is about the low 32 bits of one argument, masked by Mask if that is
// not 0. The kernel takes an int from the low half of the register and ignores
// the rest: to compare all 64 bits is to be got around (CVE-2019-7303).
type Cond struct {
	Arg  int
	Mask uint32
	Op   Op
	// Values: Is holds when the argument is one of them, IsNot when it is none
	// of them. AnyBit has one value, and holds when any of its bits is set.
	Values []uint32
}

// An Op compares.
type Op int

// The comparisons.
const (
	Is Op = iota
	IsNot
	AnyBit
)

// namespaces are the flags of clone and unshare that make a new namespace.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Low bits of socket(2)'s type, without SOCK_NONBLOCK and SOCK_CLOEXEC.
const sockTypeMask = 0xf

const (
	mounting = "mounting needs privileges that nothing inside has; the parser of the new API is attack surface"
	keyring  = "keyrings are not namespaced: keys of the host's user would be in reach"
	ioUring  = "a ring makes sockets and opens files past every system call filter"
	modules  = "changes the kernel"
	// The project is on the host, where others can run what is in it.
	privileged = "a setuid or setgid program in the project runs what the command chose as the caller, for whoever starts it"
	namespace  = "a new namespace gives back every capability inside it, and a network without our ruleset"
)

// Table returns the rows for the architecture that the program is built for.
func Table() []Row {
	deny := func(name string, nr uint32, reason string, when ...Cond) Row {
		return Row{Name: name, Nr: nr, When: when, Errno: unix.EPERM, Reason: reason}
	}
	rows := []Row{
		// A filter cannot read clone3's flags, they are in memory. ENOSYS makes
		// the C library fall back to clone.
		{Name: "clone3", Nr: unix.SYS_CLONE3, Errno: unix.ENOSYS, Reason: "its flags are out of a filter's sight; " + namespace},
		deny("clone", unix.SYS_CLONE, namespace, Cond{Arg: 0, Op: AnyBit, Values: []uint32{namespaces}}),
		deny("unshare", unix.SYS_UNSHARE, namespace, Cond{Arg: 0, Op: AnyBit, Values: []uint32{namespaces | unix.CLONE_NEWTIME}}),
		deny("setns", unix.SYS_SETNS, namespace),

		deny("mount", unix.SYS_MOUNT, mounting),
		deny("umount2", unix.SYS_UMOUNT2, mounting),
		deny("pivot_root", unix.SYS_PIVOT_ROOT, mounting),
		deny("move_mount", unix.SYS_MOVE_MOUNT, mounting),
		deny("open_tree", unix.SYS_OPEN_TREE, mounting),
		deny("open_tree_attr", sysOpenTreeAttr, mounting),
		deny("fsopen", unix.SYS_FSOPEN, mounting),
		deny("fsconfig", unix.SYS_FSCONFIG, mounting),
		deny("fsmount", unix.SYS_FSMOUNT, mounting),
		deny("fspick", unix.SYS_FSPICK, mounting),
		deny("mount_setattr", unix.SYS_MOUNT_SETATTR, mounting),

		deny("keyctl", unix.SYS_KEYCTL, keyring),
		deny("add_key", unix.SYS_ADD_KEY, keyring),
		deny("request_key", unix.SYS_REQUEST_KEY, keyring),

		deny("io_uring_setup", unix.SYS_IO_URING_SETUP, ioUring),
		deny("io_uring_enter", unix.SYS_IO_URING_ENTER, ioUring),
		deny("io_uring_register", unix.SYS_IO_URING_REGISTER, ioUring),

		deny("bpf", unix.SYS_BPF, "loads programs into the kernel"),
		deny("perf_event_open", unix.SYS_PERF_EVENT_OPEN, "watches the whole machine; a long record of holes"),
		deny("userfaultfd", unix.SYS_USERFAULTFD, "holds the kernel still in the middle of a copy, for races"),
		deny("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, "opens by inode, past the mounts"),
		deny("syslog", unix.SYS_SYSLOG, "the kernel's log is the host's"),
		deny("kexec_load", unix.SYS_KEXEC_LOAD, modules),
		deny("kexec_file_load", sysKexecFileLoad, modules),
		deny("init_module", unix.SYS_INIT_MODULE, modules),
		deny("finit_module", unix.SYS_FINIT_MODULE, modules),
		deny("delete_module", unix.SYS_DELETE_MODULE, modules),

		deny("personality", unix.SYS_PERSONALITY, "some execution domains weaken the address space (READ_IMPLIES_EXEC, mapping page 0)",
			Cond{Arg: 0, Op: IsNot, Values: []uint32{perLinux, perLinux32, uname26, perLinux32 | uname26, perQuery}}),

		deny("socket", unix.SYS_SOCKET, "other families (packet, vsock, alg, xdp, bluetooth …) pass the ruleset by or load modules",
			Cond{Arg: 0, Op: IsNot, Values: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}}),
		deny("socket", unix.SYS_SOCKET, "other protocols (sctp, udplite, l2tp, smc, mptcp …) load modules",
			Cond{Arg: 0, Op: Is, Values: []uint32{unix.AF_INET, unix.AF_INET6}},
			Cond{Arg: 2, Op: IsNot, Values: []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6}}),
		deny("socket", unix.SYS_SOCKET, "raw and packet sockets pass the ruleset by",
			Cond{Arg: 0, Op: Is, Values: []uint32{unix.AF_INET, unix.AF_INET6}},
			Cond{Arg: 1, Mask: sockTypeMask, Op: IsNot, Values: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}}),
		deny("socket", unix.SYS_SOCKET, "of netlink only routing is needed, to list addresses",
			Cond{Arg: 0, Op: Is, Values: []uint32{unix.AF_NETLINK}},
			Cond{Arg: 2, Op: IsNot, Values: []uint32{unix.NETLINK_ROUTE}}),
		deny("socketpair", unix.SYS_SOCKETPAIR, "as socket",
			Cond{Arg: 0, Op: IsNot, Values: []uint32{unix.AF_UNIX}}),

		deny("ioctl", unix.SYS_IOCTL, "TIOCSTI types into the terminal, also when the sandbox is gone; TIOCLINUX pastes into it",
			Cond{Arg: 1, Op: Is, Values: []uint32{unix.TIOCSTI, tiocLinux}}),

		// As systemd's RestrictSUIDSGID (systemd.exec(5)).
		deny("fchmod", unix.SYS_FCHMOD, privileged, withBits(1)),
		deny("fchmodat", unix.SYS_FCHMODAT, privileged, withBits(2)),
		deny("fchmodat2", sysFchmodat2, privileged, withBits(2)),
		deny("mknodat", unix.SYS_MKNODAT, privileged, withBits(2)),
		deny("openat", unix.SYS_OPENAT, privileged, creating(2), withBits(3)),
		{Name: "openat2", Nr: unix.SYS_OPENAT2, Errno: unix.ENOSYS, Reason: "its mode is out of a filter's sight; " + privileged},
	}
	for _, l := range legacyModes() {
		rows = append(rows, deny(l.name, l.nr, privileged, l.when...))
	}
	return rows
}

// withBits holds when a file mode has the bits that run a program as its owner
// or group.
func withBits(arg int) Cond {
	return Cond{Arg: arg, Op: AnyBit, Values: []uint32{unix.S_ISUID | unix.S_ISGID}}
}

// creating holds when the flags of an open make a file, so that there is a mode.
func creating(arg int) Cond {
	return Cond{Arg: arg, Op: AnyBit, Values: []uint32{unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY}}
}

// A legacyMode is a call of an older generation that takes a file mode.
type legacyMode struct {
	name string
	nr   uint32
	when []Cond
}

// Numbers and constants that x/sys/unix does not have.
const (
	sysOpenTreeAttr = 467 // Linux 6.15, the same number everywhere
	sysFchmodat2    = 452 // Linux 6.6, the same number everywhere
	tiocLinux       = 0x541c

	perLinux   = 0
	perLinux32 = 8
	uname26    = 0x20000
	perQuery   = 0xffffffff
)
