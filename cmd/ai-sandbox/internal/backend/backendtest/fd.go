// Descriptors and owners, as the suite needs to know them.

package backendtest

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownerOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// dupInheritable makes a descriptor that a child would get.
func dupInheritable(f *os.File) (int, error) { return unix.FcntlInt(f.Fd(), unix.F_DUPFD, 50) }

func closeFD(fd int) { unix.Close(fd) }
