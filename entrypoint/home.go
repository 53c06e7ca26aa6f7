// Seeding the home, after the drop: it is the sandbox's to write, so that what it
// planted there leads us no further than itself could go.

package entrypoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ai-sandbox/entrypoint/spec"
)

// seedHome makes the links, then the files, and tells of those that are not the
// host's.
func seedHome(sp *spec.Spec) ([]spec.HomeNote, error) {
	for _, l := range sp.Links {
		if err := makeLink(l); err != nil {
			return nil, fmt.Errorf("link %s: %w", l.Path, err)
		}
	}
	for _, f := range sp.Seeds {
		if err := makeSeed(f); err != nil {
			return nil, fmt.Errorf("make %s: %w", f.Path, err)
		}
	}
	var notes []spec.HomeNote
	for _, m := range sp.Managed {
		if n := manage(m); n.State != "" {
			notes = append(notes, n)
		}
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

func makeSeed(f spec.Seed) error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(f.Mode)) // O_EXCL follows no link
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.Write(f.Content)
	return errors.Join(err, file.Close())
}
