// Files of the host's that are brought into the home, after the drop: from the home
// on no link is followed, and what is there is replaced by a rename.

package entrypoint

import (
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

// manage brings one file in. What can't be done is told and stops nothing: the home
// is the sandbox's, and it would lock its user out.
func manage(m spec.Managed) spec.HomeNote {
	n := spec.HomeNote{Path: m.Path}
	dir, at, err := openBeneath(m.Home, path.Dir(m.Path), true)
	if err != nil {
		n.Path = at
	} else {
		n.State, err = bringIn(dir, path.Base(m.Path), m)
		unix.Close(dir)
	}
	if err != nil {
		n.State, n.Reason = spec.NoteUnread, err.Error()
	}
	return n
}

func bringIn(dir int, name string, m spec.Managed) (state string, err error) {
	wrote := spec.WrotePrefix + name + spec.WroteSuffix
	var in managed.Input
	if in.Mine, err = readAt(dir, name); err != nil {
		return "", err
	}
	if in.Base, err = readAt(dir, wrote); err != nil {
		in.Base = nil // as good as none: it is ours alone, and is made anew
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
			return "", fmt.Errorf("the host's version: %w", err)
		}
	} else {
		out = managed.Whole(in)
	}
	// First the file: without its base it is brought in once more.
	if err := replaceAt(dir, name, in.Mine, out.File, m.Mode); err != nil {
		return "", err
	}
	if err := replaceAt(dir, wrote, in.Base, out.Base, m.Mode); err != nil {
		return "", err
	}
	switch {
	case out.Kept:
		return spec.NoteKept, nil
	case out.Reseeded:
		return spec.NoteReseeded, nil
	}
	return "", nil
}

// openBeneath opens rel below dir, making it where that is asked for, and follows no
// link on the way; at is how far it came. It takes a step at a time: our own filter bars openat2(2).
func openBeneath(dir, rel string, mk bool) (fd int, at string, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if fd, err = unix.Open(dir, flags, 0); err != nil {
		return -1, "", err
	}
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		if mk {
			if err := unix.Mkdirat(fd, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
				unix.Close(fd)
				return -1, at, err
			}
		}
		next, err := unix.Openat(fd, name, flags, 0)
		unix.Close(fd)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = errPlanted
		}
		if err != nil {
			return -1, at, err
		}
		fd = next
	}
	return fd, at, nil
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
		err = fmt.Errorf("it has more than %d bytes", spec.MaxManaged)
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
	temp := name + ".new"
	if err := unix.Unlinkat(dir, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = f.Write(now)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return unix.Renameat(dir, temp, dir, name)
}
