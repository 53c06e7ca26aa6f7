// What is in the image that a run stands on, as printouts show it.

package policy

import (
	"slices"
	"strings"
)

// A Harness is an agent program in the image.
type Harness struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A Setup is a script that was run as root when the image was built.
type Setup struct {
	Path   string `json:"path"` // as it was written
	SHA256 string `json:"sha256"`
}

// unpinned marks an image on a base without a digest.
const unpinned = "UNPINNED: the base image has no recorded digest yet; the next build records one"

// On is the policy on the image that there is now: a first build finds the base's digest
// after the policy was decided.
func (p Policy) On(i Image) Policy {
	p.Image = &i
	p.Unusual = slices.DeleteFunc(slices.Clone(p.Unusual), func(s string) bool { return s == unpinned })
	if i.BaseDigest == "" {
		p.Unusual = append([]string{unpinned}, p.Unusual...)
	}
	return p
}

// added shows what is in an image by the user's wish.
func (b *page) added(i *Image) {
	var words []string
	for n, h := range i.Harnesses {
		version := Quote(h.Version)
		if n < len(i.Harnesses)-1 {
			version += ","
		}
		words = append(words, Quote(h.Name), version)
	}
	b.field("  agents", words...)
	if len(i.Apt) > 0 {
		words = nil
		for _, p := range i.Apt {
			words = append(words, Quote(p))
		}
		b.field("  apt", words...)
	}
	if s := i.Setup; s != nil {
		b.field("  setup", Quote(s.Path), Quote("sha256:"+s.SHA256), "(run", "as", "root", "when", "the", "image", "is", "built)")
	}
}

// added compares that of two images.
func (d *Difference) added(a, b *Image) {
	if !slices.Equal(a.Harnesses, b.Harnesses) {
		d.otherwise("agents in the image: %s -> %s", agents(a), agents(b))
	}
	for _, p := range missing(b.Apt, a.Apt) {
		d.more("Debian package %s in the image", short(p))
	}
	for _, p := range missing(a.Apt, b.Apt) {
		d.less("no Debian package %s in the image", short(p))
	}
	if d.Empty() && !slices.Equal(a.Apt, b.Apt) {
		d.otherwise("the order of the image's Debian packages")
	}
	switch {
	case a.Setup == nil && b.Setup == nil:
	case a.Setup == nil:
		d.more("a setup script is run as root when the image is built: %s", b.Setup.text())
	case b.Setup == nil:
		d.less("no setup script is run when the image is built: %s", a.Setup.text())
	case *a.Setup != *b.Setup:
		d.otherwise("setup script of the image: %s -> %s", a.Setup.text(), b.Setup.text())
	}
}

func agents(i *Image) string {
	var out []string
	for _, h := range i.Harnesses {
		out = append(out, short(h.Name)+" "+short(h.Version))
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

func (s *Setup) text() string { return short(s.Path) + " " + short("sha256:"+s.SHA256) }
