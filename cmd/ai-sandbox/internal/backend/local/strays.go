// A bubblewrap whose owner was killed at the wrong moment: its child waits for
// it, for ever and without ever having run anything.

package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// endStrays ends what is left of a jail that an ended process has made. Its
// command line names the session's directory, and no other session has that one.
func endStrays(id string) error {
	session := strings.TrimPrefix(strings.TrimPrefix(id, "aisb-"), "gate-")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("look for what is left of the jail %s: %w", id, err)
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !stray(pid, session) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has just ended
		}
		// Again, now that the number can't become another process's.
		if stray(pid, session) {
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("end what is left of the jail %s (process %d): %w", id, pid, err))
			}
		}
		unix.Close(fd)
	}
	return errors.Join(errs...)
}

// stray tells whether a process is a bubblewrap of ours that was to bind the
// control channel of a session.
func stray(pid int, session string) bool {
	var st unix.Stat_t
	if err := unix.Stat(proc(pid, ""), &st); err != nil || int(st.Uid) != os.Geteuid() {
		return false
	}
	argv, err := cmdline(pid)
	return err == nil && len(argv) > 1 && filepath.Base(argv[0]) == "bwrap" &&
		slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, "/"+session+"/") })
}
