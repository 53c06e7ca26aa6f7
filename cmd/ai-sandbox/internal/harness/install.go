// The harnesses of podman's image, and the set of them that is in one.

package harness

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/image"
)

// locks has a lock file for each harness that can be in an image (see image.Harness),
// which `make lock AGENT=NAME` has written.
//
//go:embed locks/*.json
var locks embed.FS

// LockFile is where the lock file of a harness is, below this package.
func LockFile(name string) string { return "locks/" + name + ".json" }

// Packaged are the names of those that can be in an image, in the order of their layers.
func Packaged() []string {
	var out []string
	for _, h := range Table {
		if h.Package != "" {
			out = append(out, h.Name)
		}
	}
	return out
}

// ParseSet reads a set as a user writes it: names with commas between them. It comes
// back in the order of the layers, whatever order it was written in.
func ParseSet(s string) ([]string, error) {
	var asked []string
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("%+q has a name too few", s)
		case !slices.Contains(Packaged(), name):
			return nil, fmt.Errorf("%+.40q can't be put into the image", name)
		case slices.Contains(asked, name):
			return nil, fmt.Errorf("%s is named twice", name)
		}
		asked = append(asked, name)
	}
	return slices.DeleteFunc(Packaged(), func(name string) bool { return !slices.Contains(asked, name) }), nil
}

// ForImage are the harnesses of a set that ParseSet has read, or of nil: the default one.
func ForImage(set []string) ([]image.Harness, error) {
	if set == nil {
		set = []string{Default}
	}
	var out []image.Harness
	for _, name := range set {
		h, _ := Lookup(name)
		lock, err := locks.ReadFile(LockFile(name))
		if h.Package == "" || err != nil {
			return nil, fmt.Errorf("%+.40q can't be put into the image", name)
		}
		p := h.Installed()
		p.Lock = lock
		out = append(out, p)
	}
	return out, nil
}

// Installed is what npm installs, without a lock file.
func (h Harness) Installed() image.Harness {
	return image.Harness{Name: h.Name, Module: h.Package, Version: h.Version, Scripts: h.Scripts, Programs: h.Programs, Unwanted: h.Unwanted}
}
