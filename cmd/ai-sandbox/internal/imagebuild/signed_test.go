package imagebuild

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// rules is a policy.json, as it hashes.
func (w *world) rules(d digest.Digest) {
	w.req.Demands = func(image.Reference) (digest.Digest, error) { return d, nil }
}

// signed is a registry in which every tag leads to d, and of which only these digests
// are signed.
func (w *world) signed(d digest.Digest, signed ...digest.Digest) {
	w.opt.Resolve = func(_ context.Context, ref image.Reference) (digest.Digest, error) {
		w.resolved++
		at := ref.Digest
		if at == "" {
			at = d
		}
		if !slices.Contains(signed, at) {
			return "", &image.RefusedError{Ref: ref.String(), Why: errors.New("a signature was required, but no signature exists")}
		}
		return at, nil
	}
}

func (w *world) refused(t *testing.T, what string) {
	t.Helper()
	var refused *image.RefusedError
	if p, err := w.req.Ensure(t.Context(), w.builder, w.opt); !errors.As(err, &refused) {
		t.Errorf("%s: on %q, %v", what, p.BaseDigest, err)
	}
}

// A pin of before there was a policy.json is checked before anything stands on it, once,
// and again when other rules or keys are demanded.
func TestPinFromBefore(t *testing.T) {
	w := newWorld(t)
	old := w.ensure(t)
	w.rules("sha256:rules")
	if p, err := w.req.Plan(); err != nil || !p.Due {
		t.Fatalf("due: %v, %v", p.Due, err)
	}
	w.signed(digestB, digestB)
	w.refused(t, "not signed")
	w.leadsTo("")
	w.refused(t, "offline")
	w.req.KeepPin, w.req.TTLDays = true, -1
	w.refused(t, "offline, with a pin that is kept")
	w.signed(digestB, digestA, digestB)
	for i, want := range []int{1, 0} {
		w.resolved = 0
		// The check moves nothing, although the tag has moved.
		if p := w.ensure(t); p.BaseDigest != digestA || p.Sandbox.ID != old.Sandbox.ID || w.resolved != want {
			t.Errorf("start %d: on %s, asked %d times", i, p.BaseDigest, w.resolved)
		}
	}
	w.leadsTo("")
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("offline, checked: on %s", p.BaseDigest)
	}
	w.rules("sha256:others")
	w.refused(t, "offline, under other rules")
	w.rules("")
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("nothing is demanded any more: on %s", p.BaseDigest)
	}
}

// What another process has pinned meanwhile, under rules that demand nothing, is checked
// as well.
func TestPinOfAnother(t *testing.T) {
	for name, signed := range map[string]bool{"not signed": false, "signed": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.ensure(t)
			w.rules("sha256:rules")
			w.signed(digestA, digestA)
			if signed {
				w.signed(digestA, digestA, digestB)
			}
			unlock, err := lock(t.Context(), w.req.baseFile(p.BaseRef, ".lock"), func() {})
			if err != nil {
				t.Fatal(err)
			}
			w.opt.Say = func(string, ...any) {
				if unlock == nil {
					return
				}
				other := inputs{base: p.BaseRef}
				if err := w.req.recordBase(p.BaseRef, other.newPin(digestB, time.Now())); err != nil {
					t.Error(err)
				}
				unlock()
				unlock = nil
			}
			if !signed {
				w.refused(t, "pinned by another")
				return
			}
			w.resolved = 0
			if p := w.ensure(t); p.BaseDigest != digestB || w.resolved != 1 {
				t.Errorf("on %s, asked %d times", p.BaseDigest, w.resolved)
			}
			if p, err := w.req.Plan(); err != nil || p.Due {
				t.Errorf("due: %v, %v", p.Due, err)
			}
		})
	}
}

// A policy.json that can't be read is no reason not to print a plan, and one not to
// stand on it.
func TestPolicyUnreadable(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	w.req.Demands = func(image.Reference) (digest.Digest, error) {
		return "", &image.RefusedError{Ref: "x", Why: errors.New("no policy.json file found")}
	}
	p, err := w.req.Plan()
	if err != nil || !p.Due || p.BaseDigest != digestA {
		t.Errorf("%v, %+v", err, p.Due)
	}
	w.refused(t, "unreadable")
	w.req.Base = "a.example/base@" + string(digestA)
	w.refused(t, "unreadable, and a base by its digest")
	w.rules("")
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("on %s", p.BaseDigest)
	}
}

// The tag has moved to an image without a signature: a start goes on with what was
// checked, and says so, and who asked for a build is told.
func TestMovedToUnsigned(t *testing.T) {
	w := newWorld(t)
	w.rules("sha256:rules")
	w.signed(digestA, digestA)
	w.ensure(t)
	w.age(t, 8*day)
	w.signed(digestB, digestA)
	for i, want := range []int{1, 0} {
		w.said = nil
		if p := w.ensure(t); p.BaseDigest != digestA || len(w.said) != want {
			t.Errorf("start %d: on %s, said %q", i, p.BaseDigest, w.said)
		} else if want == 1 && !strings.Contains(w.said[0], "stays as pinned on ") {
			t.Errorf("said %q", w.said)
		}
	}
	w.opt.Asked = true
	w.refused(t, "a build")
	if _, err := w.req.Update(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "does not accept") {
		t.Errorf("an update: %v", err)
	}
}

// What is refused is not fetched by another way, and without an answer nothing is built
// on a tag.
func TestNoWayRound(t *testing.T) {
	w := newWorld(t)
	w.rules("sha256:rules")
	pulled := 0
	w.builder.pull = func(image.Reference) (digest.Digest, error) { pulled++; return digestB, nil }
	w.signed(digestA)
	w.refused(t, "not signed")
	if pulled > 0 {
		t.Error("podman was asked for what was refused")
	}
	w.leadsTo("")
	w.req.NoPull = true
	w.refused(t, "no answer")
	w.req.NoPull = false
	w.builder.pull = func(ref image.Reference) (digest.Digest, error) {
		return "", &image.RefusedError{Ref: ref.String(), Why: errors.New("no signature")}
	}
	w.refused(t, "refused by podman")
	if len(w.builder.builds) > 0 {
		t.Error("something was built")
	}
	// The control: podman accepts it.
	w.builder.pull = func(image.Reference) (digest.Digest, error) { return digestB, nil }
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("on %q", p.BaseDigest)
	}
	// What was pinned under another tag of the same image: podman, which would judge it by
	// its digest, is not asked.
	w = newWorld(t)
	w.builder.pull = func(image.Reference) (digest.Digest, error) { pulled++; return digestA, nil }
	w.ensure(t)
	w.rules("sha256:rules")
	w.leadsTo("")
	w.refused(t, "a pin of before")
	w.opt.Accept = nil
	w.refused(t, "a pin of before, and nobody to ask")
	if pulled > 0 {
		t.Error("podman was asked about a pin")
	}
	// An image on an unpinned base, from before.
	w = newWorld(t)
	w.leadsTo("")
	w.ensure(t)
	w.rules("sha256:rules")
	w.refused(t, "an unpinned base")
}

// A base that the user names by its digest is checked as well, once.
func TestSignatureOfDigest(t *testing.T) {
	w := newWorld(t)
	w.req.Base = "a.example/base@" + string(digestA)
	w.rules("sha256:rules")
	w.signed(digestB)
	w.refused(t, "not signed")
	if _, err := w.req.Check(t.Context(), w.builder, w.opt); err == nil {
		t.Error("a check of updates says nothing of it")
	}
	w.signed(digestB, digestA)
	for i, want := range []int{1, 0} {
		w.resolved = 0
		if p := w.ensure(t); p.BaseDigest != digestA || w.resolved != want || !p.Pinned.IsZero() {
			t.Errorf("start %d: on %s, asked %d times", i, p.BaseDigest, w.resolved)
		}
	}
	w.rules("")
	w.leadsTo("")
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("on %s", p.BaseDigest)
	}
}

// A pin that is refused is replaced by an update, if what the tag leads to is signed.
func TestUpdateFromUnsigned(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	w.rules("sha256:rules")
	w.signed(digestB, digestB)
	w.builder.scripts = map[string]string{agent(t, "pi").NewestScript(): agent(t, "pi").Version + "\n"}
	_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	var hint interface{ Hint() string }
	if !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "ai-sandbox update") {
		t.Fatalf("%v", err)
	}
	if _, err := w.req.Update(t.Context(), w.builder, w.opt); err != nil {
		t.Fatal(err)
	}
	w.leadsTo("")
	if p := w.ensure(t); p.BaseDigest != digestB || p.Due {
		t.Errorf("on %s", p.BaseDigest)
	}
}
