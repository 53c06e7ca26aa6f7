// Fetching Node: what a site says is checked before it is kept.

package imagebuild

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/image"
)

// DefaultNodeSite is where Node is fetched from.
const DefaultNodeSite = "https://nodejs.org/dist"

// Bounds on what is fetched, and on how long a site may be silent.
const (
	maxTarball = 512 << 20
	maxSums    = 1 << 20
	maxIndex   = 16 << 20
	silence    = 60 * time.Second
)

// learnSum asks the site for the checksum of a release that the recipe has none
// for, and remembers it with the tarball that has it: it is trusted at first use, and
// never replaced. Where there is a keyring, one of its keys has to have signed it.
func (r Request) learnSum(ctx context.Context, o Options, n image.Node) error {
	unlock, err := r.lockNode(ctx, o)
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have learnt it meanwhile.
	if sum, err := r.recordedSum(n); err != nil || sum != "" {
		return err
	}
	known, err := r.readSum(n)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	site, err := r.get(ctx, n.Dir()+"/SHASUMS256.txt", maxSums, &list, nil)
	if err != nil {
		return err
	}
	signer := ""
	if r.Keyring != "" {
		var signature bytes.Buffer
		if _, err := r.get(ctx, n.Dir()+"/SHASUMS256.txt.sig", maxSums, &signature, nil); err != nil {
			return err
		}
		if signer, err = r.Verify(ctx, list.Bytes(), signature.Bytes()); err != nil {
			return fmt.Errorf("check the signature of the list of checksums at %s for node %s: %w", site, n.Version, err)
		}
	}
	sum := ""
	lines := bufio.NewScanner(&list)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 2 && f[1] == n.File() {
			sum = f[0]
		}
	}
	if digest.NewDigestFromEncoded(digest.SHA256, sum).Validate() != nil {
		return fmt.Errorf("the list of checksums at %s has none for %s", site, n.File())
	}
	if known.SHA256 != "" && known.SHA256 != sum {
		return fmt.Errorf("%s has the checksum %s for %s now, and %s said %s on %s: remove %s to trust what is signed today",
			site, sum, n.File(), known.Site, known.SHA256, known.Seen.Format(time.DateOnly), r.sumFile(n))
	}
	// A wrong one that was remembered would refuse the honest site for good.
	if n.SHA256 = sum; known.SHA256 == "" {
		if _, err := r.cacheTarball(ctx, o, n); err != nil {
			return err
		}
	}
	return writeRecord(r.sumFile(n), sumRecord{File: n.File(), SHA256: sum, Site: site, Seen: time.Now().UTC(), Signer: signer, Keyring: r.Keyring})
}

func (r Request) nodeLock() string { return filepath.Join(r.CacheDir, "node", "lock") }

// lockNode has one process at a time ask about Node, and fetch it.
func (r Request) lockNode(ctx context.Context, o Options) (unlock func(), err error) {
	path := r.nodeLock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return lock(ctx, path, func() { o.Say("waiting for another ai-sandbox that fetches Node") })
}

// placeTarball puts the tarball at dst.
func (r Request) placeTarball(ctx context.Context, o Options, n image.Node, dst string) error {
	unlock, err := r.lockNode(ctx, o)
	if err != nil {
		return err
	}
	defer unlock()
	cached, err := r.cacheTarball(ctx, o, n)
	if err != nil {
		return err
	}
	return copyFile(cached, dst)
}

// cacheTarball says where the tarball is, and fetches it if it is not cached. What is
// cached is checked each time. The caller holds the lock.
func (r Request) cacheTarball(ctx context.Context, o Options, n image.Node) (path string, err error) {
	dir := filepath.Dir(r.nodeLock())
	// The name has the checksum: a cache holds releases of several sites.
	path = filepath.Join(dir, strings.TrimSuffix(n.File(), ".tar.xz")+"-"+n.SHA256[:12]+".tar.xz")
	if sum, err := sumOf(path); err == nil && sum == n.SHA256 {
		return path, nil
	}
	return path, r.fetchTarball(ctx, o, n, filepath.Join(dir, "part"), path)
}

// fetchTarball gives the file its final name only when its checksum is right.
// The caller holds the lock, so part is ours.
func (r Request) fetchTarball(ctx context.Context, o Options, n image.Node, part, final string) (err error) {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(part) // gone when it was renamed
	sum := sha256.New()
	site, err := r.get(ctx, n.Dir()+"/"+n.File(), maxTarball, io.MultiWriter(f, sum), o.Download)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := hexSum(sum); got != n.SHA256 {
		return fmt.Errorf("%s from %s is not the release that was written down: its SHA-256 is %s, and %s", n.File(), site, got, r.expected(n))
	}
	return os.Rename(part, final)
}

// expected says which checksum is right, and who says so.
func (r Request) expected(n image.Node) string {
	var rec sumRecord
	if ok, err := readRecord(r.sumFile(n), &rec); err == nil && ok && rec.SHA256 == n.SHA256 {
		return fmt.Sprintf("%s said %s on %s", rec.Site, n.SHA256, rec.Seen.Format(time.DateOnly))
	}
	if own, err := image.NewNode(n.Version, r.Arch); err == nil && own.SHA256 == n.SHA256 {
		return "ai-sandbox has " + n.SHA256
	}
	return "the list of checksums there has " + n.SHA256
}

// A statusError is an answer of a site that is not 200 (RFC 9110, 15).
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the site answers %d %s", int(e), http.StatusText(int(e)))
}

// newestNode asks the site for the newest version of the recipe's own release line
// that it has for this machine.
func (r Request) newestNode(ctx context.Context) (nodeRecord, error) {
	var list bytes.Buffer
	site, err := r.get(ctx, "index.json", maxIndex, &list, nil)
	if err != nil {
		return nodeRecord{}, err
	}
	var releases []struct {
		Version string
		Files   []string
	}
	if err := json.Unmarshal(list.Bytes(), &releases); err != nil {
		return nodeRecord{}, fmt.Errorf("the list of releases at %s is not readable: %w", site, err)
	}
	rec := nodeRecord{Version: image.DefaultNode, Site: site, Seen: time.Now().UTC()}
	for _, l := range releases {
		n, err := image.NewNode(l.Version, r.Arch)
		if err == nil && sameLine(n.Version, rec.Version) && image.Older(rec.Version, n.Version) && slices.Contains(l.Files, n.Platform()) {
			rec.Version = n.Version
		}
	}
	return rec, nil
}

// sameLine tells whether two versions of Node are of one release line.
func sameLine(a, b string) bool {
	x, _, _ := strings.Cut(a, ".")
	y, _, _ := strings.Cut(b, ".")
	return x == y
}

// get fetches a file of the site into w. It returns the site's name for messages.
func (r Request) get(ctx context.Context, file string, limit int64, w io.Writer, progress func(string, int64, int64)) (site string, err error) {
	u, err := r.site()
	if err != nil {
		return "", err
	}
	site = u.String()
	u = u.JoinPath(file)
	client, err := r.client()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the site has sent nothing for %s", silence)) })
	defer quiet.Stop()
	defer func() {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			err = fmt.Errorf("fetch %s: %w", u, err)
		}
	}()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return site, err
	}
	resp, err := client.Do(req)
	if err != nil {
		var ue *url.Error // says the address once more
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return site, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return site, statusError(resp.StatusCode)
	}
	body := &meter{r: io.LimitReader(resp.Body, limit+1), moved: func(done int64) {
		quiet.Reset(silence)
		if progress != nil {
			progress(path.Base(file), done, resp.ContentLength)
		}
	}}
	if _, err := io.Copy(w, body); err != nil {
		return site, err
	}
	if body.done > limit {
		return site, fmt.Errorf("it is larger than %d MB", limit>>20)
	}
	return site, nil
}

// site is the download site.
func (r Request) site() (*url.URL, error) {
	s := r.NodeMirror
	if s == "" {
		s = DefaultNodeSite
	}
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("node mirror %+q is not an http or https address, as in %s", s, DefaultNodeSite)
	case u.User != nil:
		return nil, errors.New("the node mirror's address holds a user name; that would be shown and kept: leave it out")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("node mirror %+q has a query; only a path can follow the host", s)
	}
	return u, nil
}

// client trusts the user's CA file beside the system's.
func (r Request) client() (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = silence
	if r.CA != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's CAs: %w", err)
		}
		pool.AppendCertsFromPEM(r.CA.PEM())
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		switch {
		case len(via) > 5:
			return errors.New("it is redirected too often")
		case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
			return errors.New("it is redirected to an address without TLS")
		}
		return nil
	}}, nil
}

// A meter tells how much has been read.
type meter struct {
	r     io.Reader
	done  int64
	moved func(done int64)
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.done += int64(n)
	m.moved(m.done)
	return n, err
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hexSum(h), nil
}

func copyFile(src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
