package arch_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSameBytes: the entrypoint is in the hash that is the images' tag, so
// wherever the tree lies, make gives the same program.
func TestSameBytes(t *testing.T) {
	var programs [][]byte
	for _, below := range []string{"a", "another/place"} {
		dir := filepath.Join(t.TempDir(), below)
		for _, part := range []string{"Makefile", "go.mod", "go.sum", "entrypoint", "cmd/aisb-entrypoint"} {
			to := filepath.Join(dir, filepath.Dir(part))
			if err := os.MkdirAll(to, 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cp", "-R", filepath.Join(root(t), part), to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		cmd := exec.Command("make", "-s", "-C", dir, "bin/aisb-entrypoint")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make: %v\n%s", err, out)
		}
		program, err := os.ReadFile(filepath.Join(dir, "bin/aisb-entrypoint"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(program, []byte(root(t)+"/")) || bytes.Contains(program, []byte(dir)) {
			t.Error("the program holds the path that it was built at")
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Error("the same source gives two programs at two places")
	}
}

// TestDocsNameRealTests: a test that a document points at is there.
func TestDocsNameRealTests(t *testing.T) {
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	all := files(t)
	there := map[string]bool{}
	for name, text := range all {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range defined.FindAllSubmatch(text, -1) {
				there[string(m[1])] = true
			}
		}
	}
	count := 0
	for name, text := range all {
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, n := range named.FindAll(text, -1) {
			count++
			if !there[string(n)] {
				t.Errorf("%s names %s, which is not there", name, n)
			}
		}
	}
	if count < 20 {
		t.Errorf("the documents name only %d tests", count)
	}
}

// TestDocsNameRealPaths: so is a path that a document gives in backquotes.
func TestDocsNameRealPaths(t *testing.T) {
	path := regexp.MustCompile("`((?:cmd|docs|entrypoint|gate|image|policy|tests)/[A-Za-z0-9_./-]*)`")
	for name, text := range files(t) {
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, m := range path.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root(t), string(m[1]))); err != nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}
