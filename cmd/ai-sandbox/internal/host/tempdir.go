// Directories that are there while something is tried.

package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// TempDir makes one, and remove takes it away. Its name has this process's id in it, and
// it is locked for as long as this process lives: by both, ai-sandbox clean knows one that
// nobody will remove.
func TempDir(what string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", fmt.Sprintf("aisb-%s-%d-", what, os.Getpid())); err != nil {
		return "", nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	// Where the file system has no locks, clean leaves it: it can't tell.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return dir, func() error { return errors.Join(os.RemoveAll(dir), f.Close()) }, nil
}
