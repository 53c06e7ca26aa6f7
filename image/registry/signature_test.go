package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// A signer is a registry without TLS with a key of its own, and a configuration under
// which signatures are looked for in it.
type signer struct {
	t     *testing.T
	host  string
	o     Options
	key   *ecdsa.PrivateKey
	path  string            // of the public key
	tags  map[string][]byte // repository:tag to manifest
	blobs map[digest.Digest][]byte
	asked int
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t, tags: map[string][]byte{}, blobs: map[digest.Digest][]byte{}}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	s.o = Options{RegistriesConf: filepath.Join(dir, "registries.conf"), AuthFile: filepath.Join(dir, "auth.json"),
		PolicyFile: filepath.Join(dir, "policy.json"), RegistriesDir: dir}
	s.path = filepath.Join(dir, "key.pub")
	s.newKey()
	for path, text := range map[string]string{
		s.o.RegistriesConf: "[[registry]]\nlocation = \"" + s.host + "\"\ninsecure = true\n", s.o.AuthFile: "{}", s.o.PolicyFile: anything,
		filepath.Join(dir, "attachments.yaml"): "default-docker: {use-sigstore-attachments: true}\n",
	} {
		s.write(path, text)
	}
	return s
}

func (s *signer) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// newKey makes another key, whose public part is in the same file.
func (s *signer) newKey() {
	s.t.Helper()
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(s.path, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

func (s *signer) serve(w http.ResponseWriter, r *http.Request) {
	s.asked++
	repo, what, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	if r.URL.Path == "/v2/" {
		return
	}
	body := s.tags[repo+":"+what]
	if body == nil {
		body = s.blobs[digest.Digest(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])]
	}
	if body == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if ok {
		var m struct{ MediaType string }
		if err := json.Unmarshal(body, &m); err != nil {
			s.t.Error(err)
		}
		w.Header().Set("Content-Type", m.MediaType)
	}
	w.Write(body)
}

func (s *signer) put(body string) digest.Digest {
	d := digest.FromString(body)
	s.blobs[d] = []byte(body)
	return d
}

// push gives a manifest a tag.
func (s *signer) push(repo, tag, body string) digest.Digest {
	s.tags[repo+":"+tag] = []byte(body)
	return s.put(body)
}

// sign attaches a signature to an image in a repository, in cosign's way: it says that
// the image is called name.
func (s *signer) sign(repo, name string, d digest.Digest) {
	s.t.Helper()
	payload := fmt.Sprintf(`{"critical":{"type":"cosign container image signature","image":{"docker-manifest-digest":%q},"identity":{"docker-reference":%q}},"optional":null}`, d, name)
	sum := sha256.Sum256([]byte(payload))
	sig, err := ecdsa.SignASN1(rand.Reader, s.key, sum[:])
	if err != nil {
		s.t.Fatal(err)
	}
	m := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":2},
"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","digest":%q,"size":%d,"annotations":{"dev.cosignproject.cosign/signature":%q}}]}`,
		s.put("{}"), s.put(payload), len(payload), base64.StdEncoding.EncodeToString(sig))
	s.push(repo, strings.Replace(string(d), ":", "-", 1)+".sig", m)
}

// demand writes a policy.json with these scopes.
func (s *signer) demand(fallback string, scopes map[string]string) {
	s.t.Helper()
	list := []string{}
	for scope, rule := range scopes {
		list = append(list, fmt.Sprintf("%q:[%s]", scope, rule))
	}
	s.write(s.o.PolicyFile, `{"default":[`+fallback+`],"transports":{"docker":{`+strings.Join(list, ",")+`}}}`)
}

func (s *signer) signed() string {
	return fmt.Sprintf(`{"type":"sigstoreSigned","keyPath":%q}`, s.path)
}

const (
	accepts = `{"type":"insecureAcceptAnything"}`
	rejects = `{"type":"reject"}`
)

func oneImage(n int) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%064x","size":2},"layers":[]}`, n)
}

// What is accepted and what is refused, each beside the other.
func TestSignature(t *testing.T) {
	s := newSigner(t)
	one := s.push("team/base", "x", oneImage(1))
	s.push("team/base", "copy", oneImage(1))
	s.push("team/elsewhere", "x", oneImage(1))
	s.push("other/base", "x", oneImage(1))
	s.sign("team/base", s.host+"/team/base:x", one)
	arch := s.put(oneImage(2))
	list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%064x","size":7,"platform":{"architecture":"other","os":"linux"}},
{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d,"platform":{"architecture":%q,"os":"linux"}}]}`, 3, arch, len(oneImage(2)), runtime.GOARCH)
	many := s.push("team/base", "many", list)
	s.push("team/base", "unsigned", list+" ")
	s.sign("team/base", s.host+"/team/base:many", arch)

	for name, c := range map[string]struct {
		fallback string
		scope    string // below the host, or "-": none
		rule     string
		ref      string
		want     digest.Digest // "": refused
		free     bool          // nothing is demanded
	}{
		"nothing is demanded":                   {accepts, "-", "", "other/base:x", one, true},
		"signed":                                {accepts, "", s.signed(), "team/base:x", one, false},
		"another tag of it":                     {accepts, "", s.signed(), "team/base:copy", "", false},
		"in another repository":                 {accepts, "", s.signed(), "team/elsewhere:x", "", false},
		"of several architectures":              {accepts, "", s.signed(), "team/base:many", many, false},
		"its copy that differs":                 {accepts, "", s.signed(), "team/base:unsigned", "", false},
		"by digest":                             {accepts, "", s.signed(), "team/base@" + string(one), one, false},
		"by digest, of another repository":      {accepts, "", s.signed(), "other/base@" + string(one), "", false},
		"the namespace":                         {rejects, "/team", s.signed(), "team/base:x", one, false},
		"not of the namespace":                  {accepts, "/team", s.signed(), "other/base:x", one, true},
		"not of the namespace, but all else is": {s.signed(), "/team", accepts, "other/base:x", "", false},
		"the namespace may be anything":         {s.signed(), "/team", accepts, "team/elsewhere:x", one, true},
		"nothing is accepted":                   {rejects, "-", "", "team/base:x", "", false},
		"the tag alone":                         {accepts, "/team/base:copy", s.signed(), "team/base:copy", "", false},
		"the tag alone, pinned":                 {accepts, "/other/base:x", s.signed(), "other/base:x@" + string(one), "", false},
		"the tag alone, signed and pinned":      {accepts, "/team/base:x", s.signed(), "team/base:x@" + string(one), one, false},
	} {
		t.Run(name, func(t *testing.T) {
			scopes := map[string]string{}
			if c.scope != "-" {
				scopes[s.host+c.scope] = c.rule
			}
			s.demand(c.fallback, scopes)
			ref, err := image.ParseReference(s.host + "/" + c.ref)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Resolve(t.Context(), ref, s.o)
			var refused *image.RefusedError
			if got != c.want || errors.As(err, &refused) != (c.want == "") || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v", got, err)
			}
			if d, err := Demands(ref, s.o); err != nil || (d == "") != c.free {
				t.Errorf("demands %q, %v", d, err)
			}
		})
	}
}

// What a tag was pinned to is judged as that tag, wherever it leads today; podman, and who
// names a digest, take a signature of any tag.
func TestAccept(t *testing.T) {
	s := newSigner(t)
	one := s.push("team/base", "x", oneImage(1))
	s.sign("team/base", s.host+"/team/base:x", one)
	s.push("team/base", "copy", oneImage(1))
	arch := s.put(oneImage(2))
	many := s.put(fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":%q,"size":%d,"platform":{"architecture":%q,"os":"linux"}}]}`, arch, len(oneImage(2)), runtime.GOARCH))
	s.sign("team/base", s.host+"/team/base:many", arch)
	gone := s.put(oneImage(3))
	s.sign("team/base", s.host+"/team/base:gone", gone)
	s.push("team/base", "moved", oneImage(4))
	anyTag := fmt.Sprintf(`{"type":"sigstoreSigned","keyPath":%q,"signedIdentity":{"type":"matchRepository"}}`, s.path)
	for name, c := range map[string]struct {
		rule, tag string
		pinned    digest.Digest
		want      bool
	}{
		"signed":                                   {s.signed(), "x", one, true},
		"another tag of it":                        {s.signed(), "copy", one, false},
		"another tag of it, where any will do":     {anyTag, "copy", one, true},
		"of several architectures":                 {s.signed(), "many", many, true},
		"of several architectures, as another tag": {s.signed(), "x", many, false},
		"its tag is gone":                          {s.signed(), "gone", gone, true},
		"its tag has moved":                        {s.signed(), "moved", one, false},
		"not signed":                               {s.signed(), "moved", digest.FromString(oneImage(4)), false},
		"nothing is demanded":                      {accepts, "copy", one, true},
		"not there, and nothing is demanded":       {accepts, "copy", digest.FromString("x"), true},
		"nothing is accepted":                      {rejects, "x", one, false},
	} {
		t.Run(name, func(t *testing.T) {
			s.demand(c.rule, nil)
			err := Accept(t.Context(), image.Reference{Name: s.host + "/team/base", Tag: c.tag}, c.pinned, s.o)
			var refused *image.RefusedError
			if (err == nil) != c.want || errors.As(err, &refused) == c.want {
				t.Errorf("%v", err)
			}
			// The control: by the digest alone.
			if _, err := Resolve(t.Context(), image.Reference{Name: s.host + "/team/base", Digest: one}, s.o); (err == nil) != (c.rule != rejects) {
				t.Errorf("by digest: %v", err)
			}
		})
	}
	// What is not there any more was judged by nobody.
	s.demand(s.signed(), nil)
	var refused *image.RefusedError
	if err := Accept(t.Context(), image.Reference{Name: s.host + "/team/base", Tag: "x"}, digest.FromString("x"), s.o); err == nil || errors.As(err, &refused) {
		t.Errorf("an image that is gone: %v", err)
	}
	s.write(s.o.PolicyFile, "{")
	if err := Accept(t.Context(), image.Reference{Name: s.host + "/team/base", Tag: "x"}, one, s.o); !errors.As(err, &refused) {
		t.Errorf("no policy.json: %v", err)
	}
}

// Another key refuses, and what is demanded is then something else.
func TestSignatureOfAnotherKey(t *testing.T) {
	s := newSigner(t)
	d := s.push("team/base", "x", oneImage(1))
	s.sign("team/base", s.host+"/team/base:x", d)
	s.demand(rejects, map[string]string{s.host: s.signed()})
	ref := image.Reference{Name: s.host + "/team/base", Tag: "x"}
	if got, err := Resolve(t.Context(), ref, s.o); got != d || err != nil {
		t.Fatalf("the control: %q, %v", got, err)
	}
	was, err := Demands(ref, s.o)
	if err != nil || was == "" {
		t.Fatalf("%q, %v", was, err)
	}
	if again, err := Demands(ref, s.o); again != was || err != nil {
		t.Errorf("%q and %q, %v", was, again, err)
	}
	s.newKey()
	var refused *image.RefusedError
	if got, err := Resolve(t.Context(), ref, s.o); !errors.As(err, &refused) {
		t.Errorf("%q, %v", got, err)
	}
	if now, err := Demands(ref, s.o); now == was || err != nil {
		t.Errorf("%q and %q, %v", was, now, err)
	}
}

// No policy.json, or one that can't be obeyed: nothing is accepted, and nobody asked.
func TestPolicyUnusable(t *testing.T) {
	s := newSigner(t)
	d := s.push("team/base", "x", oneImage(1))
	ref := image.Reference{Name: s.host + "/team/base", Tag: "x"}
	if got, err := Resolve(t.Context(), ref, s.o); got != d || err != nil {
		t.Fatalf("the control: %q, %v", got, err)
	}
	for name, text := range map[string]string{
		"gone": "", "not JSON": "{", "no default": `{"transports":{}}`, "a field that nobody knows": `{"default":[` + accepts + `],"more":1}`,
		"a rule that nobody knows": `{"default":[{"type":"trustMe"}]}`, "no rules": `{"default":[]}`,
		"a key that is gone": `{"default":[{"type":"sigstoreSigned","keyPath":"/nowhere/key.pub"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.write(s.o.PolicyFile, text)
			if text == "" {
				if err := os.Remove(s.o.PolicyFile); err != nil {
					t.Fatal(err)
				}
			}
			s.asked = 0
			var refused *image.RefusedError
			if got, err := Demands(ref, s.o); !errors.As(err, &refused) {
				t.Errorf("demands %q, %v", got, err)
			}
			if got, err := Resolve(t.Context(), ref, s.o); err == nil || (s.asked > 0) != (name == "a key that is gone") {
				t.Errorf("%q, %v, asked %d times", got, err, s.asked)
			}
			for _, r := range []image.Reference{{Name: ref.Name, Digest: d}, ref} {
				if got, err := Resolve(t.Context(), r, s.o); err == nil {
					t.Errorf("%s: %q", r, got)
				}
			}
		})
	}
}

// BenchmarkDemands is on the way of every start.
func BenchmarkDemands(b *testing.B) {
	path := filepath.Join(b.TempDir(), "policy.json")
	if err := os.WriteFile(path, []byte(anything), 0o600); err != nil {
		b.Fatal(err)
	}
	ref, err := image.ParseReference(image.DefaultBase)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Demands(ref, Options{PolicyFile: path}); err != nil {
			b.Fatal(err)
		}
	}
}
