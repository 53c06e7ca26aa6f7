//go:build kernel

// A terminal: what a shell with job control needs of it.

package entrypoint

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// A terminal is the outer end of b's: of the caller's own, or of the two pipes
// to the one that the entrypoint makes.
type terminal struct {
	r, w   *os.File
	resize func(cols, rows uint16)
	t      *testing.T
	// seen is what was written and not expected yet.
	seen string
}

func newTerminal(b *box) *terminal {
	b.t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	b.must(err)
	b.must(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	b.must(err)
	b.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	b.must(err)
	b.Spec.TTY = true
	master := os.NewFile(uintptr(fd), "ptmx")
	b.t.Cleanup(func() { master.Close(); b.tty.Close() })
	return &terminal{r: master, w: master, t: b.t, resize: func(cols, rows uint16) {
		b.t.Helper()
		b.must(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}))
	}}
}

// newPipes is for a jail.
func newPipes(b *box) *terminal {
	b.t.Helper()
	in, w, err := os.Pipe()
	b.must(err)
	r, out, err := os.Pipe()
	b.must(err)
	b.input, b.output = in, out
	b.Spec.TTY, b.Spec.PTY = true, true
	b.t.Cleanup(func() { r.Close(); w.Close() })
	return &terminal{r: r, w: w, t: b.t, resize: func(cols, rows uint16) {
		b.t.Helper()
		b.send(spec.ToGuest{Resize: &spec.Resize{Cols: cols, Rows: rows}})
	}}
}

// eachTerminal runs a test on every kind of sandbox, with a terminal.
func eachTerminal(t *testing.T, f func(t *testing.T, sandbox func(command ...string) (*box, *terminal))) {
	t.Helper()
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		f(t, func(command ...string) (*box, *terminal) {
			b := sandbox(command...)
			b.Spec.Env = []string{"PATH=/usr/bin", "PS1=$ ", "TERM=dumb", "HISTFILE="}
			if b.opts != nil {
				return b, newPipes(b)
			}
			return b, newTerminal(b)
		})
	})
}

func (m *terminal) write(text string) {
	m.t.Helper()
	if _, err := m.w.WriteString(text); err != nil {
		m.t.Fatal(err)
	}
}

// expect reads until text comes.
func (m *terminal) expect(text string) {
	m.t.Helper()
	if err := m.r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if _, after, ok := strings.Cut(m.seen, text); ok {
			m.seen = after
			return
		}
		n, err := m.r.Read(buf)
		if err != nil {
			m.t.Fatalf("%v, waiting for %q in %q", err, text, m.seen)
		}
		m.seen += string(buf[:n])
	}
}

// enterUntil gives commands that do nothing until text comes: a shell runs its
// traps after one, and a new size has another way to take than the keys.
func (m *terminal) enterUntil(text string) {
	m.t.Helper()
	buf := make([]byte, 4096)
	eventually(m.t, text, func() bool {
		m.write(":\n")
		if err := m.r.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			m.t.Fatal(err)
		}
		n, _ := m.r.Read(buf)
		m.seen += string(buf[:n])
		_, after, ok := strings.Cut(m.seen, text)
		if ok {
			m.seen = after
		}
		return ok
	})
}

func TestTerminal(t *testing.T) {
	eachTerminal(t, testTerminal)
}

func testTerminal(t *testing.T, sandbox func(command ...string) (*box, *terminal)) {
	b, m := sandbox("bash", "--norc", "-i")
	b.started()
	m.expect("$ ")
	if strings.Contains(m.seen, "no job control") {
		t.Error(m.seen)
	}
	marker := fmt.Sprintf("88%d", os.Getpid())

	m.write("sleep " + marker + "\n")
	eventually(t, "sleeping", func() bool { return len(alive(marker)) == 1 })
	m.write("\x1a")
	m.expect("Stopped")
	m.expect("$ ")
	m.write("fg\n")
	// The shell gives the terminal away before it lets the job go on.
	eventually(t, "sleeping again", func() bool {
		text, err := os.ReadFile("/proc/" + alive(marker)[0] + "/status")
		return err == nil && strings.HasPrefix(parseStatus(text)["State"], "S")
	})
	m.write("\x03")
	m.expect("^C")
	m.expect("$ ")
	m.write("echo =$?=\n")
	m.expect("=130=")
	if left := alive(marker); len(left) != 0 {
		t.Errorf("alive: %v", left)
	}

	m.write("trap 'echo resized' WINCH; echo set $((1+1))\n")
	m.expect("set 2\r\n") // not the echo of what is typed
	m.expect("$ ")
	m.resize(101, 41)
	m.enterUntil("resized\r\n") // not the command's own echo
	m.write("stty size\n")
	m.expect("41 101")

	// The terminal is the shell's: the entrypoint is in another session.
	m.write("echo pgrp $(ps -o tty= -p 1) $(ps -o tpgid= -p 1)\n")
	m.expect("pgrp ? -1")
	m.write("exit 4\n")
	if f := b.recv(); f.Exited == nil || f.Exited.Code != 4 {
		t.Errorf("%+v", f)
	}
	if code := b.end(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// Giving up the terminal ignores the hangup for a moment; the command must not
// inherit that.
func TestTerminalHangup(t *testing.T) {
	eachTerminal(t, func(t *testing.T, sandbox func(command ...string) (*box, *terminal)) {
		b, m := sandbox("cat")
		b.started()
		m.write("x\n")
		m.expect("x\r\nx\r\n")
		b.send(spec.ToGuest{Signal: int(unix.SIGHUP)})
		if f := b.recv(); f.Exited == nil || f.Exited.Signal != int(unix.SIGHUP) {
			t.Errorf("%+v", f.Exited)
		}
		b.end()
	})
}

// The terminal of a jail is its own: neither its name nor its size is the
// caller's, and nothing of the entrypoint's is open in it.
func TestTerminalOfTheJail(t *testing.T) {
	for _, uid := range callers {
		b := newJail(t, uid, "bash", "-c", "tty; stty size; /aisb probe fds; echo $(ls /dev/pts) $(ps -o tty= -p 1) end")
		m := newPipes(b)
		b.Spec.Cols, b.Spec.Rows = 132, 43
		b.started()
		m.expect("/dev/pts/0\r\n43 132\r\n0 /dev/pts/0\r\n1 /dev/pts/0\r\n2 /dev/pts/0\r\n0 ptmx ? end\r\n")
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 0 || b.end() != 0 {
			t.Errorf("%+v", f.Exited)
		}
	}
}

// A size that comes before the terminal is there is not lost.
func TestTerminalSizedEarly(t *testing.T) {
	b := newJail(t, devID, "stty", "size")
	m := newPipes(b)
	b.start()
	b.recv()
	b.must(os.Remove(b.path("ctl", spec.InName)))
	b.must(os.Remove(b.path("ctl", spec.OutName)))
	m.resize(99, 11)
	b.send(spec.ToGuest{Go: true})
	m.expect("11 99\r\n")
	b.end()
}

// The last output comes through to the last byte, also to a reader who is late.
func TestTerminalOutputIsNotCut(t *testing.T) {
	for range 20 {
		b := newJail(t, devID, "sh", "-c", "seq 1 200000; printf end; exit 5")
		m := newPipes(b)
		b.started()
		time.Sleep(10 * time.Millisecond)
		text := m.rest()
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 5 || b.end() != 5 {
			t.Fatalf("%+v", f.Exited)
		}
		lines := strings.Split(text, "\r\n")
		if len(lines) != 200001 || lines[199999] != "200000" || lines[200000] != "end" {
			t.Fatalf("%d lines, the last are %q", len(lines), lines[max(0, len(lines)-3):])
		}
	}
}

// With nothing left behind there is nothing to wait for.
func TestTerminalEndsAtOnce(t *testing.T) {
	best := time.Hour // of some runs: the machine may be busy
	for range 5 {
		b := newJail(t, devID, "true")
		m := newPipes(b)
		b.started()
		begin := time.Now()
		m.rest()
		b.recv()
		b.end()
		best = min(best, time.Since(begin))
	}
	if best > quietTime/2 {
		t.Errorf("took %v", best)
	}
}

// rest reads to the end.
func (m *terminal) rest() string {
	m.t.Helper()
	if err := m.r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	text, err := io.ReadAll(m.r)
	if err != nil {
		m.t.Fatalf("%v after %q", err, text)
	}
	return m.seen + string(text)
}

// What a command leaves behind may keep the terminal, silent or talking; the
// session ends all the same.
func TestTerminalKeptOpen(t *testing.T) {
	for _, c := range []struct {
		orphan string
		most   time.Duration
	}{
		{"sleep 1000", 30 * time.Second},
		{"sleep 1000 <>/dev/pts/0 >&0", 30 * time.Second},
		{"sh -c 'while :; do sleep 0.01; exec >/dev/pts/0; echo x; done'", 30 * time.Second},
	} {
		b := newJail(t, devID, "sh", "-c", "setsid setsid "+c.orphan+" & sleep 0.2; echo last")
		m := newPipes(b)
		b.started()
		begin := time.Now()
		m.expect("last\r\n")
		m.rest()
		f := b.recv()
		if f.Exited == nil || f.Exited.Code != 0 || b.end() != 0 {
			t.Errorf("%s: %+v", c.orphan, f.Exited)
		}
		if took := time.Since(begin); took > c.most {
			t.Errorf("%s: took %v", c.orphan, took)
		} else {
			t.Logf("%s: %v", c.orphan, took)
		}
	}
}

// A command may let go of its terminal and take it again.
func TestTerminalTakenAgain(t *testing.T) {
	b := newJail(t, devID, "bash", "-c", "exec 0<&- 1>&- 2>&-; sleep 0.3; exec 0<>/dev/tty 1>&0 2>&0; echo again")
	m := newPipes(b)
	b.started()
	m.expect("again\r\n")
	if f := b.recv(); f.Exited == nil || f.Exited.Code != 0 || b.end() != 0 {
		t.Errorf("%+v", f.Exited)
	}
}

// When nobody reads the output any more the command is hung up, as by a
// terminal that is closed.
func TestTerminalWithoutReader(t *testing.T) {
	b := newJail(t, devID, "yes")
	m := newPipes(b)
	b.started()
	m.expect("y\r\n")
	m.r.Close()
	if f := b.recv(); f.Exited == nil || f.Exited.Signal != int(unix.SIGHUP) || b.end() != 128+int(unix.SIGHUP) {
		t.Errorf("%+v", f.Exited)
	}
}
