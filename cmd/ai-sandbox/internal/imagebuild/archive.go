// Images in a file, for machines without a registry: base, gate and sandbox with what
// is remembered of them.

package imagebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
	"ai-sandbox/image/archive"
)

// An Archiver is a Builder whose images can be taken out and put in.
type Archiver interface {
	Builder
	// ExportImage writes an image as an OCI layout in a tar.
	ExportImage(ctx context.Context, id string, w io.Writer) error
	// LoadImage puts the image of such a tar into the store, under the name in it if
	// there is one. It may have it written more than once, and is over when nothing of
	// it goes on in the store, also where it fails.
	LoadImage(ctx context.Context, write func(io.Writer) error) error
}

const (
	// recordsType is the media type of what is remembered, and annotationKind says in an
	// archive's index what an image is for: an image.Kind, or kindBase.
	recordsType    = "application/vnd.ai-sandbox.records.v1+json"
	annotationKind = "aisb.kind"
	kindBase       = "base"
)

// archived are the records in an archive.
type archived struct {
	Version int        `json:"version"` // 1
	Arch    string     `json:"arch"`    // a GOARCH
	Base    baseRecord `json:"base"`
	// Packages, Node, Sum and Locks are there where the recipe has them from a record;
	// those are by the harnesses' names.
	Packages *packagesRecord       `json:"packages,omitempty"`
	Node     *nodeRecord           `json:"node,omitempty"`
	Sum      *sumRecord            `json:"sum,omitempty"`
	Locks    map[string]lockRecord `json:"locks,omitempty"`
}

// Save writes the images of a plan into an archive, and the base of its pin as fetch
// copies it from its registry. Where another process has built them anew since the plan
// was made it is these that are saved, and of which p tells then.
func (r Request) Save(ctx context.Context, b Archiver, o Options, p *Plan, to io.Writer,
	fetch func(context.Context, image.Reference, *archive.Writer) (archive.Descriptor, error)) error {
	if p.BaseDigest == "" {
		return fmt.Errorf("the base %s is %s, so there is no image of it to save: build where its registry answers (ai-sandbox build)", p.BaseRef, image.Unpinned)
	}
	rec, err := r.archived(*p)
	if err != nil {
		return err
	}
	unlock, err := r.lockImages(ctx, o, p)
	if err != nil {
		return fmt.Errorf("save images: %w", err)
	}
	defer unlock() // until then no build removes what it replaces
	for _, img := range []*Image{&p.Gate, &p.Sandbox} {
		if img.ID, err = r.recordedImage(img.Built); err == nil && img.ID == "" {
			err = fmt.Errorf("%s has gone meanwhile: try again", img.Ref)
		}
		if err != nil {
			return fmt.Errorf("save images: %w", err)
		}
	}
	w, err := archive.NewWriter(to)
	if err != nil {
		return err
	}
	at := p.BaseRef
	at.Digest = p.BaseDigest
	o.Say("fetching %s from its registry", at)
	base, err := fetch(ctx, at, w)
	if err != nil {
		return err
	}
	pinned, err := p.BaseRef.Pin(p.BaseDigest)
	if err != nil {
		return err
	}
	content := []archive.Descriptor{base.Named(pinned.String(), map[string]string{annotationKind: kindBase})}
	for _, img := range []Image{p.Gate, p.Sandbox} {
		o.Say("copying %s", img.Ref)
		d, err := exportTo(ctx, b, w, img.ID)
		if err != nil {
			return fmt.Errorf("save %s: %w", img.Ref, err)
		}
		content = append(content, d.Named(img.Ref, map[string]string{annotationKind: string(img.Kind)}))
	}
	records, err := w.JSON(ctx, recordsType, rec)
	if err != nil {
		return err
	}
	return w.Close(append(content, records))
}

// lockImages keeps other processes from building a plan's images, after the files named
// first have been locked.
func (r Request) lockImages(ctx context.Context, o Options, p *Plan, before ...string) (unlock func(), err error) {
	paths := slices.Clip(before)
	for _, img := range []Image{p.Gate, p.Sandbox} {
		paths = append(paths, filepath.Join(r.buildDir(), string(img.Kind)+"-"+img.Tag+".lock"))
	}
	var held []func()
	unlock = func() {
		for _, f := range slices.Backward(held) {
			f()
		}
	}
	for _, path := range paths {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		var free func()
		if err == nil {
			free, err = lock(ctx, path, func() { o.Say("waiting for another ai-sandbox that builds images") })
		}
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, free)
	}
	return unlock, nil
}

// exportTo copies an image of the store into an archive.
func exportTo(ctx context.Context, b Archiver, w *archive.Writer, id string) (archive.Descriptor, error) {
	out, in := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := b.ExportImage(ctx, id, in)
		in.CloseWithError(err)
		exported <- err
	}()
	d, err := w.Add(ctx, out)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // what comes behind a tar's end
	}
	out.CloseWithError(err)
	if exportErr := <-exported; exportErr != nil {
		return d, exportErr
	}
	return d, err
}

// archived is what is remembered of a plan's inputs. What an update has changed of that
// since the plan was made is an error.
func (r Request) archived(p Plan) (archived, error) {
	a, err := r.remembered(p.in)
	if err != nil {
		return a, err
	}
	in, err := r.inputsOf(a, time.Now())
	var again Plan
	if err == nil {
		again, err = r.plan(in)
	}
	if err == nil && (again.Gate.Hash != p.Gate.Hash || again.Sandbox.Hash != p.Sandbox.Hash) {
		err = errors.New("they lead to other images")
	}
	if err != nil {
		return a, fmt.Errorf("the records of these images have changed meanwhile: try again (%w)", err)
	}
	return a, nil
}

// remembered are the records of a recipe's inputs.
func (r Request) remembered(in inputs) (archived, error) {
	a := archived{Version: 1, Arch: r.Arch, Base: in.pin}
	a.Base.Checked = "" // each machine checks by its own rules
	a.Base.Ref = in.base.String()
	if in.packages != "" {
		asked, err := time.Parse(image.PackagesForm, in.packages)
		if err != nil {
			return a, err
		}
		a.Packages = &packagesRecord{Ref: a.Base.Ref, Digest: in.pin.Digest, Asked: asked}
	}
	own, err := image.NewNode(in.node.Version, r.Arch)
	if err != nil {
		return a, err
	}
	if own.SHA256 == "" {
		a.Sum = &sumRecord{}
		if _, err := readRecord(r.sumFile(in.node), a.Sum); err != nil {
			return a, err
		}
		a.Sum.Signer, a.Sum.Keyring = "", ""
	}
	if r.NodeVersion == "" && in.node.Version != image.DefaultNode {
		a.Node = &nodeRecord{}
		if _, err := readRecord(r.nodeFile(), a.Node); err != nil {
			return a, err
		}
	}
	for _, h := range r.Harnesses {
		if in.locks[h.Name] == nil {
			continue
		}
		var rec lockRecord
		if _, err := readRecord(r.lockFile(h.Name), &rec); err != nil {
			return a, err
		}
		if a.Locks == nil {
			a.Locks = map[string]lockRecord{}
		}
		a.Locks[h.Name] = rec
	}
	return a, nil
}

// inputsOf are the inputs of a recipe on this machine that the records of an archive
// lead to.
func (r Request) inputsOf(a archived, now time.Time) (inputs, error) {
	ref := r.Base
	if ref == "" {
		ref = image.DefaultBase
	}
	base, err := image.ParseReference(ref)
	if err != nil {
		return inputs{}, err
	}
	in := inputs{base: base, pin: a.Base}
	if a.Version != 1 {
		return in, fmt.Errorf("it is of version %d: use the ai-sandbox that made it", a.Version)
	}
	if a.Arch != r.Arch {
		return in, fmt.Errorf("it is for %+.20q machines, and this one is %s", a.Arch, r.Arch)
	}
	if a.Base.Ref != base.String() {
		return in, fmt.Errorf("it is about the base %+q, and here the base is %s: set base to that", a.Base.Ref, base)
	}
	in.pin.Checked = ""
	if _, err := base.Pin(in.pin.Digest); err != nil {
		return in, err
	}
	if base.Digest != "" && base.Digest != in.pin.Digest {
		return in, fmt.Errorf("it has %s for the base %s", in.pin.Digest, base)
	}
	// A record from the future would count as newer than all that comes.
	for _, t := range a.dates() {
		if t.After(now.Add(day)) {
			return in, fmt.Errorf("it is from the future (%s): set the clock of either machine", t.Format(time.DateOnly))
		}
	}
	if p := a.Packages; p != nil {
		if p.Ref != a.Base.Ref || p.Digest != in.pin.Digest {
			return in, errors.New("its date of packages is about another base")
		}
		in.packages = p.Asked.UTC().Format(image.PackagesForm)
	}
	version := r.NodeVersion
	if version == "" && a.Node != nil {
		if version = a.Node.Version; !sameLine(version, image.DefaultNode) || !image.Older(image.DefaultNode, version) {
			return in, fmt.Errorf("it has node %+q, which is no newer %s", version, image.DefaultNode)
		}
	}
	if in.node, err = image.NewNode(version, r.Arch); err != nil {
		return in, err
	}
	if in.node.SHA256 == "" {
		if a.Sum == nil || a.Sum.File != in.node.File() || digest.NewDigestFromEncoded(digest.SHA256, a.Sum.SHA256).Validate() != nil {
			return in, fmt.Errorf("it has no checksum of node %s, which is the one here: set node_version as where it was made", in.node.Version)
		}
		in.node.SHA256 = a.Sum.SHA256
		if err := r.checkSum(in.node); err != nil {
			return in, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Locks)) {
		i := slices.IndexFunc(r.Harnesses, func(h image.Harness) bool { return h.Name == name })
		if i < 0 {
			return in, fmt.Errorf("it has %+.40q, which is not in harness_packages here: set that as where it was made", name)
		}
		h, rec := r.Harnesses[i], a.Locks[name]
		lock, err := h.ParseLock([]byte(rec.Package), []byte(rec.Packages))
		if err != nil {
			return in, err
		}
		l := lockRecord{Version: lock.Version, Node: lock.Node, Package: string(lock.Package), Packages: string(lock.Packages)}
		if l.sum() != rec.Sum || l.sum() != rec.sum() || !image.Older(h.Version, l.Version) {
			return in, fmt.Errorf("its lock file of %s is not as npm and ai-sandbox made it", name)
		}
		in = in.with(name, lock)
	}
	return in, nil
}

// checkSum compares the checksum of an archive with what is remembered of the same Node.
// An archive carries no signature of it, so that where a keyring asks for one it has to
// be remembered.
func (r Request) checkSum(n image.Node) error {
	rec, err := r.readSum(n)
	if err != nil {
		return err
	}
	if rec.SHA256 != "" && rec.SHA256 != n.SHA256 {
		return fmt.Errorf("the checksum of node %s is another one here than in the archive: find out which is right; that of here is in %s", n.Version, r.sumFile(n))
	}
	known, err := r.recordedSum(n)
	if err == nil && known == "" && r.Keyring != "" {
		return fmt.Errorf("node_keyring asks for a signature of the checksum of node %s, and an archive carries none: build once where Node's site answers (ai-sandbox build), or unset node_keyring", n.Version)
	}
	return err
}

func (a archived) dates() []time.Time {
	out := []time.Time{a.Base.Resolved}
	if a.Packages != nil {
		out = append(out, a.Packages.Asked)
	}
	if a.Node != nil {
		out = append(out, a.Node.Seen)
	}
	if a.Sum != nil {
		out = append(out, a.Sum.Seen)
	}
	for _, l := range a.Locks {
		out = append(out, l.Seen)
	}
	return out
}

// newer is an error where this machine knows of something newer than an archive, which
// would be lost.
func (r Request) newer(here, there inputs) error {
	const keep = "it stays, and nothing is loaded; to go back, remove "
	p := here.pin
	if here.base.Digest == "" && p.Digest != "" && p.Digest != there.pin.Digest && !p.Resolved.Before(there.pin.Resolved) {
		return fmt.Errorf("the pin of %s here is of %s, and that of the archive of %s: %s%s", here.base,
			p.Resolved.Format(time.DateTime), there.pin.Resolved.Format(time.DateTime), keep, r.baseFile(here.base, ".json"))
	}
	if p.Digest != "" && p.Digest == there.pin.Digest && here.packages > there.packages { // written so that they sort
		return fmt.Errorf("the packages on %s were asked for here on %s, and not so in the archive: %s%s", here.base, here.packages, keep, r.baseFile(here.base, ".packages.json"))
	}
	if r.NodeVersion == "" && image.Older(there.node.Version, here.node.Version) {
		return fmt.Errorf("node is at %s here, and at %s in the archive: %s%s", here.node.Version, there.node.Version, keep, r.nodeFile())
	}
	for _, h := range r.Harnesses {
		is, was := here.version(h), there.version(h)
		if image.Older(was, is) {
			return fmt.Errorf("%s is at %s here, and at %s in the archive: %s%s", h.Name, is, was, keep, r.lockFile(h.Name))
		}
		if a, b := here.locks[h.Name], there.locks[h.Name]; is == was && a != nil && b != nil && !bytes.Equal(a.Packages, b.Packages) {
			return fmt.Errorf("%s is of the same version, but with another lock file here than in the archive: %s%s", h.Name, keep, r.lockFile(h.Name))
		}
	}
	return nil
}

// Load puts the images of an archive of that size into the store, and remembers what
// they stand on, so that runs start on them without a registry. What is in it has to be
// what ai-sandbox would build here of its pins. Where it fails nothing of it stays.
// decompress reads a layer in any compression.
func (r Request) Load(ctx context.Context, b Archiver, o Options, from io.ReaderAt, size int64,
	decompress func(io.Reader) (io.ReadCloser, error)) (_ Plan, err error) {
	o.Say("checking every layer")
	l, err := r.look(ctx, from, size, decompress)
	if err != nil {
		return Plan{}, fmt.Errorf("the archive can't be loaded: %w", err)
	}
	unlock, err := r.lockImages(ctx, o, &l.plan, filepath.Join(r.buildDir(), LoadName+".lock"), r.baseFile(l.plan.BaseRef, ".lock"))
	if err != nil {
		return Plan{}, fmt.Errorf("load images: %w", err)
	}
	defer unlock()
	unlockNode, err := r.lockNode(ctx, o)
	if err != nil {
		return Plan{}, fmt.Errorf("load images: %w", err)
	}
	defer unlockNode()
	before, err := r.removeLoad(ctx, b) // of one that was killed
	if err != nil {
		return Plan{}, err
	}
	here, err := r.inputs()
	if err != nil {
		return Plan{}, err
	}
	var undo []func() error
	defer func() { // before the locks are let go
		var left error
		if err != nil {
			for _, f := range slices.Backward(undo) {
				left = errors.Join(left, f())
			}
		}
		if err == nil { // what an earlier load has left is pinned now
			before = loadRecord{}
		}
		if left == nil { // else clean tries again
			left = r.loaded(before)
		}
		err = errors.Join(err, left)
	}()
	if err := r.newer(here, l.plan.in); err != nil {
		return Plan{}, err
	}
	if l.plan.in.pin, err = r.loadedPin(here, l.plan.in.pin); err != nil {
		return Plan{}, err
	}
	pinned, err := l.plan.BaseRef.Pin(l.plan.BaseDigest)
	if err != nil {
		return Plan{}, err
	}
	if err := r.put(ctx, b, o, l, l.base, pinned.String(), pinned.String(), &undo); err != nil {
		return Plan{}, err
	}
	for _, img := range []*Image{&l.plan.Gate, &l.plan.Sandbox} {
		if err := r.adopt(ctx, b, o, l, img, &undo); err != nil {
			return Plan{}, err
		}
	}
	if err := r.remember(here, l, &undo); err != nil {
		return Plan{}, err
	}
	if old := here.pin.Digest; old != "" && old != l.plan.BaseDigest {
		o.Say("%s was pinned to %.19s, and now is to %.19s", here.base, old, l.plan.BaseDigest)
	}
	// Read back: a start of now finds these, and asks nobody.
	p, err := r.Plan()
	if err == nil && (p.Gate.Hash != l.plan.Gate.Hash || p.Sandbox.Hash != l.plan.Sandbox.Hash) {
		err = errors.New("what was recorded leads to other images")
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return p, err
}

// A looked is an archive that was looked through, and found to be in order.
type looked struct {
	file  *archive.Reader
	rec   archived
	plan  Plan // as this machine makes it from the records
	base  archive.Image
	built map[image.Kind]archive.Image
}

// look checks all that is in an archive. It changes nothing.
func (r Request) look(ctx context.Context, from io.ReaderAt, size int64, decompress func(io.Reader) (io.ReadCloser, error)) (looked, error) {
	l := looked{built: map[image.Kind]archive.Image{}}
	var err error
	if l.file, err = archive.Open(ctx, from, size); err != nil {
		return l, err
	}
	tops := map[string]archive.Descriptor{}
	for _, d := range l.file.Index.Manifests {
		kind := d.Annotations[annotationKind]
		if d.MediaType == recordsType {
			kind = recordsType
		}
		if _, twice := tops[kind]; twice {
			return l, fmt.Errorf("it has two of %+q", kind)
		}
		tops[kind] = d
	}
	for _, kind := range []string{recordsType, kindBase, string(image.KindGate), string(image.KindSandbox)} {
		if _, ok := tops[kind]; !ok || len(tops) != 4 {
			return l, errors.New("it is none that ai-sandbox image save has made")
		}
	}
	data, err := l.file.Bytes(tops[recordsType])
	if err != nil {
		return l, err
	}
	if err := decodeRecord(data, &l.rec); err != nil {
		return l, fmt.Errorf("its records make no sense: %w", err)
	}
	if l.rec.Sum != nil {
		l.rec.Sum.Signer, l.rec.Sum.Keyring = "", "" // nobody here has seen that
	}
	in, err := r.inputsOf(l.rec, time.Now())
	if err != nil {
		return l, err
	}
	if l.plan, err = r.plan(in); err != nil {
		return l, err
	}
	if tops[kindBase].Digest != l.plan.BaseDigest {
		return l, fmt.Errorf("the base in it is %.19s, and its pin another one", tops[kindBase].Digest)
	}
	if l.base, err = l.file.Image(ctx, tops[kindBase], decompress); err != nil {
		return l, fmt.Errorf("the base: %w", err)
	}
	if l.base.Arch != r.Arch {
		return l, fmt.Errorf("the base in it is for %+.20q machines", l.base.Arch)
	}
	for _, img := range []Image{l.plan.Gate, l.plan.Sandbox} {
		found, err := l.file.Image(ctx, tops[string(img.Kind)], decompress)
		if err != nil {
			return l, fmt.Errorf("the %s image: %w", img.Kind, err)
		}
		for k, v := range img.Labels {
			if found.Labels[k] != v {
				return l, fmt.Errorf("its %s image is not the one that is built here of the same pins (%s is %+.80q there, and %+.80q here): use the same ai-sandbox, base, node_version, ca_file, harness_packages, apt and setup as where it was made",
					img.Kind, k, found.Labels[k], v)
			}
		}
		l.built[img.Kind] = found
	}
	return l, l.file.Unused()
}

// loadedPin is the pin to record: with its date and its check of here, where it is the
// same. An archive brings no signature.
func (r Request) loadedPin(here inputs, pin baseRecord) (baseRecord, error) {
	if here.demandsErr != nil {
		return pin, here.demandsErr
	}
	if here.pin.Digest == pin.Digest {
		pin.Checked = here.pin.Checked
		if here.pin.Resolved.After(pin.Resolved) {
			pin.Resolved = here.pin.Resolved
		}
	}
	if here.demands != "" && pin.Checked != here.demands {
		return pin, &image.RefusedError{Ref: here.base.String(), Why: errors.New("a signature is demanded, and an archive carries none"),
			Fix: "let policy.json accept this base on this machine (containers-policy.json(5)), or have ai-sandbox build check it once where its registry answers"}
	}
	return pin, nil
}

// put loads an image unless the store has it by that name, or by its id where the name
// is "". People know it as what.
func (r Request) put(ctx context.Context, b Archiver, o Options, l looked, img archive.Image, name, what string, undo *[]func() error) error {
	known := name
	if known == "" {
		known = img.ID()
	}
	there, err := b.ImageExists(ctx, known)
	if err != nil || there {
		return err
	}
	had, err := b.ImageExists(ctx, img.ID())
	if err != nil {
		return err
	}
	o.Say("loading %s", what)
	if !had {
		if err := r.loading(l, img.ID()); err != nil {
			return err
		}
		*undo = append(*undo, func() error {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			if there, err := b.ImageExists(late, img.ID()); err != nil || !there {
				return err
			}
			return b.RemoveImage(late, img.ID())
		})
	}
	err = b.LoadImage(ctx, func(w io.Writer) error { return l.file.WriteImage(ctx, w, img, name) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", what, err)
	}
	if there, err = b.ImageExists(ctx, known); err == nil && !there {
		err = fmt.Errorf("load %s: podman does not have it as %s", what, known)
	}
	return err
}

// undoTime bounds what is taken back after the caller's context has ended.
const undoTime = time.Minute

// adopt loads an image of ours, and remembers it as if it had been built here.
func (r Request) adopt(ctx context.Context, b Archiver, o Options, l looked, img *Image, undo *[]func() error) error {
	old, err := r.recordedImage(img.Built)
	if err != nil {
		return err
	}
	if there, err := exists(ctx, b, old); err != nil {
		return err
	} else if there {
		o.Say("%s is here already, and stays", img.Ref)
		img.ID = old
		return nil
	}
	found := l.built[img.Kind]
	if err := r.put(ctx, b, o, l, found, "", img.Ref, undo); err != nil {
		return err
	}
	img.ID = found.ID()
	if err := b.PrimeImage(ctx, img.ID); err != nil {
		return fmt.Errorf("start it for the first time: %w", err)
	}
	text, err := b.ReadImageFile(ctx, img.ID, image.ManifestPath)
	if err != nil {
		return err
	}
	if _, err := image.ParseManifest(text); err != nil {
		return err
	}
	if err := b.TagImage(ctx, img.ID, img.Ref); err != nil {
		return err
	}
	path, err := r.imageFile(img.Built, ".json")
	if err != nil {
		return err
	}
	if err := keeping(r.manifestFile(img.ID), undo, func(path string) error { return writeFile(path, text) }); err != nil {
		return err
	}
	return keeping(path, undo, func(string) error { return r.recordImage(img.Built, img.ID, time.Now(), false) })
}

// remember writes the records of an archive that are not here yet, the pin last.
func (r Request) remember(here inputs, l looked, undo *[]func() error) error {
	in := l.plan.in
	known, err := r.readSum(in.node) // if there is one, it is the same
	if err != nil {
		return err
	}
	type record struct {
		path string
		v    any
		is   bool
	}
	var records []record
	for _, h := range r.Harnesses {
		if rec, ok := l.rec.Locks[h.Name]; ok {
			records = append(records, record{r.lockFile(h.Name), rec, here.version(h) != in.version(h)})
		}
	}
	records = append(records, []record{
		{r.sumFile(in.node), l.rec.Sum, l.rec.Sum != nil && known.SHA256 == ""},
		{r.nodeFile(), l.rec.Node, l.rec.Node != nil && here.node.Version != in.node.Version},
		{r.baseFile(in.base, ".packages.json"), l.rec.Packages, l.rec.Packages != nil},
		{r.baseFile(in.base, ".json"), in.pin, in.base.Digest == "" || in.pin.Checked != ""},
	}...)
	for _, rec := range records {
		if !rec.is {
			continue
		}
		if err := keeping(rec.path, undo, func(path string) error { return writeRecord(path, rec.v) }); err != nil {
			return err
		}
	}
	return nil
}

// keeping changes a file, which undo makes what it was.
func keeping(path string, undo *[]func() error, change func(path string) error) error {
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		*undo = append(*undo, func() error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	case err != nil:
		return err
	default:
		*undo = append(*undo, func() error { return writeFile(path, old) })
	}
	return change(path)
}
