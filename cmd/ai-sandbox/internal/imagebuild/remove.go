// Removing images that are of no use any more.

package imagebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// Here tells whether this program built, or took over, the image for this user and
// state directory. Others with our labels may be in podman's store.
func (r Request) Here(f Found) bool {
	kind, tag := image.Kind(f.Labels[image.LabelKind]), f.Labels[image.LabelVersion]
	if rec, err := r.recordOf(kind, tag); err == nil && rec.ID == f.ID {
		return true
	}
	_, err := os.Lstat(r.manifestFile(f.ID))
	return err == nil
}

// recordOf is the record of an image by what its labels say; zero where there is none.
func (r Request) recordOf(kind image.Kind, tag string) (imageRecord, error) {
	var rec imageRecord
	if kind != image.KindSandbox && kind != image.KindGate || filepath.Base(tag) != tag {
		return rec, nil
	}
	_, err := readRecord(r.imagePath(kind, tag, ".json"), &rec)
	return rec, err
}

// Uses are the ids of the images of the request, of those that are there: also where no
// run may stand on them yet, because a signature of theirs is to be seen first: rules and
// keys may be back tomorrow. Where Node's checksum is not known at all any more, each
// sandbox with the same Node counts. Where one of those of now isn't there, a start may
// go on with those of before.
func (r Request) Uses(found []Found) ([]string, error) {
	r.Keyring, r.Demands = "", nil
	p, err := r.Plan()
	unresolved := errors.Is(err, ErrUnresolved)
	if err != nil && !unresolved {
		return nil, err
	}
	var ids []string
	for _, img := range []Image{p.Gate, p.Sandbox} {
		if img.ID != "" {
			ids = append(ids, img.ID)
		}
	}
	for _, f := range found {
		if unresolved && f.Labels[image.LabelKind] == string(image.KindSandbox) && f.Labels[image.LabelNode] == p.in.node.Version {
			ids = append(ids, f.ID)
		}
	}
	have := func(id string) (bool, error) {
		return slices.ContainsFunc(found, func(f Found) bool { return f.ID == id }), nil
	}
	sandbox, _ := have(p.Sandbox.ID)
	gate, _ := have(p.Gate.ID)
	if sandbox && gate {
		return ids, nil
	}
	// The newest, and the newest on the pin: others don't count where a signature is demanded.
	onPin := p.in
	onPin.demands, onPin.pin.Checked = anyDemand, anyDemand
	for _, in := range []inputs{p.in, onPin} {
		old, _, ok, err := r.before(in, have)
		if err != nil {
			return nil, err
		}
		for _, id := range []string{old.Gate.ID, old.Sandbox.ID} {
			if ok && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// HoldBases keeps builds of the requests that move a pin, updates, checks that run a setup
// script and loads from beginning until release is called. ok is false where one runs: what it has built so far looks as
// if nothing used it, until the pin is recorded.
func HoldBases(list []Request) (release func(), ok bool, err error) {
	held := map[string]func(){}
	release = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	for _, r := range list {
		ref, err := image.ParseReference(cmp.Or(r.Base, image.DefaultBase))
		if err != nil {
			release()
			return nil, false, err
		}
		path := r.baseFile(ref, ".lock")
		// Where there is none yet, whatever begins now is not looked at.
		if _, err := os.Lstat(path); held[path] != nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		unlock, free, err := tryLock(path)
		if err != nil || !free {
			release()
			return nil, false, err
		}
		held[path] = unlock
	}
	return release, true, nil
}

// anyDemand stands for whatever a policy.json may demand.
const anyDemand = digest.Digest("any")

// Remove removes an image that is Here, with its record and the log of its build,
// unless a container uses it. Its manifest stays, so that it can still be told what a
// session stood on.
func (r Request) Remove(ctx context.Context, b Builder, f Found) error {
	kind, tag := image.Kind(f.Labels[image.LabelKind]), f.Labels[image.LabelVersion]
	dir := r.buildDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("remove image %.12s: %w", f.ID, err)
	}
	// Nobody builds it meanwhile. Who starts on it just now has a container of it by
	// then, or is told that it is gone.
	unlock, err := lock(ctx, filepath.Join(dir, string(kind)+"-"+filepath.Base(tag)+".lock"), func() {})
	if err != nil {
		return fmt.Errorf("remove image %.12s: %w", f.ID, err)
	}
	defer unlock()
	if err := b.RemoveImage(ctx, f.ID); err != nil {
		return err
	}
	rec, err := r.recordOf(kind, tag)
	if err != nil || rec.ID != f.ID {
		return err
	}
	for _, ext := range []string{".json", ".log"} {
		err := os.Remove(r.imagePath(kind, tag, ext))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget image %.12s: %w", f.ID, err)
		}
	}
	return nil
}
