// The images of before: what a start goes on with where those of now can't be built.

package imagebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// configuration is what the request comes to whatever has moved: images of one
// configuration differ in the base's digest, the versions of Node and harnesses and the
// packages, which an update made for another project may have found. It is a digest over
// all else that the recipe has, ai-sandbox's own parts too.
func (r Request) configuration(kind image.Kind) (digest.Digest, error) {
	ref := r.Base
	if ref == "" {
		ref = image.DefaultBase
	}
	base, err := image.ParseReference(ref)
	if err != nil {
		return "", err
	}
	fixed := digest.FromString("")
	recipe := image.Recipe{Kind: kind, Base: image.Base{Ref: base, Digest: cmp.Or(base.Digest, fixed)}, EntrypointSHA256: r.EntrypointSHA256, CA: r.CA}
	if kind == image.KindSandbox {
		if recipe.Node, err = image.NewNode(r.NodeVersion, r.Arch); err != nil {
			return "", err
		}
		recipe.Node.SHA256 = fixed.Encoded()
		recipe.Harnesses, recipe.Apt, recipe.Setup = r.Harnesses, r.Apt, r.Setup
	}
	built, err := recipe.Render()
	return built.Hash, err
}

// before is the newest pair of images of the configuration that there is, on one base.
// What would not be stood on today is left out: what is UNPINNED, and what the user's
// policy.json or keyring has not accepted.
func (r Request) before(in inputs, exists func(id string) (bool, error)) (p Plan, built time.Time, ok bool, err error) {
	if in.unchecked() {
		return p, built, false, nil
	}
	gates, err := r.recordedAs(image.KindGate, exists)
	if err != nil || len(gates) == 0 {
		return p, built, false, err
	}
	sandboxes, err := r.recordedAs(image.KindSandbox, exists)
	if err != nil {
		return p, built, false, err
	}
	for _, s := range sandboxes {
		base := s.Labels[image.LabelBaseDigest]
		if base == image.Unpinned || in.demands != "" && base != string(in.pin.Digest) {
			continue
		}
		if n, err := r.node(s.Labels[image.LabelNode]); err != nil || n.SHA256 == "" {
			continue
		}
		i := slices.IndexFunc(gates, func(g imageRecord) bool { return g.Labels[image.LabelBaseDigest] == base })
		if i < 0 {
			continue
		}
		p = Plan{BaseRef: in.base, BaseDigest: digest.Digest(base), Sandbox: s.image(image.KindSandbox), Gate: gates[i].image(image.KindGate)}
		for _, h := range r.Harnesses {
			p.Harnesses = append(p.Harnesses, Harness{h.Name, s.Labels[image.LabelHarness+h.Name]})
		}
		return p, s.Built, true, nil
	}
	return p, built, false, nil
}

// recordedAs are the records of a kind's images of the configuration, the newest first.
func (r Request) recordedAs(kind image.Kind, exists func(id string) (bool, error)) ([]imageRecord, error) {
	want, err := r.configuration(kind)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(r.imagePath(kind, "*", ".json"))
	if err != nil {
		return nil, err
	}
	var out []imageRecord
	for _, path := range paths {
		var rec imageRecord
		// One that makes no sense is of no use here, and costs a build elsewhere.
		if ok, err := readRecord(path, &rec); err != nil || !ok || rec.Configuration != want {
			continue
		}
		there, err := exists(rec.ID)
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b imageRecord) int { return b.Built.Compare(a.Built) })
	return out, nil
}

// image is what a plan says of it.
func (rec imageRecord) image(kind image.Kind) Image {
	_, tag, _ := strings.Cut(rec.Ref, ":")
	return Image{ID: rec.ID, Built: image.Built{Kind: kind, Ref: rec.Ref, Tag: tag, Hash: rec.Recipe, Labels: rec.Labels}}
}

// orBefore is a plan of the images of before, where those of now could not be built; why
// is nil where that was so not long ago, and is not tried again.
func (r Request) orBefore(ctx context.Context, b Builder, o Options, in inputs, why error) (Plan, bool, error) {
	p, built, ok, err := r.before(in, func(id string) (bool, error) { return exists(ctx, b, id) })
	if err != nil || !ok {
		return p, false, err
	}
	reason := fmt.Sprintf("it is tried again after %.0f minutes, or by ai-sandbox build", askAgain.Minutes())
	if why != nil {
		reason = why.Error()
	}
	o.Say("the images of now could not be built, so those of %s are used (%s)", built.Local().Format(time.DateTime), reason)
	return p, true, nil
}

// triedFile is there where the image of a recipe could not be built; it is as old as that.
func (r Request) triedFile(b image.Built) string { return r.imagePath(b.Kind, b.Tag, ".tried") }

// triedLately tells whether to try again is of no use yet.
func (r Request) triedLately(b image.Built) bool {
	info, err := os.Stat(r.triedFile(b))
	return err == nil && lately(info.ModTime())
}

func (r Request) forgetTried(b image.Built) error {
	if err := os.Remove(r.triedFile(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep records of images: %w", err)
	}
	return nil
}
