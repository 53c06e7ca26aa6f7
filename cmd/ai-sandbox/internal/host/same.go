// Whether two paths show the same files, whatever they are called.

package host

import (
	"fmt"
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
	table, err := mountTable()
	return err != nil || sameIn(table, a, b) // without it, nobody knows
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
func sameIn(table []mounted, a, b string) bool {
	aDev, aPath := inFileSystem(table, a)
	bDev, bPath := inFileSystem(table, b)
	return aDev != "" && aDev == bDev && policy.Touches(aPath, bPath)
}

// A mounted is one line of the table of mounts: the device of a file system, what
// of it is shown, and where.
type mounted struct{ dev, root, point string }

// mangled is how the kernel writes a path in its tables (proc_pid_mountinfo(5)).
var mangled = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// mountTable is what this process sees mounted.
func mountTable() ([]mounted, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look at what is mounted: %w", err)
	}
	return parseMounts(string(table)), nil
}

func parseMounts(table string) []mounted {
	var out []mounted
	for line := range strings.Lines(table) {
		// ID, parent, device, root, mount point
		if f := strings.Fields(line); len(f) > 4 {
			out = append(out, mounted{f[2], mangled.Replace(f[3]), mangled.Replace(f[4])})
		}
	}
	return out
}

// inFileSystem is the device of a resolved path, and where it is from that file
// system's own root.
func inFileSystem(table []mounted, path string) (dev, at string) {
	longest := -1
	for _, m := range table {
		// Of two at one place, the later one is seen.
		if within(path, m.point) && len(m.point) >= longest {
			longest = len(m.point)
			dev, at = m.dev, filepath.Join(m.root, strings.TrimPrefix(path, m.point))
		}
	}
	return dev, at
}
