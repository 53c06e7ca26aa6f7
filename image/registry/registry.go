// Package registry asks image registries what a tag leads to. It is the only
// importer of containers/image, and so reads what podman reads: registries.conf
// (a loopback registry without TLS, mirrors) and podman's credentials.
package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// Timeout bounds one question to a registry.
const Timeout = 30 * time.Second

// Options are where the configuration is. The zero value is podman's own
// places.
type Options struct {
	RegistriesConf string
	AuthFile       string
}

// Resolve returns the digest of the manifest that ref's tag leads to: for an
// image of several architectures, that of their index. It is computed from what
// the registry sent, not taken from a header.
func Resolve(ctx context.Context, ref image.Reference, o Options) (digest.Digest, error) {
	if ref.Digest != "" {
		return ref.Digest, nil
	}
	d, err := resolve(ctx, ref, o)
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", ref, err)
	}
	return d, nil
}

func resolve(ctx context.Context, ref image.Reference, o Options) (_ digest.Digest, err error) {
	named, err := reference.ParseNormalizedNamed(ref.String())
	if err != nil {
		return "", err
	}
	dr, err := docker.NewReference(named)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	src, err := dr.NewImageSource(ctx, &types.SystemContext{
		SystemRegistriesConfPath: o.RegistriesConf,
		AuthFilePath:             o.AuthFile,
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	raw, _, err := src.GetManifest(ctx, nil)
	if err != nil {
		return "", err
	}
	return manifest.Digest(raw)
}
