// Package imagebuild keeps this machine's images. It finds out what a recipe
// lacks (the base's digest, a checksum of Node), fetches the Node tarball, has
// the images built, and remembers which image is which, so that a warm start
// asks nobody and takes no image that somebody else gave the name.
//
// What is remembered:
//
//	<cache>/base/*.json      the digest of each base reference, with its date
//	<cache>/base/*.packages.json  when its Debian packages were asked for anew
//	<cache>/node/newest.json what update found to be the newest Node
//	<cache>/node/*.json      the checksum of each Node release that is not the recipe's own
//	<cache>/node/*.tar.xz    Node tarballs
//	<cache>/harness/*.json   the lock file that update made of each newest harness
//	<cache>/build/           locks, and build contexts while they are in use
//	<cache>/build/load.json  the images that are being loaded from a file
//	<state>/images/*.json    the image that was built for each recipe
//	<state>/images/*.tried   that the image of a recipe could not be built, and when
//	<state>/images/*.log     the output of its last build
//	<state>/images/*.manifest     the packages of each image, by its id
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
	"slices"
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
	// Keyring is the digest of the keyring that has to have the key with which a list
	// of checksums is signed, and Verify checks that; "" asks for no signature.
	Keyring digest.Digest
	Verify  func(ctx context.Context, list, signature []byte) (signer string, err error)
	// CA is the user's own, or nil.
	CA image.CA
	// Harnesses are the set of the sandbox's image (see image.Recipe).
	// Apt (see image.Packages) and Setup are what the user adds to it, or nil.
	Harnesses []image.Harness
	Apt       []string
	Setup     []byte
	// EntrypointSHA256 is the checksum of the entrypoint program, and
	// Entrypoint reads the program; it is called when an image is built.
	EntrypointSHA256 string
	Entrypoint       func() ([]byte, error)
	// Arch is a GOARCH.
	Arch string
	// TTLDays is how old a pin may get, in days, before its registry is asked
	// again: 0 is asked at every build, and a negative one never.
	TTLDays int
	// KeepPin: a pin is replaced by Update only. NoPull: where the registry does
	// not answer, podman is not asked to pull instead.
	KeepPin, NoPull bool
	// Demands is what the user's policy.json demands of a reference: "" where it accepts
	// anything (see registry.Demands). It asks nobody. Nil demands nothing.
	Demands func(image.Reference) (digest.Digest, error)
	// CacheDir and StateDir are ai-sandbox's own.
	CacheDir, StateDir string
}

// A Plan is what a run would stand on, as far as this machine knows it.
type Plan struct {
	BaseRef    image.Reference
	BaseDigest digest.Digest // "" when UNPINNED
	// Pinned is when the registry last said so; zero where BaseRef is a digest, or
	// nothing is pinned.
	Pinned  time.Time
	Sandbox Image
	Gate    Image
	// Harnesses are those in the sandbox's image, with their versions.
	Harnesses []Harness
	// Due: the registry has to be asked before this may be stood on.
	Due bool
	in  inputs
}

// A Harness is an agent program at a version.
type Harness struct{ Name, Version string }

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
	// EndBuild ends what is still done for a build, begun since then, that nobody
	// waits for any more.
	EndBuild(ctx context.Context, b Build, since time.Time) error
	// Unnamed are the marks of the builds of which there is something that has no
	// name, and that nothing is built on.
	Unnamed(ctx context.Context) ([]string, error)
	// RemoveUnnamed removes that, of the builds with the mark.
	RemoveUnnamed(ctx context.Context, mark string) error
	// ReadImageFile reads a file of an image, running nothing of it.
	ReadImageFile(ctx context.Context, id, path string) ([]byte, error)
	// ImageFiles writes all files of an image as a tar, running nothing of it.
	ImageFiles(ctx context.Context, id string, w io.Writer) error
	// RunScript runs a shell script in a container of an image, on the network
	// that builds have, and returns what it wrote to standard output.
	RunScript(ctx context.Context, id, script string) ([]byte, error)
	// PullBase fetches what a reference leads to, and returns its digest.
	PullBase(ctx context.Context, ref image.Reference) (digest.Digest, error)
}

// A Build is one build. Dir is the context, with a Containerfile in it.
type Build struct {
	Dir string
	// From is what the Containerfile begins with, and Mark names the build on all
	// that it makes.
	From, Mark string
	Labels     map[string]string
	NoCache    bool
	// Log gets all output; Step is called as each step begins.
	Log  io.Writer
	Step func(Step)
}

// A Step is one step of a build. N is 0 for what is done beside the Containerfile's
// steps.
type Step struct {
	N, Of int
	Text  string
}

// Options are how to bring images up to date. The functions may be nil.
type Options struct {
	// Rebuild ignores every cached layer. It keeps the pin, unless that is due.
	Rebuild bool
	// Asked: the user asked for a build, and does not wait for something else.
	Asked bool
	// Gate: of the two images only the gate's is wanted.
	Gate bool
	// Before: where the images can't be built, those of the same configuration that
	// were built before will do.
	Before bool
	// Resolve asks the registry what a reference leads to.
	Resolve func(context.Context, image.Reference) (digest.Digest, error)
	// Accept asks whether policy.json accepts what a tag was pinned to.
	Accept func(ctx context.Context, tag image.Reference, pinned digest.Digest) error
	// Say prints a line for people.
	Say func(format string, a ...any)
	// Step tells of a step of the build of an image, Download of the Node
	// tarball's (total is -1 when the site does not say).
	Step     func(ref string, s Step)
	Download func(name string, done, total int64)
	// Output gets what builds write, as the file that keeps it does; nil is nobody.
	Output io.Writer
	// Log is put in front of both, to take secrets out; nil takes out nothing.
	Log func(io.Writer) io.WriteCloser

	// unrun: what is built is looked at and not run.
	unrun bool
}

// Plan reads what is remembered, and contacts nobody. Its error is ErrUnresolved
// when Node's checksum is not known yet; all but the sandbox's image is then set.
func (r Request) Plan() (Plan, error) {
	in, err := r.inputs()
	if err != nil {
		return Plan{}, err
	}
	return r.plan(in)
}

// plan is what the inputs come to.
func (r Request) plan(in inputs) (Plan, error) {
	p := Plan{BaseRef: in.base, BaseDigest: in.pin.Digest, Pinned: in.pin.Resolved, in: in}
	p.Due = r.due(in, time.Now())
	for _, h := range r.Harnesses {
		p.Harnesses = append(p.Harnesses, Harness{h.Name, in.version(h)})
	}
	on := image.Base{Ref: in.base, Digest: p.BaseDigest}
	// At once: with a large CA file each takes some milliseconds of a start.
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() {
		if in.node.SHA256 == "" {
			errs[0] = fmt.Errorf("the checksum of node %s is %w", in.node.Version, ErrUnresolved)
			return
		}
		p.Sandbox, errs[0] = r.planImage(image.Recipe{Kind: image.KindSandbox, Base: on, Node: in.node, EntrypointSHA256: r.EntrypointSHA256, CA: r.CA,
			Packages: in.packages, Harnesses: r.Harnesses, Locks: in.locks, Apt: r.Apt, Setup: r.Setup, Again: in.again})
	})
	wg.Go(func() {
		p.Gate, errs[1] = r.planImage(image.Recipe{Kind: image.KindGate, Base: on, EntrypointSHA256: r.EntrypointSHA256, CA: r.CA, Packages: in.packages})
	})
	wg.Wait()
	switch {
	case errs[1] != nil:
		return Plan{}, errs[1]
	case errors.Is(errs[0], ErrUnresolved):
		return p, errs[0]
	case errs[0] != nil:
		return Plan{}, errs[0]
	}
	return p, nil
}

func (r Request) planImage(recipe image.Recipe) (Image, error) {
	built, err := recipe.Render()
	if err != nil {
		return Image{}, err
	}
	id, err := r.recordedImage(built)
	return Image{Built: built, ID: id, node: recipe.Node}, err
}

// Ensure returns a plan of which both images exist, or those that are wanted. Where they do already and the
// pin is not due it asks the builder for them by id and nothing else; otherwise it
// finds out what is missing, and builds.
func (r Request) Ensure(ctx context.Context, b Builder, o Options) (Plan, error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	p, err := r.Plan()
	if err != nil && !errors.Is(err, ErrUnresolved) {
		return Plan{}, err
	}
	if (err == nil || o.Gate) && !o.Rebuild && !p.Due {
		if built, err := p.built(ctx, b, o); err != nil || built {
			return p, err
		}
	}
	now := p.Sandbox.Built
	if o.Before && now.Tag != "" && r.triedLately(now) {
		if old, ok, err := r.orBefore(ctx, b, o, p.in, nil); err != nil || ok {
			return old, err
		}
	}
	made, err := r.make(ctx, b, o, p)
	if err == nil || !o.Before || ctx.Err() != nil {
		return made, err
	}
	in, inErr := r.inputs() // what was asked meanwhile
	if inErr != nil {
		return Plan{}, errors.Join(err, inErr)
	}
	old, ok, oldErr := r.orBefore(ctx, b, o, in, err)
	switch {
	case oldErr != nil:
		return Plan{}, errors.Join(err, oldErr)
	case !ok:
		return Plan{}, err
	case now.Tag == "":
		return old, nil
	}
	return old, writeFile(r.triedFile(now), nil)
}

// make finds out what is missing of a plan, and builds.
func (r Request) make(ctx context.Context, b Builder, o Options, p Plan) (Plan, error) {
	if p.Due {
		return r.refresh(ctx, b, o)
	}
	in, err := r.learn(ctx, o, p.in)
	if err != nil {
		return Plan{}, err
	}
	return r.build(ctx, b, o, in)
}

// build makes the images of the inputs, where they aren't there yet.
func (r Request) build(ctx context.Context, b Builder, o Options, in inputs) (Plan, error) {
	p, err := r.plan(in)
	if err != nil && !(o.Gate && errors.Is(err, ErrUnresolved)) {
		return Plan{}, err
	}
	for _, img := range p.wanted(o) {
		if err := r.ensure(ctx, b, o, img); err != nil {
			return Plan{}, err
		}
	}
	return p, nil
}

// Warm tells whether both images were recorded and exist, and the pin is not due.
func (p Plan) Warm(ctx context.Context, b Builder) (bool, error) {
	if p.Due {
		return false, nil
	}
	return p.built(ctx, b, Options{})
}

// wanted are the images that have to be there, in the order in which they are built.
func (p *Plan) wanted(o Options) []*Image {
	if o.Gate {
		return []*Image{&p.Gate}
	}
	return []*Image{&p.Gate, &p.Sandbox}
}

// built tells whether the wanted images were recorded and exist.
func (p Plan) built(ctx context.Context, b Builder, o Options) (bool, error) {
	list := p.wanted(o)
	if slices.ContainsFunc(list, func(i *Image) bool { return i.ID == "" }) {
		return false, nil
	}
	// At once: this is on the way of every start.
	var wg sync.WaitGroup
	there, errs := make([]bool, len(list)), make([]error, len(list))
	for i, img := range list {
		wg.Go(func() { there[i], errs[i] = b.ImageExists(ctx, img.ID) })
	}
	wg.Wait()
	return !slices.Contains(there, false), errors.Join(errs...)
}

// ensure builds one image unless it exists. One process at a time works on one
// recipe; the next finds it done.
func (r Request) ensure(ctx context.Context, b Builder, o Options, img *Image) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", img.Ref, context.Cause(ctx))
	}
	dir := r.buildDir()
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
	there, err := exists(ctx, b, old)
	if err != nil {
		return err
	}
	if there && !o.Rebuild {
		img.ID = old
		return nil
	}

	// The lock makes this directory ours; what is in it was left by a killed
	// process.
	scratch := filepath.Join(dir, name)
	begun := time.Now()
	todo := Build{From: img.From, Mark: r.mark(name), NoCache: o.Rebuild}
	if info, err := os.Lstat(scratch); err == nil {
		if err := endBuild(ctx, b, todo, info.ModTime()); err != nil {
			return fmt.Errorf("build %s: %w", img.Ref, err)
		}
	}
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.Join(err, abandon(ctx, b, o, img, todo, begun))
		}
		err = errors.Join(err, os.RemoveAll(scratch))
	}()
	if err := r.writeContext(ctx, o, img, scratch); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	todo.Dir = scratch
	id, err := r.buildImage(ctx, b, o, img, todo)
	if err != nil {
		return err
	}
	// The name comes after all else, so that no image that is not whole has it.
	if !o.unrun {
		o.phase(img, "its first start")
		if err := b.PrimeImage(ctx, id); err != nil {
			return fmt.Errorf("start %s for the first time: %w", img.Ref, err)
		}
	}
	// From here on it is seen through, whatever signal comes.
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", img.Ref, context.Cause(ctx))
	}
	if err := b.TagImage(context.WithoutCancel(ctx), id, img.Ref); err != nil {
		return fmt.Errorf("build %s: %w", img.Ref, err)
	}
	if err := r.recordImage(img.Built, id, time.Now(), o.unrun); err != nil {
		return err
	}
	img.ID = id
	if there && old != id {
		if err := b.RemoveImage(ctx, old); err != nil {
			o.Say("the image that this one replaces stays: %v", err)
		}
	}
	return nil
}

// phase tells of a step that is not the Containerfile's.
func (o Options) phase(img *Image, text string) {
	if o.Step != nil {
		o.Step(img.Ref, Step{Text: text})
	}
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
	put := func(name string, data []byte, mode os.FileMode) error { return putFile(dir, name, data, mode) }
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

// putFile puts a file into a build context.
func putFile(dir, name string, data []byte, mode os.FileMode) error {
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

func (r Request) buildImage(ctx context.Context, b Builder, o Options, img *Image, todo Build) (id string, err error) {
	logPath, err := r.imageFile(img.Built, ".log")
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", img.Ref, err)
	}
	defer log.Close()
	var out io.Writer = log
	if o.Output != nil {
		out = io.MultiWriter(log, o.Output)
	}
	if o.Log != nil {
		hidden := o.Log(out)
		defer hidden.Close()
		out = hidden
	}
	var at Step
	npm := image.NPMOutput{Files: img.Files}
	var apt image.AptOutput
	todo.Labels, todo.Log, todo.Step = img.Labels, io.MultiWriter(out, &npm, &apt), func(s Step) {
		at = s
		if o.Step != nil {
			o.Step(img.Ref, s)
		}
	}
	id, err = b.BuildImage(ctx, todo)
	if err == nil {
		at = Step{}
		todo.Step = func(Step) {}
		o.phase(img, "its bill of materials")
		id, err = r.describe(ctx, b, img, id, todo)
	}
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("build %s: %w", img.Ref, context.Cause(ctx))
	case err != nil && at.N > 0 && npm.Failure() != "":
		return "", fmt.Errorf("build %s: step %d of %d, %s: %s, and nothing of it is kept; build again when that is mended (its output is in %s)",
			img.Ref, at.N, at.Of, at.Text, npm.Failure(), logPath)
	case err != nil && at.N > 0 && apt.Failure() != "":
		return "", fmt.Errorf("build %s: step %d of %d, %s: %w: %s (its output is in %s)", img.Ref, at.N, at.Of, at.Text, err, apt.Failure(), logPath)
	case err != nil && at.N > 0:
		return "", fmt.Errorf("build %s: step %d of %d, %s: %w (its output is in %s)", img.Ref, at.N, at.Of, at.Text, err, logPath)
	case err != nil:
		return "", fmt.Errorf("build %s: %w (its output is in %s)", img.Ref, err, logPath)
	}
	return id, nil
}
