package policy

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

func entry(t testing.TB, s string) Entry {
	t.Helper()
	e, err := ParseEntry(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// plain is a request as a user on an ordinary machine makes it.
func plain() Input {
	return Input{
		Facts: Facts{
			Project: "/home/dev/work/shop", RuntimeDir: "/run/user/1000/ai-sandbox",
			EnvSet: func(n string) bool {
				return slices.Contains([]string{"TERM", "LANG", "LC_CTYPE", "TOKEN", "LC_SECRET"}, n)
			},
			Limits: LimitFacts{Memory: Enforcement{By: ByCgroup}, CPUs: Enforcement{By: ByCgroup}, Pids: Enforcement{By: ByCgroup}},
		},
		Limits:  LimitInputs{Pids: LimitInput{Text: "4096"}, Disk: LimitInput{Text: "3g"}},
		Runtime: RuntimePodman, Harness: "pi", Command: []string{"pi"}, Net: NetGated,
		Image: Image{
			Ref: "localhost/ai-sandbox:0123456789ab", BaseRef: "docker.io/library/debian:trixie-slim",
			BaseDigest: "sha256:" + strings.Repeat("ab", 32), GateRef: "localhost/ai-sandbox-gate:ba9876543210",
			Harnesses: []Harness{{"pi", "1.6.0"}},
		},
	}
}

// jailed is plain on the local runtime.
func jailed() Input {
	in := plain()
	in.Runtime, in.Net, in.Image = RuntimeLocal, "", Image{}
	in.Facts.Local = LocalFacts{
		System: []Mount{
			{Kind: KindBind, Source: "/usr", Target: "/usr", ReadOnly: true, Why: "system"},
			{Kind: KindSymlink, Source: "usr/bin", Target: "/bin", Why: "system"},
			{Kind: KindBind, Source: "/etc/ssl/certs", Target: "/etc/ssl/certs", ReadOnly: true, Why: "CA certificates"},
		},
		Homes:    "/home/dev/.local/state/ai-sandbox/homes",
		Tools:    []Mount{{Kind: KindBind, Source: "/home/dev/.nvm/versions/node/v22", Target: "/home/dev/.nvm/versions/node/v22", ReadOnly: true, Why: "pi"}},
		ToolPath: []string{"/home/dev/.nvm/versions/node/v22/bin"},
	}
	return in
}

func TestRender(t *testing.T) {
	full := plain()
	full.Image.Harnesses = []Harness{{"pi", "1.6.0"}, {"claude", "2.1.332"}, {"codex", "0.171.0"}}
	full.Image.Apt, full.Image.Setup = []string{"gcc", "make=4.4.1-2"}, &Setup{".ai-sandbox/setup", strings.Repeat("ab", 32)}
	full.Facts.Project = "/tmp/a project"
	full.Facts.SELinux = true
	full.Command = []string{"pi", "-p", "say \"hi\"\x1b[2J\u202e", strings.Repeat("long ", 30)}
	full.Image.RecordedID = "sha256:" + strings.Repeat("12", 32)
	full.Image.BaseDigest = ""
	full.Allow = []Entry{entry(t, "api.example.com"), entry(t, "*.example.org"), entry(t, "192.0.2.0/24:8443")}
	full.AllowPrivate = []Entry{entry(t, "127.0.0.1:5432")}
	full.Limits = LimitInputs{
		Memory: LimitInput{"2g", "--memory"}, CPUs: LimitInput{"1.5", "--cpus"}, Pids: LimitInput{"100", "--pids"},
		Time: LimitInput{"2h30m", "--time"}, Disk: LimitInput{"100m", "--disk"},
	}
	full.EphemeralHome, full.ExtraCA = true, true
	full.Upstream = &Upstream{Host: "proxy.example.com", Port: 3128, Credentials: true}
	full.Publish = publishes(t, "3000", ":5173", "0.0.0.0:80:8080", "[::1]:8081:8080")
	full.Env = []string{"TOKEN", "GREETING=hello  \x07there", "MODE=fast"}
	full.EnvFile, full.Token = []Secret{NewSecret("DB_PASSWORD", "x")}, "LC_SECRET"
	none := plain()
	none.Net, none.Harness, none.Command = NetNone, "", []string{"true"}
	none.Allow = []Entry{entry(t, "api.example.com")}
	named := plain()
	named.GateName = "work"
	named.Allow = []Entry{entry(t, "api.example.com")}
	unix := plain()
	unix.Net, unix.Engine, unix.ReadOnly = NetUnix, EngineBuiltin, true
	local := jailed()
	local.Links = []HomeLink{{Path: ".claude/.credentials.json", To: "/run/aisb-harness/login"}, {Path: ".claude/projects/x"}}
	local.Seeds = []HomeSeed{{Path: ".claude.json", Mode: 0o600, Content: []byte("{}\n")}}
	local.Thinking = &Thinking{Level: "xhigh", As: "--effort xhigh"}
	local.Managed = []HomeManaged{
		{Path: ".pi/agent/models.json", Mode: 0o600, None: true},
		{Path: ".pi/agent/settings.json", Mode: 0o600, Content: []byte("{}"), Keys: true, Fixed: []HomeKey{{Key: "a", Value: "high"}, {Key: "b"}}},
	}
	open := jailed()
	open.Net, open.ExtraCA, open.EphemeralHome = NetHost, true, true
	open.Facts.Local.ExtraCA, open.Facts.Local.CABundle = []byte("one\n"), []byte("all\none\n")
	open.Binds = []Mount{{Kind: KindBind, Source: "/home/dev/.claude", Target: HomeDir + "/.claude", Why: "the agent's own directory"}}
	open.Facts.Limits.Pids = Enforcement{Why: "there is no systemd session here; log in"}
	open.Loud = []string{"HARNESS HOME: your own agent obeys what is planted there"}
	mounted := plain()
	mounted.Agents = agentsAt("/home/dev/.agents")
	mounted.Mounts = []BindRequest{
		request("/srv/a b", func(r *BindRequest) { r.Writable, r.Sockets = true, []string{"/srv/a b/s.sock"} }),
		request("/home/dev/.gitconfig", func(r *BindRequest) { r.Dir, r.Target = false, HomeDir+"/.gitconfig" }),
	}
	mounted.Workdir = "/work"
	alone := jailed()
	alone.NoCwd, alone.Facts.Project = true, ""
	alone.Limits.Disk = LimitInput{"100m", "--disk"}
	rooted := plain()
	rooted.KeepRoot, rooted.EphemeralHome = true, true
	for name, in := range map[string]Input{
		"keep-root": rooted,
		"mounts":    mounted, "no-cwd": alone,
		"plain": plain(), "full": full, "none": none, "named": named, "unix": unix, "local": local, "local-host": open,
		"repository": repository(), "worktree": worktree(),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Resolve(in)
			if err != nil {
				t.Fatal(err)
			}
			if p.Runtime == RuntimePodman {
				p = p.WithRuleset("table inet aisb {\n\tchain output {\n\t\toifname \"lo\" accept\n\t}\n}\n")
			}
			text := p.Text()
			golden(t, name+".txt", text)
			data, err := p.JSON()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", string(data))
			for line := range strings.Lines(text) {
				// One word of a user's can be longer than a line.
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > width && !strings.HasPrefix(line, "    \"long") && len(strings.Fields(line)) > 1 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			for _, r := range text {
				if r != '\n' && (r < ' ' || r == 0x7f || r == 0x202e) {
					t.Errorf("the text holds %q", r)
				}
			}
		})
	}
}

func TestWorkdir(t *testing.T) {
	for _, p := range []string{
		"/usr", "/usr/local/src/x", "/etc", "/etc/x", "/var", "/var/home/dev/x", "/opt/x", "/bin/x", "/sbin", "/lib", "/lib/x",
		"/lib64", "/lib32/x", "/libexec", "/boot/x", "/proc/1", "/sys/x", "/dev/shm/x", "/root", "/root/x", "/run/user/1000/x",
		"/tmp", "/tmp/x/y", "/home", "/home/dev", "/home/sandbox", "/home/sandbox/x", "/home/sandbox2", "/home/sandbox2/x",
	} {
		if dir, note := Workdir(p); dir != FallbackDir || note == "" {
			t.Errorf("%s is mounted at %s (%q)", p, dir, note)
		}
	}
	for _, p := range []string{
		"/home/dev/x", "/home/dev/x/y", "/home/dev/usr", "/home/dev/sandbox", "/home/sand/x", "/srv/x", "/data", "/work/main",
		"/mnt/x", "/media/x", "/project", "/Users/dev/x", "/usrlocal", "/tmpx", "/nix/x", "/binary/x", "/home/dev/a b/\"c\"", "/runs",
	} {
		if dir, note := Workdir(p); dir != p || note != "" {
			t.Errorf("%s is mounted at %s (%q)", p, dir, note)
		}
	}
}

func TestHomeVolume(t *testing.T) {
	seen := map[string]string{}
	for _, p := range []string{"/home/dev/shop", "/srv/shop", "/home/dev/Shop", "/home/dev/ü", "/home/dev/-", "/home/dev/a b", "/home/dev/" + strings.Repeat("x", 200)} {
		v := HomeVolume(p)
		if old, ok := seen[v]; ok {
			t.Errorf("%s and %s share %s", p, old, v)
		}
		seen[v] = p
		if len(v) > 64 || strings.Trim(v, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%s: volume %q", p, v)
		}
	}
	if v := HomeVolume("/home/dev/shop"); v != "aisb-home-shop-e828acfc" {
		t.Errorf("the volume of a path must stay the same; it is %s now", v)
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"colon", func(in *Input) { in.Facts.Project = "/home/dev/a:b" }, `project path /home/dev/a:b holds a ":", which separates the parts of a mount; rename the directory`},
		{"root", func(in *Input) { in.Facts.Project = "/" }, "the project is /, which holds the whole machine; start ai-sandbox in the directory of one project"},
		{"relative", func(in *Input) { in.Facts.Project = "work" }, "project work is not a resolved absolute path"},
		{"unclean", func(in *Input) { in.Facts.Project = "/home/dev/../x" }, "project /home/dev/../x is not a resolved absolute path"},
		{"bytes", func(in *Input) { in.Facts.Project = "/home/dev/\xff" }, `project path "/home/dev/\xff" is not valid UTF-8; rename the directory`},
		{"runtime", func(in *Input) { in.Runtime = "docker" }, "runtime docker is not known; use podman or local"},
		{"net", func(in *Input) { in.Net = "open" }, "net open is not known; use gated, unix, none, host or learn"},
		{"net podman", func(in *Input) { in.Net = NetHost }, "podman's runtime has no net host; use gated, unix or none"},
		{"net local", func(in *Input) { in.Runtime = RuntimeLocal }, "the local runtime's gated network is net unix; use that, or the runtime podman"},
		{"gate", func(in *Input) { in.Net, in.GateName = NetNone, "work" }, "a gate has no use with net none; drop gate, or use net gated"},
		{"gate unix", func(in *Input) { in.Net, in.GateName = NetUnix, "work" }, "a named gate is reached with net gated only; drop gate, or use that"},
		{"gate engine", func(in *Input) { in.Engine, in.GateName = EngineBuiltin, "work" }, "a named gate is squid's; drop gate or gate_engine builtin"},
		{"engine", func(in *Input) { in.Engine = "nginx" }, "gate_engine nginx is not known; use squid or builtin"},
		{"keep root", func(in *Input) { in.Runtime, in.Net, in.KeepRoot = RuntimeLocal, "", true }, "insecure_keep_root is for podman's runtime only: a jail's command has the caller's own uid; drop it, or use the runtime podman"},
		{"command", func(in *Input) { in.Command = nil }, "there is no command to run; name one after --"},
		{"argument", func(in *Input) { in.Command = []string{"x", "\xff"} }, `argument "\xff" is not valid UTF-8; it can't be passed on exactly`},
		{"env unset", func(in *Input) { in.Env = []string{"NOPE"} }, "env NOPE is unset or empty here; give it a value, or don't pass it"},
		{"env empty", func(in *Input) { in.Env = []string{"A="} }, "env A has an empty value; give it one or drop it"},
		{"env name", func(in *Input) { in.Env = []string{"A B=c", "1A=x", "=x"} }, "env \"A B\" is not a variable's name; use NAME or NAME=value\nenv 1A is not a variable's name; use NAME or NAME=value\nenv \"\" is not a variable's name; use NAME or NAME=value"},
		{"env ours", func(in *Input) { in.Env = []string{"HTTPS_PROXY=http://elsewhere"} }, "env HTTPS_PROXY is set by ai-sandbox itself; drop it"},
		{"env bytes", func(in *Input) { in.Env = []string{"A=\xff"} }, "env A has a value that is not valid UTF-8; pass it by name, or in an env_file"},
	} {
		in := plain()
		tc.change(&in)
		if _, err := Resolve(in); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v\nwant %s", tc.name, err, tc.want)
		}
	}
}

// Nothing of the caller's environment enters but the fixed list and what was
// named; and no value of it is in a policy.
func TestEnvDenied(t *testing.T) {
	in := plain()
	in.Facts.EnvSet = func(string) bool { return true }
	in.Env = []string{"TOKEN"}
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	var host []string
	for _, e := range p.Env {
		if e.From == FromHost {
			host = append(host, e.Name)
			if e.Value != "" {
				t.Errorf("%s has its value in the policy", e.Name)
			}
		}
	}
	want := strings.Fields("COLORTERM LANG LC_ADDRESS LC_ALL LC_COLLATE LC_CTYPE LC_IDENTIFICATION LC_MEASUREMENT LC_MESSAGES " +
		"LC_MONETARY LC_NAME LC_NUMERIC LC_PAPER LC_TELEPHONE LC_TIME NO_COLOR TERM TOKEN TZ")
	if !slices.Equal(host, want) {
		t.Errorf("passed: %v\nwant    %v", host, want)
	}
}

func TestEnvLastWins(t *testing.T) {
	in := plain()
	in.Env = []string{"TOKEN", "TOKEN=public", "MODE=a", "MODE=b", "LANG=C.UTF-8"}
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Env{}
	for _, e := range p.Env {
		got[e.Name] = e
	}
	for name, value := range map[string]string{"TOKEN": "public", "MODE": "b", "LANG": "C.UTF-8"} {
		if e := got[name]; e.Value != value || e.From != FromConstant {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestFilled(t *testing.T) {
	in := plain()
	in.Facts.Project = "/home/dev/<session>"
	in.EphemeralHome = true
	in.Env = []string{"A=" + PortPlaceholder}
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	before := p.Text()
	f := p.Filled("abc", 4711)
	if p.Text() != before {
		t.Error("Filled changed its receiver")
	}
	if f.Project != "/home/dev/<session>" || f.Mounts[0].Source != f.Project {
		t.Errorf("the project became %s, %s", f.Project, f.Mounts[0].Source)
	}
	for _, m := range f.Mounts[1:] {
		if strings.Contains(m.Source, "<") != (m.Why == WhyProtected) {
			t.Errorf("mount %+v", m)
		}
	}
	if f.Home.Volume != "aisb-home-abc" {
		t.Errorf("home %s", f.Home.Volume)
	}
	for _, e := range f.Env {
		if strings.Contains(e.Value, PortPlaceholder) != (e.Name == "A") {
			t.Errorf("env %+v", e)
		}
	}
}

// Whatever is asked for, the root file system's writable places are named, the
// project is the only host path that is writable, and mode none reaches nothing.
func TestInvariants(t *testing.T) {
	for _, net := range []string{NetGated, NetNone} {
		in := plain()
		in.Net, in.Allow = net, []Entry{entry(t, "api.example.com")}
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Mounts {
			if m.Kind == "bind" && !m.ReadOnly && m.Source != in.Facts.Project {
				t.Errorf("writable bind %+v", m)
			}
			if m.Kind == "tmpfs" && (m.SizeBytes == 0 || m.Mode == "") {
				t.Errorf("unbounded tmpfs %+v", m)
			}
		}
		for _, e := range p.Env {
			if net == NetNone && e.From == FromProxy {
				t.Errorf("proxy variable without a network: %+v", e)
			}
		}
		if net == NetNone && (len(p.Net.Allow) > 0 || p.Net.Engine != "") {
			t.Errorf("net %+v", p.Net)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a b", "\x1b[2J", "\u202e", "\xff", "a\nb", `\x41`, "`id`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, q := range []string{Quote(s), Printable(s)} {
			for _, r := range q {
				if r != ' ' && !unicode.IsPrint(r) {
					t.Errorf("%q shows %q", s, r)
				}
			}
		}
		if Quote(s) == "" || strings.ContainsAny(Quote(s), "\n\r") {
			t.Errorf("%q is shown as nothing or as lines", s)
		}
	})
}
