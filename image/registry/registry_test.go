package registry

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

const (
	index = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":7,"platform":{"architecture":"amd64","os":"linux"}}]}`
	single = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":2},"layers":[]}`
)

// anything is a policy.json that accepts anything.
const anything = `{"default":[{"type":"insecureAcceptAnything"}]}`

// serve is a registry without TLS, and the configuration that allows it.
func serve(t *testing.T, insecure bool) (host string, o Options) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body, kind string
		switch r.URL.Path {
		case "/v2/":
			return
		case "/v2/debian/manifests/multi":
			body, kind = index, "application/vnd.oci.image.index.v1+json"
		case "/v2/debian/manifests/single":
			body, kind = single, "application/vnd.oci.image.manifest.v1+json"
		case "/v2/debian/manifests/liar":
			w.Header().Set("Docker-Content-Digest", string(digest.FromString("something else")))
			body, kind = single, "application/vnd.oci.image.manifest.v1+json"
		case "/v2/debian/manifests/broken":
			w.WriteHeader(http.StatusInternalServerError)
			return
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	dir := t.TempDir()
	o = Options{RegistriesConf: filepath.Join(dir, "registries.conf"), AuthFile: filepath.Join(dir, "auth.json")}
	text := ""
	if insecure {
		text = "[[registry]]\nlocation = \"" + host + "\"\ninsecure = true\n"
	}
	o.PolicyFile, o.RegistriesDir = filepath.Join(dir, "policy.json"), dir
	for path, text := range map[string]string{o.RegistriesConf: text, o.AuthFile: "{}", o.PolicyFile: anything} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return host, o
}

func TestResolve(t *testing.T) {
	host, o := serve(t, true)
	for tag, want := range map[string]string{
		"multi":  index, // the index's own digest, not an architecture's
		"single": single,
		"liar":   single, // what was sent counts, not what was said of it
		"broken": "",
		"gone":   "",
	} {
		got, err := Resolve(t.Context(), image.Reference{Name: host + "/debian", Tag: tag}, o)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "resolve "+host+"/debian:"+tag)):
			t.Errorf("%s: %q, %v", tag, got, err)
		case want != "" && (err != nil || got != digest.FromString(want)):
			t.Errorf("%s: %q, %v", tag, got, err)
		}
	}
}

// Without TLS only where registries.conf says so.
func TestResolveNeedsTLS(t *testing.T) {
	host, o := serve(t, false)
	if got, err := Resolve(t.Context(), image.Reference{Name: host + "/debian", Tag: "single"}, o); err == nil {
		t.Errorf("resolved to %s without TLS", got)
	}
}

func TestResolveDigest(t *testing.T) {
	d := digest.FromString("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody is asked
	host, o := serve(t, true)
	if got, err := Resolve(ctx, image.Reference{Name: "a.example/b", Tag: "t", Digest: d}, o); got != d || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Resolve(ctx, image.Reference{Name: host + "/debian", Tag: "single"}, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
