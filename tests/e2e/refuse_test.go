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

// What the user's containers.conf slips into every container is refused, or
// changes nothing. Not parallel: the service is started again to read it.
func TestContainersConf(t *testing.T) {
	l, err := w.net.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.MkdirAll(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, "s"), []byte("CANARY-FILE"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, conf := range map[string]string{
		"nothing":       "", // the positive control
		"pasta tcp":     "[network]\npasta_options = [\"-T\", \"auto\"]\n",
		"pasta udp":     "[network]\npasta_options = [\"-U\", \"auto\"]\n",
		"pasta map gw":  "[network]\npasta_options = [\"--map-gw\"]\n",
		"pasta publish": "[network]\npasta_options = [\"-t\", \"auto\"]\n",
		"env host":      "[containers]\nenv_host = true\n",
		"env":           "[containers]\nenv = [\"LD_X=CANARY-ENV\", \"http_proxy=http://198.51.100.11:80\"]\n",
		"http proxy":    "[containers]\nhttp_proxy = true\n",
		"volumes":       "[containers]\nvolumes = [\"" + secret + ":/slipped:ro\"]\n",
		"mounts":        "[containers]\nmounts = [\"type=bind,source=" + secret + ",destination=/slipped\"]\n",
		"devices":       "[containers]\ndevices = [\"/dev/fuse:/dev/fuse:rwm\"]\n",
		"capabilities":  "[containers]\ndefault_capabilities = [\"CAP_SYS_ADMIN\", \"CAP_NET_RAW\"]\n",
		"host ns":       "[containers]\npidns = \"host\"\nipcns = \"host\"\nutsns = \"host\"\n",
		"host network":  "[containers]\nnetns = \"host\"\n",
		"host userns":   "[containers]\nuserns = \"host\"\n",
		"seccomp":       "[containers]\nseccomp_profile = \"unconfined\"\n",
		"sysctls":       "[containers]\ndefault_sysctls = [\"net.ipv4.ip_unprivileged_port_start=1\"]\n",
		"dns":           "[containers]\ndns_servers = [\"198.51.100.53\"]\nbase_hosts_file = \"/etc/hosts\"\n",
		"detach keys":   "[engine]\ndetach_keys = \"ctrl-c\"\n",
		"init":          "[containers]\ninit = true\n",
		"no pivot":      "[engine]\nno_pivot_root = true\n",
		"hooks":         "[engine]\nhooks_dir = [\"" + secret + "\"]\n",
		"annotations":   "[containers]\nannotations = [\"run.oci.keep_original_groups=1\"]\n",
		"interface":     "[containers]\ninterface_name = \"device\"\n",
		"log driver":    "[containers]\nlog_driver = \"k8s-file\"\n",
		"label off":     "[containers]\nlabel = false\n",
		"privileged":    "[containers]\nprivileged = true\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			file := filepath.Join(t.TempDir(), "containers.conf")
			if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			// The service is ended, so that a new one reads this file.
			b.env = []string{"CONTAINERS_CONF_OVERRIDE=" + file, "CANARY=CANARY-HOST", "https_proxy=http://CANARY-PROXY.test:1"}
			stopService(t)
			defer stopService(t)
			r := b.run(b.gated("sh", "-c", "cat /proc/*/environ | tr '\\0' '\\n'; ls /slipped /dev/fuse 2>/dev/null; ./probe tcp 127.0.0.1:"+port(l.Addr)+" [::1]:"+port(l.Addr)+
				" 192.0.2.2:"+port(l.Addr)+"; ./probe status; cat /etc/resolv.conf /etc/hosts; "+curl+"https://"+b.host("ok.test")+"/")...)
			if l.Count() != 0 {
				t.Fatalf("the host's loopback was reached: %s", r)
			}
			if strings.Contains(r.Out, "CANARY") || strings.Contains(r.Out, "slipped") || strings.Contains(r.Out, "/dev/fuse") || strings.Contains(r.Out, "198.51.100.53") {
				t.Errorf("something slipped in: %s", r)
			}
			switch {
			case r.Code == 125 && name != "nothing" && (strings.Contains(r.Err, "asked for") || strings.Contains(r.Err, "pasta failed")):
				t.Logf("refused: %s", strings.TrimSpace(r.Err))
			case r.Code == 77 && name != "nothing":
				t.Logf("not enforced: %s", strings.TrimSpace(r.Err))
			case r.Code == 0:
				if !strings.Contains(r.Out, w.net.Marker) || !strings.Contains(r.Out, "CapBnd=0000000000000000") || strings.Contains(r.Out, "Seccomp=0") || strings.Contains(r.Out, "NoNewPrivs=0") {
					t.Errorf("changed: %s", r)
				}
			default:
				t.Errorf("%s", r)
			}
		})
	}
}

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
