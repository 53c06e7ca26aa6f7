// The manifest that is in an image: the version of each package.

package image

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Package is one line of a manifest.
type Package struct {
	// Kind is deb, node or npm.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Version is the package manager's own notation.
	Version string `json:"version"`
	// Arch is Debian's name for it; only a deb has one.
	Arch string `json:"arch,omitempty"`
}

// maxManifest bounds the lines of a manifest that are read.
const maxManifest = 20000

// ParseManifest reads a manifest.
func ParseManifest(text []byte) ([]Package, error) {
	var out []Package
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		var p Package
		switch {
		case len(f) == 4 && f[0] == "deb":
			p = Package{Kind: f[0], Name: f[1], Version: f[2], Arch: f[3]}
		case len(f) == 3 && f[0] == "npm":
			p = Package{Kind: f[0], Name: f[1], Version: f[2]}
		case len(f) == 2 && f[0] == "node":
			p = Package{Kind: f[0], Name: f[0], Version: f[1]}
		default:
			return nil, fmt.Errorf("the manifest has the line %+.80q, which says of no package which version it has", lines.Text())
		}
		if len(out) == maxManifest {
			return nil, fmt.Errorf("the manifest has more than %d packages", maxManifest)
		}
		out = append(out, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return out, nil
}

// DpkgPath is where Debian's package manager has what is installed.
const DpkgPath = "/var/lib/dpkg/status"

// ParseDpkg reads such a file, for an image that has no manifest (dpkg(1), deb-control(5)).
func ParseDpkg(text []byte) ([]Package, error) {
	var out []Package
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(stanza) {
			// What begins with a space goes on with the field before, and none of ours does.
			if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
				fields[name] = strings.TrimSpace(value)
			}
		}
		if fields["Package"] == "" || !strings.HasSuffix(fields["Status"], " installed") {
			continue
		}
		if len(out) == maxManifest {
			return nil, fmt.Errorf("it has more than %d packages", maxManifest)
		}
		out = append(out, Package{Kind: "deb", Name: fields["Package"], Version: fields["Version"], Arch: fields["Architecture"]})
	}
	slices.SortFunc(out, func(a, b Package) int { return strings.Compare(a.Name+" "+a.Arch, b.Name+" "+b.Arch) })
	return out, nil
}

// systemForm is os-release(5)'s line with the operating system's name.
var systemForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ID=(?:"([a-z0-9._-]+)"|([a-z0-9._-]+))$`) })

// SystemID is the ID in an os-release file, or linux, which is what stands for none.
func SystemID(release []byte) string {
	if m := systemForm().FindSubmatch(release); m != nil {
		return string(m[1]) + string(m[2])
	}
	return "linux"
}

// A Change is one thing that differs between two images, or between an image and
// the one that a build of today would make.
type Change struct {
	// Kind is base, node, harness, deb, npm, file or image.
	Kind string `json:"kind"`
	// Image is the image that has it, where not both do.
	Image Kind   `json:"image,omitempty"`
	Name  string `json:"name"`
	// From is "" for what is new, and To for what is gone.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Diff is what changed in the packages of an image. npm may have a package in
// several versions; each counts by itself.
func Diff(kind Kind, before, after []Package) []Change {
	type key struct{ kind, name string }
	versions := func(list []Package) map[key][]string {
		m := map[key][]string{}
		for _, p := range list {
			k := key{p.Kind, p.Name}
			if !slices.Contains(m[k], p.Version) {
				m[k] = append(m[k], p.Version)
			}
		}
		return m
	}
	a, b := versions(before), versions(after)
	keys := map[key]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	var out []Change
	for k := range keys {
		x, y := slices.Sorted(slices.Values(a[k])), slices.Sorted(slices.Values(b[k]))
		if k.kind != "node" && !slices.Equal(x, y) { // node is one of the recipe's own
			out = append(out, Change{Kind: k.kind, Image: kind, Name: k.name, From: strings.Join(x, ", "), To: strings.Join(y, ", ")})
		}
	}
	slices.SortFunc(out, func(x, y Change) int {
		return strings.Compare(x.Kind+" "+x.Name, y.Kind+" "+y.Name)
	})
	return out
}

// upgradeForm is how apt-get -s tells of a package that it would install:
// Inst NAME [OLD] (NEW ORIGIN [ARCH]), without [OLD] where it is new.
var upgradeForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^Inst (\S+)(?: \[([^\]\s]+)\])? \((\S+) `)
})

// ParseUpgrades reads what UpgradesScript has written.
func ParseUpgrades(kind Kind, out []byte) []Change {
	var list []Change
	for _, m := range upgradeForm().FindAllSubmatch(out, -1) {
		list = append(list, Change{Kind: "deb", Image: kind, Name: string(m[1]), From: string(m[2]), To: string(m[3])})
	}
	return list
}
