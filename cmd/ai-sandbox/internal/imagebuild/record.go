// What is remembered, in small JSON files: each is written whole or not at all.

package imagebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"ai-sandbox/image"
)

// A baseRecord is a pin: what a reference led to.
type baseRecord struct {
	Ref      string        `json:"ref"`
	Digest   digest.Digest `json:"digest"`
	Resolved time.Time     `json:"resolved"`
	// Checked is what policy.json demanded of it when its signature was checked
	// (Request.Demands).
	Checked digest.Digest `json:"checked,omitempty"`
}

// A packagesRecord says when the Debian packages on a base were last asked for anew.
type packagesRecord struct {
	Ref    string        `json:"ref"`
	Digest digest.Digest `json:"digest"` // "" on a base without a pin
	Asked  time.Time     `json:"asked"`
}

// A nodeRecord is the newest Node of a release line, as a site had it.
type nodeRecord struct {
	Version string    `json:"version"`
	Site    string    `json:"site"`
	Seen    time.Time `json:"seen"`
}

// A lockRecord is the newest version of a harness with its lock file, as its registry had it.
type lockRecord struct {
	Version  string        `json:"version"`
	Node     string        `json:"node"`
	Package  string        `json:"package"`
	Packages string        `json:"packages"`
	Sum      digest.Digest `json:"sum"` // of the four
	Seen     time.Time     `json:"seen"`
}

// A sumRecord is the checksum of a Node tarball as a site had it when it was
// first asked.
type sumRecord struct {
	File   string    `json:"file"`
	SHA256 string    `json:"sha256"`
	Site   string    `json:"site"`
	Seen   time.Time `json:"seen"`
	// Signer is the fingerprint of the key that signed the list it stands in, and
	// Keyring what that was looked for in; both "" where nobody asked for a signature.
	Signer  string        `json:"signer,omitempty"`
	Keyring digest.Digest `json:"keyring,omitempty"`
}

// An imageRecord says that this program built the image for the recipe.
type imageRecord struct {
	Ref    string        `json:"ref"`
	Recipe digest.Digest `json:"recipe"`
	ID     string        `json:"id"`
	Built  time.Time     `json:"built"`
	// Configuration is what it is one of (Request.configuration), and Labels are the
	// recipe's.
	Configuration digest.Digest     `json:"configuration,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

func (r Request) baseFile(ref image.Reference, ext string) string {
	return filepath.Join(r.CacheDir, "base", digest.FromString(ref.String()).Encoded()[:16]+ext)
}

// recordedBase is the pin of a reference, or the zero value.
func (r Request) recordedBase(ref image.Reference) (baseRecord, error) {
	var rec baseRecord
	path := r.baseFile(ref, ".json")
	if ok, err := readRecord(path, &rec); err != nil || !ok {
		return baseRecord{}, err
	}
	if _, err := ref.Pin(rec.Digest); err != nil || rec.Ref != ref.String() {
		return baseRecord{}, damaged(path)
	}
	return rec, nil
}

func (r Request) recordBase(ref image.Reference, rec baseRecord) error {
	return writeRecord(r.baseFile(ref, ".json"), rec)
}

// recordedPackages is when the packages on the base were asked for anew, or "". It
// is for one digest: on another everything is new anyway.
func (r Request) recordedPackages(ref image.Reference, d digest.Digest) (string, error) {
	var rec packagesRecord
	path := r.baseFile(ref, ".packages.json")
	if ok, err := readRecord(path, &rec); err != nil || !ok {
		return "", err
	}
	if rec.Ref != ref.String() {
		return "", damaged(path)
	}
	if rec.Digest != d {
		return "", nil
	}
	return rec.Asked.UTC().Format(image.PackagesForm), nil
}

// recordedNode is the newest version that Update found of the recipe's own release
// line, or "".
func (r Request) recordedNode() (string, error) {
	var rec nodeRecord
	if ok, err := readRecord(r.nodeFile(), &rec); err != nil || !ok {
		return "", err
	}
	// ai-sandbox itself may have moved on since.
	if !sameLine(rec.Version, image.DefaultNode) || !image.Older(image.DefaultNode, rec.Version) {
		return "", nil
	}
	return rec.Version, nil
}

func (r Request) nodeFile() string { return filepath.Join(r.CacheDir, "node", "newest.json") }

// recordedLock is the newest version of a harness that Update found, or nil.
func (r Request) recordedLock(h image.Harness) (*image.Lock, error) {
	var rec lockRecord
	path := r.lockFile(h.Name)
	if ok, err := readRecord(path, &rec); err != nil || !ok {
		return nil, err
	}
	if !image.Older(h.Version, rec.Version) {
		return nil, nil // ai-sandbox itself has moved on
	}
	// It was parsed when it was written; to do so at each start would cost some
	// milliseconds.
	if rec.Sum != rec.sum() {
		return nil, damaged(path)
	}
	return &image.Lock{Version: rec.Version, Node: rec.Node, Package: []byte(rec.Package), Packages: []byte(rec.Packages)}, nil
}

func (r Request) lockFile(harness string) string {
	return filepath.Join(r.CacheDir, "harness", harness+".json")
}

func (r Request) recordLock(harness string, l *image.Lock, now time.Time) error {
	rec := lockRecord{Version: l.Version, Node: l.Node, Package: string(l.Package), Packages: string(l.Packages), Seen: now.UTC()}
	rec.Sum = rec.sum()
	return writeRecord(r.lockFile(harness), rec)
}

func (l lockRecord) sum() digest.Digest {
	return digest.FromString(l.Version + "\n" + l.Node + "\n" + l.Package + "\n" + l.Packages)
}

func (r Request) sumFile(n image.Node) string {
	return filepath.Join(r.CacheDir, "node", n.File()+".json")
}

// recordedSum is the remembered checksum of a tarball, or "". One that was not signed
// with a key of the keyring that the user now names is not known.
func (r Request) recordedSum(n image.Node) (string, error) {
	rec, err := r.readSum(n)
	if err != nil || rec.Keyring != r.Keyring && r.Keyring != "" {
		return "", err
	}
	return rec.SHA256, nil
}

func (r Request) readSum(n image.Node) (sumRecord, error) {
	var rec sumRecord
	path := r.sumFile(n)
	if ok, err := readRecord(path, &rec); err != nil || !ok {
		return sumRecord{}, err
	}
	if d := digest.NewDigestFromEncoded(digest.SHA256, rec.SHA256); d.Validate() != nil || rec.File != n.File() {
		return sumRecord{}, damaged(path)
	}
	return rec, nil
}

// imagePath is where something is kept about the builds of one recipe.
func (r Request) imagePath(kind image.Kind, tag, ext string) string {
	return filepath.Join(r.StateDir, "images", string(kind)+"-"+tag+ext)
}

// imageFile is imagePath, to write there.
func (r Request) imageFile(b image.Built, ext string) (string, error) {
	path := r.imagePath(b.Kind, b.Tag, ext)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("keep records of images: %w", err)
	}
	return path, nil
}

// recordedImage is the id of the image that was built for the recipe, or "". The
// whole hash is compared; a tag has only part of it.
func (r Request) recordedImage(b image.Built) (string, error) {
	path := r.imagePath(b.Kind, b.Tag, ".json")
	var rec imageRecord
	if ok, err := readRecord(path, &rec); err != nil || !ok {
		return "", err
	}
	// A record that makes no sense only costs a build.
	if rec.Recipe != b.Hash || rec.Ref != b.Ref || digest.NewDigestFromEncoded(digest.SHA256, rec.ID).Validate() != nil {
		return "", nil
	}
	return rec.ID, nil
}

// recordImage remembers an image. One that is not run is of no configuration: no start goes
// on with it.
func (r Request) recordImage(b image.Built, id string, now time.Time, unrun bool) error {
	path, err := r.imageFile(b, ".json")
	if err != nil {
		return err
	}
	var conf digest.Digest
	if !unrun {
		if conf, err = r.configuration(b.Kind); err != nil {
			return err
		}
	}
	if err := r.forgetTried(b); err != nil {
		return err
	}
	return writeRecord(path, imageRecord{Ref: b.Ref, Recipe: b.Hash, ID: id, Built: now.UTC(), Configuration: conf, Labels: b.Labels})
}

// damaged is for records that nothing may be guessed from: without a pin or a
// checksum another one would be taken on trust.
func damaged(path string) error {
	return fmt.Errorf("the record %s is damaged: remove it to trust what the site says today", path)
}

// readRecord tells whether there is a record.
func readRecord(path string, into any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read record: %w", err)
	}
	if err := decodeRecord(b, into); err != nil {
		return false, damaged(path)
	}
	return true, nil
}

func decodeRecord(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// writeRecord gives the file its name when it is whole and on disk.
func writeRecord(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return writeFile(path, append(b, '\n'))
}

// writeFile is the same for any file.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	defer os.Remove(f.Name()) // gone when it was renamed
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// lock takes a lock between processes; waiting is called once if another has
// it. The lock ends with the process, and its file stays: removing it would let
// two hold a lock of the same name.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		unlock, ok, err := tryLock(path)
		if err != nil || ok {
			return unlock, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tryLock is lock without the wait; ok tells whether it is held.
func tryLock(path string) (unlock func(), ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock: %w", err)
	}
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { f.Close() }, true, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return nil, false, f.Close()
		default:
			return nil, false, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}
