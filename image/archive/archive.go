// Package archive reads and writes images in one file: an OCI image layout in a tar
// (opencontainers/image-spec, image-layout.md). A manifest and a layer keep their bytes,
// and so their digests.
//
// What is read may come from anybody. Nothing of it is unpacked: the file is looked
// through once, every blob is hashed, and what is wanted of it is read again from its
// place, and hashed again.
package archive

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
)

// Bounds on what is read. A manifest is no larger in containers/image either.
const (
	// MaxBlob bounds the whole file, and MaxLayers what is in all layers of an image
	// when they are uncompressed, in bytes.
	MaxBlob   = 64 << 30
	MaxLayers = 64 << 30
	// MaxJSON bounds an index, a manifest and a configuration, in bytes.
	MaxJSON = 4 << 20
	// maxEntries bounds the files, and maxLayers the layers of an image.
	maxEntries = 4096
	maxLayers  = 512
)

// Media types (image-spec, media-types.md), and those that Docker has for the same.
const (
	typeIndex          = "application/vnd.oci.image.index.v1+json"
	typeManifest       = "application/vnd.oci.image.manifest.v1+json"
	typeDockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// annotationName is where a layout has an image's name.
const annotationName = "org.opencontainers.image.ref.name"

// A Descriptor points to a blob.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      digest.Digest     `json:"digest"`
	Size        int64             `json:"size"`
	URLs        []string          `json:"urls,omitempty"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// A Platform is what an image of an index runs on.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// An Index lists manifests. That of the layout itself is its index.json.
type Index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	Manifests     []Descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// An Image is one image, and all that it is made of.
type Image struct {
	// Top is what the image is known by: its manifest, or an index that this machine's
	// manifest is in.
	Top      Descriptor
	Manifest Descriptor
	Config   Descriptor
	Layers   []Descriptor
	// DiffIDs are the digests of the uncompressed layers, and Labels the image's.
	DiffIDs []digest.Digest
	Labels  map[string]string
	Arch    string
}

// ID is the image's id in podman's store: the digest of its configuration, in hex.
func (i Image) ID() string { return i.Config.Digest.Encoded() }

// blobs are all of the image, each once.
func (i Image) blobs() []Descriptor {
	out := []Descriptor{i.Top}
	seen := map[digest.Digest]bool{i.Top.Digest: true}
	for _, d := range append([]Descriptor{i.Manifest, i.Config}, i.Layers...) {
		if !seen[d.Digest] {
			seen[d.Digest] = true
			out = append(out, d)
		}
	}
	return out
}

// IsIndex tells whether a media type is that of an index.
func IsIndex(mediaType string) bool { return mediaType == typeIndex || mediaType == typeDockerIndex }

func isManifest(mediaType string) bool {
	return mediaType == typeManifest || mediaType == typeDockerManifest
}

// problem is what is wrong with a descriptor, or "".
func (d Descriptor) problem() string {
	switch {
	case d.Digest.Validate() != nil || d.Digest.Algorithm() != digest.SHA256:
		return fmt.Sprintf("%+q is not a sha256 digest", string(d.Digest))
	case d.Size < 0 || d.Size > MaxBlob:
		return fmt.Sprintf("%.19s has a size of %d bytes", d.Digest, d.Size)
	case len(d.URLs) > 0:
		// Who follows them asks the network for a part of the image.
		return fmt.Sprintf("%.19s is to be fetched from elsewhere", d.Digest)
	}
	return ""
}

// manifestOf reads a manifest; what it says is checked as far as it can be by itself.
func manifestOf(data []byte) (config Descriptor, layers []Descriptor, err error) {
	var m struct {
		Config Descriptor   `json:"config"`
		Layers []Descriptor `json:"layers"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return config, nil, err
	}
	if len(m.Layers) > maxLayers {
		return config, nil, fmt.Errorf("it has %d layers", len(m.Layers))
	}
	for _, d := range append([]Descriptor{m.Config}, m.Layers...) {
		if why := d.problem(); why != "" {
			return config, nil, errors.New(why)
		}
	}
	if m.Config.Size > MaxJSON {
		return config, nil, fmt.Errorf("its configuration has %d bytes", m.Config.Size)
	}
	return m.Config, m.Layers, nil
}

// configOf reads an image's configuration into it.
func (i *Image) configOf(data []byte) error {
	var c struct {
		Architecture string `json:"architecture"`
		Config       struct{ Labels map[string]string }
		RootFS       struct {
			DiffIDs []digest.Digest `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if len(c.RootFS.DiffIDs) != len(i.Layers) {
		return fmt.Errorf("it has %d layers, and its configuration %d", len(i.Layers), len(c.RootFS.DiffIDs))
	}
	i.DiffIDs, i.Labels, i.Arch = c.RootFS.DiffIDs, c.Config.Labels, c.Architecture
	return nil
}
