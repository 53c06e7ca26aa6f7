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
)

// LoadName stands for a load among the names of Leftovers.
const LoadName = "load"

// A loadRecord is there while images are loaded: the ids of those that were not there
// before. It is written before podman gets them.
type loadRecord struct {
	Images []string `json:"images"`
}

func (r Request) loadFile() string { return filepath.Join(r.buildDir(), LoadName+".json") }

// loading adds an image to the record. The caller holds the lock of loads.
func (r Request) loading(id string) error {
	var rec loadRecord
	if _, err := readRecord(r.loadFile(), &rec); err != nil {
		return err
	}
	return writeRecord(r.loadFile(), loadRecord{append(rec.Images, id)})
}

// loaded ends the record: all is in its place, or taken back.
func (r Request) loaded() error {
	if err := os.Remove(r.loadFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("load images: %w", err)
	}
	return nil
}

// removeLoad removes what a killed load has left, the last image first; those of which
// it had already been recorded what they are stay, and then so does the base below them.
// The caller holds the lock of loads.
func (r Request) removeLoad(ctx context.Context, b Builder) error {
	var rec loadRecord
	if _, err := readRecord(r.loadFile(), &rec); err != nil {
		return err
	}
	kept := false
	for _, id := range slices.Backward(rec.Images) {
		recorded, err := r.recordsImage(id)
		if err != nil {
			return err
		}
		if kept = kept || recorded; kept {
			continue
		}
		if there, err := b.ImageExists(ctx, id); err != nil {
			return err
		} else if !there {
			continue
		}
		if err := b.RemoveImage(ctx, id); err != nil {
			return err
		}
	}
	return r.loaded()
}

// recordsImage tells whether any recipe's image is that one.
func (r Request) recordsImage(id string) (bool, error) {
	paths, err := filepath.Glob(filepath.Join(r.StateDir, "images", "*.json"))
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		var rec imageRecord
		if ok, err := readRecord(path, &rec); err == nil && ok && rec.ID == id {
			return true, nil
		}
	}
	return false, nil
}
