// Whether the user's policy.json accepts an image: asked and judged as podman does it,
// by containers/image (containers-policy.json(5)).

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	imagepkg "github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// Demands is what the user's policy.json demands of a reference, as a digest over its
// rules and over the keys that they name; "" where it accepts anything. An image that
// was checked has to be checked again when it is another one. Without a policy.json, or
// with one that can't be read, nothing is accepted: podman does so, too.
func Demands(ref image.Reference, o Options) (digest.Digest, error) {
	rules, err := rulesFor(ref, o)
	if err != nil {
		return "", unusable(ref, err)
	}
	if acceptAnything(rules) {
		return "", nil
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return "", fmt.Errorf("read policy.json: %w", err)
	}
	hash := digest.SHA256.Digester()
	fmt.Fprintf(hash.Hash(), "%s\n", text)
	var any []any
	if err := json.Unmarshal(text, &any); err != nil {
		return "", fmt.Errorf("read policy.json: %w", err)
	}
	for _, path := range paths("", any) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", unusable(ref, fmt.Errorf("read a key that it names: %w", err))
		}
		fmt.Fprintf(hash.Hash(), "%s %s\n", path, digest.FromBytes(data))
	}
	return hash.Digest(), nil
}

// unusable is the refusal by a policy.json that is not there or can't be read.
func unusable(ref image.Reference, err error) error {
	return &image.RefusedError{Ref: ref.String(), Why: err, Fix: "mend that policy.json, or install the one of your distribution, which comes with podman (containers-policy.json(5))"}
}

// paths are the files that rules name: the strings below a key like keyPath, keyPaths,
// caPath, rekorPublicKeyPath.
func paths(key string, v any) []string {
	var out []string
	switch v := v.(type) {
	case string:
		if strings.HasSuffix(key, "Path") || strings.HasSuffix(key, "Paths") {
			out = append(out, v)
		}
	case []any:
		for _, e := range v {
			out = append(out, paths(key, e)...)
		}
	case map[string]any:
		for k, e := range v {
			out = append(out, paths(k, e)...)
		}
		slices.Sort(out)
	}
	return out
}

// rulesFor are all rules for a reference. Of one with a tag and a digest those for
// either count: what is demanded of the tag is demanded of what it is pinned to.
func rulesFor(ref image.Reference, o Options) (signature.PolicyRequirements, error) {
	policy, err := signature.DefaultPolicy(o.system())
	if err != nil {
		return nil, err
	}
	var all signature.PolicyRequirements
	for _, r := range []image.Reference{{Name: ref.Name, Tag: ref.Tag}, {Name: ref.Name, Digest: ref.Digest}} {
		if r.Tag == "" && r.Digest == "" {
			continue
		}
		dr, err := dockerReference(r)
		if err != nil {
			return nil, err
		}
		rules := scoped(policy, dr)
		if len(rules) == 0 {
			return nil, errors.New("it has an empty list of rules for it")
		}
		all = append(all, rules...)
	}
	return all, nil
}

// scoped are the rules of the narrowest scope that a reference is in, as containers/image
// chooses it (policy_eval.go).
func scoped(policy *signature.Policy, ref types.ImageReference) signature.PolicyRequirements {
	scopes := policy.Transports[ref.Transport().Name()]
	for _, name := range append(append([]string{ref.PolicyConfigurationIdentity()}, ref.PolicyConfigurationNamespaces()...), "") {
		if rules, ok := scopes[name]; ok {
			return rules
		}
	}
	return policy.Default
}

func acceptAnything(rules signature.PolicyRequirements) bool {
	text, err := json.Marshal(signature.NewPRInsecureAcceptAnything())
	return err == nil && !slices.ContainsFunc(rules, func(r signature.PolicyRequirement) bool {
		t, err := json.Marshal(r)
		return err != nil || string(t) != string(text)
	})
}

func dockerReference(ref image.Reference) (types.ImageReference, error) {
	named, err := reference.ParseNormalizedNamed(ref.String())
	if err != nil {
		return nil, err
	}
	return docker.NewReference(named)
}

// accept judges the image that a source leads to by the rules: of an index, this
// machine's image in it, which is what podman pulls and judges. as is the name that
// a signature has to be for (signedIdentity in containers-policy.json(5)).
func accept(ctx context.Context, ref, as image.Reference, rules signature.PolicyRequirements, src types.ImageSource, raw []byte, kind string, sys *types.SystemContext) error {
	var instance *digest.Digest
	if manifest.MIMETypeIsMultiImage(kind) {
		list, err := manifest.ListFromBlob(raw, kind)
		if err != nil {
			return err
		}
		d, err := list.ChooseInstance(sys)
		if err != nil {
			return err
		}
		instance = &d
	}
	name, err := dockerReference(as)
	if err != nil {
		return err
	}
	pc, err := signature.NewPolicyContext(&signature.Policy{Default: rules})
	if err != nil {
		return err
	}
	ok, err := pc.IsRunningImageAllowed(ctx, imagepkg.UnparsedInstanceWithReference(imagepkg.UnparsedInstance(src, instance), name))
	err = errors.Join(err, pc.Destroy())
	var rule signature.PolicyRequirementError
	var invalid signature.InvalidSignatureError
	switch {
	case ok && err == nil:
		return nil
	case err == nil, errors.As(err, &rule), errors.As(err, &invalid):
		return &image.RefusedError{Ref: ref.String(), Why: err}
	}
	return fmt.Errorf("check its signature: %w", err)
}
