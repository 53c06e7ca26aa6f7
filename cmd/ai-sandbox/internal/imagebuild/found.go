// Images that are there, and the packages in them.

package imagebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ai-sandbox/image"
	"ai-sandbox/image/sbom"
)

// Found is an image as podman has it.
type Found struct {
	ID string
	// Names and Digests are what podman knows it by: host/path:tag and
	// host/path@digest.
	Names, Digests []string
	Labels         map[string]string
	Created        time.Time
	Size           int64 // bytes
}

// manifestFile keeps the manifest of an image, also for when it is gone.
func (r Request) manifestFile(id string) string {
	return filepath.Join(r.StateDir, "images", id+".manifest")
}

// describe puts the bill of materials into a new image, which has to be there for it
// to be known what is in it, and keeps its manifest. It returns the new image's id.
func (r Request) describe(ctx context.Context, b Builder, img *Image, id string, build Build) (string, error) {
	text, err := b.ReadImageFile(ctx, id, image.ManifestPath)
	if err != nil {
		return "", err
	}
	list, err := image.ParseManifest(text)
	if err != nil {
		return "", err
	}
	release, err := b.ReadImageFile(ctx, id, releasePath)
	if err != nil {
		return "", err
	}
	bill, err := sbom.Write(img.Built, image.SystemID(release), list)
	if err != nil {
		return "", err
	}
	build.Dir, build.From = filepath.Join(build.Dir, "sbom"), id
	if err := os.Mkdir(build.Dir, 0o700); err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{"sbom.json": bill, "Containerfile": []byte("FROM " + id + "\nCOPY sbom.json " + sbom.Path + "\n")} {
		if err := putFile(build.Dir, name, data, 0o644); err != nil {
			return "", err
		}
	}
	if id, err = b.BuildImage(ctx, build); err != nil {
		return "", err
	}
	return id, writeFile(r.manifestFile(id), text)
}

// releasePath is where /etc/os-release leads to (os-release(5)).
const releasePath = "/usr/lib/os-release"

// Manifest is what is kept of the packages of an image that was built here. The
// error is fs.ErrNotExist where nothing is.
func (r Request) Manifest(id string) ([]image.Package, error) {
	text, err := os.ReadFile(r.manifestFile(id))
	if err != nil {
		return nil, fmt.Errorf("read what is in image %.12s: %w", id, err)
	}
	return image.ParseManifest(bytes.TrimSpace(text))
}

// packages is Manifest, of nothing where nothing is known.
func (r Request) packages(id string) ([]image.Package, error) {
	if id == "" {
		return nil, nil
	}
	list, err := r.Manifest(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}
