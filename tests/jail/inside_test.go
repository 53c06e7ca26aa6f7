//go:build e2e

package jail

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/policy"
)

// printed is the policy of a run.
func (b *box) printed(args ...string) policy.Policy {
	b.T.Helper()
	var p policy.Policy
	if err := json.Unmarshal([]byte(b.OK(append([]string{"--print-policy=json"}, args...)...).Out), &p); err != nil {
		b.T.Fatal(err)
	}
	return p
}

// Every task of every process, PID 1 included, shows the same privileges: none.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	groups := " Groups= "
	if os.Getuid() != 0 {
		// Nobody without privileges can let go of groups; they are nobody's inside.
		mine, err := os.Getgroups()
		if err != nil {
			t.Fatal(err)
		}
		groups = " Groups="
		if len(mine) == 0 {
			groups = " Groups= "
		}
	}
	for _, args := range [][]string{{"--allow", "x.ok.test"}, {"--net", "none"}, {"--net", "host"}} {
		t.Run(args[1], func(t *testing.T) {
			b := newBox(t)
			r := b.OK(append(args, "--", "sh", "-c", "sleep 60 & python3 -c 'import time, threading; threading.Thread(target=time.sleep, args=(60,)).start()' & for i in $(seq 100); do test $(./probe status | grep -c Name=python3) -lt 2 || break; sleep 0.1; done; ./probe status")...)
			lines := strings.Split(strings.TrimSpace(r.Out), "\n")
			first := false
			for _, line := range lines {
				first = first || strings.HasPrefix(line, "/proc/1/task/1/status ")
				for _, want := range []string{
					" Uid=1000,1000,1000,1000 ", " Gid=1000,1000,1000,1000 ", groups, " NoNewPrivs=1 ", " Seccomp=2",
					" CapInh=0000000000000000 ", " CapPrm=0000000000000000 ", " CapEff=0000000000000000 ", " CapBnd=0000000000000000 ", " CapAmb=0000000000000000 ",
				} {
					if !strings.Contains(line+" ", want) {
						t.Errorf("no %q in: %s", want, line)
					}
				}
			}
			if !first || len(lines) < 8 || strings.Count(r.Out, "Name=python3") < 2 {
				t.Errorf("want PID 1 and all threads of the others: %s", r)
			}
		})
	}
	// The positive control: the probe sees privileges where there are some.
	out := drive.Output(t, filepath.Join(w.bin, "probe"), "status")
	if !regexp.MustCompile(`(?m)Name=probe .* CapBnd=0*[1-9a-f].* NoNewPrivs=0 Seccomp=0`).MatchString(out) {
		t.Errorf("the positive control failed: %.4000s", out)
	}
}

// The same table as on podman's runtime (tests/e2e, TestKernelSurface).
func TestKernelSurface(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "./probe calls; ./probe ptrace; unshare -Urn true && echo UNSHARED; unshare -Ur true && echo UNSHARED; bwrap --unshare-user --dev-bind / / true && echo UNSHARED; true")...)
	got := map[string]string{}
	for line := range strings.Lines(r.Out) {
		if f := strings.Fields(line); len(f) == 2 {
			got[f[0]] = f[1]
		}
	}
	for _, name := range []string{"socket-inet-stream", "socket-inet6-stream", "socket-unix", "write-home", "write-tmp"} {
		if got[name] != "OK" {
			t.Errorf("%s: %s, and it has to work", name, got[name])
		}
		delete(got, name)
	}
	if len(got) < 35 {
		t.Errorf("only %d probes: %s", len(got), r)
	}
	for name, what := range got {
		switch {
		case what == "OK":
			t.Errorf("%s works", name)
		case strings.HasPrefix(name, "ioctl-tiocsti") && what == "ENOTTY":
			t.Errorf("%s reached the driver", name)
		}
	}
	for _, name := range []string{
		"socket-packet", "socket-vsock", "socket-alg", "unshare-newuser", "unshare-newnet", "clone-newuser", "io_uring_setup", "keyctl",
		"ioctl-tiocsti", "ioctl-tiocsti-high",
	} {
		if e := got[name]; e != "EPERM" && e != "EACCES" && e != "EAFNOSUPPORT" && e != "ENOSYS" {
			t.Errorf("%s: %s, and it has to be refused by the filter", name, e)
		}
	}
	if !strings.Contains(r.Out, "ptrace-pid1 operation not permitted") {
		t.Errorf("PID 1, which tells the host how the command ended, can be traced: %s", r)
	}
	if strings.Contains(r.Out, "UNSHARED") {
		t.Errorf("%s", r)
	}
	// The positive control: on this machine the probe can make a user namespace.
	if out := drive.Output(t, filepath.Join(w.bin, "probe"), "calls"); !strings.Contains(out, "clone-newuser OK") || !strings.Contains(out, "io_uring_setup EFAULT") {
		t.Errorf("the positive control failed: %s", out)
	}
}

// Each namespace is the jail's own, but for the network's with --net host.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"gated": {"--allow", "x.ok.test"}, "none": {"--net", "none"}, "host": {"--net", "host"}} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			r := b.OK(append(args, "--", "sh", "-c", "for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done; echo; hostname; cat /proc/self/uid_map /proc/self/gid_map; cat /proc/net/dev")...)
			for _, n := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
				mine, err := os.Readlink("/proc/self/ns/" + n)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(r.Out, mine+"\n") != (n == "net" && name == "host") || !strings.Contains(r.Out, n+":[") {
					t.Errorf("%s, and mine is %s: %s", n, mine, r)
				}
			}
			devices := regexp.MustCompile(`(?m)^ *(\S+):`).FindAllStringSubmatch(r.Out[strings.Index(r.Out, "Inter-"):], -1)
			if name != "host" && (len(devices) != 1 || devices[0][1] != "lo") {
				t.Errorf("network devices: %q", devices)
			}
			if name, err := os.Hostname(); err != nil || strings.Contains(r.Out, name) {
				t.Errorf("the host's name: %s", r)
			}
		})
	}
}

// There are only the jail's own processes, and none of the host's.
func TestProcesses(t *testing.T) {
	t.Parallel()
	b, other := newBox(t), newBox(t)
	_, stop := other.Background(t, "--net", "none", "--", "sh", "-c", "echo up >up; cat")
	defer stop()
	other.File(t, "up")
	r := b.OK("--net", "host", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /proc/"+strconv.Itoa(os.Getpid())+" && echo SE''EN; kill -0 "+strconv.Itoa(os.Getpid())+" && echo SE''EN; true")
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(r.Out, "\n", 2)[0]))
	if err != nil || n > 5 || strings.Contains(r.Out, "SEEN") || strings.Contains(r.Out, other.Dir) || strings.Contains(r.Out, "jail.test") {
		t.Errorf("%s", r)
	}
}

// mounts are the mount points of a jail, with "ro" or "rw", as mountinfo has them.
func mounts(table string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 6 {
			out[f[4]] = strings.SplitN(f[5], ",", 2)[0]
		}
	}
	return out
}

// The mount table is the policy's, in both directions.
func TestMountsArePolicy(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"gated": {"--allow", "x.ok.test"}, "none": {"--net", "none"}, "host": {"--net", "host"}, "read-only": {"--fs", "ro"}, "ephemeral": {"--ephemeral-home"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			got := mounts(b.OK(append(args, "--", "cat", "/proc/self/mountinfo")...).Out)
			p := b.printed(append(args, "--", "true")...)
			want := map[string]string{"/": "ro"}
			for _, m := range p.Mounts {
				if m.Kind == policy.KindSymlink || m.Kind == policy.KindFile {
					continue // on the root's tmpfs
				}
				want[m.Target] = map[bool]string{true: "ro", false: "rw"}[m.ReadOnly]
			}
			for point, mode := range want {
				if got[point] != mode {
					t.Errorf("%s: %q, and the policy says %q", point, got[point], mode)
				}
			}
			for point, mode := range got {
				// What /proc and /dev are made of, and what the host has mounted
				// below a directory of the system.
				under := ""
				for target := range want {
					if target != "/" && strings.HasPrefix(point, target+"/") && len(target) > len(under) {
						under = target
					}
				}
				switch {
				case want[point] != "":
				case under == "/proc" && mode == "ro":
				case under == "/dev" && (mode == "ro" || os.Getuid() != 0 || point == "/dev/pts"):
				case want[under] == "ro" && mode == "ro":
				default:
					t.Errorf("mounted %s, and not in the policy: %s", mode, point)
				}
			}
			// The printout has each of them.
			text := b.OK(append(append([]string{"--print-policy"}, args...), "--", "true")...).Out
			for point, mode := range want {
				if name, ok := strings.CutPrefix(point, p.Workdir+"/"); ok {
					if !slices.Contains(strings.Fields(text), name) { // in the list of what is protected
						t.Errorf("%s is not in the printout: %s", point, text)
					}
				} else if point != "/" && !regexp.MustCompile(`(?m)^  `+mode+` \w+ +`+regexp.QuoteMeta(point)+`( |$)`).MatchString(text) {
					t.Errorf("%s %s is not in the printout: %s", mode, point, text)
				}
			}
		})
	}
}

// Nothing but the policy's writable paths can be written, by root's run neither.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	find := "find / -xdev -not -path '/proc*' -writable -not -type l 2>/dev/null | while read -r f; do mountpoint -q \"$f\" || echo \"$f\"; done | head -20; " +
		"for d in / /etc /usr /usr/bin /usr/local/bin /opt /var /var/lib /run /run/aisb /run/aisb-gate /dev /proc /proc/sys /home; do touch $d/aisb-x 2>/dev/null && echo WROTE $d; done; " +
		"for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger /proc/self/oom_score_adj /etc/passwd /etc/hosts /usr/bin/env; do ( : >>$f ) 2>/dev/null && echo OPENED $f; done; " +
		"chmod 600 /dev/null && echo CHANGED; chmod 600 /usr/bin/env && echo CHANGED; chmod 777 /etc && echo CHANGED; echo x >/dev/null && echo null works; true"
	r := b.OK(b.Gated("sh", "-c", find)...)
	if r.Out != "null works\n" {
		t.Errorf("beside the policy's paths: %s", r)
	}
	if st, err := os.Stat("/dev/null"); err != nil || st.Mode().Perm() != 0o666 {
		t.Fatalf("the host's /dev/null: %v, %v", st, err)
	}
	if os.Getuid() == 0 {
		// The positive control: outside, whoever starts this can open it.
		f, err := os.OpenFile("/proc/sys/kernel/core_pattern", os.O_WRONLY, 0)
		if err != nil {
			t.Fatalf("the positive control failed: %v", err)
		}
		f.Close()
	}
}

// Of the host's files there is what the policy names.
func TestHostFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	secret := write(t, filepath.Join(w.own, "home", ".ssh", "id_"+b.Token), "CANARY-KEY", 0o600)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	script := "for p in " + strings.Join([]string{filepath.Dir(secret), filepath.Dir(w.own), home, "/root", "/var/lib", "/var/log", "/srv", "/mnt", "/boot", "/sys", "/run/user", "/run/dbus", "/run/systemd", "/tmp/.X11-unix", "/etc/shadow", "/etc/ssh", "/etc/sudoers", "/etc/fstab", "/etc/machine-id"}, " ") +
		"; do ls -A \"$p\" 2>/dev/null | sed \"s|^|$p: |\"; done; ls -A /home /run; id -un; getent passwd | wc -l; cat /etc/passwd | cut -d: -f1 | tr '\\n' ' '"
	r := b.OK(b.Gated("sh", "-c", script)...)
	// Only what lies on the way to the project.
	for line := range strings.Lines(r.Out) {
		dir, name, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && !strings.HasPrefix(b.Dir+"/", filepath.Join(dir, name)+"/") {
			t.Errorf("the host's files: %s", line)
		}
	}
	if strings.Contains(r.Out, "CANARY") || !strings.Contains(r.Out, "\nsandbox\n") || !strings.HasSuffix(r.Out, "\nroot sandbox nobody ") {
		t.Errorf("%s", r)
	}
	for _, want := range []string{"aisb", "aisb-entrypoint", "aisb-gate"} {
		if !strings.Contains(r.Out, "\n"+want+"\n") {
			t.Errorf("/run has no %s: %s", want, r)
		}
	}
	// The positive control: it is there outside.
	if out, err := os.ReadFile(secret); err != nil || string(out) != "CANARY-KEY" {
		t.Fatal(err)
	}
}

// The control channel is gone before the command runs.
func TestControlChannel(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "ls -A -I GUIDE.md /run/aisb; echo --; ls -A /run/aisb-gate; ls -l /proc/1/fd 2>&1 | head -3")...)
	if !strings.HasPrefix(r.Out, "--\n") || strings.Contains(r.Out, "->") {
		t.Errorf("%s", r)
	}
}

// Only the documented variables are there, whatever the caller has; and what is
// printed is what the command gets.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	canary := "CANARY" + b.Token
	for _, name := range []string{
		"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "HTTP_PROXY", "https_proxy", "NO_PROXY", "LD_LIBRARY_PATH", "FOO_KEY", "NODE_OPTIONS", "PYTHONPATH",
		"BASH_ENV", "DBUS_SESSION_BUS_ADDRESS", "WAYLAND_DISPLAY",
	} {
		b.Env = append(b.Env, name+"="+canary+name)
	}
	secret := "first\n*\nLD_X=/x\nlast " + b.Token
	b.Env = append(b.Env, "PASSED="+secret)
	args := []string{"--env", "PASSED", "--env", "PUBLIC=a b", "--allow", b.Host("ok.test")}
	r := b.OK(append(args, "--", "sh", "-c", "cat /proc/*/environ | tr '\\0' '\\n'; echo; printf %s \"$PASSED\" >passed; echo \"[$PUBLIC]\"; env -0 >env")...)
	if strings.Contains(r.Out, canary) {
		t.Errorf("the caller's environment came in: %s", r)
	}
	if !strings.Contains(r.Out, "[a b]") || b.File(t, "passed") != secret {
		t.Errorf("what was passed is not there: %s", r)
	}
	var want, got []string
	for _, e := range b.printed(append(args, "--", "sh")...).Env {
		want = append(want, e.Name)
	}
	for _, v := range strings.Split(strings.Trim(b.File(t, "env"), "\x00"), "\x00") {
		name, _, _ := strings.Cut(v, "=")
		if name != "_" && name != "PWD" && name != "OLDPWD" && name != "SHLVL" { // the shell's
			got = append(got, name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("inside: %q\npolicy: %q", got, want)
	}
	// A variable passed by name is in no printout, in no argv and on no disk.
	for _, flag := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		if r := b.OK(append([]string{flag}, append(args, "--", "true")...)...); strings.Contains(r.Out+r.Err, b.Token+"\n") || strings.Contains(r.Out+r.Err, "last "+b.Token) || !strings.Contains(r.Out, "PASSED") {
			t.Errorf("%s: %s", flag, r)
		}
	}
	l, stop := b.Background(t, append(args, "--", "sh", "-c", "echo up >up; cat")...)
	b.File(t, "up")
	running := tree(t, l.Cmd.Process.Pid)
	if len(running) < 4 {
		t.Errorf("want ai-sandbox, bubblewrap, the entrypoint and the command: %v", running)
	}
	for _, p := range running {
		if strings.Contains(p.argv, "last "+b.Token) {
			t.Errorf("an argv shows the value: %s", p)
		}
		if p.pid != l.Cmd.Process.Pid && strings.Contains(p.argv, "bwrap") {
			// bubblewrap itself has none of the caller's variables.
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
			if err != nil || strings.Contains(string(env), "CANARY") {
				t.Errorf("%s: %v, %q", p, err, env)
			}
		}
	}
	seen := 0
	for _, dir := range []string{stateDir(), runtimeDir(), filepath.Join(w.own, "tmp"), filepath.Join(w.own, "home", "cache")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // other tests come and go
			}
			data, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(data), "last "+b.Token) {
				t.Errorf("the value is on the disk: %s", path)
			}
			if strings.Contains(string(data), b.Dir) {
				seen++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Error("no file was looked at: the record should name the project")
	}
	stop()
}

// Resource limits, the umask, signals and the working directory are as the caller
// would expect of any command.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	work := b.printed("--", "true").Workdir
	r := b.OK("--net", "none", "--", "sh", "-c", "pwd; umask; grep -E '^Sig(Ign|Blk)' /proc/self/status; cat /proc/self/oom_score_adj; date +%Z; locale charmap")
	if !strings.HasPrefix(r.Out, work+"\n0022\n") || !strings.Contains(r.Out, "SigBlk:\t0000000000000000") || !strings.Contains(r.Out, "SigIgn:\t0000000000000000") || !strings.Contains(r.Out, "UTF-8") {
		t.Errorf("want %s: %s", work, r)
	}
	for name := range map[string]bool{"/dev/full": true, "/dev/zero": true, "/dev/random": true, "/dev/urandom": true, "/dev/ptmx": true, "/dev/shm": true, "/dev/fd/0": true} {
		if r := b.Run("--net", "none", "--", "test", "-e", name); r.Code != 0 {
			t.Errorf("%s is not there: %s", name, r)
		}
	}
}

// What the agent writes in the project is the caller's.
func TestFileOwnership(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	write(t, filepath.Join(b.Dir, "before"), "host\n", 0o600)
	r := b.OK(b.Gated("sh", "-c", "cat before && mkdir -p a/b && echo hi >a/b/file && ln -s file a/b/link && chmod 640 before && git init -q g && mkfifo fifo; id -u; touch $HOME/mine; stat -c %u:%g $HOME/mine; chown 0:0 a/b/file && echo CHOWN; chmod 4755 a/b/file; true")...)
	if r.Out != "host\n1000\n1000:1000\n" {
		t.Errorf("%s", r)
	}
	n := 0
	err := filepath.WalkDir(b.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
		}
		n++
		return nil
	})
	if err != nil || n < 8 {
		t.Errorf("%d files: %v", n, err)
	}
}

// bubblewrap's real command line is the one that --dry-run prints.
func TestPrintedCommandLine(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	args := []string{"--allow", b.Host("ok.test"), "--", "sh", "-c", "echo up >up; cat"}
	printed := b.OK(append([]string{"--dry-run"}, args...)...).Out
	l, stop := b.Background(t, args...)
	defer stop()
	b.File(t, "up")
	var argv []string
	for _, p := range tree(t, l.Cmd.Process.Pid) {
		if p.parent == l.Cmd.Process.Pid && strings.Contains(p.argv, "bwrap ") {
			raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			if err != nil {
				t.Fatal(err)
			}
			argv = strings.Split(strings.Trim(string(raw), "\x00"), "\x00")
		}
	}
	if len(argv) < 50 {
		t.Fatalf("bubblewrap's command line: %q", argv)
	}
	for _, option := range []string{"--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup", "--unshare-net", "--die-with-parent", "--new-session", "--clearenv"} {
		if !slices.Contains(argv, option) {
			t.Errorf("bubblewrap runs without %s: %q", option, argv)
		}
	}
	_, section, ok := strings.Cut(printed, "\nbwrap \\\n")
	if !ok {
		t.Fatalf("no command line is printed: %s", printed)
	}
	var real []string
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "--") {
			real = append(real, a)
		}
	}
	section, _, _ = strings.Cut(section, "\n\n")
	var shown []string
	for _, word := range strings.Fields(section) {
		if strings.HasPrefix(word, "--") {
			shown = append(shown, word)
		}
	}
	if !slices.Equal(real, shown) {
		t.Errorf("printed: %q\nreal: %q", shown, real)
	}
}
