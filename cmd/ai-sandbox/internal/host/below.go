// Reading a file of the user's that a sandbox may have had a hand in.

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReadBelow reads a regular file of at most limit bytes below dir, or nil where there
// is none. It follows no link below dir: an agent that could write there
// (bind_harness_home) would have any file of the user's brought in by one.
func ReadBelow(dir, rel string, limit int64) ([]byte, error) {
	name := quote(filepath.Join(dir, rel))
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", quote(dir), err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat2(at, rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%s is a symbolic link, or behind one, and an agent may have put it there, so it is not read", name)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, nil
}
