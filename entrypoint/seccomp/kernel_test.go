//go:build kernel

// Each row on the real kernel, as root: without the filter the call must answer
// something else than with it.

package seccomp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A call is one probe; its arguments make it fail harmlessly, if at all.
type call struct {
	row  string // of the table, empty for what stays allowed
	name string
	nr   uintptr
	args [4]uintptr
}

const high = 1 << 32

func calls() []call {
	bad := ^uintptr(0)
	c := []call{
		{"clone3", "clone3", unix.SYS_CLONE3, [4]uintptr{}},
		{"setns", "setns", unix.SYS_SETNS, [4]uintptr{bad}},
		{"mount", "mount", unix.SYS_MOUNT, [4]uintptr{}},
		{"umount2", "umount2", unix.SYS_UMOUNT2, [4]uintptr{}},
		{"pivot_root", "pivot_root", unix.SYS_PIVOT_ROOT, [4]uintptr{}},
		{"move_mount", "move_mount", unix.SYS_MOVE_MOUNT, [4]uintptr{bad, 0, bad, 0}},
		{"open_tree", "open_tree", unix.SYS_OPEN_TREE, [4]uintptr{bad, 0, bad}},
		{"open_tree_attr", "open_tree_attr", sysOpenTreeAttr, [4]uintptr{bad, 0, bad}},
		{"fsopen", "fsopen", unix.SYS_FSOPEN, [4]uintptr{0, bad}},
		{"fsconfig", "fsconfig", unix.SYS_FSCONFIG, [4]uintptr{bad, bad}},
		{"fsmount", "fsmount", unix.SYS_FSMOUNT, [4]uintptr{bad, bad}},
		{"fspick", "fspick", unix.SYS_FSPICK, [4]uintptr{bad, 0, bad}},
		{"mount_setattr", "mount_setattr", unix.SYS_MOUNT_SETATTR, [4]uintptr{bad, 0, bad}},
		{"keyctl", "keyctl", unix.SYS_KEYCTL, [4]uintptr{bad}},
		{"add_key", "add_key", unix.SYS_ADD_KEY, [4]uintptr{}},
		{"request_key", "request_key", unix.SYS_REQUEST_KEY, [4]uintptr{}},
		{"io_uring_setup", "io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{}},
		{"io_uring_enter", "io_uring_enter", unix.SYS_IO_URING_ENTER, [4]uintptr{bad}},
		{"io_uring_register", "io_uring_register", unix.SYS_IO_URING_REGISTER, [4]uintptr{bad}},
		{"bpf", "bpf", unix.SYS_BPF, [4]uintptr{bad}},
		{"perf_event_open", "perf_event_open", unix.SYS_PERF_EVENT_OPEN, [4]uintptr{}},
		{"userfaultfd", "userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{bad}},
		{"open_by_handle_at", "open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [4]uintptr{bad}},
		{"syslog", "syslog", unix.SYS_SYSLOG, [4]uintptr{bad}},
		{"kexec_load", "kexec_load", unix.SYS_KEXEC_LOAD, [4]uintptr{0, 1 << 20, 0, 0}},
		{"kexec_file_load", "kexec_file_load", sysKexecFileLoad, [4]uintptr{bad, bad, 0, 0}},
		{"init_module", "init_module", unix.SYS_INIT_MODULE, [4]uintptr{}},
		{"finit_module", "finit_module", unix.SYS_FINIT_MODULE, [4]uintptr{bad, 0, bad}},
		{"delete_module", "delete_module", unix.SYS_DELETE_MODULE, [4]uintptr{}},
		{"personality", "personality", unix.SYS_PERSONALITY, [4]uintptr{0x40000}},
		{"personality", "personality, high bits", unix.SYS_PERSONALITY, [4]uintptr{high | 0x40000}},
		{"socket", "raw", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_RAW, 1}},
		{"socket", "raw, high bits", unix.SYS_SOCKET, [4]uintptr{high | unix.AF_INET, high | unix.SOCK_RAW, 1}},
		{"socket", "raw with flags", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, 58}},
		{"socket", "old packet", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_PACKET, 0x300}},
		{"socket", "packet", unix.SYS_SOCKET, [4]uintptr{unix.AF_PACKET, unix.SOCK_RAW, 0x300}},
		{"socket", "vsock", unix.SYS_SOCKET, [4]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}},
		{"socket", "alg", unix.SYS_SOCKET, [4]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}},
		{"socket", "netfilter", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}},
		{"socket", "netfilter, high bits", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, high | unix.NETLINK_NETFILTER}},
		{"socketpair", "tipc pair", unix.SYS_SOCKETPAIR, [4]uintptr{unix.AF_TIPC, unix.SOCK_STREAM}},
		{"ioctl", "sti", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCSTI}},
		{"ioctl", "sti, high bits", unix.SYS_IOCTL, [4]uintptr{bad, high | unix.TIOCSTI}},
		{"ioctl", "linux", unix.SYS_IOCTL, [4]uintptr{bad, tiocLinux}},

		{"fchmod", "fchmod", unix.SYS_FCHMOD, [4]uintptr{bad, 0o4755}},
		{"fchmod", "fchmod, setgid, high bits", unix.SYS_FCHMOD, [4]uintptr{bad, high | 0o2755}},
		{"fchmodat", "fchmodat", unix.SYS_FCHMODAT, [4]uintptr{bad, 0, 0o4755}},
		{"fchmodat2", "fchmodat2", sysFchmodat2, [4]uintptr{bad, 0, 0o4755, bad}},
		{"mknodat", "mknodat", unix.SYS_MKNODAT, [4]uintptr{bad, 0, unix.S_IFREG | 0o4755}},
		{"openat", "openat", unix.SYS_OPENAT, [4]uintptr{bad, 0, unix.O_CREAT, 0o4755}},
		{"openat", "openat of a file without a name", unix.SYS_OPENAT, [4]uintptr{bad, 0, unix.O_TMPFILE | unix.O_RDWR, 0o2755}},
		{"openat2", "openat2", unix.SYS_OPENAT2, [4]uintptr{bad}},

		{"", "fchmod without them", unix.SYS_FCHMOD, [4]uintptr{bad, 0o1777}},
		{"", "openat without O_CREAT", unix.SYS_OPENAT, [4]uintptr{bad, 0, unix.O_DIRECTORY, 0o4755}},
		{"", "winsize", unix.SYS_IOCTL, [4]uintptr{bad, unix.TIOCGWINSZ}},
		{"", "tcp", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK}},
		{"", "udp6", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET6, unix.SOCK_DGRAM}},
		{"", "route", unix.SYS_SOCKET, [4]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}},
		{"", "personality query", unix.SYS_PERSONALITY, [4]uintptr{0xffffffff}},
		// Shared handlers without shared memory are invalid: nothing is cloned.
		{"", "clone", unix.SYS_CLONE, [4]uintptr{unix.CLONE_SIGHAND}},
		{"", "unshare files", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_FILES}},
	}
	for _, l := range legacyModes() {
		c = append(c, call{l.name, l.name, uintptr(l.nr), [4]uintptr{0, 0o4755 | unix.O_CREAT, 0o4755}})
	}
	for _, flag := range []uintptr{
		unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC,
		unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET,
	} {
		c = append(c, call{"clone", "clone of a namespace", unix.SYS_CLONE, [4]uintptr{flag | unix.CLONE_SIGHAND}},
			call{"clone", "clone of a namespace, high bits", unix.SYS_CLONE, [4]uintptr{high | flag | unix.CLONE_SIGHAND}},
			call{"unshare", "unshare", unix.SYS_UNSHARE, [4]uintptr{flag | 1}}) // 1 is no flag: invalid
	}
	return append(c, call{"unshare", "unshare of time", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWTIME | 1}})
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "filtered":
			install()
			fallthrough
		case "bare":
			probe()
			return
		case "exec":
			install()
			panic(syscall.Exec(os.Args[2], os.Args[2:3], nil))
		}
	}
	os.Exit(m.Run())
}

func install() {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	// The other threads have no no_new_privs yet, which TSYNC gives them.
	runtime.LockOSThread()
	if err := Install(); err != nil {
		panic(err)
	}
}

// probe makes every call and prints the results.
func probe() {
	runtime.LockOSThread()
	var out []syscall.Errno
	for _, c := range calls() {
		_, _, errno := syscall.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
		out = append(out, errno)
	}
	if x32Bit != 0 {
		_, _, errno := syscall.RawSyscall(x32Bit|unix.SYS_GETPID, 0, 0, 0)
		out = append(out, errno)
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

func results(t *testing.T, how string) []syscall.Errno {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", how)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []syscall.Errno
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return out
}

func TestRows(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("only root gets past the kernel's own checks; run as root or in a user namespace")
	}
	bare, filtered := results(t, "bare"), results(t, "filtered")
	errno := map[string]syscall.Errno{}
	for _, r := range Table() {
		errno[r.Name] = r.Errno
	}
	tried := map[string]bool{}
	for i, c := range calls() {
		tried[c.row] = true
		switch {
		case c.row == "" && bare[i] != filtered[i]:
			t.Errorf("%s (%#x): %v, and %v without the filter", c.name, c.args, filtered[i], bare[i])
		case c.row == "":
		case filtered[i] != errno[c.row]:
			t.Errorf("%s (%#x): %v, not %v", c.name, c.args, filtered[i], errno[c.row])
		case bare[i] == errno[c.row]:
			t.Errorf("%s (%#x): also %v without the filter, so this proves nothing", c.name, c.args, bare[i])
		}
	}
	for _, r := range Table() {
		if !tried[r.Name] {
			t.Errorf("no call tries %s", r.Name)
		}
	}
	if x32Bit != 0 {
		if i := len(calls()); filtered[i] != unix.EPERM || bare[i] == unix.EPERM {
			t.Errorf("x32: %v, and %v without the filter", filtered[i], bare[i])
		}
	}
}

// A 32-bit program has the other ABI's numbers. Where the kernel runs none
// (ia32_emulation=off, some hypervisors), none runs under the filter either, and
// program_test.go, which runs the filter without a kernel, holds its rule alone.
func TestForeignABI(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Fatal("there is no foreign program for this architecture in the test")
	}
	file := filepath.Join(t.TempDir(), "exit")
	if err := os.WriteFile(file, elf32(), 0o755); err != nil {
		t.Fatal(err)
	}
	none := false
	if err := exec.Command(file).Run(); errors.Is(err, unix.ENOEXEC) {
		none = true
	} else if err != nil {
		t.Fatalf("without the filter: %v", err)
	}
	var why bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "exec", file)
	cmd.Stderr = &why
	err := cmd.Run()
	var exit *exec.ExitError
	if none {
		if err == nil || !strings.Contains(why.String(), unix.ENOEXEC.Error()) {
			t.Errorf("a kernel without that ABI: %v\n%s", err, &why)
		}
		t.Log("this kernel runs no 32-bit program, with the filter or without")
		return
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Errorf("with the filter: %v, not killed for its system call", err)
	}
}

// elf32 is a program of one segment that calls exit(0) by int 0x80.
func elf32() []byte {
	code := []byte{
		0xb8, 1, 0, 0, 0, // mov eax, 1
		0x31, 0xdb, // xor ebx, ebx
		0xcd, 0x80, // int 0x80
	}
	const base, headers = 0x08048000, 52 + 32
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	w := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) }
	w([]uint16{2, 3})
	w([]uint32{1, base + headers, 52, 0, 0})
	w([]uint16{52, 32, 1, 0, 0, 0})
	size := uint32(headers + len(code))
	w([]uint32{1, 0, base, base, size, size, 5, 0x1000})
	b.Write(code)
	return b.Bytes()
}
