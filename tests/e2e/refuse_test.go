//go:build e2e

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each refusal is one sentence that says what to do, and nothing is started.
func TestRefusals(t *testing.T) {
	t.Parallel()
	old := fake(t, "podman", "podman version 4.3.1")
	plain := fake(t, "pasta", "Usage: pasta [OPTION]... [COMMAND] [ARGS]...")
	for name, tc := range map[string]struct {
		env  []string
		dir  string // instead of the project
		args []string
		// hide is a file that the machine does not have, or "root". In the
		// user namespace that this takes no program of the system is root's,
		// so that there are more sentences than the wanted one.
		hide string
		want string // regular expression for the whole of stderr
	}{
		"empty entry":     {args: []string{"--allow", "", "--", "true"}, want: `--allow has an empty value; give it one or drop it`},
		"blank entry":     {args: []string{"--allow", " ", "--", "true"}, want: `allow entry " ": it is empty; write a host .*`},
		"url entry":       {args: []string{"--allow", "https://x.ok.test/", "--", "true"}, want: `allow entry "https://x.ok.test/": it is a URL, and an entry is a host; write x.ok.test .*`},
		"every host":      {args: []string{"--allow", "*", "--", "true"}, want: `allow entry "\*": it stands for every host; .*`},
		"public suffix":   {args: []string{"--allow", ".co.uk", "--", "true"}, want: `allow entry ".co.uk": anyone can have a name under co.uk; .*`},
		"squid directive": {args: []string{"--allow", "x.ok.test\nhttp_access allow all", "--", "true"}, want: `allow entry "x.ok.test\\nhttp_access allow all": .*`},
		"remote service":  {env: []string{"CONTAINER_HOST=unix:///tmp/other.sock"}, args: []string{"--", "true"}, want: `CONTAINER_HOST points at another podman service, .*; unset CONTAINER_HOST`},
		"home as project": {dir: w.home, args: []string{"--", "true"}, want: `the project would be your home .*; start ai-sandbox in the directory of one project`},
		"root as project": {dir: "/", args: []string{"--", "true"}, want: `the project would be /, the whole machine; start ai-sandbox in the directory of one project`},
		"other's project": {dir: "/src/docs", args: []string{"--", "true"}, want: `the project /src/docs belongs to another user \(uid 0\); .*`},
		"colon":           {dir: "a:b", args: []string{"--", "true"}, want: `project path .*a:b"? holds a ":", which podman can't mount; rename the directory`},
		"no podman":       {hide: "/usr/bin/podman", args: []string{"--", "true"}, want: `podman is not installed; install podman 5 or later, or choose another runtime with --runtime local`},
		"old podman":      {env: []string{"PATH=" + old + ":/usr/bin:/bin"}, args: []string{"--", "true"}, want: `podman is 4.3.1, and 5 or later is needed; .*--runtime local`},
		"old pasta":       {env: []string{"PATH=" + plain + ":/usr/bin:/bin"}, args: []string{"--", "true"}, want: `pasta has no --map-host-loopback; install passt of 2024-08 or later`},
		"no subuid":       {hide: "/etc/subuid", args: []string{"--", "true"}, want: `user dev has no range of subordinate ids in /etc/subuid and /etc/subgid; add one with: .*`},
		"root":            {hide: "root", args: []string{"--", "true"}, want: `podman's runtime must not run as root; start ai-sandbox as a normal user`},
		"runtime local":   {args: []string{"--runtime", "local", "--", "true"}, want: `runtime local is not available in this version .*`},
		"near flag":       {args: []string{"--nte", "none", "pi"}, want: `unknown flag --nte; did you mean --net\?`},
		"no command":      {args: []string{"--"}, want: `no command follows .*`},
		"unknown gate":    {args: []string{"--gate", "never-made", "--", "true"}, want: `gate never-made: no such gate.*`},
		"bad variable":    {env: []string{"AISB_ALOW=x"}, args: []string{"--", "true"}, want: `variable "?AISB_ALOW"? is not one of ai-sandbox's .*AISB_ALLOW.*`},
		"bad base":        {env: []string{"AISB_BASE=Not A Ref"}, args: []string{"--", "true"}, want: `.+`},
		"no CA file":      {args: []string{"--ca-file", "/nowhere.pem", "--", "true"}, want: `ca_file /nowhere.pem does not exist; .*`},
		"key in CA file":  {args: []string{"--ca-file", keyFile(t), "--", "true"}, want: `ca_file .* holds a .*`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.env = tc.env
			switch {
			case filepath.IsAbs(tc.dir):
				b.dir = tc.dir
			case tc.dir != "":
				b.dir = filepath.Join(b.dir, tc.dir)
				if err := os.Mkdir(b.dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			args := tc.args
			switch tc.hide {
			case "":
			case "root":
				args = append([]string{"-Ur", "--", b.bin}, args...)
				b.bin = "/usr/bin/unshare"
			default:
				args = append([]string{"--mount", "--map-current-user", "--keep-caps", "--", "sh", "-c", `mount --bind /dev/null "$0" && exec "$@"`, tc.hide, b.bin}, args...)
				b.bin = "/usr/bin/unshare"
			}
			r := b.run(args...)
			lines := strings.Split(strings.TrimSpace(r.Err), "\n")
			lines = filter(lines, func(s string) bool { return !strings.HasPrefix(s, "ai-sandbox: hint: ") })
			if tc.hide != "" {
				lines = filter(lines, regexp.MustCompile(`^ai-sandbox: error: `+tc.want+`$`).MatchString)
			}
			if r.Code != 125 || r.Out != "" || len(lines) != 1 || !regexp.MustCompile(`^ai-sandbox: error: `+tc.want+`$`).MatchString(lines[0]) {
				t.Errorf("want one sentence %q: %s", tc.want, r)
			}
		})
	}
	// The positive control: in the same environment, without the fault, it runs.
	if b := newBox(t); b.run("--net", "none", "--", "true").Code != 0 {
		t.Error("the positive control failed")
	}
}

func filter(list []string, f func(string) bool) []string {
	var out []string
	for _, s := range list {
		if f(s) {
			out = append(out, s)
		}
	}
	return out
}

// fake is a directory with a program that says something.
func fake(t *testing.T, name, says string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Helper programs are never those of the project, neither ai-sandbox's own nor
// those of a podman service that it starts. Not parallel: the service is
// everybody's.
func TestHelpersOfTheProject(t *testing.T) {
	b := newBox(t)
	names := []string{"podman", "pasta", "conmon", "crun", "runc", "git", "newuidmap", "newgidmap", "catatonit", "netavark", "nft", "modprobe", "getent", "sh"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("#!/bin/sh\n: >'"+b.dir+"/ran-'\"${0##*/}\"\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ran := func() []string {
		out, err := filepath.Glob(filepath.Join(b.dir, "ran-*"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	b.env = []string{"PATH=.:" + b.dir + "::" + os.Getenv("PATH")}
	// The positive control: called by that PATH, each of them leaves a mark.
	cmd := exec.Command("/bin/sh", "-c", strings.Join(names, "; "))
	cmd.Dir, cmd.Env = b.dir, b.env
	_ = cmd.Run() // each of them fails
	if got := ran(); len(got) != len(names) {
		t.Fatalf("the positive control failed: %q", got)
	}
	for _, path := range ran() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	stopService(t)
	defer stopService(t) // the next test's is not of this environment
	b.ok(b.gated("true")...)
	b.ok("doctor")
	if len(find(t, "podman", "system service")) == 0 {
		t.Error("no service was started, so its helpers were not looked for")
	}
	if got := ran(); len(got) > 0 {
		t.Errorf("a program of the project ran: %q", got)
	}
}

// What the user's containers.conf slips into every container is refused for what
// it is, or changes nothing: inside is what is inside without it. That the file
// is read, and does slip something in, is seen in a bare container. Not parallel:
// the service is started again to read it.
func TestContainersConf(t *testing.T) {
	dir := t.TempDir()
	secret, hooks := filepath.Join(dir, "secret"), filepath.Join(dir, "hooks")
	for path, text := range map[string]string{
		filepath.Join(secret, "s"): "CANARY-FILE",
		// The runtime starts it before the container's own program, outside.
		filepath.Join(hooks, "slip.json"): `{"version": "1.0.0", "hook": {"path": "` + hooks + `/slip"}, "when": {"always": true}, "stages": ["prestart"]}`,
		filepath.Join(hooks, "slip"): `#!/bin/sh
export PATH=/usr/sbin:/usr/bin
state=$(tr -d ' \n')
pid=$(echo "$state" | sed 's/.*"pid":\([0-9]*\).*/\1/')
bundle=$(echo "$state" | sed 's/.*"bundle":"\([^"]*\)".*/\1/')
root=$(tr -d ' \n' <"$bundle/config.json" | sed 's/.*"root":{"path":"\([^"]*\)".*/\1/')
exec nsenter -t "$pid" -m mount -t tmpfs slipped "$root/mnt" 2>'` + dir + `/slip.err'
`,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := w.net.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := newBox(t) // one for all, so that its names are the same in each
	image := strings.TrimSpace(output(t, "podman", "image", "inspect", "--format", "{{.Id}}", tagOf(t, b)))

	// What is looked at inside.
	facts := `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | sort -u; sed 's/^[0-9]* [0-9]* [^ ]* [^ ]* /mount /; s/ - \([^ ]*\) .*/ \1/; s/ [a-z]*:[0-9]*//g' /proc/self/mountinfo; ` +
		`cat /proc/self/uid_map /proc/self/gid_map; cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range; ` +
		`grep -E '^(Cap|Groups|Seccomp:|NoNewPrivs)' /proc/self/status; ls /dev /sys/class/net; ls /slipped; echo "init $(cat /proc/1/comm)"; cat /etc/resolv.conf /etc/hosts; `
	for _, ns := range []string{"pid", "ipc", "uts", "net", "user"} {
		host, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		facts += `if [ "$(readlink /proc/self/ns/` + ns + `)" = "` + host + `" ]; then echo "` + ns + ` of the host"; else echo "` + ns + ` own"; fi; `
	}
	// And outside: with what it was started.
	started := func(t *testing.T, name string) string {
		t.Helper()
		out := output(t, "podman", "inspect", "--format", `log {{.HostConfig.LogConfig.Type}} annotations {{json .Config.Annotations}}`, name)
		for _, p := range append(find(t, "conmon", name), find(t, "pasta", "--netns")...) {
			out += p.argv + "\n"
		}
		return out
	}
	use := func(t *testing.T, conf string) (env []string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "containers.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		// The service is ended, so that a new one reads this file.
		stopService(t)
		t.Cleanup(func() { stopService(t) })
		return []string{"CONTAINERS_CONF_OVERRIDE=" + file, "CANARY=CANARY-HOST", "https_proxy=http://CANARY-PROXY.test:1"}
	}
	bare := func(t *testing.T, env []string) string {
		t.Helper()
		podman := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("podman", args...)
			cmd.Env = append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("the positive control: podman %q: %v: %s", args, err, out)
			}
			return string(out)
		}
		name := "bare-" + b.token
		defer podman("rm", "-f", "-t", "0", name)
		podman("run", "-d", "--name", name, image, "sleep", "100")
		return podman("exec", name, "sh", "-c", facts) + started(t, name)
	}
	session := func(t *testing.T, env []string) (inside, outside string, r result) {
		t.Helper()
		b.env = env
		os.Remove(filepath.Join(b.dir, "up"))
		s := b.start(t, b.gated("sh", "-c", "{ "+facts+"} 2>&1; ./probe tcp 127.0.0.1:"+port(l.Addr)+" [::1]:"+port(l.Addr)+" 192.0.2.2:"+port(l.Addr)+
			" | sed 's/ [0-9]*$//'; curl -sS https://"+b.host("ok.test")+"/; echo up >up; cat")...)
		ended := func() bool {
			select {
			case <-s.done:
				return true
			default:
				return b.size("up") > 0
			}
		}
		eventually(t, runTime, "the session", ended)
		if b.size("up") > 0 {
			outside = started(t, "aisb-"+sessionOf(t, b))
		}
		s.in.Close()
		r = s.wait(runTime)
		if l.Count() != 0 {
			t.Fatalf("the host's loopback was reached: %s", r)
		}
		return strings.ReplaceAll(r.Out, gatePort.FindString(r.Out), "GATE"), outside, r
	}

	// The positive control: a file that says nothing.
	env := use(t, "")
	plain := bare(t, env)
	want, outside, r := session(t, env)
	if r.Code != 0 || !strings.Contains(want, w.net.Marker) || !strings.Contains(want, "CapBnd:\t0000000000000000") || !strings.Contains(outside, "log none ") {
		t.Fatalf("the positive control failed: %s\n%s", outside, r)
	}
	const pastaOptions, twice = `pasta runs with other options than asked for: .*does containers.conf set pasta_options`, `pasta failed with exit code 1:.* conflicts with previous mode`
	for name, tc := range map[string]struct {
		conf  string
		slips string // regular expression for what a bare container has of it
		why   string // regular expression for the refusal; "" for none
	}{
		"pasta tcp":     {"[network]\npasta_options = [\"-T\", \"auto\"]\n", `pasta .* -T auto `, twice},
		"pasta udp":     {"[network]\npasta_options = [\"-U\", \"auto\"]\n", `pasta .* -U auto `, twice},
		"pasta map gw":  {"[network]\npasta_options = [\"--map-gw\"]\n", `pasta .*--dns-forward \S+ (-\w none )*--quiet`, pastaOptions},
		"pasta publish": {"[network]\npasta_options = [\"-t\", \"auto\"]\n", `pasta .* -t auto `, twice},
		"env host":      {"[containers]\nenv_host = true\n", `(?m)^CANARY=CANARY-HOST$`, ""},
		"env":           {"[containers]\nenv = [\"LD_X=CANARY-ENV\", \"http_proxy=http://198.51.100.11:80\"]\n", `(?m)^LD_X=CANARY-ENV$`, ""},
		"volumes":       {"[containers]\nvolumes = [\"" + secret + ":/slipped:ro\"]\n", `(?m)^mount /slipped `, `mounts\): /slipped is mounted and not in the policy`},
		"mounts":        {"[containers]\nmounts = [\"type=bind,source=" + secret + ",destination=/slipped\"]\n", `(?m)^mount /slipped `, ""},
		"devices":       {"[containers]\ndevices = [\"/dev/fuse:/dev/fuse:rwm\"]\n", `(?m)^fuse$`, `mounts\): /dev/fuse is mounted and not in the policy`},
		"capabilities":  {"[containers]\ndefault_capabilities = [\"CAP_SYS_ADMIN\", \"CAP_NET_RAW\"]\n", `CapBnd:\s0000000000202000`, ""},
		"pid":           {"[containers]\npidns = \"host\"\n", `pid of the host`, ""},
		"ipc":           {"[containers]\nipcns = \"host\"\n", `ipc of the host`, ""},
		"uts":           {"[containers]\nutsns = \"host\"\n", `uts of the host`, ""},
		"network":       {"[containers]\nnetns = \"host\"\n", `net of the host`, ""},
		"userns":        {"[containers]\nuserns = \"keep-id\"\n", `(?m)^ *0 +1 +1001$`, ""},
		"seccomp":       {"[containers]\nseccomp_profile = \"unconfined\"\n", `Seccomp:\s0`, ""},
		"sysctls":       {"[containers]\ndefault_sysctls = [\"net.ipv4.ip_unprivileged_port_start=1\"]\n", `(?m)^1$`, ""},
		"dns":           {"[containers]\ndns_servers = [\"198.51.100.53\"]\n", `nameserver 198.51.100.53`, ""},
		"init":          {"[containers]\ninit = true\n", `init (catatonit|podman-init)`, ""},
		"no pivot":      {"[engine]\nno_pivot_root = true\n", `conmon .*--no-pivot`, ""},
		"hooks":         {"[engine]\nhooks_dir = [\"" + hooks + "\"]\n", `(?m)^mount /mnt .*tmpfs`, `mounts\): /mnt is mounted and not in the policy`},
		"annotations":   {"[containers]\nannotations = [\"run.oci.keep_original_groups=1\"]\n", `annotations .*keep_original_groups`, ""},
		"log driver":    {"[containers]\nlog_driver = \"k8s-file\"\n", `log k8s-file `, ""},
		"privileged":    {"[containers]\nprivileged = true\n", `CapBnd:\s0*1ffffffffff`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			slips := regexp.MustCompile(tc.slips)
			if slips.MatchString(plain) {
				t.Fatalf("%q is in any bare container: %s", tc.slips, plain)
			}
			env := use(t, tc.conf)
			if got := bare(t, env); !slips.MatchString(got) {
				t.Errorf("the positive control failed: no %q in a bare container: %s", tc.slips, got)
			}
			got, out, r := session(t, env)
			if tc.why != "" {
				if r.Code != 125 && r.Code != 77 || r.Out != "" || !regexp.MustCompile(tc.why).MatchString(r.Err) {
					t.Errorf("want it refused with %q: %s", tc.why, r)
				}
				return
			}
			if r.Code != 0 || !strings.HasPrefix(out, "log none ") {
				t.Errorf("%s\n%s", out, r)
			}
			one, two := strings.Split(want, "\n"), strings.Split(got, "\n")
			if more, less := minus(two, one), minus(one, two); len(more)+len(less) > 0 {
				t.Errorf("inside differs: more %q, less %q: %s", more, less, r.Err)
			}
		})
	}

	// Without a key of the user's, a terminal's control characters are the command's.
	t.Run("detach keys", func(t *testing.T) {
		b.env = use(t, "[engine]\ndetach_keys = \"ctrl-c\"\n")
		script := []string{"sh", "-c", `trap "echo INTERRUPTED; exit 7" INT; echo READY; while :; do sleep 0.1; done`}
		m := b.onTerminal(t, b.gated(script...)...)
		m.expect("READY")
		m.send("\x03")
		m.expect("INTERRUPTED")
		if code := m.wait(); code != 7 {
			t.Errorf("exit code %d: %s", code, m.text())
		}
		// The positive control: a bare container is left at that key.
		name := "bare-" + b.token
		p := *b
		p.bin = "/usr/bin/podman"
		defer output(t, "podman", "rm", "-f", "-t", "0", name)
		m = p.onTerminal(t, append([]string{"run", "-it", "--name", name, image}, script...)...)
		m.expect("READY")
		m.send("\x03")
		if code := m.wait(); code != 0 || !strings.Contains(output(t, "podman", "ps", "--format", "{{.Names}}"), name) {
			t.Errorf("the positive control failed: exit code %d: %s", code, m.text())
		}
	})
}

// gatePort is the address of a session's gate, which is another each time.
var gatePort = regexp.MustCompile(`169\.254\.77\.1:\d+`)

// stopService ends the podman service that ai-sandbox started, so that the next
// one reads its configuration again.
func stopService(t *testing.T) {
	t.Helper()
	for _, p := range find(t, "podman", "system service") {
		killWait(t, p)
	}
	// A thread of it may hold the socket for a moment longer.
	eventually(t, 10*time.Second, "the end of podman's service", func() bool {
		c, err := net.Dial("unix", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox", "podman.sock"))
		if err == nil {
			c.Close()
		}
		return err != nil && len(find(t, "podman", "system service")) == 0
	})
}
