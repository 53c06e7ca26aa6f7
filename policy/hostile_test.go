package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"ai-sandbox/tests/hostile"
)

// fullInput is a request that says something in every field.
func fullInput(t testing.TB, local bool) Input {
	in := plain()
	if local {
		in = jailed()
		in.Net = NetUnix
	}
	in.Binds = []Mount{{Kind: KindBind, Source: "/srv/data", Target: "/data", Why: "x"}}
	in.Links = []HomeLink{{Path: ".x", To: "/data/x"}}
	in.Seeds = []HomeSeed{{Path: ".y", Mode: 0o600, Content: []byte("y")}}
	in.Thinking = &Thinking{Level: "xhigh", As: "--effort xhigh"}
	in.Managed = []HomeManaged{{Path: ".z", Mode: 0o600, Content: []byte("z"), Keys: true, Fixed: []HomeKey{{Key: "level", Value: "high"}}}}
	in.Loud = []string{"LOUD: x"}
	in.Allow, in.AllowPrivate = []Entry{entry(t, "a.example.com")}, []Entry{entry(t, "10.0.0.0/8:5432")}
	in.Publish = []Publish{{Addr: "127.0.0.1", HostPort: 8080, Port: 3000}}
	in.Env = []string{"A=b"}
	in.Unprotect = []string{".envrc"}
	return in
}

// strings of a value, each by a way to set it.
func leaves(v reflect.Value, at string, visit func(at, old string, set func(string))) {
	switch v.Kind() {
	case reflect.String:
		old := v.String()
		visit(at, old, func(s string) {
			v.SetString(s)
			if s == restore {
				v.SetString(old)
			}
		})
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				leaves(v.Field(i), at+"."+v.Type().Field(i).Name, visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", at, i), visit)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			leaves(v.Elem(), at, visit)
		}
	}
}

// restore gives a leaf its old value back.
const restore = "\x00restore"

// Whatever string stands anywhere in what a user asks for, it is refused or is
// data: no printout says anything to a terminal but text, and what is printed for
// programs has the shape that it has without, and the string.
func TestHostileInput(t *testing.T) {
	for _, local := range []bool{false, true} {
		in := fullInput(t, local)
		base, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		accepted, refused, fields := 0, 0, map[string]bool{}
		leaves(reflect.ValueOf(&in).Elem(), "Input", func(at, old string, set func(string)) {
			for _, s := range hostile.Strings {
				switch { // so that it gets further than without
				case strings.HasPrefix(old, "/"):
					s = "/srv/" + s
				case strings.Contains(old, "="):
					s = "A=" + s
				}
				set(s)
				fields[at] = true
				p, err := Resolve(in)
				if err != nil {
					refused++
					printed(t, at, "the error", s, err.Error())
					continue
				}
				accepted++
				judge(t, at, s, base, p)
			}
			set(restore)
		})
		if accepted < 500 || refused < 100 || len(fields) < 25 {
			t.Errorf("%d hostile strings were taken and %d refused in %d fields", accepted, refused, len(fields))
		}
	}
}

func judge(t *testing.T, at, s string, base, p Policy) {
	t.Helper()
	printed(t, at, "the text", s, p.Text())
	text, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	printed(t, at, "the JSON", s, string(text))
	if len(s)%3 == 0 || len(s) < 20 {
		printed(t, at, "the difference", s, Diff(base, p).Text())
	}
	for _, m := range p.Mounts {
		printed(t, at, "a mount", s, m.Line())
	}
	for _, n := range append(p.Loud(), p.WorkdirNote) {
		// They go through Printable on their way out.
		printed(t, at, "a note", s, Printable(n))
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s = %.80q: the JSON can't be read: %v", at, s, err)
	}
	// What is read back is what was meant. Not what has bytes that are no text, and
	// not an entry that was made by hand.
	if p, err := Decode(bytes.NewReader(text)); err == nil && utf8.ValidString(s) {
		if again, err := p.JSON(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%s = %.80q reads back as another policy", at, s)
		}
	}
}

func printed(t *testing.T, at, what, s, text string) {
	t.Helper()
	if err := hostile.Printed(text); err != nil {
		t.Errorf("%s = %.80q: %s: %v", at, s, what, err)
	}
}

// lifts gives a path of a repository free: nothing but what lies at it may be left
// without its guard, and it is told.
func lifts(t *testing.T, s string) {
	t.Helper()
	in := repository()
	base, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Unprotect = []string{s}
	p, err := Resolve(in)
	if err != nil {
		printed(t, "unprotect", "the error", s, err.Error())
		return
	}
	judge(t, "unprotect", s, base, p)
	guarded := map[string]bool{}
	for _, m := range p.Mounts {
		guarded[m.Source] = guarded[m.Source] || m.Why == WhyProtected && m.ReadOnly
	}
	lifted := path.Join(p.Project, s)
	for _, m := range base.Mounts {
		if m.Why == WhyProtected && m.ReadOnly && !guarded[m.Source] && !within(m.Source, lifted) {
			t.Errorf("unprotect %q leaves %s free", s, m.Source)
		}
	}
	if n := strings.Count(strings.Join(p.Unusual, "\n"), "UNPROTECTED: "); n != 1 {
		t.Errorf("unprotect %q: %q", s, p.Unusual)
	}
}

// FuzzResolve: as TestHostileInput, for strings that nobody has thought of.
func FuzzResolve(f *testing.F) {
	for i, s := range append([]string{".git", ".git/hooks", ".git/config", "./.git/modules/", ".claude/settings.json", ".npmrc/x", ".git/../.."}, hostile.Strings...) {
		f.Add(uint(i), s)
	}
	f.Fuzz(func(t *testing.T, n uint, s string) {
		lifts(t, s)
		in := fullInput(t, n%2 == 1)
		base, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		count := uint(0)
		leaves(reflect.ValueOf(&in).Elem(), "Input", func(string, string, func(string)) { count++ })
		i := uint(0)
		leaves(reflect.ValueOf(&in).Elem(), "Input", func(at, _ string, set func(string)) {
			if i++; i-1 != n/2%count {
				return
			}
			set(s)
			p, err := Resolve(in)
			if err != nil {
				printed(t, at, "the error", s, err.Error())
				return
			}
			judge(t, at, s, base, p)
		})
	})
}

// FuzzProjectPath: a project is mounted at its own path or at one place, and its own
// path hides nothing of the sandbox.
func FuzzProjectPath(f *testing.F) {
	for _, s := range []string{"/home/dev/x", "/tmp/x", "/home/sandbox", "/usr", "/srv/a b", "/", "/home", "//x", "/proc/1", "/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, project string) {
		in := plain()
		in.Facts.Project = project
		p, err := Resolve(in)
		if err != nil {
			if err := hostile.Printed(err.Error()); err != nil {
				t.Fatal(err)
			}
			return
		}
		if p.Workdir != project && p.Workdir != FallbackDir || (p.WorkdirNote == "") != (p.Workdir == project) {
			t.Fatalf("%q is mounted at %q (%q)", project, p.Workdir, p.WorkdirNote)
		}
		for _, own := range []string{"/", "/usr", "/etc", "/var", "/tmp", "/run", "/home", "/proc", "/sys", "/dev", HomeDir} {
			if p.Workdir == own || own != "/" && own != "/home" && strings.HasPrefix(p.Workdir, own+"/") {
				t.Fatalf("%q hides %s", project, own)
			}
		}
		if pl := p.Inside(p.Workdir); pl.Host != project || pl.Access != AccessWrite {
			t.Fatalf("%q is at %q: %+v", project, p.Workdir, pl)
		}
	})
}
