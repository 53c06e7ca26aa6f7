package image

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestPackages(t *testing.T) {
	got, err := Packages([]string{"zsh", "g++", "libc6-dev=2.41-12+deb13u1", "gcc=4:14.2.0-1", "zsh", "a2", "python3.13"})
	want := []string{"a2", "g++", "gcc=4:14.2.0-1", "libc6-dev=2.41-12+deb13u1", "python3.13", "zsh"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, s := range []string{
		"", "a", "-y", "GCC", "gcc-", "gcc/sid", "gcc:amd64", "gcc=", "gcc=sid", "gcc=1 2", "gcc=1;id", "gcc=:1", "gcc=-1", "gcc=1=2", "lib*", "?installed", "task^", "./x.deb",
		"/x.deb", "_x", ".x", "+x", "gcc\n", "é2", strings.Repeat("a", maxPackage+1),
	} {
		if got, err := Packages([]string{s}); err == nil {
			t.Errorf("%q is accepted as %q", s, got)
		}
	}
	for _, two := range [][]string{{"gcc", "gcc=1"}, {"gcc=1", "gcc=2"}} {
		if got, err := Packages(two); err == nil {
			t.Errorf("%q are accepted as %q", two, got)
		}
	}
}

func TestCheckSetup(t *testing.T) {
	for _, s := range []string{"true", "#!/bin/bash\necho é\t\\n", strings.Repeat("#", MaxSetup)} {
		if err := CheckSetup([]byte(s)); err != nil {
			t.Errorf("%.40q: %v", s, err)
		}
	}
	for _, s := range []string{"", " \n", "a\x00b", "\xff\xfe", "\x7fELF\x02\x01\x01\x00", strings.Repeat("#", MaxSetup+1)} {
		if err := CheckSetup([]byte(s)); err == nil {
			t.Errorf("%.40q is accepted", s)
		}
	}
}

// What a user adds comes after Node and the harnesses, and what it is made of is no
// text of the Containerfile's: another one leaves those layers as they are.
func TestToolchainComesLast(t *testing.T) {
	text := func(apt []string, setup string) string {
		r := sandboxRecipe(t)
		r.Apt, r.Setup = apt, []byte(setup)
		if setup == "" {
			r.Setup = nil
		}
		b, err := r.Render()
		if err != nil {
			t.Fatal(err)
		}
		if b.Labels[LabelApt] != strings.Join(apt, " ") || (b.Labels[LabelSetup] == "") != (setup == "") {
			t.Errorf("labels %v", b.Labels)
		}
		if setup != "" && !bytes.Equal(b.Files["setup"].Data, []byte(setup)) {
			t.Errorf("the script is %q", b.Files["setup"].Data)
		}
		before, _, _ := strings.Cut(b.Containerfile, "\nCOPY hosts")
		return before
	}
	none, apt := text(nil, ""), text([]string{"gcc", "gdb"}, "")
	both, other := text([]string{"gcc", "gdb"}, "true; RUN id\n"), text([]string{"gcc", "gdb"}, "false\n")
	if !strings.HasPrefix(apt, none) || !strings.HasPrefix(both, apt) || both != other {
		t.Error("more in the toolchain changes what comes before it")
	}
	if added := apt[len(none):]; strings.Count(added, "RUN ") != 1 || !strings.Contains(added, " install -y --no-install-recommends \\\n        gcc \\\n        gdb; \\\n") {
		t.Errorf("the packages are installed by\n%s", added)
	}
	if added := both[len(apt):]; strings.Count(added, "RUN ") != 1 || !strings.Contains(added, "COPY --chown=0:0 --chmod=0755 setup "+setupPath+"\n") || !strings.Contains(added, "; "+setupPath+" </dev/null; \\\n") {
		t.Errorf("the script is run by\n%s", added)
	}
	r := gateRecipe(t)
	r.Apt = []string{"gcc"}
	if _, err := r.Render(); err == nil {
		t.Error("the gate's image takes packages")
	}
	r = gateRecipe(t)
	r.Setup = []byte("true\n")
	if _, err := r.Render(); err == nil {
		t.Error("the gate's image takes a script")
	}
}

// FuzzPackages: whatever is taken for packages is in the Containerfile as words of one
// command, each on a line of its own.
func FuzzPackages(f *testing.F) {
	for _, s := range []string{"gcc", "gcc=4:14.2.0-1", "g++ gdb", "a2;id", "gcc=1\nRUN id", "-y", "gcc-", "lib*", "x=1$(id)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := Packages(strings.Split(s, " "))
		if err != nil || len(list) == 0 {
			return
		}
		node, err := NewNode("", "amd64")
		if err != nil {
			t.Fatal(err)
		}
		ref, err := ParseReference(DefaultBase)
		if err != nil {
			t.Fatal(err)
		}
		r := Recipe{Kind: KindSandbox, Base: Base{Ref: ref, Digest: someDigest}, Node: node, EntrypointSHA256: someSum, Harnesses: set("one")}
		without, err := r.Render()
		if err != nil {
			t.Fatal(err)
		}
		r.Apt = list
		b, err := r.Render()
		if err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		names, _ := instructions(b.Containerfile)
		plain, _ := instructions(without.Containerfile)
		if len(names) != len(plain)+1 {
			t.Fatalf("%q: the instructions are %q", list, names)
		}
		for i, p := range list {
			end := ` \`
			if i == len(list)-1 {
				end = `; \`
			}
			if strings.ContainsAny(p, " \t\n\\;|&$`'\"<>*?[]{}()!#%") || strings.HasPrefix(p, "-") ||
				!strings.Contains(b.Containerfile, "\n        "+p+end+"\n") {
				t.Fatalf("%q is not a line of its own", p)
			}
		}
	})
}
