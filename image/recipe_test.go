package image

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

var update = flag.Bool("update", false, "write the golden files anew")

const someSum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const someDigest = digest.Digest("sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")

func mustParse(t *testing.T, s string) Reference {
	t.Helper()
	r, err := ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sandboxRecipe(t *testing.T) Recipe {
	t.Helper()
	node, err := NewNode("", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	return Recipe{Kind: KindSandbox, Base: Base{Ref: mustParse(t, DefaultBase), Digest: someDigest}, Node: node, EntrypointSHA256: someSum, Harnesses: set("one")}
}

// set are harnesses of the tests' own: one is plain, two has a script that is run, and
// three a program for each platform.
func set(names ...string) []Harness {
	var out []Harness
	for _, name := range names {
		h := Harness{Name: name, Module: "@example/" + name, Version: "1.6.0"}
		packages := map[string]any{
			"": map[string]any{}, "node_modules/" + h.Module: map[string]any{"version": "1.6.0", "integrity": "sha512-abc", "engines": map[string]any{"node": ">=22.19.0"}},
		}
		switch name {
		case "two":
			h.Scripts = []string{h.Module}
		case "three":
			h.Programs = map[string]string{"amd64": "three-x64", "arm64": "three-arm64"}
			h.Unwanted = []string{"three-x64-musl"}
		}
		lock, err := json.Marshal(map[string]any{"packages": packages})
		if err != nil {
			panic(err) // of the test's own
		}
		h.Lock = lock
		out = append(out, h)
	}
	return out
}

func gateRecipe(t *testing.T) Recipe {
	t.Helper()
	return Recipe{Kind: KindGate, Base: Base{Ref: mustParse(t, DefaultBase), Digest: someDigest}, EntrypointSHA256: someSum}
}

func newCA(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Unix(1<<32, 0), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestContainerfile(t *testing.T) {
	withCA := sandboxRecipe(t)
	withCA.CA = CA{newCA(t, "one")}
	all := withCA
	all.Harnesses, all.Apt, all.Setup = set("one", "two", "three"), []string{"gcc", "make=4.4.1-2"}, []byte("#!/bin/bash\npip install x\n")
	unpinned := gateRecipe(t)
	unpinned.Base.Digest = ""
	for name, r := range map[string]Recipe{
		"sandbox": sandboxRecipe(t), "sandbox-ca": withCA, "sandbox-all": all, "gate": gateRecipe(t), "gate-unpinned": unpinned,
	} {
		t.Run(name, func(t *testing.T) {
			b, err := r.Render()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".Containerfile")
			if *update {
				if err := os.WriteFile(file, []byte(b.Containerfile), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if b.Containerfile != string(want) {
				t.Errorf("the Containerfile differs from %s (go test -update writes it):\n%s", file, b.Containerfile)
			}
			// Nothing is copied that is not there, and nothing is there in vain.
			for f := range b.Files {
				if top, _, _ := strings.Cut(f, "/"); !strings.Contains(b.Containerfile, top) {
					t.Errorf("%s is in the context and in no instruction", f)
				}
			}
		})
	}
}

// Each input alone changes the tag, and the same inputs give the same one.
func TestEveryInputIsInTheTag(t *testing.T) {
	ca, other, one := newCA(t, "one"), newCA(t, "two"), set("one")[0]
	change := func(f func(*Recipe)) func(*Recipe) { return f }
	both := map[string]func(*Recipe){
		"base digest":     change(func(r *Recipe) { r.Base.Digest = digest.FromString("x") }),
		"no digest":       change(func(r *Recipe) { r.Base.Digest = "" }),
		"base tag":        change(func(r *Recipe) { r.Base.Ref.Tag = "forky-slim" }),
		"base repository": change(func(r *Recipe) { r.Base.Ref.Name = "registry.example/debian" }),
		"entrypoint":      change(func(r *Recipe) { r.EntrypointSHA256 = strings.Repeat("b", 64) }),
		"CA":              change(func(r *Recipe) { r.CA = CA{ca} }),
		"other CA":        change(func(r *Recipe) { r.CA = CA{other} }),
		"two CAs":         change(func(r *Recipe) { r.CA = CA{ca, other} }),
		"one package":     change(func(r *Recipe) { r.packages = append([]string{"zip"}, r.apt()...) }),
		"packages anew":   change(func(r *Recipe) { r.Packages = "2026-11-30T00:00:00Z" }),
		"and again":       change(func(r *Recipe) { r.Packages = "2026-11-30T00:00:01Z" }),
		"another package": change(func(r *Recipe) { r.packages = append([]string{"zsh"}, r.apt()...) }),
	}
	sandbox := map[string]func(*Recipe){
		"node version": change(func(r *Recipe) { r.Node.Version = "24.15.1" }),
		"node arch":    change(func(r *Recipe) { r.Node, _ = NewNode("", "arm64") }),
		"harness": change(func(r *Recipe) {
			r.Locks = map[string]*Lock{"one": {Version: "1.7.0", Package: one.PackageJSON("1.7.0"), Packages: one.Lock}}
		}),
		"harness's lock": change(func(r *Recipe) {
			r.Locks = map[string]*Lock{"one": {Version: "1.7.0", Package: one.PackageJSON("1.7.0"), Packages: append(bytes.Clone(one.Lock), '\n')}}
		}),
		"another set":      change(func(r *Recipe) { r.Harnesses = set("two") }),
		"a larger set":     change(func(r *Recipe) { r.Harnesses = set("one", "two") }),
		"in another order": change(func(r *Recipe) { r.Harnesses = set("two", "one") }),
		"the largest set":  change(func(r *Recipe) { r.Harnesses = set("one", "two", "three") }),
		"its lock file":    change(func(r *Recipe) { r.Harnesses[0].Lock = append(bytes.Clone(one.Lock), '\n') }),
		"its module":       change(func(r *Recipe) { r.Harnesses[0].Module = "another" }),
		"its version":      change(func(r *Recipe) { r.Harnesses[0].Version = "1.6.1" }),
		"its scripts":      change(func(r *Recipe) { r.Harnesses[0].Scripts = []string{"a"} }),
		"its program":      change(func(r *Recipe) { r.Harnesses[0].Programs = map[string]string{"amd64": "a"} }),
		"one apt":          change(func(r *Recipe) { r.Apt = []string{"gcc"} }),
		"two apt":          change(func(r *Recipe) { r.Apt = []string{"gcc", "gdb"} }),
		"apt at a version": change(func(r *Recipe) { r.Apt = []string{"gcc=4:14.2.0-1"} }),
		"a setup script":   change(func(r *Recipe) { r.Setup = []byte("true\n") }),
		"another script":   change(func(r *Recipe) { r.Setup = []byte("true \n") }),
		"a script anew":    change(func(r *Recipe) { r.Setup, r.Again = []byte("true\n"), "2026-10-01T08:00:00Z" }),
		"node checksum":    change(func(r *Recipe) { r.Node.SHA256 = strings.Repeat("a", 64) }),
	}
	tags := map[string]string{}
	see := func(name string, r Recipe) {
		t.Helper()
		b, err := r.Render()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := r.Render()
		if err != nil || again.Hash != b.Hash || again.Containerfile != b.Containerfile {
			t.Errorf("%s: the same recipe gives another image", name)
		}
		if len(b.Tag) != 12 || b.Ref != r.Kind.Repository()+":"+b.Tag || b.Labels[LabelRecipe] != b.Hash.String() {
			t.Errorf("%s: ref %s, recipe label %s for hash %s", name, b.Ref, b.Labels[LabelRecipe], b.Hash)
		}
		if was, ok := tags[b.Tag]; ok {
			t.Errorf("%s has the tag of %s", name, was)
		}
		tags[b.Tag] = name
	}
	see("sandbox", sandboxRecipe(t))
	see("gate", gateRecipe(t))
	for name, f := range both {
		s, g := sandboxRecipe(t), gateRecipe(t)
		f(&s)
		f(&g)
		see("sandbox, "+name, s)
		see("gate, "+name, g)
	}
	for name, f := range sandbox {
		s := sandboxRecipe(t)
		f(&s)
		see("sandbox, "+name, s)
	}
}

func TestLabels(t *testing.T) {
	b, err := sandboxRecipe(t).Render()
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"aisb.base-ref": DefaultBase, "aisb.base-digest": string(someDigest), "aisb.node": DefaultNode,
		"aisb.harness.one": "1.6.0", "aisb.kind": "sandbox", "aisb.home-layout": "1", "aisb.recipe": string(b.Hash),
		"org.opencontainers.image.title": "ai-sandbox", "org.opencontainers.image.version": b.Tag,
		"org.opencontainers.image.base.name": DefaultBase, "org.opencontainers.image.base.digest": string(someDigest),
	} {
		if b.Labels[k] != want {
			t.Errorf("label %s is %q, not %q", k, b.Labels[k], want)
		}
	}
	r := gateRecipe(t)
	r.Base.Digest = ""
	if b, err = r.Render(); err != nil {
		t.Fatal(err)
	}
	if b.Labels["aisb.base-digest"] != "UNPINNED" || b.Labels["aisb.kind"] != "gate" {
		t.Errorf("labels of an unpinned gate: %v", b.Labels)
	}
}

// No string of a recipe can become a line, an instruction or a word of a shell.
func TestHostileStrings(t *testing.T) {
	fields := map[string]func(*Recipe, string){
		"base name":   func(r *Recipe, s string) { r.Base.Ref.Name += s },
		"base tag":    func(r *Recipe, s string) { r.Base.Digest, r.Base.Ref.Tag = "", r.Base.Ref.Tag+s },
		"base digest": func(r *Recipe, s string) { r.Base.Digest += digest.Digest(s) },
		"node":        func(r *Recipe, s string) { r.Node.Version += s },
		"checksum":    func(r *Recipe, s string) { r.Node.SHA256 += s },
		"arch":        func(r *Recipe, s string) { r.Node.Arch += s },
		"package":     func(r *Recipe, s string) { r.packages = []string{"curl" + s} },
		"kind":        func(r *Recipe, s string) { r.Kind += Kind(s) },
	}
	for name, set := range fields {
		for _, s := range []string{"\n", "\nRUN id", " ", "'", `"`, "$", "`", ";", "\\", "#", "&", "|", "\x00", "\r", "\u2028", "é"} {
			r := sandboxRecipe(t)
			set(&r, s)
			if b, err := r.Render(); err == nil {
				t.Errorf("%s with %q is accepted:\n%s", name, s, b.Containerfile)
			}
		}
		r := sandboxRecipe(t)
		set(&r, "")
		if _, err := r.Render(); err != nil {
			t.Errorf("%s unchanged: %v", name, err)
		}
	}
	// Package names that are options.
	for _, p := range []string{"", "-y", "a", "CURL", "curl=1", "curl/sid"} {
		r := sandboxRecipe(t)
		r.packages = []string{p}
		if _, err := r.Render(); err == nil {
			t.Errorf("package %q is accepted", p)
		}
	}
}

func TestIncompleteRecipes(t *testing.T) {
	for name, f := range map[string]func(*Recipe){
		"no entrypoint": func(r *Recipe) { r.EntrypointSHA256 = "" },
		"no checksum":   func(r *Recipe) { r.Node.SHA256 = "" },
		"no node":       func(r *Recipe) { r.Node = Node{} },
		"no base":       func(r *Recipe) { r.Base = Base{} },
		"not a moment":  func(r *Recipe) { r.Packages = "2026-11-30; id" },
		"no packages":   func(r *Recipe) { r.packages = []string{} },
		"no harness":    func(r *Recipe) { r.Harnesses = nil },
		"no program here": func(r *Recipe) {
			r.Harnesses = set("three")
			r.Harnesses[0].Programs = map[string]string{"arm64": "three-arm64"}
		},
		"a harness twice":       func(r *Recipe) { r.Harnesses = set("one", "one") },
		"no lock file":          func(r *Recipe) { r.Harnesses[0].Lock = nil },
		"apt in disorder":       func(r *Recipe) { r.Apt = []string{"zsh", "gcc"} },
		"an empty script":       func(r *Recipe) { r.Setup = []byte("\n") },
		"no script anew":        func(r *Recipe) { r.Again = "2026-10-01T08:00:00Z" },
		"a script anew one day": func(r *Recipe) { r.Setup, r.Again = []byte("true\n"), "2026-10-01" },
		"empty CA":              func(r *Recipe) { r.CA = CA{} },
		"digest not taken":      func(r *Recipe) { r.Base = Base{Ref: Reference{Name: "a.example/b", Digest: someDigest}} },
	} {
		r := sandboxRecipe(t)
		f(&r)
		if _, err := r.Render(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestParseCA(t *testing.T) {
	one, two := newCA(t, "one"), newCA(t, "two")
	got, err := ParseCA(append(append([]byte("# first\n"), one...), two...))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
		t.Errorf("two certificates with a comment: %d, %v", len(got), err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("k")})
	for name, file := range map[string][]byte{
		"empty":         nil,
		"text":          []byte("hello"),
		"a key":         append(bytes.Clone(one), key...),
		"cut off":       append(bytes.Clone(one), two[:len(two)/2]...),
		"cut in middle": append(bytes.Clone(two[:len(two)/2]), one...),
		"not a cert":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
	} {
		if got, err := ParseCA(file); err == nil {
			t.Errorf("%s: %d certificates accepted", name, len(got))
		}
	}
}

func TestNode(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		n, err := NewNode("", arch)
		if err != nil || n.Version != DefaultNode || n.SHA256 == "" {
			t.Errorf("default for %s: %+v, %v", arch, n, err)
		}
	}
	n, err := NewNode("v22.21.1", "amd64")
	if err != nil || n.SHA256 != "" || n.File() != "node-v22.21.1-linux-x64.tar.xz" || n.Dir() != "v22.21.1" {
		t.Errorf("22.21.1: %+v, %v", n, err)
	}
	for _, v := range []string{"22.20.9", "20.99.0", "9.0.0", "22.21", "22", "latest", "lts/jod", "../24.15.0", "24.15.0-rc.1", "023.1.1\n", "23.11.0", "99999.0.0"} {
		if n, err := NewNode(v, "amd64"); err == nil {
			t.Errorf("%q accepted as %+v", v, n)
		}
	}
	for _, v := range []string{"22.21.0", "22.100.0", "24.0.0", "100.0.0"} {
		if _, err := NewNode(v, "arm64"); err != nil {
			t.Errorf("%q: %v", v, err)
		}
	}
	if _, err := NewNode("", "riscv64"); err == nil {
		t.Error("riscv64 accepted")
	}
}

func TestStepName(t *testing.T) {
	for in, want := range map[string]string{
		"RUN : Debian packages; set -eu;":               "Debian packages",
		"RUN --mount=type=bind,source=a : Node; set -e": "Node",
		"COPY hosts /etc/":                              "COPY hosts /etc/",
		"RUN id":                                        "RUN id",
		`LABEL "a"="b"`:                                 "LABEL",
	} {
		if got := StepName(in); got != want {
			t.Errorf("%q is called %q, not %q", in, got, want)
		}
	}
	for _, r := range []Recipe{sandboxRecipe(t), gateRecipe(t)} {
		b, err := r.Render()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.Containerfile) {
			if strings.HasPrefix(line, "RUN ") && strings.HasPrefix(StepName(line), "RUN") {
				t.Errorf("a step without a name: %s", line)
			}
		}
	}
}
