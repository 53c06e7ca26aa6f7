// Copying an image out of a registry, every byte as it is there.

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/pkg/blobinfocache/none"
	"github.com/containers/image/v5/pkg/compression"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
	"ai-sandbox/image/archive"
)

// Copy writes an image that is named by its digest into a layout, and returns where it
// is. Of an index of several architectures, the index is copied and this machine's
// image. podman's own store could not give it: it keeps layers uncompressed, and what
// it compresses again has another digest. An image that policy.json does not accept is
// an image.RefusedError.
func Copy(ctx context.Context, ref image.Reference, o Options, w *archive.Writer) (archive.Descriptor, error) {
	d, err := copyImage(ctx, ref, o, w)
	if err != nil {
		return d, fmt.Errorf("fetch %s: %w", ref, err)
	}
	return d, nil
}

func copyImage(ctx context.Context, ref image.Reference, o Options, w *archive.Writer) (top archive.Descriptor, err error) {
	if ref.Digest == "" {
		return top, errors.New("it names no digest")
	}
	if _, err := Resolve(ctx, ref, o); err != nil {
		return top, err
	}
	dr, err := dockerReference(image.Reference{Name: ref.Name, Digest: ref.Digest})
	if err != nil {
		return top, err
	}
	src, err := dr.NewImageSource(ctx, o.system())
	if err != nil {
		return top, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	put := func(instance *digest.Digest, want digest.Digest) ([]byte, string, error) {
		raw, kind, err := src.GetManifest(ctx, instance)
		if err != nil {
			return nil, "", err
		}
		return raw, kind, w.Blob(ctx, want, int64(len(raw)), bytes.NewReader(raw))
	}
	raw, kind, err := put(nil, ref.Digest)
	if err != nil {
		return top, err
	}
	top = archive.Descriptor{MediaType: kind, Digest: ref.Digest, Size: int64(len(raw))}
	if archive.IsIndex(kind) {
		list, err := manifest.ListFromBlob(raw, kind)
		if err != nil {
			return top, err
		}
		d, err := list.ChooseInstance(o.system())
		if err != nil {
			return top, err
		}
		if raw, _, err = put(&d, d); err != nil {
			return top, err
		}
	}
	var m struct {
		Config archive.Descriptor
		Layers []archive.Descriptor
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return top, err
	}
	for _, d := range append([]archive.Descriptor{m.Config}, m.Layers...) {
		if w.Has(d.Digest) {
			continue
		}
		b, _, err := src.GetBlob(ctx, types.BlobInfo{Digest: d.Digest, Size: d.Size, MediaType: d.MediaType}, none.NoCache)
		if err != nil {
			return top, err
		}
		if err := errors.Join(w.Blob(ctx, d.Digest, d.Size, b), b.Close()); err != nil {
			return top, err
		}
	}
	return top, nil
}

// Decompress reads a layer in any compression that an image may have.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	plain, _, err := compression.AutoDecompress(r)
	return plain, err
}
