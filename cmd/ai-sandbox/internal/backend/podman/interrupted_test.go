package podman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIsInit(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tsh\nPid:\t7\nNSpid:\t7\t1\nThreads:\t1\n": true,
		"Name:\tsh\nNSpid:\t7\t3\t1\n":                    true,
		"Name:\tsh\nNSpid:\t7\t12\n":                      false,
		"Name:\tinit\nNSpid:\t1\n":                        false, // the machine's own
		"Name:\tNSpid:\t7\t1\n":                           false,
		"":                                                false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isInit(dir); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
	if isInit(t.TempDir()) {
		t.Error("a process that has ended")
	}
}

// A root is what a sandbox makes of it: nothing in it leads out, blocks, or is long.
func TestNamesHost(t *testing.T) {
	const host = "aisb-build-x"
	root := func(file string) string {
		dir := filepath.Join(t.TempDir(), "etc")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Dir(dir)
	}
	for file, want := range map[string]bool{
		"127.0.0.1 localhost\n127.0.0.1\taisb-build-x\n": true,
		"127.0.0.1\taisb-build-xy\n":                     false,
		"":                                               false,
		strings.Repeat("x", maxHosts) + "\n127.0.0.1\taisb-build-x\n": false,
	} {
		if got := namesHost(root(file), host); got != want {
			t.Errorf("%.40q: %v", file, got)
		}
	}
	outside := filepath.Join(root("127.0.0.1 "+host+"\n"), "etc")
	for name, plant := range map[string]func(dir string) error{
		"a link out": func(dir string) error {
			return os.Symlink(filepath.Join(outside, "hosts"), filepath.Join(dir, "etc/hosts"))
		},
		"a pipe":      func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "etc/hosts"), 0o600) },
		"a directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "etc/hosts"), 0o700) },
		"a directory that is a link out": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "etc")); err != nil {
				return err
			}
			return os.Symlink(outside, filepath.Join(dir, "etc"))
		},
	} {
		dir := root("")
		if err := plant(dir); err != nil {
			t.Fatal(err)
		}
		if namesHost(dir, host) {
			t.Errorf("%s is followed", name)
		}
	}
}
