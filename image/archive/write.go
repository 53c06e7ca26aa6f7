// Writing a layout.

package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
)

const (
	layoutName = "oci-layout"
	layoutText = `{"imageLayoutVersion":"1.0.0"}`
	indexName  = "index.json"
	blobPrefix = "blobs/sha256/"
)

// A Writer writes a layout. Its times and owners are none, so that the same images
// give the same file.
type Writer struct {
	t    *tar.Writer
	have map[digest.Digest]int64
}

// NewWriter begins a layout.
func NewWriter(w io.Writer) (*Writer, error) {
	out := &Writer{t: tar.NewWriter(w), have: map[digest.Digest]int64{}}
	return out, out.file(layoutName, []byte(layoutText))
}

func (w *Writer) file(name string, data []byte) error {
	if err := w.t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.t.Write(data)
	return err
}

// Has tells whether a blob has been written.
func (w *Writer) Has(d digest.Digest) bool {
	_, ok := w.have[d]
	return ok
}

// Blob writes a blob, unless it is there already. One that is not what its digest and
// size say is an error, after which the file is of no use.
func (w *Writer) Blob(ctx context.Context, d digest.Digest, size int64, r io.Reader) error {
	if why := (Descriptor{Digest: d, Size: size}).problem(); why != "" {
		return errors.New(why)
	}
	if w.Has(d) {
		return nil
	}
	if err := w.t.WriteHeader(&tar.Header{Name: blobPrefix + d.Encoded(), Mode: 0o644, Size: size}); err != nil {
		return err
	}
	v := d.Verifier()
	n, err := io.Copy(io.MultiWriter(w.t, v), &until{ctx, io.LimitReader(r, size)})
	switch {
	case err != nil:
		return fmt.Errorf("copy %.19s: %w", d, err)
	case n != size || !v.Verified():
		return fmt.Errorf("what was to be %.19s, of %d bytes, is something else", d, size)
	}
	w.have[d] = size
	return nil
}

// JSON writes a value as a blob, and returns where it is.
func (w *Writer) JSON(ctx context.Context, mediaType string, v any) (Descriptor, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return Descriptor{}, err
	}
	d := Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	return d, w.Blob(ctx, d.Digest, d.Size, bytes.NewReader(data))
}

// Close ends the layout: this is what is in it.
func (w *Writer) Close(content []Descriptor) error {
	index, err := json.MarshalIndent(Index{SchemaVersion: 2, MediaType: typeIndex, Manifests: content}, "", "  ")
	if err != nil {
		return err
	}
	if err := w.file(indexName, index); err != nil {
		return err
	}
	return w.t.Close()
}

// Add copies the one image of another layout, as it is read from a stream, and returns
// where its manifest is.
func (w *Writer) Add(ctx context.Context, r io.Reader) (Descriptor, error) {
	var index []byte
	for t := tar.NewReader(&until{ctx, r}); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Descriptor{}, err
		}
		d, ok := blobName(h.Name)
		switch {
		case h.Typeflag == tar.TypeDir:
		case h.Typeflag != tar.TypeReg:
			return Descriptor{}, fmt.Errorf("%+q is not a file", h.Name)
		case ok:
			if err := w.Blob(ctx, d, h.Size, t); err != nil {
				return Descriptor{}, err
			}
		case h.Name == indexName:
			if index, err = io.ReadAll(io.LimitReader(t, MaxJSON)); err != nil {
				return Descriptor{}, err
			}
		}
	}
	var i Index
	if err := json.Unmarshal(index, &i); err != nil || len(i.Manifests) != 1 || !isManifest(i.Manifests[0].MediaType) || !w.Has(i.Manifests[0].Digest) {
		return Descriptor{}, errors.New("it is not a layout of one image")
	}
	d := i.Manifests[0]
	return Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, nil
}

// until ends reading with its context.
type until struct {
	ctx context.Context //nolint:containedctx // io.Reader has no place for it
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
