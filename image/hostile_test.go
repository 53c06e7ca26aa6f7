package image

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/tests/hostile"
)

// instructions reads a Containerfile as a builder does (containerfile(5)): a line
// that ends in a backslash goes on, and one that begins with # is a comment, or a
// directive where it stands first.
func instructions(text string) (names, froms []string) {
	goesOn := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "#"):
			if i == 0 && regexp.MustCompile(`^#\s*[a-zA-Z]+\s*=`).MatchString(trimmed) {
				names = append(names, "directive")
			}
			continue
		case trimmed == "" && !goesOn:
			continue
		case !goesOn:
			name, rest, _ := strings.Cut(trimmed, " ")
			names = append(names, strings.ToUpper(name))
			if strings.EqualFold(name, "FROM") {
				froms = append(froms, rest)
			}
		}
		goesOn = strings.HasSuffix(line, `\`)
	}
	return names, froms
}

// Whatever a user says about the images, a recipe of it is refused, or its
// Containerfile has the instructions that every one has, on a base that is one
// word.
func TestHostileRecipe(t *testing.T) {
	base := sandboxRecipe(t)
	base.Apt, base.Setup = []string{"zsh"}, []byte("true\n")
	built, err := base.Render()
	if err != nil {
		t.Fatal(err)
	}
	want, from := instructions(built.Containerfile)
	if len(want) < 6 || len(from) != 1 {
		t.Fatalf("instructions %q from %q", want, from)
	}
	accepted, refused := 0, 0
	judge := func(what, s string, r Recipe, err error) {
		t.Helper()
		var b Built
		if err == nil {
			b, err = r.Render()
		}
		if err != nil {
			refused++
			if err := hostile.Printed(err.Error()); err != nil {
				t.Errorf("%s %.60q: the error: %v", what, s, err)
			}
			return
		}
		accepted++
		got, from := instructions(b.Containerfile)
		if !reflect.DeepEqual(got, want) || len(from) != 1 || len(strings.Fields(from[0])) != 1 {
			t.Errorf("%s %.60q: instructions %q from %q", what, s, got, from)
		}
		if err := hostile.Printed(b.Containerfile); err != nil {
			t.Errorf("%s %.60q: %v", what, s, err)
		}
	}
	list := append([]string{"docker.io/library/debian:trixie-slim", "24.15.0"}, hostile.Strings...)
	for _, s := range hostile.Strings {
		list = append(list, "docker.io/library/debian:"+s, "docker.io/"+s+":x", s+"/a/b:c", "24.15.0"+s, s+"24.15.0")
	}
	for _, s := range list {
		// As they come from the user.
		r := base
		ref, err := ParseReference(s)
		r.Base.Ref = ref
		judge("base", s, r, err)
		r = base
		node, err := NewNode(s, "amd64")
		if err == nil && node.SHA256 == "" {
			node.SHA256 = someSum
		}
		r.Node = node
		judge("node", s, r, err)
		r = base
		r.Apt, err = Packages([]string{s})
		judge("apt", s, r, err)
		r.Apt, err = Packages([]string{"gcc=" + s})
		judge("apt's version", s, r, err)
		r = base
		r.Setup = []byte(s)
		judge("setup", s, r, nil)
		// And made by hand.
		for what, change := range map[string]func(*Recipe){
			"name":          func(r *Recipe) { r.Base.Ref.Name = s },
			"tag":           func(r *Recipe) { r.Base.Ref.Tag = s },
			"name unpinned": func(r *Recipe) { r.Base.Ref.Name, r.Base.Digest = s, "" },
			"tag unpinned":  func(r *Recipe) { r.Base.Ref.Tag, r.Base.Digest = s, "" },
			"digest":        func(r *Recipe) { r.Base.Digest = digest.Digest(s) },
			"version":       func(r *Recipe) { r.Node.Version = s },
			"arch":          func(r *Recipe) { r.Node.Arch = s },
			"checksum":      func(r *Recipe) { r.Node.SHA256 = s },
			"entrypoint":    func(r *Recipe) { r.EntrypointSHA256 = s },
			"package":       func(r *Recipe) { r.packages = []string{s} },
			"apt":           func(r *Recipe) { r.Apt = []string{s} },
			"apt's version": func(r *Recipe) { r.Apt = []string{"gcc=" + s} },
			"harness":       func(r *Recipe) { r.Harnesses = set("one"); r.Harnesses[0].Name = s },
			"module":        func(r *Recipe) { r.Harnesses = set("one"); r.Harnesses[0].Module = s },
			"its version":   func(r *Recipe) { r.Harnesses = set("one"); r.Harnesses[0].Version = s },
			"script":        func(r *Recipe) { r.Harnesses = set("one"); r.Harnesses[0].Scripts = []string{s} },
			"program":       func(r *Recipe) { r.Harnesses = set("one"); r.Harnesses[0].Programs = map[string]string{"amd64": s} },
		} {
			r := base
			change(&r)
			if what == "digest" && s == "" {
				continue
			}
			judge(what, s, r, nil)
		}
	}
	if accepted < 3 || refused < 1000 {
		t.Errorf("%d were taken and %d refused", accepted, refused)
	}
}
