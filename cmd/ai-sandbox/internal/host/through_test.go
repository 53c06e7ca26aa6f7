package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestThrough(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"p/sub", "other/sub", "p2"} {
		if err := os.MkdirAll(in(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"p/out": in("other"), "p/sub/up": "../../other", "to-p": in("p"), "rel": "p/out", "round": "round",
		"other/back": in("p"), "over": in("p/out/sub"), "beside": "p2", "dangling": in("nowhere"), "into-nothing": in("p/nowhere/x"), "down": in("other/sub"),
	} {
		if err := os.Symlink(target, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		"p": true, "p/x": true, "p/x/../..": true, "to-p": true, "to-p/x/y": true, "into-nothing": true,
		"p/out": true, "p/out/file": true, "p/sub/up/sub": true, // it ends outside
		"rel/sub": true, "over": true, "other/back/x": true,
		"other": false, "p2": false, "p2/p": false, "beside/x": false, "round/p": false, "dangling/x": false, "nowhere/p": false, "": false,
		"down/../x":        false,
		"down/../../p":     true, // to the kernel
		"other/../p/../p2": true,
	} {
		full := base + "/" + path
		if got := Through(full, in("p")); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if Through("p", in("p")) || Through(in("p"), "") || Through("", in("p")) {
		t.Error("what is no path leads through something")
	}
}
