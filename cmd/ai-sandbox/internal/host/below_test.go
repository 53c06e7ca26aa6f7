package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadBelow(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.MkdirAll(at("a/b"), 0o700), os.WriteFile(at("a/b/f"), []byte("text"), 0o600), os.WriteFile(at("a/b/empty"), nil, 0o600),
		os.WriteFile(at("a/b/long"), make([]byte, 101), 0o600), os.Symlink("f", at("a/b/link")), os.Symlink("b", at("a/dir")), os.Symlink("/nowhere", at("a/b/dangling")),
		unix.Mkfifo(at("a/b/fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"a/b/f": "text", "a/b/empty": "", "a/b/none": "nil", "x/y": "nil", "a/b/f/g": "nil"} {
		got, err := ReadBelow(dir, name, 100)
		if err != nil || (got == nil) != (want == "nil") || got != nil && string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"a/b/link": "is a symbolic link", "a/dir/f": "is a symbolic link", "a/b/dangling": "is a symbolic link", "a/b/fifo": "not a regular file", "a/b": "not a regular file", "a/b/long": "more than 100 bytes",
	} {
		if got, err := ReadBelow(dir, name, 100); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if got, err := ReadBelow(at("none"), "f", 100); got != nil || err != nil {
		t.Errorf("%q %v", got, err)
	}
}
