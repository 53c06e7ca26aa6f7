//go:build e2e

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

	"ai-sandbox/tests/e2e/canary"
	"ai-sandbox/tests/e2e/drive"
)

// write makes a file with the directories above it.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // as drive.WriteProgram: it may be one
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
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

// nothingLeft fails when more is there than before, after a moment's grace: on a busy
// machine the kernel and conmon are at their end later than the session.
func nothingLeft(t *testing.T, before state) {
	t.Helper()
	nothingLeftBut(t, before, func(string) bool { return false })
}

func nothingLeftBut(t *testing.T, before state, stays func(string) bool) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if left = slices.DeleteFunc(snapshot(t).minus(before), stays); len(left) == 0 {
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
func (b *box) runIn(wrap func(*exec.Cmd) *exec.Cmd, args ...string) drive.Result {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), drive.RunTime)
	defer cancel()
	cmd := wrap(b.Command(ctx, args...))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil {
		b.T.Fatalf("%q: %v", cmd.Args, err)
	}
	return drive.Result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}
