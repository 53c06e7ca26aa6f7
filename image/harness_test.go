package image

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// A larger set begins with the layers of a smaller one, so that those are reused.
func TestSetsShareLayers(t *testing.T) {
	text := func(names ...string) string {
		r := sandboxRecipe(t)
		r.Harnesses = set(names...)
		b, err := r.Render()
		if err != nil {
			t.Fatal(err)
		}
		before, _, ok := strings.Cut(b.Containerfile, "\nCOPY hosts")
		if !ok {
			t.Fatal(b.Containerfile)
		}
		for _, name := range []string{"one", "two", "three"} {
			if in := strings.Contains(before, "harness/"+name+"/"); in != slices.Contains(names, name) || in != (b.Labels[LabelHarness+name] != "") {
				t.Errorf("%q: %s is there: %t, of version %q", names, name, in, b.Labels[LabelHarness+name])
			}
		}
		return before
	}
	one, two, three := text("one"), text("one", "two"), text("one", "two", "three")
	if !strings.HasPrefix(two, one) || !strings.HasPrefix(three, two) {
		t.Error("a larger set has other layers")
	}
	if other := text("one", "three"); !strings.HasPrefix(other, one) || strings.HasPrefix(three, other) {
		t.Error("the first one's layer is another one beside the third")
	}
}

// What comes beside a program for other machines is left out of a lock file that npm
// makes of a newer version, and nothing else is.
func TestUnwantedPackages(t *testing.T) {
	const beside, odd = "node_modules/three-x64-musl", "node_modules/other"
	parse := func(name string, change func(packages map[string]any)) (*Lock, error) {
		t.Helper()
		h := set(name)[0]
		var file map[string]any
		if err := json.Unmarshal(h.Lock, &file); err != nil {
			t.Fatal(err)
		}
		change(file["packages"].(map[string]any))
		b, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		return h.ParseLock(h.PackageJSON(h.Version), b)
	}
	with := func(name, path string, optional bool) string {
		t.Helper()
		l, err := parse(name, func(packages map[string]any) {
			packages[path] = map[string]any{"version": "1.6.0", "optional": optional, "integrity": "sha512-x"}
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(l.Packages)
	}
	if strings.Contains(with("three", beside, true), beside) {
		t.Error("it stays in the lock file")
	}
	for name, text := range map[string]string{
		"one that has to be there": with("three", beside, false), "of another agent": with("two", beside, true),
	} {
		if !strings.Contains(text, beside) {
			t.Errorf("%s is left out", name)
		}
	}
	if !strings.Contains(with("three", odd, true), odd) {
		t.Error("another optional package is left out")
	}
	// That a program needs no Node is not assumed of an agent that is run by it.
	for name, ok := range map[string]bool{"three": true, "one": false} {
		l, err := parse(name, func(packages map[string]any) {
			delete(packages["node_modules/@example/"+name].(map[string]any), "engines")
		})
		if (err == nil) != ok || ok && l.Node != "" {
			t.Errorf("%s without a word about Node: %v", name, err)
		}
	}
}
