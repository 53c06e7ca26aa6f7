// Unix sockets below a directory: whoever listens at one can be reached through
// any mount that shows it, a read-only one too.

package host

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// walkDirs bounds the search in each tree, breadth first: a start may not take
// longer for a large project. That is half a millisecond.
const walkDirs = 64

// Sockets lists the unix sockets below each of the trees that somebody has bound,
// sorted, as absolute paths. What a process in this network namespace has bound is
// found wherever it is: the kernel lists it (proc(5), /proc/net/unix). One of
// another network namespace (a container that has the tree, too) is found in the
// first walkDirs directories, from the top down. What is bound later is not found;
// a socket's file that nobody listens at any more leads nowhere, and stays out.
func Sockets(trees ...string) [][]string {
	out := make([][]string, len(trees))
	bound := boundSockets(trees)
	for i, tree := range trees {
		var list []string
		for _, s := range bound {
			if within(s, tree) && s != tree {
				list = append(list, s)
			}
		}
		for _, s := range walkSockets(tree, walkDirs) {
			if !slices.Contains(list, s) && answers(s) {
				list = append(list, s)
			}
		}
		slices.Sort(list)
		out[i] = slices.Compact(list)
	}
	return out
}

// boundSockets are the paths of all sockets that the kernel lists, resolved. A
// relative one is looked for in the trees and where processes work: the kernel
// keeps the name that bind(2) was given.
func boundSockets(trees []string) []string {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil // a kernel without unix sockets
	}
	var out, relative []string
	for sc := bufio.NewScanner(bytes.NewReader(table)); sc.Scan(); {
		name := socketName(sc.Text())
		switch {
		case name == "" || name[0] == '@':
		case name[0] == '/':
			out = append(out, name)
		default:
			relative = append(relative, name)
		}
	}
	if len(relative) > 0 {
		for _, dir := range append(slices.Clone(trees), workingDirs()...) {
			for _, name := range relative {
				out = append(out, filepath.Join(dir, name))
			}
		}
	}
	found := out[:0]
	for _, p := range out {
		dir, err := filepath.EvalSymlinks(filepath.Dir(p))
		if err != nil {
			continue
		}
		p = filepath.Join(dir, filepath.Base(p))
		if isSocket(p) {
			found = append(found, p)
		}
	}
	return found
}

// socketName is the path in a line of /proc/net/unix, or "". Seven fields come
// before it; it may hold spaces.
func socketName(line string) string {
	for range 7 {
		line = strings.TrimLeft(line, " ")
		_, rest, ok := strings.Cut(line, " ")
		if !ok {
			return ""
		}
		line = rest
	}
	return line
}

// workingDirs are the working directories of the processes that we may look at.
func workingDirs() []string {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	var out []string
	for _, e := range processes {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if dir, err := os.Readlink("/proc/" + e.Name() + "/cwd"); err == nil && !seen[dir] {
			seen[dir] = true
			out = append(out, dir)
		}
	}
	return out
}

// answers tells whether anybody holds a socket that the kernel does not list here:
// connect(2) is refused where nobody does (unix(7)). What it says otherwise, a
// wrong type or a full queue, is somebody's.
func answers(path string) bool {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(dir)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	// By the descriptor, as an address has room for 107 bytes.
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)})
	return err != unix.ECONNREFUSED && err != unix.ENOENT
}

func isSocket(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// walkSockets looks through at most limit directories, breadth first. A directory
// that can't be read shows nothing to the sandbox either, as it runs as the same
// user.
func walkSockets(tree string, limit int) []string {
	var out []string
	buf := make([]byte, 16<<10)
	queue := []string{tree}
	for n := 0; len(queue) > 0 && n < limit; n++ {
		dir := queue[0]
		queue = queue[1:]
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var below []string
		for {
			k, err := unix.Getdents(fd, buf)
			if err != nil || k <= 0 {
				break
			}
			dirEntries(buf[:k], func(name string, kind byte) {
				path := filepath.Join(dir, name)
				switch {
				case kind == unix.DT_DIR, kind == unix.DT_UNKNOWN && !isSocket(path): // what is none can't be opened as one
					below = append(below, path)
				case kind == unix.DT_SOCK, kind == unix.DT_UNKNOWN:
					out = append(out, path)
				}
			})
		}
		unix.Close(fd)
		slices.Sort(below) // the same directories each time
		queue = append(queue, below...)
	}
	return out
}

// dirEntries reads a buffer of getdents64(2).
func dirEntries(buf []byte, each func(name string, kind byte)) {
	const header = 19 // d_ino, d_off, d_reclen, d_type
	for len(buf) > header {
		length := int(binary.NativeEndian.Uint16(buf[16:]))
		if length <= header || length > len(buf) {
			return
		}
		name, _, _ := bytes.Cut(buf[header:length], []byte{0})
		if s := string(name); s != "." && s != ".." {
			each(s, buf[18])
		}
		buf = buf[length:]
	}
}
