// References to images in registries, and pins of them.

package image

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
)

// A Reference names an image in a registry: its host, its repository, and a tag
// or a digest or both. It is always fully qualified, because a short name means
// what each machine's configuration makes of it.
type Reference struct {
	Name   string // host/path, without tag and digest
	Tag    string // "" where only a digest is given
	Digest digest.Digest
}

// What each part may consist of (distribution/reference, narrowed: no upper
// case, no IPv6 literal as host). Nothing of it means anything to a shell or in
// a Containerfile.
var (
	hostForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$`) })
	pathForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	})
	tagForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`) })
)

// maxName is the longest name that registries accept.
const maxName = 255

// ParseReference reads a reference as a user writes it. Without a tag and a
// digest the tag is latest.
func ParseReference(s string) (Reference, error) {
	bad := func(why string) (Reference, error) {
		if len(s) > 80 {
			s = s[:80] + "..."
		}
		return Reference{}, fmt.Errorf("base image %+q: %s; write it in full, as in %s", s, why, DefaultBase)
	}
	var r Reference
	rest, dig, pinned := strings.Cut(s, "@")
	if pinned {
		r.Digest = digest.Digest(dig)
		if !validDigest(r.Digest) {
			return bad("what follows the @ is not a sha256 digest")
		}
	}
	host, path, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(host, ".:") {
		if host == "localhost" {
			return bad("an image that is only on this machine has no registry that tells its digest")
		}
		return bad("it names no registry")
	}
	path, tag, tagged := strings.Cut(path, ":")
	switch {
	case tagged:
		r.Tag = tag
	case !pinned:
		r.Tag = "latest"
	}
	r.Name = host + "/" + path
	if why := r.problem(); why != "" {
		return bad(why)
	}
	return r, nil
}

func (r Reference) problem() string {
	host, path, _ := strings.Cut(r.Name, "/")
	switch {
	case len(r.Name) > maxName:
		return "its name is too long"
	case !hostForm().MatchString(host):
		return fmt.Sprintf("%+q is not a registry's host", host)
	case !pathForm().MatchString(path):
		return fmt.Sprintf("%+q is not a repository's path", path)
	case r.Tag == "" && r.Digest == "":
		return "it has neither tag nor digest"
	case r.Tag != "" && !tagForm().MatchString(r.Tag):
		return fmt.Sprintf("%+q is not a tag", r.Tag)
	case r.Digest != "" && !validDigest(r.Digest):
		return fmt.Sprintf("%+q is not a sha256 digest", string(r.Digest))
	}
	return ""
}

// String is the written form: host/path[:tag][@digest].
func (r Reference) String() string {
	s := r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + string(r.Digest)
	}
	return s
}

// Pin is the same repository at the digest; the tag is dropped.
func (r Reference) Pin(d digest.Digest) (Pinned, error) {
	if why := (Reference{Name: r.Name, Digest: d}).problem(); why != "" {
		return Pinned{}, fmt.Errorf("pin %+q: %s", r.Name, why)
	}
	return Pinned{name: r.Name, digest: d}, nil
}

// A Pinned names exactly one image: a repository and a digest. It has no place
// for a tag, so what it names cannot move. The zero value names nothing.
type Pinned struct {
	name   string
	digest digest.Digest
}

// IsZero tells whether p names nothing.
func (p Pinned) IsZero() bool { return p == Pinned{} }

// Digest is the digest alone.
func (p Pinned) Digest() digest.Digest { return p.digest }

// String is name@digest, or "" for the zero value.
func (p Pinned) String() string {
	if p.IsZero() {
		return ""
	}
	return p.name + "@" + string(p.digest)
}

// validDigest takes sha256 only: it is what every registry serves, and one
// algorithm means one strength.
func validDigest(d digest.Digest) bool {
	return d.Validate() == nil && d.Algorithm() == digest.SHA256
}
