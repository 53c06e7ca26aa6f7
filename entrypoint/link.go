// Links in the home to what is mounted elsewhere.

package entrypoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// link makes the links, and takes away what an earlier start made of those that are not
// wanted any more. Which these are, a file in the home says. The sandbox can write that
// too, so it leads to nothing but what the sandbox could do itself: below the home, a
// link of ours goes, and what has its name with OwnSuffix takes its place.
func link(home string, sp *spec.Spec, tell func(*spec.HomeNote)) {
	var made []string
	listed := map[string]bool{}
	for _, l := range sp.Links {
		rel := strings.TrimPrefix(l.Path, home+"/")
		listed[rel] = true
		if l.To != "" {
			made = append(made, rel)
		}
	}
	dir, note := openBeneath(home, ".", false)
	if note != nil {
		tell(note)
		return
	}
	defer unix.Close(dir)
	was, err := readAt(dir, spec.LinksRecord)
	if err == nil {
		for _, rel := range recorded(was) {
			if !listed[rel] && !unlink(home, sp.Mounts, rel) {
				made = append(made, rel)
			}
		}
	}
	var now []byte
	if made != nil {
		now, _ = json.Marshal(made) // a list of strings
	}
	// Before they are made: none may be there that is not recorded.
	if err := replaceAt(dir, spec.LinksRecord, was, now, 0o600); err != nil {
		n := obstacle(dir, ".", spec.LinksRecord, err)
		tell(&n)
	}
	for _, l := range sp.Links {
		tell(makeLink(home, sp.Mounts, l))
	}
}

// recorded are the paths of a record, as far as they are some.
func recorded(text []byte) []string {
	var list []string
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	list = slices.DeleteFunc(list, func(rel string) bool {
		return path.Clean("/"+rel) != "/"+rel || rel == "" || strings.HasSuffix(rel, spec.OwnSuffix) || strings.ContainsRune(rel, 0)
	})
	return list[:min(len(list), maxRecorded)]
}

// unlink takes an earlier start's link away, where it still is one. Without done it may
// still be there, behind a mount or permissions, and is to be taken away later.
func unlink(home string, mounts []string, rel string) (done bool) {
	if _, ok := mountAt(home, mounts, rel); ok {
		return false
	}
	dir, note := openBeneath(home, path.Dir(rel), false)
	if note != nil {
		return note.Mend != spec.MendOpen
	}
	defer unix.Close(dir)
	name := path.Base(rel)
	if to, err := readlinkAt(dir, name); err == nil && !strings.HasPrefix(to, spec.LinkTarget) {
		return true
	}
	return linkAt(dir, name, "") == nil // what can't go leads nowhere
}

func readlinkAt(dir int, name string) (to string, err error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// mountAt is the mount in the home, below it, that a path is or lies in.
func mountAt(home string, mounts []string, rel string) (string, bool) {
	for _, m := range mounts {
		if below, ok := strings.CutPrefix(m, home+"/"); ok && strings.HasPrefix(rel+"/", below+"/") {
			return below, true
		}
	}
	return "", false
}

// makeLink does what spec.Link says, of home alone: it follows no link on the way,
// and goes into none of the mounts below it, which may be the host's.
func makeLink(home string, mounts []string, l spec.Link) *spec.HomeNote {
	rel := strings.TrimPrefix(l.Path, home+"/")
	if below, ok := mountAt(home, mounts, rel); ok {
		return wanted(l, mountedThere(below))
	}
	dir, note := openBeneath(home, path.Dir(rel), l.To != "")
	if note != nil {
		return wanted(l, note)
	}
	defer unix.Close(dir)
	if err := linkAt(dir, path.Base(rel), l.To); err != nil {
		n := obstacle(dir, path.Dir(rel), path.Base(rel), err)
		return wanted(l, &n)
	}
	return nil
}

// wanted drops a note of a link that was to be taken away: what can't be reached is
// none of ours.
func wanted(l spec.Link, n *spec.HomeNote) *spec.HomeNote {
	if l.To == "" {
		return nil
	}
	return n
}

// linkAt makes the link name in dir, or with no to takes it away. Another start on the
// same home may be at the same: what was not as it was seen is looked at again.
func linkAt(dir int, name, to string) error {
	var err error
	for range 10 {
		if err = linkOnce(dir, name, to); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return err
}

func linkOnce(dir int, name, to string) error {
	is, err := readlinkAt(dir, name)
	there := errors.Is(err, unix.EINVAL) // and is no link
	switch {
	case err == nil && is == to:
		return nil
	case err == nil:
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return err
		}
	case !there && !errors.Is(err, unix.ENOENT):
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
		var st unix.Stat_t
		if !errors.Is(unix.Fstatat(dir, aside, &st, unix.AT_SYMLINK_NOFOLLOW), unix.ENOENT) {
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

// maxAside bounds the search for a free name, and maxRecorded what is believed of a
// record.
const (
	maxAside    = 100
	maxRecorded = 1000
)
