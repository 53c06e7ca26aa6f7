package imagebuild

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/image"
)

// The doctor's image has the entrypoint and the places that are mounted on, and is gone
// afterwards, whatever came of it.
func TestTrial(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.req.CacheDir, "build", TrialName)
	mark := w.req.mark(TrialName)
	var built Build
	w.builder.onBuild = func(_ context.Context, b Build) error {
		built = b
		for _, d := range image.TrialDirs() {
			if info, err := os.Stat(filepath.Join(b.Dir, image.TrialRoot, d)); err != nil || !info.IsDir() {
				t.Errorf("%s: %v", d, err)
			}
		}
		if info, err := os.Stat(filepath.Join(b.Dir, image.TrialRoot, image.EntrypointPath)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the entrypoint: %v, %v", info, err)
		}
		if text, err := os.ReadFile(filepath.Join(b.Dir, "Containerfile")); err != nil || !strings.HasPrefix(string(text), "FROM scratch\nCOPY --chown=1000:1000 root/ /\n") {
			t.Errorf("%v: %s", err, text)
		}
		if names, err := w.req.Leftovers(t.Context(), w.builder); err != nil || len(names) > 0 {
			t.Errorf("%v: what is in use is left over: %q", err, names)
		}
		return nil
	}
	id, remove, err := w.req.Trial(t.Context(), w.builder)
	if err != nil || !w.builder.images[id] || built.Mark != mark || built.Labels[image.LabelRecipe] != image.TrialRecipe {
		t.Fatalf("%v: %q, %+v", err, id, built)
	}
	w.builder.removed = nil
	if err := remove(); err != nil || !slices.Equal(w.builder.removed, []string{mark}) {
		t.Errorf("%v: removed %q", err, w.builder.removed)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the build context stays: %v", err)
	}

	// It fails: nothing stays, and the next one need not wait.
	for range 2 {
		w.builder.removed, w.builder.onBuild = nil, func(context.Context, Build) error { return errors.New("planted") }
		if _, _, err := w.req.Trial(t.Context(), w.builder); err == nil || !strings.HasSuffix(err.Error(), "planted") {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || !slices.Contains(w.builder.removed, mark) {
			t.Errorf("the build context stays: %v, or the image: %q", err, w.builder.removed)
		}
	}

	// It is killed: clean sees it, and so does the next one.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if names, err := w.req.Leftovers(t.Context(), w.builder); err != nil || !slices.Equal(names, []string{TrialName}) {
		t.Errorf("%v: %q", err, names)
	}
	w.builder.ended, w.builder.onBuild = nil, nil
	if _, remove, err = w.req.Trial(t.Context(), w.builder); err != nil || !slices.Equal(w.builder.ended, []string{mark}) {
		t.Fatalf("%v: ended %q", err, w.builder.ended)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}
