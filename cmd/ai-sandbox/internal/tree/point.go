// Mount points in what an agent writes.

package tree

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrPlanted is a link or a wrong kind of file where a mount point has to be.
var ErrPlanted = errors.New("something else is there already, a symlink say; remove it if an agent put it there")

// MakePoint makes the directories on the way to rel below dir, and a directory or
// an empty file there. It follows no link below dir; what is there already and is
// of another kind is ErrPlanted.
func MakePoint(dir, rel string, isDir bool) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	parts := strings.Split(path.Clean(rel), "/")
	for i, name := range parts {
		if i == len(parts)-1 && !isDir {
			return makeFile(at, name)
		}
		if err := unix.Mkdirat(at, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return ErrPlanted
		}
		if err != nil {
			return err
		}
		unix.Close(at)
		at = next
	}
	return nil
}

func makeFile(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return unix.Close(fd)
	}
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrPlanted
	}
	return nil
}

// SocketAt makes sure that there is a unix socket at rel below dir, without
// following a link. A runtime would make a file where there is none to be covered,
// and leave it.
func SocketAt(dir, rel string) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.Openat2(at, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return ErrPlanted
	}
	return nil
}
