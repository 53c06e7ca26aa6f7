// The filter's way into the kernel.

package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install puts the filter on every thread of the process, for good. The process
// must have no_new_privs (the kernel asks for it).
func Install() error {
	prog, err := Program()
	if err != nil {
		return fmt.Errorf("assemble the filter: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	// With TSYNC the answer is 0, an error, or the thread that could not follow.
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("install the filter: %w", errno)
	}
	if tid != 0 {
		return fmt.Errorf("install the filter: thread %d has another one", tid)
	}
	return nil
}
