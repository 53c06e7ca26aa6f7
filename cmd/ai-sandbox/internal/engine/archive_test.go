package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of images has its name when it is whole, replaces nothing, and follows no link
// of the project's; also where a file system has no files without a name.
func TestNewFile(t *testing.T) {
	for name, flag := range map[string]int{"without a name": unix.O_TMPFILE, "with another name": 0} {
		t.Run(name, func(t *testing.T) { testNewFile(t, flag) })
	}
}

func testNewFile(t *testing.T, flag int) {
	project, elsewhere := t.TempDir(), t.TempDir()
	path := filepath.Join(project, "images.tar")
	names := func(dir string) string {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, e := range list {
			out += e.Name() + " "
		}
		return out
	}
	write := func(path string, meanwhile func(), why error) error {
		t.Helper()
		f, err := openFile(path, project, flag)
		if err != nil {
			return err
		}
		if _, err := f.Write([]byte("whole")); err != nil {
			t.Fatal(err)
		}
		if meanwhile != nil {
			meanwhile()
		}
		return f.end(why)
	}
	if err := write(path, nil, errors.New("ended")); err == nil || names(project) != "" {
		t.Errorf("%v leaves %q", err, names(project))
	}
	if err := write(path, func() {
		if _, err := os.Stat(path); err == nil {
			t.Error("it has its name before it is whole")
		}
		if there := names(project); (there == "") != (flag != 0) {
			t.Errorf("a killed process leaves %q", there)
		}
	}, nil); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); string(data) != "whole" || names(project) != "images.tar " {
		t.Errorf("%q, %v, %q", data, err, names(project))
	}
	if err := write(path, nil, nil); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("%v", err)
	}
	// Somebody else was quicker.
	other := filepath.Join(project, "other.tar")
	if err := write(other, func() {
		if err := os.WriteFile(other, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
	}, nil); err == nil {
		t.Error("it replaces a file")
	}
	if data, err := os.ReadFile(other); string(data) != "theirs" || names(project) != "images.tar other.tar " {
		t.Errorf("%q, %v, %q", data, err, names(project))
	}
	for link, to := range map[string]string{"file.tar": filepath.Join(elsewhere, "x"), "dir": elsewhere} {
		if err := os.Symlink(to, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"file.tar", "dir/images.tar", "gone/images.tar"} {
		if err := write(filepath.Join(project, path), nil, nil); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	if names(elsewhere) != "" {
		t.Errorf("elsewhere: %q", names(elsewhere))
	}
	if err := write(filepath.Join(elsewhere, "images.tar"), nil, nil); err != nil {
		t.Error(err)
	}
}
