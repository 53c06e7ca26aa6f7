// Reading a file that holds secrets.

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A SecretFile is a file of the user's that nobody else may read.
type SecretFile struct {
	Data []byte
	// Places are the path, each link on the way, and where the file really is.
	Places []string
}

// ReadSecretFile reads a file of at most limit bytes. It takes nothing but a
// regular file that belongs to the calling user and that nobody else has any
// permission for. The path is absolute; what names the file in errors.
func ReadSecretFile(what, path string, limit int64) (f SecretFile, err error) {
	bad := func(format string, a ...any) (SecretFile, error) {
		return SecretFile{}, fmt.Errorf("%s %s %s", what, quote(path), fmt.Sprintf(format, a...))
	}
	if f.Places, err = places(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return bad("does not exist; name one that does")
		}
		return SecretFile{}, fmt.Errorf("look at %s: %w", what, err)
	}
	// Not to wait for a FIFO's other end.
	file, err := os.OpenFile(f.Places[len(f.Places)-1], os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return SecretFile{}, fmt.Errorf("read %s: %w", what, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return SecretFile{}, fmt.Errorf("read %s: %w", what, err)
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return bad("is not a regular file; name one")
	case owner(info) != os.Getuid():
		return bad("belongs to another user (uid %d); make a copy of your own", owner(info))
	case mode.Perm()&0o077 != 0:
		return bad("is open to other users (mode %04o); shut it with: chmod 600 %s", mode.Perm(), quote(path))
	}
	if f.Data, err = io.ReadAll(io.LimitReader(file, limit+1)); err != nil {
		return SecretFile{}, fmt.Errorf("read %s: %w", what, err)
	}
	if int64(len(f.Data)) > limit {
		return bad("has more than %d bytes; take something out of it", limit)
	}
	return f, nil
}

// Within returns the first of dirs that a place on the way to the file lies in,
// or "".
func (f SecretFile) Within(dirs []string) string {
	for _, place := range f.Places {
		for _, d := range dirs {
			if within(place, d) {
				return d
			}
		}
	}
	return ""
}

// places follows a path as the kernel does, and tells where it leads through.
func places(path string) ([]string, error) {
	out := []string{path}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name) // ".." too: at has no link in it
		info, err := os.Lstat(next)
		if err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return nil, err
		}
		out = append(out, next)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return append(out, at), nil
}
