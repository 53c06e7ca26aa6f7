// Who decides where a path leads.

package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Through tells whether somebody who can write in dir, which is resolved, decides
// what the absolute path leads to: it ends in dir, or a symlink on its way does
// or lies there. A path that can't be followed to its end is judged by its names.
func Through(path, dir string) bool {
	if dir == "" || !filepath.IsAbs(path) {
		return false
	}
	// The kernel follows a link before "..", and whoever joins names does not.
	return passes(path, dir) || path != filepath.Clean(path) && passes(filepath.Clean(path), dir)
}

func passes(path, dir string) bool {
	todo := strings.Split(path, "/")
	at, links := "/", 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
		default:
			next := filepath.Join(at, name)
			target, err := os.Readlink(next)
			if err != nil {
				at = next
				break
			}
			if links++; links > maxLinks {
				return false
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			todo = slices.Concat(strings.Split(target, "/"), todo)
		}
		if within(at, dir) {
			return true
		}
	}
	return false
}
