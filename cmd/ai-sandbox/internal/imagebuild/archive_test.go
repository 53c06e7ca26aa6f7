package imagebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
	"ai-sandbox/image/archive"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
)

// A store is a fakeBuilder whose images are layouts in a tar.
type store struct {
	*fakeBuilder
	layouts map[string][]byte // by id
	onLoad  func() error
}

// onePlain is a layer as it is.
func onePlain(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }

// layout makes an image of one layer, and returns its id and its manifest.
func layout(t *testing.T, w *archive.Writer, text string, labels map[string]string) (string, archive.Descriptor) {
	t.Helper()
	var layer bytes.Buffer
	z := gzip.NewWriter(&layer)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	at := archive.Descriptor{Digest: digest.FromBytes(layer.Bytes()), Size: int64(layer.Len())}
	if err := w.Blob(t.Context(), at.Digest, at.Size, &layer); err != nil {
		t.Fatal(err)
	}
	config, err := w.JSON(t.Context(), configType, map[string]any{"architecture": "amd64", "config": map[string]any{"Labels": labels},
		"rootfs": map[string]any{"diff_ids": []digest.Digest{digest.FromString(text)}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.JSON(t.Context(), manifestType, map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []archive.Descriptor{at}})
	if err != nil {
		t.Fatal(err)
	}
	return config.Digest.Encoded(), m
}

func (s *store) ExportImage(_ context.Context, id string, w io.Writer) error {
	if s.layouts[id] == nil {
		return fmt.Errorf("no image %s", id)
	}
	_, err := w.Write(s.layouts[id])
	return err
}

func (s *store) LoadImage(ctx context.Context, write func(io.Writer) error) error {
	if err := write(io.Discard); err != nil { // it may be written again
		return err
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return err
	}
	data := buf.Bytes()
	if s.onLoad != nil {
		if err := s.onLoad(); err != nil {
			return err
		}
	}
	f, err := archive.Open(context.WithoutCancel(ctx), bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	top := f.Index.Manifests[0]
	i, err := f.Image(context.WithoutCancel(ctx), top, onePlain)
	if err != nil {
		return err
	}
	s.images[i.ID()], s.layouts[i.ID()], s.manifest[i.ID()] = true, data, s.packages
	if name := top.Annotations["org.opencontainers.image.ref.name"]; name != "" {
		s.images[name], s.names[name] = true, i.ID()
	}
	return nil
}

func (s *store) RemoveImage(_ context.Context, id string) error {
	if !s.images[id] {
		return fmt.Errorf("no image %s", id)
	}
	maps.DeleteFunc(s.images, func(name string, _ bool) bool { return name == id || s.names[name] == id })
	return nil
}

// baseOf is a base image's text, and the digest that it has in its registry.
func baseOf(t *testing.T, text string) (fetch func(context.Context, image.Reference, *archive.Writer) (archive.Descriptor, error), d digest.Digest) {
	t.Helper()
	none, err := archive.NewWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, m := layout(t, none, text, nil)
	return func(_ context.Context, ref image.Reference, w *archive.Writer) (archive.Descriptor, error) {
		if ref.Digest != m.Digest {
			return m, fmt.Errorf("asked for %s", ref)
		}
		_, d := layout(t, w, text, nil)
		return d, nil
	}, m.Digest
}

// saved is a world with images that can be saved, and the archive of them.
func saved(t *testing.T, change func(*world)) (*world, *store, []byte) {
	t.Helper()
	w := newWorld(t)
	fetch, d := baseOf(t, "the base")
	w.leadsTo(d)
	if change != nil {
		change(w)
	}
	p := w.ensure(t)
	s := &store{fakeBuilder: w.builder, layouts: map[string][]byte{}}
	for _, img := range []*Image{&p.Gate, &p.Sandbox} {
		var file bytes.Buffer
		l, err := archive.NewWriter(&file)
		if err != nil {
			t.Fatal(err)
		}
		id, m := layout(t, l, string(img.Kind), img.Labels)
		if err := l.Close([]archive.Descriptor{m}); err != nil {
			t.Fatal(err)
		}
		s.images[id], s.layouts[id], s.manifest[id] = true, file.Bytes(), s.packages
		if err := w.req.recordImage(img.Built, id, time.Now(), false); err != nil {
			t.Fatal(err)
		}
		img.ID = id
	}
	var out bytes.Buffer
	if err := w.req.Save(t.Context(), s, w.opt, &p, &out, fetch); err != nil {
		t.Fatal(err)
	}
	return w, s, out.Bytes()
}

// target is a world with nothing in it, and no network.
func target(t *testing.T) (*world, *store) {
	t.Helper()
	w := newWorld(t)
	w.leadsTo("")
	w.req.NodeVersion = ""
	w.site.Close()
	return w, &store{fakeBuilder: w.builder, layouts: map[string][]byte{}}
}

func (w *world) load(t *testing.T, s *store, data []byte) (Plan, error) {
	t.Helper()
	return w.req.Load(t.Context(), s, w.opt, bytes.NewReader(data), int64(len(data)), onePlain)
}

// files are all records of a world, with their content.
func (w *world) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{w.req.CacheDir, w.req.StateDir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || strings.HasSuffix(path, "lock")) {
				return nil
			}
			data, err := os.ReadFile(path)
			out[path] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// same tells whether nothing has changed.
func (w *world) same(t *testing.T, s *store, before map[string]string, images int) {
	t.Helper()
	now := w.files(t)
	if len(now) != len(before) || len(s.images) != images {
		t.Errorf("%d files and %d images, and not %d and %d", len(now), len(s.images), len(before), images)
	}
	for path, text := range before {
		if now[path] != text {
			t.Errorf("%s has changed", path)
		}
	}
}

// What is saved on one machine starts runs on another one, offline, with the same ids
// and the same pins.
func TestArchive(t *testing.T) {
	for name, change := range map[string]func(*world){
		"as the recipe has it": nil,
		"updated": func(w *world) {
			w.ensure(t)
			in, err := w.req.inputs()
			if err != nil {
				t.Fatal(err)
			}
			asked := packagesRecord{Ref: in.base.String(), Digest: in.pin.Digest, Asked: time.Now().UTC().Truncate(time.Second)}
			if err := writeRecord(w.req.baseFile(in.base, ".packages.json"), asked); err != nil {
				t.Fatal(err)
			}
			if err := w.req.recordLock("pi", newerLock(t), time.Now()); err != nil {
				t.Fatal(err)
			}
		},
		"another Node": func(w *world) {
			newer := strings.Replace(nodeVersion, ".1", ".2", 1)
			w.req.NodeVersion = newer
			n, err := image.NewNode(newer, "amd64")
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(writeRecord(w.req.sumFile(n), sumRecord{File: n.File(), SHA256: sumOfBytes("node"), Site: "x", Seen: time.Now()}),
				os.WriteFile(filepath.Join(w.req.CacheDir, "node", strings.TrimSuffix(n.File(), ".tar.xz")+"-"+sumOfBytes("node")[:12]+".tar.xz"), []byte("node"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, _, data := saved(t, change)
			to, s := target(t)
			to.req.NodeVersion = from.req.NodeVersion
			was, err := from.req.Plan()
			if err != nil {
				t.Fatal(err)
			}
			// The control: without it there is nothing to start on.
			if _, err := to.req.Ensure(t.Context(), s, to.opt); err == nil {
				t.Fatal("something is there")
			}
			to.builder.builds = nil
			p, err := to.load(t, s, data)
			if err != nil {
				t.Fatal(err)
			}
			if p.Sandbox.ID != was.Sandbox.ID || p.Gate.ID != was.Gate.ID || p.BaseDigest != was.BaseDigest || !p.Pinned.Equal(was.Pinned) || p.Due {
				t.Errorf("%+v\n%+v", p, was)
			}
			got, err := to.req.Ensure(t.Context(), s, to.opt)
			if err != nil || got.Sandbox.ID != was.Sandbox.ID || len(to.builder.builds) > 0 || len(to.builder.primed) != 2 || to.builder.names[got.Gate.Ref] != got.Gate.ID {
				t.Errorf("it builds: %v, %q", err, to.builder.builds)
			}
			if list, err := to.req.Manifest(got.Gate.ID); err != nil || len(list) != 1 {
				t.Errorf("%v, %v", list, err)
			}
			pinned, err := got.BaseRef.Pin(got.BaseDigest)
			if err != nil || !s.images[pinned.String()] {
				t.Errorf("the base is not there by its digest: %v", err)
			}
			before, images := to.files(t), len(s.images)
			if _, err := to.load(t, s, data); err != nil {
				t.Errorf("once more: %v", err)
			}
			to.same(t, s, before, images)
		})
	}
}

// edit makes another archive of one: f gets each small file, and "" takes it away.
func edit(t *testing.T, data []byte, f func(name, text string) string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		now := f(h.Name, string(text))
		name := h.Name
		if now != string(text) && strings.HasPrefix(name, "blobs/") {
			name = "blobs/sha256/" + digest.FromString(now).Encoded()
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(now))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(now)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// rerecord is an archive with other records, of which all digests are right.
func rerecord(t *testing.T, data []byte, change func(*archived)) []byte {
	t.Helper()
	var old, now string
	data = edit(t, data, func(name, text string) string {
		if !strings.Contains(text, `"base": {`) || name == "index.json" {
			return text
		}
		var a archived
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		change(&a)
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		old, now = text, string(b)
		return now
	})
	return edit(t, data, func(name, text string) string {
		if name != "index.json" {
			return text
		}
		var i archive.Index
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			t.Fatal(err)
		}
		for n := range i.Manifests {
			if d := &i.Manifests[n]; d.Digest == digest.FromString(old) {
				d.Digest, d.Size = digest.FromString(now), int64(len(now))
			}
		}
		b, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
}

// An archive with pins for what is not in it, of another recipe, from the future, or
// that is no archive of ours: nothing of it stays.
func TestArchiveRefused(t *testing.T) {
	_, _, data := saved(t, nil)
	for name, c := range map[string]struct {
		data   []byte
		change func(*world)
		want   string
	}{
		"not an archive":        {[]byte("x"), nil, "not a tar archive"},
		"half of one":           {data[:len(data)/2], nil, "can't be loaded"},
		"a pin of another base": {rerecord(t, data, func(a *archived) { a.Base.Digest = digestB }), nil, "its pin another one"},
		"a pin that is none":    {rerecord(t, data, func(a *archived) { a.Base.Digest = "sha256:../x" }), nil, "not a sha256 digest"},
		"another base's":        {rerecord(t, data, func(a *archived) { a.Base.Ref = "a.example/b:x" }), nil, "set base to that"},
		"from the future":       {rerecord(t, data, func(a *archived) { a.Base.Resolved = time.Now().Add(72 * time.Hour) }), nil, "from the future"},
		"a later version":       {rerecord(t, data, func(a *archived) { a.Version = 2 }), nil, "version 2"},
		"a record too much": {rerecord(t, data, func(a *archived) {
			a.Packages = &packagesRecord{Ref: a.Base.Ref, Digest: a.Base.Digest, Asked: time.Now()}
		}), nil, "is not the one that is built here of the same pins"},
		"a lock that was not made so": {rerecord(t, data, func(a *archived) {
			l := newerLock(t)
			a.Locks = map[string]lockRecord{"pi": {Version: l.Version, Node: l.Node, Package: string(l.Package), Packages: strings.ReplaceAll(string(l.Packages), "sha512-", "sha512-AA")}}
		}), nil, "lock file"},
		"another entrypoint": {data, func(w *world) { w.req.EntrypointSHA256 = sumOfBytes("another") }, "use the same ai-sandbox"},
		"another machine":    {data, func(w *world) { w.req.Arch = "arm64" }, "amd64"},
		"no sandbox's image": {edit(t, data, func(name, text string) string {
			if name == "index.json" {
				return strings.Replace(text, `"aisb.kind": "sandbox"`, `"aisb.kind": "other"`, 1)
			}
			return text
		}), nil, "none that ai-sandbox image save has made"},
		"two gates": {edit(t, data, func(name, text string) string {
			if name == "index.json" {
				return strings.Replace(text, `"aisb.kind": "sandbox"`, `"aisb.kind": "gate"`, 1)
			}
			return text
		}), nil, `two of "gate"`},
		"a gate for a sandbox": {edit(t, data, func(name, text string) string {
			if name == "index.json" {
				return strings.NewReplacer(`"aisb.kind": "sandbox"`, `"aisb.kind": "gate"`, `"aisb.kind": "gate"`, `"aisb.kind": "sandbox"`).Replace(text)
			}
			return text
		}), nil, "is not the one that is built here"},
		"a signature is demanded": {data, func(w *world) { w.rules("sha256:rules") }, "an archive carries none"},
		"no policy.json": {data, func(w *world) {
			w.req.Demands = func(image.Reference) (digest.Digest, error) { return "", errors.New("no policy.json") }
		}, "no policy.json"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := target(t)
			w.req.NodeVersion = nodeVersion
			if c.change != nil {
				c.change(w)
			}
			if _, err := w.load(t, s, c.data); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, and not %q", err, c.want)
			}
			w.same(t, s, nil, 0)
		})
	}
	// The control.
	w, s := target(t)
	w.req.NodeVersion = nodeVersion
	if _, err := w.load(t, s, data); err != nil {
		t.Error(err)
	}
}

// Whatever fails on the way, and whenever somebody ends it: nothing of it stays.
func TestArchiveUndone(t *testing.T) {
	_, _, data := saved(t, nil)
	for n := 1; n <= 3; n++ {
		w, s := target(t)
		w.req.NodeVersion = nodeVersion
		ctx, cancel := context.WithCancel(t.Context())
		loads := 0
		s.onLoad = func() error {
			if loads++; loads == n {
				cancel() // podman goes on, and has the image after all
			}
			return nil
		}
		if _, err := w.req.Load(ctx, s, w.opt, bytes.NewReader(data), int64(len(data)), onePlain); !errors.Is(err, context.Canceled) {
			t.Errorf("ended at load %d: %v", n, err)
		}
		w.same(t, s, nil, 0)

		w, s = target(t)
		w.req.NodeVersion = nodeVersion
		loads = 0
		s.onLoad = func() error {
			if loads++; loads == n {
				return errors.New("no space left on device")
			}
			return nil
		}
		if _, err := w.load(t, s, data); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("failed at load %d: %v", n, err)
		}
		w.same(t, s, nil, 0)
	}
	// The records can't be written: the pin is the last of them.
	w, s := target(t)
	w.req.NodeVersion = nodeVersion
	in, err := w.req.inputs()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.req.baseFile(in.base, ".json")+"/x", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := w.load(t, s, data); err == nil {
		t.Error("it is loaded without a pin")
	}
	if err := os.RemoveAll(w.req.baseFile(in.base, ".json")); err != nil {
		t.Fatal(err)
	}
	w.same(t, s, nil, 0)
}

// A load that was killed is found by what it has written down, and taken away; what was
// whole by then stays.
func TestArchiveKilled(t *testing.T) {
	_, _, data := saved(t, nil)
	for n := 1; n <= 3; n++ {
		w, s := target(t)
		w.req.NodeVersion = nodeVersion
		killed, loads := w.req, 0
		killed.CacheDir, killed.StateDir = filepath.Join(t.TempDir(), "cache"), filepath.Join(t.TempDir(), "state")
		var store map[string]bool
		s.onLoad = func() error {
			if loads++; loads != n {
				return nil
			}
			store = maps.Clone(s.images)
			for from, to := range map[string]string{w.req.CacheDir: killed.CacheDir, w.req.StateDir: killed.StateDir} {
				if err := os.CopyFS(to, os.DirFS(from)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if names, err := w.req.Leftovers(t.Context(), s); err != nil || len(names) > 0 {
				t.Errorf("while it loads: %q, %v", names, err)
			}
			return nil
		}
		if _, err := w.load(t, s, data); err != nil {
			t.Fatal(err)
		}
		if names, err := w.req.Leftovers(t.Context(), s); err != nil || len(names) > 0 {
			t.Errorf("after the whole: %q, %v", names, err)
		}
		s.images = store
		names, err := killed.Leftovers(t.Context(), s)
		if err != nil || !slices.Equal(names, []string{LoadName}) {
			t.Fatalf("killed at load %d: %q, %v", n, names, err)
		}
		if err := killed.RemoveLeftover(t.Context(), s, LoadName); err != nil {
			t.Error(err)
		}
		// The gate's image was whole when the sandbox's came: clean --images is for it.
		if want := map[int]int{3: len(store)}[n]; len(s.images) != want {
			t.Errorf("killed at load %d: %d images are left, and not %d", n, len(s.images), want)
		}
		if names, err := killed.Leftovers(t.Context(), s); err != nil || len(names) > 0 {
			t.Errorf("after clean: %q, %v", names, err)
		}
		if n < 3 {
			continue
		}
		// The base stays for as long as the gate's image is there, also where another
		// load of the file fails; then it goes, unless it is pinned.
		whole := w.req
		w.req = killed
		s.onLoad = func() error { return errors.New("no space left") }
		if _, err := w.load(t, s, data); err == nil || len(s.images) != len(store) {
			t.Errorf("another load: %v, and %d images are left", err, len(s.images))
		}
		p, err := whole.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if left, err := killed.LeftOfLoad(nil); left || err != nil {
			t.Errorf("with the gate's image there: %t, %v", left, err)
		}
		if left, err := killed.LeftOfLoad([]string{p.Gate.ID}); !left || err != nil {
			t.Errorf("without the gate's image: %t, %v", left, err)
		}
		if err := killed.Remove(t.Context(), s, Found{ID: p.Gate.ID, Labels: p.Gate.Labels}); err != nil {
			t.Fatal(err)
		}
		if err := killed.recordBase(p.BaseRef, baseRecord{Ref: p.BaseRef.String(), Digest: p.BaseDigest}); err != nil {
			t.Fatal(err)
		}
		if names, err := killed.Leftovers(t.Context(), s); err != nil || len(names) > 0 {
			t.Errorf("where it is pinned: %q, %v", names, err)
		}
		if err := os.Remove(killed.baseFile(p.BaseRef, ".json")); err != nil {
			t.Fatal(err)
		}
		if names, err := killed.Leftovers(t.Context(), s); err != nil || !slices.Equal(names, []string{LoadName}) {
			t.Errorf("without the gate's image: %q, %v", names, err)
		}
		if err := killed.RemoveLeftover(t.Context(), s, LoadName); err != nil || len(s.images) > 0 {
			t.Errorf("%d images are left, %v", len(s.images), err)
		}
		if _, err := os.Lstat(killed.loadFile()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the record stays: %v", err)
		}
		// One that makes no sense keeps nothing else from being cleaned.
		if err := os.WriteFile(killed.loadFile(), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if names, err := killed.Leftovers(t.Context(), s); err != nil || !slices.Equal(names, []string{LoadName}) {
			t.Errorf("a damaged record: %q, %v", names, err)
		}
		if err := killed.RemoveLeftover(t.Context(), s, LoadName); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("a damaged record: %v", err)
		}
	}
}

// What is newer here is not lost, and what is older is replaced.
func TestArchiveOlder(t *testing.T) {
	from, _, data := saved(t, nil)
	was, err := from.req.Plan()
	if err != nil {
		t.Fatal(err)
	}
	ref, d := was.BaseRef, was.BaseDigest
	pin := func(d digest.Digest, age time.Duration) func(*world) error {
		return func(w *world) error {
			return w.req.recordBase(ref, baseRecord{Ref: ref.String(), Digest: d, Resolved: was.Pinned.Add(-age)})
		}
	}
	for name, c := range map[string]struct {
		here func(*world) error
		want string // "": loaded
	}{
		"nothing":                       {func(*world) error { return nil }, ""},
		"an older pin":                  {pin(digestB, day), ""},
		"a newer pin":                   {pin(digestB, -time.Hour), "nothing is loaded"},
		"one of the same time":          {pin(digestB, 0), "nothing is loaded"},
		"the same pin, confirmed later": {pin(d, -time.Hour), ""},
		"later packages": {func(w *world) error {
			return errors.Join(pin(d, 0)(w), writeRecord(w.req.baseFile(ref, ".packages.json"), packagesRecord{ref.String(), d, time.Now()}))
		}, "nothing is loaded"},
		"packages of another base": {func(w *world) error {
			return errors.Join(pin(digestB, day)(w), writeRecord(w.req.baseFile(ref, ".packages.json"), packagesRecord{ref.String(), digestB, time.Now()}))
		}, ""},
		"a newer harness": {func(w *world) error { return w.req.recordLock("pi", newerLock(t), time.Now()) }, "nothing is loaded"},
		"a pin that is damaged": {func(w *world) error {
			return writeRecord(w.req.baseFile(ref, ".json"), map[string]int{"x": 1})
		}, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := target(t)
			w.req.NodeVersion = nodeVersion
			if err := c.here(w); err != nil {
				t.Fatal(err)
			}
			before := w.files(t)
			p, err := w.load(t, s, data)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, and not %q", err, c.want)
				}
				w.same(t, s, before, 0)
				return
			}
			if err != nil || p.BaseDigest != d || p.Sandbox.ID != was.Sandbox.ID || p.Pinned.Before(was.Pinned) {
				t.Errorf("%v, on %s", err, p.BaseDigest)
			}
			if said := strings.Join(w.said, "\n"); strings.Contains(said, "was pinned to ") != (name == "an older pin" || name == "packages of another base") {
				t.Errorf("said %q", said)
			}
			if name == "the same pin, confirmed later" && !p.Pinned.After(was.Pinned) {
				t.Errorf("pinned %s", p.Pinned)
			}
		})
	}
}

// Of a base that is named by its digest no pin is compared, and the packages are.
func TestArchiveOlderOfDigest(t *testing.T) {
	_, d := baseOf(t, "the base")
	at := time.Now().Add(-time.Hour)
	asked := func(w *world, at time.Time) {
		t.Helper()
		w.req.Base = "registry.example/debian@" + string(d)
		if err := writeRecord(w.req.baseFile(image.Reference{Name: "registry.example/debian", Digest: d}, ".packages.json"), packagesRecord{w.req.Base, d, at}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, data := saved(t, func(w *world) { asked(w, at) })
	for name, c := range map[string]struct {
		at   time.Time
		want string // "": loaded
	}{
		"earlier": {at.Add(-time.Minute), ""}, "the same": {at, ""}, "later": {at.Add(time.Minute), "nothing is loaded; to go back, remove "},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := target(t)
			w.req.NodeVersion = nodeVersion
			asked(w, c.at)
			before := w.files(t)
			p, err := w.load(t, s, data)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, and not %q", err, c.want)
				}
				w.same(t, s, before, 0)
				return
			}
			if err != nil || p.in.packages != at.UTC().Format(image.PackagesForm) {
				t.Errorf("%v, with the packages of %s", err, p.in.packages)
			}
		})
	}
}

// npm makes another lock file of the same version when what it depends on has moved.
func TestArchiveOfAnotherLock(t *testing.T) {
	l := newerLock(t)
	_, _, data := saved(t, func(w *world) {
		if err := w.req.recordLock("pi", l, time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	w, s := target(t)
	w.req.NodeVersion = nodeVersion
	other := *l
	other.Packages = bytes.Replace(l.Packages, []byte("sha512-abc"), []byte("sha512-def"), 1)
	if err := w.req.recordLock("pi", &other, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := w.files(t)
	if _, err := w.load(t, s, data); err == nil || !strings.Contains(err.Error(), "of the same version, but with another lock file") || !strings.HasSuffix(err.Error(), " remove "+w.req.lockFile("pi")) {
		t.Errorf("%v", err)
	}
	w.same(t, s, before, 0)
	// The control: what it says helps.
	if err := os.Remove(w.req.lockFile("pi")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.load(t, s, data); err != nil {
		t.Error(err)
	}
	before, images := w.files(t), len(s.images)
	if _, err := w.load(t, s, data); err != nil {
		t.Errorf("once more: %v", err)
	}
	w.same(t, s, before, images)
}

// An image of the same recipe that was built here stays.
func TestArchiveBesideOwn(t *testing.T) {
	from, _, data := saved(t, nil)
	w := newWorld(t)
	was, err := from.req.Plan()
	if err != nil {
		t.Fatal(err)
	}
	w.leadsTo(was.BaseDigest)
	own := w.ensure(t)
	w.leadsTo("")
	s := &store{fakeBuilder: w.builder, layouts: map[string][]byte{}}
	p, err := w.load(t, s, data)
	if err != nil || p.Sandbox.ID != own.Sandbox.ID || p.Gate.ID != own.Gate.ID {
		t.Errorf("%v, %s and not %s", err, p.Sandbox.ID, own.Sandbox.ID)
	}
	if !slices.ContainsFunc(w.said, func(s string) bool { return strings.Contains(s, "is here already, and stays") }) {
		t.Errorf("said %q", w.said)
	}
}

// An unpinned base has no digest that could be kept.
func TestSaveUnpinned(t *testing.T) {
	w := newWorld(t)
	w.leadsTo("")
	p := w.ensure(t)
	s := &store{fakeBuilder: w.builder, layouts: map[string][]byte{}}
	if err := w.req.Save(t.Context(), s, w.opt, &p, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "UNPINNED") {
		t.Errorf("%v", err)
	}
}

// What an update has recorded since the plan was made is not saved beside the plan's
// images: no machine could load that.
func TestSaveAfterUpdate(t *testing.T) {
	for name, update := range map[string]func(*world, *image.Lock) error{
		"a harness": func(w *world, l *image.Lock) error {
			newer := *l
			newer.Packages = append(slices.Clone(l.Packages), '\n')
			return w.req.recordLock("pi", &newer, time.Now())
		},
		"no harness": func(w *world, _ *image.Lock) error { return os.Remove(w.req.lockFile("pi")) },
		"node": func(w *world, _ *image.Lock) error {
			node, err := w.req.node(nodeVersion)
			if err != nil {
				return err
			}
			rec, err := w.req.readSum(node)
			rec.SHA256 = sumOfBytes("another")
			return errors.Join(err, writeRecord(w.req.sumFile(node), rec))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newerLock(t)
			w, s, _ := saved(t, func(w *world) {
				if err := w.req.recordLock("pi", l, time.Now()); err != nil {
					t.Fatal(err)
				}
			})
			p, err := w.req.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if err := update(w, l); err != nil {
				t.Fatal(err)
			}
			err = w.req.Save(t.Context(), s, w.opt, &p, io.Discard, func(context.Context, image.Reference, *archive.Writer) (archive.Descriptor, error) {
				return archive.Descriptor{}, errors.New("the base was fetched")
			})
			if err == nil || !strings.Contains(err.Error(), "have changed meanwhile") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A checksum that another process learns while a file is loaded is not replaced.
func TestLoadBesideAnother(t *testing.T) {
	_, _, data := saved(t, nil)
	w, s := target(t)
	w.req.NodeVersion = nodeVersion
	node, err := w.req.node(nodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := w.req.lockNode(t.Context(), w.opt)
	if err != nil {
		t.Fatal(err)
	}
	other := sumRecord{File: node.File(), SHA256: sumOfBytes("another"), Site: "https://a.example", Seen: time.Now().UTC()}
	said := false
	w.opt.Say = func(format string, _ ...any) {
		if said || !strings.Contains(format, "waiting") {
			return
		}
		said = true
		if err := writeRecord(w.req.sumFile(node), other); err != nil {
			t.Error(err)
		}
		unlock()
	}
	if _, err := w.load(t, s, data); err == nil || !said {
		t.Errorf("waited: %v, %v", said, err)
	}
	if rec, err := w.req.readSum(node); err != nil || rec.SHA256 != other.SHA256 || len(s.images) != 0 {
		t.Errorf("%+v, %v, %d images", rec, err, len(s.images))
	}
	// The control.
	if err := os.Remove(w.req.sumFile(node)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.load(t, s, data); err != nil {
		t.Error(err)
	}
}

// newerLock is a harness that an update would have found.
func newerLock(t *testing.T) *image.Lock {
	t.Helper()
	module := agent(t, "pi").Module
	l, err := agent(t, "pi").ParseLock([]byte(`{"dependencies":{"`+module+`":"99.0.0"}}`),
		[]byte(`{"packages":{"":{},"node_modules/`+module+`":{"version":"99.0.0","integrity":"sha512-abc","engines":{"node":">=22.0.0"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A checksum of Node is not signed because an archive says so.
func TestArchiveKeyring(t *testing.T) {
	_, _, data := saved(t, nil)
	claim := func(key string) []byte {
		return rerecord(t, data, func(a *archived) { a.Sum.Signer, a.Sum.Keyring = "fingerprint of "+key, digest.FromString(key) })
	}
	w, s := target(t)
	w.req.NodeVersion = nodeVersion
	w.asks("ann")
	for what, data := range map[string][]byte{"no signature": data, "a claim": claim("ann")} {
		if _, err := w.load(t, s, data); err == nil || !strings.Contains(err.Error(), "an archive carries none") {
			t.Errorf("%s: %v", what, err)
		}
		w.same(t, s, nil, 0)
	}
	// Without a keyring it is taken, and the claim is not remembered.
	w.req.Keyring = ""
	if _, err := w.load(t, s, claim("ann")); err != nil {
		t.Fatal(err)
	}
	n, err := w.req.node(nodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := w.req.readSum(n); err != nil || rec.SHA256 == "" || rec.Signer != "" || rec.Keyring != "" {
		t.Errorf("%+v, %v", rec, err)
	}
	// What was checked here stays as it was remembered.
	w, s = target(t)
	w.req.NodeVersion = nodeVersion
	w.asks("ann")
	checked := sumRecord{n.File(), n.SHA256, "x", time.Now().UTC(), "fingerprint of ann", w.req.Keyring}
	if err := writeRecord(w.req.sumFile(n), checked); err != nil {
		t.Fatal(err)
	}
	if _, err := w.load(t, s, data); err != nil {
		t.Error(err)
	}
	if rec, err := w.req.readSum(n); err != nil || rec.Keyring != w.req.Keyring {
		t.Errorf("%+v, %v", rec, err)
	}
	// Another checksum than that of here is no archive of ours.
	w, s = target(t)
	w.req.NodeVersion = nodeVersion
	checked.SHA256 = sumOfBytes("another")
	if err := writeRecord(w.req.sumFile(n), checked); err != nil {
		t.Fatal(err)
	}
	before := w.files(t)
	if _, err := w.load(t, s, data); err == nil || !strings.Contains(err.Error(), "find out which is right") {
		t.Errorf("%v", err)
	}
	w.same(t, s, before, 0)
}

// What another process has built of the same recipe since the plan was made is what is
// saved, and no process builds, and so removes what it replaces, while it is copied.
func TestSaveWhileBuilding(t *testing.T) {
	w, s, _ := saved(t, nil)
	fetch, _ := baseOf(t, "the base")
	p, err := w.req.Plan()
	if err != nil {
		t.Fatal(err)
	}
	want := p.Gate.ID
	p.Gate.ID = strings.Repeat("ab", 32) // that of before, which is gone
	held := 0
	err = w.req.Save(t.Context(), s, w.opt, &p, io.Discard, func(ctx context.Context, ref image.Reference, to *archive.Writer) (archive.Descriptor, error) {
		for _, img := range []Image{p.Gate, p.Sandbox} {
			unlock, ok, err := tryLock(filepath.Join(w.req.buildDir(), string(img.Kind)+"-"+img.Tag+".lock"))
			switch {
			case err != nil:
				t.Error(err)
			case ok:
				unlock()
			default:
				held++
			}
		}
		return fetch(ctx, ref, to)
	})
	if err != nil || p.Gate.ID != want || held != 2 {
		t.Errorf("%v, the gate is %s, %d locks held", err, p.Gate.ID, held)
	}
	// With none of them any more it says so.
	if err := os.Remove(w.req.imagePath(p.Sandbox.Kind, p.Sandbox.Tag, ".json")); err != nil {
		t.Fatal(err)
	}
	if err := w.req.Save(t.Context(), s, w.opt, &p, io.Discard, fetch); err == nil || !strings.Contains(err.Error(), "gone meanwhile: try again") {
		t.Errorf("%v", err)
	}
}
