package harness

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

func TestParseSet(t *testing.T) {
	for s, want := range map[string][]string{
		"pi": {"pi"}, "codex": {"codex"}, "pi,claude,codex": {"pi", "claude", "codex"}, "codex, pi": {"pi", "codex"},
		"opencode,gemini,pi": {"pi", "gemini", "opencode"},
	} {
		if got, err := ParseSet(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", ",", "pi,", "pi,pi", "kiro", "pi claude", "PI", "pi;id", "all", "../pi"} {
		if got, err := ParseSet(s); err == nil {
			t.Errorf("%q is accepted as %q", s, got)
		}
	}
	if got, err := ForImage(nil); err != nil || len(got) != 1 || got[0].Name != Default {
		t.Errorf("the default: %v, %v", got, err)
	}
	for _, s := range []string{"kiro", "", "../locks/pi"} {
		if got, err := ForImage([]string{s}); err == nil {
			t.Errorf("%q is accepted as %v", s, got)
		}
	}
	// Sets share their first layers for as long as these stay the first.
	if got := Packaged(); len(got) < 5 || !slices.Equal(got[:5], []string{"pi", "claude", "codex", "gemini", "opencode"}) {
		t.Errorf("the order of the layers is %q", got)
	}
}

// The lock files pin every package by content, and name no host. Only what is on the
// list of a harness has a script that is run.
func TestLocks(t *testing.T) {
	var files []string
	for _, h := range Table {
		if h.Package == "" {
			continue
		}
		files = append(files, LockFile(h.Name))
		set, err := ForImage([]string{h.Name})
		if err != nil {
			t.Errorf("%v; make lock AGENT=%s writes it", err, h.Name)
			continue
		}
		p := set[0]
		l, err := p.ParseLock(p.PackageJSON(p.Version), p.Lock)
		if err != nil {
			t.Errorf("%v; make lock AGENT=%s writes it anew", err, h.Name)
			continue
		}
		if l.Version != h.Version || image.Older(image.MinNode, l.Node) {
			t.Errorf("%s: the lock file has %s, which needs node %s", h.Name, l.Version, l.Node)
		}
		if bytes.Contains(p.Lock, []byte("://")) || bytes.Contains(p.Lock, []byte(`"resolved"`)) {
			t.Errorf("%s: the lock file has an address", h.Name)
		}
		var lock struct {
			Packages map[string]struct {
				Name, Version, Integrity string
				Link, HasInstallScript   bool
				OS, CPU                  []string
			}
		}
		if err := json.Unmarshal(p.Lock, &lock); err != nil {
			t.Fatal(err)
		}
		arches, platforms := map[string]bool{}, false
		for path, p := range lock.Packages {
			if path == "" {
				continue
			}
			if !strings.HasPrefix(p.Integrity, "sha512-") || p.Version == "" || p.Link {
				t.Errorf("%s: %s: %+v", h.Name, path, p)
			}
			if reflect.DeepEqual(p.OS, []string{"linux"}) && len(p.CPU) == 1 {
				arches[p.CPU[0]] = true
			}
			platforms = platforms || len(p.CPU) > 0
		}
		// Those that are a program for each platform have it for both of ours.
		if platforms && (!arches["x64"] || !arches["arm64"]) {
			t.Errorf("%s has packages for %v", h.Name, arches)
		}
		for arch, name := range h.Programs {
			p := lock.Packages["node_modules/"+name]
			if !slices.Equal(p.CPU, []string{map[string]string{"amd64": "x64", "arm64": "arm64"}[arch]}) || !slices.Equal(p.OS, []string{"linux"}) {
				t.Errorf("%s: on %s its program is in %s: %+v", h.Name, arch, name, p)
			}
		}
		for _, name := range h.Unwanted {
			if _, ok := lock.Packages["node_modules/"+name]; ok {
				t.Errorf("%s: %s is in the lock file", h.Name, name)
			}
		}
		for _, s := range h.Scripts {
			if !lock.Packages["node_modules/"+s].HasInstallScript {
				t.Errorf("%s: %s, whose scripts are run, has none in the lock file", h.Name, s)
			}
		}
	}
	slices.Sort(files)
	if have, err := fs.Glob(locks, "locks/*"); err != nil || !slices.Equal(have, files) {
		t.Errorf("there are %q, %v, and needed are %q", have, err, files)
	}
}

// renderWith is an image with a harness alone.
func renderWith(t *testing.T, set ...image.Harness) image.Built {
	t.Helper()
	node, err := image.NewNode("", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	base, err := image.ParseReference(image.DefaultBase)
	if err != nil {
		t.Fatal(err)
	}
	sum := digest.FromString("x")
	b, err := image.Recipe{Kind: image.KindSandbox, Base: image.Base{Ref: base, Digest: sum}, Node: node, EntrypointSHA256: sum.Encoded(), Harnesses: set}.Render()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// layer is what a Containerfile has about a harness, and the files that it copies.
func layer(t *testing.T, name string) string {
	t.Helper()
	set, err := ForImage([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	b := renderWith(t, set...)
	_, text, ok := strings.Cut(b.Containerfile, "\nCOPY harness/")
	text, _, ok2 := strings.Cut(text, "\n\n")
	if !ok || !ok2 {
		t.Fatal(b.Containerfile)
	}
	return "COPY harness/" + text + "\n" + string(b.Files["harness/"+name+"/package.json"].Data) +
		"package-lock.json " + digest.FromBytes(b.Files["harness/"+name+"/package-lock.json"].Data).String() + "\n"
}
