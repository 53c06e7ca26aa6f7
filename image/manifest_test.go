package image

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseManifest(t *testing.T) {
	got, err := ParseManifest([]byte("deb squid-openssl 6.13-2+deb13u1 amd64\nnode 24.15.0\nnpm @a/b 1.2.3\n"))
	want := []Package{{"deb", "squid-openssl", "6.13-2+deb13u1", "amd64"}, {"node", "node", "24.15.0", ""}, {"npm", "@a/b", "1.2.3", ""}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"deb squid-openssl 6.13\n", "squid\n", "npm a b c d\n", "\n", "rpm a 1 x86\n", "deb \x1b]0;x 1 amd64 more\n"} {
		if got, err := ParseManifest([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestDiff(t *testing.T) {
	parse := func(text string) []Package {
		t.Helper()
		list, err := ParseManifest([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := parse("deb libssl3t64 3.5.1 amd64\ndeb gone 1 all\ndeb same 1 all\nnode 24.15.0\nnpm two 1.0.0\nnpm two 2.0.0\n")
	after := parse("npm two 2.0.0\nnpm two 1.0.0\ndeb new 2 all\ndeb libssl3t64 3.5.2 amd64\ndeb same 1 all\nnode 24.16.0\n")
	want := []Change{
		{"deb", KindGate, "gone", "1", ""}, {"deb", KindGate, "libssl3t64", "3.5.1", "3.5.2"}, {"deb", KindGate, "new", "", "2"},
	}
	if got := Diff(KindGate, before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := Diff(KindGate, before, before); len(got) != 0 {
		t.Errorf("between the same: %v", got)
	}
}

// What apt-get 3.0 writes.
func TestParseUpgrades(t *testing.T) {
	got := ParseUpgrades(KindSandbox, []byte("Reading package lists...\n"+
		"The following packages will be upgraded:\n  libssl3t64\n"+
		"Inst libssl3t64 [3.5.1-1] (3.5.1-1+deb13u1 Debian-Security:13/stable-security [amd64])\n"+
		"Inst new-one (1:2.0~rc1 Debian:13.1/stable [all])\n"+
		"Inst odd [1] (2 Debian:13 [amd64]) [other:amd64 ]\n"+
		"Conf libssl3t64 (3.5.1-1+deb13u1 Debian-Security:13/stable-security [amd64])\n"))
	want := []Change{
		{"deb", KindSandbox, "libssl3t64", "3.5.1-1", "3.5.1-1+deb13u1"}, {"deb", KindSandbox, "new-one", "", "1:2.0~rc1"}, {"deb", KindSandbox, "odd", "1", "2"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// What apt-cache 3.0 writes behind that.
func TestParseStays(t *testing.T) {
	const mirror, status = "        500 http://deb.example/debian trixie/main amd64 Packages\n", "        100 /var/lib/dpkg/status\n"
	text := "Reading package lists...\nThe following packages have been kept back:\n  back\n" +
		"Inst newer [1] (2 Debian:13 [amd64])\nConf newer (2 Debian:13 [amd64])\n" +
		"same:\n  Installed: 1\n  Candidate: 1\n  Version table:\n *** 1 500\n" + mirror + status +
		"newer:\n  Installed: 1\n  Candidate: 2\n  Version table:\n     2 500\n" + mirror + " *** 1 100\n" + status +
		"back:\n  Installed: 1\n  Candidate: 1:2~rc\n  Version table:\n     1:2~rc 500 (phased 20%)\n" + mirror + " *** 1 500\n" + mirror + status +
		"taken-back:\n  Installed: 3\n  Candidate: 3\n  Version table:\n *** 3 100\n" + status + "     2 500\n" + mirror + "     1 500\n" + mirror +
		"local:\n  Installed: 3\n  Candidate: 3\n  Version table:\n *** 3 100\n" + status +
		"removed:\n  Installed: (none)\n  Candidate: 2\n  Version table:\n     2 500\n" + mirror + "     1 -1\n" + status +
		"last:amd64:\n  Installed: 3\n  Candidate: 3\n  Version table:\n *** 3 100\n" + status + "     2 1001\n       1001 http://deb.example/debian trixie/main amd64 Packages\n"
	kept, gone := ParseStays(KindGate, []byte(text))
	if want := []Change{{"deb", KindGate, "back", "1", "1:2~rc"}}; !slices.Equal(kept, want) {
		t.Errorf("kept: %v", kept)
	}
	if want := []Change{{"deb", KindGate, "taken-back", "3", "2"}, {"deb", KindGate, "last:amd64", "3", "2"}}; !slices.Equal(gone, want) {
		t.Errorf("gone: %v", gone)
	}
	if kept, gone := ParseStays(KindGate, []byte("Reading package lists...\n")); len(kept)+len(gone) > 0 {
		t.Errorf("of nothing: %v, %v", kept, gone)
	}
}

// A lock file that npm made is taken when it pins all by content, and what is kept of
// it names no host.
func TestParseLock(t *testing.T) {
	one := set("one")[0]
	module := one.Module
	type object = map[string]any
	good := func() (pkg, lock object) {
		return object{"name": "x", "dependencies": object{module: "1.7.0"}}, object{"lockfileVersion": 3, "packages": object{
			"": object{"dependencies": object{module: "1.7.0"}},
			"node_modules/" + module: object{"version": "1.7.0", "integrity": "sha512-abc", "engines": object{"node": ">=22.19.0"},
				"resolved": "https://registry.example/x.tgz", "funding": object{"url": "https://example.com"}},
			"node_modules/a": object{"version": "1.0.0", "integrity": "sha512-def", "optional": true, "deprecated": "see https://example.com"},
		}}
	}
	parse := func(pkg, lock object) (*Lock, error) {
		a, err := json.Marshal(pkg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(lock)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal([]string{string(a), string(b)})
		if err != nil {
			t.Fatal(err)
		}
		return one.ReadLock(out)
	}
	l, err := parse(good())
	if err != nil || l.Version != "1.7.0" || l.Node != "22.19.0" || strings.Contains(string(l.Packages), "://") || !strings.Contains(string(l.Packages), `"optional": true`) {
		t.Fatalf("%+v, %v", l, err)
	}
	if again, err := one.ParseLock(l.Package, l.Packages); err != nil || !reflect.DeepEqual(again, l) {
		t.Errorf("what was kept is read as %+v, %v", again, err)
	}
	entry := func(lock object, name string) object {
		return lock["packages"].(object)[name].(object)
	}
	for name, spoil := range map[string]func(pkg, lock object){
		"no hash":         func(_, l object) { delete(entry(l, "node_modules/a"), "integrity") },
		"a weak hash":     func(_, l object) { entry(l, "node_modules/a")["integrity"] = "sha1-abc" },
		"no version":      func(_, l object) { delete(entry(l, "node_modules/a"), "version") },
		"a link":          func(_, l object) { entry(l, "node_modules/a")["link"] = true },
		"a git address":   func(_, l object) { entry(l, "node_modules/a")["version"] = "git+ssh://git@example.com/a.git" },
		"another version": func(_, l object) { entry(l, "node_modules/"+module)["version"] = "1.6.9" },
		"no node":         func(_, l object) { delete(entry(l, "node_modules/"+module), "engines") },
		"not an object":   func(_, l object) { l["packages"].(object)["node_modules/b"] = "x" },
		"no packages":     func(_, l object) { delete(l, "packages") },
		"a range":         func(p, _ object) { p["dependencies"] = object{module: "^1.7.0"} },
		"something else":  func(p, _ object) { p["dependencies"] = object{module: "1.7.0", "evil": "1.0.0"} },
	} {
		pkg, lock := good()
		spoil(pkg, lock)
		if l, err := parse(pkg, lock); err == nil {
			t.Errorf("%s: accepted as %s", name, l.Version)
		}
	}
	for _, out := range []string{"", "[]", `["{}"]`, `["x", "y"]`} {
		if _, err := one.ReadLock([]byte(out)); err == nil {
			t.Errorf("%q: accepted", out)
		}
	}
}

func TestReadVersion(t *testing.T) {
	if v, err := set("one")[0].ReadVersion([]byte("1.7.0\n")); v != "1.7.0" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	for _, s := range []string{"", "1.7", "1.7.0-beta.1", "$(id)", "1.7.0\n1.8.0"} {
		if v, err := set("one")[0].ReadVersion([]byte(s)); err == nil {
			t.Errorf("%q is taken for %q", s, v)
		}
	}
}

func TestSystemID(t *testing.T) {
	for text, want := range map[string]string{
		"NAME=x\nID=debian\nVERSION_ID=\"13\"\n": "debian", "ID=\"ubuntu\"\n": "ubuntu", "VERSION_ID=1\n": "linux", "": "linux", "ID=a/b\n": "linux",
	} {
		if got := SystemID([]byte(text)); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestParseDpkg(t *testing.T) {
	text := "Package: b\nStatus: install ok installed\nArchitecture: all\nVersion: 1:2-3\nDescription: x\n Version: 9\n\n" +
		"Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n" +
		"Package: a\nStatus: install ok installed\nVersion: 2\nArchitecture: amd64\n\n\n"
	want := []Package{{Kind: "deb", Name: "a", Version: "2", Arch: "amd64"}, {Kind: "deb", Name: "b", Version: "1:2-3", Arch: "all"}}
	if got, err := ParseDpkg([]byte(text)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseDpkg([]byte(strings.Repeat("Package: a\nStatus: install ok installed\n\n", maxManifest+1))); err == nil {
		t.Error("any number is read")
	}
}
