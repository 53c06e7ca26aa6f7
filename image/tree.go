// The files of an image, to tell whether two images differ where a manifest says nothing.

package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Tree is what a sandbox's user can read of an image, by absolute paths: types, modes,
// owners, contents. Times are not in it, as they are those of the build.
type Tree map[string]treeFile

type treeFile struct {
	what string // for people: "-rw-r--r-- 0:0"
	sum  [sha256.Size]byte
}

func (f treeFile) String() string {
	if f.sum == ([sha256.Size]byte{}) {
		return f.what
	}
	return fmt.Sprintf("%s sha256:%.6x", f.what, f.sum)
}

// maxTree bounds the files of an image that are looked at.
const maxTree = 4 << 20

// perBuild are files in which the moment of the build is written, or the image's own tag:
// ours, what Python compiles beside its sources, and of a clone of a repository what says
// when it was made or how it was packed; which commits are in it, other files there name.
func perBuild(name string) bool {
	if name == ManifestPath || name == "/etc/aisb/sbom.cdx.json" {
		return true
	}
	if strings.HasSuffix(name, ".pyc") && path.Base(path.Dir(name)) == "__pycache__" {
		return true
	}
	_, in, ok := strings.Cut(name, "/.git/")
	top, _, _ := strings.Cut(in, "/")
	return ok && slices.Contains([]string{"index", "logs", "objects"}, top)
}

// ReadTree reads a tar of an image's files, in which a directory comes before what is in it.
func ReadTree(r io.Reader) (Tree, error) {
	t := Tree{}
	closed := map[string]bool{} // directories that the user can't enter
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the files of an image: %w", err)
		}
		name := path.Join("/", h.Name)
		info := h.FileInfo()
		if closed[path.Dir(name)] && name != "/" {
			closed[name] = info.IsDir()
			continue
		}
		if info.IsDir() && !permits(h, 1) {
			closed[name] = true
		}
		if perBuild(name) {
			continue
		}
		f := treeFile{what: fmt.Sprintf("%s %d:%d", info.Mode(), h.Uid, h.Gid)}
		switch h.Typeflag {
		case tar.TypeSymlink:
			f.what = "-> " + h.Linkname
		case tar.TypeLink:
			f.what = "the same file as " + path.Join("/", h.Linkname)
		case tar.TypeChar, tar.TypeBlock:
			f.what += fmt.Sprintf(" %d:%d", h.Devmajor, h.Devminor)
		case tar.TypeReg:
			if permits(h, 5) {
				hash := sha256.New()
				if _, err := io.Copy(hash, in); err != nil {
					return nil, fmt.Errorf("read the files of an image: %w", err)
				}
				hash.Sum(f.sum[:0])
			}
		}
		if len(t) == maxTree {
			return nil, fmt.Errorf("an image has more than %d files", maxTree)
		}
		t[name] = f
	}
}

// permits tells whether the sandbox's user has any of the permissions (4 read, 1 execute)
// on a file, as the kernel decides it for who has no capability.
func permits(h *tar.Header, any fs.FileMode) bool {
	mode := fs.FileMode(h.Mode)
	switch {
	case h.Uid == UID:
		mode >>= 6
	case h.Gid == GID:
		mode >>= 3
	}
	return mode&any != 0
}

// DiffTrees is what changed in the files of an image. Of a directory that is new or gone,
// what is in it is left out.
func DiffTrees(kind Kind, before, after Tree) []Change {
	var out []Change
	add := func(name, from, to string) {
		out = append(out, Change{Kind: "file", Image: kind, Name: name, From: from, To: to})
	}
	within := func(name string, other Tree) bool { // of what the other has not got either
		if name == "/" {
			return false
		}
		_, ok := other[path.Dir(name)]
		return !ok
	}
	for name, f := range before {
		if g, ok := after[name]; ok && f != g {
			add(name, f.String(), g.String())
		} else if !ok && !within(name, after) {
			add(name, f.String(), "")
		}
	}
	for name, g := range after {
		if _, ok := before[name]; !ok && !within(name, before) {
			add(name, "", g.String())
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return bytes.Compare([]byte(x.Name), []byte(y.Name)) })
	return out
}
