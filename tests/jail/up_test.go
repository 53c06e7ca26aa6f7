//go:build e2e

package jail

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

	"ai-sandbox/tests/schema"
)

// integration is the document that has the schemas.
const integration = "../../docs/integration.md"

type handle struct {
	ID       string                                  `json:"sandbox_id"`
	Host     string                                  `json:"host"`
	PID      int                                     `json:"pid"`
	Dir      string                                  `json:"workspace_dir"`
	Owned    bool                                    `json:"workspace_owned"`
	Workdir  string                                  `json:"workdir"`
	Log      string                                  `json:"log"`
	Runtime  string                                  `json:"runtime"`
	Reach    struct{ Local struct{ Exec []string } } `json:"reachability"`
	Printed  string                                  `json:"-"`
	Isolated string                                  `json:"isolation"`

	Published []struct {
		Addr     string `json:"addr"`
		HostPort int    `json:"host_port"`
		Port     int    `json:"port"`
	} `json:"published"`
}

func readHandle(t *testing.T, text string) handle {
	t.Helper()
	if err := schema.Documented(integration, "handle", []byte(text)); err != nil {
		t.Errorf("the handle is not as documented: %v: %s", err, text)
	}
	var h handle
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	h.Printed = text
	return h
}

// up starts a sandbox; the test's cleanup takes it down if the test did not.
func (b *box) up(t *testing.T, args ...string) handle {
	t.Helper()
	h := readHandle(t, b.OK(append([]string{"up", "--json"}, args...)...).Out)
	t.Cleanup(func() {
		if r := b.Run("down", h.ID); r.Code != 0 && r.Code != 3 {
			t.Errorf("down: %s", r)
		}
	})
	return h
}

func (b *box) exec(h handle, command ...string) drive.Result {
	b.T.Helper()
	return b.Run(append([]string{"exec", h.ID, "--"}, command...)...)
}

// With no_cwd a sandbox has no project either, and a directory that is named as one
// is refused, not left away.
func TestUpWithoutProject(t *testing.T) {
	b := newBox(t)
	settle(t)
	h := b.up(t, "--net", "none", "--no-cwd")
	if r := b.exec(h, "sh", "-c", "pwd; ls -A; echo x >y"); r.Code != 0 || r.Out != "/project\n" {
		t.Errorf("%s", r)
	}
	if left, err := os.ReadDir(h.Dir); err != nil || len(left) > 0 {
		t.Errorf("the workspace has %v (%v)", left, err)
	}
	b.OK("down", h.ID)
	before := snapshot(t)
	if r := b.Run("up", "--net", "none", "--no-cwd", "."); r.Code != 125 || !strings.Contains(r.Err, "no_cwd (from --no-cwd) mounts no project, and "+b.Dir+" was named as one") {
		t.Errorf("%s", r)
	}
	nothingLeft(t, before)
	h = b.up(t, "--net", "none", "--no-cwd=false", ".")
	r := b.exec(h, "sh", "-c", "echo x >mine")
	if data, err := os.ReadFile(filepath.Join(b.Dir, "mine")); err != nil || string(data) != "x\n" {
		t.Errorf("%s (%v)", r, err)
	}
}

// A sandbox stays when the command that started it has ended, any later process
// can use it and take it down, and down leaves the project and nothing else.
func TestUpAndDown(t *testing.T) {
	b := newBox(t)
	settle(t)
	for name, args := range map[string][]string{"own workspace": {"--allow", b.Host("ok.test")}, "project": {"--allow", b.Host("ok.test"), "--ephemeral-home", "."}} {
		t.Run(name, func(t *testing.T) {
			before := snapshot(t)
			h := b.up(t, args...)
			if h.Host != "localhost" || h.Runtime != "local" || h.Isolated != "process" || h.Owned != (name != "project") {
				t.Errorf("%+v", h)
			}
			if !h.Owned && h.Dir != b.Dir || h.Owned && !strings.HasPrefix(h.Dir, stateDir()+"/") {
				t.Errorf("the workspace is %s", h.Dir)
			}
			again := readHandle(t, b.OK("wait", h.ID, "--ready", "--json", "--timeout", "10s").Out)
			if again.Printed != h.Printed {
				t.Errorf("another handle: %s, was %s", again.Printed, h.Printed)
			}
			// It leads a session of its own, with nothing of the caller's open.
			if sid, err := unix.Getsid(h.PID); err != nil || sid != h.PID {
				t.Errorf("session %d, %v", sid, err)
			}
			if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", h.PID)); err == nil && dir != "/" {
				t.Errorf("its working directory is %s", dir)
			}
			if r := b.exec(h, "sh", "-c", "echo hi >made; pwd; curl -sS https://"+b.Host("ok.test")+"/; curl -sS https://"+b.Host("no.test")+"/"); r.Code == 0 || !strings.HasPrefix(r.Out, h.Workdir+"\n") || !strings.Contains(r.Out, w.net.Marker) {
				t.Errorf("%s", r)
			}
			unseen(t, b.Host("no.test"))
			if data, err := os.ReadFile(filepath.Join(h.Dir, "made")); err != nil || string(data) != "hi\n" {
				t.Errorf("the workspace: %v, %q", err, data)
			}
			if r := b.Run("wait", h.ID, "--exit", "--timeout", "200ms"); r.Code != 124 {
				t.Errorf("it has not ended: %s", r)
			}
			if r := b.OK("down", h.ID); r.Out != "" {
				t.Errorf("%s", r)
			}
			if !h.Owned {
				if err := os.Remove(filepath.Join(b.Dir, "made")); err != nil {
					t.Errorf("the project: %v", err)
				}
			}
			nothingLeft(t, before)
			for _, args := range [][]string{{"down", h.ID}, {"wait", h.ID, "--ready"}, {"wait", h.ID, "--exit"}} {
				if r := b.Run(args...); r.Code != 3 || !strings.Contains(r.Err, "no ") {
					t.Errorf("%q: %s", args, r)
				}
			}
			if r := b.exec(h, "true"); r.Code != 125 {
				t.Errorf("%s", r)
			}
		})
	}
	// Wrong words are told before anything is started.
	before := snapshot(t)
	for want, args := range map[int][][]string{
		2:   {{"wait", "0123456789ab"}, {"wait", "--ready"}, {"down"}, {"wait", "0123456789ab", "--ready", "--timeout", "soon"}},
		3:   {{"wait", "0123456789ab", "--exit"}, {"down", "0123456789ab"}, {"down", "../../x"}, {"wait", "--ready", "/"}},
		125: {{"exec", "0123456789ab", "--", "true"}, {"up", "--allow", "*"}, {"up", "/"}, {"up", "nowhere"}, {"up", "--gate", "x"}},
		127: {{"up", "--", "no-such-command"}, {"up", ".", "--", "/no/such/command"}},
		126: {{"up", "--", "/etc"}},
	} {
		for _, a := range args {
			if r := b.Run(a...); r.Code != want || r.Out != "" || !strings.Contains(r.Err, "ai-sandbox: error: ") {
				t.Errorf("%q: want %d: %s", a, want, r)
			}
		}
	}
	nothingLeftBut(t, before, func(s string) bool { return strings.Contains(s, "/homes/") }) // of ".", the project's
}

// A command's end is the sandbox's, told to whoever waits, before or after it.
func TestUpWithCommand(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	h := b.up(t, ".", "--", "sh", "-c", "echo to the log; until test -e go; do sleep 0.05; done; exit 42")
	waits := b.Start(t, "wait", h.ID, "--exit", "--json")
	time.Sleep(100 * time.Millisecond) // so that it mostly waits by then; either order is right
	write(t, filepath.Join(b.Dir, "go"), "", 0o600)
	for _, r := range []drive.Result{waits.Wait(20 * time.Second), b.Run("wait", h.ID, "--exit", "--json", "--timeout", "20s")} {
		var rep drive.Report
		if err := schema.Documented(integration, "report", []byte(r.Out)); err != nil {
			t.Errorf("%v: %s", err, r)
		}
		if err := json.Unmarshal([]byte(r.Out), &rep); err != nil || r.Code != 0 || rep.ExitCode != 42 || rep.EndedBy != "command" {
			t.Errorf("%v: %s", err, r)
		}
	}
	if r := b.Run("wait", h.ID, "--ready"); r.Code != 1 {
		t.Errorf("%s", r)
	}
	if r := b.exec(h, "true"); r.Code != 125 {
		t.Errorf("%s", r)
	}
	if text, err := os.ReadFile(h.Log); err != nil || !strings.Contains(string(text), "to the log") {
		t.Errorf("%v: %s", err, text)
	}
	b.OK("down", h.ID)
	if _, err := os.Stat(h.Log); err == nil {
		t.Error("the log is left")
	}
}

// exec is the command's, byte for byte and code for code.
func TestExec(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	h := b.up(t, "--net", "none", ".")
	for code, command := range map[int][]string{
		0: {"true"}, 42: {"sh", "-c", "exit 42"}, 125: {"sh", "-c", "exit 125"}, 137: {"sh", "-c", "kill -KILL $$"}, 143: {"sh", "-c", "kill $$"},
		126: {"/etc/passwd"}, 127: {"no-such-command"},
	} {
		if r := b.exec(h, command...); r.Code != code {
			t.Errorf("%q: want %d: %s", command, code, r)
		}
	}
	in := make([]byte, 1<<20)
	rand.Read(in) // never fails (crypto/rand)
	if r := b.RunWith(bytes.NewReader(in), "exec", h.ID, "--", "cat"); r.Code != 0 || r.Out != string(in) || r.Err != "" {
		t.Errorf("exit code %d, %d of %d bytes, %.300q", r.Code, len(r.Out), len(in), r.Err)
	}
	if r := b.exec(h, "sh", "-c", "echo out; echo err >&2; wc -c"); r.Out != "out\n0\n" || r.Err != "err\n" {
		t.Errorf("%s", r)
	}
	if r := b.exec(h, "printf", "%s|", "a b", "", "*", "$x", "--", "-n"); r.Out != "a b||*|$x|--|-n|" {
		t.Errorf("%s", r)
	}
	// The handle's own command line does the same.
	cmd := exec.Command(h.Reach.Local.Exec[0], append(append([]string{}, h.Reach.Local.Exec[1:]...), "sh", "-c", "exit 7")...)
	cmd.Env = w.env
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%q: %v", h.Reach.Local.Exec, err)
	}
	// Some at once.
	var all []*drive.Live
	for i := range 12 {
		all = append(all, b.Start(t, "exec", h.ID, "--", "sh", "-c", fmt.Sprintf("sleep 0.2; echo %d; exit %d", i, i)))
	}
	for i, l := range all {
		if r := l.Wait(30 * time.Second); r.Code != i || r.Out != fmt.Sprintf("%d\n", i) {
			t.Errorf("%d: %s", i, r)
		}
	}
	// Signals are the command's.
	l := b.Start(t, "exec", h.ID, "--", "sh", "-c", "trap 'echo caught; exit 33' TERM; echo up >up-exec; while :; do sleep 0.05; done")
	b.File(t, "up-exec")
	if err := l.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := l.Wait(20 * time.Second); r.Code != 33 || r.Out != "caught\n" {
		t.Errorf("%s", r)
	}
	// The caller's end is the command's.
	l = b.Start(t, "exec", h.ID, "--", "sh", "-c", "while :; do printf . >>dots; sleep 0.05; done")
	b.File(t, "dots")
	kill(t, process{pid: l.Cmd.Process.Pid})
	l.Wait(10 * time.Second)
	var size int64
	drive.Eventually(t, 15*time.Second, "the end of a command whose exec was killed", func() bool {
		size = b.Size("dots")
		time.Sleep(300 * time.Millisecond)
		return b.Size("dots") == size
	})
	// And the sandbox is as it was.
	if r := b.exec(h, "sh", "-c", "ls -d /proc/[0-9]* | wc -l"); r.Code != 0 || len(strings.TrimSpace(r.Out)) != 1 {
		t.Errorf("processes are left inside: %s", r)
	}
}

// What exec runs has exactly what the sandbox's own command has.
func TestExecIsDropped(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	look := "grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Seccomp_filters|Cap...|SigBlk|SigIgn):' /proc/self/status; for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done; pwd; umask; env | grep -v '^TERM=' | sort; cat /proc/self/oom_score_adj; ulimit -a; ./probe calls | sort"
	h := b.up(t, "--allow", b.Host("ok.test"), "--env", "A=b", ".", "--", "sh", "-c", "{ "+look+"; } >first 2>&1; echo done >end; sleep 600")
	b.File(t, "end")
	r := b.exec(h, "sh", "-c", "{ "+look+"; } >second 2>&1")
	first, second := b.File(t, "first"), b.File(t, "second")
	for i, line := range strings.Split(first, "\n") {
		if two := strings.Split(second, "\n"); i >= len(two) || two[i] != line {
			t.Fatalf("the command has %q, and exec %q", line, two[min(i, len(two)-1)])
		}
	}
	if r.Code != 0 || first != second || !strings.Contains(first, "CapBnd:\t0000000000000000") || !strings.Contains(first, "NoNewPrivs:\t1") || !strings.Contains(first, "clone-newuser E") {
		t.Errorf("%s\nthe command: %s\nexec: %s", r, first, second)
	}
	r = b.exec(h, "./probe", "fds")
	for line := range strings.Lines(r.Out) {
		if f := strings.Fields(line); f[0] > "2" && !strings.HasPrefix(f[1], "/proc/") && !strings.HasPrefix(f[1], "anon_inode:") || len(f[0]) > 1 {
			t.Errorf("open: %s", line)
		}
	}
	if r := b.exec(h, "./probe", "ptrace"); !strings.Contains(r.Out, "ptrace-pid1 operation not permitted") {
		t.Errorf("%s", r)
	}
}

// exec at a terminal has one of its own.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	h := b.up(t, "--net", "none", ".")
	m := b.OnTerminal(t, "exec", h.ID, "--", "bash", "--norc", "-i")
	m.Send("PS1='$ '; tty; test -t 0 && test -t 1 && test -t 2 && echo is''TTY; stty size; echo term''=$TERM; : </dev/tty && echo has''CTTY\r")
	for _, want := range []string{"/dev/pts/", "isTTY", "30 100", "term=xterm", "hasCTTY"} {
		m.Expect(want)
	}
	m.Resize(77, 22)
	drive.Eventually(t, 10*time.Second, "the new size", func() bool {
		m.Send("stty size\r")
		time.Sleep(100 * time.Millisecond)
		return strings.Contains(m.Out.String(), "22 77")
	})
	m.Send("sh -c 'echo wait\"\"ing; exec sleep 500'\r") // in the foreground before it speaks
	m.Expect("waiting")
	m.Send("\x03")
	m.Send("echo still''=here; sleep 0.3 & fg\r")
	m.Expect("still=here")
	m.Send("exit 43\r")
	if code := m.Wait(); code != 43 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
	if after := m.Settings(); after != m.Before {
		t.Error("the terminal is not as it was")
	}
	// Output that ends with the command is whole.
	m = b.OnTerminal(t, "exec", h.ID, "--", "sh", "-c", "seq 1 20000; echo last''line")
	if code := m.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	m.Expect("20000\r\nlastline")
}

// A supervisor that is killed takes everything with it, its sandbox can still be
// waited for and taken down by any later process, and a result is not lost.
func TestSupervisorIsKilled(t *testing.T) {
	b := newBox(t)
	settle(t)
	before := snapshot(t)
	h := b.up(t, "--allow", b.Host("ok.test"), "--", "sh", "-c", "(trap '' HUP TERM; exec setsid sh -c 'while :; do printf . >>stray; sleep 0.05; done') & while :; do curl -s -o /dev/null https://"+b.Host("ok.test")+"/beat; printf . >>beats; sleep 0.05; done")
	in := func(name string) int64 {
		info, err := os.Stat(filepath.Join(h.Dir, name))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	drive.Eventually(t, 20*time.Second, "the agent's first requests", func() bool { return in("beats") > 3 && in("stray") > 3 && beats(b) > 3 })
	l := b.Start(t, "exec", h.ID, "--", "sleep", "600")
	drive.Eventually(t, 10*time.Second, "the other command", func() bool {
		return slices.ContainsFunc(children(t), func(p process) bool { return p.argv == "sleep 600" })
	})
	kill(t, process{pid: h.PID})
	time.Sleep(2 * time.Second) // the promise is about this moment
	lives, requests := in("beats")+in("stray"), beats(b)
	time.Sleep(500 * time.Millisecond)
	if in("beats")+in("stray") > lives || beats(b) > requests {
		t.Error("the agent lives on")
	}
	if r := l.Wait(5 * time.Second); r.Code != 137 || !strings.Contains(r.Err, "ai-sandbox: ") {
		t.Errorf("exec: %s", r)
	}
	if r := b.Run("wait", h.ID, "--ready", "--timeout", "5s"); r.Code != 1 {
		t.Errorf("%s", r)
	}
	r := b.Run("wait", h.ID, "--exit", "--json", "--timeout", "5s")
	var rep drive.Report
	if err := json.Unmarshal([]byte(r.Out), &rep); err != nil || r.Code != 0 || rep.EndedBy != "loss" {
		t.Errorf("%v: %s", err, r)
	}
	if r := b.exec(h, "true"); r.Code != 125 {
		t.Errorf("%s", r)
	}
	b.OK("clean") // leaves what somebody may want
	if in("beats") == 0 {
		t.Error("the workspace is lost")
	}
	b.OK("down", h.ID)
	nothingLeft(t, before)
}

// What is not what up made is not removed, and a process that only has the
// supervisor's number is not ended.
func TestDownTouchesOnlyItsOwn(t *testing.T) {
	precious := filepath.Join(w.own, "precious")
	write(t, filepath.Join(precious, "file"), "mine", 0o600)
	untouched := func(t *testing.T, dir string) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "mine" {
			t.Errorf("removed: %v", err)
		}
	}
	t.Run("another directory in its place", func(t *testing.T) {
		b := newBox(t)
		h := b.up(t, "--net", "none")
		if err := os.Rename(h.Dir, h.Dir+".moved"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(h.Dir + ".moved"); _ = os.RemoveAll(h.Dir) }) // ours
		write(t, filepath.Join(h.Dir, "file"), "mine", 0o600)
		if r := b.Run("wait", h.ID, "--ready", "--timeout", "3s"); r.Code == 0 {
			t.Errorf("it is ready without its workspace: %s", r)
		}
		b.Run("down", h.ID)
		untouched(t, h.Dir)
	})
	t.Run("a link in its place", func(t *testing.T) {
		b := newBox(t)
		h := b.up(t, "--net", "none")
		if err := os.Rename(h.Dir, h.Dir+".moved"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(h.Dir + ".moved"); _ = os.Remove(h.Dir) }) // ours
		if err := os.Symlink(precious, h.Dir); err != nil {
			t.Fatal(err)
		}
		b.Run("down", h.ID)
		untouched(t, precious)
	})
	t.Run("links in it", func(t *testing.T) {
		b := newBox(t)
		h := b.up(t, "--net", "none")
		b.exec(h, "sh", "-c", "ln -s "+precious+" link; mkdir -p d/e; ln -s "+precious+" d/e/link; ln -s / root; chmod 000 d/e; chmod 000 d")
		b.OK("down", h.ID)
		untouched(t, precious)
		if _, err := os.Lstat(h.Dir); err == nil {
			t.Error("the workspace is left")
		}
	})
	t.Run("project", func(t *testing.T) {
		c := newBox(t)
		write(t, filepath.Join(c.Dir, "file"), "mine", 0o600)
		h := c.up(t, "--net", "none", ".")
		kill(t, process{pid: h.PID})
		c.OK("down", h.ID)
		untouched(t, c.Dir)
	})
	t.Run("reused number", func(t *testing.T) {
		b := newBox(t)
		h := b.up(t, "--net", "none")
		kill(t, process{pid: h.PID})
		drive.Eventually(t, 5*time.Second, "the supervisor's end", func() bool { return ended(h.PID) })
		bystander := exec.Command("sleep", "600")
		bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = bystander.Process.Kill() // ours
			_ = bystander.Wait()         // likewise
		}()
		found := ""
		err := filepath.WalkDir(stateDir(), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "sandbox-"+h.ID+".json" {
				found = path
			}
			return nil //nolint:nilerr // not found is told below
		})
		if err != nil || found == "" {
			t.Fatalf("no record of %s: %v", h.ID, err)
		}
		givePID(t, found, bystander.Process.Pid)
		b.OK("down", h.ID)
		if ended(bystander.Process.Pid) {
			t.Error("the process that has the number now was ended")
		}
	})
}

// up that is interrupted, or whose reader is gone, leaves nothing.
func TestUpIsInterrupted(t *testing.T) {
	b := newBox(t)
	settle(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		for _, ms := range []int{1, 5, 10, 20, 30, 45, 60} {
			before := snapshot(t)
			l := b.Start(t, "up", "--json", "--allow", b.Host("ok.test"))
			time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is the case
			if err := l.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			r := l.Wait(30 * time.Second)
			if r.Code == 0 || strings.Contains(r.Out, "sandbox_id") { // it was up already
				// Killed between its word and the supervisor's knowing of it, it isn't any more.
				if d := b.Run("down", readHandle(t, r.Out).ID); d.Code != 0 && sig != syscall.SIGKILL {
					t.Errorf("down: %s", d)
				}
			}
			nothingLeft(t, before)
			if t.Failed() {
				t.Fatalf("%v after %d ms: %s", sig, ms, r)
			}
		}
	}
	before := snapshot(t)
	cmd := b.Command(context.Background(), "up", "--json", "--net", "none")
	read, writeEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	cmd.Stdout = writeEnd
	if err := cmd.Run(); err == nil {
		t.Error("up says nothing about a handle that nobody can have read")
	}
	writeEnd.Close()
	nothingLeft(t, before)
}

// Profiles choose the network; those of the file lie beside the built in ones.
func TestProfiles(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	config := t.TempDir()
	write(t, filepath.Join(config, "ai-sandbox", "config"), "[profile ci]\nruntime = local\nallow = "+b.Host("ok.test")+"\n", 0o600)
	var env []string
	b.Env = []string{"XDG_CONFIG_HOME=" + config}
	for _, e := range w.env {
		if !strings.HasPrefix(e, "AISB_RUNTIME=") {
			env = append(env, e)
		}
	}
	for profile, want := range map[string]string{"bwrap-local": "none", "local": "unix", "ci": "unix"} {
		cmd := b.Command(t.Context(), "--profile", profile, "--print-policy=json", "--", "true")
		cmd.Env = append(append([]string{}, env...), b.Env...)
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), `"mode": "`+want+`"`) || !strings.Contains(string(out), `"runtime": "local"`) || strings.Contains(string(out), b.Host("ok.test")) != (profile == "ci") {
			t.Errorf("%s: %v: %s", profile, err, out)
		}
	}
	h := b.up(t, "--profile", "bwrap-local")
	if r := b.exec(h, "sh", "-c", "cat /proc/net/dev; env | grep -i proxy"); strings.Contains(r.Out, "eth") || strings.Contains(r.Out, "roxy") {
		t.Errorf("%s", r)
	}
	if r := b.Run("up", "--profile", "nothing"); r.Code != 125 || !strings.Contains(r.Err, "nothing") {
		t.Errorf("%s", r)
	}
}
