package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
)

// What is said of a base is what its registry was asked, and nothing has moved that was
// not known before.
func TestInspectBase(t *testing.T) {
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		ref, digest string
		offline     bool
		fails       error
		want        cli.InspectedBase
		asked       bool
	}{
		"the same":    {ref: "a.example/base:x", digest: b, asked: true, want: cli.InspectedBase{Today: b}},
		"moved":       {ref: "a.example/base:x", digest: a, asked: true, want: cli.InspectedBase{Today: b, Moved: true}},
		"unpinned":    {ref: "a.example/base:x", digest: image.Unpinned, asked: true, want: cli.InspectedBase{Today: b}},
		"no answer":   {ref: "a.example/base:x", digest: a, fails: errors.New("no route"), asked: true, want: cli.InspectedBase{Problem: "no route"}},
		"offline":     {ref: "a.example/base:x", digest: a, offline: true, want: cli.InspectedBase{Problem: "the registry was not asked"}},
		"by a digest": {ref: "a.example/base@" + a, digest: a, want: cli.InspectedBase{Problem: "it is named by its digest, so the registry was not asked"}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			l := inspector{req: imagebuild.Request{Arch: "amd64", CacheDir: t.TempDir(), StateDir: t.TempDir()}, offline: c.offline,
				resolve: func(context.Context, image.Reference) (string, error) {
					asked = true
					if c.fails != nil {
						return "", c.fails
					}
					return b, nil
				}}
			c.want.Ref, c.want.Digest = c.ref, c.digest
			if got := l.base(t.Context(), c.ref, c.digest); *got != c.want || asked != c.asked {
				t.Errorf("asked: %v, %+v", asked, *got)
			}
		})
	}
}
