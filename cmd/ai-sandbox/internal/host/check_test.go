package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/policy"
)

// good are the facts of an ordinary Debian 13.
func good() Facts {
	return Facts{
		OS: "linux", UID: 1000, GID: 1000, User: "dev", Home: "/home/dev",
		Project: Dir{Path: "/home/dev/shop", Owner: 1000},
		Dirs: Dirs{
			Config: "/home/dev/.config/ai-sandbox", State: "/home/dev/.local/state/ai-sandbox", Cache: "/home/dev/.cache/ai-sandbox",
			XDGRuntime: "/run/user/1000", RuntimeMode: fs.ModeDir | 0o700, RuntimeOwner: 1000,
			Store: "/home/dev/.local/share/containers",
		},
		SubUIDs: 65536, SubGIDs: 65536,
		Tools:   map[string]bool{policy.RuntimePodman: true, policy.RuntimeLocal: true},
		Bwrap:   Tool{Path: "/usr/bin/bwrap", Version: "0.11.0"},
		Squid:   Tool{Path: SquidPath, OpenSSL: true},
		Podman:  Tool{Path: "/usr/bin/podman", Version: "5.4.2"},
		Pasta:   Tool{Path: "/usr/bin/pasta", MapHostLoopback: true},
		Cgroups: Cgroups{Manager: "/run/user/1000/systemd/private", Controllers: []string{"cpu", "memory", "pids"}, CountsByNamespace: true},
	}
}

func TestGood(t *testing.T) {
	for _, change := range []func(*Facts){
		func(*Facts) {},
		func(f *Facts) { f.Podman.Version = "5.0.0-rc1" },
		func(f *Facts) { f.Podman.Version = "10.1" },
		func(f *Facts) { f.SubUIDs, f.SubGIDs = -1, -1 }, // kept by a service
		func(f *Facts) { f.Project.Path = "/home/dev/.config/nvim" },
		func(f *Facts) { f.Project.Path = "/home/dev/.sshd" },
		func(f *Facts) { f.Project.Path = "/srv/shop" },
		func(f *Facts) { f.Project.Path = "/tmp/x" },
		func(f *Facts) { f.Project.Path = "/library" },
		func(f *Facts) { f.Project = Dir{} },
		func(f *Facts) { f.Tools, f.Podman, f.Pasta, f.Bwrap = nil, Tool{}, Tool{}, Tool{} }, // not looked for
	} {
		f := good()
		change(&f)
		for _, runtime := range runtimes {
			for _, v := range Problems(Check(f, runtime)) {
				t.Errorf("%s: %+v: %s", runtime, f.Project, v.Problem)
			}
		}
	}
}

var runtimes = []string{policy.RuntimePodman, policy.RuntimeLocal}

// TestRefusals: what one runtime needs is nothing to the other.
func TestRefusals(t *testing.T) {
	const elsewhere = "start ai-sandbox in the directory of one project"
	in := func(path string) func(*Facts) { return func(f *Facts) { f.Project.Path = path } }
	const podman, local, both = policy.RuntimePodman, policy.RuntimeLocal, ""
	for _, tc := range []struct {
		runtime string // the one that refuses
		change  func(*Facts)
		want    string
	}{
		{podman, func(f *Facts) { f.UID, f.Project.Owner, f.Dirs.RuntimeOwner = 0, 0, 0 }, "podman's runtime must not run as root; start ai-sandbox as a normal user, or choose another runtime with --runtime local (in the configuration file: runtime = local)"},
		{both, func(f *Facts) { f.OS = "darwin" }, "ai-sandbox needs Linux, and this is darwin; run it in a Linux machine or VM"},
		{podman, func(f *Facts) { f.Podman = Tool{} }, "podman is not installed; install podman 5 or later, or choose another runtime with --runtime local (in the configuration file: runtime = local)"},
		{podman, func(f *Facts) { f.Podman.Version = "4.3.1" }, "podman is 4.3.1, and 5 or later is needed; install a newer one, or choose another runtime with --runtime local (in the configuration file: runtime = local)"},
		{podman, func(f *Facts) { f.Podman.Version = "5x" }, "podman is 5x, and 5 or later is needed; install a newer one, or choose another runtime with --runtime local (in the configuration file: runtime = local)"},
		{podman, func(f *Facts) { f.Podman.Err = "exit status 1" }, "podman does not say its version (exit status 1); repair it, or choose another runtime with --runtime local (in the configuration file: runtime = local)"},
		{podman, func(f *Facts) { f.Pasta = Tool{} }, "pasta is not installed; install passt of 2024-08 or later"},
		{podman, func(f *Facts) { f.Pasta.MapHostLoopback = false }, "pasta has no --map-host-loopback; install passt of 2024-08 or later"},
		{podman, func(f *Facts) { f.SubUIDs = 0 }, "user dev has no range of subordinate ids in /etc/subuid and /etc/subgid; add one with: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 dev"},
		{podman, func(f *Facts) { f.SubGIDs = 1000 }, "user dev has fewer than 65536 subordinate ids in /etc/subuid or /etc/subgid; add some with: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 dev"},
		{podman, func(f *Facts) { f.RemoteEnv = "CONTAINER_HOST" }, "CONTAINER_HOST points at another podman service, which can't be trusted to enforce anything here; unset CONTAINER_HOST"},
		{podman, func(f *Facts) { f.Dirs.XDGRuntime = "" }, "XDG_RUNTIME_DIR is not set, and podman needs it; log in as this user, or make /run/user/1000 exist (sudo loginctl enable-linger dev) and export it"},
		{podman, func(f *Facts) { f.Dirs.RuntimeMode = 0 }, "XDG_RUNTIME_DIR /run/user/1000 is not a directory; make it (sudo loginctl enable-linger dev) or point the variable at /run/user/1000"},
		{podman, func(f *Facts) { f.Dirs.RuntimeMode |= 0o007 }, "XDG_RUNTIME_DIR /run/user/1000 is open to other users; point the variable at /run/user/1000"},
		{podman, func(f *Facts) { f.ContainersSteered = []string{"/home/dev/.config/containers/policy.json"} },
			"/home/dev/.config/containers/policy.json must be outside the project, or a sandboxed command could rewrite what podman obeys; start ai-sandbox elsewhere"},
		{both, func(f *Facts) { f.Steered = []string{"XDG_CONFIG_HOME"} }, "XDG_CONFIG_HOME must be absolute and outside the project, or a sandboxed command could rewrite what ai-sandbox obeys; point it elsewhere"},

		{both, in("/"), "the project would be /, the whole machine; " + elsewhere},
		{both, in("/home/dev/a:b"), `project path /home/dev/a:b holds a ":", which separates the parts of a mount; rename the directory`},
		{both, in("/home/dev/\xff"), `project path "/home/dev/\xff" is not valid UTF-8; rename the directory`},
		{both, in("/home/dev"), "the project would be your home /home/dev, with everything in it; " + elsewhere},
		{both, in("/home"), "the project would be /home, which holds your home; " + elsewhere},
		{both, func(f *Facts) { f.PasswdHome, f.Project.Path = "/data/dev", "/data/dev" }, "the project would be your home /data/dev, with everything in it; " + elsewhere},
		{both, func(f *Facts) { f.Home = "" }, "HOME is not an absolute path; set it to your home directory"},
		{both, in("/home/dev/.ssh/x"), "the project would be /home/dev/.ssh/x, which holds credentials; " + elsewhere},
		{both, in("/home/dev/.config"), "the project would be /home/dev/.config, which holds the settings of every program; " + elsewhere},
		{both, in("/etc"), "the project would be /etc, in the system's /etc; " + elsewhere},
		{both, in("/etc/x"), "the project would be /etc/x, in the system's /etc; " + elsewhere},
		{both, in("/var"), "the project would be /var, a directory of the system; " + elsewhere},
		{both, in("/tmp"), "the project would be /tmp, a directory of the system; " + elsewhere},
		{both, in("/home/dev/.config/ai-sandbox"), "the project /home/dev/.config/ai-sandbox and ai-sandbox's configuration /home/dev/.config/ai-sandbox lie in one another; " + elsewhere},
		{both, in("/home/dev/.local/state/ai-sandbox/x"), "the project /home/dev/.local/state/ai-sandbox/x and ai-sandbox's state /home/dev/.local/state/ai-sandbox lie in one another; " + elsewhere},
		{both, func(f *Facts) { f.Dirs.State = "/srv/shop/state/ai-sandbox"; f.Project.Path = "/srv/shop" }, "the project /srv/shop and ai-sandbox's state /srv/shop/state/ai-sandbox lie in one another; " + elsewhere},
		{both, in("/run/user/1000/x"), "the project /run/user/1000/x and ai-sandbox's runtime directory /run/user/1000 lie in one another; " + elsewhere},
		{both, in("/home/dev/.local/share/containers"), "the project /home/dev/.local/share/containers and ai-sandbox's podman store /home/dev/.local/share/containers lie in one another; " + elsewhere},
		{both, func(f *Facts) { f.Project.Owner = 1001 }, "the project /home/dev/shop belongs to another user (uid 1001); " + elsewhere + " of your own"},

		{local, func(f *Facts) { f.Bwrap = Tool{} }, "bubblewrap is not installed; install it, or choose another runtime with --runtime podman"},
		{local, func(f *Facts) { f.Bwrap.Err = "exit status 1" }, "bubblewrap does not say its version (exit status 1); repair it, or choose another runtime with --runtime podman"},
		{local, func(f *Facts) { f.Bwrap.Version = "0.7.0" }, "bubblewrap is 0.7.0, and 0.8 or later is needed; install a newer one, or choose another runtime with --runtime podman"},
		{local, func(f *Facts) { f.Bwrap.Version = "x" }, "bubblewrap is x, and 0.8 or later is needed; install a newer one, or choose another runtime with --runtime podman"},
		{local, func(f *Facts) { f.Bwrap.Setuid = true }, "bubblewrap at /usr/bin/bwrap is setuid, and then can't keep a command from making namespaces of its own; take the bit away"},
		{local, func(f *Facts) { f.Bwrap.Refused = "no" }, "bubblewrap can't make a user namespace here; where this is a container or a VM, its own settings forbid it: run ai-sandbox outside of it, or allow it there (bubblewrap says: no)"},
		{local, func(f *Facts) { f.Bwrap.Refused, f.Kernel.MaxUserNS = "no", "0" }, "user.max_user_namespaces is 0, so nobody can make a user namespace; raise it with: sudo sysctl user.max_user_namespaces=15000 (bubblewrap says: no)"},
		{local, func(f *Facts) { f.Bwrap.Refused, f.Kernel.UnprivilegedClone = "no", "0" }, "kernel.unprivileged_userns_clone is 0, so only root can make a user namespace; allow it with: sudo sysctl kernel.unprivileged_userns_clone=1 (bubblewrap says: no)"},
		{local, func(f *Facts) { f.Bwrap.Refused, f.Kernel.AppArmorRestricts = "no", "1" }, "AppArmor keeps bubblewrap from making a user namespace (kernel.apparmor_restrict_unprivileged_userns is 1); give it a profile that allows it, as ai-sandbox doctor shows, or set that to 0 (bubblewrap says: no)"},
		{local, func(f *Facts) { f.Dirs.RuntimeMode |= 0o007 }, "XDG_RUNTIME_DIR /run/user/1000 is open to other users; point the variable at /run/user/1000, or unset it"},
	} {
		f := good()
		tc.change(&f)
		for _, runtime := range runtimes {
			want := tc.want
			// XDG_RUNTIME_DIR is looked at for both.
			if tc.runtime != both && tc.runtime != runtime {
				if want = ""; f.Dirs.XDGRuntime != "" && f.Dirs.RuntimeMode != good().Dirs.RuntimeMode {
					continue
				}
			}
			var got []string
			for _, v := range Problems(Check(f, runtime)) {
				got = append(got, v.Problem)
			}
			if strings.Join(got, "\n") != want {
				t.Errorf("%s: got  %s\nwant %s", runtime, strings.Join(got, "\n     "), want)
			}
		}
	}
}

func TestSubIDs(t *testing.T) {
	const file = "root:1:5\ndev:100000:65536\n1000:300000:100\ndevil:1:9\nbad\ndev:1:x\n"
	if n := countSubIDs([]byte(file), "dev", 1000); n != 65636 {
		t.Errorf("counted %d", n)
	}
	if n := countSubIDs(nil, "dev", 1000); n != 0 {
		t.Errorf("counted %d in nothing", n)
	}
	for text, want := range map[string]bool{"passwd: files\n": false, "subid: files\n": false, "subid:\tsss\n": true, "# subid: sss\n": false} {
		if subIDsElsewhere([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestPodmanVersion(t *testing.T) {
	for out, want := range map[string]string{
		"podman version 5.4.2\n": "5.4.2", "podman version 5.7.0-dev\n": "5.7.0-dev", "": "", "docker version 27.1": "", "podman version x": "",
	} {
		if got := podmanVersion(out); got != want {
			t.Errorf("%q: %q", out, got)
		}
	}
}

func TestSquidVersion(t *testing.T) {
	for out, want := range map[string]string{
		"Squid Cache: Version 6.13\nService Name: squid\nconfigure options: '--with-openssl'": "6.13", "Squid Cache: Version 7.0-DEVEL\n": "7.0-DEVEL",
		"": "", "Squid Cache\n": "",
	} {
		path := filepath.Join(t.TempDir(), "squid")
		program(t, path, out)
		v, err := askSquid(path)
		if v.Version != want || v.OpenSSL != strings.Contains(out, "--with-openssl") || (err == nil) != (want != "") {
			t.Errorf("%q: %+v, %v", out, v, err)
		}
	}
}

// program writes a shell script that says text.
func program(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho asked >> \"$0.asked\"\necho '"+text+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func asked(path string) int {
	data, err := os.ReadFile(path + ".asked")
	if err != nil {
		return 0
	}
	return strings.Count(string(data), "\n")
}

// scene is a project and a directory of programs beside it.
func scene(t *testing.T) (in Input, project, bin string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	project, bin = filepath.Join(base, "home/p"), filepath.Join(base, "bin")
	for _, d := range []string{project, bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Input{
		Cwd: project, Home: filepath.Join(base, "home"),
		Config: filepath.Join(base, "config"), State: filepath.Join(base, "state"), Cache: filepath.Join(base, "cache"), Runtime: filepath.Join(base, "run"),
		Env: map[string]string{},
	}, project, bin
}

func TestLookup(t *testing.T) {
	in, project, bin := scene(t)
	nm := filepath.Join(project, "node_modules/.bin")
	open := filepath.Join(filepath.Dir(bin), "open")
	linked := filepath.Join(filepath.Dir(bin), "linked")
	for _, p := range []string{filepath.Join(project, "podman"), filepath.Join(nm, "podman"), filepath.Join(open, "podman")} {
		program(t, p, "podman version 9.9.9")
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(linked, 0o755); err != nil {
		t.Fatal(err)
	}
	// A trusted directory whose podman is a link into the project.
	if err := os.Symlink(filepath.Join(project, "podman"), filepath.Join(linked, "podman")); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(bin, "podman"), "podman version 5.4.2")
	program(t, filepath.Join(bin, "pasta"), "usage --map-host-loopback")
	link := filepath.Join(filepath.Dir(bin), "into")
	if err := os.Symlink(nm, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(project)
	in.Env["PATH"] = strings.Join([]string{".", "", "node_modules/.bin", nm, project, link, open, linked, bin}, ":")
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	f = ProbeTools(f, policy.RuntimePodman)
	if f.Podman.Path != filepath.Join(bin, "podman") || f.Podman.Version != "5.4.2" || !f.Pasta.MapHostLoopback {
		t.Errorf("podman %+v, pasta %+v", f.Podman, f.Pasta)
	}
	for _, p := range []string{filepath.Join(project, "podman"), filepath.Join(nm, "podman"), filepath.Join(open, "podman")} {
		if asked(p) > 0 {
			t.Errorf("%s was run", p)
		}
	}
	for _, d := range f.SearchPath {
		if !filepath.IsAbs(d) || within(d, project) || d == open {
			t.Errorf("search path holds %s", d)
		}
	}
}

func TestVerdictsAreKept(t *testing.T) {
	in, _, bin := scene(t)
	podman := filepath.Join(bin, "podman")
	program(t, podman, "podman version 5.4.2")
	program(t, filepath.Join(bin, "pasta"), "usage")
	in.Env["PATH"] = bin
	probe := func() Facts {
		t.Helper()
		f, err := Probe(in)
		if err != nil {
			t.Fatal(err)
		}
		return ProbeTools(f, policy.RuntimePodman)
	}
	for range 3 {
		if f := probe(); f.Podman.Version != "5.4.2" || f.Pasta.MapHostLoopback {
			t.Errorf("%+v, %+v", f.Podman, f.Pasta)
		}
	}
	if n := asked(podman); n != 1 {
		t.Errorf("podman was asked %d times", n)
	}
	// Each of size, time and inode tells a new program from the old one.
	old, err := os.Stat(podman)
	if err != nil {
		t.Fatal(err)
	}
	for i, version := range []string{"5.10.0", "5.11.0", "5.12.0"} {
		when := old.ModTime().Add(time.Duration(i) * time.Hour)
		if i == 2 { // another inode alone
			when = old.ModTime().Add(time.Hour)
			if err := os.Rename(podman, podman+".old"); err != nil {
				t.Fatal(err)
			}
		}
		program(t, podman, "podman version "+version)
		if err := os.Chtimes(podman, when, when); err != nil {
			t.Fatal(err)
		}
		if f := probe(); f.Podman.Version != version {
			t.Errorf("podman %s is taken for the old one: %+v", version, f.Podman)
		}
	}
	// Nonsense in the file is asked anew.
	if err := os.WriteFile(filepath.Join(in.State, verdictFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := probe(); f.Podman.Version != "5.12.0" {
		t.Errorf("%+v", f.Podman)
	}
}

func TestProbe(t *testing.T) {
	in, project, _ := scene(t)
	link := project + "-link"
	if err := os.Symlink(project, link); err != nil {
		t.Fatal(err)
	}
	in.Cwd = link
	in.Env = map[string]string{
		"CONTAINER_HOST": "ssh://x", "XDG_CONFIG_HOME": filepath.Join(project, "cfg"), "XDG_CACHE_HOME": "relative",
		"TMPDIR": filepath.Join(link, "tmp"), "XDG_DATA_HOME": "/nowhere",
	}
	in.ConfigFile = filepath.Join(in.Config, "config")
	if err := os.MkdirAll(in.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(project, "dotfile"), in.ConfigFile); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project, "dotfile"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	if f.Project.Path != project || f.Project.Ino == 0 || f.Project.Owner != os.Getuid() {
		t.Errorf("project %+v", f.Project)
	}
	if f.RemoteEnv != "CONTAINER_HOST" {
		t.Errorf("remote %q", f.RemoteEnv)
	}
	if got := strings.Join(f.Steered, " "); got != "XDG_CONFIG_HOME XDG_CACHE_HOME TMPDIR "+in.ConfigFile {
		t.Errorf("steered %s", got)
	}
	if f.Podman.Path != "" || len(f.Tools) > 0 {
		t.Error("programs were looked for")
	}
	if _, err := os.Stat(in.State); err == nil {
		t.Error("looking wrote into the state directory")
	}
	// A variable of ours is judged by what it is told to be one, and a list by its parts.
	for value, steers := range map[string]bool{
		"/nowhere": false, "/nowhere:/other:": false, "": false, filepath.Join(project, "x"): true,
		"/nowhere:" + filepath.Join(link, "x"): true, filepath.Join(project, "x") + ":/nowhere": true, "/nowhere:relative": true,
	} {
		for name, list := range map[string]bool{"SSL_CERT_DIR": true, "AISB_OURS": false, "AISB_OTHER": false} {
			one := in
			one.Env, one.FileVars, one.ConfigFile = map[string]string{name: value}, []string{"AISB_OURS"}, ""
			f, err := Probe(one)
			want := steers && name != "AISB_OTHER" && (list || !strings.HasPrefix(value, "/nowhere:"))
			if err != nil || slices.Contains(f.Steered, name) != want {
				t.Errorf("%s=%s: steered %s (%v)", name, value, f.Steered, err)
			}
		}
	}
	// The message bus, by which systemd is asked for a limited cgroup.
	for value, want := range map[string]bool{
		"": false, "unix:path=/nowhere/bus": false, "unix:abstract=" + project: false,
		"unix:path=" + filepath.Join(project, "bus"):                          true,
		"unix:path=/nowhere/bus;unix:guid=1,path=" + filepath.Join(link, "x"): true,
		"unixexec:path=" + filepath.Join(project, "x"):                        true,
		"unix:path=" + strings.ReplaceAll(project, "/", "%2f") + "/bus":       true,
	} {
		one := in
		one.Env = map[string]string{"DBUS_SESSION_BUS_ADDRESS": value}
		if f, err := Probe(one); err != nil || slices.Contains(f.Steered, "DBUS_SESSION_BUS_ADDRESS") != want {
			t.Errorf("%s: steered %s (%v)", value, f.Steered, err)
		}
	}
	// Out of the project again, by a link that a sandboxed command could turn.
	if err := os.Symlink(t.TempDir(), filepath.Join(project, "out")); err != nil {
		t.Fatal(err)
	}
	in.Env, in.ConfigFile = nil, ""
	in.State = filepath.Join(project, "out", "state")
	if f, err = Probe(in); err != nil || strings.Join(f.Steered, " ") != in.State {
		t.Errorf("through the project: steered %s (%v)", f.Steered, err)
	}
	// podman's own configuration, from a dotfiles tree.
	if len(f.ContainersSteered) > 0 {
		t.Errorf("%s is in the project", f.ContainersSteered)
	}
	conf := filepath.Join(in.Home, ".config")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(project, "containers"), filepath.Join(conf, "containers")); err != nil {
		t.Fatal(err)
	}
	if f, err = Probe(in); err != nil || !slices.Contains(f.ContainersSteered, filepath.Join(conf, "containers/policy.json")) {
		t.Errorf("podman's: steered %s (%v)", f.ContainersSteered, err)
	}
	in.Cwd, in.AnyDir = in.Home, true
	if f, err = Probe(in); err != nil || f.Project.Path != "" {
		t.Errorf("the home as no project: %+v (%v)", f.Project, err)
	}
}

// Every file of podman's configuration is judged by where it ends, those in its
// directories too.
func TestContainersSteered(t *testing.T) {
	in, project, _ := scene(t)
	in.Cwd, in.Runtime = project, t.TempDir()
	own, other := filepath.Join(in.Home, ".config/containers"), t.TempDir()
	evil, good := filepath.Join(project, "evil"), t.TempDir()
	if err := os.MkdirAll(evil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string // the link
		to   string
		want bool
	}{
		{filepath.Join(own, "registries.conf.d/10-x.conf"), evil, true},
		{filepath.Join(own, "registries.conf.d/10-x.conf"), good, false},
		{filepath.Join(own, "registries.d/x.yaml"), evil, true},
		{filepath.Join(own, "containers.conf.d/x.conf"), evil, true},
		{filepath.Join(own, "certs.d"), evil, true},
		{filepath.Join(own, "certs.d"), good, false},
		{filepath.Join(own, "certs.d/r.test:5000"), evil, true},
		{filepath.Join(own, "certs.d/r.test/ca.crt"), evil, true},
		{filepath.Join(own, "certs.d/r.test/ca.crt"), good, false},
		{filepath.Join(own, "auth.json"), evil, true},
		{filepath.Join(own, "auth.json"), filepath.Join(project, "not-there"), true},
		{filepath.Join(own, "mounts.conf"), evil, true},
		{filepath.Join(own, "other.json"), evil, false}, // nobody reads it
		{filepath.Join(in.Home, ".docker/config.json"), evil, true},
		{filepath.Join(in.Home, ".docker/config.json"), good, false},
		{filepath.Join(in.Runtime, "containers/auth.json"), evil, true},
		{filepath.Join(other, "containers/auth.json"), evil, true}, // XDG_CONFIG_HOME
	} {
		in.Env = map[string]string{"XDG_CONFIG_HOME": other}
		if err := os.MkdirAll(filepath.Dir(tc.path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(tc.to, tc.path); err != nil {
			t.Fatal(err)
		}
		f, err := Probe(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(f.ContainersSteered, tc.path); got != tc.want || !tc.want && len(f.ContainersSteered) > 0 {
			t.Errorf("%s to %s: steered %q", tc.path, tc.to, f.ContainersSteered)
		}
		if err := os.Remove(tc.path); err != nil {
			t.Fatal(err)
		}
	}
	// It is bounded, and what is not looked at is not believed.
	many := filepath.Join(own, "registries.d")
	for i := range maxContainersFiles + 1 {
		if err := os.Symlink(good, filepath.Join(many, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := Probe(in); err != nil || len(f.ContainersSteered) != 1 || !strings.Contains(f.ContainersSteered[0], "too many files") {
		t.Errorf("steered %q (%v)", f.ContainersSteered, err)
	}
}
