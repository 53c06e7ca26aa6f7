// Seeding the home, after the drop: it is the sandbox's to write, so that what it
// planted there leads us no further than itself could go.

package entrypoint

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// homeDir is the sandbox's home.
const homeDir = "/home/sandbox"

// seedHome makes the links, then the files, and tells of what is not the host's. What
// can't be made stops nothing: see manage.
func seedHome(home string, sp *spec.Spec) []spec.HomeNote {
	var notes []spec.HomeNote
	tell := func(n *spec.HomeNote) {
		if n != nil && n.State != "" && !slices.Contains(notes, *n) {
			notes = append(notes, *n)
		}
	}
	link(home, sp, tell)
	for _, f := range sp.Seeds {
		if n := users(home, sp, f.Path); n != nil {
			if home+"/"+n.Path != f.Path { // or else it is there
				tell(n)
			}
			continue
		}
		tell(makeSeed(home, f))
	}
	for _, m := range sp.Managed {
		if n := users(m.Home, sp, m.Home+"/"+m.Path); n != nil {
			tell(n)
			continue
		}
		n := manage(m)
		tell(&n)
	}
	return notes
}

// users tells that a path in the home is or lies in what the user shows there, by a mount
// or a link: that is the host's, and nothing of ours is written to it.
func users(home string, sp *spec.Spec, at string) *spec.HomeNote {
	shown := slices.Clone(sp.Mounts)
	for _, l := range sp.Links {
		if l.To != "" {
			shown = append(shown, l.Path)
		}
	}
	if below, ok := mountAt(home, shown, strings.TrimPrefix(at, home+"/")); ok {
		return mountedThere(below)
	}
	return nil
}

func mountedThere(below string) *spec.HomeNote {
	return &spec.HomeNote{Path: below, State: spec.NoteUnread, Reason: "something is mounted there", Mend: spec.MendMount}
}

// makeSeed makes a file where nothing is.
func makeSeed(home string, f spec.Seed) *spec.HomeNote {
	rel := strings.TrimPrefix(f.Path, home+"/")
	dir, note := openBeneath(home, path.Dir(rel), true)
	if note != nil {
		return note
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, path.Base(rel), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, f.Mode) // O_EXCL follows no link
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err == nil {
		file := os.NewFile(uintptr(fd), f.Path)
		_, err = file.Write(f.Content)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		n := obstacle(dir, path.Dir(rel), path.Base(rel), err)
		return &n
	}
	return nil
}
