package tree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever an agent leaves goes, and nothing that it leads to.
func TestRemove(t *testing.T) {
	parent, outside := t.TempDir(), t.TempDir()
	kept := filepath.Join(outside, "kept")
	beside := filepath.Join(parent, "tree.gone") // not quite what is moved aside
	for _, f := range []string{kept, beside} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := unix.Open(parent, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	root := filepath.Join(parent, "tree")
	for name, plant := range map[string]func() error{
		"nothing": func() error { return nil },
		"a file":  func() error { return os.WriteFile(root, nil, 0) },
		"a link":  func() error { return os.Symlink(outside, root) },
		"a tree": func() error {
			shut := filepath.Join(root, "a/b/shut")
			return errors.Join(os.MkdirAll(shut, 0o700), os.WriteFile(filepath.Join(shut, "x"), nil, 0),
				os.Symlink(outside, filepath.Join(root, "a/link")), unix.Mkfifo(filepath.Join(root, "fifo"), 0),
				os.Chmod(shut, 0), os.Chmod(filepath.Join(root, "a"), 0o500), os.Chmod(root, 0o100))
		},
		"a long path": func() error {
			err := os.Mkdir(root, 0o700)
			d, oerr := unix.Open(root, unix.O_DIRECTORY, 0)
			for range 50 {
				name := strings.Repeat("d", 200)
				err = errors.Join(err, oerr, unix.Mkdirat(d, name, 0o700))
				next, e := unix.Openat(d, name, unix.O_DIRECTORY, 0)
				unix.Close(d)
				d, oerr = next, e
			}
			unix.Close(d)
			return errors.Join(err, oerr)
		},
		"one that was cut short": func() error {
			return errors.Join(os.MkdirAll(filepath.Join(parent, "tree"+gone+"7/x"), 0o700), os.Mkdir(root, 0o700))
		},
	} {
		if err := plant(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := Remove(at, "tree"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		entries, err := os.ReadDir(parent)
		if err != nil || len(entries) != 1 || entries[0].Name() != "tree.gone" {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
