package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
)

// The programs are the test's own, so that this needs neither npm nor a registry. What the
// real ones write is compared by TestLocks, in the files that are there.
func TestLock(t *testing.T) {
	h, _ := harness.Lookup(harness.Packaged()[0])
	const sum = `"integrity": "sha512-abc"`
	file := func(more, version string) string {
		return fmt.Sprintf(`{"packages": {"": {}, "node_modules/%s": {"version": "%s", %s, "engines": {"node": ">=20.0.0"}%s}}}`, h.Package, version, sum, more)
	}
	for name, c := range map[string]struct{ args, npm, node, want, err string }{
		"taken":           {h.Name, file("", h.Version), "true", file("", h.Version), ""},
		"of another one":  {h.Name, file("", "0.0.1"), "true", "", "0.0.1"},
		"with an address": {h.Name, file(`, "resolved": "https://registry.example/x.tgz"`, h.Version), "true", "", "has an address"},
		"no hash":         {h.Name, strings.Replace(file("", h.Version), sum, `"x": 1`, 1), "true", "", "without a SHA-512 hash"},
		"stripped":        {h.Name, file(`, "resolved": "https://registry.example/x.tgz"`, h.Version), "sed -i 's/, \"resolved\": \"[^\"]*\"//' package-lock.json", file("", h.Version), ""},
		"no npm":          {h.Name, "", "true", "", "run npm: exit status 3"},
		"no agent":        {"", "x", "true", "", "npm has no package"},
		"a path":          {"../" + h.Name, "x", "true", "", "npm has no package"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, at := t.TempDir(), t.TempDir()
			for prog, text := range map[string]string{
				"npm":  "grep -qF '\"" + h.Package + "\": \"" + h.Version + "\"' package.json || exit 4\ntest -n '" + c.npm + "' || exit 3\nprintf %s '" + c.npm + "' >package-lock.json",
				"node": c.node,
			} {
				if err := os.WriteFile(filepath.Join(bin, prog), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			if err := os.Mkdir(filepath.Join(at, "locks"), 0o700); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := lock(t.Context(), []string{at, c.args}, &out)
			got, _ := os.ReadFile(filepath.Join(at, harness.LockFile(h.Name))) // none where it failed
			if string(got) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %q: %s", err, got, out.String())
			}
		})
	}
}
