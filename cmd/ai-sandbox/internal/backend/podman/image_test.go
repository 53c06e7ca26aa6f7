package podman

import (
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

func TestPulledDigest(t *testing.T) {
	own, one, two := digest.FromString("own"), digest.FromString("one"), digest.FromString("two")
	ref := image.Reference{Name: "registry.example/debian", Tag: "x"}
	at := func(list ...digest.Digest) []string {
		var out []string
		for _, d := range list {
			out = append(out, ref.Name+"@"+string(d), "other.example/debian@"+string(d))
		}
		return append(out, "broken")
	}
	for name, c := range map[string]struct {
		all, before []string
		want        digest.Digest
	}{
		"one architecture":          {at(own), nil, own},
		"an index":                  {at(own, one), nil, one},
		"the same index again":      {at(one, own), at(own, one), one},
		"another index":             {at(own, one, two), at(own, one), two},
		"one of two indexes":        {at(own, one, two), at(own, one, two), ""},
		"two new ones":              {at(own, one, two), nil, ""},
		"an index alone":            {at(one), nil, one},
		"an index of before, alone": {at(one, own), at(one), one},
		"none":                      {at(), nil, ""},
	} {
		got, err := pulledDigest(ref, own, c.all, c.before)
		if got != c.want || (err == nil) != (c.want != "") {
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
	if len(s.Mounts) != 1 || len(s.Volumes) != 0 || *s.Privileged || s.UserNS != userNS {
		t.Errorf("%+v", s)
	}
}
