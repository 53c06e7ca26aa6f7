// What this machine knows of an image or a session.

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"sync"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// shortName is how a tag, an id and a session are written, all three.
var shortName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{12}$`) })

// An inspector looks at images.
type inspector struct {
	req     imagebuild.Request
	client  *podman.Client
	offline bool
	resolve func(context.Context, image.Reference) (string, error)
}

func (e *engine) inspect(ctx context.Context, r cli.BuildRequest, what string, offline bool) (out cli.Inspection, err error) {
	err = interruptible(ctx, func(ctx context.Context) error {
		out, err = inspected(ctx, r, what, offline)
		return err
	})
	return out, err
}

func inspected(ctx context.Context, r cli.BuildRequest, what string, offline bool) (cli.Inspection, error) {
	out := cli.Inspection{Version: 1, Images: []cli.InspectedImage{}}
	m, err := manager(r.Machine)
	if err != nil {
		return out, err
	}
	req, err := request(r.Image)
	if err != nil {
		return out, err
	}
	ask := resolver(r.Environ)
	look := inspector{req: req, offline: offline, resolve: func(ctx context.Context, ref image.Reference) (string, error) {
		d, err := ask(ctx, ref)
		return string(d), err
	}}
	entry, ok, err := m.Journaled(what)
	if err != nil {
		return out, err
	}
	if !(ok && entry.Runtime == policy.RuntimeLocal) {
		if r.Runtime == policy.RuntimeLocal {
			return out, errNoImages
		}
		if look.client, err = connect(ctx, r.Machine); err != nil {
			return out, err
		}
	}
	if ok {
		return look.session(ctx, entry)
	}
	if what != "" {
		i, err := look.named(ctx, what)
		out.Images = append(out.Images, i)
		return out, err
	}
	p, err := req.Plan()
	if errors.Is(err, imagebuild.ErrUnresolved) {
		return out, fmt.Errorf("%w: ai-sandbox build", err)
	}
	if err != nil {
		return out, err
	}
	for _, img := range []imagebuild.Image{p.Sandbox, p.Gate} {
		i := cli.InspectedImage{Kind: img.Kind, Ref: img.Ref, Labels: img.Labels, Problem: "it is not built yet: ai-sandbox build"}
		if img.ID != "" {
			if i, err = look.image(ctx, img.ID); err != nil {
				return out, err
			}
		}
		out.Images = append(out.Images, i)
	}
	return out, nil
}

// session is what a session stood on.
func (l inspector) session(ctx context.Context, e session.Entry) (cli.Inspection, error) {
	out := cli.Inspection{Version: 1, Session: &e, Images: []cli.InspectedImage{}}
	squid := ""
	for _, id := range []string{e.SandboxImage, e.GateImage} {
		if id == "" {
			continue
		}
		i, err := l.image(ctx, id)
		if err != nil {
			return out, err
		}
		if id == e.GateImage {
			squid = "squid of an image that nothing is known of"
			if n := slices.IndexFunc(i.Packages, func(p image.Package) bool { return p.Kind == "deb" && p.Name == image.SquidPackage }); n >= 0 {
				squid = fmt.Sprintf("%s %s", i.Packages[n].Name, i.Packages[n].Version)
			}
		}
		out.Images = append(out.Images, i)
	}
	switch {
	case squid != "" && e.GateName != "":
		out.EnforcedBy = fmt.Sprintf("%s, in the gate %s", squid, e.GateName)
	case squid != "":
		out.EnforcedBy = squid
	case e.Net == policy.NetNone:
		out.EnforcedBy = "the kernel: it had no network"
	case e.Net == policy.NetHost:
		out.EnforcedBy = "nothing: it had the machine's own network"
	case e.Engine == policy.EngineBuiltin:
		out.EnforcedBy = "the gate that is built in, of ai-sandbox " + cmp.Or(e.EngineVersion, unwritten)
	case e.Engine == policy.EngineSquid:
		out.EnforcedBy = "squid " + cmp.Or(e.EngineVersion, unwritten) + ", installed on the machine"
	}
	return out, nil
}

// unwritten is the version of what an older ai-sandbox has journaled.
const unwritten = "of a version that was not written down"

// engineVersion is that of a gate engine that no image tells of.
func engineVersion(r cli.RunRequest) string {
	switch {
	case r.Policy.Net.Engine == policy.EngineBuiltin:
		return cli.Version()
	case r.Policy.Net.Engine == policy.EngineSquid && r.Policy.Runtime == policy.RuntimeLocal:
		return r.Facts.Squid.Version
	}
	return ""
}

// named finds an image by the name that a person gives it.
func (l inspector) named(ctx context.Context, what string) (cli.InspectedImage, error) {
	names := []string{what}
	if shortName().MatchString(what) {
		names = []string{image.KindSandbox.Repository() + ":" + what, image.KindGate.Repository() + ":" + what, what}
	}
	for _, name := range names {
		f, err := l.client.InspectImage(ctx, name)
		if errors.Is(err, backend.ErrNotExist) {
			continue
		}
		if err != nil {
			return cli.InspectedImage{}, err
		}
		return l.found(ctx, f)
	}
	return cli.InspectedImage{}, fmt.Errorf("%s is neither a session in the journal nor an image of podman's: podman images lists those", policy.Quote(what))
}

// image is one by its id, also when it is gone.
func (l inspector) image(ctx context.Context, id string) (cli.InspectedImage, error) {
	f, err := l.client.InspectImage(ctx, id)
	switch {
	case err == nil:
		return l.found(ctx, f)
	case !errors.Is(err, backend.ErrNotExist):
		return cli.InspectedImage{}, err
	}
	i := cli.InspectedImage{ID: id, Ref: "none", Problem: "the image is gone; this was kept of it"}
	if i.Packages, err = l.req.Manifest(id); errors.Is(err, fs.ErrNotExist) {
		i.Problem = "the image is gone, and nothing was kept of it"
	} else if err != nil {
		return i, err
	}
	return i, nil
}

func (l inspector) found(ctx context.Context, f imagebuild.Found) (cli.InspectedImage, error) {
	i := cli.InspectedImage{Kind: image.Kind(f.Labels[image.LabelKind]), ID: f.ID, Ref: "none", Created: f.Created, Size: f.Size, Labels: f.Labels}
	if names := append(slices.Clone(f.Names), f.Digests...); len(names) > 0 {
		i.Ref = names[0]
	}
	if ref := f.Labels[image.LabelBaseRef]; ref != "" {
		i.Base = l.base(ctx, ref, f.Labels[image.LabelBaseDigest])
	} else if ref, digest, ok := l.isBase(f); ok {
		i.Base = l.base(ctx, ref, digest)
		text, err := l.client.ReadImageFile(ctx, f.ID, image.DpkgPath)
		if err == nil {
			i.Packages, err = image.ParseDpkg(text)
		}
		if err != nil {
			i.Problem = err.Error()
		}
		return i, nil
	}
	if f.Labels[image.LabelRecipe] == "" {
		i.Problem = "ai-sandbox did not make it, so it has no manifest"
		return i, nil
	}
	text, err := l.client.ReadImageFile(ctx, f.ID, image.ManifestPath)
	if err != nil {
		return i, err
	}
	i.Packages, err = image.ParseManifest(text)
	return i, err
}

// isBase tells whether an image is the base that builds stand on now.
func (l inspector) isBase(f imagebuild.Found) (ref, digest string, ok bool) {
	base, pin, _, err := l.req.Pin()
	if err != nil || pin == "" {
		return "", "", false
	}
	p, err := base.Pin(pin)
	return base.String(), string(pin), err == nil && slices.Contains(f.Digests, p.String())
}

// base is a pin, then and now.
func (l inspector) base(ctx context.Context, ref, digest string) *cli.InspectedBase {
	b := &cli.InspectedBase{Ref: ref, Digest: digest}
	parsed, err := image.ParseReference(ref)
	if err != nil {
		b.Problem = err.Error()
		return b
	}
	if base, pin, when, err := l.req.Pin(); err == nil && base == parsed && string(pin) == digest {
		b.Pinned = when
	}
	switch {
	case parsed.Digest != "":
		b.Problem = "it is named by its digest, so the registry was not asked"
		return b
	case l.offline:
		b.Problem = "the registry was not asked"
		return b
	}
	if b.Today, err = l.resolve(ctx, parsed); err != nil {
		b.Problem = err.Error()
		return b
	}
	// What stands on no pin is not known to have been another one.
	b.Moved = digest != image.Unpinned && b.Today != digest
	return b
}
