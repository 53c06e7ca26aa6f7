package local

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

func home(t *testing.T, b *Backend, name string) string {
	t.Helper()
	if _, err := b.EnsureHome(t.Context(), name, "", map[string]string{backend.LabelProject: "/p"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(Homes(b.config.StateDir), name)
}

func TestHome(t *testing.T) {
	b := New(Config{StateDir: t.TempDir()})
	dir := home(t, b, "aisb-home-x")
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Lstat(d); err != nil || info.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", d, info.Mode(), err)
		}
	}
	// An agent may have opened it to others.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	home(t, b, "aisb-home-x")
	if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, name := range []string{"", "x", "aisb-home-", "aisb-home-../x", "aisb-home-x/y", "aisb-home-X", "aisb-home-x.json", "aisb-home-" + strings.Repeat("x", 99)} {
		if _, err := b.EnsureHome(t.Context(), name, "", nil); err == nil || !strings.Contains(err.Error(), "is not the name of a home") {
			t.Errorf("%q: %v", name, err)
		}
		if err := b.RemoveVolume(t.Context(), name); err == nil || !strings.Contains(err.Error(), "is not the name of a home") {
			t.Errorf("remove %q: %v", name, err)
		}
	}
}

// TestForeign: what ai-sandbox did not make is neither used nor removed.
func TestForeign(t *testing.T) {
	b := New(Config{StateDir: t.TempDir()})
	homes := filepath.Dir(home(t, b, "aisb-home-x"))
	outside := t.TempDir()
	keep := filepath.Join(outside, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"aisb-home-dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"aisb-home-link": func(path string) error { return os.Symlink(outside, path) },
		"aisb-home-file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		if err := make(filepath.Join(homes, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.EnsureHome(t.Context(), name, "", nil); err == nil || !strings.Contains(err.Error(), "was not made by ai-sandbox") {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.RemoveVolume(t.Context(), name); err == nil || !strings.Contains(err.Error(), "was not made by ai-sandbox") {
			t.Errorf("remove %s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(homes, name)); err != nil {
			t.Error(err)
		}
	}
	// One whose directory was replaced by a link: the link goes, and what it leads
	// to stays.
	x := filepath.Join(homes, "aisb-home-x")
	if err := os.Remove(x); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, x); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsureHome(t.Context(), "aisb-home-x", "", map[string]string{backend.LabelProject: "/p"}); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link: %v", err)
	}
	if err := b.RemoveVolume(t.Context(), "aisb-home-x"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(x); err == nil {
		t.Error("the link is still there")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	// And the directory of all homes.
	if err := os.Chmod(homes, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsureHome(t.Context(), "aisb-home-y", "", nil); err == nil || !strings.Contains(err.Error(), "you alone") {
		t.Errorf("open homes: %v", err)
	}
}

// TestRemoveVolume: whatever an agent has left in its home.
func TestRemoveVolume(t *testing.T) {
	b := New(Config{StateDir: t.TempDir()})
	dir := home(t, b, "aisb-home-x")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep := dir
	for range 200 {
		deep = filepath.Join(deep, "deep")
		if err := os.Mkdir(deep, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 600 {
		if err := os.WriteFile(filepath.Join(deep, strings.Repeat("f", 1+i%90)+string(rune('a'+i/90))), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(deep, "dirlink")); err != nil {
		t.Fatal(err)
	}
	for d := deep; d != dir; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemoveVolume(t.Context(), "aisb-home-x"); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "x" {
		t.Errorf("outside: %q, %v", text, err)
	}
}

func TestProgram(t *testing.T) {
	state := t.TempDir()
	content := bytes.Repeat([]byte("program"), 100<<10)
	b := New(Config{StateDir: state, Entrypoint: func() (*io.SectionReader, string, error) {
		return io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))), fmt.Sprintf("%08x", crc32.ChecksumIEEE(content)), nil
	}})
	path := func() string {
		t.Helper()
		p, err := b.programFile()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(p); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%s is not the program: %v", p, err)
		}
		if info, err := os.Lstat(p); err != nil || info.Mode() != 0o555 {
			t.Fatalf("%s: %v, %v", p, info, err)
		}
		return p
	}
	first := path()
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path()); err != nil || !os.SameFile(before, after) {
		t.Errorf("written again: %v", err)
	}
	// Each of these is another file, and is put right.
	for name, change := range map[string]func() error{
		"content": func() error { return replace(first, append([]byte("x"), content[1:]...), 0o555) },
		"shorter": func() error { return replace(first, content[1:], 0o555) },
		"mode":    func() error { return os.Chmod(first, 0o755) },
		"gone":    func() error { return os.Remove(first) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if got := path(); got != first {
			t.Errorf("%s: %s", name, got)
		}
	}
	// Another build's.
	content = bytes.Repeat([]byte("another"), 100<<10)
	if second := path(); second == first {
		t.Error("two builds have one name")
	}
	if left, err := os.ReadDir(filepath.Dir(first)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.Remove(path()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/true", filepath.Join(state, "entrypoint", filepath.Base(first))); err != nil {
		t.Fatal(err)
	}
	content = bytes.Repeat([]byte("program"), 100<<10)
	if _, err := b.programFile(); err == nil {
		t.Error("a link is followed")
	}
}

func replace(path string, content []byte, mode os.FileMode) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

func TestMountPoints(t *testing.T) {
	dir := t.TempDir()
	source, file := filepath.Join(dir, "source"), filepath.Join(dir, "file")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bind := func(source, target string, readOnly bool) policy.Mount {
		return policy.Mount{Kind: policy.KindBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	for _, c := range []struct {
		mounts []policy.Mount
		made   string // below source
		want   string
	}{
		{mounts: []policy.Mount{bind(source, "/h", false), bind(dir, "/h/a/b", true)}, made: "a/b/"},
		{mounts: []policy.Mount{bind(source, "/h", false), bind(file, "/h/c/d", true)}, made: "c/d"},
		{mounts: []policy.Mount{bind(source, "/h", false), {Kind: policy.KindTmpfs, Target: "/h/e"}}, made: "e/"},
		{mounts: []policy.Mount{bind(source, "/h", true), bind(dir, "/h/f", true)}},                     // read-only: bubblewrap fails by itself
		{mounts: []policy.Mount{bind(source, "/h", false), bind(dir, "/hh/f", true)}},                   // beside
		{mounts: []policy.Mount{bind(source, "/h", false), bind(dir, "/h/x/y", true)}, want: "symlink"}, // planted below
		{mounts: []policy.Mount{bind(source, "/h", false), bind(file, "/h/x", true)}, want: "symlink"},
		{mounts: []policy.Mount{bind(source, "/h", false), bind(file, "/h/a", true)}, want: "symlink"}, // a directory
		{mounts: []policy.Mount{bind(source, "/h", false), {Kind: policy.KindFile, Target: "/h/g"}}, want: "would be written into"},
		{mounts: []policy.Mount{bind(source, "/h", false), {Kind: policy.KindSymlink, Target: "/h/g"}}, want: "would be written into"},
		{mounts: []policy.Mount{bind(source, "/h", false), bind(dir+"/none", "/h/i", true)}, want: "no such file"},
	} {
		link := filepath.Join(source, "x")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		err := mountPoints(c.mounts)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.mounts[1], err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if c.made != "" {
			info, err := os.Lstat(filepath.Join(source, c.made))
			if err != nil || info.IsDir() != strings.HasSuffix(c.made, "/") {
				t.Errorf("%s: %v", c.made, err)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "y")); err == nil {
		t.Error("made through a link")
	}
}

// TestKilledWhileMaking: a start that was killed before the file beside a home had
// its name, with another home's beside it.
func TestKilledWhileMaking(t *testing.T) {
	b := New(Config{StateDir: t.TempDir()})
	homes := filepath.Dir(home(t, b, "aisb-home-other"))
	left, other := filepath.Join(homes, unnamed("aisb-home-x")+"ABC"), filepath.Join(homes, unnamed("aisb-home-other")+"ABC")
	for _, f := range []string{left, other} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RemoveVolume(t.Context(), "aisb-home-x"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(left); err == nil {
		t.Errorf("%s is still there", left)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
}
