//go:build kernel

package entrypoint

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// devID is the test host's user.
const devID = 1001

// callers are who may start a jail.
var callers = map[string]int{"root": 0, "user": devID}

// kinds are all sandboxes, for what must not differ between them.
var kinds = map[string]func(t *testing.T, command ...string) *box{
	"container":    newBox,
	"jail of root": func(t *testing.T, command ...string) *box { t.Helper(); return newJail(t, 0, command...) },
	"jail of user": func(t *testing.T, command ...string) *box { t.Helper(); return newJail(t, devID, command...) },
}

// each runs a test on every kind of sandbox.
func each(t *testing.T, f func(t *testing.T, sandbox func(command ...string) *box)) {
	t.Helper()
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			f(t, func(command ...string) *box { t.Helper(); return make(t, command...) })
		})
	}
}

// newJail is a jail that uid starts.
func newJail(t *testing.T, uid int, command ...string) *box {
	t.Helper()
	b := makeBox(t, uid, command)
	b.opts = [][]string{
		{"--unshare-user"}, {"--unshare-pid"}, {"--unshare-ipc"}, {"--unshare-uts"}, {"--unshare-cgroup"}, {"--unshare-net"},
		{"--disable-userns"}, {"--die-with-parent"}, {"--as-pid-1"}, {"--cap-drop", "ALL"}, {"--uid", "1000"}, {"--gid", "1000"},
		{"--ro-bind", "/usr", "/usr"}, {"--symlink", "usr/bin", "/bin"}, {"--symlink", "usr/lib", "/lib"}, {"--symlink", "usr/lib64", "/lib64"},
		{"--proc", "/proc"}, {"--remount-ro", "/proc"}, {"--dev", "/dev"}, {"--tmpfs", "/tmp"}, {"--bind", b.path("proj"), "/proj"},
		{"--ro-bind", b.path("ctl"), "/run/aisb"}, {"--ro-bind", b.path("aisb"), "/aisb"},
		{"--remount-ro", "/"},
	}
	b.Spec.Isolation = spec.IsolationProcess
	b.Spec.Firewall = spec.Firewall{Mode: spec.ModeNone}
	// What is mounted below /usr is not in there.
	b.Spec.Mounts = []string{"/usr", "/proj", "/tmp", "/run/aisb", "/aisb"}
	b.Spec.ReadOnly = []string{"/usr", "/run/aisb", "/aisb"}
	b.Spec.Tmpfs = []string{"/tmp"}
	b.Spec.Groups = uid != 0
	b.Spec.Outside = map[string]uint64{}
	for _, name := range spec.Namespaces {
		var st unix.Stat_t
		b.must(unix.Stat("/proc/self/ns/"+name, &st))
		b.Spec.Outside[name] = st.Ino
	}
	return b
}

// option adds one, before the root becomes read-only.
func (b *box) option(opt ...string) {
	b.opts = slices.Insert(b.opts, len(b.opts)-1, opt)
}

// without removes the options that begin with these words.
func (b *box) without(words ...string) {
	b.t.Helper()
	n := len(b.opts)
	b.opts = slices.DeleteFunc(b.opts, func(o []string) bool {
		return len(o) >= len(words) && slices.Equal(o[:len(words)], words)
	})
	if len(b.opts) != n-1 {
		b.t.Fatalf("%d options are %q", n-len(b.opts), words)
	}
}

// instead changes the one option that begins with these words.
func (b *box) instead(opt []string, words ...string) {
	b.t.Helper()
	i := slices.IndexFunc(b.opts, func(o []string) bool { return len(o) >= len(words) && slices.Equal(o[:len(words)], words) })
	if i < 0 {
		b.t.Fatalf("no option is %q", words)
	}
	b.opts[i] = opt
}

func (b *box) bwrap() *exec.Cmd {
	args := append(slices.Concat(b.opts...), "--", "/aisb")
	cmd := exec.Command("/usr/bin/bwrap", append(args, b.role...)...)
	if b.files != 0 {
		cmd = exec.Command("/usr/bin/prlimit", append([]string{fmt.Sprintf("--nofile=%d", b.files)}, cmd.Args...)...)
	}
	if b.net {
		cmd = exec.Command("/proc/self/exe", append([]string{"stagenet", b.path("tun")}, cmd.Args...)...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(b.owner), Gid: uint32(b.owner), Groups: b.groups},
	}
	if b.net {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
	return cmd
}

// pid1 is the sandbox's first process, which in a jail is bubblewrap's child.
func (b *box) pid1() int {
	b.t.Helper()
	pid := b.cmd.Process.Pid
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		b.must(err)
		if f := strings.Fields(parseStatus(text)["NSpid"]); f[len(f)-1] == "1" {
			return pid
		}
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		b.must(err)
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			b.t.Fatal(err)
		}
	}
}

// stageNet makes a device in the network namespace that it is in, and becomes
// the program.
func stageNet(args []string) {
	err := device("tap0", args[0])
	if err == nil {
		err = device("lo", "")
	}
	if err == nil {
		err = syscall.Exec(args[1], args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "stagenet:", err)
	os.Exit(99)
}

func TestJail(t *testing.T) {
	for name, uid := range callers {
		t.Run(name, func(t *testing.T) {
			b := newJail(t, uid, "sh", "-c", `
				id -u; id -g; cd /proj && echo x >file && echo written
				for f in /x /usr/x /run/aisb/x /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness; do (: >>$f) 2>/dev/null && echo "written $f"; done
				unshare -U true 2>/dev/null || echo no namespace
				ls /sys/class 2>/dev/null; tail -n +3 /proc/net/dev | grep -v '^ *lo:'; echo end`)
			text, e := b.run()
			if want := "1000\n1000\nwritten\nno namespace\nend\n"; text != want || e.Code != 0 {
				t.Errorf("%q %+v", text, e)
			}
			var st unix.Stat_t
			b.must(unix.Stat(b.path("proj/file"), &st))
			if int(st.Uid) != uid || int(st.Gid) != uid {
				t.Errorf("the file is %d:%d's", st.Uid, st.Gid)
			}
		})
	}
}

// The root's own groups are dropped by who starts bubblewrap; others can't be.
func TestJailGroups(t *testing.T) {
	for _, c := range []struct {
		uid     int
		groups  []uint32
		accept  bool
		refused bool
	}{
		{0, nil, false, false},
		{0, []uint32{4}, false, true},
		{devID, []uint32{4}, true, false},
		{devID, []uint32{4}, false, true},
	} {
		b := newJail(t, c.uid, "true")
		b.groups, b.Spec.Groups = c.groups, c.accept
		if c.refused {
			b.refused(77, "capabilities", "Groups")
		} else if _, e := b.run(); e.Code != 0 {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

func TestJailWithTheHostsNetwork(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host := func(uid int) *box {
		b := newJail(t, uid, "bash", "-c", "exec 3<>/dev/tcp/"+strings.Replace(l.Addr().String(), ":", "/", 1)+" && echo connected")
		b.without("--unshare-net")
		b.Spec.Firewall = spec.Firewall{Mode: spec.ModeHost}
		return b
	}
	for _, uid := range callers {
		if text, e := host(uid).run(); text != "connected\n" || e.Code != 0 {
			t.Errorf("%q %+v", text, e)
		}
	}
	b := host(0)
	b.option("--unshare-net")
	b.refused(77, "namespaces", "the net namespace is not the host's")
}

// What bubblewrap was told, changed one at a time. The positive control is
// TestJail.
func TestJailRefusals(t *testing.T) {
	for name, uid := range callers {
		for _, c := range []struct {
			change  func(b *box)
			only    string // who can do this at all
			control string
			reason  string
		}{
			{control: "mounts", reason: "/opt is mounted", change: func(b *box) { b.option("--ro-bind", b.path("proj"), "/opt") }},
			{control: "mounts", reason: "/opt is mounted", change: func(b *box) { b.option("--tmpfs", "/opt") }},
			{control: "mounts", reason: "/proj/x is mounted", change: func(b *box) { b.option("--tmpfs", "/proj/x") }},
			{control: "mounts", reason: "/usr/share is mounted", change: func(b *box) { b.option("--bind", b.path("proj"), "/usr/share") }},
			{control: "mounts", reason: "/proj is mounted twice", change: func(b *box) { b.option("--bind", b.path("ctl"), "/proj") }},
			{control: "mounts", reason: "/dev/null is mounted twice", change: func(b *box) { b.option("--dev-bind", "/dev/zero", "/dev/null") }},
			{control: "mounts", reason: "/sys is mounted", change: func(b *box) { b.option("--ro-bind", "/sys", "/sys") }},
			{control: "mounts", reason: "the root file system is writable", change: func(b *box) { b.without("--remount-ro", "/") }},
			{control: "mounts", reason: "/proc is mounted", change: func(b *box) { b.without("--remount-ro", "/proc") }},
			{control: "mounts", reason: "/usr is writable", change: func(b *box) { b.instead([]string{"--bind", "/usr", "/usr"}, "--ro-bind", "/usr") }},
			{control: "mounts", reason: "/run/aisb is writable", change: func(b *box) {
				b.instead([]string{"--bind", b.path("ctl"), "/run/aisb"}, "--ro-bind", b.path("ctl"))
			}},
			{control: "mounts", reason: "/tmp is not the tmpfs", change: func(b *box) { b.instead([]string{"--bind", b.path("proj"), "/tmp"}, "--tmpfs", "/tmp") }},
			{control: "mounts", reason: "/tmp is in the policy and not mounted", change: func(b *box) { b.without("--tmpfs", "/tmp") }},
			{control: "mounts", reason: "/proj is not what the host saw", change: func(b *box) {
				b.instead([]string{"--bind", b.path("ctl"), "/proj"}, "--bind", b.path("proj"))
			}},
			{control: "mounts", reason: "the root file system is not bubblewrap's", change: func(b *box) {
				b.must(os.Chown(b.path("root"), b.owner, b.owner))
				b.opts = slices.Insert(b.opts, slices.IndexFunc(b.opts, func(o []string) bool { return o[0] == "--ro-bind" }), []string{"--bind", b.path("root"), "/"})
			}},
			{control: "network", reason: "devices [\"tap0\"] are up", only: "root", change: func(b *box) { b.net = true; b.without("--unshare-net") }},
			{control: "namespaces", reason: "the net namespace is the host's", change: func(b *box) { b.without("--unshare-net") }},
			{control: "namespaces", reason: "the ipc namespace is the host's", change: func(b *box) { b.without("--unshare-ipc") }},
			{control: "namespaces", reason: "the uts namespace is the host's", change: func(b *box) { b.without("--unshare-uts") }},
			{control: "namespaces", reason: "the cgroup namespace is the host's", change: func(b *box) { b.without("--unshare-cgroup") }},
			{control: "namespaces", reason: "and not 1", change: func(b *box) { b.without("--as-pid-1") }},
			{control: "namespaces", reason: "a new user namespace can be made", change: func(b *box) { b.without("--disable-userns") }},
			{control: "capabilities", reason: "\"0000000000002000\"", only: "root", change: func(b *box) { b.option("--cap-add", "CAP_NET_RAW") }},
			{control: "capabilities", reason: "Gid", only: "user", change: func(b *box) { b.instead([]string{"--gid", "1001"}, "--gid") }},
		} {
			if c.only != "" && c.only != name {
				continue
			}
			t.Run(name+", "+c.reason, func(t *testing.T) {
				b := newJail(t, uid, "touch", "/proj/ran")
				c.change(b)
				b.refused(77, c.control, c.reason)
				if _, err := os.Stat(b.path("proj/ran")); err == nil {
					t.Error("the command ran")
				}
			})
		}
		// As another user even the FIFOs are out of reach: the exit code tells.
		t.Run(name+", uid 0", func(t *testing.T) {
			b := newJail(t, uid, "touch", "/proj/ran")
			b.instead([]string{"--uid", "0"}, "--uid")
			b.start()
			if code := b.end(); code != 77 {
				t.Errorf("exit code %d: %s", code, b.stderr.String())
			}
		})
	}
}

// The filter is one for both runtimes: the same program, seen by its effect and
// by the kernel's count.
func TestJailHasTheFilter(t *testing.T) {
	const try = `
		for how in "-u" "-n" "-m" "-i" "-p" "-C"; do unshare $how true 2>&1 | grep -o 'Operation not permitted'; done
		python3 -c 'import socket; socket.socket(40, 1)' 2>&1 | grep -o 'Operation not permitted'
		grep -h ^Seccomp: /proc/self/status /proc/1/status`
	got := map[string]string{}
	for name, make := range kinds {
		got[name], _ = make(t, "bash", "-c", try).run()
	}
	want := strings.Repeat("Operation not permitted\n", 7) + "Seccomp:\t2\nSeccomp:\t2\n"
	for name, text := range got {
		if text != want {
			t.Errorf("%s: %q", name, text)
		}
	}
}
