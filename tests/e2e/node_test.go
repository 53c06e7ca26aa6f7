//go:build e2e

package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ai-sandbox/image"
	"ai-sandbox/tests/e2e/drive"
)

// A nodeSite is a download site for Node, on loopback.
type nodeSite struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte
	// status and cut are for a file by the end of its path: what is answered, and how
	// many bytes of it come before the connection breaks off.
	status, cut map[string]int
}

func newNodeSite(t *testing.T) *nodeSite {
	t.Helper()
	s := &nodeSite{}
	s.mend()
	s.files = map[string][]byte{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		data, ok := s.files[strings.TrimPrefix(r.URL.Path, "/")]
		status := http.StatusOK
		if !ok {
			status = http.StatusNotFound
		}
		for end, code := range s.status {
			if strings.HasSuffix(r.URL.Path, end) {
				status = code
			}
		}
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		for end, n := range s.cut {
			if strings.HasSuffix(r.URL.Path, end) {
				data = data[:min(n, len(data))]
			}
		}
		_, _ = w.Write(data) // a client that is gone is judged by what it says
	}))
	t.Cleanup(s.Close)
	return s
}

// set puts a file there; nil takes it away.
func (s *nodeSite) set(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[name] = data; data == nil {
		delete(s.files, name)
	}
}

// spoil changes what it does, until mend.
func (s *nodeSite) spoil(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *nodeSite) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.cut = map[string]int{}, map[string]int{}
}

// signedVersion is the Node that testdata/node has a signed list of.
const signedVersion = "22.99.0"

func nodeTarball(version string) string {
	n, err := image.NewNode(version, "amd64")
	if err != nil {
		panic(err)
	}
	return n.File()
}

// kept is what of Node is in the cache: tarballs, parts of them, and checksums.
func (p *pinBox) kept() []string {
	p.T.Helper()
	var out []string
	entries, err := os.ReadDir(filepath.Join(p.cache, "ai-sandbox", "node"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.T.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			out = append(out, e.Name())
		}
	}
	return out
}

// sandboxes are the sandbox's images on the box's base, by their names.
func (p *pinBox) sandboxes() []string {
	p.T.Helper()
	return strings.Fields(drive.Output(p.T, "podman", "images", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "label=aisb.base-ref="+p.ref, "--filter", "label=aisb.kind=sandbox",
		"--filter", "reference=localhost/ai-sandbox"))
}

// A tarball that was tampered with, another checksum, a download that breaks off, a
// server that answers 500, a list that nobody whom the user trusts has signed: each
// ends the build, and nothing is kept of it.
func TestBadNode(t *testing.T) {
	t.Parallel()
	p := newPinBox(t)
	p.base = strings.ReplaceAll(p.base, "echo v"+setting(t, "AISB_NODE_VERSION"), "echo v"+signedVersion)
	p.push("node")
	site := newNodeSite(t)
	data := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", "node", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tarball := nodeTarball(signedVersion)
	right := func() {
		t.Helper()
		site.mend()
		for name, file := range map[string]string{"SHASUMS256.txt": "SHASUMS256.txt", "SHASUMS256.txt.sig": "SHASUMS256.txt.sig", tarball: "tarball"} {
			site.set("v"+signedVersion+"/"+name, data(file))
		}
	}
	p.Env = append(p.Env, "AISB_NODE_MIRROR="+site.URL, "AISB_NODE_VERSION="+signedVersion)
	keyring := func(name string) []string {
		path, err := filepath.Abs(filepath.Join("testdata", "node", name))
		if err != nil {
			t.Fatal(err)
		}
		return []string{"AISB_NODE_KEYRING=" + path}
	}
	tampered := append([]byte("x"), data("tarball")[1:]...)
	tamper := func() { // both, so that one is the other's
		site.files["v"+signedVersion+"/"+tarball] = tampered
		site.files["v"+signedVersion+"/SHASUMS256.txt"] = fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(tampered), tarball)
	}
	for _, c := range []struct {
		name  string
		env   []string
		spoil func()
		want  string
	}{
		{"no site", []string{"AISB_NODE_MIRROR=http://127.0.0.1:1"}, func() {}, "connection refused"},
		{"500 for the list", nil, func() { site.status["/SHASUMS256.txt"] = 500 }, "the site answers 500"},
		{"half a list", nil, func() { site.cut["/SHASUMS256.txt"] = 10 }, "SHASUMS256.txt: unexpected EOF"},
		{"a list without it", nil, func() { site.files["v"+signedVersion+"/SHASUMS256.txt"] = []byte("x  y\n") }, "has none for " + tarball},
		{"no signature", keyring("signer.gpg"), func() { site.status["/SHASUMS256.txt.sig"] = 404 }, "SHASUMS256.txt.sig: the site answers 404"},
		{"500 for the signature", keyring("signer.gpg"), func() { site.status["/SHASUMS256.txt.sig"] = 500 }, "SHASUMS256.txt.sig: the site answers 500"},
		{"half a signature", keyring("signer.gpg"), func() { site.cut["/SHASUMS256.txt.sig"] = 10 }, "SHASUMS256.txt.sig: unexpected EOF"},
		{"a signature of somebody else", keyring("other.gpg"), func() {}, "signed with a key that is not in the keyring"},
		{"a changed list", keyring("signer.gpg"), func() {
			site.files["v"+signedVersion+"/SHASUMS256.txt"] = append(data("SHASUMS256.txt"), "\n"...)
		}, "one of the two was changed"},
		{"no signature in it", keyring("signer.gpg"), func() { site.files["v"+signedVersion+"/SHASUMS256.txt.sig"] = []byte("x") }, "no signature that gpgv understands"},
		{"no keyring", keyring("nowhere.gpg"), func() {}, "does not exist"},
		// From here on the list is signed, and its checksum not remembered without a tarball.
		{"500 for the tarball", keyring("signer.gpg"), func() { site.status[".tar.xz"] = 500 }, "the site answers 500"},
		{"a tampered tarball", nil, func() { site.files["v"+signedVersion+"/"+tarball] = tampered }, "not the release that was written down"},
		{"a longer tarball", nil, func() { site.files["v"+signedVersion+"/"+tarball] = append(data("tarball"), 'x') }, "not the release that was written down"},
		{"a truncated download", nil, func() { site.cut[".tar.xz"] = 10 }, "unexpected EOF"},
		{"a wrong hash", nil, func() {
			site.files["v"+signedVersion+"/SHASUMS256.txt"] = fmt.Appendf(nil, "%064x  %s\n", 1, tarball)
		}, "the list of checksums there has 0000"},
		// The recipe's own version has its checksum in the recipe, whatever a site says.
		{"the recipe's own version", []string{"AISB_NODE_VERSION=" + image.DefaultNode}, func() {
			site.files["v"+image.DefaultNode+"/"+nodeTarball(image.DefaultNode)] = data("tarball")
		}, "and ai-sandbox has "},
	} {
		right()
		site.spoil(c.spoil)
		r := p.with(c.env, "build")
		if r.Code != 1 || !strings.Contains(r.Err, c.want) {
			t.Errorf("%s: want %q: %s", c.name, c.want, r)
		}
		if kept := p.kept(); len(kept) > 0 {
			t.Errorf("%s: %q is kept", c.name, kept)
		}
		if made := p.sandboxes(); len(made) > 0 {
			t.Errorf("%s: %q is there", c.name, made)
		}
	}
	// The control: the same site, as it should be.
	right()
	has(t, p.with(keyring("signer.gpg"), "build"), 0)
	if len(p.kept()) != 2 || len(p.sandboxes()) != 1 {
		t.Errorf("kept %q, built %q", p.kept(), p.sandboxes())
	}
	record := readOne(t, filepath.Join(p.cache, "ai-sandbox", "node", tarball+".json"))
	if !strings.Contains(record, `"signer": "`) {
		t.Errorf("the record names no signer: %s", record)
	}
	// A tarball in the cache is looked at each time, and what is remembered stays.
	cached := filepath.Join(p.cache, "ai-sandbox", "node", slices.DeleteFunc(p.kept(), func(name string) bool { return strings.HasSuffix(name, ".json") })[0])
	if err := os.WriteFile(cached, tampered, 0o600); err != nil {
		t.Fatal(err)
	}
	site.spoil(func() { site.status[".tar.xz"] = 500 })
	forgetful := []string{"XDG_STATE_HOME=" + p.state + "-2"} // knows of no image
	has(t, p.with(forgetful, "build"), 1, "the site answers 500")
	right()
	site.spoil(tamper)
	has(t, p.with(forgetful, "build"), 1, "not the release that was written down", site.URL+" said ")
	right()
	has(t, p.with(forgetful, "build"), 0)
	if b, err := os.ReadFile(cached); err != nil || string(b) != string(data("tarball")) {
		t.Errorf("cached: %.40q, %v", b, err)
	}
}
