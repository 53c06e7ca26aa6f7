package imagebuild

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/image"
)

// What a setup script brings has moved, in a package or in a file: a check says it and
// leaves nothing, an update takes it, and with the same result the image stays.
func TestUpdateOfASetup(t *testing.T) {
	const old, newer = "deb libssl3t64 3.5.1-1 amd64\nnpm left-pad 1.0.0\n", "deb libssl3t64 3.5.1-1 amd64\nnpm left-pad 1.3.0\n"
	for name, c := range map[string]struct {
		packages, content string
		want              string // its kind; "": nothing
	}{
		"the same":      {old, "one", ""},
		"a package":     {newer, "one", "npm"},
		"a file":        {old, "two", "file"},
		"one with both": {newer, "two", "npm"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUpdateWorld(t)
			w.req.Setup = []byte("echo made\n")
			w.builder.packages, w.builder.content = old, "one"
			first := w.ensure(t)
			w.builder.packages, w.builder.content = c.packages, c.content
			builds, images := len(w.builder.builds), len(w.builder.images)
			out := w.check(t)
			kind := ""
			// The packages of the fake's gate are those of its sandbox.
			out.Changes = slicesOf(out.Changes, image.KindSandbox)
			if len(out.Changes) > 0 {
				kind = out.Changes[0].Kind
			}
			if kind != c.want || len(out.Changes) > 1 || !strings.Contains(strings.Join(out.Notes, "\n"), "the setup script was run") {
				t.Errorf("a check says %+v", out)
			}
			if len(w.builder.builds) != builds+1 || !strings.Contains(w.builder.builds[builds], ": run anew on ") || strings.Contains(w.builder.builds[builds], "asked for anew") {
				t.Errorf("a check builds %q", w.builder.builds[builds:])
			}
			if len(w.builder.images) != images || len(w.builder.primed) != 2 {
				t.Errorf("a check leaves %d images of %d, and starts %d", len(w.builder.images), images, len(w.builder.primed))
			}
			if p := w.ensure(t); p.Sandbox.ID != first.Sandbox.ID {
				t.Errorf("after a check, runs stand on %s", p.Sandbox.Ref)
			}
			brought := slicesOf(w.update(t).Changes, image.KindSandbox)
			if !reflect.DeepEqual(brought, out.Changes) {
				t.Errorf("an update says %+v, and a check %+v", brought, out.Changes)
			}
			p := w.ensure(t)
			if (p.Sandbox.ID == first.Sandbox.ID) != (c.want == "") || w.builder.contents[p.Sandbox.ID] != c.content || w.builder.manifest[p.Sandbox.ID] != c.packages {
				t.Errorf("after an update, runs stand on %s with %q", p.Sandbox.Ref, w.builder.contents[p.Sandbox.ID])
			}
			if out := w.check(t); len(out.Changes) > 0 {
				t.Errorf("a check behind it says %+v", out.Changes)
			}
			if out := w.update(t); len(out.Changes) > 0 {
				t.Errorf("an update behind it says %+v", out.Changes)
			}
			if again := w.ensure(t); again.Sandbox.ID != p.Sandbox.ID {
				t.Errorf("an update without changes leaves %s", again.Sandbox.Ref)
			}
		})
	}
}

// slicesOf are the changes of one image.
func slicesOf(list []image.Change, kind image.Kind) []image.Change {
	out := []image.Change{}
	for _, c := range list {
		if c.Image == kind {
			out = append(out, c)
		}
	}
	return out
}

// The image of a check is nobody's: no start goes on with it, and while it is there nobody
// looks for what is unused.
func TestImageOfACheck(t *testing.T) {
	w := newUpdateWorld(t)
	w.req.Setup = []byte("echo made\n")
	p := w.ensure(t)
	looked := 0
	w.builder.onFiles = func() {
		looked++
		old, _, ok, err := w.req.before(p.in, func(id string) (bool, error) { return w.builder.ImageExists(t.Context(), id) })
		if err != nil || !ok || old.Sandbox.ID != p.Sandbox.ID {
			t.Errorf("a start goes on with %s (%t), and not with %s: %v", old.Sandbox.Ref, ok, p.Sandbox.Ref, err)
		}
		if _, ok, err := HoldBases([]Request{w.req}); ok || err != nil {
			t.Errorf("somebody looks for what is unused: %t, %v", ok, err)
		}
	}
	w.check(t)
	if looked != 2 {
		t.Errorf("%d images were looked at", looked)
	}
	release, ok, err := HoldBases([]Request{w.req})
	if err != nil || !ok {
		t.Fatalf("after it: %t, %v", ok, err)
	}
	release()
}

// A script that fails today makes no "nothing would change", and is not run where there is
// nothing to compare with, or none.
func TestCheckOfASetup(t *testing.T) {
	w := newUpdateWorld(t)
	said := func(out Outcome) bool { return strings.Contains(strings.Join(out.Notes, "\n"), "the setup script") }
	w.ensure(t)
	if said(w.check(t)) || len(w.builder.builds) != 2 {
		t.Error("something is said of a script, and there is none")
	}
	w.req.Setup = []byte("echo made\n")
	if said(w.check(t)) || len(w.builder.builds) != 2 {
		t.Error("it is run for an image that is not built yet")
	}
	w.ensure(t)
	// On what is newer it was not run, and that is said.
	w.leadsTo(digestB)
	if out := w.check(t); !said(out) || !strings.Contains(strings.Join(out.Notes, "\n"), "on newer ones was not looked at") {
		t.Errorf("a check with a newer base says %+v", out)
	}
	// What it leaves is taken away, and not what a build of the user's has left for the
	// next try.
	p := w.ensure(t)
	delete(w.builder.images, p.Gate.ID)
	if err := os.Remove(w.req.recordFile(t, p.Gate)); err != nil {
		t.Fatal(err)
	}
	mine := w.req.mark("gate-" + p.Gate.Tag)
	w.builder.unnamed = []string{mine}
	w.builder.onBuild = func(_ context.Context, b Build) error {
		w.builder.unnamed = append(w.builder.unnamed, b.Mark)
		return errors.New("exit status 9")
	}
	if out, err := w.req.Check(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "run the setup script") {
		t.Errorf("a check says %+v, %v", out, err)
	}
	if !slices.Equal(w.builder.unnamed, []string{mine}) {
		t.Errorf("a check leaves layers of %q", w.builder.unnamed)
	}
}
