package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

func gunzip(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

func zip(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A parts is an archive before it is one: everything in it can be changed.
type parts struct {
	t     testing.TB
	files [][2]string
	heads map[string]func(*tar.Header)
}

func (p *parts) blob(text string) Descriptor {
	d := digest.FromString(text)
	p.files = append(p.files, [2]string{blobPrefix + d.Encoded(), text})
	return Descriptor{MediaType: "application/octet-stream", Digest: d, Size: int64(len(text))}
}

func (p *parts) json(kind string, v any) Descriptor {
	p.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	d := p.blob(string(b))
	d.MediaType = kind
	return d
}

type manifestJSON struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

// image is one with a layer of this text.
func (p *parts) image(text string) Descriptor {
	layer := p.blob(zip(p.t, text))
	return p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString(text)), []Descriptor{layer}})
}

func (p *parts) config(diffIDs ...digest.Digest) Descriptor {
	return p.json("application/vnd.oci.image.config.v1+json", map[string]any{"architecture": "amd64", "config": map[string]any{"Labels": map[string]string{"a": "b"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}})
}

func (p *parts) close(content ...Descriptor) {
	p.t.Helper()
	b, err := json.Marshal(Index{SchemaVersion: 2, Manifests: content})
	if err != nil {
		p.t.Fatal(err)
	}
	p.files = append(p.files, [2]string{layoutName, layoutText}, [2]string{indexName, string(b)})
}

func (p *parts) tar() []byte {
	p.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range p.files {
		h := &tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}
		if change := p.heads[f[0]]; change != nil {
			change(h)
		}
		if err := w.WriteHeader(h); err != nil {
			p.t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(f[1])); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		p.t.Fatal(err)
	}
	return b.Bytes()
}

func open(data []byte) (*Reader, error) {
	return Open(context.Background(), bytes.NewReader(data), int64(len(data)))
}

// read is all that is done with an archive before anything of it is used.
func read(data []byte) error {
	r, err := open(data)
	if err != nil {
		return err
	}
	for _, d := range r.Index.Manifests {
		if _, err := r.Image(context.Background(), d, gunzip); err != nil {
			return err
		}
	}
	return r.Unused()
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*parts)
		want string // "": accepted
	}{
		"one image":  {func(p *parts) { p.close(p.image("x")) }, ""},
		"two images": {func(p *parts) { p.close(p.image("x"), p.image("y")) }, ""},
		"an index with one of its images": {func(p *parts) {
			gone := Descriptor{MediaType: typeManifest, Digest: digest.FromString("gone"), Size: 7}
			p.close(p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{gone, p.image("x")}}))
		}, ""},
		"an index with its image twice": {func(p *parts) {
			x := p.image("x")
			p.close(p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{x, x}}))
		}, ""},
		"an index with none of them": {func(p *parts) {
			gone := Descriptor{MediaType: typeManifest, Digest: digest.FromString("gone"), Size: 7}
			p.close(p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{gone}}))
		}, "it has 0 and not one"},
		"an index with two of them": {func(p *parts) {
			p.close(p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{p.image("x"), p.image("y")}}))
		}, "it has 2 and not one"},
		"an index in an index": {func(p *parts) {
			inner := p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{p.image("x")}})
			p.close(p.json(typeIndex, Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []Descriptor{inner}}))
		}, "no manifest"},
		"a folder":            {func(p *parts) { p.file("blobs/", ""); p.head("blobs/", tar.TypeDir); p.close(p.image("x")) }, ""},
		"no index":            {func(p *parts) { p.image("x"); p.file(layoutName, layoutText) }, "not an OCI image layout"},
		"a name above":        {func(p *parts) { p.file("../x", "x"); p.close(p.image("x")) }, "not of an image layout"},
		"an absolute name":    {func(p *parts) { p.file("/etc/passwd", "x"); p.close(p.image("x")) }, "not of an image layout"},
		"a name above a blob": {func(p *parts) { p.file(blobPrefix+"../../../x", "x"); p.close(p.image("x")) }, "not of an image layout"},
		"a link": {func(p *parts) {
			p.file("index.json", "")
			p.head("index.json", tar.TypeSymlink)
		}, "not a plain file"},
		"a hard link": {func(p *parts) {
			p.file(blobPrefix+digest.FromString("").Encoded(), "")
			p.head(blobPrefix+digest.FromString("").Encoded(), tar.TypeLink)
		}, "not a plain file"},
		"a device":     {func(p *parts) { p.file("blobs", ""); p.head("blobs", tar.TypeChar) }, "not a plain file"},
		"a blob twice": {func(p *parts) { p.close(p.image("x")); p.blob("y"); p.blob("y") }, "twice"},
		"two indexes":  {func(p *parts) { p.close(p.image("x")); p.close() }, "twice"},
		"a blob of another digest": {func(p *parts) {
			p.close(p.image("x"))
			p.files[0][1] = strings.Repeat("z", len(p.files[0][1]))
		}, "not what its name says"},
		"a blob that belongs to nothing": {func(p *parts) { p.close(p.image("x")); p.blob("y") }, "belongs to nothing"},
		"a manifest that is not there": {func(p *parts) {
			p.close(Descriptor{MediaType: typeManifest, Digest: digest.FromString("gone"), Size: 7})
		}, "is not in it"},
		"a layer that is not there": {func(p *parts) {
			gone := Descriptor{Digest: digest.FromString("gone"), Size: 4}
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{gone}}))
		}, "is not in it"},
		"a layer of another size": {func(p *parts) {
			layer := p.blob(zip(t, "x"))
			layer.Size++
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{layer}}))
		}, "bytes, and not"},
		"a layer of another image, with its id": {func(p *parts) {
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{p.blob(zip(t, "evil"))}}))
		}, "is not the one that the image's configuration names"},
		"a layer that is to be fetched": {func(p *parts) {
			layer := p.blob(zip(t, "x"))
			layer.URLs = []string{"http://layers.example.com/x"}
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{layer}}))
		}, "to be fetched from elsewhere"},
		"a layer more": {func(p *parts) {
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{p.blob(zip(t, "x")), p.blob(zip(t, "y"))}}))
		}, "its configuration 1"},
		"a layer that is not compressed as one": {func(p *parts) {
			p.close(p.json(typeManifest, manifestJSON{2, typeManifest, p.config(digest.FromString("x")), []Descriptor{p.blob("not gzip")}}))
		}, "layer sha256:"},
		"a digest of another kind": {func(p *parts) {
			p.close(Descriptor{MediaType: typeManifest, Digest: digest.Digest("sha512:" + strings.Repeat("ab", 64)), Size: 7})
		}, "not a sha256 digest"},
		"a digest that leads elsewhere": {func(p *parts) {
			p.close(Descriptor{MediaType: typeManifest, Digest: "sha256:../../../../etc/passwd", Size: 7})
		}, "not a sha256 digest"},
		"a manifest of many bytes": {func(p *parts) {
			d := p.blob(strings.Repeat(" ", MaxJSON+1))
			d.MediaType = typeManifest
			p.close(d)
		}, "bytes"},
		"something else than an image": {func(p *parts) { p.close(p.json("application/json", 1)) }, "no manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &parts{t: t, heads: map[string]func(*tar.Header){}}
			c.make(p)
			err := read(p.tar())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, and not %q", err, c.want)
			}
		})
	}
}

func (p *parts) file(name, text string) { p.files = append(p.files, [2]string{name, text}) }

func (p *parts) head(name string, kind byte) {
	p.heads[name] = func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = kind, "/etc/passwd", 0 }
}

// Any single byte that is changed is noticed, but for those that mean nothing in a tar.
func TestEveryByte(t *testing.T) {
	p := &parts{t: t}
	p.close(p.image("some text"))
	data := p.tar()
	if err := read(data); err != nil {
		t.Fatal(err)
	}
	honest, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	want, err := honest.Image(t.Context(), honest.Index.Manifests[0], gunzip)
	if err != nil {
		t.Fatal(err)
	}
	unnoticed := 0
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x20
		r, err := open(bad)
		if err != nil {
			continue
		}
		got, err := r.Image(t.Context(), r.Index.Manifests[0], gunzip)
		if err != nil || r.Unused() != nil {
			continue
		}
		unnoticed++
		if fmt.Sprint(got.Manifest.Digest, got.Config.Digest, got.Layers) != fmt.Sprint(want.Manifest.Digest, want.Config.Digest, want.Layers) {
			t.Errorf("byte %d: another image", i)
		}
	}
	if unnoticed == len(data) {
		t.Error("nothing is noticed")
	}
}

// A compressed layer may be no larger than what is left.
func TestBomb(t *testing.T) {
	p := &parts{t: t}
	p.close(p.image(strings.Repeat("0", 1<<20)))
	r, err := open(p.tar())
	if err != nil {
		t.Fatal(err)
	}
	i, err := r.Image(t.Context(), r.Index.Manifests[0], gunzip)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.layer(t.Context(), i.Layers[0], i.DiffIDs[0], 1<<20, gunzip); n != 1<<20 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := r.layer(t.Context(), i.Layers[0], i.DiffIDs[0], 1<<20-1, gunzip); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v", err)
	}
}

// What is taken out of a layout is the same image, and can be read again; a file that
// changes meanwhile gives none.
func TestWriteImage(t *testing.T) {
	p := &parts{t: t}
	p.close(p.image("x"), p.image("y"))
	data := p.tar()
	r, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	i, err := r.Image(t.Context(), r.Index.Manifests[1], gunzip)
	if err != nil {
		t.Fatal(err)
	}
	var one, again bytes.Buffer
	if err := errors.Join(r.WriteImage(t.Context(), &one, i, "a.example/b@"+string(i.Top.Digest)), r.WriteImage(t.Context(), &again, i, "a.example/b@"+string(i.Top.Digest))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), again.Bytes()) {
		t.Error("the same image gives two files")
	}
	out, err := open(one.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := out.Image(t.Context(), out.Index.Manifests[0], gunzip)
	if err != nil || out.Unused() != nil || got.ID() != i.ID() || got.Top.Digest != i.Top.Digest || got.Top.Annotations[annotationName] != "a.example/b@"+string(i.Top.Digest) {
		t.Errorf("%+v, %v", got, err)
	}
	var w bytes.Buffer
	to, err := NewWriter(&w)
	if err != nil {
		t.Fatal(err)
	}
	d, err := to.Add(t.Context(), bytes.NewReader(one.Bytes()))
	if err != nil || d.Digest != i.Top.Digest || d.Annotations != nil {
		t.Errorf("%+v, %v", d, err)
	}
	// The layer is in another place than the rest: it changes behind our back.
	layer := r.blobs[i.Layers[0].Digest]
	data[layer.at] ^= 1
	if err := r.WriteImage(t.Context(), io.Discard, i, ""); err == nil {
		t.Error("a file that has changed is passed on")
	}
}

func FuzzOpen(f *testing.F) {
	p := &parts{t: f}
	p.close(p.image("x"))
	f.Add(p.tar())
	f.Fuzz(func(_ *testing.T, data []byte) { _ = read(data) })
}
