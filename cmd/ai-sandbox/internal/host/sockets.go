// Unix sockets below a directory: whoever listens at one can be reached through
// any mount that shows it, a read-only one too.

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// walkDirs bounds the search in each tree, breadth first: a start may not take
// longer for a large project. That is half a millisecond.
const walkDirs = 64

// Where a socket has to be looked for that is not where its name says, a tree is
// looked through as a whole, up to these.
const (
	searchEntries = 500_000
	searchTime    = 2 * time.Second
	freeDirs      = 1000 // which are looked at however long that takes
)

// Sockets lists the unix sockets below each of the trees that somebody has bound,
// sorted, as absolute paths. What a process in this network namespace has bound is
// found wherever it is, also when its file was moved: the kernel says which file it
// is. One of another network namespace (a container that has the tree, too) is
// found in the first walkDirs directories, from the top down. What is bound later
// is not found; a socket's file that nobody listens at any more leads nowhere, and
// stays out. A tree that is too large to be looked through is an error, where that
// has to be done.
func Sockets(trees ...string) ([][]string, error) {
	return socketsIn(searchEntries, trees)
}

func socketsIn(limit int, trees []string) ([][]string, error) {
	out := make([][]string, len(trees))
	table, err := mountTable()
	if err != nil {
		return nil, err
	}
	bound, lost := boundSockets(table, trees)
	if len(lost) > 0 {
		if now, err := diagSockets(); err == nil { // one that was closed since then leads nowhere
			lost = slices.DeleteFunc(lost, func(s boundSocket) bool { return !slices.Contains(now, s) })
		}
	}
	moved := map[socketFile]bool{}
	for _, s := range lost {
		moved[s.file] = true
	}
	var errs []error
	for i, tree := range trees {
		var list []string
		for _, s := range bound {
			if within(s, tree) && s != tree {
				list = append(list, s)
			}
		}
		walked, _ := walkSockets(tree, walkDirs, math.MaxInt, time.Time{})
		lost = notAmong(lost, table, walked)
		if on := onDevices(lost, table, tree); len(on) > 0 {
			var whole bool
			walked, whole = walkSockets(tree, math.MaxInt, limit, time.Now().Add(searchTime))
			lost = notAmong(lost, table, walked)
			if on = onDevices(lost, table, tree); !whole && len(on) > 0 {
				errs = append(errs, fmt.Errorf("%s has too many files to look for the unix socket that is bound as %s and is not there; end the program that listens at it (ss -xlp shows it), or show a smaller directory",
					quote(tree), quote(on[0].name)))
			}
		}
		for _, s := range walked {
			// What is bound may be listened at later.
			if f, _ := fileAt(table, s); !slices.Contains(list, s) && (moved[f] || answers(s)) {
				list = append(list, s)
			}
		}
		slices.Sort(list)
		out[i] = slices.Compact(list)
	}
	return out, errors.Join(errs...)
}

// onDevices are those of the sockets that may be in one of the trees: on its
// device, or on one of what is mounted below.
func onDevices(sockets []boundSocket, table []mounted, trees ...string) []boundSocket {
	if len(sockets) == 0 {
		return nil
	}
	devs := map[string]bool{"": true} // not known
	for _, tree := range trees {
		at, _ := inFileSystem(table, tree)
		devs[at] = true
		for _, m := range table {
			devs[m.dev] = devs[m.dev] || within(m.point, tree)
		}
	}
	var out []boundSocket
	for _, s := range sockets {
		if devs[s.file.dev] {
			out = append(out, s)
		}
	}
	return out
}

// notAmong are the sockets that are none of the files, or have another name, too.
func notAmong(sockets []boundSocket, table []mounted, paths []string) []boundSocket {
	if len(sockets) == 0 {
		return nil
	}
	found := map[socketFile]bool{}
	for _, p := range paths {
		if f, once := fileAt(table, p); once {
			found[f] = true
		}
	}
	var out []boundSocket
	for _, s := range sockets {
		if !found[s.file] {
			out = append(out, s)
		}
	}
	return out
}

// fileAt is which file is at a resolved path, and whether that is its only name.
func fileAt(table []mounted, path string) (f socketFile, once bool) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return f, false
	}
	f.dev, _ = inFileSystem(table, path)
	f.ino = uint32(st.Ino) //nolint:gosec // the half that sock_diag tells
	return f, st.Nlink == 1
}

// boundSockets are the paths of all sockets that the kernel lists, resolved, and
// those that are not at their path. A relative one is looked for in the trees and
// where processes work: the kernel keeps the name that bind(2) was given. One that
// was moved within its directory, as ssh does, is looked for there.
func boundSockets(table []mounted, trees []string) (paths []string, lost []boundSocket) {
	all, err := diagSockets()
	if err != nil {
		all = namedSockets() // a kernel without sock_diag
	}
	all = onDevices(all, table, trees...)
	var dirs []string // when they are needed
	resolved := map[string]string{}
	for _, s := range all {
		var names []string
		if filepath.IsAbs(s.name) {
			names = []string{s.name}
		} else {
			if dirs == nil {
				dirs = append(slices.Clone(trees), workingDirs()...)
			}
			for _, d := range dirs {
				names = append(names, filepath.Join(d, s.name))
			}
		}
		there := false
		for _, p := range names {
			dir, ok := resolved[filepath.Dir(p)]
			if !ok {
				dir, _ = filepath.EvalSymlinks(filepath.Dir(p)) // "" where there is none
				resolved[filepath.Dir(p)] = dir
			}
			if dir == "" {
				continue
			}
			p = filepath.Join(dir, filepath.Base(p))
			f, once := fileAt(table, p)
			switch {
			case f != (socketFile{}) && (f == s.file || s.file == socketFile{}):
				paths = append(paths, p)
				there = there || once
			case filepath.IsAbs(s.name) && s.file != socketFile{}:
				siblings, _ := walkSockets(dir, 1, math.MaxInt, time.Time{})
				for _, p := range siblings {
					if f, once := fileAt(table, p); f == s.file {
						paths = append(paths, p)
						there = there || once
					}
				}
			}
		}
		if !there {
			lost = append(lost, s)
		}
	}
	return paths, lost
}

// namedSockets are the sockets by their names alone (proc(5), /proc/net/unix).
func namedSockets() []boundSocket {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil // a kernel without unix sockets
	}
	var out []boundSocket
	for line := range strings.Lines(string(table)) {
		if name := socketName(strings.TrimSuffix(line, "\n")); name != "" && name[0] != '@' && name != "Path" {
			out = append(out, boundSocket{name: name})
		}
	}
	return out
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

// walkSockets looks through a tree, breadth first, up to so many directories and
// entries, and to a deadline if there is one, but freeDirs at least, however little
// this process is let run; whole tells whether that was all of it. A directory that
// can't be read shows nothing to the sandbox either, as it runs as the same user.
func walkSockets(tree string, dirs, entries int, deadline time.Time) (out []string, whole bool) {
	buf := make([]byte, 16<<10)
	queue := []string{tree}
	for n := 0; len(queue) > 0; n++ {
		if n == dirs || entries < 0 || n >= freeDirs && !deadline.IsZero() && time.Now().After(deadline) {
			return out, false
		}
		dir := queue[0]
		queue = queue[1:]
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var below []string
		for entries >= 0 {
			k, err := unix.Getdents(fd, buf)
			if err != nil || k <= 0 {
				break
			}
			dirEntries(buf[:k], func(name string, kind byte) {
				entries--
				if kind != unix.DT_DIR && kind != unix.DT_SOCK && kind != unix.DT_UNKNOWN {
					return
				}
				path := filepath.Join(dir, name)
				switch {
				case kind == unix.DT_DIR, kind == unix.DT_UNKNOWN && !isSocket(path): // what is none can't be opened as one
					below = append(below, path)
				default:
					out = append(out, path)
				}
			})
		}
		unix.Close(fd)
		slices.Sort(below) // the same directories each time
		queue = append(queue, below...)
	}
	return out, entries >= 0
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
