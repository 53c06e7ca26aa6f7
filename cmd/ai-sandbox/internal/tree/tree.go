// Package tree works in what an agent has written. It removes such a directory
// tree: of any depth, with
// any modes, with links anywhere. Every directory that is found below is first
// moved up beside the tree, so that no path gets long and few descriptors are open
// at a time.
package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Remove removes name in the directory at, whatever it is, and what an earlier
// Remove of it that was cut short has left. No link is followed. What is not there
// is no error.
func Remove(at int, name string) error {
	queue, err := leftBy(at, name)
	if err != nil {
		return err
	}
	queue = append(queue, name)
	next := 0
	for len(queue) > 0 {
		dir := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		moved, err := emptyDir(at, dir, func() string {
			next++
			return name + gone + strconv.Itoa(next)
		})
		queue = append(queue, moved...)
		switch {
		case errors.Is(err, unix.ENOENT):
			continue
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			err = unix.Unlinkat(at, dir, 0) // a file or a link
		case err == nil:
			err = unix.Unlinkat(at, dir, unix.AT_REMOVEDIR)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}

// gone is what follows the tree's name in the name of what was moved up.
const gone = ".gone-"

// leftBy lists what an earlier removal that was cut short has moved up.
func leftBy(at int, name string) ([]string, error) {
	d, err := openWritable(at, ".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, name+gone) }), nil
}

// emptyDir removes what is in a directory, and moves the directories in it up
// to at, under the names that newName gives.
func emptyDir(at int, name string, newName func() string) (moved []string, err error) {
	d, err := openWritable(at, name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		// From the start again: what was read is gone.
		if _, err := d.Seek(0, io.SeekStart); err != nil {
			return moved, err
		}
		names, err := d.Readdirnames(256)
		if errors.Is(err, io.EOF) {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		for _, n := range names {
			err := unix.Unlinkat(int(d.Fd()), n, 0)
			switch {
			case err == nil, errors.Is(err, unix.ENOENT):
				continue
			case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM): // EPERM: POSIX's
				return moved, err
			}
			// What is moved has to be writable itself, as its ".." changes.
			sub, err := openWritable(int(d.Fd()), n)
			if err != nil {
				return moved, err
			}
			sub.Close()
			to := newName()
			err = unix.Renameat2(int(d.Fd()), n, at, to, unix.RENAME_NOREPLACE)
			for errors.Is(err, unix.EEXIST) {
				to = newName()
				err = unix.Renameat2(int(d.Fd()), n, at, to, unix.RENAME_NOREPLACE)
			}
			if err != nil {
				return moved, err
			}
			moved = append(moved, to)
		}
	}
}

// openWritable opens a directory, and gives its owner every right to it before.
func openWritable(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&0o700 != 0o700 {
		if err := unix.Chmod(self, 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(self, os.O_RDONLY|unix.O_DIRECTORY, 0)
}
