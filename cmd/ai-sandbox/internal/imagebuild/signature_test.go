package imagebuild

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// asks makes a keyring of one key, with which the list has to be signed.
func (w *world) asks(key string) {
	w.req.Keyring = digest.FromString(key)
	w.req.Verify = func(_ context.Context, list, signature []byte) (string, error) {
		if string(signature) != key+" signs "+string(list) {
			return "", errors.New("it is signed with another key")
		}
		return "fingerprint of " + key, nil
	}
}

// Where there is a keyring, a checksum counts that stands in a list which one of its
// keys has signed, and no other.
func TestSignedList(t *testing.T) {
	w := newWorld(t)
	w.asks("ann")
	fails := func(want string) {
		t.Helper()
		_, err := w.req.Ensure(t.Context(), w.builder, w.opt)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error: %v", err)
		}
		if got := files(t, w.req.CacheDir); len(got) != 1 || !strings.HasPrefix(got[0], "base/") {
			t.Errorf("cached: %q", got)
		}
	}
	fails("SHASUMS256.txt.sig: the site answers 404")
	w.site.signer = "bob"
	fails("check the signature of the list of checksums at " + w.site.URL)
	w.site.signer = "ann"
	w.ensure(t)
	node, err := w.req.node(nodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := w.req.readSum(node); err != nil || rec.Signer != "fingerprint of ann" || rec.Keyring != w.req.Keyring {
		t.Errorf("%+v, %v", rec, err)
	}
	// From then on nobody is asked.
	asked := w.site.asked
	if p, err := w.req.Plan(); err != nil || p.Sandbox.ID == "" || w.site.asked != asked {
		t.Errorf("%+v, %v", p, err)
	}
}

// A keyring that is named later is not satisfied with what was taken on trust before;
// and what was seen first stays right.
func TestSignatureIsAskedForLater(t *testing.T) {
	w := newWorld(t)
	p := w.ensure(t)
	w.asks("ann")
	if _, err := w.req.Plan(); !errors.Is(err, ErrUnresolved) {
		t.Errorf("a list without a signature counts: %v", err)
	}
	w.site.signer = "ann"
	if again := w.ensure(t); again.Sandbox.ID != p.Sandbox.ID {
		t.Errorf("another image: %s", again.Sandbox.Ref)
	}
	// Another keyring, another question.
	w.asks("bob")
	if _, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("error: %v", err)
	}
	// Signed or not, the list may say no other thing than before.
	w.site.signer, w.site.sums = "bob", strings.Repeat("ab", 32)+"  node-v"+nodeVersion+"-linux-x64.tar.xz\n"
	if _, err := w.req.Ensure(t.Context(), w.builder, w.opt); err == nil || !strings.Contains(err.Error(), "to trust what is signed today") {
		t.Errorf("error: %v", err)
	}
	// Without a keyring the record counts as ever.
	w.req.Keyring, w.req.Verify = "", nil
	w.ensure(t)
	node, err := w.req.node(nodeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.req.sumFile(node)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.req.Plan(); !errors.Is(err, ErrUnresolved) {
		t.Error(err)
	}
}
