// Builds that did not come to their end: what they leave is ended and removed.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// endTime bounds the end of a build that nobody waits for. A step's command is
// killed, so what is left is the removal of its containers.
const endTime = 2 * time.Minute

// mark names the builds of one recipe by this user with this cache: only one of them
// runs at a time. name is that of the recipe's lock.
func (r Request) mark(name string) string { return name + r.markEnd() }

func (r Request) markEnd() string { return "-" + digest.FromString(r.CacheDir).Encoded()[:12] }

// endBuild is EndBuild within its time.
func endBuild(ctx context.Context, b Builder, todo Build, since time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endTime, fmt.Errorf("it did not end within %s", endTime))
	defer cancel()
	return b.EndBuild(ctx, todo, since)
}

// abandon takes away what an interrupted build has made, and earlier ones of its recipe
// that failed. What another build is built on stays.
func abandon(ctx context.Context, b Builder, o Options, img *Image, todo Build, begun time.Time) error {
	ctx = context.WithoutCancel(ctx)
	if err := endBuild(ctx, b, todo, begun); err != nil {
		return fmt.Errorf("end the build of %s: %w; ai-sandbox clean removes what it leaves", img.Ref, err)
	}
	if err := b.RemoveUnnamed(ctx, todo.Mark); err != nil {
		return fmt.Errorf("remove what was built of %s: %w; ai-sandbox clean tries again", img.Ref, err)
	}
	o.Say("nothing of %s was built: what had been begun is removed", img.Ref)
	return nil
}

// Leftovers are the names of builds that failed or whose builder was killed, and that
// have left something, LoadName among them for a load that was; without those that somebody tries again just now.
func (r Request) Leftovers(ctx context.Context, b Builder) ([]string, error) {
	marks, err := b.Unnamed(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r.buildDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for leftovers of builds: %w", err)
	}
	names := map[string]bool{}
	// What is wrong with the record, its removal says, and the others' goes on.
	if gone, _, err := r.leftOfLoad(nil); err != nil || len(gone) > 0 {
		names[LoadName] = true
	}
	for _, e := range entries {
		if e.IsDir() { // a build context
			names[e.Name()] = true
		}
	}
	for _, mark := range marks {
		// What another cache has built has its lock there.
		if name, ok := strings.CutSuffix(mark, r.markEnd()); ok && name == filepath.Base(name) && filepath.IsLocal(name) {
			names[name] = true
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		unlock, ok, err := r.tryBuild(name)
		if err != nil {
			return nil, err
		}
		if ok {
			unlock()
			out = append(out, name)
		}
	}
	return out, nil
}

// RemoveLeftover ends what podman still does for such a build, and removes what is left
// of it.
func (r Request) RemoveLeftover(ctx context.Context, b Builder, name string) error {
	unlock, ok, err := r.tryBuild(name)
	if err != nil || !ok {
		return err // somebody tries it again by now
	}
	defer unlock()
	if name == LoadName {
		_, err := r.removeLoad(ctx, b)
		return err
	}
	return r.removeBuild(ctx, b, name)
}

// removeBuild does so with a build whose lock the caller holds.
func (r Request) removeBuild(ctx context.Context, b Builder, name string) error {
	mark := r.mark(name)
	scratch := filepath.Join(r.buildDir(), name)
	if info, err := os.Lstat(scratch); err == nil {
		if err := endBuild(ctx, b, Build{Mark: mark}, info.ModTime()); err != nil {
			return err
		}
		if err := os.RemoveAll(scratch); err != nil {
			return fmt.Errorf("remove leftovers of builds: %w", err)
		}
	}
	return b.RemoveUnnamed(ctx, mark)
}

func (r Request) buildDir() string { return filepath.Join(r.CacheDir, "build") }

// tryBuild takes the lock of a build's name; ok is false where somebody builds it.
func (r Request) tryBuild(name string) (unlock func(), ok bool, err error) {
	if err := os.MkdirAll(r.buildDir(), 0o700); err != nil {
		return nil, false, fmt.Errorf("look for leftovers of builds: %w", err)
	}
	return tryLock(filepath.Join(r.buildDir(), name+".lock"))
}
