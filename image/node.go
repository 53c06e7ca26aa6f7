// Node releases: which are known, and which are new enough.

package image

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// DefaultNode is the Node version of an image when the user names none, and
// MinNode the oldest that works: earlier ones, and all of Node 23, have no
// switch that makes fetch use the proxy variables.
const (
	DefaultNode = "24.15.0"
	MinNode     = "22.21.0"
)

// defaultNodeSHA256 are the checksums of DefaultNode's tarballs, by GOARCH, as
// the release's SHASUMS256.txt has them.
var defaultNodeSHA256 = map[string]string{
	"amd64": "472655581fb851559730c48763e0c9d3bc25975c59d518003fc0849d3e4ba0f6",
	"arm64": "f3d5a797b5d210ce8e2cb265544c8e482eaedcb8aa409a8b46da7e8595d0dda0",
}

// nodeArch is what a release calls a GOARCH.
var nodeArch = map[string]string{"amd64": "x64", "arm64": "arm64"}

var (
	versionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`) })
	sha256Form  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })
)

// A Node is one release's tarball for one architecture.
type Node struct {
	Version string // 24.15.0
	Arch    string // a GOARCH
	SHA256  string // lower-case hex; "" when it is not known yet
}

// NewNode checks a version as the user wrote it ("" is DefaultNode) and fills
// in the checksum where the recipe has it.
func NewNode(version, goarch string) (Node, error) {
	if version == "" {
		version = DefaultNode
	}
	n := Node{Version: strings.TrimPrefix(version, "v"), Arch: goarch}
	if n.Version == DefaultNode {
		n.SHA256 = defaultNodeSHA256[goarch]
	}
	return n, n.check()
}

func (n Node) check() error {
	switch {
	case !versionForm().MatchString(n.Version):
		return fmt.Errorf("node version %+q is not a release's number; write it in full, as in %s", n.Version, DefaultNode)
	case older(n.Version, MinNode):
		return fmt.Errorf("node %s is too old: name %s or a later one", n.Version, MinNode)
	case strings.HasPrefix(n.Version, "23."):
		return fmt.Errorf("node %s cannot go through a proxy by itself: name %s or later, or a 24", n.Version, MinNode)
	case nodeArch[n.Arch] == "":
		return fmt.Errorf("node has no release for %+q that is known here", n.Arch)
	case n.SHA256 != "" && !sha256Form().MatchString(n.SHA256):
		return fmt.Errorf("%+q is not a SHA-256 sum", n.SHA256)
	}
	return nil
}

// File is the tarball's name, and Dir the release's directory on a site.
func (n Node) File() string { return "node-v" + n.Version + "-" + n.Platform() + ".tar.xz" }

// Platform is what a site's list of releases calls the tarball.
func (n Node) Platform() string { return "linux-" + nodeArch[n.Arch] }

// Dir is the release's directory on a download site.
func (n Node) Dir() string { return "v" + n.Version }

// older compares two versions of versionForm.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range x {
		m, _ := strconv.Atoi(x[i]) // digits, by versionForm
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return m < n
		}
	}
	return false
}
