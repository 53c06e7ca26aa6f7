package podman

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containers/buildah/define"
	"github.com/containers/podman/v5/pkg/specgen"

	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
)

func TestBuildOutput(t *testing.T) {
	text := "STEP 1/3: FROM docker.io/a@sha256:b\nsome output\nSTEP 2/3: RUN --mount=type=bind,z : Node; set -eu; id\nnot STEP 3/3: x\n" +
		strings.Repeat("x", 2*maxLine) + "\nSTEP 3/3: LABEL \"a\"=\"b\"\nSTEP 4/3: no end"
	want := []imagebuild.Step{{N: 1, Of: 3, Text: "FROM docker.io/a@sha256:b"}, {N: 2, Of: 3, Text: "Node"}, {N: 3, Of: 3, Text: "LABEL"}}
	for _, size := range []int{1, 7, len(text)} {
		var log bytes.Buffer
		var got []imagebuild.Step
		o := &buildOutput{log: &log, step: func(s imagebuild.Step) { got = append(got, s) }}
		for part := range slices.Chunk([]byte(text), size) {
			if n, err := o.Write(part); n != len(part) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in parts of %d bytes: %v", size, got)
		}
		if log.String() != text || o.close() != nil {
			t.Errorf("in parts of %d bytes: the log differs", size)
		}
	}
}

// brokenWriter is a disk that is full.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestBuildLogFull(t *testing.T) {
	o := &buildOutput{log: brokenWriter{}}
	o.Write([]byte("x\n"))
	if err := o.close(); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("error: %v", err)
	}
}

func TestPlainBuildError(t *testing.T) {
	for in, want := range map[string]string{
		"building at STEP \"RUN : it \"x\": y; set -eu; exit 9\": while running runtime: exit status 9\n": "exit status 9",
		`building at STEP "COPY a b": checking on sources: no such file`:                                  "checking on sources: no such file",
		"creating build container: reading manifest: unauthorized":                                        "creating build container: reading manifest: unauthorized",
	} {
		if got := plainBuildError(errors.New(in)).Error(); got != want {
			t.Errorf("%s\ngives %s", in, got)
		}
	}
}

// Somebody who removes images makes a build, a pull and a load begin again, and nothing
// else does.
func TestWhileGone(t *testing.T) { synctest.Test(t, testWhileGone) }

func testWhileGone(t *testing.T) {
	blob := `writing blob: layer for blob "sha256:aa"/""/"sha256:bb" not found`
	for _, c := range []struct {
		fail  string // how the first three end
		ended bool   // the caller, meanwhile
		want  int
	}{
		{"", false, 1},
		{"layer not known", false, 4},
		{"look up an image: image not known", false, 4},
		{"reference \"x\" does not resolve to an image ID: identifier is not an image", false, 4},
		{blob, false, 4},
		{blob, true, 1},
		{"manifest unknown", false, 1},
		{"file not found", false, 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := whileGone(ctx, func() error {
			if n++; n > 3 || c.fail == "" {
				return nil
			}
			if c.ended {
				cancel()
			}
			return errors.New(c.fail)
		})
		cancel()
		if n != c.want || (err == nil) != (c.want == 4 || c.fail == "") {
			t.Errorf("%+v: begun %d times, and %v", c, n, err)
		}
	}
	n := 0
	if err := whileGone(t.Context(), func() error { n++; return errors.New(blob) }); err == nil || n < 20 || n > 30 {
		t.Errorf("begun %d times, and %v", n, err)
	}
}

// A rebuild differs in one thing only: the pin stays, since a base is fetched
// when it is missing and at no other time.
func TestBuildOptions(t *testing.T) {
	b := imagebuild.Build{Dir: "/x", Labels: map[string]string{"b": "2", "a": "1"}}
	o := buildOptions(b, "", nil)
	if o.NoCache || !o.Layers || o.PullPolicy != define.PullIfMissing || o.OutputFormat != define.OCIv1ImageManifest ||
		o.Output != "" || len(o.AdditionalTags) != 0 || !slices.Equal(o.Labels, []string{"a=1", "b=2"}) {
		t.Errorf("options: %+v", o)
	}
	b.NoCache = true
	r := buildOptions(b, "", nil)
	if !r.NoCache {
		t.Error("a rebuild takes cached layers")
	}
	r.NoCache = false
	if !reflect.DeepEqual(o, r) {
		t.Errorf("a rebuild also differs otherwise: %+v, %+v", o, r)
	}
}

// Priming has to use the mapping that runs have, and can do nothing else.
func TestPrimeSpec(t *testing.T) {
	id := strings.Repeat("a", 64)
	s := primeSpec(id)
	if s.UserNS != userNS(1000, 1000) || s.NetNS.NSMode != specgen.NoNetwork || len(s.CapAdd) != 0 || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
		s.Image != id || !slices.Equal(s.Entrypoint, []string{entrypointPath}) || !slices.Equal(s.Command, []string{"version"}) ||
		len(s.Volumes) != 0 || len(s.Mounts) != 1 || s.Mounts[0].Type != "mqueue" || s.Name != "aisb-prime-aaaaaaaaaaaa" {
		t.Errorf("spec: %+v", s)
	}
}
