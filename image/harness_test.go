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
		"opencode,gemini,pi": {"pi", "gemini", "opencode"},
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
		if l.Version != h.version || Older(MinNode, l.Node) {
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
		for arch, name := range h.programs {
			p := lock.Packages["node_modules/"+name]
			if !slices.Equal(p.CPU, []string{nodeArch[arch]}) || !slices.Equal(p.OS, []string{"linux"}) {
				t.Errorf("%s: on %s its program is in %s: %+v", h.name, arch, name, p)
			}
		}
		for _, name := range h.unwanted {
			if _, ok := lock.Packages["node_modules/"+name]; ok {
				t.Errorf("%s: %s is in the lock file", h.name, name)
			}
		}
		for _, s := range h.scripts {
			if _, ok := lock.Packages["node_modules/"+s]; !ok {
				t.Errorf("%s: %s, whose scripts are run, is not in the lock file", h.name, s)
			}
		}
	}
	if !slices.Equal(HarnessNames(), []string{"pi", "claude", "codex", "gemini", "opencode"}) || HarnessModule("kiro") != "" || HarnessVersion("kiro") != "" {
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

// What comes beside opencode's program for other machines is left out of a lock file that
// npm makes of a newer version, and nothing else is.
func TestUnwantedPackages(t *testing.T) {
	const beside, odd = "node_modules/opencode-linux-x64-musl", "node_modules/other"
	with := func(harness, path string, optional bool) string {
		t.Helper()
		h, err := lookupHarness(harness)
		if err != nil {
			t.Fatal(err)
		}
		var file map[string]any
		if err := json.Unmarshal(*h.lock, &file); err != nil {
			t.Fatal(err)
		}
		file["packages"].(map[string]any)[path] = map[string]any{"version": h.version, "optional": optional, "integrity": "sha512-x"}
		b, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		l, err := ParseLock(harness, *h.pkg, b)
		if err != nil {
			t.Fatal(err)
		}
		return string(l.Packages)
	}
	if strings.Contains(with("opencode", beside, true), beside) {
		t.Error("it stays in the lock file")
	}
	for name, text := range map[string]string{
		"one that has to be there": with("opencode", beside, false), "of another agent": with("codex", beside, true),
	} {
		if !strings.Contains(text, beside) {
			t.Errorf("%s is left out", name)
		}
	}
	if !strings.Contains(with("opencode", odd, true), odd) {
		t.Error("another optional package is left out")
	}
	// That a program needs no Node is not assumed of an agent that is run by it.
	for harness, ok := range map[string]bool{"opencode": true, "pi": false} {
		h, err := lookupHarness(harness)
		if err != nil {
			t.Fatal(err)
		}
		var file map[string]any
		if err := json.Unmarshal(*h.lock, &file); err != nil {
			t.Fatal(err)
		}
		delete(file["packages"].(map[string]any)["node_modules/"+h.module].(map[string]any), "engines")
		b, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := ParseLock(harness, *h.pkg, b); (err == nil) != ok || ok && l.Node != "" {
			t.Errorf("%s without a word about Node: %v", harness, err)
		}
	}
}
