// Seeding the home, after the drop: it is the sandbox's to write, so that what it
// planted there leads us no further than itself could go.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// homeDir is the sandbox's home.
const homeDir = "/home/sandbox"

// seedHome makes the links, then the files, and tells of those that are not the
// host's. What can't be linked is told, and stops nothing: see manage.
func seedHome(home string, sp *spec.Spec) ([]spec.HomeNote, error) {
	var notes []spec.HomeNote
	tell := func(n spec.HomeNote) {
		if n.State != "" && !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	for _, l := range sp.Links {
		if at, err := makeLink(home, sp.Mounts, l); err != nil {
			tell(spec.HomeNote{Path: at, State: spec.NoteUnread, Reason: err.Error()})
		}
	}
	for _, f := range sp.Seeds {
		n, err := makeSeed(home, f)
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", f.Path, err)
		}
		tell(n)
	}
	for _, m := range sp.Managed {
		tell(manage(m))
	}
	return notes, nil
}

// makeSeed follows no link on the way: what is led elsewhere is told, and not made.
func makeSeed(home string, f spec.Seed) (spec.HomeNote, error) {
	dir, at, err := openBeneath(home, filepath.Dir(strings.TrimPrefix(f.Path, home+"/")), true)
	if errors.Is(err, errPlanted) {
		return spec.HomeNote{Path: at, State: spec.NoteUnread, Reason: err.Error()}, nil
	}
	if err != nil {
		return spec.HomeNote{}, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(f.Path), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, f.Mode) // O_EXCL follows no link
	if errors.Is(err, unix.EEXIST) {
		return spec.HomeNote{}, nil
	}
	if err != nil {
		return spec.HomeNote{}, err
	}
	file := os.NewFile(uintptr(fd), f.Path)
	_, err = file.Write(f.Content)
	return spec.HomeNote{}, errors.Join(err, file.Close())
}
