package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInterruptedBuild(t *testing.T) {
	w := newWorld(t)
	var said []string
	w.opt.Say = func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) }
	mark := ""
	interrupt := func() error {
		ctx, cancel := context.WithCancelCause(t.Context())
		w.builder.onBuild = func(ctx context.Context, b Build) error {
			mark = b.Mark
			cancel(errors.New("ended by a test"))
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := w.req.Ensure(ctx, w.builder, w.opt)
		return err
	}
	if err := interrupt(); err == nil || !strings.HasSuffix(err.Error(), ": ended by a test") {
		t.Errorf("error: %v", err)
	}
	if mark == "" || !slices.Equal(w.builder.ended, []string{mark}) || !slices.Equal(w.builder.removed, []string{mark}) {
		t.Errorf("ended %q, removed %q, and the build is %q", w.builder.ended, w.builder.removed, mark)
	}
	if len(said) == 0 || !strings.Contains(said[len(said)-1], "what had been begun is removed") {
		t.Errorf("said %q", said)
	}
	w.nothingLeft(t)

	// Where it does not end, nobody is told that it has.
	said, w.builder.removed, w.builder.endErr = nil, nil, errors.New("podman is still in a step")
	if err := interrupt(); err == nil || !strings.Contains(err.Error(), "ended by a test") || !strings.Contains(err.Error(), "still in a step; ai-sandbox clean") {
		t.Errorf("error: %v", err)
	}
	if len(w.builder.removed) > 0 || slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "removed") }) {
		t.Errorf("said %q, removed %q", said, w.builder.removed)
	}

	// A build that fails is not one that was interrupted: its layers are of use to the next.
	w.builder.ended, w.builder.endErr = nil, nil
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("exit status 1") }
	if _, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil {
		t.Error("it did not fail")
	}
	if len(w.builder.ended)+len(w.builder.removed) > 0 {
		t.Errorf("ended %q, removed %q", w.builder.ended, w.builder.removed)
	}
}

// A signal that comes when the image has its name changes nothing: it is recorded.
func TestInterruptedLate(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.builder.onTag = func(ctx context.Context) error { cancel(); return ctx.Err() }
	if _, err := w.req.Ensure(ctx, w.builder, w.opt); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	p, err := w.req.Plan()
	if err != nil || p.Gate.ID == "" || w.builder.names[p.Gate.Ref] != p.Gate.ID || len(w.builder.names) != 1 {
		t.Errorf("%v: the gate's image is %q, and names are %v", err, p.Gate.ID, w.builder.names)
	}
	if len(w.builder.removed) > 0 {
		t.Errorf("removed %q", w.builder.removed)
	}
}

// The next builder ends what a killed one has left with podman; and so does who cleans
// up, but for what somebody works on.
func TestKilledBuilder(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	dir := filepath.Join(w.req.CacheDir, "build")
	killed := func(img Image) string {
		t.Helper()
		name := string(img.Kind) + "-" + img.Tag
		if err := os.MkdirAll(filepath.Join(dir, name, "harness"), 0o700); err != nil {
			t.Fatal(err)
		}
		return w.req.mark(name)
	}
	gate := killed(p.Gate)
	if err := os.Remove(w.req.recordFile(t, p.Gate)); err != nil {
		t.Fatal(err)
	}
	w.builder.onBuild = func(_ context.Context, b Build) error {
		if !slices.Equal(w.builder.ended, []string{b.Mark}) || b.Mark != gate {
			t.Errorf("when %s is built, %q were ended", b.Mark, w.builder.ended)
		}
		return nil
	}
	w.ensure(t)

	gate, sandbox := killed(p.Gate), killed(p.Sandbox)
	unlock, ok, err := tryLock(filepath.Join(dir, string(p.Sandbox.Kind)+"-"+p.Sandbox.Tag+".lock"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	failed := w.req.mark("gate-of-a-build-that-failed")
	w.builder.ended, w.builder.unnamed = nil, []string{sandbox, failed, "of-another-cache", "../" + gate}
	clean := func(want ...string) {
		t.Helper()
		names, err := w.req.Leftovers(t.Context(), w.builder)
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("leftovers %q, %v", names, err)
		}
		// What has a builder again by now stays.
		for _, name := range append(names, string(p.Sandbox.Kind)+"-"+p.Sandbox.Tag) {
			if err := w.req.RemoveLeftover(t.Context(), w.builder, name); err != nil {
				t.Error(err)
			}
		}
	}
	clean(string(p.Gate.Kind)+"-"+p.Gate.Tag, "gate-of-a-build-that-failed")
	if !slices.Equal(w.builder.ended, []string{gate}) || !slices.Equal(w.builder.unnamed, []string{sandbox, "of-another-cache", "../" + gate}) {
		t.Errorf("ended %q, and left %q", w.builder.ended, w.builder.unnamed)
	}
	unlock()
	clean(string(p.Sandbox.Kind) + "-" + p.Sandbox.Tag)
	if !slices.Equal(w.builder.unnamed, []string{"of-another-cache", "../" + gate}) {
		t.Errorf("left %q", w.builder.unnamed)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// recordFile is where the record of an image is.
func (r Request) recordFile(t *testing.T, img Image) string {
	t.Helper()
	path, err := r.imageFile(img.Built, ".json")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
