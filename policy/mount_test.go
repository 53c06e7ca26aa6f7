package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseMount(t *testing.T) {
	for s, want := range map[string]MountEntry{
		"/a":                {Source: "/a"},
		"a":                 {Source: "a"},
		"ro":                {Source: "ro"},
		"~/a b,c":           {Source: "~/a b,c"},
		"/a:ro":             {Source: "/a"},
		"/a:rw":             {Source: "/a", Writable: true},
		"/a:/b":             {Source: "/a", Target: "/b"},
		"/a:/b:ro":          {Source: "/a", Target: "/b"},
		"../a:/b c/-d:rw":   {Source: "../a", Target: "/b c/-d", Writable: true},
		"/a\n%20'\"\\:/b\n": {Source: "/a\n%20'\"\\", Target: "/b\n"},
	} {
		if got, err := ParseMount(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"": "no source", ":/b": "no source", ":ro": "no source", "/a:b": "is not absolute", "/a:": "is not absolute", "/a:/b/": "is not clean (/b)",
		"/a:/b/../c": "is not clean (/c)", "/a:/b:x": "neither ro nor rw", "/a:/b:ro:rw": "neither ro nor rw", "/a:RO": "is not absolute", "/a\x00": "not valid UTF-8", "\xff": "not valid UTF-8", "/a:/\xff": "not valid UTF-8",
	} {
		if _, err := ParseMount(s); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), MountGrammar) {
			t.Errorf("%q: %v, want %s", s, err, want)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	for _, s := range []string{"/a:/b:rw", "~/x", "a:ro", "", ":", "::", "/a:/b:", "\xff", "a\n:/b", "/a:/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseMount(s)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("%q: the error is not one line: %q", s, err)
			}
			return
		}
		again := e.Source
		if e.Target != "" {
			again += ":" + e.Target
		}
		mode := ":ro"
		if e.Writable {
			mode = ":rw"
		}
		if again != s && again+mode != s {
			t.Errorf("%q is read as %+v", s, e)
		}
		if e.Source == "" || strings.Contains(e.Source+e.Target, ":") || !utf8.ValidString(e.Source+e.Target) || strings.Contains(e.Source+e.Target, "\x00") {
			t.Errorf("%q: %+v", s, e)
		}
	})
}

// Whatever the project and the workdir are called, what is mounted hides nothing
// of the sandbox.
func FuzzMountPlaces(f *testing.F) {
	for _, s := range []string{"/usr", "/home/dev/x", "/home/sandbox-x/y", "/", "/library", "/home", "/a b", "//", "/tmp/../x", "/lib"} {
		f.Add(s, "")
		f.Add("/srv/x", s)
	}
	f.Fuzz(func(t *testing.T, project, workdir string) {
		in := plain()
		in.Facts.Project, in.Workdir = project, workdir
		p, err := Resolve(in)
		if err != nil {
			return
		}
		if p.Workdir != FallbackDir && hides(p.Workdir) != "" {
			t.Errorf("project %q, workdir %q: mounted at %q", project, workdir, p.Workdir)
		}
		if p.Workdir == FallbackDir && p.Project != FallbackDir && p.WorkdirNote == "" {
			t.Errorf("project %q: nothing says that it is at %s", project, p.Workdir)
		}
		if m := p.Mounts[0]; m.Source != project || m.Target != p.Workdir {
			t.Errorf("%+v", m)
		}
	})
}

func request(src string, change func(*BindRequest)) BindRequest {
	r := BindRequest{Source: src, Dir: true, ID: Identity{1, 2}, Origin: "--mount"}
	if change != nil {
		change(&r)
	}
	return r
}

func agentsAt(dir string) Agents {
	r := request(dir, nil)
	return Agents{Bind: &r, Dest: DefaultAgentsDest, Never: []string{dir}}
}

func targets(list []Mount) []string {
	var out []string
	for _, m := range list {
		out = append(out, m.Target)
	}
	return out
}

// linkTarget is where a mount is that is seen at a path of the home.
func linkTarget(rel string) string { return MountsDir + "/" + hash([]byte(rel))[:12] }

// No link of the home is, holds or lies in another place of the run: it would be made
// in what the other one shows.
func TestHomePlaces(t *testing.T) {
	for _, tc := range []struct {
		what   string
		places []string // of directories, but for *.md
		agents string
		want   string
	}{
		{"beside", []string{".a/x", ".a/y", "b", ".agents.x/y"}, "", ""},
		{"the same", []string{".a/x", ".a/x"}, "", "something else of this run is at"},
		{"below", []string{".a/x", ".a/x/one.md"}, "", "something else of this run is at /home/sandbox/.a/x;"},
		{"above", []string{".a/x/one.md", ".a/x"}, "", "something else of this run is at /home/sandbox/.a/x/one.md;"},
		{"below what is mounted", []string{".a", ".a/x"}, "", "something else of this run is at /home/sandbox/.a;"},
		{"above what is linked", []string{".a/x", ".a"}, "", "something else of this run is at /home/sandbox/.a/x;"},
		{"in an agent's directory of the host's", []string{".pi/agent/prompts"}, "", "something else of this run is at /home/sandbox/.pi;"},
		{"where a link was once", []string{".claude/x"}, "", ""},
		{"the name of what was displaced", []string{".a/x.own"}, "", "ends the name of what was there before"},
		{"the agents directory", []string{".a/x"}, HomeDir + "/.a/x/y", "something else of this run is at /home/sandbox/.a/x;"},
	} {
		in := jailed()
		in.Links = []HomeLink{{Path: ".pi", To: "/run/aisb-harness/home"}, {Path: ".claude"}}
		for i, place := range tc.places {
			in.Mounts = append(in.Mounts, request(fmt.Sprint("/srv/", i), func(r *BindRequest) {
				r.Target, r.Dir = HomeDir+"/"+place, !strings.HasSuffix(place, ".md")
			}))
		}
		if tc.agents != "" {
			in.Agents = agentsAt("/home/dev/.agents")
			in.Agents.Dest = tc.agents
		}
		if _, err := Resolve(in); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
}

func TestExtraMounts(t *testing.T) {
	for _, in := range []Input{plain(), jailed()} {
		in.Agents = agentsAt("/home/dev/.agents")
		in.Mounts = []BindRequest{
			request("/srv/data", func(r *BindRequest) { r.Writable, r.Sockets = true, []string{"/srv/data/s", "/srv/data/x/y"} }),
			request("/home/dev/work", nil), // around the project
			request("/home/dev/.gitconfig", func(r *BindRequest) { r.Dir, r.Target = false, HomeDir+"/.gitconfig" }),
			request("/home/dev/cfg", func(r *BindRequest) { r.Target = HomeDir + "/.config/x" }),
			request("/home/dev/skills", func(r *BindRequest) { r.Target = HomeDir + "/skills" }),
			request("/srv/over", func(r *BindRequest) { r.Target = "/srv/data/x" }),
		}
		in.Facts.Sockets = []string{in.Facts.Project + "/a/s.sock"}
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		at := func(target string) Mount {
			i := slices.Index(targets(p.Mounts), target)
			if i < 0 {
				t.Fatalf("nothing is at %s: %q", target, targets(p.Mounts))
			}
			return p.Mounts[i]
		}
		for target, source := range map[string]string{
			"/srv/data": "/srv/data", "/home/dev/work": "/home/dev/work", linkTarget(".gitconfig"): "/home/dev/.gitconfig", linkTarget(".config/x"): "/home/dev/cfg",
			HomeDir + "/skills": "/home/dev/skills", "/srv/data/x": "/srv/over", DefaultAgentsDest: "/home/dev/.agents",
		} {
			if m := at(target); m.Source != source || m.ReadOnly != (target != "/srv/data") || m.ID != (Identity{1, 2}) {
				t.Errorf("%+v", m)
			}
		}
		for _, pair := range [][2]string{{"/home/dev/work", "/home/dev/work/shop"}, {"/srv/data", "/srv/data/x"}, {HomeDir, HomeDir + "/skills"}, {HomeDir, DefaultAgentsDest}} {
			if list := targets(p.Mounts); slices.Index(list, pair[0]) > slices.Index(list, pair[1]) {
				t.Errorf("%s comes after %s", pair[0], pair[1])
			}
		}
		// A socket is masked where it is seen: not below what covers it.
		for target, want := range map[string]bool{"/srv/data/s": true, "/srv/data/x/y": false, "/home/dev/work/shop/a/s.sock": true} {
			i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Target == target && m.Why == WhyMasked })
			if i >= 0 != want {
				t.Errorf("mask at %s: %d", target, i)
			}
		}
		if !slices.Equal(p.Home.Points, []string{"skills", ".agents"}) || len(p.Home.Links) != 2 || p.Home.Links[1] != (HomeLink{".config/x", linkTarget(".config/x")}) {
			t.Errorf("%+v", p.Home)
		}
		f := p.Filled("abc", 1)
		for i, m := range f.Mounts {
			if m.ID != (Identity{}) && m.Source != p.Mounts[i].Source {
				t.Errorf("%s became %s", p.Mounts[i].Source, m.Source)
			}
		}
	}
}

// A writable directory outside the project is marked, and nothing else is.
func TestUnguardedMounts(t *testing.T) {
	writable := func(r *BindRequest) { r.Writable = true }
	in := plain()
	inside := in.Facts.Project + "/data"
	in.Mounts = []BindRequest{
		request("/srv/data", writable), request("/srv/docs", nil), request(inside, writable),
		request("/srv/file", func(r *BindRequest) { r.Writable, r.Dir = true, false }),
	}
	for _, c := range []struct {
		readOnly bool
		want     []string
	}{{false, []string{"/srv/data"}}, {true, []string{"/srv/data", inside}}} {
		in.ReadOnly = c.readOnly
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, u := range p.Unusual {
			if strings.HasPrefix(u, "UNPROTECTED: ") {
				got = append(got, u)
			}
		}
		for _, src := range c.want {
			want = append(want, "UNPROTECTED: nothing is protected in the mount of "+src+", and what changes there is not told at the end")
		}
		if !slices.Equal(got, want) {
			t.Errorf("read-only %v: %q", c.readOnly, got)
		}
	}
}

func TestExtraMountsRefused(t *testing.T) {
	never := "can be written and is, holds or lies in the agents directory /home/dev/.agents, which every agent obeys"
	rw := func(r *BindRequest) { r.Writable = true }
	to := func(target string) func(*BindRequest) { return func(r *BindRequest) { r.Target = target } }
	for name, tc := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"usr":         {func(in *Input) { in.Mounts = []BindRequest{request("/srv/x", to("/usr/x"))} }, "mount /srv/x (from --mount) would hide /usr of the sandbox at /usr/x; name another place, as /srv/x:/mnt/x"},
		"home":        {func(in *Input) { in.Mounts = []BindRequest{request("/srv/x", to(HomeDir))} }, "would hide /home/sandbox"},
		"beside home": {func(in *Input) { in.Mounts = []BindRequest{request("/srv/x", to(HomeDir+"2/x"))} }, "would hide /home/sandbox2"},
		"project":     {func(in *Input) { in.Mounts = []BindRequest{request("/srv/x", to("/home/dev/work/shop"))} }, "something else is mounted already (project)"},
		"twice":       {func(in *Input) { in.Mounts = []BindRequest{request("/srv/x", nil), request("/srv/y", to("/srv/x"))} }, "something else is mounted already (--mount)"},
		"link target": {func(in *Input) { in.Mounts = []BindRequest{request("/srv/a:b", nil)} }, "holds a colon"},
		"agents":      {func(in *Input) { in.Mounts = []BindRequest{request("/home/dev/.agents", rw)} }, never},
		"in agents":   {func(in *Input) { in.Mounts = []BindRequest{request("/home/dev/.agents/x", rw)} }, never},
		"holds agents": {func(in *Input) {
			in.Agents.Never = append(in.Agents.Never, "/srv/x/agents")
			in.Mounts = []BindRequest{request("/srv/x", rw)}
		}, "agents directory /srv/x/agents"},
		"not shown":    {func(in *Input) { in.Agents.Bind = nil; in.Mounts = []BindRequest{request("/home/dev/.agents", rw)} }, never},
		"harness":      {func(in *Input) { in.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/.agents", Target: "/run/x"}} }, never},
		"the project":  {func(in *Input) { in.Facts.Project = "/home/dev/.agents/skills" }, "the project /home/dev/.agents/skills " + never},
		"agents_dest":  {func(in *Input) { in.Agents.Dest = "/etc/x" }, "agents_dest /etc/x would hide /etc"},
		"workdir":      {func(in *Input) { in.Workdir = "/usr/x" }, "workdir /usr/x would hide /usr"},
		"workdir form": {func(in *Input) { in.Workdir = "x" }, "workdir x is not absolute"},
		"no project":   {func(in *Input) { in.NoCwd, in.Workdir, in.Facts.Project = true, "/x", "" }, "drop one of them"},
		"at /project": {func(in *Input) {
			in.NoCwd, in.Facts.Project = true, ""
			in.Mounts = []BindRequest{request("/srv/x", to(FallbackDir))}
		}, "where the command works with no_cwd"},
		"many sockets":  {func(in *Input) { in.Facts.Sockets = manySockets(in.Facts.Project) }, "more than 64 unix sockets"},
		"socket's name": {func(in *Input) { in.Facts.Sockets = []string{in.Facts.Project + "/\xff"} }, "is not valid UTF-8, so it can't be masked"},
	} {
		in := plain()
		in.Agents = agentsAt("/home/dev/.agents")
		tc.change(&in)
		if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tc.want)
		}
	}
	in := plain()
	in.Agents = agentsAt("/home/dev/.agents")
	in.Mounts = []BindRequest{request("/home/dev/.agents/x", nil), request("/srv/x", to(DefaultAgentsDest))}
	p, err := Resolve(in) // read-only it may, and an explicit mount wins
	if err != nil || len(p.Home.Points) != 1 || p.Mounts[slices.Index(targets(p.Mounts), DefaultAgentsDest)].Source != "/srv/x" {
		t.Errorf("%v %+v", err, p.Home)
	}
	in.Facts.Project, in.ReadOnly = "/home/dev/.agents/skills", true
	if _, err := Resolve(in); err != nil {
		t.Errorf("a read-only project in the agents directory: %v", err)
	}
}

func manySockets(dir string) []string {
	var out []string
	for i := range MaxSockets + 1 {
		out = append(out, dir+"/"+strings.Repeat("s", i+1))
	}
	return out
}
