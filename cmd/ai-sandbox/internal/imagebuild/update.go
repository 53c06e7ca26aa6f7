// Update: what registries and sites have today, whatever is remembered.

package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ai-sandbox/image"
)

// An Outcome is what an update changed, or a check says that it would.
type Outcome struct {
	Version int            `json:"version"` // 1
	Changes []image.Change `json:"changes"` // never nil
	// Notes say what was not looked at, and why.
	Notes []string `json:"notes"` // never nil
	// Images are those that were built for it, by their kind. A check builds none.
	Images map[image.Kind]ImageID `json:"images,omitempty"`
}

// An ImageID names an image twice.
type ImageID struct {
	Ref string `json:"ref"`
	ID  string `json:"id"`
}

func (o *Outcome) note(format string, a ...any) { o.Notes = append(o.Notes, fmt.Sprintf(format, a...)) }

// Update asks for the newest base, Node and harnesses, and for every Debian package
// anew, and builds. Nothing of it is remembered before there are images of it.
func (r Request) Update(ctx context.Context, b Builder, o Options) (out Outcome, err error) {
	out = newOutcome()
	o.Asked = true
	if err := os.MkdirAll(filepath.Join(r.CacheDir, "base"), 0o700); err != nil {
		return out, fmt.Errorf("update: %w", err)
	}
	in, err := r.inputs()
	if err != nil {
		return out, err
	}
	unlock, err := lock(ctx, r.baseFile(in.base, ".lock"), func() {
		o.Say("waiting for another ai-sandbox that looks for a new %s and builds on it", in.base)
	})
	if err != nil {
		return out, fmt.Errorf("update: %w", err)
	}
	defer unlock()
	if in, err = r.inputs(); err != nil {
		return out, err
	}
	old, oldErr := r.plan(in)
	if oldErr != nil && !errors.Is(oldErr, ErrUnresolved) {
		return out, oldErr
	}
	next, node, err := r.today(ctx, b, o, in, &out)
	if err != nil {
		return out, err
	}
	asked := packagesRecord{Ref: in.base.String(), Digest: next.pin.Digest, Asked: time.Now().UTC().Truncate(time.Second)}
	// The clock may have been set back.
	if last, err := time.Parse(image.PackagesForm, in.packages); err == nil && !asked.Asked.After(last) {
		asked.Asked = last.Add(time.Second)
	}
	next.packages = asked.Asked.Format(image.PackagesForm)
	if next, err = r.learn(ctx, o, next); err != nil {
		return out, err
	}
	// In the image that is there, so that the new one is built once.
	looked := false
	if there, err := exists(ctx, b, old.Sandbox.ID); err != nil {
		return out, err
	} else if there {
		if looked, err = true, r.newestLocks(ctx, b, old.Sandbox.ID, &next, &out); err != nil {
			return out, err
		}
	}
	// What is built from here on is of this moment, so nobody else has it.
	var built []inputs
	var kept Plan
	defer func() { err = errors.Join(err, r.drop(ctx, b, built, kept)) }()
	built = append(built, next)
	p, err := r.build(ctx, b, o, next)
	if err != nil {
		return out, err
	}
	if !looked {
		if err := r.newestLocks(ctx, b, p.Sandbox.ID, &next, &out); err != nil {
			return out, err
		}
		built = append(built, next)
		if p, err = r.build(ctx, b, o, next); err != nil {
			return out, err
		}
	}
	if err := r.compare(ctx, b, in, next, old, p, &out); err != nil {
		return out, err
	}
	err = r.recordPin(p)
	if node.Version != "" {
		err = errors.Join(err, writeRecord(r.nodeFile(), node))
	}
	if len(out.Changes) == 0 {
		// What is there is what was built: it stays, and so does its hash.
		return out, err
	}
	kept = p
	for name, l := range next.locks {
		if l != nil && l != in.locks[name] {
			err = errors.Join(err, r.recordLock(name, l, time.Now()))
		}
	}
	out.Images = map[image.Kind]ImageID{
		image.KindSandbox: {p.Sandbox.Ref, p.Sandbox.ID}, image.KindGate: {p.Gate.Ref, p.Gate.ID},
	}
	return out, errors.Join(err, writeRecord(r.baseFile(in.base, ".packages.json"), asked))
}

// compare lists what differs between two plans and their images.
func (r Request) compare(ctx context.Context, b Builder, in, next inputs, old, now Plan, out *Outcome) error {
	out.Changes = append(out.Changes, r.recipeChanges(in, next)...)
	for _, img := range [][2]Image{{old.Sandbox, now.Sandbox}, {old.Gate, now.Gate}} {
		changes, err := r.compareImage(ctx, b, img[0], img[1])
		if err != nil {
			return err
		}
		out.Changes = append(out.Changes, changes...)
	}
	// What a setup script brings may be in no list of packages.
	if len(out.Changes) == 0 && r.Setup != nil {
		if err := r.compareFiles(ctx, b, old.Sandbox, now.Sandbox, out); err != nil {
			return err
		}
	}
	out.sort()
	return nil
}

// compareImage lists the packages that differ between two images, or the later one as a
// whole where the other is not there any more.
func (r Request) compareImage(ctx context.Context, b Builder, old, now Image) ([]image.Change, error) {
	// A manifest is kept longer than its image.
	there, err := exists(ctx, b, old.ID)
	if err != nil {
		return nil, err
	}
	var before []image.Package
	if there {
		if before, err = r.packages(old.ID); err != nil {
			return nil, err
		}
	}
	after, err := r.packages(now.ID)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return []image.Change{{Kind: "image", Image: now.Kind, Name: now.Kind.Repository(), To: now.Tag}}, nil
	}
	return image.Diff(now.Kind, before, after), nil
}

// drop removes what was built for nothing, with all that is kept of it: the images of the
// inputs, but those of the plan that is kept, and the layers of a build that failed: it was
// of its moment, so no other one has use for them. Its log stays.
func (r Request) drop(ctx context.Context, b Builder, built []inputs, kept Plan) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var errs []error
	for _, in := range built {
		p, err := r.plan(in)
		errs = append(errs, err)
		for _, img := range []Image{p.Sandbox, p.Gate} {
			if img.Tag == "" || img.Tag == kept.Sandbox.Tag || img.Tag == kept.Gate.Tag {
				continue
			}
			if img.ID == "" {
				errs = append(errs, r.dropLayers(ctx, b, string(img.Kind)+"-"+img.Tag))
				continue
			}
			if err := r.Remove(ctx, b, Found{ID: img.ID, Labels: img.Labels}); err != nil {
				errs = append(errs, err)
				continue
			}
			errs = append(errs, os.Remove(r.manifestFile(img.ID)))
		}
	}
	return errors.Join(errs...)
}

// dropLayers removes the layers of a build, unless somebody tries it again.
func (r Request) dropLayers(ctx context.Context, b Builder, name string) error {
	unlock, ok, err := r.tryBuild(name)
	if err != nil || !ok {
		return err
	}
	defer unlock()
	if err := b.RemoveUnnamed(ctx, r.mark(name)); err != nil {
		return fmt.Errorf("remove the layers of a build that failed: %w; ai-sandbox clean tries again", err)
	}
	return nil
}

// Check tells what Update would change, and changes nothing.
func (r Request) Check(ctx context.Context, b Builder, o Options) (Outcome, error) {
	out := newOutcome()
	o.Asked = true
	r.NoPull = true // a pull is a change
	in, err := r.inputs()
	if err != nil {
		return out, err
	}
	p, err := r.plan(in)
	if err != nil && !errors.Is(err, ErrUnresolved) {
		return out, err
	}
	next, _, err := r.today(ctx, b, o, in, &out)
	if err != nil {
		return out, err
	}
	for _, img := range []struct {
		kind image.Kind
		Image
	}{{image.KindSandbox, p.Sandbox}, {image.KindGate, p.Gate}} {
		there, err := exists(ctx, b, img.ID)
		if err != nil {
			return out, err
		}
		if !there {
			out.Changes = append(out.Changes, image.Change{Kind: "image", Image: img.kind, Name: img.kind.Repository(), To: "built"})
			out.note("the packages of the %s image were not looked at: it is not built yet", img.kind)
			continue
		}
		if img.kind == image.KindSandbox {
			if err := r.newestLocks(ctx, b, img.ID, &next, &out); err != nil {
				return out, err
			}
			if err := r.trySetup(ctx, b, o, in, next, p, &out); err != nil {
				return out, err
			}
		}
		text, err := b.RunScript(ctx, img.ID, image.UpgradesScript)
		if err != nil {
			return out, fmt.Errorf("ask for the packages of the %s image: %w", img.kind, err)
		}
		for _, c := range image.ParseUpgrades(img.kind, text) {
			if !slices.Contains(out.Changes, c) { // the setup script may have shown it
				out.Changes = append(out.Changes, c)
			}
		}
		if err := r.stays(ctx, b, p, img.kind, text, &out); err != nil {
			return out, err
		}
	}
	out.Changes = append(out.Changes, r.recipeChanges(in, next)...)
	out.sort()
	return out, nil
}

// stays tells what an upgrade of an image leaves as it is, and a build may not: where that
// is sure, as a change. text is what image.UpgradesScript has written.
func (r Request) stays(ctx context.Context, b Builder, p Plan, kind image.Kind, text []byte, out *Outcome) error {
	kept, gone := image.ParseStays(kind, text)
	for _, c := range kept {
		if kind == image.KindGate || !slices.Contains(r.Apt, c.Name+"="+c.From) { // which the user has chosen
			out.note("%s stays at %s in the %s image, where something keeps %s back; an update may bring it", c.Name, c.From, kind, c.To)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	base, known, err := r.basePackages(ctx, b, p)
	if err != nil {
		return err
	}
	for _, c := range gone {
		has := func(l image.Package) bool { return l.Name == c.Name && l.Version == c.From }
		switch {
		case slices.ContainsFunc(base, has): // and an upgrade takes nothing back
		case known && (kind == image.KindGate || r.Setup == nil): // a script may have it from elsewhere
			out.Changes = append(out.Changes, c)
		default:
			out.note("no mirror has %s %s of the %s image any more; an update may bring %s", c.Name, c.From, kind, c.To)
		}
	}
	return nil
}

// basePackages are those of the base that a plan stands on, where that is there.
func (r Request) basePackages(ctx context.Context, b Builder, p Plan) (list []image.Package, known bool, err error) {
	at, err := p.BaseRef.Pin(p.BaseDigest)
	if err != nil {
		return nil, false, nil // UNPINNED
	}
	if known, err = exists(ctx, b, at.String()); err != nil || !known {
		return nil, false, err
	}
	text, err := b.ReadImageFile(ctx, at.String(), image.DpkgPath)
	if err == nil {
		list, err = image.ParseDpkg(text)
	}
	if err != nil {
		return nil, false, fmt.Errorf("look at the packages of %s: %w", at, err)
	}
	return list, true, nil
}

func newOutcome() Outcome {
	return Outcome{Version: 1, Changes: []image.Change{}, Notes: []string{}}
}

// today asks for the newest base and Node. The record is zero where the user chose
// the version.
func (r Request) today(ctx context.Context, b Builder, o Options, in inputs, out *Outcome) (inputs, nodeRecord, error) {
	next := in
	if in.base.Digest != "" {
		out.note("the base stays: %s names its digest", in.base)
		var err error
		if next, err = r.check(ctx, b, o, in); err != nil {
			return in, nodeRecord{}, err
		}
	} else {
		d, err := r.resolve(ctx, b, o, in.base, false)
		if ctx.Err() != nil {
			return in, nodeRecord{}, context.Cause(ctx)
		}
		if err != nil {
			return in, nodeRecord{}, err
		}
		if _, err := in.base.Pin(d); err != nil {
			return in, nodeRecord{}, err
		}
		next.pin = in.newPin(d, time.Now())
	}
	if r.NodeVersion != "" {
		out.note("node stays at %s: node_version names it", in.node.Version)
		return next, nodeRecord{}, nil
	}
	node, err := r.newestNode(ctx)
	var status statusError
	if errors.As(err, &status) && status == http.StatusNotFound {
		out.note("node stays at %s: its site has no list of releases (%v)", in.node.Version, err)
		return next, nodeRecord{}, nil
	}
	if err != nil {
		return in, nodeRecord{}, err
	}
	// A site that is behind takes nothing back.
	if image.Older(node.Version, in.node.Version) {
		return next, nodeRecord{}, nil
	}
	next.node, err = r.node(node.Version)
	return next, node, err
}

// newestLocks puts newer harnesses into the inputs, where there are any. One whose newest
// release can't be taken stays, and keeps nothing else from being updated.
func (r Request) newestLocks(ctx context.Context, b Builder, id string, next *inputs, out *Outcome) error {
	for _, h := range r.Harnesses {
		is := next.version(h)
		text, err := b.RunScript(ctx, id, h.NewestScript())
		if err != nil {
			return fmt.Errorf("ask for the newest %s: %w", h.Name, err)
		}
		v, err := h.ReadVersion(text)
		if err != nil {
			out.note("%s stays at %s: %v", h.Name, is, err)
			continue
		}
		if !image.Older(is, v) {
			continue
		}
		if text, err = b.RunScript(ctx, id, h.LockScript()); err != nil {
			return fmt.Errorf("ask for the packages of %s: %w", h.Name, err)
		}
		l, err := h.ReadLock(text)
		switch {
		case err != nil:
			out.note("%s stays at %s: of %s, %v", h.Name, is, v, err)
		case image.Older(next.node.Version, l.Node):
			out.note("%s stays at %s: %s needs node %s", h.Name, is, l.Version, l.Node)
		default:
			*next = next.with(h.Name, l)
		}
	}
	return nil
}

// recipeChanges are those that a recipe names.
func (r Request) recipeChanges(a, b inputs) []image.Change {
	var out []image.Change
	add := func(kind, name, from, to string) {
		if from != to {
			out = append(out, image.Change{Kind: kind, Name: name, From: from, To: to})
		}
	}
	add("base", a.base.String(), string(a.pin.Digest), string(b.pin.Digest))
	add("node", "node", a.node.Version, b.node.Version)
	for _, h := range r.Harnesses {
		add("harness", h.Name, a.version(h), b.version(h))
	}
	return out
}

func exists(ctx context.Context, b Builder, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	return b.ImageExists(ctx, id)
}

// changeOrder is that of a list for people: what a recipe names comes first.
var changeOrder = []string{"base", "node", "harness", "image", "deb", "npm", "file"}

func (o *Outcome) sort() {
	slices.SortStableFunc(o.Changes, func(x, y image.Change) int {
		if d := slices.Index(changeOrder, x.Kind) - slices.Index(changeOrder, y.Kind); d != 0 {
			return d
		}
		return strings.Compare(string(x.Image)+" "+x.Name, string(y.Image)+" "+y.Name)
	})
}
