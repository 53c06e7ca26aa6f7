package imagebuild

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

var errOffline = errors.New("no route")

// leadsTo is a registry in which every tag leads to d; "" is none that answers.
func (w *world) leadsTo(d digest.Digest) {
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) {
		w.resolved++
		if d == "" {
			return "", errOffline
		}
		return d, nil
	}
}

// age makes the pin so old.
func (w *world) age(t *testing.T, age time.Duration) {
	t.Helper()
	in, err := w.req.inputs()
	if err != nil {
		t.Fatal(err)
	}
	in.pin.Resolved = time.Now().Add(-age)
	if err := w.req.recordBase(in.base, in.pin); err != nil {
		t.Fatal(err)
	}
}

// When the registry is asked, and which digest is then built on.
func TestFreshness(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		change func(*Request)
		asked  bool
	}{
		"young":                 {6 * day, func(*Request) {}, false},
		"old":                   {8 * day, func(*Request) {}, true},
		"from the future":       {-2 * day, func(*Request) {}, true},
		"a longer time":         {8 * day, func(r *Request) { r.TTLDays = 30 }, false},
		"a shorter time":        {2 * day, func(r *Request) { r.TTLDays = 1 }, true},
		"at every build":        {time.Second, func(r *Request) { r.TTLDays = 0 }, true},
		"never":                 {1000 * day, func(r *Request) { r.TTLDays = -1 }, false},
		"no updates":            {1000 * day, func(r *Request) { r.KeepPin = true }, false},
		"no updates, each time": {time.Second, func(r *Request) { r.KeepPin, r.TTLDays = true, 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leadsTo(digestA)
			w.ensure(t)
			w.age(t, c.age)
			c.change(&w.req)
			w.leadsTo(digestB)
			w.resolved = 0
			p, err := w.req.Plan()
			if err != nil || p.Due != c.asked {
				t.Errorf("due: %v, %v", p.Due, err)
			}
			if warm, err := p.Warm(t.Context(), w.builder); err != nil || warm == c.asked {
				t.Errorf("warm: %v, %v", warm, err)
			}
			want := digestA
			if c.asked {
				want = digestB
			}
			if p := w.ensure(t); p.BaseDigest != want || (w.resolved > 0) != c.asked {
				t.Errorf("built on %s, asked %d times", p.BaseDigest, w.resolved)
			}
		})
	}
}

// A registry that says the same again makes the pin young, and nothing new.
func TestConfirmed(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	w.age(t, 8*day)
	again := w.ensure(t)
	if again.Sandbox.ID != p.Sandbox.ID || len(w.builder.builds) != 2 || w.resolved != 2 {
		t.Errorf("%d builds, asked %d times", len(w.builder.builds), w.resolved)
	}
	if p, err := w.req.Plan(); err != nil || p.Due || time.Since(p.Pinned) > time.Minute {
		t.Errorf("due %v, pinned %v, %v", p.Due, p.Pinned, err)
	}
}

// Offline an old pin counts. A start asks once an hour; who asks for a build is told
// each time.
func TestStalePin(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	w.age(t, 8*day)
	w.leadsTo("")
	for i, want := range []int{1, 0} {
		w.resolved, w.said = 0, nil
		if p := w.ensure(t); p.BaseDigest != digestA || w.resolved != want || len(w.said) != want {
			t.Errorf("start %d: on %s, asked %d times, said %q", i, p.BaseDigest, w.resolved, w.said)
		}
	}
	w.opt.Asked = true
	if p := w.ensure(t); p.BaseDigest != digestA || w.resolved != 1 || !strings.Contains(w.said[0], "stays as pinned on ") {
		t.Errorf("a build: on %s, asked %d times, said %q", p.BaseDigest, w.resolved, w.said)
	}
	// Who wants it at every build gets it.
	w.opt.Asked, w.req.TTLDays, w.resolved = false, 0, 0
	if w.ensure(t); w.resolved != 1 {
		t.Errorf("at 0 days: asked %d times", w.resolved)
	}
	w.req.TTLDays = 7
	// The hour is over.
	w.opt.Asked = false
	in, err := w.req.inputs()
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-2 * askAgain)
	if err := os.Chtimes(w.req.baseFile(in.base, ".tried"), then, then); err != nil {
		t.Fatal(err)
	}
	w.leadsTo(digestB)
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("online again: on %s", p.BaseDigest)
	}
	// What got no answer once is over with an answer.
	w.age(t, 8*day)
	w.leadsTo(digestA)
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("and once more: on %s", p.BaseDigest)
	}
}

// Where nothing can be built on the new base, a start goes on with the old images, and
// who asked for a build is told.
func TestNewBaseBroken(t *testing.T) {
	w := newWorld(t)
	old := w.ensure(t)
	w.age(t, 8*day)
	w.leadsTo(digestB)
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("exit status 9") }
	if p := w.ensure(t); p.Sandbox.ID != old.Sandbox.ID || !strings.Contains(strings.Join(w.said, "\n"), "could not be built") {
		t.Errorf("started on %s, said %q", p.Sandbox.ID, w.said)
	}
	w.opt.Asked = true
	if _, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "exit status 9") {
		t.Errorf("a build: %v", err)
	}
	if p, err := w.req.Plan(); err != nil || p.BaseDigest != digestA {
		t.Errorf("pinned to %s, %v", p.BaseDigest, err)
	}
	w.builder.onBuild = nil
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("mended: on %s", p.BaseDigest)
	}
	if p, err := w.req.Plan(); err != nil || p.BaseDigest != digestB || p.Due {
		t.Errorf("mended: pinned to %s, due %v, %v", p.BaseDigest, p.Due, err)
	}
}

// The same where the old images stand on no pin at all: that of the images that could
// not be built is not remembered.
func TestFirstPinBroken(t *testing.T) {
	w := newWorld(t)
	w.leadsTo("")
	old := w.ensure(t)
	w.leadsTo(digestB)
	if err := os.Remove(w.req.baseFile(old.BaseRef, ".tried")); err != nil {
		t.Fatal(err)
	}
	w.said = nil
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("exit status 9") }
	for i := range 2 {
		if p := w.ensure(t); p.Sandbox.ID != old.Sandbox.ID || p.BaseDigest != "" {
			t.Errorf("start %d: on %q", i, p.BaseDigest)
		}
	}
	if all := strings.Join(w.said, "\n"); !strings.Contains(all, "could not be built, so those on UNPINNED are used") || strings.Contains(all, "0001") {
		t.Errorf("said %q", w.said)
	}
	// Not so where a signature is demanded: nobody has looked for one of these.
	w.rules("sha256:rules")
	if p, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil {
		t.Errorf("with a demand: on %q", p.BaseDigest)
	}
	w.rules("")
	w.opt.Asked, w.builder.onBuild = true, nil
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("mended: on %q", p.BaseDigest)
	}
	if p, err := w.req.Plan(); err != nil || p.BaseDigest != digestB || p.Due {
		t.Errorf("mended: pinned to %q, due %v, %v", p.BaseDigest, p.Due, err)
	}
}

func TestPullInstead(t *testing.T) {
	w := newWorld(t)
	w.leadsTo("")
	w.builder.pull = func(ref image.Reference) (digest.Digest, error) {
		if ref.String() != image.DefaultBase {
			t.Errorf("pulled %s", ref)
		}
		return digestB, nil
	}
	w.req.NoPull = true
	if p := w.ensure(t); p.BaseDigest != "" {
		t.Errorf("without pulls: on %s", p.BaseDigest)
	}
	w.req.NoPull, w.opt.Asked = false, true
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("with pulls: on %q", p.BaseDigest)
	}
}

// Ten starts with a pin that is due ask the registry once.
func TestRefreshAtOnce(t *testing.T) {
	for _, ttl := range []int{0, 7} {
		w := newWorld(t)
		w.ensure(t)
		w.age(t, 8*day)
		w.req.TTLDays = ttl
		var asked atomic.Int32
		var all, waiting sync.WaitGroup
		var plans [10]Plan
		waiting.Add(len(plans) - 1)
		w.opt.Say = func(format string, _ ...any) {
			if strings.HasPrefix(format, "waiting for another ai-sandbox that looks") {
				waiting.Done()
			}
		}
		w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) {
			if asked.Add(1) == 1 {
				waiting.Wait() // a start that comes later may ask again, as ttl says
			}
			return digestB, nil
		}
		begin := make(chan struct{})
		for i := range plans {
			all.Go(func() {
				<-begin
				var err error
				if plans[i], err = w.req.Ensure(t.Context(), w.builder, w.opt); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
		for _, p := range plans {
			if p.Sandbox.ID != plans[0].Sandbox.ID || p.BaseDigest != digestB {
				t.Errorf("built on %s", p.BaseDigest)
			}
		}
		if asked.Load() != 1 || len(w.builder.builds) != 4 {
			t.Errorf("at %d days: asked %d times, %d builds", ttl, asked.Load(), len(w.builder.builds))
		}
	}
}

// BenchmarkWarm is what a start does to know that its images are current, but for
// podman's two answers.
func BenchmarkWarm(b *testing.B) {
	w := newWorld(b)
	if _, err := w.req.Ensure(b.Context(), w.builder, w.opt); err != nil {
		b.Fatal(err)
	}
	w.opt.Resolve = nil
	w.site.Close()
	for b.Loop() {
		p, err := w.req.Plan()
		if err != nil {
			b.Fatal(err)
		}
		if warm, err := p.Warm(b.Context(), w.builder); err != nil || !warm {
			b.Fatal(warm, err)
		}
	}
}
