package config

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// identity is the device and inode of a directory.
func identity(t *testing.T, dir string) (dev, ino uint64) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no stat")
	}
	return st.Dev, st.Ino
}

// Whatever lies in the place of the project's file is read without following
// it, without waiting, and is never taken for no file.
func TestReadProject(t *testing.T) {
	const good = "net = none\n"
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(filepath.Join(outside, ".ai-sandbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"config", ".ai-sandbox/config"} {
		if err := os.WriteFile(filepath.Join(outside, f), []byte("secret = canary\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) func(string) error {
		return func(file string) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	for _, tc := range []struct {
		name string
		dir  func(string) error // makes .ai-sandbox; nil: a directory
		file func(string) error // makes the file in it; nil: none
		want string             // of the error; "" is none
		net  string
	}{
		{name: "plain", file: write(good), net: "none"},
		{name: "no directory", dir: func(string) error { return nil }},
		{name: "no file"},
		{name: "directory is a link", dir: func(d string) error { return os.Symlink(filepath.Join(outside, ".ai-sandbox"), d) }, want: "not a directory"},
		{name: "directory is a dangling link", dir: func(d string) error { return os.Symlink("/nowhere", d) }, want: "not a directory"},
		{name: "directory is a file", dir: write(good), want: "not a directory"},
		{name: "directory is a FIFO", dir: func(d string) error { return unix.Mkfifo(d, 0o600) }, want: "not a directory"},
		{name: "link outside", file: func(f string) error { return os.Symlink(filepath.Join(outside, "config"), f) }, want: "is a symlink"},
		{name: "link inside", file: func(f string) error {
			return cmpErr(os.WriteFile(f+"2", []byte(good), 0o600), os.Symlink("config2", f))
		}, want: "is a symlink"},
		{name: "dangling link", file: func(f string) error { return os.Symlink("nowhere", f) }, want: "is a symlink"},
		{name: "FIFO", file: func(f string) error { return unix.Mkfifo(f, 0o600) }, want: "not a regular file"},
		{name: "directory", file: func(f string) error { return os.Mkdir(f, 0o700) }, want: "not a regular file"},
		{name: "socket", file: func(f string) error {
			t.Chdir(filepath.Dir(f)) // a socket's path is short
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			t.Cleanup(func() { unix.Close(fd) })
			return cmpErr(err, unix.Bind(fd, &unix.SockaddrUnix{Name: "config"}))
		}, want: "not a regular file"},
		{name: "as long as it may be", file: write(good + "#" + strings.Repeat("x", maxProjectFile-len(good)-1)), net: "none"},
		{name: "longer", file: write(good + "#" + strings.Repeat("x", maxProjectFile-len(good))), want: "longer than 64 KiB"},
		{name: "terminal escapes", file: write("allow = \x1b]0;title\x07"), want: "not printable"},
		{name: "unknown", file: write("\u0430llow = x"), want: `key "аllow" is unknown (from .ai-sandbox/config:1)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			project := t.TempDir()
			dir := filepath.Join(project, ".ai-sandbox")
			if tc.dir == nil {
				tc.dir = func(d string) error { return os.Mkdir(d, 0o700) }
			}
			if err := tc.dir(dir); err != nil {
				t.Fatal(err)
			}
			if tc.file != nil {
				if err := tc.file(filepath.Join(dir, "config")); err != nil {
					t.Fatal(err)
				}
			}
			dev, ino := identity(t, project)
			f, err := ReadProject(project, dev, ino)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error tells what lies outside: %v", err)
			}
			if s, err := (Layers{Project: f}).Settle(); err != nil || s.Text("net") != tc.net {
				t.Errorf("net %q, want %q (%v)", s.Text("net"), tc.net, err)
			}
		})
	}
	t.Run("unreadable", func(t *testing.T) {
		project := t.TempDir()
		if err := os.Mkdir(filepath.Join(project, ".ai-sandbox"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(project, ProjectFile), []byte(good), 0); err != nil {
			t.Fatal(err)
		}
		dev, ino := identity(t, project)
		refused := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends with this goroutine
			if os.Getuid() == 0 {
				_ = unix.Setfsuid(65534)
			}
			_, err := ReadProject(project, dev, ino)
			refused <- err
		}()
		if err := <-refused; err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("another directory", func(t *testing.T) {
		project := t.TempDir()
		dev, ino := identity(t, project)
		if _, err := ReadProject(project, dev, ino+1); err == nil || !strings.Contains(err.Error(), "has changed meanwhile") {
			t.Errorf("error %v", err)
		}
	})
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCanonical(t *testing.T) {
	const text = "# mine\n  allow=a.example.com \n\nallow   =\tb.example.com\r\nfs =\n[profile  x]\n\tnet = none\n[profile empty]\n"
	const want = "allow = a.example.com\nallow = b.example.com\nfs =\n[profile x]\nnet = none\n[profile empty]\n"
	f, err := ParseProject("f", []byte(text))
	if err != nil || f.Canonical() != want {
		t.Errorf("%v: %q", err, f.Canonical())
	}
	seen := map[string]bool{}
	for _, text := range []string{
		"allow = a.test\nallow = b.test", "allow = b.test\nallow = a.test", "allow = a.test", "allow =\nallow = a.test",
		"[profile x]\nallow = a.test", "[profile y]\nallow = a.test", "allow = a.test\n[profile x]", "env = a.test", "env = A= b", "env = A=  b", "env = A =b",
	} {
		f, err := ParseProject("f", []byte(text))
		if err != nil || seen[f.Canonical()] {
			t.Errorf("%q is another one's: %v", text, err)
		}
		seen[f.Canonical()] = true
	}
}

// What is trusted is read back as what was trusted, and no comment or space
// makes a difference.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"net = none", "allow =\nallow = x", "env = A=B", "net=none\r\n", "profile = a\n[profile a]\nallow = x\n[profile\tb ]\nallow ="} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseProject("f", data)
		if err != nil {
			return
		}
		text := file.Canonical()
		again, err := ParseProject("f", []byte(text))
		if err != nil || again.Canonical() != text {
			t.Fatalf("%q is read back as %q: %v", text, again.Canonical(), err)
		}
		strip := func(items []Item) (out []Item) {
			for _, it := range items {
				out = append(out, Item{Key: it.Key, Value: it.Value})
			}
			return out
		}
		var a, b []Item
		for _, f := range []struct {
			from File
			to   *[]Item
		}{{file, &a}, {again, &b}} {
			*f.to = strip(f.from.Items)
			for _, p := range f.from.Profiles {
				*f.to = append(append(*f.to, Item{Key: "[" + p.Name}), strip(p.Items)...)
			}
		}
		for i := range a {
			if len(a) != len(b) || a[i] != b[i] {
				t.Fatalf("%q: %v is read back as %v", data, a, b)
			}
		}
		if !bytes.Contains(data, []byte("=")) && text != "" && !bytes.Contains(data, []byte("[")) {
			t.Errorf("%q gives %q", data, text)
		}
	})
}
