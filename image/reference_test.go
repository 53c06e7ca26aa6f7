package image

import (
	"strings"
	"testing"
)

func TestParseReference(t *testing.T) {
	d := "@" + string(someDigest)
	for in, want := range map[string]Reference{
		DefaultBase:                         {Name: "docker.io/library/debian", Tag: "trixie-slim"},
		"docker.io/library/debian":          {Name: "docker.io/library/debian", Tag: "latest"},
		"127.0.0.1:5000/debian:trixie-slim": {Name: "127.0.0.1:5000/debian", Tag: "trixie-slim"},
		"localhost:5000/a/b_c--d.e:V1.0_x":  {Name: "localhost:5000/a/b_c--d.e", Tag: "V1.0_x"},
		"a.example/b" + d:                   {Name: "a.example/b", Digest: someDigest},
		"a.example/b:t" + d:                 {Name: "a.example/b", Tag: "t", Digest: someDigest},
	} {
		got, err := ParseReference(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "debian", "debian:trixie", "library/debian", "localhost/debian:x", "docker.io", "docker.io/", "/debian",
		"docker.io/Library/debian", "Docker.io/library/debian", "docker.io/a//b", "docker.io/a/", "docker.io/../a", "docker.io/a:",
		"docker.io/a:b:c", "docker.io/a:-x", "docker.io/a:" + strings.Repeat("x", 129), "docker.io/a@", "docker.io/a@sha256:12",
		"docker.io/a@md5:d41d8cd98f00b204e9800998ecf8427e", "docker.io/a" + d + "x", "docker.io/a" + d + d, "docker.io/a b", "docker.io/a\nRUN id",
		"-a.example/b", "a.example-/b", "a.example:123456/b", "a.example/" + strings.Repeat("b", 300), "docker://docker.io/a", "https://docker.io/a",
		"user@a.example/b", "[::1]:5000/a", "a.example/$b", "a.example/b'",
	} {
		if got, err := ParseReference(in); err == nil {
			t.Errorf("%q accepted as %+v", in, got)
		} else if strings.ContainsAny(err.Error(), "\n\r\x00") {
			t.Errorf("%q: the message has a control character: %q", in, err)
		}
	}
}

func TestPinned(t *testing.T) {
	r := mustParse(t, "a.example/b:moving")
	p, err := r.Pin(someDigest)
	if err != nil || p.String() != "a.example/b@"+string(someDigest) || p.Digest() != someDigest || p.IsZero() {
		t.Errorf("pin: %s, %v", p, err)
	}
	if _, err := r.Pin(""); err == nil {
		t.Error("a pin without a digest")
	}
	if _, err := (Reference{Name: "a.example/b:moving"}).Pin(someDigest); err == nil {
		t.Error("a pin holds a tag in its name")
	}
	if s := (Pinned{}).String(); s != "" {
		t.Errorf("the zero pin names %q", s)
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add(DefaultBase)
	f.Add("a.example:1/b:t@" + string(someDigest))
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.String(), " \t\r\n'\"$`\\;&|<>#(){}*?!~") {
			t.Errorf("%q gives %q", s, r)
		}
		if again, err := ParseReference(r.String()); err != nil || again != r {
			t.Errorf("%q: written %q, read back as %+v, %v", s, r, again, err)
		}
	})
}
