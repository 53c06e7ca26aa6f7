package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// files are those of the repository: all that is here but what make, tools and
// editors write. It does without git, so that it also works in an export.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(name, ".") && name != "." && !under(name, ".ci") && name != ".gitignore" && name != ".golangci.yml"
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			return err
		case d.IsDir() && (hidden || name == ".git" || name == "bin" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular() || hidden || filepath.Ext(name) == ".test" || strings.HasPrefix(name, internal+"embedded/file/aisb-"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all[name] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if all["go.mod"] == nil || all[".golangci.yml"] == nil || all[".ci/run"] == nil {
		t.Fatalf("of the tree only %d files were found", len(all))
	}
	return all
}

var (
	tagLine = regexp.MustCompile(`^//go:build .*\n\n?`)
	shebang = regexp.MustCompile(`^#!.*\n`)
)

// opens tells whether a file begins with a comment that says what it is for.
// Files of data, and what tests compare with, have no place for one.
func opens(name string, text []byte) bool {
	switch ext := filepath.Ext(name); {
	case strings.Contains(name, "testdata/"):
		return true
	case ext == ".go":
		text = tagLine.ReplaceAll(text, nil)
		// A further test file of a package may be told by its name.
		return bytes.HasPrefix(text, []byte("//")) || strings.HasSuffix(name, "_test.go")
	case slices.Contains([]string{".json", ".mod", ".sum", ".txt", ".pem"}, ext) || filepath.Base(name) == "README" || filepath.Base(name) == "LICENSE":
		return true
	case ext == ".md":
		return bytes.HasPrefix(text, []byte("# "))
	case len(text) == 0:
		return filepath.Base(name) == ".gitkeep"
	}
	// Scripts, make, yaml and their like.
	return bytes.HasPrefix(shebang.ReplaceAll(text, nil), []byte("#"))
}

func TestOpeningComments(t *testing.T) {
	for name, text := range files(t) {
		if !opens(name, text) {
			t.Errorf("%s does not begin with what it is for", name)
		}
	}
	for name, text := range map[string]string{"a.go": "package a\n", "b.go": "//go:build x\n\npackage a\n", "run": "#!/bin/sh\nset -e\n", "x.md": "words\n"} {
		if opens(name, []byte(text)) {
			t.Errorf("%s passes without a comment", name)
		}
	}
}

// environment are the functions that read or write it; to clear it is always right.
var environment = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv"}

// judgeSource says what is wrong in one Go file.
func judgeSource(name string, file *ast.File) []string {
	test := strings.HasSuffix(name, "_test.go") || under(name, "tests") || under(name, "gate/gatetest")
	// The doctor's command inside is told the gate as any command is.
	reader := under(name, internal+"config") || name == "cmd/ai-sandbox/main.go" || name == "entrypoint/try.go"
	var wrong []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				wrong = append(wrong, "has an init function: what runs before main is nobody's to order")
			}
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			if !ok || from.Name != "os" && from.Name != "syscall" && from.Name != "unix" {
				break
			}
			switch {
			case !test && !reader && slices.Contains(environment, n.Sel.Name):
				wrong = append(wrong, from.Name+"."+n.Sel.Name+": only internal/config and main touch the environment, so that each setting's origin is known")
			case !test && n.Sel.Name == "Create":
				wrong = append(wrong, "os.Create follows links and empties what is there (CVE-2024-45310): os.OpenFile with O_EXCL, or write aside and rename")
			}
		}
		return true
	})
	return wrong
}

func TestSource(t *testing.T) {
	docs := map[string][]string{}
	for name, text := range files(t) {
		if filepath.Ext(name) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		as := name
		if bytes.HasPrefix(text, []byte("//go:build aisb_testhook\n")) {
			as = strings.TrimSuffix(name, ".go") + "_test.go" // no release has it
		}
		for _, w := range judgeSource(as, file) {
			t.Errorf("%s %s", name, w)
		}
		dir := filepath.Dir(name)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if docs[dir] == nil {
			docs[dir] = []string{}
		}
		if file.Doc != nil {
			docs[dir] = append(docs[dir], filepath.Base(name))
			if text := file.Doc.Text(); !strings.HasPrefix(text, "Package "+file.Name.Name+" ") && (file.Name.Name != "main" || !strings.HasPrefix(text, "Command ") && !strings.HasPrefix(text, "The program ")) {
				t.Errorf("%s: a package's doc begins with its name: %.40q", name, text)
			}
		}
	}
	for dir, in := range docs {
		if len(in) != 1 {
			t.Errorf("%s has %d files with a package doc, not one: %q", dir, len(in), in)
		}
	}
}

func TestSourceBites(t *testing.T) {
	for _, c := range []struct {
		name, body string
		ok         bool
	}{
		{"gate/x.go", "func init() {}", false},
		{"gate/x.go", "var _ = os.Getenv(`X`)", false},
		{"gate/x_test.go", "var _ = os.Getenv(`X`)", true},
		{internal + "config/x.go", "var _ = os.Environ()", true},
		{"cmd/ai-sandbox/main.go", "var _ = os.Environ()", true},
		{"cmd/aisb-entrypoint/main.go", "var _ = os.Environ()", false},
		{"entrypoint/x.go", "var _ = os.Getenv(`X`)", false},
		{"entrypoint/try.go", "var _ = os.Getenv(`X`)", true},
		{"policy/x.go", "var _, _ = os.Create(`x`)", false},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), c.name, "package p\n"+c.body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := judgeSource(c.name, file); (len(wrong) == 0) != c.ok {
			t.Errorf("%s with %s: %q", c.name, c.body, wrong)
		}
	}
}

// machine are words of this machine that a file must not hold: the hosts of its
// package registries, and paths of whoever works here.
func machine(t *testing.T) map[string]string {
	t.Helper()
	words := map[string]string{}
	addHost := func(text, what string) {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Hostname() == "" || u.Hostname() == "localhost" {
			return
		}
		// A mirror on this machine has an address that is everybody's.
		if a, err := netip.ParseAddr(u.Hostname()); err != nil || !a.IsLoopback() {
			words[u.Hostname()] = what
		}
	}
	proxies, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatalf("go env GOPROXY: %v", err)
	}
	for _, p := range strings.FieldsFunc(string(proxies), func(r rune) bool { return r == ',' || r == '|' }) {
		addHost(p, "the Go proxy")
	}
	// Where there is no npm, its registry is not this machine's.
	if npm, err := exec.LookPath("npm"); err == nil {
		out, err := exec.Command(npm, "config", "get", "registry").Output()
		if err != nil {
			t.Fatalf("npm config get registry: %v", err)
		}
		addHost(string(out), "npm's registry")
	}
	sources, err := filepath.Glob("/etc/apt/sources.list.d/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(sources, "/etc/apt/sources.list") {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range regexp.MustCompile(`https?://[^\s\]]+`).FindAllString(string(b), -1) {
			addHost(u, "apt's mirror")
		}
	}
	// A short path could be anybody's; root's home is everybody's.
	if dir := root(t); strings.Count(dir, "/") > 1 {
		words[dir+"/"] = "the path of this tree"
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/root" && home != "/home/dev" && home != "/home/sandbox" && strings.Count(home, "/") > 1 {
		words[home+"/"] = "a home directory"
	}
	return words
}

func TestNothingOfThisMachine(t *testing.T) {
	words := machine(t)
	for name, text := range files(t) {
		for word, what := range words {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s holds %q, %s: read it at run time", name, word, what)
			}
		}
	}
}

// TestLockFiles: a lock file pins content by its hash and leaves the place open,
// so that any registry serves.
func TestLockFiles(t *testing.T) {
	count := 0
	for name, text := range files(t) {
		if filepath.Dir(name) != internal+"harness/locks" {
			continue
		}
		count++
		var lock struct {
			Packages map[string]struct {
				Resolved, Integrity string
				Link                bool
			}
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(lock.Packages) < 2 || bytes.Contains(text, []byte(`"resolved"`)) {
			t.Errorf(`%s has %d packages, or a "resolved"`, name, len(lock.Packages))
		}
		for p, what := range lock.Packages {
			if p != "" && !what.Link && !strings.HasPrefix(what.Integrity, "sha512-") {
				t.Errorf("%s: %s has no sha512 integrity", name, p)
			}
		}
	}
	if count == 0 {
		t.Error("no lock file found")
	}
}
