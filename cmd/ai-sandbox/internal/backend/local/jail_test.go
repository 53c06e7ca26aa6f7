//go:build jail

// Real jails. The test binary itself is what runs inside, as PID 1 in the place of
// the entrypoint: it is told what to try on its standard input, a line each, and
// writes what came of it.

package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/policy"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "session" && os.Getpid() == 1 {
		os.Exit(inside())
	}
	os.Exit(m.Run())
}

// inside does what it is told.
func inside() int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch verb {
		case "exit":
			n, _ := strconv.Atoi(arg)
			return n
		case "say":
			fmt.Println(arg)
		case "stderr":
			fmt.Fprintln(os.Stderr, arg)
		case "cat":
			_, _ = io.Copy(os.Stdout, in)
		case "die":
			_ = unix.Kill(1, unix.SIGKILL) // PID 1 can't do that to itself
		case "sh":
			cmd := exec.Command("/bin/sh", "-c", arg)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
			if err := cmd.Run(); err != nil {
				fmt.Println(err)
			}
		default:
			fmt.Println(try(verb, arg))
		}
	}
}

// try is one try's result in a word or two.
func try(verb, path string) string {
	var err error
	switch verb {
	case "write": // opens only: nothing is ever written
		var f *os.File
		if f, err = os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	case "read":
		var b []byte
		if b, err = os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	case "chmod": // to the mode that it has
		var info os.FileInfo
		if info, err = os.Stat(path); err == nil {
			err = os.Chmod(path, info.Mode())
		}
	case "mkdir":
		err = os.Mkdir(path, 0o700)
	case "userns":
		_, err = syscall.ForkExec("/proc/self/exe", []string{"x"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
	case "walk":
		return strings.Join(opened(path, os.O_WRONLY), " ")
	case "secrets":
		return strings.Join(opened(path, os.O_RDONLY), " ")
	case "fds":
		entries, _ := os.ReadDir("/proc/self/fd")
		var out []string
		for _, e := range entries {
			to, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasSuffix(to, "/fd") {
				continue // Go's own, and the one that reads the directory
			}
			kind, _, _ := strings.Cut(to, ":")
			out = append(out, e.Name()+"="+kind)
		}
		return strings.Join(out, " ")
	case "environ":
		return strings.Join(os.Environ(), " ")
	case "tty":
		fd, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
		if err == nil {
			unix.Close(fd)
		}
		return fmt.Sprint(err)
	case "groups":
		g, err := os.Getgroups()
		return fmt.Sprint(g, err)
	default:
		err = fmt.Errorf("no verb %s", verb)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return fmt.Sprint(err)
}

// opened lists the files below dir, processes left out, that can be opened: all
// that can for writing, or those for reading that not everybody may read.
func opened(dir string, flag int) (out []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if _, perr := strconv.Atoi(d.Name()); perr == nil && filepath.Dir(path) == "/proc" {
			return fs.SkipDir
		}
		if path == "/proc/sys" && flag == os.O_RDONLY {
			return fs.SkipDir // a few numbers of the kernel's, and keys of the jail's own network
		}
		info, err := d.Info()
		if err != nil || !d.Type().IsRegular() || flag == os.O_RDONLY && info.Mode().Perm()&0o004 != 0 {
			return nil
		}
		if f, err := os.OpenFile(path, flag|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
			out = append(out, path)
		}
		return nil
	})
	return out
}

// A box is a jail in the making.
type box struct {
	t       *testing.T
	b       *Backend
	sandbox backend.Sandbox
	project string
	control string
}

// newBox makes a backend with a jail's directories in one of its own.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	x := &box{t: t, project: filepath.Join(dir, "project"), control: filepath.Join(dir, "control")}
	x.b = New(Config{Bwrap: bwrap, StateDir: filepath.Join(dir, "state"), Entrypoint: func() (*io.SectionReader, string, error) {
		return io.NewSectionReader(bytes.NewReader(program), 0, int64(len(program))), fmt.Sprintf("%08x", crc32.ChecksumIEEE(program)), nil
	}})
	for _, d := range []string{x.project, x.control} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := "aisb-home-" + strings.ToLower(filepath.Base(dir))
	if _, err := x.b.EnsureHome(t.Context(), home, "", nil); err != nil {
		t.Fatal(err)
	}
	x.sandbox = backend.Sandbox{Name: "aisb-test", Session: "test", ControlDir: x.control, Policy: policy.Policy{
		Runtime: policy.RuntimeLocal, Isolation: policy.IsolationProcess, Net: policy.Net{Mode: policy.NetNone},
		Mounts: []policy.Mount{
			{Kind: policy.KindBind, Source: "/usr", Target: "/usr", ReadOnly: true},
			{Kind: policy.KindSymlink, Source: "usr/bin", Target: "/bin"},
			{Kind: policy.KindSymlink, Source: "usr/lib", Target: "/lib"},
			{Kind: policy.KindSymlink, Source: "usr/lib64", Target: "/lib64"},
			{Kind: policy.KindProc, Target: "/proc"},
			{Kind: policy.KindDev, Target: "/dev", ReadOnly: true},
			{Kind: policy.KindTmpfs, Target: "/dev/shm", SizeBytes: 1 << 20, Mode: "1777"},
			{Kind: policy.KindTmpfs, Target: "/tmp", SizeBytes: 1 << 20, Mode: "1777"},
			{Kind: policy.KindFile, Target: "/etc/hosts", ReadOnly: true, Content: []byte("127.0.0.1 localhost\n")},
			{Kind: policy.KindFile, Target: "/etc/big", ReadOnly: true, Content: bytes.Repeat([]byte("x"), 1<<20)},
			{Kind: policy.KindBind, Source: filepath.Join(Homes(filepath.Join(dir, "state")), home), Target: policy.HomeDir},
			{Kind: policy.KindBind, Source: x.project, Target: "/w/project", Why: policy.WhyProject},
			{Kind: policy.KindProgram, Target: policy.EntrypointPath, ReadOnly: true},
			{Kind: policy.KindBind, Source: "/nonexistent", Target: "/run/aisb", ReadOnly: true, Why: policy.WhyControl},
		},
	}}
	return x
}

// create makes the jail and attaches; wait returns when the output has ended.
func (x *box) create(stdin io.Reader) (id string, out, errs *bytes.Buffer, wait func() error) {
	x.t.Helper()
	id, err := x.b.CreateSandbox(x.t.Context(), x.sandbox)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		if err := x.b.Remove(context.Background(), id); err != nil {
			x.t.Error(err)
		}
	})
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	done := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		done <- x.b.Attach(context.Background(), id, false, backend.Streams{Stdin: stdin, Stdout: out, Stderr: errs}, ready)
	}()
	<-ready
	return id, out, errs, func() error { return <-done }
}

// run does the lines inside, and returns the answers.
func (x *box) run(lines ...string) []string {
	x.t.Helper()
	id, out, errs, wait := x.create(strings.NewReader(strings.Join(lines, "\n") + "\n"))
	if err := x.b.Start(x.t.Context(), id); err != nil {
		x.t.Fatal(err)
	}
	if err := wait(); err != nil {
		x.t.Fatal(err)
	}
	if errs.Len() > 0 {
		x.t.Errorf("standard error: %s", errs)
	}
	if err := x.b.Remove(x.t.Context(), id); err != nil {
		x.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestInside: each pair is what is tried and what has to come of it; a refusal has
// something like it that works beside it.
func TestInside(t *testing.T) {
	x := newBox(t)
	// Root's jail has root's files, and a user's has not: there, already the
	// files' own mode refuses.
	refused, notOwner := "EACCES", "EPERM"
	if os.Geteuid() == 0 {
		refused, notOwner = "EROFS", "EROFS"
	}
	asked := [][2]string{
		// The kernel's switches: nothing is written, opening is enough.
		{"write /proc/sys/kernel/core_pattern", refused},
		{"write /proc/sys/vm/drop_caches", refused},
		{"walk /proc", ""},
		{"secrets /proc", ""},
		{"read /proc/sys/kernel/ostype", "Linux"},
		{"read /proc/self/comm", "aisb-entrypoint"},
		// The host's nodes: usable, and their modes stay.
		{"chmod /dev/null", notOwner},
		{"chmod /dev/tty", notOwner},
		{"chmod /dev/urandom", notOwner},
		{"write /dev/null", "<nil>"},
		{"sh echo x >/dev/null && echo written", "written"},
		{"mkdir /dev/x", "EROFS"},
		{"mkdir /dev/shm/x", "<nil>"},
		{"tty", "no such device or address"},
		{"sh ls /dev", "core\nfd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
		// The file system.
		{"mkdir /x", "EROFS"},
		{"mkdir /etc/x", "EROFS"},
		{"mkdir /usr/x", "EROFS"},
		{"chmod /usr", "EROFS"},
		{"chmod /etc/hosts", "EROFS"},
		{"write /etc/hosts", "EACCES"},
		{"write " + policy.EntrypointPath, "EACCES"},
		{"chmod " + policy.EntrypointPath, "EROFS"},
		{"mkdir /run/aisb/x", "EROFS"},
		{"mkdir /tmp/x", "<nil>"},
		{"mkdir /w/project/x", "<nil>"},
		{"mkdir " + policy.HomeDir + "/x", "<nil>"},
		{"read /etc/hosts", "127.0.0.1 localhost"},
		{"sh wc -c </etc/big", "1048576"},
		{"sh stat -c %a /etc/hosts /tmp /dev/shm", "444\n1777\n1777"},
		{"sh ls /", "bin\ndev\netc\nhome\nlib\nlib64\nproc\nrun\ntmp\nusr\nw"},
		{"sh cat /proc/net/dev | grep -c :", "1"},
		// What it is.
		{"sh id -u; id -g; hostname", "1000\n1000\nsandbox"},
		{"environ", "PWD=/"}, // bubblewrap's; the entrypoint takes nothing of it
		{"fds", "0=pipe 1=pipe 2=pipe"},
		{"userns", "ENOSPC"},
		{"sh grep -c '^Cap.*0000000000000000$' /proc/self/status", "5"},
		{"sh grep NoNewPrivs /proc/self/status | tr -d '\\t'", "NoNewPrivs:1"},
	}
	for _, p := range append([]string{"/proc/sysrq-trigger"}, masked...) {
		info, err := os.Stat(p)
		if err != nil || info.IsDir() {
			continue // not every kernel has each
		}
		if p == "/proc/sysrq-trigger" {
			asked = append(asked, [2]string{"write " + p, refused})
		} else {
			asked = append(asked, [2]string{"read " + p, "EACCES"})
		}
	}
	if os.Geteuid() == 0 {
		old, err := os.Getgroups()
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setgroups([]int{4242}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Setgroups(old); err != nil {
				t.Error(err)
			}
		})
		asked = append(asked, [2]string{"groups", "[] <nil>"})
	}
	// What this program itself was started with does not get in.
	leak, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	t.Setenv("AISB_TEST_CANARY", "x")
	var lines []string
	for _, a := range asked {
		lines = append(lines, a[0], "say --")
	}
	got := strings.Split(strings.Join(x.run(lines...), "\n")+"\n", "--\n")
	for i, a := range asked {
		if g := strings.Trim(got[i], "\n"); g != a[1] {
			t.Errorf("%s: %q, and not %q", a[0], g, a[1])
		}
	}
	if _, err := os.Stat(filepath.Join(x.project, "x")); err != nil {
		t.Error(err)
	}
}

func TestStreams(t *testing.T) {
	x := newBox(t)
	blob := make([]byte, 3<<20)
	for i := range blob {
		blob[i] = byte(i * i >> 3)
	}
	id, out, errs, wait := x.create(io.MultiReader(strings.NewReader("stderr this\ncat\n"), bytes.NewReader(blob)))
	if err := x.b.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(out.Bytes(), blob) {
		t.Errorf("%d bytes came back of %d, or others", out.Len(), len(blob))
	}
	if errs.String() != "this\n" {
		t.Errorf("standard error %q", errs)
	}
	if code, err := x.b.Exit(t.Context(), id); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	if err := x.b.Start(t.Context(), id); !errors.Is(err, errStarted) {
		t.Errorf("a second start: %v", err)
	}
	if err := x.b.Attach(t.Context(), id, false, backend.Streams{}, make(chan struct{})); !errors.Is(err, errAttached) {
		t.Errorf("a second attach: %v", err)
	}
}

// TestNoReader: nobody reads the output any more.
func TestNoReader(t *testing.T) {
	x := newBox(t)
	id, err := x.b.CreateSandbox(t.Context(), x.sandbox)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	done := make(chan error, 1)
	go func() {
		done <- x.b.Attach(t.Context(), id, false, backend.Streams{Stdin: strings.NewReader("sh while :; do echo y; done\n"), Stdout: w, Stderr: io.Discard}, make(chan struct{}))
	}()
	if err := x.b.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("attach: %v", err)
	}
	if err := x.b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestExit: its own code, or 128 and the signal's number.
func TestExit(t *testing.T) {
	for line, want := range map[string]int{"exit 42": 42, "exit 0": 0} {
		x := newBox(t)
		id, _, _, wait := x.create(strings.NewReader(line + "\n"))
		if err := x.b.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
		if code, err := x.b.Exit(t.Context(), id); code != want || err != nil {
			t.Errorf("%s: %d, %v", line, code, err)
		}
	}
}

// blocked starts a jail that does nothing, and returns its id and PID 1.
func (x *box) blocked(lines string) (id string, child int, wait func() error) {
	x.t.Helper()
	r, w := io.Pipe()
	x.t.Cleanup(func() { w.Close() })
	id, _, _, wait = x.create(io.MultiReader(strings.NewReader(lines), r))
	if err := x.b.Start(x.t.Context(), id); err != nil {
		x.t.Fatal(err)
	}
	p, err := x.b.get(id)
	if err != nil {
		x.t.Fatal(err)
	}
	return id, p.child, wait
}

// running is blocked, once the program inside has been heard of: until then, PID 1
// may still be bubblewrap's.
func (x *box) running() (id string, child int, wait func() error) {
	x.t.Helper()
	marker := filepath.Join(x.project, "running")
	if err := unix.Mkfifo(marker, 0o600); err != nil {
		x.t.Fatal(err)
	}
	id, child, wait = x.blocked("sh echo x >/w/project/running\n")
	if _, err := os.ReadFile(marker); err != nil {
		x.t.Fatal(err)
	}
	return id, child, wait
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

func TestRemove(t *testing.T) {
	x := newBox(t)
	id, child, wait := x.blocked("")
	p, err := x.b.get(id)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Error("it does not run")
	}
	if l, err := x.b.List(t.Context()); err != nil || len(l) != 1 || l[0].ID != id || l[0].Session != "test" || !l[0].Running {
		t.Errorf("%+v, %v", l, err)
	}
	for range 3 {
		if err := x.b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if alive(child) || alive(p.cmd.Process.Pid) {
		t.Error("it is still there")
	}
	if err := wait(); err != nil {
		t.Errorf("attach: %v", err)
	}
	if _, err := x.b.Exit(t.Context(), id); !errors.Is(err, backend.ErrNotExist) {
		t.Errorf("exit: %v", err)
	}
	if l, err := x.b.List(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	// One that was never started, and a stopped bubblewrap.
	id, _, _, wait = x.create(nil)
	if err := x.b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := wait(); err != nil {
		t.Errorf("attach: %v", err)
	}
	if err := x.b.Start(t.Context(), id); !errors.Is(err, backend.ErrNotExist) {
		t.Errorf("start: %v", err)
	}
	id, _, _ = x.blocked("")
	if p, err = x.b.get(id); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := x.b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	if alive(p.cmd.Process.Pid) {
		t.Error("it is still there")
	}
}

// TestDeaths: whoever dies, all die.
func TestDeaths(t *testing.T) {
	x := newBox(t)
	id, child, wait := x.blocked("sh sleep 1000 & :\n")
	p, err := x.b.get(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil { // the output ends when nobody has it any more
		t.Error(err)
	}
	if code, err := x.b.Exit(t.Context(), id); code != 137 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := awaitFD(ctx, p.childFD); err != nil {
		t.Errorf("bubblewrap was killed, and PID 1 (%d): %v", child, err)
	}
}

// ownerFile is set in the process that TestOwnerDies kills: where it tells PID 1.
const ownerFile = "AISB_TEST_OWNER_FILE"

// TestOwnerDies: nothing survives the process that holds the jail, whatever runs
// inside; the program here does not even look at a lifeline.
func TestOwnerDies(t *testing.T) {
	if file := os.Getenv(ownerFile); file != "" {
		x := newBox(t)
		_, child, _ := x.running()
		if err := os.WriteFile(file+".new", []byte(strconv.Itoa(child)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnerDies$")
	cmd.Env = append(os.Environ(), ownerFile+"="+file, "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	var err error
	for range 1000 {
		if text, err = os.ReadFile(file); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	pid, perr := strconv.Atoi(string(text))
	if err != nil || perr != nil {
		t.Fatalf("it has no jail: %v, %v", err, errors.Join(perr, cmd.Process.Kill()))
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), "pidfd")
	defer child.Close()
	if ended(child) {
		t.Error("the jail does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := awaitFD(ctx, child); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	x := newBox(t)
	id, _, _ := x.running()
	want, err := jailOf(x.sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.b.verify(t.Context(), id, want, false); err != nil {
		t.Errorf("as asked for: %v", err)
	}
	// Each of these is another jail than the one that runs.
	for name, c := range map[string]struct {
		change func(*jail, *Backend)
		want   string
	}{
		"host network": {func(j *jail, _ *Backend) { j.hostNet = true }, "it has a net namespace of its own"},
		"read-only":    {func(j *jail, _ *Backend) { at(j, "/w/project").ReadOnly = true }, "/w/project is writable"},
		"writable":     {func(j *jail, _ *Backend) { at(j, "/usr").ReadOnly = false }, "/usr is read-only"},
		"source":       {func(j *jail, _ *Backend) { at(j, "/w/project").Source = "/tmp" }, "/w/project is another one"},
		"missing": {func(j *jail, _ *Backend) {
			j.mounts = append(j.mounts, policy.Mount{Kind: policy.KindTmpfs, Target: "/opt"})
		}, "nothing is mounted at /opt"},
		"more":    {func(j *jail, _ *Backend) { j.mounts = slices.DeleteFunc(j.mounts, isAt("/tmp")) }, "/tmp is mounted"},
		"type":    {func(j *jail, _ *Backend) { at(j, "/usr").Kind = policy.KindTmpfs }, "/usr is of type"},
		"options": {func(j *jail, _ *Backend) { j.args = []string{"other"} }, "bubblewrap runs with other options"},
	} {
		j := want
		j.mounts = slices.Clone(want.mounts)
		c.change(&j, x.b)
		if err := x.b.verify(t.Context(), id, j, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := x.b.verify(t.Context(), id, want, true); err == nil || !strings.Contains(err.Error(), "Seccomp is") {
		t.Errorf("without a filter: %v", err)
	}
	if err := x.b.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := x.b.verify(t.Context(), id, want, false); err == nil {
		t.Error("a jail that is gone is as asked for")
	}
}

func at(j *jail, target string) *policy.Mount {
	return &j.mounts[slices.IndexFunc(j.mounts, isAt(target))]
}

func isAt(target string) func(policy.Mount) bool {
	return func(m policy.Mount) bool { return m.Target == target }
}

// TestVerifyBites: a bubblewrap that leaves something out is found.
func TestVerifyBites(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for drop, want := range map[string]string{
		"--unshare-net":    "it shares the net namespace",
		"--unshare-ipc":    "it shares the ipc namespace",
		"--unshare-cgroup": "it shares the cgroup namespace",
		"--cap-drop":       "CapBnd", // for root alone: a user's jail has none anyway
	} {
		if drop == "--cap-drop" && os.Geteuid() != 0 {
			continue
		}
		x := newBox(t)
		fake := filepath.Join(x.project, "bwrap")
		// The program's first argument becomes what the kernel shows.
		script := "#!/bin/bash\nargs=()\nwhile (($#)); do\n  if [[ $1 == " + drop + " ]]; then shift; [[ " + drop + " == --cap-drop ]] && shift; continue; fi\n  args+=(\"$1\"); shift\ndone\nexec " + real + " \"${args[@]}\"\n"
		if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		x.b.config.Bwrap = fake
		id, _, _ := x.running()
		j, err := jailOf(x.sandbox)
		if err != nil {
			t.Fatal(err)
		}
		err = x.b.verify(t.Context(), id, j, false)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "other options") {
			t.Errorf("without %s: %v", drop, err)
		}
		if err := x.b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// TestStartFails: bubblewrap's complaint is the error of the start, in a sentence,
// and nothing of it gets to the caller's streams.
func TestStartFails(t *testing.T) {
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(x *box)
		want   string
	}{
		"source": {func(x *box) { x.sandbox.Policy.Mounts[0].Source = "/nonexistent/usr" }, "bubblewrap could not make it: Can't find source path /nonexistent/usr: No such file or directory"},
		"user namespace": {func(x *box) {
			fake := filepath.Join(x.project, "bwrap")
			script := "#!/bin/sh\necho 'bwrap: No permissions to create new namespace, likely because the kernel does not allow it' >&2\nexit 1\n"
			if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			x.b.config.Bwrap = fake
		}, "bubblewrap can't make a user namespace here (No permissions to create new namespace, likely because the kernel does not allow it); ai-sandbox doctor --runtime local names what is in the way"},
		"silent": {func(x *box) {
			fake := filepath.Join(x.project, "bwrap")
			if err := os.WriteFile(fake, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			x.b.config.Bwrap = fake
		}, "bubblewrap does not tell its child"},
		"not there": {func(x *box) { x.b.config.Bwrap = real + ".none" }, "run bubblewrap: fork/exec"},
	} {
		x := newBox(t)
		c.change(x)
		id, out, errs, wait := x.create(strings.NewReader("sh echo never\n"))
		err := x.b.Start(t.Context(), id)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if werr := wait(); werr != nil || out.Len()+errs.Len() > 0 {
			t.Errorf("%s: attach: %v, %q, %q", name, werr, out, errs)
		}
	}
}

// TestCancelled: a start that takes forever ends with its context.
func TestCancelled(t *testing.T) {
	x := newBox(t)
	fake := filepath.Join(x.project, "bwrap")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	x.b.config.Bwrap = fake
	id, _, _, _ := x.create(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := x.b.Start(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := x.b.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// TestPlanted: a link that an earlier run left in its home does not lead out when
// something is mounted below.
func TestPlanted(t *testing.T) {
	x := newBox(t)
	out := filepath.Join(filepath.Dir(x.project), "outside")
	secret := filepath.Join(filepath.Dir(x.project), "secret")
	if err := os.Mkdir(out, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := at(&jail{mounts: x.sandbox.Policy.Mounts}, policy.HomeDir).Source
	x.sandbox.Policy.Mounts = append(x.sandbox.Policy.Mounts,
		policy.Mount{Kind: policy.KindBind, Source: secret, Target: policy.HomeDir + "/.agent/key", ReadOnly: true})
	for _, link := range []string{out, "/oldroot" + out, "../../outside"} {
		if err := os.Symlink(link, filepath.Join(home, ".agent")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.b.CreateSandbox(t.Context(), x.sandbox); !errors.Is(err, tree.ErrPlanted) {
			t.Errorf("%s: %v", link, err)
		}
		if err := os.Remove(filepath.Join(home, ".agent")); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if got := x.run("read " + policy.HomeDir + "/.agent/key"); got[0] != "s" {
		t.Errorf("without a link: %q", got)
	}
}
