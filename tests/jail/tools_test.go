//go:build e2e

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/tests/e2e/canary"
)

// output runs a program of this machine.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out.String(), errOut.String())
	}
	return out.String()
}

// write makes a file with the directories above it.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// A buffer may be read while a process writes to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A live is an ai-sandbox that runs while the test does something else.
type live struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  buffer
	err  buffer
	done chan struct{}
}

// start starts one; the test ends it, or its cleanup does.
func (b *box) start(t *testing.T, args ...string) *live {
	t.Helper()
	l := &live{t: t, cmd: b.command(context.Background(), args...), done: make(chan struct{})}
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.err
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // the state tells
		close(l.done)
	}()
	t.Cleanup(func() {
		select {
		case <-l.done:
			return
		default:
		}
		_ = l.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
		select {
		case <-l.done:
		case <-time.After(30 * time.Second):
			t.Errorf("ai-sandbox does not end on SIGTERM")
			_ = l.cmd.Process.Kill() // likewise
			<-l.done
		}
	})
	return l
}

// wait returns the result of one that ends by itself.
func (l *live) wait(limit time.Duration) result {
	l.t.Helper()
	select {
	case <-l.done:
	case <-time.After(limit):
		l.t.Fatalf("ai-sandbox has not ended within %v\nstdout: %s\nstderr: %s", limit, l.out.String(), l.err.String())
	}
	code := l.cmd.ProcessState.ExitCode()
	if ws, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = -int(ws.Signal())
	}
	return result{Code: code, Out: l.out.String(), Err: l.err.String()}
}

// background runs one until stop, which ends its input and expects exit code 0.
func (b *box) background(t *testing.T, args ...string) (l *live, stop func()) {
	t.Helper()
	l = b.start(t, args...)
	return l, func() {
		t.Helper()
		l.in.Close()
		if r := l.wait(30 * time.Second); r.Code != 0 {
			t.Errorf("the session in the background: %s", r)
		}
	}
}

// file waits for a file of the project and returns what is in it.
func (b *box) file(t *testing.T, name string) string {
	t.Helper()
	var data []byte
	eventually(t, 20*time.Second, "the file "+name+" of the project", func() bool {
		var err error
		data, err = os.ReadFile(filepath.Join(b.dir, name))
		return err == nil && len(data) > 0
	})
	return strings.TrimSpace(string(data))
}

// size is the length of a file of the project, 0 when it is not there.
func (b *box) size(name string) int64 {
	info, err := os.Stat(filepath.Join(b.dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// The directories that ai-sandbox keeps, below those of w.env.
func stateDir() string   { return filepath.Join(w.own, "home", "state", "ai-sandbox") }
func runtimeDir() string { return filepath.Join(w.own, "run", "ai-sandbox") }

// A process of this machine, as /proc has it.
type process struct {
	pid, parent int
	start       string
	argv        string
}

func (p process) String() string { return fmt.Sprintf("%d (parent %d) %s", p.pid, p.parent, p.argv) }

// children are the processes below this one, however deep: whatever the tests
// started, since an orphan comes to this process.
func children(t *testing.T) []process {
	t.Helper()
	return processesBelow(os.Getpid())
}

// processesBelow are those below a process, parents first.
func processesBelow(top int) []process {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic(err)
	}
	below := map[int][]process{}
	for _, name := range names {
		stat, err1 := os.ReadFile(filepath.Join(name, "stat"))
		argv, err2 := os.ReadFile(filepath.Join(name, "cmdline"))
		pid, err3 := strconv.Atoi(filepath.Base(name))
		if err1 != nil || err2 != nil || err3 != nil {
			continue // it has ended
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 20 || f[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil {
			panic(err)
		}
		below[parent] = append(below[parent], process{pid, parent, f[19], strings.TrimSpace(strings.ReplaceAll(string(argv), "\x00", " "))})
	}
	var out []process
	for todo := []int{top}; len(todo) > 0; todo = todo[1:] {
		for _, p := range below[todo[0]] {
			out = append(out, p)
			todo = append(todo, p.pid)
		}
	}
	return out
}

// find returns those of the tests' processes whose argv holds each of the words.
func find(t *testing.T, words ...string) []process {
	t.Helper()
	return slices.DeleteFunc(children(t), func(p process) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.argv, w) })
	})
}

// tree is pid and all below it.
func tree(t *testing.T, pid int) []process {
	t.Helper()
	in := map[int]bool{pid: true}
	var out []process
	for _, p := range children(t) { // parents come first
		if in[p.parent] || p.pid == pid {
			in[p.pid] = true
			out = append(out, p)
		}
	}
	return out
}

func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// A state is what a session could leave behind.
type state map[string]bool

// snapshot takes everything that is there now.
func snapshot(t *testing.T) state {
	t.Helper()
	s := state{}
	for _, p := range children(t) {
		s[fmt.Sprintf("process %d %s %s", p.pid, p.start, p.argv)] = true
	}
	for _, root := range []string{filepath.Join(w.own, "run"), filepath.Join(w.own, "tmp"), filepath.Join(w.own, "home")} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // what vanishes while it is walked is not left behind
			}
			// Homes stay; what is in one is the agent's.
			if filepath.Dir(filepath.Dir(path)) == filepath.Join(stateDir(), "homes") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(path, ".lock") && !canary.Kept(stateDir(), path) {
				s["file "+path] = true
			}
			return nil
		})
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		data, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 3 && (f[3] == "0A" || strings.HasPrefix(table, "udp") && f[3] == "07" && strings.HasSuffix(f[2], ":0000")) {
				s["listener "+table+" "+f[1]] = true
			}
		}
	}
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 8 && f[0] != "Num" {
			s["socket "+f[7]] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		s["mount "+strings.Fields(line)[4]] = true
	}
	return s
}

// minus is what is in s and was not in before.
func (s state) minus(before state) []string {
	var out []string
	for k := range s {
		if !before[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// nothingLeft fails when more is there than before, after a moment's grace.
func nothingLeft(t *testing.T, before state, grace time.Duration) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(grace); ; time.Sleep(20 * time.Millisecond) {
		if left = snapshot(t).minus(before); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

// kill ends processes of the tests, and waits until they are gone.
func kill(t *testing.T, victims ...process) {
	t.Helper()
	if len(victims) == 0 {
		t.Fatalf("no such process among %v", children(t))
	}
	for _, p := range victims {
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// A terminal is a pseudo terminal with an ai-sandbox on it.
type terminal struct {
	t      *testing.T
	fd     int // of master
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	done   chan struct{}
	out    buffer
}

// onTerminal starts ai-sandbox on a terminal of its own, as a shell does.
func (b *box) onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	// Not blocking, so that closing it ends the reading of it.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &terminal{t: t, fd: fd, master: master, slave: slave, cmd: b.command(context.Background(), args...), done: make(chan struct{})}
	m.resize(100, 30)
	m.cmd.Stdin, m.cmd.Stdout, m.cmd.Stderr = slave, slave, slave
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&m.out, master) }() // ends with the terminal
	go func() {
		_ = m.cmd.Wait() // the state tells
		close(m.done)
	}()
	t.Cleanup(func() {
		select {
		case <-m.done:
		default:
			_ = m.cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
			<-m.done
		}
		slave.Close()
		master.Close()
	})
	return m
}

func (m *terminal) resize(cols, rows int) {
	m.t.Helper()
	if err := unix.IoctlSetWinsize(m.fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *terminal) expect(what string) {
	m.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(m.out.String(), what) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the terminal does not show %q, but %q", what, m.out.String())
		}
	}
}

func (m *terminal) send(s string) {
	m.t.Helper()
	if _, err := io.WriteString(m.master, s); err != nil {
		m.t.Fatal(err)
	}
}

func (m *terminal) wait() int {
	m.t.Helper()
	select {
	case <-m.done:
	case <-time.After(30 * time.Second):
		m.t.Fatalf("ai-sandbox has not ended; the terminal shows %q", m.out.String())
	}
	return m.cmd.ProcessState.ExitCode()
}

// settings are the terminal's own, as the user's shell would find them.
func (m *terminal) settings() unix.Termios {
	m.t.Helper()
	s, err := unix.IoctlGetTermios(int(m.slave.Fd()), unix.TCGETS)
	if err != nil {
		m.t.Fatal(err)
	}
	return *s
}

// isolated is a command in namespaces of its own, where root's files are root's
// still, after a shell script that may change what only root may change. It takes
// root; in the namespaces that a user can make nothing of the system is root's,
// and so all of it is passed over.
func isolated(cmd *exec.Cmd, script string) *exec.Cmd {
	out := exec.Command("sh", append([]string{"-c", script + ` && exec "$@"`, "sh"}, cmd.Args...)...)
	out.Dir, out.Env = cmd.Dir, cmd.Env
	out.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{Size: 65536}}, GidMappings: []syscall.SysProcIDMap{{Size: 65536}},
		GidMappingsEnableSetgroups: true,
	}
	return out
}

// hiding is isolated without a program of the machine.
func hiding(name string) func(*exec.Cmd) *exec.Cmd {
	return func(cmd *exec.Cmd) *exec.Cmd {
		return isolated(cmd, `for p in $(command -v `+name+`) /usr/bin/`+name+` /usr/sbin/`+name+`; do test ! -e $p || mount --bind /dev/null $p || exit 99; done`)
	}
}

// withUserNamespaces is isolated with at most n user namespaces below.
func withUserNamespaces(n int) func(*exec.Cmd) *exec.Cmd {
	return func(cmd *exec.Cmd) *exec.Cmd {
		return isolated(cmd, fmt.Sprintf(`echo %d >/proc/sys/user/max_user_namespaces`, n))
	}
}

// runIn is run for a changed command.
func (b *box) runIn(wrap func(*exec.Cmd) *exec.Cmd, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	cmd := wrap(b.command(ctx, args...))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil {
		b.t.Fatalf("%q: %v", cmd.Args, err)
	}
	return result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}
