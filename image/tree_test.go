package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// treeOf reads the tar of some files. A name that ends with "/" is a directory's, and
// "-> x" is a link's content.
func treeOf(t *testing.T, change func(map[string]*tar.Header, map[string]string)) Tree {
	t.Helper()
	order := []string{"./", "usr/", "usr/tool", "usr/link", "usr/hard", "usr/dev", "root/", "root/.npm/", "root/.npm/log", "secret/", "secret/x", "mine/", "mine/x", "shadow",
		"app/", "app/__pycache__/", "app/__pycache__/a.pyc", "app/a.pyc", "app/.git/", "app/.git/index", "app/.git/logs/", "app/.git/logs/HEAD", "app/.git/objects/", "app/.git/objects/aa",
		"app/.git/HEAD", "etc/", "etc/aisb/", "etc/aisb/manifest.txt", "etc/aisb/sbom.cdx.json", "etc/aisb/setup"}
	heads, texts := map[string]*tar.Header{}, map[string]string{}
	for _, name := range order {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		} else {
			texts[name] = name
		}
		heads[name] = h
	}
	heads["usr/link"].Typeflag, heads["usr/link"].Linkname = tar.TypeSymlink, "tool"
	heads["usr/hard"].Typeflag, heads["usr/hard"].Linkname = tar.TypeLink, "usr/tool"
	heads["usr/dev"].Typeflag = tar.TypeChar
	heads["root/"].Mode, heads["shadow"].Mode, heads["secret/"].Mode = 0o700, 0o640, 0o711
	heads["secret/x"].Mode = 0o711
	heads["mine/"].Mode, heads["mine/"].Uid = 0o700, UID
	change(heads, texts)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(heads)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	for _, name := range order {
		h := heads[name]
		if h == nil {
			continue
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(texts[name]))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(texts[name])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tree, err := ReadTree(&out)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// What the sandbox's user can read counts, and what it can't, and what is another one in
// each build, does not.
func TestDiffTrees(t *testing.T) {
	type files = map[string]*tar.Header
	type texts = map[string]string
	before := treeOf(t, func(files, texts) {})
	text := func(name string) func(files, texts) { return func(_ files, x texts) { x[name] = "other" } }
	for name, c := range map[string]struct {
		change func(files, texts)
		want   string // name: from: to
	}{
		"nothing":            {func(files, texts) {}, ""},
		"a text":             {text("usr/tool"), "/usr/tool: -rw-r--r-- 0:0 sha256:bce69a1cd3d8: -rw-r--r-- 0:0 sha256:d9298a10d1b0"},
		"a mode":             {func(f files, _ texts) { f["usr/tool"].Mode = 0o755 }, "/usr/tool: -rw-r--r-- 0:0 sha256:bce69a1cd3d8: -rwxr-xr-x 0:0 sha256:bce69a1cd3d8"},
		"a directory's mode": {func(f files, _ texts) { f["usr/"].Mode = 0o775 }, "/usr: drwxr-xr-x 0:0: drwxrwxr-x 0:0"},
		"an owner":           {func(f files, _ texts) { f["usr/tool"].Uid = 7 }, "/usr/tool: -rw-r--r-- 0:0 sha256:bce69a1cd3d8: -rw-r--r-- 7:0 sha256:bce69a1cd3d8"},
		"a link":             {func(f files, _ texts) { f["usr/link"].Linkname = "x" }, "/usr/link: -> tool: -> x"},
		"a hard link":        {func(f files, _ texts) { f["usr/hard"].Linkname = "shadow" }, "/usr/hard: the same file as /usr/tool: the same file as /shadow"},
		"a device":           {func(f files, _ texts) { f["usr/dev"].Devminor = 1 }, "/usr/dev: Dcrw-r--r-- 0:0 0:0: Dcrw-r--r-- 0:0 0:1"},
		"gone":               {func(f files, _ texts) { delete(f, "usr/link") }, "/usr/link: -> tool: "},
		"new": {func(f files, _ texts) {
			f["zz/"] = &tar.Header{Typeflag: tar.TypeDir, Name: "zz/", Mode: 0o755}
			f["zz/x"] = &tar.Header{Typeflag: tar.TypeDir, Name: "zz/x", Mode: 0o755}
		}, "/zz: : drwxr-xr-x 0:0"},
		"a time":                   {func(f files, _ texts) { f["usr/tool"].ModTime = f["usr/tool"].ModTime.AddDate(50, 0, 0) }, ""},
		"in a closed directory":    {text("root/.npm/log"), ""},
		"the closed one is opened": {func(f files, _ texts) { f["root/"].Mode = 0o701 }, "/root: drwx------ 0:0: drwx-----x 0:0"},
		"in one to pass through":   {text("secret/x"), "/secret/x: -rwx--x--x 0:0 sha256:f955aae2fb66: -rwx--x--x 0:0 sha256:d9298a10d1b0"},
		"in the user's own":        {text("mine/x"), "/mine/x: -rw-r--r-- 0:0 sha256:e84e1fb7d101: -rw-r--r-- 0:0 sha256:d9298a10d1b0"},
		"not readable":             {text("shadow"), ""},
		"compiled":                 {text("app/__pycache__/a.pyc"), ""},
		"compiled, on its own":     {text("app/a.pyc"), "/app/a.pyc: "},
		"a repository's index":     {text("app/.git/index"), ""},
		"its log":                  {text("app/.git/logs/HEAD"), ""},
		"its packs":                {text("app/.git/objects/aa"), ""},
		"its commit":               {text("app/.git/HEAD"), "/app/.git/HEAD: "},
		"our lists":                {func(_ files, x texts) { x["etc/aisb/manifest.txt"], x["etc/aisb/sbom.cdx.json"] = "", "" }, ""},
		"the script":               {text("etc/aisb/setup"), "/etc/aisb/setup: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, d := range DiffTrees(KindSandbox, before, treeOf(t, c.change)) {
				if d.Kind != "file" || d.Image != KindSandbox {
					t.Errorf("%+v", d)
				}
				got += fmt.Sprintf("%s: %s: %s", d.Name, d.From, d.To)
			}
			if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
				t.Errorf("%q, and not %q", got, c.want)
			}
		})
	}
	if _, err := ReadTree(strings.NewReader("no tar at all")); err == nil {
		t.Error("what is no tar is a tree")
	}
}

func TestPermits(t *testing.T) {
	for _, c := range []struct {
		uid, gid int
		mode     int64
		any      fs.FileMode
		want     bool
	}{
		{0, 0, 0o770, 5, false}, {0, 0, 0o771, 5, true}, {0, 0, 0o771, 4, false}, {0, GID, 0o750, 5, true}, {0, GID, 0o705, 5, false},
		{UID, 0, 0o700, 1, true}, {UID, GID, 0o077, 5, false}, {UID, 0, 0o600, 1, false},
	} {
		if got := permits(&tar.Header{Uid: c.uid, Gid: c.gid, Mode: c.mode}, c.any); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
