package imagebuild

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// An update made for another set has moved the packages, and nothing answers: a start
// goes on with the images of before, of its own configuration alone, and says so.
func TestImagesOfBefore(t *testing.T) {
	w := newWorld(t)
	other := w.req
	other.Setup = []byte("#!/bin/sh\n")
	was := w.ensure(t)
	if _, err := other.Ensure(t.Context(), w.builder, w.opt); err != nil {
		t.Fatal(err)
	}
	in, err := w.req.inputs()
	if err != nil {
		t.Fatal(err)
	}
	packages := packagesRecord{Ref: in.base.String(), Digest: digestA, Asked: time.Now().UTC().Truncate(time.Second)}
	if err := writeRecord(w.req.baseFile(in.base, ".packages.json"), packages); err != nil {
		t.Fatal(err)
	}
	tries := 0
	offline := errors.New("no network")
	w.builder.onBuild = func(context.Context, Build) error { tries++; return offline }
	try := func(r Request) (Plan, error) {
		w.said = nil
		return r.Ensure(t.Context(), w.builder, w.opt)
	}
	if _, err := try(w.req); !errors.Is(err, offline) {
		t.Fatalf("a build: %v", err)
	}
	w.opt.Before = true
	tries = 0
	for n, why := range []string{"no network", "ai-sandbox build"} { // the second one does not try again
		p, err := try(w.req)
		if err != nil || p.Sandbox.ID != was.Sandbox.ID || p.Gate.ID != was.Gate.ID || p.Sandbox.Ref != was.Sandbox.Ref || p.Gate.Ref != was.Gate.Ref ||
			p.BaseDigest != digestA || p.BaseRef != was.BaseRef || len(p.Harnesses) != 1 || p.Harnesses[0] != was.Harnesses[0] || p.Sandbox.Labels[image.LabelRecipe] != string(was.Sandbox.Hash) {
			t.Fatalf("%+v, %v", p, err)
		}
		if said := strings.Join(w.said, "\n"); len(w.said) != 1 || !strings.Contains(said, "could not be built, so those of ") || !strings.Contains(said, why) || tries != 1 {
			t.Errorf("%d: %d tries, said %q", n, tries, w.said)
		}
	}
	found := []Found{{ID: was.Sandbox.ID}, {ID: was.Gate.ID}}
	if ids, err := w.req.Uses(found); err != nil || len(ids) != 2 {
		t.Errorf("used: %q, %v", ids, err)
	}

	// Used they are also while policy.json demands what nobody has seen yet, or can't be
	// read; and where only the gate's image of now is gone.
	for name, demands := range map[string]func(image.Reference) (digest.Digest, error){
		"a signature":     func(image.Reference) (digest.Digest, error) { return digestB, nil },
		"a broken policy": func(image.Reference) (digest.Digest, error) { return "", errors.New("broken") },
	} {
		strict := w.req
		strict.Demands = demands
		if ids, err := strict.Uses(found); err != nil || len(ids) != 2 {
			t.Errorf("used with %s: %q, %v", name, ids, err)
		}
	}

	// What is of another configuration, or not accepted any more, does not count.
	third := w.req
	third.Apt = []string{"hello"}
	demanding, signed := w.req, w.req
	demanding.Demands = func(image.Reference) (digest.Digest, error) { return digestB, nil }
	signed.Keyring, signed.Verify = digestB, func(context.Context, []byte, []byte) (string, error) { return "", errors.New("no") }
	newer := w.req
	newer.EntrypointSHA256, newer.Entrypoint = sumOfBytes("f"), program("f")
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { return "", offline }
	for name, r := range map[string]Request{"packages": third, "a signature": demanding, "a signature of Node": signed, "an entrypoint": newer} {
		if p, err := try(r); err == nil || strings.Contains(strings.Join(w.said, "\n"), "so those of") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	// What was checked is the pin of today, so only images on that one will do.
	kept, err := w.req.recordedBase(in.base)
	if err != nil {
		t.Fatal(err)
	}
	for d, goes := range map[digest.Digest]bool{digestA: true, digestB: false} {
		if err := w.req.recordBase(in.base, baseRecord{Ref: in.base.String(), Digest: d, Resolved: time.Now(), Checked: digestB}); err != nil {
			t.Fatal(err)
		}
		if p, err := try(demanding); (err == nil) != goes {
			t.Errorf("pinned to %s, and checked: %+v, %v", d, p.BaseDigest, err)
		}
		if ids, err := demanding.Uses(found); err != nil || len(ids) != 2 {
			t.Errorf("pinned to %s, used: %q, %v", d, ids, err)
		}
	}
	if err := w.req.recordBase(in.base, kept); err != nil {
		t.Fatal(err)
	}
	w.builder.images[was.Gate.ID] = false
	if _, err := try(w.req); err == nil {
		t.Error("the gate's image is gone, and it goes on")
	}
	w.builder.images[was.Gate.ID] = true

	// After a while it is tried again; and when it works, those of now are used.
	then := time.Now().Add(-2 * askAgain)
	now, err := w.req.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(w.req.triedFile(now.Sandbox.Built), then, then); err != nil {
		t.Fatal(err)
	}
	w.builder.onBuild = nil
	if p, err := try(w.req); err != nil || p.Sandbox.ID == was.Sandbox.ID || p.Sandbox.Ref != now.Sandbox.Ref {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := os.Stat(w.req.triedFile(now.Sandbox.Built)); err == nil {
		t.Error("the note that it failed is still there")
	}
	ids, err := w.req.Uses(append(found, Found{ID: w.builder.names[now.Sandbox.Ref]}, Found{ID: w.builder.names[now.Gate.Ref]}))
	if err != nil || len(ids) != 2 || ids[1] == was.Sandbox.ID {
		t.Errorf("used: %q, %v", ids, err)
	}
	ids, err = w.req.Uses(append(found, Found{ID: w.builder.names[now.Sandbox.Ref]}))
	if err != nil || !slices.Contains(ids, was.Gate.ID) {
		t.Errorf("used without the gate's image of now: %q, %v", ids, err)
	}
}

// Only the gate's image is wanted: Node is asked nothing, and a pin that has moved is
// not recorded without the sandbox's image that the next start needs.
func TestGateAlone(t *testing.T) {
	w := newWorld(t)
	w.opt.Gate = true
	p, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err != nil || p.Gate.ID == "" || len(w.builder.builds) != 1 || w.site.asked != 0 || w.resolved != 1 {
		t.Fatalf("%d builds, the site was asked %d times: %+v, %v", len(w.builder.builds), w.site.asked, p, err)
	}
	if again, err := w.req.Ensure(t.Context(), w.builder, w.opt); err != nil || again.Gate.ID != p.Gate.ID || len(w.builder.builds) != 1 {
		t.Errorf("again: %d builds, %+v, %v", len(w.builder.builds), again, err)
	}
	w.opt.Gate = false
	if all := w.ensure(t); all.Gate.ID != p.Gate.ID || len(w.builder.builds) != 2 {
		t.Errorf("a start: %d builds", len(w.builder.builds))
	}
	w.opt.Gate = true
	w.req.TTLDays = 0
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { return digestB, nil }
	if p, err = w.req.Ensure(t.Context(), w.builder, w.opt); err != nil || p.BaseDigest != digestB || len(w.builder.builds) != 4 {
		t.Errorf("on a new base: %d builds, %+v, %v", len(w.builder.builds), p.BaseDigest, err)
	}
}
