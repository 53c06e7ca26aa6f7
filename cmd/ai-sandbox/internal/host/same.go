// Whether two paths show the same files, whatever they are called.

package host

import (
	"os"
	"path/filepath"
	"strings"

	"ai-sandbox/policy"
)

// Same tells whether two directories are, by identity and not by name, one another
// or in one another: the host may have bound one, or a part of one, under another
// name.
func Same(a, b string) bool {
	if holds(a, b) || holds(b, a) {
		return true
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	return err != nil || sameIn(string(table), a, b) // without it, nobody knows
}

// holds tells whether dir is path or one of the directories above it.
func holds(dir, path string) bool {
	d, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for {
		if p, err := os.Stat(path); err == nil && os.SameFile(d, p) {
			return true
		}
		if path == "/" || path == "." {
			return false
		}
		path = filepath.Dir(path)
	}
}

// sameIn is Same by the table of mounts: a part of a tree that is bound elsewhere
// has nothing above it that tells whose it is.
func sameIn(table, a, b string) bool {
	aDev, aPath := inFileSystem(table, a)
	bDev, bPath := inFileSystem(table, b)
	return aDev != "" && aDev == bDev && policy.Touches(aPath, bPath)
}

// mangled is how the kernel writes a path in its tables (proc_pid_mountinfo(5)).
var mangled = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// inFileSystem is the device of a resolved path, and where it is from that file
// system's own root.
func inFileSystem(table, path string) (dev, at string) {
	longest := -1
	for line := range strings.Lines(table) {
		// ID, parent, device, root, mount point
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		// Of two at one place, the later one is seen.
		if point := mangled.Replace(f[4]); within(path, point) && len(point) >= longest {
			longest = len(point)
			dev, at = f[2], filepath.Join(mangled.Replace(f[3]), strings.TrimPrefix(path, point))
		}
	}
	return dev, at
}
