// Package registry asks image registries what a tag leads to. It is the only
// importer of containers/image, and so reads what podman reads: registries.conf
// (a loopback registry without TLS, mirrors), podman's credentials, and what policy.json
// demands of signatures.
package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/signature"
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
	PolicyFile     string
	RegistriesDir  string // where it says in which registries signatures are (containers-registries.d(5))
}

func (o Options) system() *types.SystemContext {
	return &types.SystemContext{
		SystemRegistriesConfPath: o.RegistriesConf,
		AuthFilePath:             o.AuthFile,
		SignaturePolicyPath:      o.PolicyFile,
		RegistriesDirPath:        o.RegistriesDir,
	}
}

// Resolve returns the digest of the manifest that ref's tag leads to: for an
// image of several architectures, that of their index. It is computed from what
// the registry sent, not taken from a header. An image that policy.json does not accept
// is an image.RefusedError. The registry is asked of a digest only where policy.json
// demands a signature.
func Resolve(ctx context.Context, ref image.Reference, o Options) (digest.Digest, error) {
	rules, err := rulesFor(ref, o)
	if err != nil {
		return "", unusable(ref, err)
	}
	if acceptAnything(rules) {
		rules = nil
	}
	if ref.Digest != "" && rules == nil {
		return ref.Digest, nil
	}
	d, err := resolve(ctx, ref, rules, o)
	var refused *image.RefusedError
	switch {
	case errors.As(err, &refused):
		return "", refused
	case err != nil:
		return "", fmt.Errorf("resolve %s: %w", ref, err)
	}
	return d, nil
}

func resolve(ctx context.Context, ref image.Reference, rules signature.PolicyRequirements, o Options) (_ digest.Digest, err error) {
	from := ref
	if from.Digest != "" {
		from.Tag = ""
	}
	dr, err := dockerReference(from)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	src, err := dr.NewImageSource(ctx, o.system())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	raw, kind, err := src.GetManifest(ctx, nil)
	if err != nil {
		return "", err
	}
	d, err := manifest.Digest(raw)
	if err != nil {
		return "", err
	}
	if ref.Digest != "" && d != ref.Digest {
		return "", fmt.Errorf("the registry sent %s", d)
	}
	if rules == nil {
		return d, nil
	}
	return d, accept(ctx, ref, rules, src, raw, kind, o.system())
}
