//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A badRegistry is the tests' registry, until a test changes what it answers.
type badRegistry struct {
	*httptest.Server
	mu   sync.Mutex
	part string // of the paths at which something changes
	how  func(r *http.Response, body []byte) []byte
}

func newBadRegistry(t *testing.T) *badRegistry {
	t.Helper()
	b := &badRegistry{}
	honest := &url.URL{Scheme: "http", Host: "127.0.0.1:5000"}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(honest) },
		ErrorLog: log.New(io.Discard, "", 0), // of what breaks off, the tests tell
		ModifyResponse: func(r *http.Response) error {
			b.mu.Lock()
			part, how := b.part, b.how
			b.mu.Unlock()
			if how == nil || !strings.Contains(r.Request.URL.Path, part) {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			r.Body = io.NopCloser(bytes.NewReader(how(r, body)))
			return nil
		},
	})
	t.Cleanup(b.Close)
	return b
}

// spoil changes what it answers at the paths with a part; nil ends that.
func (b *badRegistry) spoil(part string, how func(*http.Response, []byte) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.part, b.how = part, how
}

// A registry that answers 500, breaks off, or serves something else than the digest says:
// nothing is pinned, fetched or built of it, an update fails, and with the honest one all
// is well.
func TestBadRegistry(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	h := newHome(t, p.Token)
	bad := newBadRegistry(t)
	host := strings.TrimPrefix(bad.URL, "http://")
	h.write("registries.conf", "[[registry]]\nlocation = \""+host+"\"\ninsecure = true\n")
	p.Env = append(p.Env, h.env...)
	p.Env = append(p.Env, "AISB_BASE="+host+strings.TrimPrefix(p.ref, "127.0.0.1:5000"))

	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal([]byte(readOne(t, registryBlob(p.one))), &manifest); err != nil || len(manifest.Layers) < 2 {
		t.Fatalf("%d layers, %v", len(manifest.Layers), err)
	}
	layer := "/blobs/" + manifest.Layers[len(manifest.Layers)-1].Digest
	fails := func(r *http.Response, _ []byte) []byte {
		r.StatusCode, r.Status, r.ContentLength = http.StatusInternalServerError, "", 2
		r.Header.Set("Content-Length", "2")
		return []byte("{}")
	}
	breaksOff := func(_ *http.Response, b []byte) []byte { return b[:len(b)/2] }
	anotherByte := func(r *http.Response, b []byte) []byte {
		if len(b) > 0 { // a HEAD has none
			b[len(b)/2] ^= 1
		}
		return b
	}
	empty := func(after string) {
		t.Helper()
		if out := h.podman("images", "-aq"); out != "" {
			t.Errorf("%s: %s is there", after, out)
		}
		if left := find(t, "podman", "build", h.dir); len(left) > 0 {
			t.Errorf("%s: %v runs", after, left)
		}
	}

	// Pinned, and no further: there is no Node.
	has(t, p.with([]string{"AISB_NODE_MIRROR=http://127.0.0.1:1"}, "build"), 1, "connection refused")
	for _, c := range []struct {
		name, at string
		how      func(*http.Response, []byte) []byte
		want     string
	}{
		{"500 for the manifest", "/manifests/" + p.one, fails, "500"},
		{"another manifest", "/manifests/" + p.one, anotherByte, "does not match provided manifest digest"},
		{"half a manifest", "/manifests/" + p.one, breaksOff, "unexpected EOF"},
		{"500 for a layer", layer, fails, "500"},
		{"a layer with another byte", layer, anotherByte, "Digest did not match"},
		{"half a layer", layer, breaksOff, "unexpected EOF"},
		{"another configuration", "/blobs/" + manifest.Config.Digest, anotherByte, "does not match expected"},
	} {
		bad.spoil(c.at, c.how)
		r := p.Run("build")
		if r.Code != 1 || !strings.Contains(r.Err, "step 1 of") || !strings.Contains(r.Err, c.want) {
			t.Errorf("%s: %s", c.name, r)
		}
		empty(c.name)
		if got := p.digest(); got != p.one {
			t.Errorf("%s: pinned to %s now", c.name, got)
		}
	}
	// Of another tag nothing is known, and nothing can be found out.
	bad.spoil("/manifests/", fails)
	another := []string{"AISB_BASE=" + host + strings.TrimSuffix(strings.TrimPrefix(p.ref, "127.0.0.1:5000"), ":x") + ":y"}
	has(t, p.with(another, "build"), 1, "UNPINNED", "step 1 of")
	has(t, p.with(another, "--print-policy", "--", "true"), 0, "UNPINNED")
	empty("500 for a tag")
	// What can't be found out is neither yes nor no.
	has(t, p.Run("update"), 1, "500")
	has(t, p.Run("update", "--check"), 2, "500")
	if got := p.digest(); got != p.one {
		t.Errorf("pinned to %s by an update", got)
	}
	// The control.
	bad.spoil("", nil)
	has(t, p.Run("build"), 0)
	has(t, p.OK("--net", "none", "--", "cat", "/etc/variant"), 0, "one\n")
}

// registryBlob is where the tests' registry keeps what has a digest.
func registryBlob(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return filepath.Join("/run/aisb-test/data/registry/docker/registry/v2/blobs/sha256", hex[:2], hex, "data")
}
