package registry

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
	"ai-sandbox/image/archive"
)

// Of an index, as the default base is one, the index itself and this machine's image are
// copied, and no other: the copy is read back, and has the digest that the base is pinned
// to. So it is with an index that lists the image twice, and with an image that is in none.
func TestCopy(t *testing.T) {
	const (
		typeIndex    = "application/vnd.oci.image.index.v1+json"
		typeManifest = "application/vnd.oci.image.manifest.v1+json"
	)
	s := newSigner(t)
	put := func(kind string, v any) map[string]any {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"mediaType": kind, "digest": s.put(string(b)), "size": len(b)}
	}
	made := func(arch, text string) (manifest, config map[string]any) {
		t.Helper()
		var layer bytes.Buffer
		z := gzip.NewWriter(&layer)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		config = put("application/vnd.oci.image.config.v1+json", map[string]any{"architecture": arch, "os": "linux",
			"rootfs": map[string]any{"type": "layers", "diff_ids": []digest.Digest{digest.FromString(text)}}})
		manifest = put(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []any{
			map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": s.put(layer.String()), "size": layer.Len()}}})
		manifest["platform"] = map[string]any{"architecture": arch, "os": "linux"}
		return manifest, config
	}
	foreign := "riscv64"
	if runtime.GOARCH == foreign {
		foreign = "amd64"
	}
	ours, config := made(runtime.GOARCH, "ours")
	other, _ := made(foreign, "other")
	index := func(list ...any) map[string]any {
		return put(typeIndex, map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": list})
	}
	for name, top := range map[string]map[string]any{"an index": index(other, ours), "an index with it twice": index(ours, other, ours), "one image": ours} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			w, err := archive.NewWriter(&file)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := top["digest"].(digest.Digest)
			at, err := Copy(t.Context(), image.Reference{Name: s.host + "/team/base", Digest: want}, s.o, w)
			if err != nil || at.Digest != want {
				t.Fatalf("%+v, %v", at, err)
			}
			if err := w.Close([]archive.Descriptor{at}); err != nil {
				t.Fatal(err)
			}
			r, err := archive.Open(t.Context(), bytes.NewReader(file.Bytes()), int64(file.Len()))
			if err != nil {
				t.Fatal(err)
			}
			img, err := r.Image(t.Context(), at, Decompress)
			if err != nil || img.Top.Digest != want || img.Manifest.Digest != ours["digest"] || img.Config.Digest != config["digest"] {
				t.Errorf("%+v, %v", img, err)
			}
			if err := r.Unused(); err != nil {
				t.Error(err)
			}
			if d, _ := other["digest"].(digest.Digest); strings.Contains(file.String(), "blobs/sha256/"+d.Encoded()) {
				t.Error("another machine's image is in it")
			}
		})
	}
	// What the registry has lost or replaced is an error.
	layer := digest.FromString("nothing")
	broken := put(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config,
		"layers": []any{map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": 7}}})
	d, _ := broken["digest"].(digest.Digest)
	w, err := archive.NewWriter(&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := Copy(t.Context(), image.Reference{Name: s.host + "/team/base", Digest: d}, s.o, w); err == nil {
		t.Errorf("without a layer: %+v", at)
	}
	s.blobs[layer] = []byte("another")
	if at, err := Copy(t.Context(), image.Reference{Name: s.host + "/team/base", Digest: d}, s.o, w); err == nil || !strings.Contains(err.Error(), "is something else") {
		t.Errorf("with another layer: %+v, %v", at, err)
	}
}
