//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
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
		"colon":           {dir: "a:b", args: []string{"--", "true"}, want: `project path .*a:b"? holds a ":", which separates the parts of a mount; rename the directory`},
		"no podman":       {hide: "/usr/bin/podman", args: []string{"--", "true"}, want: `podman is not installed; install podman 5 or later, or choose another runtime with --runtime local \(in the configuration file: runtime = local\)`},
		"old podman":      {env: []string{"PATH=" + old + ":/usr/bin:/bin"}, args: []string{"--", "true"}, want: `podman is 4.3.1, and 5 or later is needed; .*--runtime local.*`},
		"old pasta":       {env: []string{"PATH=" + plain + ":/usr/bin:/bin"}, args: []string{"--", "true"}, want: `pasta has no --map-host-loopback; install passt of 2024-08 or later`},
		"no subuid":       {hide: "/etc/subuid", args: []string{"--", "true"}, want: `user ` + regexp.QuoteMeta(os.Getenv("USER")) + ` has no range of subordinate ids in /etc/subuid and /etc/subgid; add one with: .*`},
		"root":            {hide: "root", args: []string{"--", "true"}, want: `podman's runtime must not run as root; start ai-sandbox as a normal user, or choose another runtime with --runtime local \(in the configuration file: runtime = local\)`},
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
			b.Env = tc.env
			switch {
			case filepath.IsAbs(tc.dir):
				b.Dir = tc.dir
			case tc.dir != "":
				b.Dir = filepath.Join(b.Dir, tc.dir)
				if err := os.Mkdir(b.Dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			args := tc.args
			switch tc.hide {
			case "":
			case "root":
				args = append([]string{"-Ur", "--", b.Bin}, args...)
				b.Bin = "/usr/bin/unshare"
			default:
				args = append([]string{"--mount", "--map-current-user", "--keep-caps", "--", "sh", "-c", `mount --bind /dev/null "$0" && exec "$@"`, tc.hide, b.Bin}, args...)
				b.Bin = "/usr/bin/unshare"
			}
			r := b.Run(args...)
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
	if b := newBox(t); b.Run("--net", "none", "--", "true").Code != 0 {
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
	if err := drive.WriteProgram(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+says+"'\n")); err != nil {
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
		if err := drive.WriteProgram(filepath.Join(b.Dir, name), []byte("#!/bin/sh\n: >'"+b.Dir+"/ran-'\"${0##*/}\"\nexit 1\n")); err != nil {
			t.Fatal(err)
		}
	}
	ran := func() []string {
		out, err := filepath.Glob(filepath.Join(b.Dir, "ran-*"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	b.Env = []string{"PATH=.:" + b.Dir + "::" + os.Getenv("PATH")}
	// The positive control: called by that PATH, each of them leaves a mark.
	cmd := exec.Command("/bin/sh", "-c", strings.Join(names, "; "))
	cmd.Dir, cmd.Env = b.Dir, b.Env
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
	// The first command of a login, for once the doctor.
	if err := os.RemoveAll(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox")); err != nil {
		t.Fatal(err)
	}
	r := b.OK("doctor")
	b.OK(b.Gated("true")...)
	for _, name := range []string{"podman's namespace", "podman service", "newuidmap", "base image", "disk", "disk of images", "AppArmor", "SELinux", "sandbox", "nftables", "bind mount", "loopback"} {
		if !regexp.MustCompile(`(?m)^ok +` + name + ` `).MatchString(r.Out) {
			t.Errorf("no %s: %s", name, r)
		}
	}
	if !regexp.MustCompile(`(?m)^(ok|-) +clock `).MatchString(r.Out) {
		t.Errorf("no clock: %s", r)
	}
	if len(find(t, "podman", "system service")) == 0 {
		t.Error("no service was started, so its helpers were not looked for")
	}
	if got := ran(); len(got) > 0 {
		t.Errorf("a program of the project ran: %q", got)
	}
}

// A slip is a setting that changes every container that podman makes.
type slip struct {
	name  string
	table string // of containers.conf; or another file, which value is for
	key   string
	value string
	// seen is a regular expression that matches what observe says of a
	// container that has it, and of no other.
	seen string
	// refused is what the sentence names when the service is somebody else's,
	// for what no specification can take back.
	refused string
}

// conf is a containers.conf with the settings. A list is one that is added to
// others' with add.
func conf(add bool, slips ...slip) string {
	tables := map[string][]string{}
	for _, s := range slips {
		value := s.value
		if inner, list := strings.CutSuffix(value, "]"); list && add {
			value = inner + ", {append = true}]"
		}
		if s.key != "" {
			tables[s.table] = append(tables[s.table], s.key+" = "+value)
		}
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		fmt.Fprintf(&out, "[%s]\n%s\n", name, strings.Join(tables[name], "\n"))
	}
	return out.String()
}

// merged joins the lists of one key: a TOML table has each once.
func merged(slips []slip) []slip {
	var out []slip
	for _, s := range slips {
		i := slices.IndexFunc(out, func(o slip) bool { return o.table == s.table && o.key == s.key && o.key != "" })
		if i < 0 {
			out = append(out, s)
			continue
		}
		out[i].value = strings.TrimSuffix(out[i].value, "]") + ", " + strings.TrimPrefix(s.value, "[")
	}
	return out
}

// look tells what a container is like from within, a line each.
const look = `{
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | sed 's/^/env /'
for n in pid ipc uts net cgroup; do echo "ns $n $(readlink /proc/self/ns/$n)"; done
echo "map" $(cat /proc/self/uid_map)
for p in net/ipv4/ip_unprivileged_port_start net/ipv4/ping_group_range fs/mqueue/msg_max; do echo "sysctl $p" $(cat /proc/sys/$p); done
echo "umask $(umask)"; echo "zone $(date +%Z)"; echo "files $(ulimit -n)"; echo "oom $(cat /proc/self/oom_score_adj)"; echo "name $(hostname)"
echo "ids $(id -u) $(id -G)"
sed 's/^/status /' /proc/self/status
cut -d' ' -f4- /proc/self/mountinfo | sed 's/^/mount /'
ls /dev | sed 's/^/dev /'
sed 's/^/resolv /' /etc/resolv.conf; sed 's/^/hosts /' /etc/hosts
} >look.part; mv look.part look.txt
`

// observe is what look said, and how podman made the containers.
func observe(t *testing.T, b *drive.Box, containers ...string) string {
	t.Helper()
	var out strings.Builder
	out.WriteString(b.File(t, "look.txt") + "\n")
	for _, c := range containers {
		var data []define
		if err := json.Unmarshal([]byte(drive.Output(t, "podman", "inspect", c)), &data); err != nil || len(data) != 1 {
			t.Fatalf("podman inspect %s: %d, %v", c, len(data), err)
		}
		d := data[0]
		fmt.Fprintf(&out, "log %s\ncgroups %s\nhealth %q\nsignal %v\npasta %s\n", d.HostConfig.LogConfig.Type, d.HostConfig.Cgroups, d.Config.Healthcheck.Test, d.Config.StopSignal, pastaOf(t, c))
		if p := pastaOf(t, c); p != "" && !strings.Contains(p, " --no-map-gw ") {
			out.WriteString("pasta maps the gateway\n")
		}
		for _, f := range []struct{ word, path string }{
			{"resolv", d.ResolvConfPath}, {"hosts", d.HostsPath}, {"conmon", fmt.Sprintf("/proc/%d/cmdline", d.State.ConmonPid)}, {"oci", d.OCIConfigPath},
		} {
			text, err := os.ReadFile(f.path)
			if err != nil && f.path != "" {
				t.Fatal(err)
			}
			text = bytes.ReplaceAll(text, []byte{0}, []byte{' '})
			if f.word == "oci" {
				text = ociFacts(t, text)
			}
			for line := range strings.Lines(string(text)) {
				fmt.Fprintf(&out, "%s %s\n", f.word, strings.TrimSpace(line))
			}
		}
	}
	return out.String()
}

// define is what observe takes of podman's inspect.
type define struct {
	HostConfig struct {
		LogConfig struct{ Type string }
		Cgroups   string
	}
	Config struct {
		Healthcheck struct{ Test []string }
		StopSignal  any
	}
	State                                    struct{ ConmonPid int }
	ResolvConfPath, HostsPath, OCIConfigPath string
}

// ociFacts are a line each.
func ociFacts(t *testing.T, config []byte) []byte {
	t.Helper()
	var c struct {
		Annotations map[string]string
		Hooks       map[string]any
		Process     struct {
			Args []string
			Cwd  string
		}
		Linux struct {
			Seccomp *struct{ DefaultAction string }
		}
	}
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "args %q\ncwd %s\n", c.Process.Args, c.Process.Cwd)
	for k := range c.Annotations {
		fmt.Fprintf(&out, "annotation %s\n", k)
	}
	for k := range c.Hooks {
		fmt.Fprintf(&out, "hook %s\n", k)
	}
	if c.Linux.Seccomp == nil {
		fmt.Fprintln(&out, "no seccomp")
	}
	return out.Bytes()
}

// bare runs look in a container of podman's own command line and observes it.
// It returns what podman says instead when it makes none.
func bare(t *testing.T, image string, env []string) string {
	t.Helper()
	b := newBox(t)
	name := "e2e-bare-" + b.Token
	args := []string{"run", "-d", "--name", name, "-v", b.Dir + ":" + b.Dir, "--entrypoint", "sh", image, "-c", "cd " + b.Dir + "\n" + look + "while [ ! -e end ]; do sleep 0.05; done"}
	podman := func(args ...string) (string, error) {
		cmd := exec.Command("podman", args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	defer func() {
		// By itself: podman cannot end one in the host's process namespace.
		if err := os.WriteFile(filepath.Join(b.Dir, "end"), nil, 0o600); err != nil {
			t.Error(err)
		}
		_, _ = podman("wait", name) // it may never have come to be
		if out, err := podman("rm", "-f", "-t", "0", "-i", name); err != nil {
			t.Errorf("remove the bare container: %v: %s", err, out)
		}
	}()
	if err := os.Chmod(b.Dir, 0o777); err != nil { // for whoever the user is
		t.Fatal(err)
	}
	if out, err := podman(args...); err != nil {
		return "failed " + out
	}
	return observe(t, b, name)
}

// imageIDs are the ids of the images that the box runs on, the sandbox's first.
func imageIDs(t *testing.T, b *drive.Box) []string {
	t.Helper()
	text := b.OK("--print-policy=json", "--", "true").Out
	var ids []string
	for _, name := range []string{"recorded_id", "gate_recorded_id"} {
		m := regexp.MustCompile(`"` + name + `": *"([0-9a-f]{64})"`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the policy has no %s: %s", name, text)
		}
		ids = append(ids, m[1])
	}
	return ids
}

// session runs look in a session and observes both of its containers while f
// runs.
func session(t *testing.T, b *drive.Box, f func()) string {
	t.Helper()
	_, stop := b.Background(t, "--ephemeral-home", "--allow", b.Host("ok.test"), "--env", "PASSED=1", "--", "sh", "-c", look+curl+"https://"+b.Host("ok.test")+"/ >curl.txt; echo >done; cat")
	defer stop()
	b.File(t, "done")
	id := sessionOf(t, b)
	out := observe(t, b, "aisb-"+id, "aisb-gate-"+id)
	if f != nil {
		f()
	}
	if !strings.Contains(b.File(t, "curl.txt"), w.net.Marker) || !strings.Contains(out, "status NoNewPrivs:\t1") || !strings.Contains(out, "status CapBnd:\t0000000000000000") {
		t.Errorf("changed: %s\n%s", b.File(t, "curl.txt"), out)
	}
	return out
}

// unslipped fails when something of slips is in what was observed.
func unslipped(t *testing.T, out string, slips []slip) {
	t.Helper()
	for _, s := range slips {
		if m := regexp.MustCompile("(?m)" + s.seen).FindString(out); m != "" {
			t.Errorf("%s slipped in: %q", s.name, m)
		}
	}
}

// What the user's containers.conf, mounts.conf or OCI hooks do to every container
// they do not do to ours, or the start is refused: with a service that ai-sandbox
// starts, all of it is overridden; with somebody else's, what a specification can
// override is, and the rest is refused by name.
// The positive control of each setting is a bare container under the same file.
//
// Not among them, since they change nothing here: label and apparmor_profile (the
// test host has neither SELinux nor AppArmor), interface_name (bridges alone),
// init (podman 5.4 does not look at it), no_hosts and read_only (podman's command
// line alone).
// Not parallel: the services are ended to read their files again.
func TestContainersConf(t *testing.T) {
	l, err := w.net.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := filepath.Dir(write("secret/s", "CANARY-FILE", 0o644))
	ran := filepath.Join(dir, "ran")
	hook := write("hook.sh", "#!/bin/sh\n: >"+ran+"\n", 0o755)
	hooks := filepath.Dir(write("hooks/h.json", `{"version":"1.0.0","hook":{"path":"`+hook+`"},"when":{"always":true},"stages":["createRuntime"]}`, 0o644))
	hosts := write("hosts", "198.51.100.98 slipped.test\n", 0o644)
	own := func(kind string) string {
		name, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		return "^ns " + kind + " " + regexp.QuoteMeta(name) + "$"
	}
	slips := []slip{
		{"annotations", "containers", "annotations", `["slipped=1"]`, `^oci annotation slipped$`, "annotations"},
		{"base_hosts_file", "containers", "base_hosts_file", `"` + hosts + `"`, `^hosts .*slipped\.test`, ""},
		{"cgroupns", "containers", "cgroupns", `"host"`, own("cgroup"), ""},
		{"cgroups", "containers", "cgroups", `"disabled"`, `^cgroups disabled$`, ""},
		{"container_name_as_hostname", "containers", "container_name_as_hostname", `true`, `^name e2e-bare-`, ""},
		{"default_capabilities", "containers", "default_capabilities", `["CAP_NET_RAW", "CAP_SYS_ADMIN"]`, `^status CapBnd:\t0000000000202000$`, ""},
		{"default_sysctls, a port", "containers", "default_sysctls", `["net.ipv4.ip_unprivileged_port_start=1"]`, `^sysctl net/ipv4/ip_unprivileged_port_start 1$`, ""},
		{"default_sysctls, ping", "containers", "default_sysctls", `["net.ipv4.ping_group_range=0 2000"]`, `^sysctl net/ipv4/ping_group_range 0 2000$`, ""},
		{"default_sysctls, queues", "containers", "default_sysctls", `["fs.mqueue.msg_max=77"]`, `^sysctl fs/mqueue/msg_max 77$`, "default_sysctls"},
		{"devices", "containers", "devices", `["/dev/fuse:/dev/fuse:rwm"]`, `^dev fuse$`, "devices"},
		{"dns_servers", "containers", "dns_servers", `["198.51.100.97"]`, `^resolv nameserver 198\.51\.100\.97$`, "dns_servers"},
		{"dns_searches", "containers", "dns_searches", `["slipped.test"]`, `^resolv search slipped\.test`, "dns_searches"},
		{"dns_options", "containers", "dns_options", `["ndots:9"]`, `^resolv options .*ndots:9`, "dns_options"},
		{"env", "containers", "env", `["LD_X=CANARY-ENV"]`, `^env LD_X=CANARY-ENV$`, ""},
		{"env_host", "containers", "env_host", `true`, `^env CANARY=CANARY-HOST$`, ""},
		{"host_containers_internal_ip", "containers", "host_containers_internal_ip", `"198.51.100.96"`, `^hosts 198\.51\.100\.96\s`, ""},
		{"http_proxy", "containers", "http_proxy", `true`, `^env https_proxy=http://CANARY-PROXY`, ""},
		{"ipcns", "containers", "ipcns", `"host"`, own("ipc"), ""},
		{"keyring", "containers", "keyring", `false`, `^conmon .* --no-new-keyring `, "keyring"},
		{"log_driver", "containers", "log_driver", `"k8s-file"`, `^log k8s-file$`, ""},
		{"log_tag", "containers", "log_tag", `"slipped"`, `^failed .*\n?.*support --log-tag`, ""},
		{"mounts", "containers", "mounts", `["type=bind,source=` + secret + `,destination=/slipped-mount"]`, `^mount \S+ /slipped-mount `, ""},
		{"netns", "containers", "netns", `"host"`, own("net"), ""},
		{"pidns", "containers", "pidns", `"host"`, own("pid"), ""},
		{"privileged", "containers", "privileged", `true`, `^status CapBnd:\t0*1ffffffffff$`, ""},
		{"seccomp_profile", "containers", "seccomp_profile", `"unconfined"`, `^oci no seccomp$`, "seccomp_profile"},
		{"shm_size", "containers", "shm_size", `"1m"`, `^mount / /dev/shm .*size=\d{3}k`, ""},
		{"tz", "containers", "tz", `"Asia/Tokyo"`, `^zone JST$`, "tz"},
		{"umask", "containers", "umask", `"0077"`, `^umask 0077$`, ""},
		{"userns", "containers", "userns", `"keep-id"`, `^ids 1001 `, ""},
		{"utsns", "containers", "utsns", `"host"`, own("uts"), ""},
		{"volumes", "containers", "volumes", `["` + secret + `:/slipped-volume:ro"]`, `^mount \S+ /slipped-volume `, "volumes"},
		{"hooks_dir", "engine", "hooks_dir", `["` + hooks + `"]`, `^oci hook createRuntime$`, "hooks_dir"},
		{"no_pivot_root", "engine", "no_pivot_root", `true`, `^conmon .* --no-pivot `, "no_pivot_root"},
		{"pasta_options, tcp", "network", "pasta_options", `["-T", "auto"]`, `^pasta .* -T auto`, "pasta_options"},
		{"pasta_options, udp", "network", "pasta_options", `["-U", "auto"]`, `^pasta .* -U auto`, "pasta_options"},
		{"pasta_options, publish", "network", "pasta_options", `["-t", "auto"]`, `^pasta .* -t auto`, "pasta_options"},
		{"pasta_options, gateway", "network", "pasta_options", `["--map-gw"]`, `^pasta maps the gateway$`, "pasta_options"},
		{"mounts.conf", "mounts.conf", "", secret + ":/slipped-conf\n", `^mount \S+ /slipped-conf `, "mounts.conf"},
	}
	// What only makes a container narrower stays as the user has it.
	stay := []slip{
		{"default_ulimits", "containers", "default_ulimits", `["nofile=4096:4096"]`, `^files 4096$`, ""},
		{"oom_score_adj", "containers", "oom_score_adj", `500`, `^oom 500$`, ""},
	}
	file := filepath.Join(dir, "containers.conf")
	env := []string{"CONTAINERS_CONF_OVERRIDE=" + file, "CANARY=CANARY-HOST", "https_proxy=http://CANARY-PROXY.test:1"}
	mountsConf := filepath.Join(w.home, ".config", "containers", "mounts.conf")
	t.Cleanup(func() { os.Remove(mountsConf); stopService(t) })
	install := func(t *testing.T, text string, slips ...slip) {
		t.Helper()
		write("containers.conf", text, 0o600)
		_ = os.Remove(mountsConf) // it may not be there
		for _, s := range slips {
			if s.table == "mounts.conf" {
				if err := errors.Join(os.MkdirAll(filepath.Dir(mountsConf), 0o700), os.WriteFile(mountsConf, []byte(s.value), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	image := imageIDs(t, newBox(t))[0]

	t.Run("control", func(t *testing.T) {
		install(t, "")
		plain := bare(t, image, nil)
		for _, s := range slices.Concat(slips, stay) {
			t.Run(s.name, func(t *testing.T) {
				install(t, conf(false, s), s)
				out := bare(t, image, env)
				// The driver is podman's own choice here, too.
				if re := regexp.MustCompile("(?m)" + s.seen); !re.MatchString(out) || re.MatchString(plain) && s.name != "log_driver" {
					t.Errorf("the positive control failed: %q matches without it: %v; with it:\n%s", s.seen, re.MatchString(plain), out)
				}
				if s.name == "hooks_dir" {
					if err := os.Remove(ran); err != nil {
						t.Errorf("the positive control failed: %v", err)
					}
				}
			})
		}
	})

	loopback := func(b *drive.Box) string {
		return b.OK(b.Gated("sh", "-c", "./probe tcp 127.0.0.1:"+port(l.Addr)+" [::1]:"+port(l.Addr)+" 192.0.2.2:"+port(l.Addr))...).Out
	}

	t.Run("own service", func(t *testing.T) {
		b := newBox(t)
		b.Env = env
		install(t, conf(true, merged(slips)...), slips...)
		stopService(t)
		unslipped(t, session(t, b, func() { goldenSpec(t, b, "inspect-", "oci-") }), slips)
		if _, err := os.Stat(ran); err == nil {
			t.Error("the hook ran")
		}
		if out := loopback(b); l.Count() != 0 || strings.Contains(out, " open ") {
			t.Errorf("the host's loopback was reached: %s", out)
		}
	})
	t.Run("limits", func(t *testing.T) {
		b := newBox(t)
		b.Env = env
		install(t, conf(true, stay...))
		stopService(t)
		out := session(t, b, nil)
		for _, s := range stay {
			if !regexp.MustCompile("(?m)" + s.seen).MatchString(out) {
				t.Errorf("%s is gone", s.name)
			}
		}
	})
	t.Run("another service", func(t *testing.T) {
		stopService(t)
		socket := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "podman", "podman.sock")
		serve := func(t *testing.T) (stop func()) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("podman", "system", "service", "--time", "0", "unix://"+socket)
			cmd.Env = append(os.Environ(), env...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			drive.Eventually(t, 20*time.Second, "a podman service", func() bool {
				c, err := net.Dial("unix", socket)
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			return func() {
				stopService(t)
				_ = cmd.Wait() // it was killed
				_ = os.Remove(socket)
			}
		}
		overridden := slices.DeleteFunc(slices.Clone(slips), func(s slip) bool { return s.refused != "" })
		t.Run("overridden", func(t *testing.T) {
			b := newBox(t)
			b.Env = env
			install(t, conf(true, merged(overridden)...))
			defer serve(t)()
			// The gate reads no hosts file, and the sandbox has the image's.
			out := regexp.MustCompile(`(?m)^hosts .*\n`).ReplaceAllString(session(t, b, func() { goldenSpec(t, b, "oci-") }), "")
			unslipped(t, out, overridden)
		})
		for _, s := range slips {
			if s.refused == "" {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				b := newBox(t)
				b.Env = env
				install(t, conf(false, s), s)
				defer serve(t)()
				_ = os.Remove(ran) // only that of this run
				r := b.Run(b.Gated("sh", "-c", "touch started; ./probe tcp 127.0.0.1:"+port(l.Addr))...)
				if l.Count() != 0 || r.Out != "" || b.Size("started") != 0 {
					t.Errorf("the command ran: %s", r)
				}
				said := filter(strings.Split(r.Err, "\n"), func(line string) bool {
					return strings.HasPrefix(line, "ai-sandbox: error: ") && strings.Contains(line, s.refused) && strings.Contains(line, "or stop that service, and ai-sandbox begins one of its own")
				})
				// The entrypoint may have seen it, too.
				if r.Code != 125 && r.Code != 77 || len(said) == 0 {
					t.Errorf("want a sentence that names %q: %s", s.refused, r)
				}
				t.Logf("%s", said[0])
			})
		}
	})
}

// Nor does what the image says of itself. The images of this test are those of
// the others with more in their configuration, put in their place in the records.
func TestImageConfig(t *testing.T) {
	t.Parallel()
	slips := []slip{
		{name: "ENTRYPOINT", value: `["/bin/sh", "-c", "echo CANARY $0"]`, seen: `^oci args .*CANARY`},
		{name: "CMD", value: `["CANARY-CMD"]`, seen: `^oci args .*CANARY`},
		{name: "ENV", value: `LD_X=CANARY-ENV`, seen: `^env LD_X=CANARY-ENV$`},
		{name: "USER", value: "12:12", seen: `^ids 12 12$`},
		{name: "VOLUME", value: "/slipped-volume", seen: `^mount \S+ /slipped-volume `},
		{name: "WORKDIR", value: "/usr/lib", seen: `^oci cwd /usr/lib$`},
		{name: "STOPSIGNAL", value: "SIGUSR1", seen: `^signal SIGUSR1$`},
		{name: "HEALTHCHECK", value: `CMD ["/bin/true"]`, seen: `^health \["CMD" "/bin/true"\]$`},
	}
	b := newBox(t)
	state := filepath.Join(w.home, "e2e", "state-"+b.Token)
	t.Cleanup(func() { removeAll(t, state) })
	records := filepath.Join("ai-sandbox", "images")
	if err := os.MkdirAll(filepath.Join(state, records), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(state, records), os.DirFS(filepath.Join(w.home, "e2e", "state", records))); err != nil {
		t.Fatal(err)
	}
	var sandbox string
	for i, id := range imageIDs(t, b) {
		text := "FROM " + id + "\n"
		for _, s := range slips {
			text += s.name + " " + s.value + "\n"
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Containerfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// With a name: another test prunes those that have none.
		name := fmt.Sprintf("localhost/e2e-config-%s:%d", b.Token, i)
		changed := strings.TrimSpace(drive.Output(t, "podman", "build", "-q", "--format", "docker", "-t", name, dir))
		// Not with the parents, which are everybody's.
		t.Cleanup(func() { drive.Output(t, "podman", "rmi", "--no-prune", name) })
		if sandbox == "" {
			sandbox = changed
		}
		files, err := filepath.Glob(filepath.Join(state, records, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no records: %v", err)
		}
		drive.Output(t, "sed", append([]string{"-i", "s/" + id + "/" + changed + "/"}, files...)...)
	}
	out := bare(t, sandbox, nil)
	for _, s := range slips[2:] {
		if !regexp.MustCompile("(?m)" + s.seen).MatchString(out) {
			t.Errorf("the positive control of %s failed: %s", s.name, out)
		}
	}
	if out := drive.Output(t, "podman", "run", "--rm", sandbox); out != "CANARY CANARY-CMD\n" {
		t.Errorf("the positive control of ENTRYPOINT and CMD failed: %q", out)
	}
	b.Env = []string{"XDG_STATE_HOME=" + state}
	out = session(t, b, func() {
		goldenSpec(t, b, "oci-")
		if got := drive.Output(t, "podman", "inspect", "--format", "{{.Image}}", "aisb-"+sessionOf(t, b)); !strings.Contains(got, sandbox) {
			t.Errorf("another image was used: %s", got)
		}
	})
	unslipped(t, out, slips)
}

// A start that waits for another one's turn can be ended. Not parallel: nobody
// starts anything meanwhile.
func TestSignalWhileWaiting(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox", "create.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	b := newBox(t)
	before := snapshot(t)
	l := b.Start(t, append([]string{"--ephemeral-home"}, b.Gated("true")...)...)
	drive.Eventually(t, time.Minute, "a start that waits", func() bool {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", l.Cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		waiting := filter(open, func(fd string) bool {
			to, err := os.Readlink(fd)
			return err == nil && to == f.Name()
		})
		return len(waiting) > 0
	})
	if err := l.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := l.Wait(5 * time.Second); r.Code != 128+int(syscall.SIGTERM) {
		t.Errorf("%s", r)
	}
	nothingLeft(t, before)
	// The positive control: without the other one it runs.
	f.Close()
	b.OK(b.Gated("true")...)
}

// stopService ends the podman service that ai-sandbox started, so that the next
// one reads its configuration again.
func stopService(t *testing.T) {
	t.Helper()
	for _, p := range find(t, "podman", "system service") {
		killWait(t, p)
	}
	// A thread of it may hold the socket for a moment longer.
	drive.Eventually(t, 10*time.Second, "the end of podman's service", func() bool {
		c, err := net.Dial("unix", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox", "podman.sock"))
		if err == nil {
			c.Close()
		}
		return err != nil && len(find(t, "podman", "system service")) == 0
	})
}
