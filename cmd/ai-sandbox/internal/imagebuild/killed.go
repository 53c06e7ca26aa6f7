// Loads that were killed: what they have put into podman's store can be found again.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// LoadName stands for a load among the names of Leftovers.
const LoadName = "load"

// A loadRecord is there while images are loaded: the ids of those that were not there
// before. It is written before podman gets them. Of a load that was killed, a base stays
// in it for as long as an image that was whole stands on that.
type loadRecord struct {
	Images []string `json:"images"`
	// Base is which of them is the base, and Digest what its registry knows it by.
	Base   string        `json:"base,omitempty"`
	Digest digest.Digest `json:"digest,omitempty"`
}

func (r Request) loadFile() string { return filepath.Join(r.buildDir(), LoadName+".json") }

func (r Request) readLoad() (rec loadRecord, err error) {
	_, err = readRecord(r.loadFile(), &rec)
	return rec, err
}

// loading adds an image of an archive to the record. The caller holds the lock of loads.
func (r Request) loading(l looked, id string) error {
	rec, err := r.readLoad()
	if err != nil {
		return err
	}
	rec.Images = append(rec.Images, id)
	if id == l.base.ID() {
		rec.Base, rec.Digest = id, l.plan.BaseDigest
	}
	return writeRecord(r.loadFile(), rec)
}

// loaded ends a load: all is in its place, or taken back, but what an earlier one has left.
func (r Request) loaded(left loadRecord) error {
	if len(left.Images) > 0 {
		return writeRecord(r.loadFile(), left)
	}
	if err := os.Remove(r.loadFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}

// leftOfLoad tells what of a killed load is of no use, the last image first, and what stays
// in the record. An image of which it was recorded what it is belongs to clean --images.
// The base below such a one stays, and where it is pinned, it is a base like any other.
// The images without count as gone.
func (r Request) leftOfLoad(without []string) (gone []string, stays loadRecord, err error) {
	rec, err := r.readLoad()
	if err != nil {
		return nil, stays, err
	}
	for _, id := range slices.Backward(rec.Images) {
		recorded, err := r.records(func(i imageRecord) bool { return i.ID == id && !slices.Contains(without, i.ID) })
		if err != nil {
			return nil, stays, err
		}
		if recorded || slices.Contains(without, id) {
			continue
		}
		if id == rec.Base {
			below, err := r.records(func(i imageRecord) bool {
				return i.Labels[image.LabelBaseDigest] == string(rec.Digest) && !slices.Contains(without, i.ID)
			})
			if err != nil {
				return nil, stays, err
			}
			pinned, err := r.pins(rec.Digest)
			switch {
			case err != nil:
				return nil, stays, err
			case pinned:
				continue
			case below:
				stays = loadRecord{[]string{id}, id, rec.Digest}
				continue
			}
		}
		gone = append(gone, id)
	}
	return gone, stays, nil
}

// LeftOfLoad tells whether a killed load has left something that RemoveLeftover removes,
// once these images are gone.
func (r Request) LeftOfLoad(without []string) (bool, error) {
	unlock, ok, err := r.tryBuild(LoadName)
	if err != nil || !ok {
		return false, err // images are being loaded
	}
	defer unlock()
	gone, _, err := r.leftOfLoad(without)
	return len(gone) > 0, err
}

// removeLoad removes that. The caller holds the lock of loads.
func (r Request) removeLoad(ctx context.Context, b Builder) (stays loadRecord, err error) {
	gone, stays, err := r.leftOfLoad(nil)
	if err != nil {
		return stays, err
	}
	for _, id := range gone {
		if there, err := b.ImageExists(ctx, id); err != nil {
			return stays, err
		} else if !there {
			continue
		}
		if err := b.RemoveImage(ctx, id); err != nil {
			return stays, err
		}
	}
	return stays, r.loaded(stays)
}

// records tells whether there is such a record of an image.
func (r Request) records(is func(imageRecord) bool) (bool, error) {
	return anyRecord(filepath.Join(r.StateDir, "images", "*.json"), is)
}

// pins tells whether any base is pinned to the digest.
func (r Request) pins(d digest.Digest) (bool, error) {
	return anyRecord(filepath.Join(r.CacheDir, "base", "*.json"), func(p baseRecord) bool { return p.Digest == d })
}

// anyRecord leaves out what makes no sense.
func anyRecord[T any](pattern string, is func(T) bool) (bool, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		var rec T
		if strings.HasSuffix(path, ".packages.json") {
			continue
		}
		if ok, err := readRecord(path, &rec); err == nil && ok && is(rec) {
			return true, nil
		}
	}
	return false, nil
}
