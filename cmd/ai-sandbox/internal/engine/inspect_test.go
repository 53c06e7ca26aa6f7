package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/image"
)

// What enforced a session is told from the journal where it was in no image.
func TestInspectEngine(t *testing.T) {
	for want, e := range map[string]session.Entry{
		"the gate that is built in, of ai-sandbox 1.2":                                    {Net: "gated", Engine: "builtin", EngineVersion: "1.2"},
		"squid 6.13, installed on the machine":                                            {Net: "gated", Engine: "squid", EngineVersion: "6.13"},
		"squid of a version that was not written down, installed on the machine":          {Net: "gated", Engine: "squid"},
		"the gate that is built in, of ai-sandbox of a version that was not written down": {Net: "gated", Engine: "builtin"},
		"the kernel: it had no network":                                                   {Net: "none"},
		"nothing: it had the machine's own network":                                       {Net: "host"},
	} {
		if got, err := (inspector{}).session(t.Context(), e); err != nil || got.EnforcedBy != want {
			t.Errorf("%+v: %q, %v", e, got.EnforcedBy, err)
		}
	}
}

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
