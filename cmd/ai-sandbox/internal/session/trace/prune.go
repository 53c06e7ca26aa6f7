// What is kept of ended sessions, and for how long.

package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Retention bounds what is kept of ended sessions.
type Retention struct {
	// Age is how long; Size is how many bytes all of them may have together, but that
	// the newest stays whatever it takes. Zero is no bound.
	Age  time.Duration
	Size int64
}

// IDs are the sessions that have a directory.
func (s Store) IDs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && validID().MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Size is what a session's directory takes on the disk, in bytes, and when something
// in it last changed.
func (s Store) Size(id string) (bytes int64, changed time.Time, err error) {
	dir, ok := s.Dir(id)
	if !ok {
		return 0, time.Time{}, fs.ErrNotExist
	}
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		bytes += (info.Size() + blockSize - 1) / blockSize * blockSize
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
		return nil
	})
	return bytes, changed, err
}

// blockSize is the least that a file takes on most file systems.
const blockSize = 4096

// Remove takes a session's directory away.
func (s Store) Remove(id string) error {
	dir, ok := s.Dir(id)
	if !ok {
		return fs.ErrNotExist
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the session's directory: %w", err)
	}
	return nil
}

// Beyond are the sessions that a retention does not keep, the oldest first; those in
// use count neither way.
func (s Store) Beyond(r Retention, now time.Time, inUse func(id string) bool) ([]string, error) {
	ids, err := s.IDs()
	if err != nil {
		return nil, err
	}
	type one struct {
		id      string
		size    int64
		changed time.Time
	}
	var all []one
	for _, id := range ids {
		if inUse(id) {
			continue
		}
		size, changed, err := s.Size(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another ai-sandbox was quicker
		}
		if err != nil {
			return nil, fmt.Errorf("look at the session %s: %w", id, err)
		}
		all = append(all, one{id, size, changed})
	}
	slices.SortFunc(all, func(a, b one) int { return b.changed.Compare(a.changed) })
	keep := 0
	var total int64
	for i, o := range all {
		total += o.size
		old := r.Age > 0 && now.Sub(o.changed) > r.Age
		if old || i > 0 && r.Size > 0 && total > r.Size {
			break
		}
		keep++
	}
	var out []string
	for _, o := range slices.Backward(all[keep:]) {
		out = append(out, o.id)
	}
	return out, nil
}

// pruned is the file whose time says when the directories were last looked at.
const pruned = ".pruned"

// pruneEvery is how often a start looks, so that it costs most starts nothing.
const pruneEvery = time.Hour

// Prune removes what a retention does not keep, if that was not done a short while
// ago, and tells how many sessions it were.
func (s Store) Prune(r Retention, inUse func(id string) bool) (int, error) {
	path := filepath.Join(s.dir, pruned)
	now := time.Now()
	// A time to come is a clock that was set back since.
	if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()).Abs() < pruneEvery {
		return 0, nil
	}
	list, err := s.Beyond(r, now, inUse)
	if err != nil {
		return 0, err
	}
	n := 0
	errs := []error{}
	for _, id := range list {
		if err := s.Remove(id); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	err = os.WriteFile(path, nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // there is no session yet
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("remember when sessions were removed: %w", err))
	} else if err := os.Chtimes(path, now, now); err != nil {
		errs = append(errs, fmt.Errorf("remember when sessions were removed: %w", err))
	}
	return n, errors.Join(errs...)
}
