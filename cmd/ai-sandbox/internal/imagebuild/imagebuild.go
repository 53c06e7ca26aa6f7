// Package imagebuild keeps this machine's images. It finds out what a recipe
// lacks (the base's digest, a checksum of Node), fetches the Node tarball, has
// the images built, and remembers which image is which, so that a warm start
// asks nobody and takes no image that somebody else gave the name.
//
// What is remembered:
//
//	<cache>/base/*.json      the digest of each base reference, with its date
//	<cache>/node/*.json      the checksum of each Node release that is not the recipe's own
//	<cache>/node/*.tar.xz    Node tarballs
//	<cache>/build/           locks, and build contexts while they are in use
//	<state>/images/*.json    the image that was built for each recipe
//	<state>/images/*.log     the output of its last build
package imagebuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// ErrUnresolved means that a recipe is not complete: a checksum is not known
// on this machine yet, and so neither is the tag.
var ErrUnresolved = errors.New("not known on this machine before the first build")

// A Request is what the user says about the images, and where things are kept.
type Request struct {
	// Base is a reference as the user wrote it; "" is image.DefaultBase.
	Base string
	// NodeVersion is "" for image.DefaultNode. NodeMirror is the download
	// site; "" is DefaultNodeSite.
	NodeVersion, NodeMirror string
	// CA is the user's own, or nil.
	CA image.CA
	// EntrypointSHA256 is the checksum of the entrypoint program, and
	// Entrypoint reads the program; it is called when an image is built.
	EntrypointSHA256 string
	Entrypoint       func() ([]byte, error)
	// Arch is a GOARCH.
	Arch string
	// CacheDir and StateDir are ai-sandbox's own.
	CacheDir, StateDir string
}

// A Plan is what a run would stand on, as far as this machine knows it.
type Plan struct {
	BaseRef    image.Reference
	BaseDigest digest.Digest // "" when UNPINNED
	Sandbox    Image
	Gate       Image
}

// An Image is one image: what it is made from, and the image that this machine
// made from it.
type Image struct {
	image.Built
	// ID is the image that was recorded for the recipe, or "".
	ID   string
	node image.Node // zero for the gate's
}

// A Builder is what makes images: podman.
type Builder interface {
	// BuildImage builds without giving the image a name, and returns its id.
	BuildImage(ctx context.Context, b Build) (id string, err error)
	ImageExists(ctx context.Context, id string) (bool, error)
	// PrimeImage starts a container of the image once under the mapping of
	// users that runs have, so that the copy of its layers is paid for.
	PrimeImage(ctx context.Context, id string) error
	TagImage(ctx context.Context, id, ref string) error
	// RemoveImage removes an image unless something uses it.
	RemoveImage(ctx context.Context, id string) error
}

// A Build is one build. Dir is the context, with a Containerfile in it.
type Build struct {
	Dir     string
	Labels  map[string]string
	NoCache bool
	// Log gets all output; Step is called as each step begins.
	Log  io.Writer
	Step func(Step)
}

// A Step is one step of a build.
type Step struct {
	N, Of int
	Text  string
}

// Options are how to bring images up to date. The functions may be nil.
type Options struct {
	// Rebuild ignores every cached layer. It keeps the pin.
	Rebuild bool
	// Resolve asks the registry what a reference leads to.
	Resolve func(context.Context, image.Reference) (digest.Digest, error)
	// Say prints a line for people.
	Say func(format string, a ...any)
	// Step tells of a step of the build of an image, Download of the Node
	// tarball's (total is -1 when the site does not say).
	Step     func(ref string, s Step)
	Download func(name string, done, total int64)
}

// Plan reads what is remembered, and contacts nobody. Its error is ErrUnresolved
// when Node's checksum is not known yet; BaseRef and BaseDigest are then set.
func (r Request) Plan() (Plan, error) {
	base, node, err := r.parse()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{BaseRef: base, BaseDigest: base.Digest}
	if p.BaseDigest == "" {
		if p.BaseDigest, err = r.recordedBase(base); err != nil {
			return Plan{}, err
		}
	}
	if node.SHA256 == "" {
		sum, err := r.recordedSum(node)
		if err != nil {
			return Plan{}, err
		}
		if sum == "" {
			return p, fmt.Errorf("the checksum of node %s is %w", node.Version, ErrUnresolved)
		}
		node.SHA256 = sum
	}
	on := image.Base{Ref: base, Digest: p.BaseDigest}
	// At once: with a large CA file each takes some milliseconds of a start.
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() {
		p.Sandbox, errs[0] = r.planImage(image.Recipe{Kind: image.KindSandbox, Base: on, Node: node, EntrypointSHA256: r.EntrypointSHA256, CA: r.CA})
	})
	wg.Go(func() {
		p.Gate, errs[1] = r.planImage(image.Recipe{Kind: image.KindGate, Base: on, EntrypointSHA256: r.EntrypointSHA256, CA: r.CA})
	})
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (r Request) parse() (image.Reference, image.Node, error) {
	ref := r.Base
	if ref == "" {
		ref = image.DefaultBase
	}
	base, err := image.ParseReference(ref)
	if err != nil {
		return image.Reference{}, image.Node{}, err
	}
	node, err := image.NewNode(r.NodeVersion, r.Arch)
	return base, node, err
}

func (r Request) planImage(recipe image.Recipe) (Image, error) {
	built, err := recipe.Render()
	if err != nil {
		return Image{}, err
	}
	id, err := r.recordedImage(built)
	return Image{Built: built, ID: id, node: recipe.Node}, err
}

// Ensure returns a plan of which both images exist. Where they do already it
// asks the builder for them by id and nothing else; otherwise it finds out what
// is missing, and builds.
func (r Request) Ensure(ctx context.Context, b Builder, o Options) (Plan, error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	p, err := r.Plan()
	if err != nil && !errors.Is(err, ErrUnresolved) {
		return Plan{}, err
	}
	if err == nil && !o.Rebuild {
		if warm, err := p.Warm(ctx, b); err != nil || warm {
			return p, err
		}
	}
	if err := r.resolve(ctx, o); err != nil {
		return Plan{}, err
	}
	if p, err = r.Plan(); err != nil {
		return Plan{}, err
	}
	for _, img := range []*Image{&p.Gate, &p.Sandbox} {
		if err := r.ensure(ctx, b, o, img); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// Warm tells whether both images were recorded and exist.
func (p Plan) Warm(ctx context.Context, b Builder) (bool, error) {
	if p.Sandbox.ID == "" || p.Gate.ID == "" {
		return false, nil
	}
	// At once: this is on the way of every start.
	var wg sync.WaitGroup
	var there [2]bool
	var errs [2]error
	for i, id := range []string{p.Sandbox.ID, p.Gate.ID} {
		wg.Go(func() { there[i], errs[i] = b.ImageExists(ctx, id) })
	}
	wg.Wait()
	return there[0] && there[1], errors.Join(errs[:]...)
}

// resolve finds out and records what recipes lack: a digest that is recorded
// stays, however old.
func (r Request) resolve(ctx context.Context, o Options) error {
	base, node, err := r.parse()
	if err != nil {
		return err
	}
	if base.Digest == "" {
		recorded, err := r.recordedBase(base)
		if err != nil {
			return err
		}
		if recorded == "" {
			if err := r.pin(ctx, o, base); err != nil {
				return err
			}
		}
	}
	if node.SHA256 != "" {
		return nil
	}
	sum, err := r.recordedSum(node)
	if err != nil || sum != "" {
		return err
	}
	return r.learnSum(ctx, node)
}

// pin asks the registry for a digest and records it. A registry that does not
// answer is no reason to stop: the build goes on unpinned, and says so.
func (r Request) pin(ctx context.Context, o Options, base image.Reference) error {
	var d digest.Digest
	err := errors.New("no registry is asked")
	if o.Resolve != nil {
		d, err = o.Resolve(ctx, base)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		o.Say("the base image is %s: no digest of %s is known (%v)", image.Unpinned, base, err)
		return nil
	}
	if _, err := base.Pin(d); err != nil {
		return err
	}
	return r.recordBase(base, d, time.Now())
}

// ensure builds one image unless it exists. One process at a time works on one
// recipe; the next finds it done.
func (r Request) ensure(ctx context.Context, b Builder, o Options, img *Image) (err error) {
	dir := filepath.Join(r.CacheDir, "build")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	name := string(img.Kind) + "-" + img.Tag
	unlock, err := lock(ctx, filepath.Join(dir, name+".lock"), func() {
		o.Say("waiting for another ai-sandbox that builds %s", img.Ref)
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	defer unlock()

	old, err := r.recordedImage(img.Built)
	if err != nil {
		return err
	}
	exists := false
	if old != "" {
		if exists, err = b.ImageExists(ctx, old); err != nil {
			return err
		}
	}
	if exists && !o.Rebuild {
		img.ID = old
		return nil
	}

	// The lock makes this directory ours; what is in it was left by a killed
	// process.
	scratch := filepath.Join(dir, name)
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := r.writeContext(ctx, o, img, scratch); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	id, err := r.build(ctx, b, o, img, scratch)
	if err != nil {
		return err
	}
	// The name comes after all else, so that no image that is not whole has it.
	if err := b.PrimeImage(ctx, id); err != nil {
		return fmt.Errorf("start %s for the first time: %w", img.Ref, err)
	}
	if err := b.TagImage(ctx, id, img.Ref); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	if err := r.recordImage(img.Built, id, time.Now()); err != nil {
		return err
	}
	img.ID = id
	if exists && old != id {
		if err := b.RemoveImage(ctx, old); err != nil {
			o.Say("the image that this one replaces stays: %v", err)
		}
	}
	return nil
}

// contextTime is the time of every file in a build context: the cache of layers
// looks at it for what is mounted, and the image has it.
var contextTime = time.Unix(0, 0)

// writeContext makes the build context. Modes are set, not left to the umask:
// they go into the image.
func (r Request) writeContext(ctx context.Context, o Options, img *Image, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	put := func(name string, data []byte, mode os.FileMode) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if parent := filepath.Dir(path); parent != dir {
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return err
			}
			if err := os.Chmod(parent, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
		return os.Chtimes(path, contextTime, contextTime)
	}
	for name, f := range img.Files {
		if err := put(name, f.Data, 0o644); err != nil {
			return err
		}
	}
	if err := put("Containerfile", []byte(img.Containerfile), 0o644); err != nil {
		return err
	}
	program, err := r.Entrypoint()
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(program); hex.EncodeToString(sum[:]) != r.EntrypointSHA256 {
		return errors.New("the entrypoint is not the one that its checksum is of: use make build")
	}
	if err := put(image.EntrypointName, program, 0o755); err != nil {
		return err
	}
	if img.node == (image.Node{}) {
		return nil
	}
	tarball := filepath.Join(dir, image.TarballName)
	if err := r.placeTarball(ctx, o, img.node, tarball); err != nil {
		return err
	}
	return os.Chtimes(tarball, contextTime, contextTime)
}

func (r Request) build(ctx context.Context, b Builder, o Options, img *Image, dir string) (id string, err error) {
	logPath, err := r.imageFile(img.Built, ".log")
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", img.Ref, err)
	}
	defer log.Close()
	var at Step
	id, err = b.BuildImage(ctx, Build{Dir: dir, Labels: img.Labels, NoCache: o.Rebuild, Log: log, Step: func(s Step) {
		at = s
		if o.Step != nil {
			o.Step(img.Ref, s)
		}
	}})
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("build %s: %w", img.Ref, context.Cause(ctx))
	case err != nil && at.N > 0:
		return "", fmt.Errorf("build %s: step %d of %d, %s: %w (its output is in %s)", img.Ref, at.N, at.Of, at.Text, err, logPath)
	case err != nil:
		return "", fmt.Errorf("build %s: %w (its output is in %s)", img.Ref, err, logPath)
	}
	return id, nil
}
