// Links in the home to what is mounted elsewhere.

package entrypoint

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// makeLink does what spec.Link says, of home alone: it follows no link on the way,
// and goes into none of the mounts below it, which may be the host's. at is how far
// it came.
func makeLink(home string, mounts []string, l spec.Link) (at string, err error) {
	rel := strings.TrimPrefix(l.Path, home+"/")
	defer func() {
		if l.To == "" && err != nil {
			err = nil // what can't be reached is no link of ours
		}
	}()
	for _, m := range mounts {
		if below, ok := strings.CutPrefix(m, home+"/"); ok && strings.HasPrefix(rel+"/", below+"/") {
			return below, errMounted
		}
	}
	dir, at, err := openBeneath(home, path.Dir(rel), l.To != "")
	if err != nil {
		return at, err
	}
	defer unix.Close(dir)
	return rel, linkAt(dir, path.Base(rel), l.To)
}

func linkAt(dir int, name, to string) error {
	var st unix.Stat_t
	look := func(name string) error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) }
	err := look(name)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	there := err == nil
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	own := name + spec.OwnSuffix
	if to == "" {
		if there {
			return nil
		}
		if err := unix.Renameat(dir, own, dir, name); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	if !there {
		return unix.Symlinkat(to, dir, name)
	}
	// An older file makes way; an older directory is not ours to remove.
	err = unix.Renameat(dir, name, dir, own)
	for n := 1; errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTDIR); n++ {
		aside := fmt.Sprint(own, ".", n)
		if !errors.Is(look(aside), unix.ENOENT) {
			if n == maxAside {
				return fmt.Errorf("there are %d earlier ones beside it, up to %s", maxAside, aside)
			}
			continue
		}
		if err := unix.Renameat(dir, own, dir, aside); err != nil {
			return err
		}
		err = unix.Renameat(dir, name, dir, own)
		break
	}
	if err != nil {
		return err
	}
	return unix.Symlinkat(to, dir, name)
}

var errMounted = errors.New("something is mounted there")

// maxAside bounds the search for a free name.
const maxAside = 100
