//go:build kernel

// A container without podman: the test binary starts itself in new namespaces,
// builds a root file system of what the machine has, and becomes the
// entrypoint. Or a jail, by the real bubblewrap. The test is the host.

package entrypoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// The container's ids in the machine's numbering; the test must be root.
const firstID = 100000

func TestMain(m *testing.M) {
	if os.Args[0] == "squid" {
		squidMain(os.Args[1:])
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "stage":
			stage()
		case "stagenet":
			stageNet(os.Args[2:])
		case "session", "gate":
			os.Exit(Main(time.Now(), os.Args[1:]))
		case "probe":
			probeMain(os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// A box is one sandbox under test.
type box struct {
	t       *testing.T
	dir     string
	owner   int        // of the files that are the sandbox's user's, outside
	opts    [][]string // of bubblewrap, for a jail
	net     bool       // a network with a device is there before the jail
	groups  []uint32   // of who starts the jail
	files   int        // how many descriptors a jail may have, if not 0
	Spec    spec.Spec
	env     []string // of stage, and of PID 1
	before  func()   // called when PID 1 runs and has no Spec yet
	keep    bool     // leave the FIFOs' names
	test    *spec.GateTest
	tty     *os.File // the terminal's inner end
	input   *os.File // instead of nothing
	output  *os.File // instead of stdout
	role    []string
	in, out *os.File
	keeper  *os.File // out has no end before PID 1 has one
	cmd     *exec.Cmd
	stdout  bytes.Buffer
	stderr  bytes.Buffer
	ended   chan error
	// told are frames that came while others were waited for.
	told   []spec.ToHost
	tested int64 // microseconds of the self-test, as it has told
}

// newBox is a container.
func newBox(t *testing.T, command ...string) *box {
	t.Helper()
	b := makeBox(t, firstID+1000, command)
	table, err := os.ReadFile("/proc/self/mountinfo")
	b.must(err)
	mounts, err := parseMounts(table)
	b.must(err)
	b.Spec.Isolation = spec.IsolationContainer
	b.Spec.Firewall = spec.Firewall{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3128}
	b.Spec.Mounts = []string{"/usr", "/proj", "/tmp", "/run/aisb", "/aisb"}
	for _, m := range mounts {
		if strings.HasPrefix(m.point, "/usr/") {
			b.Spec.Mounts = append(b.Spec.Mounts, m.point) // comes along with /usr
		}
	}
	return b
}

// makeBox is what both kinds have.
func makeBox(t *testing.T, owner int, command []string) *box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("the container's ids can only be mapped by root")
	}
	// Not TempDir, whose parent the container's root may not search.
	dir, err := os.MkdirTemp("", "aisb-kernel-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &box{t: t, dir: dir, owner: owner, role: []string{"session"}, ended: make(chan error, 1)}
	b.must(os.Chmod(b.dir, 0o755))
	for _, d := range []string{"root", "proj", "ctl"} {
		b.must(os.Mkdir(b.path(d), 0o755))
	}
	b.must(os.Chown(b.path("proj"), owner, owner))
	// The machine's own node may be root's alone; where it is not, /tmp may be
	// without devices.
	b.must(unix.Mknod(b.path("tun"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))))
	b.must(os.Chmod(b.path("tun"), 0o666))
	self, err := os.ReadFile("/proc/self/exe")
	b.must(err)
	b.must(os.WriteFile(b.path("aisb"), self, 0o755))
	for _, name := range []string{spec.InName, spec.OutName} {
		b.must(unix.Mkfifo(b.path("ctl", name), 0o600))
		b.must(os.Chown(b.path("ctl", name), owner, owner))
	}
	b.must(os.Chmod(b.path("ctl"), 0o700))
	b.must(os.Chown(b.path("ctl"), owner, owner))
	b.in, err = openFIFO(b.path("ctl", spec.InName), unix.O_RDWR)
	b.must(err)
	b.out, err = openFIFO(b.path("ctl", spec.OutName), unix.O_RDONLY)
	b.must(err)
	b.keeper, err = openFIFO(b.path("ctl", spec.OutName), unix.O_WRONLY)
	b.must(err)
	t.Cleanup(func() {
		b.in.Close()
		b.out.Close()
		if b.cmd != nil && b.cmd.Process != nil {
			b.cmd.Process.Kill()
			<-b.ended
		}
	})

	var st unix.Stat_t
	b.must(unix.Stat(b.path("proj"), &st))
	b.Spec = spec.Spec{
		Version: spec.Version, Session: "test", Command: command, Workdir: "/proj",
		Env: []string{"PATH=/usr/bin:/usr/sbin", "SECRET=canary"}, UID: 1000, GID: 1000,
		Binds: []spec.Bind{{Target: "/proj", Dev: uint64(st.Dev), Ino: st.Ino}},
	}
	return b
}

func (b *box) path(elem ...string) string { return filepath.Join(append([]string{b.dir}, elem...)...) }

func (b *box) must(err error) {
	if err != nil {
		b.t.Helper()
		b.t.Fatal(err)
	}
}

// start starts PID 1 and sends the Spec.
func (b *box) start() {
	b.t.Helper()
	if b.opts != nil {
		b.cmd = b.bwrap()
	} else {
		b.cmd = b.container()
	}
	b.cmd.Env = b.env
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	b.cmd.SysProcAttr.Setsid = true
	if b.input != nil {
		b.cmd.Stdin = b.input
		defer b.input.Close()
	}
	if b.output != nil {
		b.cmd.Stdout = b.output
		defer b.output.Close()
	}
	if b.tty != nil {
		b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = b.tty, b.tty, b.tty
		b.cmd.SysProcAttr.Setctty = true
	}
	b.must(b.cmd.Start())
	// Like conmon, the end of PID 1 is what counts, not of its output.
	go func(cmd *exec.Cmd) {
		err := cmd.Wait()
		b.keeper.Close()
		b.ended <- err
	}(b.cmd)
	if b.before != nil {
		b.before()
	}
	if b.role[0] == "session" {
		b.must(spec.WriteFrame(b.in, spec.ToGuest{Spec: &b.Spec}))
	}
}

// container is PID 1 of the namespaces that stage fills.
func (b *box) container() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append([]string{"stage", b.dir}, b.role...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}},
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: 0, Gid: 0, Groups: []uint32{7, 8}},
	}
	return cmd
}

func (b *box) send(f spec.ToGuest) {
	b.t.Helper()
	b.must(spec.WriteFrame(b.in, f))
}

func (b *box) recv() spec.ToHost {
	b.t.Helper()
	if len(b.told) > 0 {
		f := b.told[0]
		b.told = b.told[1:]
		return f
	}
	var f spec.ToHost
	b.must(b.out.SetReadDeadline(time.Now().Add(time.Minute)))
	if err := spec.ReadFrame(b.out, &f); err != nil {
		b.t.Fatalf("%v\n%s%s", err, b.stdout.String(), b.stderr.String())
	}
	if f.Tested > 0 {
		b.tested = f.Tested
		return b.recv()
	}
	return f
}

// begin starts and lets the command go.
func (b *box) begin() {
	b.t.Helper()
	b.start()
	if f := b.recv(); f.Enforced == nil {
		b.t.Fatalf("not enforced: %+v", f.Refused)
	}
	if !b.keep {
		b.must(os.Remove(b.path("ctl", spec.InName)))
		b.must(os.Remove(b.path("ctl", spec.OutName)))
	}
	if b.test != nil {
		b.send(spec.ToGuest{Gate: b.test})
	}
	b.send(spec.ToGuest{Go: true})
}

func (b *box) started() {
	b.t.Helper()
	b.begin()
	if f := b.recv(); !f.Started {
		b.t.Fatalf("not started: %+v %+v", f.Refused, f.Exited)
	}
}

// end waits for PID 1 and returns its exit code.
func (b *box) end() int {
	b.t.Helper()
	select {
	case err := <-b.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			b.t.Fatal(err)
		}
		code := b.cmd.ProcessState.ExitCode()
		b.cmd = nil
		return code
	case <-time.After(30 * time.Second):
		b.t.Fatalf("PID 1 does not end\n%s%s", b.stdout.String(), b.stderr.String())
		return -1
	}
}

// run runs the command to its end and returns what it wrote.
func (b *box) run() (string, spec.Exited) {
	b.t.Helper()
	b.started()
	f := b.recv()
	if f.Exited == nil {
		b.t.Fatalf("%+v instead of an end", f)
	}
	if code := b.end(); code != f.Exited.Code {
		b.t.Errorf("exit code %d, but told %d", code, f.Exited.Code)
	}
	return b.stdout.String() + b.stderr.String(), *f.Exited
}

// refused starts and wants a refusal, both told and as the exit code.
func (b *box) refused(code int, control, reason string) {
	b.t.Helper()
	b.start()
	f := b.recv()
	if f.Refused == nil {
		b.t.Fatalf("not refused: %+v", f)
	}
	if f.Refused.Code != code || f.Refused.Control != control || !strings.Contains(f.Refused.Reason, reason) {
		b.t.Errorf("refused with %+v, not %d %s %q", *f.Refused, code, control, reason)
	}
	if got := b.end(); got != code {
		b.t.Errorf("exit code %d, not %d", got, code)
	}
	if n := strings.Count(b.stderr.String(), "\n"); n != 1 {
		b.t.Errorf("%d lines on standard error: %q", n, b.stderr.String())
	}
}

// stage is inside the new namespaces, with all capabilities: what a runtime
// does before it starts PID 1.
func stage() {
	dir, args := os.Args[2], os.Args[3:]
	fault := os.Getenv("STAGE_FAULT")
	die := func(what string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "stage:", what, err)
			os.Exit(99)
		}
	}
	root := filepath.Join(dir, "root")
	mount := func(source, target, fstype string, flags uintptr, data string) {
		target = filepath.Join(root, target)
		if st, err := os.Stat(source); err == nil && flags&unix.MS_BIND != 0 && !st.IsDir() {
			die("make", os.WriteFile(target, nil, 0o644))
		} else {
			die("make", os.MkdirAll(target, 0o755))
		}
		die("mount "+target, unix.Mount(source, target, fstype, flags, data))
	}
	die("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	die("root", unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"))
	mount("/usr", "/usr", "", unix.MS_BIND|unix.MS_REC, "")
	for _, l := range []string{"bin", "lib", "lib64"} {
		die("link", os.Symlink("usr/"+l, filepath.Join(root, l)))
	}
	mount("tmpfs", "/dev", "tmpfs", 0, "mode=755")
	mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	die("link", os.Symlink("pts/ptmx", filepath.Join(root, "dev/ptmx")))
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		mount("/dev/"+d, "/dev/"+d, "", unix.MS_BIND, "")
	}
	mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777")
	mount(filepath.Join(dir, "proj"), "/proj", "", unix.MS_BIND, "")
	mount(filepath.Join(dir, "ctl"), "/run/aisb", "", unix.MS_BIND, "")
	mount(filepath.Join(dir, "aisb"), "/aisb", "", unix.MS_BIND, "")
	if os.Getenv("STAGE_GATE") != "" {
		mount(filepath.Join(dir, "gate"), "/gate", "", unix.MS_BIND, "")
	}
	switch fault {
	case "extra mount":
		mount("tmpfs", "/opt", "tmpfs", 0, "")
	case "mount below a device":
		mount("tmpfs", "/dev/shm/x", "tmpfs", 0, "")
	case "project covered":
		mount("tmpfs", "/proj", "tmpfs", 0, "")
	case "project swapped":
		die("umount", unix.Unmount(filepath.Join(root, "proj"), 0))
		mount("tmpfs", "/proj", "tmpfs", 0, "")
	case "gate":
		mount("tmpfs", "/usr/sbin", "tmpfs", 0, "")
		for _, at := range []string{gateConfs, gateLogs} {
			mount(filepath.Join(dir, "proj"), at, "", unix.MS_BIND, "")
		}
		mount(filepath.Join(dir, "aisb"), "/usr/sbin/squid", "", unix.MS_BIND, "")
	case "tmp missing":
		die("umount", unix.Unmount(filepath.Join(root, "tmp"), 0))
	}
	mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	die("device", device("lo", ""))
	if fault != "no device" {
		die("device", device("tap0", filepath.Join(dir, "tun")))
	}
	if fault == "second device" {
		die("device", device("tap1", filepath.Join(dir, "tun")))
	}
	if fault == "table before" {
		die("table", exec.Command("/proc/self/exe", "probe", "table").Run())
	}
	die("old", os.Mkdir(filepath.Join(root, "old"), 0o755))
	die("pivot", unix.PivotRoot(root, filepath.Join(root, "old")))
	die("chdir", os.Chdir("/"))
	die("umount", unix.Unmount("/old", unix.MNT_DETACH))
	die("rmdir", os.Remove("/old"))
	if fault != "writable root" {
		die("read-only", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	}
	// An open directory of the host's, as a careless runtime would leave.
	leak, err := unix.Open("/usr", unix.O_PATH, 0)
	die("open", err)
	die("leak", unix.Dup2(leak, 9))

	keep := map[uintptr]bool{unix.CAP_NET_ADMIN: true, unix.CAP_SETUID: true, unix.CAP_SETGID: true, unix.CAP_SETPCAP: true}
	switch fault {
	case "no net_admin":
		delete(keep, unix.CAP_NET_ADMIN)
	case "no setpcap":
		delete(keep, unix.CAP_SETPCAP)
	case "no setuid":
		delete(keep, unix.CAP_SETUID)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if !keep[c] {
			_ = allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		}
	}
	if fault == "gate" {
		die("groups", syscall.Setgroups(nil))
		die("gid", syscall.Setresgid(1000, 1000, 1000))
		die("uid", syscall.Setresuid(1000, 1000, 1000))
		die("exec", syscall.Exec("/aisb", append([]string{"aisb"}, args...), os.Environ()))
	}
	// Inheritable capabilities survive a change of the user.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	die("capget", unix.Capget(&header, &data[0]))
	for c := range keep {
		data[c/32].Inheritable |= 1 << (c % 32)
	}
	die("capset", unix.Capset(&header, &data[0]))
	die("exec", syscall.Exec("/aisb", append([]string{"aisb"}, args...), os.Environ()))
}

// device brings a device up; a tap is made, with an address next to the gate's.
func device(name, tun string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if tun != "" {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
		if err != nil {
			fd, err = unix.Open(tun, unix.O_RDWR, 0)
		}
		if err != nil {
			return fmt.Errorf("open the tunnel: %w", err)
		}
		defer unix.Close(fd)
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
			return err
		}
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if tun != "" {
		// The mask is that of the address's class, which has the gate's in it.
		if err := ifr.SetInet4Addr([]byte{169, 254, 77, 2}); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(s, unix.SIOCSIFADDR, ifr); err != nil {
			return err
		}
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}
