// Builds that did not come to their end: what they leave is ended and removed.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
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
const endTime = 30 * time.Second

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

// abandon takes away what an interrupted build has made. Layers that were there
// before, and whatever another build has made use of, stay.
func abandon(ctx context.Context, b Builder, o Options, img *Image, todo Build, begun time.Time) error {
	ctx = context.WithoutCancel(ctx)
	if err := endBuild(ctx, b, todo, begun); err != nil {
		return fmt.Errorf("end the build of %s: %w; ai-sandbox clean removes what it leaves", img.Ref, err)
	}
	if _, err := b.RemoveUnnamed(ctx, todo.Mark); err != nil {
		return fmt.Errorf("remove what was built of %s: %w; ai-sandbox clean tries again", img.Ref, err)
	}
	o.Say("nothing of %s was built: what had been begun is removed", img.Ref)
	return nil
}

// Clean removes what failed and killed builds have left, but for those that somebody
// tries again just now. It returns how many images that was.
func (r Request) Clean(ctx context.Context, b Builder) (removed int, err error) {
	marks, err := b.Unnamed(ctx)
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(r.CacheDir, "build")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("clean up after builds: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("clean up after builds: %w", err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() { // a build context
			names[e.Name()] = true
		}
	}
	for _, mark := range marks {
		// What another cache has built has its lock there.
		if name, ok := strings.CutSuffix(mark, r.markEnd()); ok && filepath.IsLocal(name) {
			names[name] = true
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, err := r.cleanBuild(ctx, b, dir, name)
		removed += n
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func (r Request) cleanBuild(ctx context.Context, b Builder, dir, name string) (removed int, err error) {
	unlock, ok, err := tryLock(filepath.Join(dir, name+".lock"))
	if err != nil || !ok {
		return 0, err
	}
	defer unlock()
	mark := r.mark(name)
	scratch := filepath.Join(dir, name)
	if info, err := os.Lstat(scratch); err == nil {
		if err := endBuild(ctx, b, Build{Mark: mark}, info.ModTime()); err != nil {
			return 0, err
		}
		if err := os.RemoveAll(scratch); err != nil {
			return 0, fmt.Errorf("clean up after builds: %w", err)
		}
	}
	return b.RemoveUnnamed(ctx, mark)
}
