// Package image says what a run stands on: the recipes of the sandbox's image
// and of the gate's, the Containerfile and the files that each is built from,
// and the content hash that is its tag.
//
// The package is pure and imports nothing of ours: no processes, no sockets, no
// files, no clock. Whatever goes into an image goes into its hash; changing one
// byte of any input alone changes the tag.
package image

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// DefaultBase is Debian's slim image of the stable release.
const DefaultBase = "docker.io/library/debian:trixie-slim"

// HomeLayout is the version of what the image expects in the home volume. A
// volume outlives images: one of an older layout is warned about.
const HomeLayout = "1"

// UID and GID are the unprivileged user's in both images.
const (
	UID = 1000
	GID = 1000
)

// Paths in the images.
const (
	// EntrypointPath is the entrypoint program, in both.
	EntrypointPath = "/usr/libexec/aisb-entrypoint"
	// ManifestPath lists the version of every package, in both.
	ManifestPath = "/etc/aisb/manifest.txt"
	// ExtraCAPath is the user's CA file, in both; in the sandbox's image it
	// is also in the system's bundle.
	ExtraCAPath = "/etc/aisb/extra-ca.pem"
	// HomeDir and ProjectDir are the sandbox's, and belong to UID.
	HomeDir    = "/home/sandbox"
	ProjectDir = "/project"
	// harnessDir is where the harnesses' packages are, each in a directory of its name.
	harnessDir = "/opt/aisb/harness"
)

// Labels of both images. The OCI ones are added to these.
const (
	LabelRecipe     = "aisb.recipe"
	LabelBaseRef    = "aisb.base-ref"
	LabelBaseDigest = "aisb.base-digest" // or Unpinned
	LabelKind       = "aisb.kind"
	LabelNode       = "aisb.node"
	LabelHarness    = "aisb.harness." // + the harness's name
	LabelHomeLayout = "aisb.home-layout"
	LabelApt        = "aisb.apt"      // Recipe.Apt, with spaces between them
	LabelSetup      = "aisb.setup"    // the digest of Recipe.Setup
	LabelPackages   = "aisb.packages" // Recipe.Packages
	// LabelBuild is on whatever a build makes, its layers too: which one it was.
	LabelBuild = "aisb.build"
	// LabelVersion is the OCI's: the image's tag.
	LabelVersion = "org.opencontainers.image.version"
)

// PackagesForm is how Recipe.Packages is written, in UTC (see package time).
const PackagesForm = "2006-01-02T15:04:05Z"

// Unpinned stands where a base digest would, when none is known.
const Unpinned = "UNPINNED"

// A Kind is what an image is for.
type Kind string

// The two kinds.
const (
	KindSandbox Kind = "sandbox"
	KindGate    Kind = "gate"
)

var descriptions = map[Kind]string{
	KindSandbox: "what an agent runs in",
	KindGate:    "the gate that decides where a sandbox may connect to",
}

// Repository is where podman keeps images of the kind.
func (k Kind) Repository() string {
	if k == KindGate {
		return "localhost/ai-sandbox-gate"
	}
	return "localhost/ai-sandbox"
}

// sandboxPackages is what an agent needs in a Debian, besides what the slim
// image has. There is no compiler, and no nft: nothing inside installs rules
// but the entrypoint, which needs no program for it.
var sandboxPackages = []string{
	"ca-certificates",
	"curl",
	"fd-find",
	"file",
	"git",
	"jq",
	"less",
	"make",
	"openssh-client",
	"patch",
	"procps",
	"python3",
	"python3-venv",
	"ripgrep",
	"unzip",
	"xz-utils",
}

// SquidPackage is the squid of the gate's image. Debian's plain one has no OpenSSL
// and could not look at a TLS hello.
const SquidPackage = "squid-openssl"

var gatePackages = []string{
	SquidPackage,
}

// A Base is what an image is built on. Digest is "" when it is not known: the
// image is then built on whatever the tag leads to, and says UNPINNED.
type Base struct {
	Ref    Reference
	Digest digest.Digest
}

// from is what stands in FROM.
func (b Base) from() (string, error) {
	if b.Digest == "" {
		if b.Ref.Digest != "" {
			return "", fmt.Errorf("base %s: its digest is not filled in", b.Ref)
		}
		if why := b.Ref.problem(); why != "" {
			return "", fmt.Errorf("base %+q: %s", b.Ref.String(), why)
		}
		return b.Ref.String(), nil
	}
	p, err := b.Ref.Pin(b.Digest)
	if err != nil {
		return "", err
	}
	return p.String(), nil
}

// A Recipe is everything that an image is made from.
type Recipe struct {
	Kind Kind
	Base Base
	// Node is set for KindSandbox only.
	Node Node
	// EntrypointSHA256 is the checksum of the entrypoint program, in lower-case
	// hex. It stands for the bytes, so that a warm start need not read them.
	EntrypointSHA256 string
	// CA is the user's own, or nil.
	CA CA
	// Packages is when the Debian packages were last asked for anew, in PackagesForm,
	// or "": each such moment is an image of its own, as what is installed has moved.
	Packages string
	// Harnesses are the harnesses in it, in the order of their layers, and Locks
	// those of them that are at another version than their own, by their
	// names. Both are set for KindSandbox only.
	Harnesses []Harness
	Locks     map[string]*Lock
	// Apt are further Debian packages, in the form of Packages, and Setup is a script
	// that is run as root when all else is there, or nil; likewise.
	Apt   []string
	Setup []byte
	// Again is when the script is run anew, in PackagesForm, to look at what comes of it;
	// "" for an image that is kept.
	Again string

	// packages replaces the kind's own list in tests.
	packages []string
}

func (r Recipe) apt() []string {
	switch {
	case r.packages != nil:
		return r.packages
	case r.Kind == KindGate:
		return gatePackages
	}
	return sandboxPackages
}

// check looks at every string again, whoever made the recipe.
func (r Recipe) check() error {
	switch r.Kind {
	case KindSandbox:
		if err := r.Node.check(); err != nil {
			return err
		}
		if r.Node.SHA256 == "" {
			return fmt.Errorf("the checksum of node %s is not known yet", r.Node.Version)
		}
		if err := r.checkHarnesses(); err != nil {
			return err
		}
	case KindGate:
		if r.Node != (Node{}) {
			return errors.New("the gate's image has no node")
		}
		if r.Harnesses != nil || r.Locks != nil {
			return errors.New("the gate's image has no harness")
		}
	default:
		return fmt.Errorf("%+q is not a kind of image", r.Kind)
	}
	for _, moment := range []string{r.Packages, r.Again} {
		if t, err := time.Parse(PackagesForm, moment); moment != "" && (err != nil || t.Format(PackagesForm) != moment) {
			return fmt.Errorf("%+q is not a moment like %s", moment, PackagesForm)
		}
	}
	if !sha256Form().MatchString(r.EntrypointSHA256) {
		return fmt.Errorf("%+q is not the checksum of an entrypoint", r.EntrypointSHA256)
	}
	if err := r.checkToolchain(); err != nil {
		return err
	}
	if len(r.apt()) == 0 {
		return errors.New("the package list is empty")
	}
	for _, p := range r.apt() {
		if !packageForm().MatchString(p) {
			return fmt.Errorf("%+q is not a package name", p)
		}
	}
	return nil
}

// Files are the files of the build context by their names in it, but for the
// entrypoint (EntrypointName), the Node tarball (TarballName) and the
// Containerfile.
func (r Recipe) Files() (map[string]File, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	files := map[string]File{}
	if r.CA != nil {
		if len(r.CA) == 0 {
			return nil, errors.New("the CA has no certificate")
		}
		for i, c := range r.CA {
			if r.Kind == KindSandbox {
				files[fmt.Sprintf("ca/aisb-extra-%03d.crt", i+1)] = File{Data: c}
			}
		}
		files["extra-ca.pem"] = File{Data: r.CA.PEM()}
	}
	if r.Kind == KindSandbox {
		r.harnessFiles(files)
		if r.Setup != nil {
			files["setup"] = File{Data: r.Setup}
		}
		files["hosts"] = File{Data: []byte("127.0.0.1 localhost\n::1 localhost\n")}
		// Nothing inside resolves names.
		files["resolv.conf"] = File{}
	}
	return files, nil
}

// A File is one file of a build context.
type File struct {
	Data []byte
}

// EntrypointName is the entrypoint's name in the build context, and TarballName
// the Node tarball's in that of an image that has Node.
const (
	EntrypointName = "aisb-entrypoint"
	TarballName    = "node.tar.xz"
)

// labels are the image's own, but for the hash.
func (r Recipe) labels() map[string]string {
	base := string(r.Base.Digest)
	if base == "" {
		base = Unpinned
	}
	l := map[string]string{
		LabelKind:       string(r.Kind),
		LabelBaseRef:    r.Base.Ref.String(),
		LabelBaseDigest: base,

		"org.opencontainers.image.title":       r.Kind.Repository()[len("localhost/"):],
		"org.opencontainers.image.description": descriptions[r.Kind],
		"org.opencontainers.image.vendor":      "ai-sandbox",
		"org.opencontainers.image.base.name":   r.Base.Ref.String(),
	}
	if r.Packages != "" {
		l[LabelPackages] = r.Packages
	}
	if r.Base.Digest != "" {
		l["org.opencontainers.image.base.digest"] = base
	}
	if r.Kind == KindSandbox {
		l[LabelNode] = r.Node.Version
		for _, h := range r.Harnesses {
			l[LabelHarness+h.Name] = r.harnessVersion(h)
		}
		l[LabelHomeLayout] = HomeLayout
		if len(r.Apt) > 0 {
			l[LabelApt] = strings.Join(r.Apt, " ")
		}
		if r.Setup != nil {
			l[LabelSetup] = "sha256:" + SetupSHA256(r.Setup)
		}
	}
	return l
}

// A Built is a recipe with all that is made from it.
type Built struct {
	Kind          Kind
	Containerfile string
	Files         map[string]File
	Labels        map[string]string
	// From is what it is built on, as the Containerfile has it.
	From string
	// Hash is the content hash; Ref is localhost/…:Tag, where Tag is the
	// first 12 hex digits of it.
	Hash digest.Digest
	Tag  string
	Ref  string
}

// Render makes all that is made from the recipe. Pure, and the same for the
// same recipe.
func (r Recipe) Render() (Built, error) {
	files, err := r.Files()
	if err != nil {
		return Built{}, fmt.Errorf("recipe of the %s image: %w", r.Kind, err)
	}
	text, err := r.containerfile()
	if err != nil {
		return Built{}, fmt.Errorf("recipe of the %s image: %w", r.Kind, err)
	}
	labels := r.labels()
	h := sha256.New()
	// Each part goes in with its length, so that no two lists of parts are
	// the same bytes.
	add := func(parts ...[]byte) {
		for _, p := range parts {
			var n [8]byte
			binary.BigEndian.PutUint64(n[:], uint64(len(p)))
			h.Write(n[:])
			h.Write(p)
		}
	}
	list, err := json.Marshal(labels) // sorted by key
	if err != nil {
		return Built{}, err
	}
	add([]byte("aisb recipe 4"), []byte(text), list, []byte(r.EntrypointSHA256), r.CA.PEM())
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		add([]byte(name), f.Data)
	}
	hash := digest.NewDigest(digest.SHA256, h)
	tag := hash.Encoded()[:12]
	labels[LabelRecipe], labels[LabelVersion] = string(hash), tag
	from, err := r.Base.from()
	if err != nil {
		return Built{}, fmt.Errorf("recipe of the %s image: %w", r.Kind, err)
	}
	return Built{Kind: r.Kind, From: from, Containerfile: text, Files: files, Labels: labels,
		Hash: hash, Tag: tag, Ref: r.Kind.Repository() + ":" + tag}, nil
}
