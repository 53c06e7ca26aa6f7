//go:build e2e

// Package jail drives the built ai-sandbox on its local runtime, against real
// bubblewrap. It runs on any machine that has bubblewrap, in a network namespace
// of its own with a small internet in it (tests/e2e/internet), as root or as a
// normal user, and in the test host; tests/jail/run does both. A verdict is what
// the far servers and the DNS server saw, and each refusal has a positive control
// beside it. Nothing is skipped.
package jail

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"

	"golang.org/x/sys/unix"

	"ai-sandbox/tests/e2e/internet"
)

// w is what every test stands on; TestMain makes it.
var w struct {
	bin   string // the directory of ai-sandbox and the probe
	own   string // everything of the tests
	caPEM string
	net   *internet.Internet
	env   []string // of every ai-sandbox
	// testHost: there is a way out, and squid, node and npm are there.
	testHost bool
}

const (
	// inside marks the second run of the test binary, in its own namespaces.
	inside = "AISB_TEST_JAIL"
	// paths is there in the test host.
	paths = "/run/aisb-test/paths"
)

func TestMain(m *testing.M) {
	code, err := setup(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jail:", err)
		code = 1
	}
	os.Exit(code)
}

func setup(m *testing.M) (code int, err error) {
	for _, name := range []string{"bwrap", "ip", "curl", "python3", "git"} {
		if _, err := exec.LookPath(name); err != nil {
			return 1, fmt.Errorf("this machine lacks a program: %w", err)
		}
	}
	_, err = os.Stat(paths)
	w.testHost = err == nil
	if !w.testHost && os.Getenv(inside) == "" {
		return again()
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	w.bin = filepath.Dir(self)
	for _, name := range []string{"ai-sandbox", "probe"} {
		if _, err := os.Stat(filepath.Join(w.bin, name)); err != nil {
			return 1, fmt.Errorf("%w; start this with tests/jail/run", err)
		}
	}
	// Not below /tmp, which a jail has its own of: the projects are to be seen at
	// their own paths.
	cache, err := os.UserCacheDir()
	if err != nil {
		return 1, err
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return 1, err
	}
	if w.own, err = os.MkdirTemp(cache, "aisb-jail"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, removeOwn()) }()
	// Whatever outlives its parent comes to this process, and is seen by it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, err
	}
	for _, dir := range []string{"home", "run", "files", "projects", "tmp", "temp"} {
		if err := os.Mkdir(filepath.Join(w.own, dir), 0o700); err != nil {
			return 1, err
		}
	}
	if err := os.Setenv("TMPDIR", filepath.Join(w.own, "temp")); err != nil { // the tests' own
		return 1, err
	}
	if !w.testHost {
		if err := world(); err != nil {
			return 1, err
		}
	}
	upstream := ""
	if b, err := os.ReadFile("/run/aisb-test/upstream-dns"); err == nil {
		upstream = strings.TrimSpace(string(b))
	}
	if w.net, err = internet.Start(internet.Options{
		CADir: filepath.Join(w.own, "ca"), Upstream: upstream, Files: filepath.Join(w.own, "files"),
	}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, w.net.Close()) }()
	w.caPEM = filepath.Join(w.own, "ca.pem")
	if err := w.net.WriteCA(w.caPEM, "/etc/ssl/certs/ca-certificates.crt"); err != nil {
		return 1, err
	}
	home := filepath.Join(w.own, "home")
	w.env = []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "LANG=C.UTF-8", "TMPDIR=" + filepath.Join(w.own, "tmp"), "XDG_RUNTIME_DIR=" + filepath.Join(w.own, "run"),
		"XDG_STATE_HOME=" + filepath.Join(home, "state"), "XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "XDG_CONFIG_HOME=" + filepath.Join(home, "config"),
		"AISB_RUNTIME=local", "AISB_CA_FILE=" + w.caPEM,
	}
	code = m.Run()
	return code, errors.Join(strays(), orphans())
}

// removeOwn removes everything of the tests; what agents have shut is opened for
// it.
func removeOwn() error {
	_ = filepath.WalkDir(w.own, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // the removal tells
		}
		return nil //nolint:nilerr // likewise
	})
	return os.RemoveAll(w.own)
}

// orphans ends what the tests have started and not ended, which is an error.
func orphans() error {
	var errs []error
	left := processesBelow(os.Getpid())
	ours := func(p process) bool {
		return !strings.Contains(p.argv, "podman") && !strings.Contains(p.argv, "catatonit -P")
	}
	for end := time.Now().Add(15 * time.Second); slices.ContainsFunc(left, ours) && time.Now().Before(end); left = processesBelow(os.Getpid()) {
		time.Sleep(20 * time.Millisecond) // what ends just now
	}
	for _, p := range left {
		if !ours(p) { // its service stays by design
			_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may just have ended
			continue
		}
		errs = append(errs, fmt.Errorf("the tests have left a process: %s", p), syscall.Kill(p.pid, syscall.SIGKILL))
	}
	// It writes where everything is removed next.
	for end := time.Now().Add(15 * time.Second); len(processesBelow(os.Getpid())) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			for _, p := range processesBelow(os.Getpid()) {
				_ = syscall.Kill(p.pid, syscall.SIGKILL) // likewise
			}
			break
		}
	}
	return errors.Join(errs...)
}

// again runs the test binary in a network and a mount namespace of its own: as
// root as it is, and as a normal user in a user namespace, where it is the same
// user.
func again() (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN}
	}
	cmd.SysProcAttr = attr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return 1, fmt.Errorf("make namespaces for the tests: %w", err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// world gives the namespaces what the test host has: addresses, and a resolver
// of the tests' own.
func world() error {
	ip := exec.Command("ip", "-batch", "-")
	script := "link set lo up\n"
	for n := 10; n < 30; n++ {
		script += fmt.Sprintf("addr add 198.51.100.%d/32 dev lo\n", n)
	}
	script += "addr add " + internet.DNS + "/32 dev lo\naddr add " + internet.Private + "/32 dev lo\naddr add " + internet.Metadata + "/32 dev lo\n" +
		"addr add " + internet.Refused6 + "/128 dev lo nodad\n"
	ip.Stdin = strings.NewReader(script)
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("add the tests' addresses: %w: %s", err, out)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	resolv := filepath.Join(w.own, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+internet.DNS+"\n"), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return fmt.Errorf("look at the resolver: %w", err)
	}
	if err := unix.Mount(resolv, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("put the tests' resolver in place: %w", err)
	}
	// What the tests start has none of this.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("clear the ambient capabilities: %w", errno)
	}
	return nil
}

// strays is the verdict on the whole run: nobody but the tests themselves ever
// reached the servers that no list names.
func strays() error {
	var errs []error
	for _, h := range w.net.Hits("") {
		for _, ip := range []string{internet.Refused, internet.Private, internet.Metadata, "127.0.0.1:8888", internet.Refused6} {
			if strings.Contains(h.At, ip) && h.Net == "http" && !strings.Contains(h.Path, "control") {
				errs = append(errs, fmt.Errorf("a far server that nobody may reach was reached: %+v", h))
			}
		}
	}
	return errors.Join(errs...)
}

// A box is a project of the local runtime's tests.
type box struct{ *drive.Box }

// newBox makes a project that holds the probe.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(w.own, "projects"), "p")
	if err != nil {
		t.Fatal(err)
	}
	probe, err := os.ReadFile(filepath.Join(w.bin, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	if err := drive.WriteProgram(filepath.Join(dir, "probe"), probe); err != nil {
		t.Fatal(err)
	}
	return &box{&drive.Box{T: t, Dir: dir, Bin: filepath.Join(w.bin, "ai-sandbox"), Base: w.env, Token: "t" + strings.ToLower(filepath.Base(dir)) + "x"}}
}

// control asks a far server from outside, as a jail would have without any
// control in its way: the positive control of a refusal.
func control(t *testing.T, url string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := c.Get(url + "/control")
	if err != nil {
		t.Fatalf("the positive control: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), w.net.Marker) {
		t.Fatalf("the positive control: %s answers %q, %v", url, b, err)
	}
}
