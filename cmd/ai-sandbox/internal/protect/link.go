// Where protected paths lead that are symbolic links: what host tools obey is what
// is there in the end. A link can't be mounted over, and what it leads to can.

package protect

import (
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// The bounds of what is looked at: links on one way (path_resolution(7)) and links
// in all, and names in a protected directory.
const (
	maxOnWay  = 40
	maxLinks  = 64
	maxInside = 1000
)

// follow goes the way that the kernel goes from an absolute path of this machine. It
// names the links on it, each by where it lies, and the end, which may not be there.
func follow(p string) (links []string, end string, err error) {
	todo, at := strings.Split(p, "/"), "/"
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." || name == ".." {
			at = path.Join(at, name)
			continue
		}
		next := path.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil { // no link, or nothing
			at = next
			continue
		}
		if links = append(links, next); len(links) > maxOnWay {
			return nil, "", unix.ELOOP
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		todo = slices.Concat(strings.Split(to, "/"), todo)
	}
	return links, at, nil
}

// A linker follows the links of protected paths. They may lead from any of the trees
// into any other.
type linker struct {
	reader
	followed int
	looked   map[string]bool // host paths of directories
}

// links adds to the trees where protected paths lead that are links, or that lie in
// ones, and the links in protected directories: the first tree is the project's, the
// second a worktree's git directory.
func links(trees []*tree, paths ...[]string) error {
	l := &linker{reader: reader{trees: trees}, looked: map[string]bool{}}
	for i, t := range trees {
		prefix := ""
		if i > 0 {
			prefix = ".git/"
		}
		for _, p := range paths[i] {
			if err := l.path(t, p, prefix+p); err != nil {
				return err
			}
		}
	}
	return nil
}

// path follows a protected path, which the user calls by a name.
func (l *linker) path(t *tree, p, name string) error {
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			continue
		}
		switch t.Found[p[:i]] {
		case policy.FoundLink:
			return l.link(t, p, name, "")
		case policy.FoundDir:
			if i == len(p) && !slices.Contains(t.Whole, p) && !slices.Contains(t.Repos, p) {
				return l.dir(t, p, name)
			}
		}
	}
	return nil
}

// link adds what a path leads to that is a link, or lies in one. Below within, a path
// of the tree, all is read-only.
func (l *linker) link(t *tree, p, name, within string) error {
	if l.followed++; l.followed > maxLinks {
		if l.followed == maxLinks+1 {
			l.note("there are more links among the protected paths than are followed: where %s leads can be changed", policy.Quote(name))
		}
		return nil
	}
	on, end, err := follow(path.Join(t.Root, p))
	if err != nil {
		return nil //nolint:nilerr // it leads nowhere, for any program
	}
	for _, at := range append(on, end) {
		to, below := l.in(at)
		switch {
		case to == t && (below == p || strings.HasPrefix(p, below+"/") || within != "" && strings.HasPrefix(below, within+"/")):
			continue
		case at != end && to == nil:
			continue
		case at == end && l.whole(to, at, below) || !nameable(below):
			l.note("%s leads to %s, which can't be read-only by itself: what the command leaves there is obeyed", policy.Quote(name), policy.Quote(at))
			continue
		case to == nil:
			t.Links = append(t.Links, policy.Link{Path: name, Outside: at})
			continue
		}
		known := slices.ContainsFunc(to.Links, func(k policy.Link) bool { return k.To == below })
		to.Links = append(to.Links, policy.Link{Path: name, To: below})
		if known {
			continue
		}
		if policy.PlaceholderFor(p) == policy.PlaceholderFile {
			to.Files = append(to.Files, below)
		}
		if err := to.find([]string{below}); err != nil {
			return err
		}
		if at == end && to.Found[below] == policy.FoundDir {
			if err := l.dir(to, below, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole tells whether a host path can't be read-only by itself: it holds one of the
// trees or a git directory, or can't be named in a policy.
func (r *reader) whole(t *tree, to, below string) bool {
	if t == nil {
		return slices.ContainsFunc(r.trees, func(t *tree) bool { return to == "/" || t.Root == to || strings.HasPrefix(t.Root, to+"/") })
	}
	repo := func(p string) bool { return p == below || strings.HasPrefix(p, below+"/") }
	return slices.ContainsFunc(slices.Concat(t.Repos, t.Worktrees), repo) || !nameable(below)
}

func nameable(p string) bool {
	return utf8.ValidString(p) && !strings.ContainsFunc(p, unicode.IsControl)
}

// dir follows the links in a protected directory: they are read-only, and what they
// lead to is not.
func (l *linker) dir(t *tree, top, name string) error {
	budget := maxInside
	for queue := []string{top}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if l.looked[path.Join(t.Root, at)] {
			continue
		}
		l.looked[path.Join(t.Root, at)] = true
		fd, err := openBeneath(t.fd, at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue // it is gone, or this user's tools can't look into it either
		}
		f := os.NewFile(uintptr(fd), at)
		entries, err := f.ReadDir(budget + 1)
		f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			continue
		}
		if budget -= len(entries); budget < 0 {
			l.note("there is more in %s than is looked at: where links in it lead can be changed", policy.Quote(name))
			return nil
		}
		for _, e := range entries {
			p := path.Join(at, e.Name())
			switch {
			case e.IsDir():
				queue = append(queue, p)
			case e.Type()&os.ModeSymlink != 0:
				if err := l.link(t, p, name+strings.TrimPrefix(p, top), top); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
