// Seeding the home, after the drop: it is the sandbox's to write, so that what it
// planted there leads us no further than itself could go.

package entrypoint

import (
	"errors"
	"fmt"
	"io/fs"
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
// host's.
func seedHome(sp *spec.Spec) ([]spec.HomeNote, error) {
	for _, l := range sp.Links {
		if err := makeLink(l); err != nil {
			return nil, fmt.Errorf("link %s: %w", l.Path, err)
		}
	}
	var notes []spec.HomeNote
	tell := func(n spec.HomeNote) {
		if n.State != "" && !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	for _, f := range sp.Seeds {
		n, err := makeSeed(f)
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

func makeLink(l spec.Link) error {
	own := l.Path + spec.OwnSuffix
	info, err := os.Lstat(l.Path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(l.Path); err != nil {
			return err
		}
		_, err = os.Lstat(l.Path)
	}
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.To == "" {
		if there {
			return nil
		}
		if err := os.Rename(own, l.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if there {
		// An older one would be in the way; the newer is what was used last.
		if err := os.RemoveAll(own); err != nil {
			return err
		}
		if err := os.Rename(l.Path, own); err != nil {
			return err
		}
	} else if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return err
	}
	return os.Symlink(l.To, l.Path)
}

// makeSeed follows no link on the way: what is led elsewhere is told, and not made.
func makeSeed(f spec.Seed) (spec.HomeNote, error) {
	dir, at, err := openBeneath("/", filepath.Dir(f.Path)[1:])
	if errors.Is(err, errPlanted) {
		return spec.HomeNote{Path: strings.TrimPrefix("/"+at, homeDir+"/"), State: spec.NoteUnread, Reason: err.Error()}, nil
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
