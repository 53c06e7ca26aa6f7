package imagebuild

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/image"
)

var (
	digestA = digest.FromString("a")
	digestB = digest.FromString("b")
)

const nodeVersion = "22.21.1"

// fakeBuilder makes images of nothing.
type fakeBuilder struct {
	mu      sync.Mutex
	images  map[string]bool   // by id
	names   map[string]string // ref to id
	builds  []string          // the Containerfiles
	noCache int
	primed  []string
	// packages is the manifest of each image that is built from now on; scripts are
	// what scripts answer.
	packages string
	scripts  map[string]string
	manifest map[string]string
	// content is what the one file of such an image says, and contents are by ids.
	content  string
	contents map[string]string
	pull     func(image.Reference) (digest.Digest, error)
	onBuild  func(context.Context, Build) error
	onTag    func(context.Context) error
	onFiles  func()
	// ended and removed are the marks of builds; unnamed is what there is to remove.
	ended, removed, unnamed []string
	endErr                  error
}

func (f *fakeBuilder) BuildImage(ctx context.Context, b Build) (string, error) {
	text, err := os.ReadFile(filepath.Join(b.Dir, "Containerfile"))
	if err != nil {
		return "", err
	}
	if from, rest, _ := strings.Cut(string(text), "\n"); strings.HasPrefix(rest, "COPY sbom.json ") {
		return f.described(strings.TrimPrefix(from, "FROM "), b)
	}
	fmt.Fprintln(b.Log, "some output")
	b.Step(Step{N: 1, Of: 2, Text: "a step"})
	if f.onBuild != nil {
		if err := f.onBuild(ctx, b); err != nil {
			return "", err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.builds = append(f.builds, string(text))
	if b.NoCache {
		f.noCache++
	}
	id := digest.FromString(fmt.Sprint(len(f.builds))).Encoded()
	f.images[id] = true
	f.manifest[id] = f.packages
	f.contents[id] = f.content
	return id, nil
}

// described is the same image with its bill of materials, in its place.
func (f *fakeBuilder) described(id string, b Build) (string, error) {
	if _, err := os.Stat(filepath.Join(b.Dir, "sbom.json")); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.images[id] {
		return "", fmt.Errorf("no image %s", id)
	}
	with := digest.FromString("described " + id).Encoded()
	f.images[with], f.manifest[with], f.contents[with] = true, f.manifest[id], f.contents[id]
	delete(f.images, id)
	return with, nil
}

func (f *fakeBuilder) ReadImageFile(_ context.Context, id, _ string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.manifest[id]), nil
}

func (f *fakeBuilder) ImageFiles(_ context.Context, id string, w io.Writer) error {
	f.mu.Lock()
	content, there := f.contents[id], f.images[id]
	f.mu.Unlock()
	if f.onFiles != nil {
		f.onFiles()
	}
	if !there {
		return fmt.Errorf("no image %s", id)
	}
	t := tar.NewWriter(w)
	err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "opt/got", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(t, content)
	}
	return errors.Join(err, t.Close())
}

func (f *fakeBuilder) RunScript(_ context.Context, id, script string) ([]byte, error) {
	if !f.images[id] {
		return nil, fmt.Errorf("no image %s", id)
	}
	out, ok := f.scripts[script]
	if !ok {
		return nil, errors.New("no network")
	}
	return []byte(out), nil
}

func (f *fakeBuilder) PullBase(_ context.Context, ref image.Reference) (digest.Digest, error) {
	if f.pull == nil {
		return "", errors.New("podman has no network either")
	}
	return f.pull(ref)
}

func (f *fakeBuilder) ImageExists(_ context.Context, id string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.images[id], nil
}

func (f *fakeBuilder) PrimeImage(_ context.Context, id string) error {
	f.primed = append(f.primed, id)
	return nil
}

func (f *fakeBuilder) TagImage(ctx context.Context, id, ref string) error {
	if f.onTag != nil {
		if err := f.onTag(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names[ref] = id
	return nil
}

func (f *fakeBuilder) RemoveImage(_ context.Context, id string) error {
	delete(f.images, id)
	return nil
}

func (f *fakeBuilder) EndBuild(_ context.Context, b Build, _ time.Time) error {
	f.ended = append(f.ended, b.Mark)
	return f.endErr
}

func (f *fakeBuilder) Unnamed(context.Context) ([]string, error) {
	return f.unnamed, nil
}

func (f *fakeBuilder) RemoveUnnamed(_ context.Context, mark string) error {
	f.unnamed = slices.DeleteFunc(f.unnamed, func(m string) bool { return m == mark })
	f.removed = append(f.removed, mark)
	return nil
}

// A site is a download site for Node.
type site struct {
	*httptest.Server
	tarball []byte
	sums    string // "" is the right list
	signer  string // of the list; "" is nobody
	status  int
	asked   int
}

func newSite(t testing.TB) *site {
	s := &site{tarball: bytes.Repeat([]byte("node"), 5000), status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked++
		name := "node-v" + nodeVersion + "-linux-x64.tar.xz"
		if s.status != http.StatusOK {
			w.WriteHeader(s.status)
			return
		}
		sums := s.sums
		if sums == "" {
			h := sha256.Sum256(s.tarball)
			sums = strings.Repeat("0", 64) + "  node.pkg\n" + hex.EncodeToString(h[:]) + "  " + name + "\n"
		}
		switch r.URL.Path {
		case "/dist/v" + nodeVersion + "/SHASUMS256.txt":
			w.Write([]byte(sums))
		case "/dist/v" + nodeVersion + "/SHASUMS256.txt.sig":
			if s.signer == "" {
				w.WriteHeader(http.StatusNotFound)
			}
			w.Write([]byte(s.signer + " signs " + sums))
		case "/dist/v" + nodeVersion + "/" + name:
			w.Write(s.tarball)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

type world struct {
	req      Request
	builder  *fakeBuilder
	site     *site
	opt      Options
	resolved int
	said     []string
}

// agents is a set, and agent one of them.
func agents(t testing.TB, names ...string) []image.Harness {
	t.Helper()
	set, err := harness.ForImage(names)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func agent(t testing.TB, name string) image.Harness { return agents(t, name)[0] }

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{site: newSite(t), builder: &fakeBuilder{images: map[string]bool{}, names: map[string]string{}, manifest: map[string]string{}, contents: map[string]string{},
		packages: "deb libssl3t64 3.5.1-1 amd64\n"}}
	w.req = Request{NodeVersion: nodeVersion, NodeMirror: w.site.URL + "/dist/", EntrypointSHA256: sumOfBytes("e"), Entrypoint: program("e"), Arch: "amd64", TTLDays: 7, Harnesses: agents(t, "pi"),
		CacheDir: filepath.Join(dir, "cache"), StateDir: filepath.Join(dir, "state")}
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { w.resolved++; return digestA, nil }
	w.opt.Accept = func(ctx context.Context, tag image.Reference, pinned digest.Digest) error {
		tag.Digest = pinned
		_, err := w.opt.Resolve(ctx, tag)
		return err
	}
	w.opt.Say = func(f string, a ...any) { w.said = append(w.said, fmt.Sprintf(f, a...)) }
	return w
}

func (w *world) ensure(t *testing.T) Plan {
	t.Helper()
	p, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range []Image{p.Sandbox, p.Gate} {
		if img.ID == "" || !w.builder.images[img.ID] {
			t.Fatalf("%s is image %q, which does not exist", img.Ref, img.ID)
		}
	}
	return p
}

// files lists what is below a directory, without locks.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && filepath.Base(path) != "lock" && filepath.Ext(path) != ".lock" {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestColdThenWarm(t *testing.T) {
	w := newWorld(t)
	if _, err := w.req.Plan(); !errors.Is(err, ErrUnresolved) {
		t.Fatalf("a plan before the first build: %v", err)
	}
	p := w.ensure(t)
	if len(w.builder.builds) != 2 || len(w.builder.primed) != 2 || w.resolved != 1 {
		t.Fatalf("%d builds, %d primed, registry asked %d times", len(w.builder.builds), len(w.builder.primed), w.resolved)
	}
	for _, text := range w.builder.builds {
		if !strings.Contains(text, "FROM docker.io/library/debian@"+string(digestA)+"\n") {
			t.Errorf("not built on the pin:\n%s", text)
		}
	}
	if w.builder.names[p.Sandbox.Ref] != p.Sandbox.ID || w.builder.names[p.Gate.Ref] != p.Gate.ID {
		t.Errorf("names: %v", w.builder.names)
	}

	// Warm: nobody is asked, nothing is built, and the plan says the same.
	w.site.Close()
	w.opt.Resolve = nil
	plan, err := w.req.Plan()
	if err != nil || plan.Sandbox.ID != p.Sandbox.ID || plan.Gate.ID != p.Gate.ID || plan.BaseDigest != digestA {
		t.Errorf("the plan after the build: %+v, %v", plan, err)
	}
	again := w.ensure(t)
	if again.Sandbox.ID != p.Sandbox.ID || again.Gate.ID != p.Gate.ID || len(w.builder.builds) != 2 {
		t.Errorf("a warm start: %d builds", len(w.builder.builds))
	}

	// The image is gone: built again, without a network of our own.
	delete(w.builder.images, p.Sandbox.ID)
	if again = w.ensure(t); again.Sandbox.ID == p.Sandbox.ID || again.Gate.ID != p.Gate.ID || len(w.builder.builds) != 3 {
		t.Errorf("after the image was removed: %d builds", len(w.builder.builds))
	}
}

// An image that somebody else gave the name is not used.
func TestForeignTag(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	if err := os.RemoveAll(w.req.StateDir); err != nil {
		t.Fatal(err)
	}
	w.builder.images["foreign"] = true
	w.builder.names[p.Sandbox.Ref] = "foreign"
	again := w.ensure(t)
	if again.Sandbox.ID == "foreign" || len(w.builder.builds) != 4 || w.builder.names[p.Sandbox.Ref] != again.Sandbox.ID {
		t.Errorf("the image is %s after %d builds", again.Sandbox.ID, len(w.builder.builds))
	}
	// Neither is one whose record is of another recipe, or of no recipe.
	path, err := w.req.imageFile(again.Sandbox.Built, ".json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		strings.Replace(string(b), string(again.Sandbox.Hash), string(digestB), 1),
		strings.Replace(string(b), again.Sandbox.ID, "localhost/evil", 1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := w.req.recordedImage(again.Sandbox.Built); got != "" || err != nil {
			t.Errorf("the record %s gives %q, %v", text, got, err)
		}
	}
}

func TestRebuildKeepsThePin(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	w.opt.Rebuild = true
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { return digestB, nil }
	again := w.ensure(t)
	if w.builder.noCache != 2 || again.BaseDigest != digestA || again.Sandbox.Ref != p.Sandbox.Ref || again.Sandbox.ID == p.Sandbox.ID {
		t.Errorf("rebuilt: %d builds without cache on %s", w.builder.noCache, again.BaseDigest)
	}
	if w.builder.images[p.Sandbox.ID] || w.builder.images[p.Gate.ID] {
		t.Error("the images that were replaced are still there")
	}
}

func TestStaleBeatsMutable(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	offline := errors.New("no route")
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { return "", offline }
	w.req.EntrypointSHA256, w.req.Entrypoint = sumOfBytes("another"), program("another") // something to build
	if p := w.ensure(t); p.BaseDigest != digestA || len(w.said) != 0 {
		t.Errorf("offline with a record: on %q, said %q", p.BaseDigest, w.said)
	}
	w.req.Base = "registry.example/debian:new"
	p := w.ensure(t)
	if p.BaseDigest != "" || p.Sandbox.Labels[image.LabelBaseDigest] != image.Unpinned || len(w.said) != 1 || !strings.Contains(w.said[0], "UNPINNED") {
		t.Errorf("offline without a record: on %q, said %q", p.BaseDigest, w.said)
	}
	// Each start on it says so.
	w.said = nil
	if w.ensure(t); len(w.said) != 1 || !strings.Contains(w.said[0], "UNPINNED") {
		t.Errorf("a start on what is unpinned says %q", w.said)
	}
	// It is not recorded as anything, so that a later build can pin it.
	w.opt.Resolve = func(context.Context, image.Reference) (digest.Digest, error) { return digestB, nil }
	w.opt.Rebuild = true
	if p := w.ensure(t); p.BaseDigest != digestB {
		t.Errorf("online again: on %q", p.BaseDigest)
	}
	// A digest that the user wrote is not looked up.
	w.opt.Resolve = nil
	w.req.Base = "registry.example/debian@" + string(digestA)
	if p := w.ensure(t); p.BaseDigest != digestA {
		t.Errorf("a reference with a digest: on %q", p.BaseDigest)
	}
}

func TestDamagedPin(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	path := w.req.baseFile(p.BaseRef, ".json")
	for _, text := range []string{"", "{}", `{"ref":"x"}`, `{"ref":"` + p.BaseRef.String() + `","digest":"latest","resolved":"2026-01-01T00:00:00Z"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := w.req.Plan(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("pin %q: plan on %q, %v", text, p.BaseDigest, err)
		}
	}
}

// Whatever is wrong with a download ends the build, with nothing cached.
func TestBadDownloads(t *testing.T) {
	right := bytes.Repeat([]byte("node"), 5000)
	for name, c := range map[string]struct {
		learned bool // the checksum is known before
		spoil   func(*site)
		want    string
	}{
		"500 for the list":    {false, func(s *site) { s.status = 500 }, "500"},
		"500 for the tarball": {true, func(s *site) { s.status = 500 }, "500"},
		"no such release":     {true, func(s *site) { s.status = 404 }, "404"},
		"tampered":            {true, func(s *site) { s.tarball[100] ^= 1 }, "not the release that was written down"},
		"truncated":           {true, func(s *site) { s.tarball = s.tarball[:9000] }, "not the release that was written down"},
		"empty":               {true, func(s *site) { s.tarball = nil }, "not the release that was written down"},
		"a list without it":   {false, func(s *site) { s.sums = strings.Repeat("0", 64) + "  other\n" }, "has none for"},
		"no hash in the list": {false, func(s *site) { s.sums = "xyz  node-v" + nodeVersion + "-linux-x64.tar.xz\n" }, "has none for"},
		"a wrong hash":        {false, func(s *site) { s.sums = strings.Repeat("0", 64) + "  node-v" + nodeVersion + "-linux-x64.tar.xz\n" }, "the list of checksums there has 0000"},
		"a list without a tarball": {false, func(s *site) {
			s.sums, s.tarball = sumOfBytes(string(s.tarball))+"  node-v"+nodeVersion+"-linux-x64.tar.xz\n", nil
		}, "the list of checksums there has "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.learned {
				node, _ := w.req.node(w.req.NodeVersion)
				if err := w.req.learnSum(t.Context(), w.opt, node); err != nil {
					t.Fatal(err)
				}
				w.forgetTarballs(t)
			}
			c.spoil(w.site)
			_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error: %v", err)
			}
			for _, f := range files(t, w.req.CacheDir) {
				if !strings.HasPrefix(f, "base") && !(c.learned && strings.HasSuffix(f, ".json")) {
					t.Errorf("%s is kept", f)
				}
			}
			// The control: the same download, whole, and with the honest list.
			w.site.status, w.site.tarball, w.site.sums = 200, right, ""
			w.ensure(t)
		})
	}
}

// forgetTarballs empties the cache of Node's, and keeps the checksums.
func (w *world) forgetTarballs(t *testing.T) {
	t.Helper()
	dir := filepath.Join(w.req.CacheDir, "node")
	for _, f := range files(t, dir) {
		if strings.HasSuffix(f, ".tar.xz") {
			if err := os.Remove(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A connection that breaks off is no whole file.
func TestBrokenConnection(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	broken := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "20000")
		rw.Write(w.site.tarball[:9000])
	}))
	defer broken.Close()
	w.forgetTarballs(t)
	w.req.NodeMirror, w.opt.Rebuild = broken.URL, true
	if _, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("error: %v", err)
	}
}

// The site's list is trusted once.
func TestTrustOnFirstUse(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	w.site.tarball = append(w.site.tarball, 'x') // the list agrees with it
	w.forgetTarballs(t)
	w.opt.Rebuild = true
	_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err == nil || !strings.Contains(err.Error(), w.site.URL) || !strings.Contains(err.Error(), " said ") {
		t.Errorf("another release of the same version: %v", err)
	}
}

// Of two that learn a checksum at once, the second does not replace what the first was
// told, and does not ask.
func TestChecksumLearntByAnother(t *testing.T) {
	w := newWorld(t)
	node, err := w.req.node(nodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.req.CacheDir, "node"), 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), w.req.nodeLock(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	first := sumRecord{File: node.File(), SHA256: sumOfBytes("first"), Site: "https://a.example", Seen: time.Now().UTC()}
	o := Options{Say: func(string, ...any) {
		if err := writeRecord(w.req.sumFile(node), first); err != nil {
			t.Error(err)
		}
		unlock()
	}}
	if err := w.req.learnSum(t.Context(), o, node); err != nil {
		t.Fatal(err)
	}
	if rec, err := w.req.readSum(node); err != nil || rec.SHA256 != first.SHA256 || w.site.asked != 0 {
		t.Errorf("%+v, %v, asked %d times", rec, err, w.site.asked)
	}
}

// A cached tarball is not taken on trust either.
func TestTamperedCache(t *testing.T) {
	w := newWorld(t)
	w.ensure(t)
	dir := filepath.Join(w.req.CacheDir, "node")
	for _, f := range files(t, dir) {
		if strings.HasSuffix(f, ".tar.xz") {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("evil"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.opt.Rebuild = true
	w.builder.onBuild = func(_ context.Context, b Build) error {
		got, err := os.ReadFile(filepath.Join(b.Dir, image.TarballName))
		if err == nil && !bytes.Equal(got, w.site.tarball) {
			t.Error("the tampered tarball is in the context")
		}
		return nil
	}
	asked := w.site.asked
	w.ensure(t)
	if w.site.asked != asked+1 {
		t.Errorf("the site was asked %d times", w.site.asked-asked)
	}
}

func TestMirrorAddress(t *testing.T) {
	for _, s := range []string{"ftp://a.example", "a.example/dist", "https://", "https://u:secret@a.example/dist", "https://a.example/?x=1", "file:///etc", "http://a b"} {
		r := Request{NodeMirror: s}
		if u, err := r.site(); err == nil {
			t.Errorf("%q accepted as %s", s, u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the message shows a secret: %v", err)
		}
	}
}

func TestFailedBuild(t *testing.T) {
	w := newWorld(t)
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("exit status 1") }
	_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err == nil || !strings.Contains(err.Error(), "step 1 of 2, a step: exit status 1") {
		t.Fatalf("error: %v", err)
	}
	_, rest, _ := strings.Cut(err.Error(), "its output is in ")
	log, rerr := os.ReadFile(strings.TrimSuffix(rest, ")"))
	if rerr != nil || !strings.Contains(string(log), "some output") {
		t.Errorf("the log that the error names: %q, %v", log, rerr)
	}
	w.nothingLeft(t)
}

// What npm says of its failure is said in a sentence, and not how its step ended.
func TestFailedPackage(t *testing.T) {
	w := newWorld(t)
	w.builder.onBuild = func(_ context.Context, b Build) error {
		io.WriteString(b.Log, "npm error code E500\nnpm error 500 Internal Server Error - GET http://r.test/x.tgz\n")
		return errors.New("exit status 1")
	}
	_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err == nil || !strings.Contains(err.Error(), "step 1 of 2, a step: the npm registry answers 500 Internal Server Error for http://r.test/x.tgz, and nothing of it is kept; ") || strings.Contains(err.Error(), "exit status") {
		t.Errorf("error: %v", err)
	}
	w.nothingLeft(t)
}

// And so is what apt says.
func TestFailedDebianPackage(t *testing.T) {
	w := newWorld(t)
	w.builder.onBuild = func(_ context.Context, b Build) error {
		io.WriteString(b.Log, "Reading package lists...\nE: Unable to locate package nosuch\n")
		return errors.New("exit status 100")
	}
	_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
	if err == nil || !strings.Contains(err.Error(), "step 1 of 2, a step: exit status 100: apt says: Unable to locate package nosuch (its output is in ") {
		t.Errorf("error: %v", err)
	}
	w.nothingLeft(t)
}

func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	if len(w.builder.names) != 0 {
		t.Errorf("named: %v", w.builder.names)
	}
	if got := files(t, filepath.Join(w.req.CacheDir, "build")); len(got) != 0 {
		t.Errorf("left in the cache: %v", got)
	}
	for _, f := range files(t, w.req.StateDir) {
		if filepath.Ext(f) == ".json" {
			t.Errorf("%s is recorded", f)
		}
	}
}

// Several starts at once do the work once.
func TestAtOnce(t *testing.T) {
	w := newWorld(t)
	node, err := w.req.node(w.req.NodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.req.learnSum(t.Context(), w.opt, node); err != nil {
		t.Fatal(err)
	}
	w.opt.Say, w.opt.Resolve = nil, func(context.Context, image.Reference) (digest.Digest, error) { return digestA, nil }
	var all sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		all.Go(func() {
			p, err := w.req.Ensure(t.Context(), w.builder, w.opt)
			if err != nil {
				t.Error(err)
			}
			ids[i] = p.Sandbox.ID
		})
	}
	all.Wait()
	if len(w.builder.builds) != 2 {
		t.Errorf("%d builds", len(w.builder.builds))
	}
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("images %v", ids)
		}
	}
}

// The context is the same whatever the umask and the time.
func TestContextOnDisk(t *testing.T) {
	w := newWorld(t)
	seen := map[string]string{}
	w.builder.onBuild = func(_ context.Context, b Build) error {
		return filepath.WalkDir(b.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(b.Dir, path)
			seen[rel] = info.Mode().String()
			if !d.IsDir() && info.ModTime().Unix() != 0 {
				t.Errorf("%s has the time %s", rel, info.ModTime())
			}
			return nil
		})
	}
	w.ensure(t)
	for name, mode := range map[string]string{
		".": "drwx------", "harness": "drwxr-xr-x", "aisb-entrypoint": "-rwxr-xr-x", "node.tar.xz": "-rw-r--r--", "hosts": "-rw-r--r--",
		"harness/pi/package-lock.json": "-rw-r--r--", "harness/pi": "drwxr-xr-x",
	} {
		if seen[name] != mode {
			t.Errorf("%s is %q, not %q", name, seen[name], mode)
		}
	}
}

func sumOfBytes(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func program(s string) func() ([]byte, error) {
	return func() ([]byte, error) { return []byte(s), nil }
}

// A program that is not the one the tag is of never gets into an image.
func TestEntrypointIsTheOneOfTheTag(t *testing.T) {
	w := newWorld(t)
	w.req.Entrypoint = program("another")
	if _, err := w.req.Ensure(t.Context(), w.builder, Options{}); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("got %v", err)
	}
}

// shout stands for what takes secrets out of a log.
type shout struct{ w io.Writer }

func (s shout) Write(p []byte) (int, error) {
	_, err := s.w.Write(bytes.ToUpper(p))
	return len(p), err
}

func (s shout) Close() error {
	_, err := io.WriteString(s.w, "closed\n")
	return err
}

// What a build says is written down through what the caller puts in front of it.
func TestLogIsFiltered(t *testing.T) {
	w := newWorld(t)
	w.builder.onBuild = func(context.Context, Build) error { return errors.New("no") }
	o := w.opt
	o.Log = func(out io.Writer) io.WriteCloser { return shout{out} }
	_, err := w.req.Ensure(t.Context(), w.builder, o)
	if err == nil {
		t.Fatal("the build did not fail")
	}
	_, rest, _ := strings.Cut(err.Error(), "its output is in ")
	if log, rerr := os.ReadFile(strings.TrimSuffix(rest, ")")); rerr != nil || string(log) != "SOME OUTPUT\nclosed\n" {
		t.Errorf("%q, %v", log, rerr)
	}
}
