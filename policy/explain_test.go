package policy

import (
	"strings"
	"testing"
)

func TestInside(t *testing.T) {
	in := plain()
	in.Facts.Project = "/tmp/shop"
	in.Binds = []Mount{
		{Kind: KindBind, Source: "/tmp/shop/.git", Target: "/project/.git", ReadOnly: true, Why: "protected"},
		{Kind: KindBind, Source: "/srv/data", Target: "/data", ReadOnly: true, Why: "mount"},
		{Kind: KindBind, Source: "/srv/data/out", Target: "/data/out", Why: "mount"},
		{Kind: KindFile, Target: "/project/sock", ReadOnly: true, Why: "mask"},
	}
	container, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	in.KeepRoot = true
	root, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	jin := jailed()
	jin.Links = []HomeLink{{Path: ".claude", To: "/run/aisb-harness/claude"}, {Path: ".gone"}}
	jin.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/.claude", Target: "/run/aisb-harness/claude", Why: "x"}}
	jail, err := Resolve(jin)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		p    Policy
		path string
		want Access
		at   string // "" for path
		host string
	}{
		{container, "/project/a/b", AccessWrite, "", "/tmp/shop/a/b"},
		{container, "/project", AccessWrite, "", "/tmp/shop"},
		{container, "/project/.git", AccessRead, "", "/tmp/shop/.git"},
		{container, "/project/.git/hooks/x", AccessRead, "", "/tmp/shop/.git/hooks/x"},
		{container, "/project/.gitignore", AccessWrite, "", "/tmp/shop/.gitignore"},
		{container, "/project/sock", AccessRead, "", ""},
		{container, "/project/sock/x", AccessNone, "", ""},
		{container, "/projects", AccessRead, "", ""},
		{container, "/data/x", AccessRead, "", "/srv/data/x"},
		{container, "/data/out/x", AccessWrite, "", "/srv/data/out/x"},
		{container, "/data/../project/x", AccessWrite, "/project/x", "/tmp/shop/x"},
		{container, "/usr/bin/env", AccessRead, "", ""},
		{container, "/tmp/shop", AccessWrite, "", ""},
		{container, "/run", AccessRead, "", ""},
		{root, "/run/x", AccessWrite, "", ""},
		{root, "/run/aisb/in", AccessRead, "", "/run/user/1000/ai-sandbox/<session>/control/in"},
		{root, "/usr/bin/env", AccessRead, "", ""},
		{container, "/run/aisb/in", AccessRead, "", "/run/user/1000/ai-sandbox/<session>/control/in"},
		{container, "/proc/self", AccessKernel, "", ""},
		{container, "/dev/null", AccessKernel, "", ""},
		{container, "/dev/shm/x", AccessWrite, "", ""},
		{container, "/home/sandbox/.bashrc", AccessWrite, "", ""},
		{jail, "/bin/sh", AccessRead, "/usr/bin/sh", "/usr/bin/sh"},
		{jail, "/usr/lib/x", AccessRead, "", "/usr/lib/x"},
		{jail, "/etc/passwd", AccessRead, "", ""},
		{jail, "/etc/shadow", AccessNone, "", ""},
		{jail, "/etc", AccessRead, "", ""},
		{jail, "/root", AccessNone, "", ""},
		{jail, "/", AccessRead, "", ""},
		{jail, "/home/dev/work", AccessRead, "", ""},
		{jail, "/home/dev/work/shop/x", AccessWrite, "", "/home/dev/work/shop/x"},
		{jail, "/home/dev/.ssh", AccessNone, "", ""},
		{jail, "/home/sandbox/.claude/x", AccessWrite, "/run/aisb-harness/claude/x", "/home/dev/.claude/x"},
		{jail, "/home/sandbox/.gone", AccessWrite, "", "/home/dev/.local/state/ai-sandbox/homes/" + jail.Home.Volume + "/.gone"},
	} {
		at := tc.at
		if at == "" {
			at = tc.path
		}
		if got := tc.p.Inside(tc.path); got.Access != tc.want || got.Path != at || got.Host != tc.host {
			t.Errorf("%s on %s: %+v, want %s at %s, from %q", tc.path, tc.p.Runtime, got, tc.want, at, tc.host)
		}
	}
	for _, tc := range []struct {
		p    Policy
		host string
		want string // places
	}{
		{container, "/tmp/shop/a", "/project/a read-write"},
		{container, "/tmp/shop", "/project read-write"},
		{container, "/tmp/shop/.git/config", "/project/.git/config read-only"},
		{container, "/tmp/shop/sock", ""},
		{container, "/tmp", ""},
		{container, "/tmp/shopping", ""},
		{container, "/srv/data/out/x", "/data/out/x read-write"},
		{container, "/usr/bin/env", ""},
		{jail, "/usr/bin/env", "/usr/bin/env read-only"},
		{jail, "/home/dev/.claude/x", "/run/aisb-harness/claude/x read-write"},
		{jail, "/home/dev/.ssh/id", ""},
	} {
		var got []string
		for _, pl := range tc.p.Outside(tc.host) {
			got = append(got, pl.Path+" "+string(pl.Access))
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%s on %s is seen at %q, want %q", tc.host, tc.p.Runtime, got, tc.want)
		}
	}
	if h := container.Hidden("/tmp/shop/sock"); len(h) != 1 || h[0][1].Why != "mask" {
		t.Errorf("hidden: %+v", h)
	}
	loop := jail
	loop.Mounts = []Mount{{Kind: KindSymlink, Source: "b", Target: "/a"}, {Kind: KindSymlink, Source: "a", Target: "/b"}}
	loop.Inside("/a/x") // ends
}

// Explaining, and the jail's command line, go by the order of the mounts: what is
// mounted later lies over what is below it.
func TestParentsFirst(t *testing.T) {
	for name, p := range many(t) {
		if p.Runtime != RuntimeLocal {
			continue // podman sorts
		}
		for i, m := range p.Mounts {
			for _, later := range p.Mounts[i+1:] {
				if below(m.Target, later.Target) {
					t.Errorf("%s: %s comes after %s, and covers it", name, later.Target, m.Target)
				}
			}
		}
	}
}
