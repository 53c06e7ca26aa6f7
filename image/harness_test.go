package image

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseHarnesses(t *testing.T) {
	for s, want := range map[string][]string{
		"pi": {"pi"}, "codex": {"codex"}, "pi,claude,codex": {"pi", "claude", "codex"}, "codex, pi": {"pi", "codex"},
	} {
		if got, err := ParseHarnesses(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", ",", "pi,", "pi,pi", "kiro", "pi claude", "PI", "pi;id", "all"} {
		if got, err := ParseHarnesses(s); err == nil {
			t.Errorf("%q is accepted as %q", s, got)
		}
	}
	if got, err := ParseHarnesses(DefaultHarnesses); err != nil || len(got) != 1 {
		t.Errorf("the default: %q, %v", got, err)
	}
}

// The lock files pin every package by content, and name no host. Only what is on the
// list of a harness has a script that is run.
func TestHarnessLocks(t *testing.T) {
	for _, h := range harnessPackages {
		l, err := ParseLock(h.name, *h.pkg, *h.lock)
		if err != nil {
			t.Fatal(err)
		}
		if l.Version != h.version || older(MinNode, l.Node) {
			t.Errorf("%s: the lock file has %s, which needs node %s", h.name, l.Version, l.Node)
		}
		if bytes.Contains(*h.lock, []byte("://")) || bytes.Contains(*h.lock, []byte(`"resolved"`)) {
			t.Errorf("%s: the lock file has an address", h.name)
		}
		var lock struct {
			Packages map[string]struct {
				Name, Version, Integrity string
				Link                     bool
				OS, CPU                  []string
			}
		}
		if err := json.Unmarshal(*h.lock, &lock); err != nil {
			t.Fatal(err)
		}
		arches := map[string]bool{}
		for path, p := range lock.Packages {
			if path == "" {
				continue
			}
			if !strings.HasPrefix(p.Integrity, "sha512-") || p.Version == "" || p.Link {
				t.Errorf("%s: %s: %+v", h.name, path, p)
			}
			if reflect.DeepEqual(p.OS, []string{"linux"}) && len(p.CPU) == 1 {
				arches[p.CPU[0]] = true
			}
		}
		// Those that are a program for each platform have it for both of ours.
		if h.name != "pi" && (!arches["x64"] || !arches["arm64"]) {
			t.Errorf("%s has packages for %v", h.name, arches)
		}
		for _, s := range h.scripts {
			if _, ok := lock.Packages["node_modules/"+s]; !ok {
				t.Errorf("%s: %s, whose scripts are run, is not in the lock file", h.name, s)
			}
		}
	}
	if !slices.Equal(HarnessNames(), []string{"pi", "claude", "codex"}) || HarnessModule("kiro") != "" || HarnessVersion("kiro") != "" {
		t.Errorf("the harnesses are %q", HarnessNames())
	}
}

// A larger set begins with the layers of a smaller one, so that those are reused.
func TestSetsShareLayers(t *testing.T) {
	text := func(names ...string) string {
		r := sandboxRecipe(t)
		r.Harnesses = names
		b, err := r.Render()
		if err != nil {
			t.Fatal(err)
		}
		before, _, ok := strings.Cut(b.Containerfile, "\nCOPY hosts")
		if !ok {
			t.Fatal(b.Containerfile)
		}
		for _, name := range HarnessNames() {
			if in := strings.Contains(before, "harness/"+name+"/"); in != slices.Contains(names, name) || in != (b.Labels[LabelHarness+name] != "") {
				t.Errorf("%q: %s is there: %t, of version %q", names, name, in, b.Labels[LabelHarness+name])
			}
		}
		return before
	}
	one, two, three := text("pi"), text("pi", "claude"), text("pi", "claude", "codex")
	if !strings.HasPrefix(two, one) || !strings.HasPrefix(three, two) {
		t.Error("a larger set has other layers")
	}
	if other := text("pi", "codex"); !strings.HasPrefix(other, one) || strings.HasPrefix(three, other) {
		t.Error("pi's layer is another one beside codex")
	}
}
