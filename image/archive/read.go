// Reading a layout that may come from anybody.

package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// A Reader is a layout that was looked through: the digest of each blob is what its
// name says.
type Reader struct {
	Index Index
	r     io.ReaderAt
	blobs map[digest.Digest]place
	used  map[digest.Digest]bool
}

type place struct{ at, size int64 }

func blobName(name string) (digest.Digest, bool) {
	hex, ok := strings.CutPrefix(name, blobPrefix)
	d := digest.NewDigestFromEncoded(digest.SHA256, hex)
	return d, ok && d.Validate() == nil
}

// Open looks a file of that size through. It has only what a layout has, each once.
func Open(ctx context.Context, r io.ReaderAt, size int64) (*Reader, error) {
	if size > MaxBlob {
		return nil, fmt.Errorf("it has %d bytes", size)
	}
	out := &Reader{r: r, blobs: map[digest.Digest]place{}, used: map[digest.Digest]bool{}}
	file := io.NewSectionReader(r, 0, size)
	t := tar.NewReader(file)
	seen := map[string]bool{}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar archive: %w", err)
		}
		if len(seen) == maxEntries {
			return nil, fmt.Errorf("it has more than %d files", maxEntries)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if seen[name] {
			return nil, fmt.Errorf("it has %+.80q twice", name)
		}
		seen[name] = true
		d, blob := blobName(h.Name)
		switch {
		case h.Typeflag == tar.TypeDir && (name == "blobs" || name+"/" == blobPrefix):
		case h.Typeflag != tar.TypeReg || slices.ContainsFunc(slices.Collect(maps.Keys(h.PAXRecords)), func(k string) bool { return strings.HasPrefix(k, "GNU.sparse.") }):
			return nil, fmt.Errorf("%+.80q in it is not a plain file", h.Name)
		case blob:
			at, err := file.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			v := d.Verifier()
			if _, err := io.Copy(v, &until{ctx, t}); err != nil {
				return nil, fmt.Errorf("read %.19s: %w", d, err)
			}
			if !v.Verified() {
				return nil, fmt.Errorf("%.19s in it is not what its name says", d)
			}
			out.blobs[d] = place{at, h.Size}
		case name == layoutName:
			if h.Size > MaxJSON {
				return nil, fmt.Errorf("its %s has %d bytes", layoutName, h.Size)
			}
		case name == indexName:
			if h.Size > MaxJSON {
				return nil, fmt.Errorf("its %s has %d bytes", indexName, h.Size)
			}
			if err := json.NewDecoder(t).Decode(&out.Index); err != nil {
				return nil, fmt.Errorf("its %s: %w", indexName, err)
			}
		default:
			return nil, fmt.Errorf("it has a file %+.80q, which is not of an image layout", h.Name)
		}
	}
	if !seen[layoutName] || !seen[indexName] {
		return nil, errors.New("it is not an OCI image layout")
	}
	return out, nil
}

// open is a blob, of which the size is checked.
func (r *Reader) open(d Descriptor) (*io.SectionReader, error) {
	if why := d.problem(); why != "" {
		return nil, errors.New(why)
	}
	p, ok := r.blobs[d.Digest]
	if !ok {
		return nil, fmt.Errorf("%.19s is not in it", d.Digest)
	}
	if p.size != d.Size {
		return nil, fmt.Errorf("%.19s has %d bytes, and not %d", d.Digest, p.size, d.Size)
	}
	r.used[d.Digest] = true
	return io.NewSectionReader(r.r, p.at, p.size), nil
}

// Bytes are a small blob's. They are hashed again: the file may have changed.
func (r *Reader) Bytes(d Descriptor) ([]byte, error) {
	if d.Size > MaxJSON {
		return nil, fmt.Errorf("%.19s has %d bytes", d.Digest, d.Size)
	}
	b, err := r.open(d)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != d.Digest {
		return nil, fmt.Errorf("%.19s has changed while it was read", d.Digest)
	}
	return data, nil
}

// Image is what a descriptor of the index leads to. Of an index of several
// architectures, exactly one image has to be in the file. All of the image is there,
// and its layers, uncompressed, are those that its configuration, and so its id, names:
// decompress reads a layer in any compression.
func (r *Reader) Image(ctx context.Context, top Descriptor, decompress func(io.Reader) (io.ReadCloser, error)) (Image, error) {
	i := Image{Top: top, Manifest: top}
	data, err := r.Bytes(top)
	if err != nil {
		return i, err
	}
	if IsIndex(top.MediaType) {
		if i.Manifest, err = r.only(data); err != nil {
			return i, err
		}
		if data, err = r.Bytes(i.Manifest); err != nil {
			return i, err
		}
	}
	if !isManifest(i.Manifest.MediaType) {
		return i, fmt.Errorf("%.19s is no manifest of an image", i.Manifest.Digest)
	}
	if i.Config, i.Layers, err = manifestOf(data); err != nil {
		return i, fmt.Errorf("manifest %.19s: %w", i.Manifest.Digest, err)
	}
	if data, err = r.Bytes(i.Config); err != nil {
		return i, err
	}
	if err := i.configOf(data); err != nil {
		return i, fmt.Errorf("manifest %.19s: %w", i.Manifest.Digest, err)
	}
	left := int64(MaxLayers)
	for n, l := range i.Layers {
		size, err := r.layer(ctx, l, i.DiffIDs[n], left, decompress)
		if err != nil {
			return i, err
		}
		left -= size
	}
	return i, nil
}

// only is the one manifest of an index that is in the file.
func (r *Reader) only(index []byte) (Descriptor, error) {
	var list Index
	if err := json.Unmarshal(index, &list); err != nil {
		return Descriptor{}, fmt.Errorf("an index: %w", err)
	}
	var found []Descriptor
	for _, d := range list.Manifests {
		listed := slices.ContainsFunc(found, func(f Descriptor) bool { return f.Digest == d.Digest }) // for two platforms
		if _, ok := r.blobs[d.Digest]; ok && !listed {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return Descriptor{}, fmt.Errorf("of the images of an index, it has %d and not one", len(found))
	}
	return found[0], nil
}

// layer checks that an uncompressed layer has a digest, and returns its size.
func (r *Reader) layer(ctx context.Context, l Descriptor, diffID digest.Digest, left int64, decompress func(io.Reader) (io.ReadCloser, error)) (int64, error) {
	if why := (Descriptor{Digest: diffID}).problem(); why != "" {
		return 0, errors.New(why)
	}
	b, err := r.open(l)
	if err != nil {
		return 0, err
	}
	plain, err := decompress(&until{ctx, b})
	if err != nil {
		return 0, fmt.Errorf("layer %.19s: %w", l.Digest, err)
	}
	v := diffID.Verifier()
	n, err := io.Copy(v, io.LimitReader(plain, left+1))
	err = errors.Join(err, plain.Close())
	switch {
	case err != nil:
		return 0, fmt.Errorf("layer %.19s: %w", l.Digest, err)
	case n > left:
		return 0, fmt.Errorf("its layers are larger than %d bytes", int64(MaxLayers))
	case !v.Verified():
		return 0, fmt.Errorf("layer %.19s is not the one that the image's configuration names", l.Digest)
	}
	return n, nil
}

// Unused is an error where there is a blob that nothing has led to yet.
func (r *Reader) Unused() error {
	for d := range r.blobs {
		if !r.used[d] {
			return fmt.Errorf("%.19s in it belongs to nothing", d)
		}
	}
	return nil
}

// WriteImage writes a layout with one image, under a name unless that is "". Every
// blob is hashed again.
func (r *Reader) WriteImage(ctx context.Context, w io.Writer, i Image, name string) error {
	out, err := NewWriter(w)
	if err != nil {
		return err
	}
	for _, d := range i.blobs() {
		b, err := r.open(d)
		if err != nil {
			return err
		}
		if err := out.Blob(ctx, d.Digest, d.Size, b); err != nil {
			return err
		}
	}
	top := Descriptor{MediaType: i.Top.MediaType, Digest: i.Top.Digest, Size: i.Top.Size}
	if name != "" {
		top.Annotations = map[string]string{annotationName: name}
	}
	return out.Close([]Descriptor{top})
}

// Named is a descriptor with a name, and with annotations of the caller's.
func (d Descriptor) Named(name string, annotations map[string]string) Descriptor {
	d.Annotations = maps.Clone(annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[annotationName] = name
	return d
}
