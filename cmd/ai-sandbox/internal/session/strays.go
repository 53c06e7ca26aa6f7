// Temporary files and directories that a process which was killed may have left.

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/policy"
)

// oldEnough is the age at which a temporary file may be nobody's any more: those who
// make them take less than a second, but for downloads, which keep changing theirs.
const oldEnough = time.Hour

// temporaryItems judges what a pattern of filepath.Glob matches: files, and directories
// that have their maker's process id between two hyphens at the end of their name
// (aisb-doctor-PID-...) and that it has locked (see host.TempDir). In doubt they stay.
func temporaryItems(pattern string, now time.Time) ([]CleanItem, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("look for temporary files: %w", err)
	}
	var out []CleanItem
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() && now.Sub(info.ModTime()) < oldEnough || !ours(info) {
			continue // gone, being written, or none of ours
		}
		i := CleanItem{What: "file " + policy.Quote(path)}
		switch {
		case info.IsDir():
			pid := makerOf(path)
			if pid == 0 {
				continue
			}
			i.What = "directory " + policy.Quote(path)
			if !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
				i.Why = fmt.Sprintf("there is a process %d, which may be the one that made it", pid)
				break
			}
			if locked(path) { // in another process namespace
				i.Why = "the process that made it lives"
				break
			}
			i.Why = "the process that made it is gone"
			i.do = func(context.Context) error { return removeTree(path) }
		case !info.Mode().IsRegular():
			continue
		case isOpen(info):
			i.Why = "a process has it open"
		default:
			i.Why = "nobody has it open, and nothing has changed it for an hour"
			i.do = func(context.Context) error {
				if now, err := os.Lstat(path); err != nil || !os.SameFile(info, now) || isOpen(now) {
					return err // it is another one by now, or somebody's
				}
				return os.Remove(path)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// ours tells whether a file is this user's.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

// locked tells whether somebody has a lock of a directory, or that can't be told.
func locked(dir string) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil
}

// makerOf is the process id in a directory's name, or 0.
func makerOf(path string) int {
	words := strings.Split(filepath.Base(path), "-")
	if len(words) < 3 {
		return 0
	}
	pid, err := strconv.Atoi(words[len(words)-2])
	if err != nil || pid < 2 {
		return 0
	}
	return pid
}

// isOpen tells whether a process that can be looked into has a file open. Those of
// other users can't; only root's could write there.
func isOpen(file fs.FileInfo) bool {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return true
	}
	for _, l := range links {
		if info, err := os.Stat(l); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}

// removeTree takes a directory away that a sandbox may have written in.
func removeTree(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return tree.Remove(int(dir.Fd()), filepath.Base(path)) //nolint:gosec // a descriptor
}
