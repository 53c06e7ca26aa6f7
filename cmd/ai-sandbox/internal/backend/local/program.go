// The entrypoint's file. A jail has no image that would hold it, so it lies in
// the state directory, and each process that makes jails compares it with what
// this program carries, byte by byte: that takes less than to copy it into a jail.

package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// programFile returns the path of a file that holds the entrypoint.
func (b *Backend) programFile() (string, error) {
	if !filepath.IsAbs(b.config.StateDir) {
		return "", errors.New("the state directory is not an absolute path; set XDG_STATE_HOME to one")
	}
	want, name, err := b.config.Entrypoint()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.config.StateDir, "entrypoint")
	// One name for each build, so that two builds leave each other alone. It
	// proves nothing: the content is compared.
	path := filepath.Join(dir, "aisb-entrypoint-"+name)
	same, err := holds(path, want)
	if err == nil && same {
		return path, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look at the entrypoint's file: %w", err)
	}
	if err := write(dir, path, want); err != nil {
		return "", fmt.Errorf("write the entrypoint's file: %w", err)
	}
	return path, nil
}

// holds tells whether a file has this content, can be run, and can be changed by
// nobody else.
func holds(path string, want *io.SectionReader) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o777 != 0o555 || int(st.Uid) != os.Geteuid() || st.Size != want.Size() {
		return false, nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return false, fmt.Errorf("%s is on a file system that runs no programs (noexec); set XDG_STATE_HOME to a directory on another", path)
	}
	// In parts: to hold all of it would cost more than to compare it.
	var got, part [64 << 10]byte
	for off := int64(0); off < want.Size(); {
		n, err := want.ReadAt(part[:min(int64(len(part)), want.Size()-off)], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read the embedded entrypoint: %w", err)
		}
		if _, err := io.ReadFull(f, got[:n]); err != nil {
			return false, fmt.Errorf("read %s: %w", path, err)
		}
		if !bytes.Equal(got[:n], part[:n]) {
			return false, nil
		}
		off += int64(n)
	}
	return true, nil
}

// write puts content at path, and takes other builds' files away. A jail that
// runs from one of those keeps it.
func write(dir, path string, content *io.SectionReader) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := temporary(dir, content)
	if err != nil {
		return err
	}
	// Another ai-sandbox may have written the same just now, and bind that one.
	if err = os.Link(tmp, path); errors.Is(err, os.ErrExist) {
		var same bool
		if same, err = holds(path, content); err == nil && !same {
			err = os.Rename(tmp, path)
		}
	}
	if rerr := os.Remove(tmp); err == nil && !errors.Is(rerr, os.ErrNotExist) {
		err = rerr
	}
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "aisb-entrypoint-*"))
	if err != nil {
		return err
	}
	for _, o := range old {
		if o != path {
			if err := os.Remove(o); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	same, err := holds(path, content)
	if err == nil && !same {
		err = fmt.Errorf("%s was changed by another program just now", path)
	}
	return err
}

// temporary writes content to a new file in dir.
func temporary(dir string, content *io.SectionReader) (string, error) {
	// A child that is forked while the file is open for writing keeps it so for
	// a moment, and what is open for writing can't be run (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, io.NewSectionReader(content, 0, content.Size()))
	if err == nil {
		err = f.Chmod(0o555)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
