// The drop: no capability, no other user, no way back, on every thread; and the
// proof of it, from the kernel's own account.

package entrypoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// drop gives everything up, for good. It must not be linked with cgo, or the
// threads that C started would be left out.
func drop(uid, gid int) error {
	// Only what is there: each call stops all threads.
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the kernel's last capability
		}
		if err != nil {
			return fmt.Errorf("read the bounding set: %w", err)
		}
		if has == 0 {
			continue
		}
		if err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := allThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear the ambient set: %w", err)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	// Changing the user emptied the effective and permitted sets, but not the
	// inheritable one (CVE-2022-27649).
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return lock()
}

// lock shuts the ways to gain anything by exec, and to look into this process:
// its memory has the Spec, its descriptors the lifeline.
func lock() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	if n != 0 {
		return fmt.Errorf("dumpable is still %d", n)
	}
	return nil
}

// closeInherited keeps what the runtime may have left open from what we start.
func closeInherited() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	return nil
}

func allThreads(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}

// noCaps is an empty set, as the kernel writes it.
const noCaps = "0000000000000000"

// dropped is what /proc/self/task/*/status has to say after drop.
func dropped(uid, gid int) status {
	four := func(id int) string { return strings.TrimSuffix(strings.Repeat(strconv.Itoa(id)+"\t", 4), "\t") }
	return status{
		"Uid": four(uid), "Gid": four(gid), "Groups": "",
		"CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapBnd": noCaps, "CapAmb": noCaps,
		"NoNewPrivs": "1",
	}
}

// filtered is what it has to say of n seccomp filters.
func filtered(n int) status {
	return status{"Seccomp": "2", "Seccomp_filters": strconv.Itoa(n)}
}

// threads reads the status of every thread of this process.
func threads() (map[string]status, error) {
	const dir = "/proc/self/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := make(map[string]status, len(entries))
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "status"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		all[e.Name()] = parseStatus(text)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no thread in %s", dir)
	}
	return all, nil
}

// checkThreads compares every thread with want.
func checkThreads(all map[string]status, want status) error {
	for tid, got := range all {
		if err := checkStatus(got, want); err != nil {
			return fmt.Errorf("thread %s: %w", tid, err)
		}
	}
	return nil
}

// A status is fields of /proc/PID/status.
type status map[string]string

// checkStatus compares got with want; a field that is missing differs.
func checkStatus(got, want status) error {
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			return fmt.Errorf("the kernel tells no %s", name)
		}
		if g != w {
			return fmt.Errorf("%s is %q, not %q", name, g, w)
		}
	}
	return nil
}

func parseStatus(text []byte) status {
	s := status{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			s[name] = strings.TrimSpace(value)
		}
	}
	return s
}

// filterCount is how many filters this process has from the runtime.
func filterCount() (int, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(parseStatus(text)["Seccomp_filters"])
	if err != nil {
		return 0, fmt.Errorf("the kernel does not count its filters: %w", err)
	}
	return n, nil
}
