// Mount points below what the sandbox can write. bubblewrap makes a mount point
// by path and follows symlinks; one that an earlier run has planted in its home
// would lead out, to the host. So these are made here before, without following
// any, and Verify looks where everything landed.

package local

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// mountPoints makes the mount points that lie on the host's side of a writable
// bind.
func mountPoints(mounts []policy.Mount) error {
	for i, m := range mounts {
		above, ok := nearest(mounts[:i], m.Target)
		if !ok || above.Kind != policy.KindBind || above.ReadOnly {
			continue
		}
		rel := strings.TrimPrefix(m.Target, above.Target+"/")
		dir := true
		switch m.Kind {
		case policy.KindTmpfs:
		case policy.KindBind:
			var st unix.Stat_t
			if err := unix.Stat(m.Source, &st); err != nil {
				return fmt.Errorf("look at %s: %w", policy.Quote(m.Source), err)
			}
			dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
		default:
			return fmt.Errorf("a %s at %s would be written into %s itself; it can't be below what the sandbox can write",
				m.Kind, policy.Quote(m.Target), policy.Quote(above.Source))
		}
		if err := makePoint(above.Source, rel, dir); err != nil {
			return fmt.Errorf("make the mount point %s in %s: %w", policy.Quote(rel), policy.Quote(above.Source), err)
		}
	}
	return nil
}

// nearest is the last of the mounts that a target lies below, closest to it.
func nearest(mounts []policy.Mount, target string) (policy.Mount, bool) {
	var found policy.Mount
	ok := false
	for _, m := range mounts {
		if strings.HasPrefix(target, strings.TrimSuffix(m.Target, "/")+"/") && (!ok || len(m.Target) >= len(found.Target)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// errPlanted is what a link or a wrong kind of file on the way is.
var errPlanted = errors.New("something else is there already, a symlink say; remove it if an agent put it there")

// makePoint makes the directories on the way to rel below dir, and a directory or
// an empty file there.
func makePoint(dir, rel string, isDir bool) error {
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
			return errPlanted
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
		return errPlanted
	}
	return nil
}
