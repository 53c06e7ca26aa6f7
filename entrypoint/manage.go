// Files of the host's that are brought into the home, after the drop: from the home
// on no link is followed, and what is there is replaced by a rename.

package entrypoint

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/managed"
	"ai-sandbox/entrypoint/spec"
)

// errPlanted is what nobody but the sandbox can have put there.
var errPlanted = errors.New("it is a link, or not of the kind that it should be")

var errLong = fmt.Errorf("it has more than %d bytes", spec.MaxManaged)

// manage brings one file in. What can't be done is told and stops nothing: the home
// is the sandbox's, and it would lock its user out.
func manage(m spec.Managed) spec.HomeNote {
	dir, note := openBeneath(m.Home, path.Dir(m.Path), true)
	if note != nil {
		return *note
	}
	defer unix.Close(dir)
	name := path.Base(m.Path)
	state, at, err := bringIn(dir, name, m)
	if err != nil {
		return obstacle(dir, path.Dir(m.Path), at, err)
	}
	return spec.HomeNote{Path: m.Path, State: state}
}

// obstacle tells why something could not be done with name in dir, which is at rel
// below the home, and what it is that is in the way.
func obstacle(dir int, rel, name string, err error) spec.HomeNote {
	n := spec.HomeNote{Path: path.Join(rel, name), State: spec.NoteUnread, Reason: err.Error()}
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil && st.Mode&0o700 != 0o700 { // nothing in it can be mended before
		n.Path, n.Mend = path.Clean(rel), spec.MendOpen
		return n
	}
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return n
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR:
		n.Mend = spec.MendTree
	case errors.Is(err, unix.EACCES), kind != unix.S_IFREG, errors.Is(err, errPlanted), errors.Is(err, errLong):
		n.Mend = spec.MendRemove
	}
	return n
}

// bringIn also tells at what name it ended.
func bringIn(dir int, name string, m spec.Managed) (state, at string, err error) {
	wrote := spec.WrotePrefix + name + spec.WroteSuffix
	var in managed.Input
	// In the other order than they are written: another start on the same home may write
	// them meanwhile, and a file that is older than its base would be taken for changed.
	if in.Base, err = readAt(dir, wrote); err != nil {
		in.Base = nil // as good as none: it is ours alone, and is made anew
	}
	if in.Mine, err = readAt(dir, name); err != nil {
		return "", name, err
	}
	if in.Host = m.Content; !m.None && in.Host == nil {
		in.Host = []byte{}
	}
	var out managed.Result
	if m.Keys {
		fixed := map[string]string{}
		for _, k := range m.Fixed {
			fixed[k.Key] = k.Value
		}
		if out, err = managed.Keys(in, fixed); err != nil {
			return "", name, fmt.Errorf("the host's version: %w", err)
		}
	} else {
		out = managed.Whole(in)
	}
	// First the file: without its base it is brought in once more.
	if err := replaceAt(dir, name, in.Mine, out.File, m.Mode); err != nil {
		return "", name, err
	}
	if err := replaceAt(dir, wrote, in.Base, out.Base, m.Mode); err != nil {
		return "", wrote, err
	}
	switch {
	case out.Kept:
		return spec.NoteKept, "", nil
	case out.Reseeded:
		return spec.NoteReseeded, "", nil
	}
	return "", "", nil
}

// openBeneath opens rel below home, making it where that is asked for, and follows no
// link on the way; a note tells what is. It takes a step at a time: our own filter
// bars openat2(2).
func openBeneath(home, rel string, mk bool) (fd int, note *spec.HomeNote) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(home, flags, 0)
	if err != nil {
		return -1, &spec.HomeNote{Path: ".", State: spec.NoteUnread, Reason: err.Error()}
	}
	at := "."
	for name := range strings.SplitSeq(rel, "/") {
		next, err := stepAt(fd, name, flags, mk)
		if err != nil {
			n := obstacle(fd, at, name, err)
			note = &n
		}
		unix.Close(fd)
		if err != nil {
			return -1, note
		}
		fd, at = next, path.Join(at, name)
	}
	return fd, nil
}

func stepAt(dir int, name string, flags int, mk bool) (fd int, err error) {
	if mk {
		if err := unix.Mkdirat(dir, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
	}
	fd, err = unix.Openat(dir, name, flags, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = errPlanted
	}
	return fd, err
}

// readAt reads a file, or nil where there is none. A link in its place counts as
// none, wherever it leads: a rename replaces it.
func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errPlanted
	}
	data, err := io.ReadAll(io.LimitReader(f, spec.MaxManaged+1))
	if err == nil && len(data) > spec.MaxManaged {
		err = errLong
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}

// replaceAt makes a file what it has to be, nil being that there is none. One that
// holds that already is left alone.
func replaceAt(dir int, name string, was, now []byte, mode uint32) error {
	if now == nil {
		if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		return nil
	}
	if was != nil && string(was) == string(now) {
		return nil
	}
	// A name that nobody knows: neither the sandbox, nor another start on this home.
	temp := spec.WrotePrefix + name + "." + rand.Text()
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = f.Write(now)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
	}
	return err
}
