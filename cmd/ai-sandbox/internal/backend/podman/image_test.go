package podman

import (
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

func TestPulledDigest(t *testing.T) {
	own, one, two := digest.FromString("own"), digest.FromString("one"), digest.FromString("two")
	ref := image.Reference{Name: "registry.example/debian", Tag: "x"}
	at := func(made digest.Digest, list ...digest.Digest) *known {
		k := &known{made: made, all: []string{"broken"}}
		for _, d := range list {
			k.all = append(k.all, ref.Name+"@"+string(d), "other.example/debian@"+string(d))
		}
		return k
	}
	for name, c := range map[string]struct {
		before, after *known
		want          digest.Digest
	}{
		"one architecture":       {nil, at(own, own), own},
		"and again":              {at(own, own), at(own, own), own},
		"an index":               {nil, at(one, own, one), one},
		"the same index again":   {at(one, own, one), at(one, own, one), one},
		"another index":          {at(one, own, one), at(one, own, one, two), two},
		"one of two indexes":     {at(one, own, one, two), at(one, own, one, two), ""},
		"another, with another":  {at(one, one), at(one, own, one, two), ""},
		"nothing is listed":      {nil, nil, ""},
		"no digest of a new one": {nil, at(""), ""},
	} {
		got, err := pulledDigest(ref, c.before, c.after)
		if got != c.want && err == nil || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestBounded(t *testing.T) {
	first, last := &bounded{limit: 5}, &bounded{limit: 5, last: true}
	for _, s := range []string{"ab", "cd", "ef", "gh"} {
		for _, b := range []*bounded{first, last} {
			if n, err := b.Write([]byte(s)); n != 2 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		}
	}
	if first.buf.String() != "abcde" || !first.over || last.buf.String() != "defgh" {
		t.Errorf("first %q, last %q", first.buf.String(), last.buf.String())
	}
}

// A container that asks registries reaches them, and not this machine's loopback.
func TestScriptSpec(t *testing.T) {
	s := scriptSpec("some", "id")
	if args := strings.Join(s.NetworkOptions["pasta"], " "); s.NetNS.NSMode != "pasta" || strings.Contains(args, "map-") || !strings.Contains(args, "-T none") {
		t.Errorf("network %s %s", s.NetNS.NSMode, args)
	}
	if len(s.Mounts) != 1 || len(s.Volumes) != 0 || *s.Privileged || s.UserNS != userNS(1000, 1000) {
		t.Errorf("%+v", s)
	}
}

// What policy.json refuses is told from other errors, with what to do about it.
func TestRefusal(t *testing.T) {
	plain := errors.New("no space")
	if err := refusal("a file", "x", plain); !errors.Is(err, plain) || err.Error() != plain.Error() {
		t.Errorf("another error: %v", err)
	}
	said := errors.New("copying: Source image rejected: Running image oci-archive:/x is rejected by policy.")
	var refused *image.RefusedError
	if err := refusal("a file", fixArchive, said); !errors.As(err, &refused) || refused.Hint() != fixArchive ||
		err.Error() != "policy.json does not accept a file: Running image oci-archive:/x is rejected by policy." {
		t.Errorf("refused: %v", err)
	}
	if err := refusal("the base", "", said); !errors.As(err, &refused) || !strings.Contains(refused.Hint(), "name a base") {
		t.Errorf("a base: %v", err)
	}
}
