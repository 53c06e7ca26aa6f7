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
	as := ref
	if as.Digest != "" { // as podman has it
		as.Tag = ""
	}
	d, err := resolve(ctx, ref, as, rules, o)
	if err != nil {
		return "", answered("resolve", ref, err)
	}
	return d, nil
}

// Accept has policy.json judge an image as what a tag led to when it was pinned: a
// signature of another tag of the same image does not count, where that of the tag would
// not either. Whether the tag leads there today is not asked. An image that policy.json
// does not accept is an image.RefusedError.
func Accept(ctx context.Context, tag image.Reference, pinned digest.Digest, o Options) error {
	at := tag
	at.Digest = pinned
	rules, err := rulesFor(at, o)
	if err != nil {
		return unusable(at, err)
	}
	if acceptAnything(rules) {
		return nil
	}
	if _, err := resolve(ctx, at, tag, rules, o); err != nil {
		return answered("look at", at, err)
	}
	return nil
}

// answered is the error of a question about a reference; a refusal stays as it is.
func answered(what string, ref image.Reference, err error) error {
	var refused *image.RefusedError
	if errors.As(err, &refused) {
		return refused
	}
	return fmt.Errorf("%s %s: %w", what, ref, err)
}

// resolve asks for a reference, and judges what it leads to as if it had been asked for
// by another.
func resolve(ctx context.Context, ref, as image.Reference, rules signature.PolicyRequirements, o Options) (_ digest.Digest, err error) {
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
	return d, accept(ctx, ref, as, rules, src, raw, kind, o.system())
}
