//go:build kernel

package entrypoint

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// An execution is the host's end of one exec.
type execution struct {
	b            *box
	id           int
	in, out, err *os.File
	keepers      []*os.File
}

// run sends an exec, with FIFOs as a host makes them.
func (b *box) exec(e spec.Exec) *execution {
	b.t.Helper()
	x := &execution{b: b, id: e.ID}
	in, out, errs := spec.ExecFIFOs(e.ID)
	for _, name := range []string{in, out, errs} {
		b.must(unix.Mkfifo(b.path("ctl", name), 0o600))
		b.must(os.Chown(b.path("ctl", name), b.owner, b.owner))
	}
	open := func(name string, flags int) *os.File {
		f, err := openFIFO(b.path("ctl", name), flags)
		b.must(err)
		b.t.Cleanup(func() { f.Close() })
		return f
	}
	x.in = open(in, unix.O_RDWR)
	x.out, x.err = open(out, unix.O_RDONLY), open(errs, unix.O_RDONLY)
	x.keepers = []*os.File{open(out, unix.O_WRONLY), open(errs, unix.O_WRONLY)}
	if e.Workdir == "" {
		e.Workdir = "/proj"
	}
	if e.Env == nil {
		e.Env = []string{"PATH=/usr/bin", "HISTFILE=", "PS1=$ ", "TERM=dumb"}
	}
	b.send(spec.ToGuest{Exec: &e})
	return x
}

// state waits for the next word about the exec.
func (x *execution) state() spec.ExecState {
	x.b.t.Helper()
	is := func(f spec.ToHost) bool { return f.ExecState != nil && f.ExecState.ID == x.id }
	if i := slices.IndexFunc(x.b.told, is); i >= 0 {
		f := x.b.told[i]
		x.b.told = slices.Delete(x.b.told, i, i+1)
		return *f.ExecState
	}
	kept := x.b.told
	x.b.told = nil
	for {
		if f := x.b.recv(); is(f) {
			x.b.told = kept
			return *f.ExecState
		} else {
			kept = append(kept, f)
		}
	}
}

// started waits for it, and lets go of what is the command's.
func (x *execution) started() *execution {
	x.b.t.Helper()
	if s := x.state(); !s.Started || s.Exited != nil {
		x.b.t.Fatalf("exec %d: %+v %+v", x.id, s, s.Exited)
	}
	x.letGo()
	return x
}

func (x *execution) letGo() {
	in, out, errs := spec.ExecFIFOs(x.id)
	for _, name := range []string{in, out, errs} {
		os.Remove(x.b.path("ctl", name))
	}
	for _, f := range x.keepers {
		f.Close()
	}
}

// failed wants a failure.
func (x *execution) failed(code int, reason string) {
	x.b.t.Helper()
	s := x.state()
	if s.Started || s.Exited == nil || s.Exited.Code != code || !strings.Contains(s.Exited.Error, reason) {
		x.b.t.Errorf("exec %d: %+v %+v, not %d %q", x.id, s, s.Exited, code, reason)
	}
	x.letGo()
}

// ended gives it input, and returns what it wrote and its end.
func (x *execution) ended(input string) (out, errs string, e spec.Exited) {
	x.b.t.Helper()
	x.b.must(x.in.SetWriteDeadline(time.Now().Add(time.Minute)))
	_, err := x.in.WriteString(input)
	x.b.must(err)
	x.in.Close()
	both := make(chan string)
	go func() {
		text, _ := io.ReadAll(x.err)
		both <- string(text)
	}()
	x.b.must(x.out.SetReadDeadline(time.Now().Add(time.Minute)))
	x.b.must(x.err.SetReadDeadline(time.Now().Add(time.Minute)))
	text, err := io.ReadAll(x.out)
	x.b.must(err)
	errs = <-both
	s := x.state()
	if s.Exited == nil {
		x.b.t.Fatalf("exec %d: %+v", x.id, s)
	}
	return string(text), errs, *s.Exited
}

// hold starts a session that only holds, for execs.
func hold(b *box) *box {
	b.t.Helper()
	b.Spec.Command, b.Spec.Hold = nil, true
	b.started()
	return b
}

func (b *box) holdEnds() {
	b.t.Helper()
	b.send(spec.ToGuest{Signal: int(unix.SIGTERM)})
	if f := b.recv(); f.Exited == nil || *f.Exited != (spec.Exited{}) || b.end() != 0 {
		b.t.Errorf("%+v %+v", f, f.Exited)
	}
}

func TestExec(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := hold(sandbox())
		x := b.exec(spec.Exec{ID: 1, Command: []string{"sh", "-c", `pwd; printf %s "$A"; cat; echo e >&2; exit 3`},
			Env: []string{"A=\xff\n", "PATH=/usr/bin"}, Workdir: "/usr"}).started()
		time.Sleep(50 * time.Millisecond) // it has nothing to read yet, and waits
		out, errs, e := x.ended("input\n")
		if out != "/usr\n\xff\ninput\n" || errs != "e\n" || e != (spec.Exited{Code: 3}) {
			t.Errorf("%q %q %+v", out, errs, e)
		}
		for i, c := range []struct {
			command []string
			want    spec.Exited
		}{
			{[]string{"true"}, spec.Exited{}},
			{[]string{"sh", "-c", "exit 255"}, spec.Exited{Code: 255}},
			{[]string{"sh", "-c", "kill -9 $$"}, spec.Exited{Code: 137, Signal: 9}},
		} {
			if out, errs, e := b.exec(spec.Exec{ID: 10 + i, Command: c.command}).started().ended(""); e != c.want || out+errs != "" {
				t.Errorf("%q: %q %q %+v", c.command, out, errs, e)
			}
		}
		// A relative name is one of the command's own directory.
		b.must(os.WriteFile(b.path("proj/script"), []byte("#!/bin/sh\necho $0\n"), 0o755))
		if out, _, e := b.exec(spec.Exec{ID: 20, Command: []string{"./script"}}).started().ended(""); out != "./script\n" || e.Code != 0 {
			t.Errorf("%q %+v", out, e)
		}
		b.holdEnds()
	})
}

func TestExecFailures(t *testing.T) {
	b := hold(newJail(t, devID))
	b.must(os.WriteFile(b.path("proj/plain"), []byte("#!/usr/bin/true\n"), 0o644))
	b.must(os.WriteFile(b.path("proj/script"), []byte("#!/nonesuch\n"), 0o755))
	for i, c := range []struct {
		change func(e *spec.Exec)
		code   int
		reason string
	}{
		{func(e *spec.Exec) { e.Command = []string{"nonesuch"} }, 127, "not found in PATH"},
		{func(e *spec.Exec) { e.Command = []string{"./script"} }, 127, "no such file"},
		{func(e *spec.Exec) { e.Command = []string{"./plain"} }, 126, "permission denied"},
		{func(e *spec.Exec) { e.Workdir = "/nonesuch" }, 126, "working directory"},
		{func(e *spec.Exec) { e.Workdir = "/usr/bin/true" }, 126, "working directory"},
		{func(e *spec.Exec) { e.Command = nil }, 78, "no command"},
		{func(e *spec.Exec) { e.Env = []string{"canary"} }, 78, "element 0 of the environment"},
		{func(e *spec.Exec) { e.Workdir = "x" }, 78, "workdir"},
		{func(e *spec.Exec) { e.Cols = 1 }, 78, "a size without"},
	} {
		e := spec.Exec{ID: i + 1, Command: []string{"true"}}
		c.change(&e)
		x := b.exec(e)
		x.failed(c.code, c.reason)
	}
	b.send(spec.ToGuest{Exec: &spec.Exec{ID: -1, Command: []string{"true"}, Workdir: "/"}})
	(&execution{b: b, id: -1}).failed(78, "not above 0")
	// What is addressed to nobody ends nothing.
	b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: 99, Signal: 9}})
	b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: 0, Signal: 15}})
	b.send(spec.ToGuest{Resize: &spec.Resize{Exec: 99, Cols: 1, Rows: 1}})
	b.send(spec.ToGuest{Resize: &spec.Resize{Cols: 1, Rows: 1}})
	b.send(spec.ToGuest{Signal: int(unix.SIGUSR1)})
	if _, _, e := b.exec(spec.Exec{ID: 50, Command: []string{"true"}}).started().ended(""); e.Code != 0 {
		t.Errorf("%+v", e)
	}
	// An ID is free again after the end, and not before.
	x := b.exec(spec.Exec{ID: 60, Command: []string{"cat"}}).started()
	b.exec(spec.Exec{ID: 60, Command: []string{"true"}}).failed(78, "still runs")
	if _, _, e := x.ended(""); e.Code != 0 {
		t.Errorf("%+v", e)
	}
	b.exec(spec.Exec{ID: 60, Command: []string{"true"}}).started().ended("")
	b.holdEnds()
}

// The names in the control directory are the host's, and still nothing but a
// FIFO with someone at its other end is taken, and nobody is waited for.
func TestExecHostileNames(t *testing.T) {
	b := hold(newJail(t, devID))
	in, out, errs := spec.ExecFIFOs(1)
	names := []string{in, out, errs}
	before := countFDs(b)
	b.must(os.WriteFile(b.path("proj/file"), nil, 0o666))
	b.must(unix.Mkfifo(b.path("ctl", "other"), 0o600))
	b.must(os.Chown(b.path("ctl", "other"), b.owner, b.owner))
	for _, c := range []struct {
		name   string // the odd one
		make   func(path string) error
		tty    bool
		reason string
	}{
		{in, func(string) error { return nil }, false, "no such file"},
		{in, func(p string) error { return os.Symlink("other", p) }, false, "too many levels"},
		{out, func(p string) error { return os.Symlink("/proj/file", p) }, false, "too many levels"},
		{in, func(p string) error { return os.WriteFile(p, nil, 0o666) }, false, "not a fifo"},
		{out, func(p string) error { return os.WriteFile(p, nil, 0o666) }, false, "read-only file system"},
		{errs, func(p string) error { return os.Mkdir(p, 0o777) }, false, "is a directory"},
		{in, func(p string) error { return os.Mkdir(p, 0o777) }, true, "not a fifo"},
		{errs, func(p string) error { return unix.Mkfifo(p, 0o666) }, false, "no such device"},
		{out, func(p string) error { return unix.Mkfifo(p, 0o666) }, true, "no such device"},
	} {
		var opened []*os.File
		for _, n := range names {
			path := b.path("ctl", n)
			if n == c.name {
				b.must(c.make(path))
				_ = os.Lchown(path, b.owner, b.owner)
				_ = os.Chmod(path, 0o666)
				continue
			}
			b.must(unix.Mkfifo(path, 0o600))
			b.must(os.Chown(path, b.owner, b.owner))
			f, err := openFIFO(path, unix.O_RDWR)
			b.must(err)
			opened = append(opened, f)
		}
		b.send(spec.ToGuest{Exec: &spec.Exec{ID: 1, Command: []string{"true"}, Workdir: "/usr", Env: []string{"PATH=/usr/bin"}, TTY: c.tty}})
		(&execution{b: b, id: 1}).failed(126, c.reason)
		for _, f := range opened {
			f.Close()
		}
		for _, n := range names {
			os.Remove(b.path("ctl", n))
		}
	}
	// Nothing is left open by all of that but what was open before.
	if after := countFDs(b); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	b.holdEnds()
}

func TestExecIsDropped(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("sh", "-c", "grep -E '^(Uid|Gid|Groups|Cap|NoNew|Seccomp)' /proc/self/status; exec sleep 1000")
		read := lines(b)
		b.started()
		var want string
		for range 11 {
			want += read() + "\n"
		}
		show := []string{"sh", "-c", "grep -E '^(Uid|Gid|Groups|Cap|NoNew|Seccomp)' /proc/self/status; /aisb probe fds"}
		got, errs, e := b.exec(spec.Exec{ID: 1, Command: show}).started().ended("")
		got, fds, _ := strings.Cut(got, "0 /run/aisb")
		if got != want || !strings.Contains(want, "Seccomp:\t2\n") || errs != "" || e.Code != 0 {
			t.Errorf("%q\nand not\n%q\n%q %+v", got, want, errs, e)
		}
		if strings.Count(fds, "\n") != 3 || !strings.Contains(fds, "\n1 /run/aisb") || !strings.Contains(fds, "\n2 /run/aisb") {
			t.Errorf("open: %q", fds)
		}
		b.send(spec.ToGuest{Signal: int(unix.SIGKILL)})
		b.recv()
		b.end()
	})
}

func TestExecSignals(t *testing.T) {
	b := hold(newJail(t, devID))
	x := b.exec(spec.Exec{ID: 4, Command: []string{"sh", "-c", "trap 'echo int' INT; echo ready; while :; do sleep 0.01; done"}}).started()
	y := b.exec(spec.Exec{ID: 5, Command: []string{"sleep", "1000"}}).started()
	buf := make([]byte, 100)
	read := func(want string) {
		t.Helper()
		b.must(x.out.SetReadDeadline(time.Now().Add(time.Minute)))
		if n, err := x.out.Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("%q %v", buf[:n], err)
		}
	}
	read("ready\n")
	b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: 4, Signal: int(unix.SIGINT)}})
	read("int\n")
	b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: 4, Signal: int(unix.SIGKILL)}})
	if s := x.state(); s.Exited == nil || s.Exited.Signal != 9 || s.Exited.Code != 137 {
		t.Errorf("%+v", s.Exited)
	}
	b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: 5, Signal: int(unix.SIGTERM)}})
	if s := y.state(); s.Exited == nil || s.Exited.Signal != 15 {
		t.Errorf("%+v", s.Exited)
	}
	b.holdEnds()
}

func TestExecTerminal(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := hold(sandbox())
		x := b.exec(spec.Exec{ID: 7, Command: []string{"bash", "--norc", "-i"}, TTY: true, Cols: 77, Rows: 22}).started()
		m := &terminal{r: x.out, w: x.in, t: t}
		m.expect("$ ")
		m.write("tty; stty size\n")
		m.expect("/dev/pts/0\r\n22 77\r\n")
		m.write("trap 'echo resized' WINCH; echo set $((1+1))\n")
		m.expect("set 2\r\n") // not the echo of what is typed
		m.expect("$ ")
		b.send(spec.ToGuest{Resize: &spec.Resize{Exec: 7, Cols: 78, Rows: 23}})
		m.enterUntil("resized\r\n")
		m.write("stty size\n")
		m.expect("23 78\r\n")
		marker := fmt.Sprintf("85%d", os.Getpid())
		m.write("sleep " + marker + "\n")
		sleeps := func() bool {
			pids := alive(marker)
			if len(pids) != 1 {
				return false
			}
			text, err := os.ReadFile("/proc/" + pids[0] + "/status")
			return err == nil && strings.HasPrefix(parseStatus(text)["State"], "S")
		}
		eventually(t, "sleeping", sleeps)
		m.write("\x1a")
		m.expect("Stopped")
		m.expect("$ ")
		m.write("fg\n")
		eventually(t, "sleeping again", sleeps)
		m.write("\x03")
		m.expect("^C")
		m.write("echo =$?=\n")
		m.expect("=130=\r\n")
		m.write("seq 1 50000; exit 6\n")
		text := m.rest()
		if !strings.Contains(text, "\r\n49999\r\n50000\r\n") {
			t.Errorf("the end is cut off: %q", text[max(0, len(text)-100):])
		}
		if s := x.state(); s.Exited == nil || s.Exited.Code != 6 {
			t.Errorf("%+v", s.Exited)
		}
		b.holdEnds()
	})
}

// The limit is of those that run, and running out of it ends nothing.
func TestExecLimit(t *testing.T) {
	b := hold(newJail(t, devID))
	before := countFDs(b)
	var all []*execution
	for i := range spec.MaxExecs {
		all = append(all, b.exec(spec.Exec{ID: i + 1, Command: []string{"cat"}, TTY: i%2 == 0}).started())
	}
	b.exec(spec.Exec{ID: 1000, Command: []string{"true"}}).failed(126, "64 commands run")
	for _, x := range all {
		b.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: x.id, Signal: 9}})
		if s := x.state(); s.Exited == nil {
			t.Fatalf("%+v", s)
		}
	}
	b.exec(spec.Exec{ID: 1000, Command: []string{"true"}}).started().ended("")
	// A terminal's are closed when its copying has ended, a moment later.
	eventually(t, "no descriptor is left", func() bool { return countFDs(b) == before })
	b.holdEnds()
}

func countFDs(b *box) int {
	b.t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.pid1()))
	b.must(err)
	return len(fds)
}

// The session's end is everybody's: by its command, by the lifeline.
func TestExecsEndWithTheSession(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		marker := fmt.Sprintf("89%d", os.Getpid())
		b := sandbox("cat")
		r, w, err := os.Pipe()
		b.must(err)
		b.input = r
		b.started()
		b.exec(spec.Exec{ID: 1, Command: []string{"sleep", marker}}).started()
		b.exec(spec.Exec{ID: 2, Command: []string{"sleep", marker}, TTY: true}).started()
		eventually(t, "two sleepers", func() bool { return len(alive(marker)) == 2 })
		w.Close()
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 0 || b.end() != 0 {
			t.Errorf("%+v", f)
		}
		eventually(t, "none is left", func() bool { return len(alive(marker)) == 0 })

		b = hold(sandbox())
		b.exec(spec.Exec{ID: 1, Command: []string{"sleep", marker}}).started()
		eventually(t, "a sleeper", func() bool { return len(alive(marker)) == 1 })
		b.in.Close()
		b.end()
		eventually(t, "none is left", func() bool { return len(alive(marker)) == 0 })
	})
}

// Execs before the command may run are no part of the protocol.
func TestExecBeforeGo(t *testing.T) {
	b := newJail(t, devID, "true")
	b.start()
	b.recv()
	b.send(spec.ToGuest{Exec: &spec.Exec{ID: 1, Command: []string{"true"}, Workdir: "/"}})
	if f := b.recv(); f.Refused == nil || f.Refused.Code != 78 || b.end() != 78 {
		t.Errorf("%+v", f)
	}
}

func TestHold(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
			b := hold(sandbox())
			b.send(spec.ToGuest{Signal: int(unix.SIGUSR1)}) // it ends nothing
			b.send(spec.ToGuest{Signal: int(sig)})
			if f := b.recv(); f.Exited == nil || *f.Exited != (spec.Exited{}) || b.end() != 0 {
				t.Errorf("%v: %+v", sig, f)
			}
		}
		b := hold(sandbox())
		b.must(unix.Kill(b.pid1(), unix.SIGTERM))
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 0 || b.end() != 0 {
			t.Errorf("%+v", f)
		}
		b = sandbox()
		b.Spec.Command, b.Spec.Hold, b.Spec.Workdir = nil, true, "/nonesuch"
		b.begin()
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 126 || f.Exited.Error == "" || b.end() != 126 {
			t.Errorf("%+v", f)
		}
	})
}

// A session that holds does nothing while nothing is asked of it.
func TestHoldIsIdle(t *testing.T) {
	b := hold(newJail(t, devID))
	b.exec(spec.Exec{ID: 1, Command: []string{"true"}}).started().ended("")
	used := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.pid1()))
		b.must(err)
		f := strings.Fields(string(text))
		return f[13] + " " + f[14] // user and system time (proc_pid_stat(5))
	}
	before, after := "", "-"
	for range 10 { // the exec's own work may be put off on a busy machine
		before = used()
		time.Sleep(300 * time.Millisecond)
		if after = used(); after == before {
			break
		}
	}
	if after != before {
		t.Errorf("ticks: %s, then %s", before, after)
	}
	b.holdEnds()
}

func TestExecsAreReaped(t *testing.T) {
	b := hold(newJail(t, devID))
	for i := range 20 {
		b.exec(spec.Exec{ID: i + 1, Command: []string{"sh", "-c", "(sleep 0.05 &) ; exit 0"}}).started().ended("")
	}
	// The orphans' output is the exec's, so all of them have ended by now.
	eventually(t, "no zombies", func() bool {
		out, _, _ := b.exec(spec.Exec{ID: 99, Command: []string{"sh", "-c", "cat /proc/[0-9]*/status | grep -c '^State:.*Z'"}}).started().ended("")
		return strings.TrimSpace(out) == "0"
	})
	b.holdEnds()
}
