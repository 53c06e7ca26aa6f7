// What goes into the recipes of this machine, and the pin of the base: when it is
// due to be looked at again, and how it is replaced.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

const (
	// askTime bounds a question to a registry, and pullTime the pull instead of it,
	// where somebody waits for a start who could do without an answer.
	askTime  = 10 * time.Second
	pullTime = 60 * time.Second
	// askAgain is how long such a question is not asked again after it got no
	// answer.
	askAgain = time.Hour

	day = 24 * time.Hour
)

// inputs are what the recipes are made of, as far as it is not in the request.
type inputs struct {
	base image.Reference
	pin  baseRecord // zero when UNPINNED
	// demands is what policy.json demands of the base (Request.Demands).
	demands    digest.Digest
	demandsErr error
	packages   string
	node       image.Node // its checksum may not be known
	// locks are the harnesses at another version than their own.
	locks map[string]*image.Lock
	// again is when the setup script is run anew for a check (image.Recipe).
	again string
}

// version is that of a harness.
func (in inputs) version(h image.Harness) string {
	if l := in.locks[h.Name]; l != nil {
		return l.Version
	}
	return h.Version
}

// with is the inputs with another lock file, or without one.
func (in inputs) with(harness string, l *image.Lock) inputs {
	in.locks = maps.Clone(in.locks)
	if in.locks == nil {
		in.locks = map[string]*image.Lock{}
	}
	in.locks[harness] = l
	return in
}

func (a baseRecord) same(b baseRecord) bool {
	return a.Digest == b.Digest && a.Resolved.Equal(b.Resolved) && a.Checked == b.Checked
}

// inputs reads what is remembered.
func (r Request) inputs() (inputs, error) {
	ref := r.Base
	if ref == "" {
		ref = image.DefaultBase
	}
	var in inputs
	var err error
	if in.base, err = image.ParseReference(ref); err != nil {
		return inputs{}, err
	}
	r.demand(&in)
	if in.base.Digest != "" {
		if in.pin, err = r.fixedPin(in); err != nil {
			return inputs{}, err
		}
	} else if in.pin, err = r.recordedBase(in.base); err != nil {
		return inputs{}, err
	}
	if in.packages, err = r.recordedPackages(in.base, in.pin.Digest); err != nil {
		return inputs{}, err
	}
	version := r.NodeVersion
	if version == "" {
		if version, err = r.recordedNode(); err != nil {
			return inputs{}, err
		}
	}
	if in.node, err = r.node(version); err != nil {
		return inputs{}, err
	}
	for _, h := range r.Harnesses {
		l, err := r.recordedLock(h)
		if err != nil {
			return inputs{}, err
		}
		if l != nil {
			in = in.with(h.Name, l)
		}
	}
	return in, nil
}

// node is a version of Node with its checksum, if that is known.
func (r Request) node(version string) (image.Node, error) {
	n, err := image.NewNode(version, r.Arch)
	if err != nil || n.SHA256 != "" {
		return n, err
	}
	n.SHA256, err = r.recordedSum(n)
	return n, err
}

// learn finds out and records the checksum of Node that the inputs lack.
func (r Request) learn(ctx context.Context, o Options, in inputs) (inputs, error) {
	if in.node.SHA256 != "" || o.Gate {
		return in, nil
	}
	err := r.learnSum(ctx, o, in.node)
	if err == nil {
		in.node.SHA256, err = r.recordedSum(in.node)
	}
	return in, err
}

// due tells whether the registry has to be asked before the inputs are stood on.
func (r Request) due(in inputs, now time.Time) bool {
	switch {
	case in.unchecked():
		return true
	case in.base.Digest != "":
		return false
	case in.pin.Digest == "":
		return true
	case r.KeepPin, r.TTLDays < 0:
		return false
	}
	// A date in the future says nothing.
	age := now.Sub(in.pin.Resolved)
	return age < 0 || age >= time.Duration(r.TTLDays)*day
}

// refresh brings the pin up to date, and builds. One process at a time does so for
// a reference, and the next finds it done. A new pin is recorded when there are
// images on it: where they can't be built, those of the old one stay in use.
func (r Request) refresh(ctx context.Context, b Builder, o Options) (Plan, error) {
	before, err := r.inputs()
	if err != nil {
		return Plan{}, err
	}
	dir := filepath.Join(r.CacheDir, "base")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Plan{}, fmt.Errorf("pin %s: %w", before.base, err)
	}
	unlock, err := lock(ctx, r.baseFile(before.base, ".lock"), func() {
		o.Say("waiting for another ai-sandbox that looks for a new %s and builds on it", before.base)
	})
	if err != nil {
		return Plan{}, fmt.Errorf("pin %s: %w", before.base, err)
	}
	defer unlock()
	in, err := r.inputs()
	if err != nil {
		return Plan{}, err
	}
	old, oldErr := r.plan(in)
	built := false
	if oldErr == nil || o.Gate && errors.Is(oldErr, ErrUnresolved) {
		if built, err = old.built(ctx, b, o); err != nil {
			return Plan{}, err
		}
	}
	// Where the record is a new one, another process has just asked the registry. It
	// may have other rules about signatures.
	done := in.pin.Digest != "" && !in.pin.same(before.pin)
	if in, err = r.check(ctx, b, o, in); err != nil {
		return Plan{}, err
	}
	// Of images on no pin, nobody can say whether they have a signature.
	usable := built && (in.demands == "" || in.pin.Digest != "")
	if !done && r.due(in, time.Now()) {
		if in, err = r.ask(ctx, b, o, in, built); err != nil {
			return Plan{}, err
		}
	}
	if in.pin.Digest != old.BaseDigest && old.Sandbox.ID != "" {
		o.Gate = false // the pin that is recorded is the next start's, too
	}
	if in, err = r.learn(ctx, o, in); err != nil {
		return Plan{}, err
	}
	p, err := r.build(ctx, b, o, in)
	if err != nil && ctx.Err() == nil && usable && !o.Asked && !o.Rebuild {
		was := image.Unpinned
		if old.BaseDigest != "" {
			was = "the one of " + old.Pinned.Format(time.DateOnly)
		}
		o.Say("the images on the new %s could not be built, so those on %s are used (%v)", in.base, was, err)
		return old, os.WriteFile(r.baseFile(in.base, ".tried"), nil, 0o600)
	}
	if err != nil {
		return Plan{}, err
	}
	return p, r.recordPin(p)
}

// recordPin remembers the pin that a plan stands on.
func (r Request) recordPin(p Plan) error {
	if p.in.base.Digest != "" && p.in.pin.Checked == "" || p.in.pin.Digest == "" {
		return nil
	}
	recorded, err := r.recordedBase(p.in.base)
	if err != nil || recorded.same(p.in.pin) {
		return err
	}
	return r.recordBase(p.in.base, p.in.pin)
}

// lately tells whether it is too early to try again what was of no use then. A time in
// the future says nothing.
func lately(t time.Time) bool { return time.Since(t) < askAgain && time.Since(t) >= 0 }

// ask asks the registry, and puts its answer into the inputs. Without one the pin
// stays, however old; without a pin the build goes on unpinned, and says so. built:
// there are images, so nobody has to wait for long.
func (r Request) ask(ctx context.Context, b Builder, o Options, in inputs, built bool) (inputs, error) {
	tried := r.baseFile(in.base, ".tried")
	if built && !o.Asked && !o.Rebuild && r.TTLDays != 0 && (in.pin.Digest != "" || in.demands == "") {
		if info, err := os.Stat(tried); err == nil && lately(info.ModTime()) {
			if in.pin.Digest == "" {
				o.Say("the base image is %s: no digest of %s is known", image.Unpinned, in.base)
			}
			return in, nil
		}
	}
	d, err := r.resolve(ctx, b, o, in.base, built && !o.Asked)
	var refused *image.RefusedError
	switch {
	case ctx.Err() != nil:
		return in, context.Cause(ctx)
	case errors.As(err, &refused) && built && !o.Asked && !o.Rebuild && in.pin.Digest != "":
		o.Say("%s stays as pinned on %s: %v", in.base, in.pin.Resolved.Format(time.DateOnly), err)
		return in, os.WriteFile(tried, nil, 0o600)
	case errors.As(err, &refused):
		return in, err
	case err != nil && in.pin.Digest != "":
		o.Say("%s stays as pinned on %s: no registry says what it is today (%v)", in.base, in.pin.Resolved.Format(time.DateOnly), err)
		return in, os.WriteFile(tried, nil, 0o600)
	case err != nil && in.demands != "":
		return in, unchecked(in.base, err)
	case err != nil:
		o.Say("the base image is %s: no digest of %s is known (%v)", image.Unpinned, in.base, err)
		return in, os.WriteFile(tried, nil, 0o600)
	}
	if err := os.Remove(tried); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return in, err
	}
	return r.pinned(o, in, d, built, time.Now())
}

// pinned puts a new digest into the inputs. What changes nothing that is built, or
// replaces nothing, is recorded at once.
func (r Request) pinned(o Options, in inputs, d digest.Digest, built bool, now time.Time) (inputs, error) {
	if _, err := in.base.Pin(d); err != nil {
		return in, err
	}
	old := in.pin.Digest
	in.pin = in.newPin(d, now)
	if old == "" && !built || old == d {
		if err := r.recordBase(in.base, in.pin); err != nil {
			return in, err
		}
	} else if old != "" {
		o.Say("%s has moved to %.19s", in.base, d)
	}
	if old == d {
		return in, nil
	}
	var err error
	in.packages, err = r.recordedPackages(in.base, d)
	return in, err
}

// resolve finds out what a reference leads to: of its registry, or by a pull.
func (r Request) resolve(ctx context.Context, b Builder, o Options, base image.Reference, hurry bool) (digest.Digest, error) {
	limit := func(d time.Duration) (context.Context, context.CancelFunc) {
		if !hurry {
			return context.WithCancel(ctx)
		}
		return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s", d))
	}
	var d digest.Digest
	err := errors.New("no registry is asked")
	if o.Resolve != nil {
		asking, done := limit(askTime)
		d, err = o.Resolve(asking, base)
		done()
	}
	// What was refused once is not asked for by another way.
	var refused *image.RefusedError
	if err == nil || ctx.Err() != nil || r.NoPull || errors.As(err, &refused) {
		return d, err
	}
	pulling, done := limit(pullTime)
	defer done()
	d, perr := b.PullBase(pulling, base)
	if perr != nil {
		return "", fmt.Errorf("%w; and podman: %w", err, perr)
	}
	o.Say("%s was pulled to find its digest (%v)", base, err)
	return d, nil
}

// Pin is the base of the request, the digest that builds use for it ("" where none
// is known), and when its registry last confirmed that.
func (r Request) Pin() (image.Reference, digest.Digest, time.Time, error) {
	in, err := r.inputs()
	return in.base, in.pin.Digest, in.pin.Resolved, err
}
