//go:build kernel

// A terminal: what a shell with job control needs of it.

package entrypoint

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// A terminal is the outer end of b's.
type terminal struct {
	*os.File
	t *testing.T
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
	return &terminal{File: master, t: b.t}
}

func (m *terminal) write(text string) {
	m.t.Helper()
	if _, err := m.WriteString(text); err != nil {
		m.t.Fatal(err)
	}
}

// expect reads until text comes.
func (m *terminal) expect(text string) {
	m.t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if _, after, ok := strings.Cut(m.seen, text); ok {
			m.seen = after
			return
		}
		n, err := m.Read(buf)
		if err != nil {
			m.t.Fatalf("%v, waiting for %q in %q", err, text, m.seen)
		}
		m.seen += string(buf[:n])
	}
}

func TestTerminal(t *testing.T) {
	b := newBox(t, "bash", "--norc", "-i")
	b.Spec.Env = []string{"PATH=/usr/bin", "PS1=$ ", "TERM=dumb", "HISTFILE="}
	m := newTerminal(b)
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

	m.write("trap 'echo resized' WINCH\n")
	m.expect("WINCH\r\n")
	m.expect("$ ")
	if err := unix.IoctlSetWinsize(int(m.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 41, Col: 101}); err != nil {
		t.Fatal(err)
	}
	m.write("\n")
	m.expect("resized\r\n") // not the command's own echo
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
	b := newBox(t, "cat")
	m := newTerminal(b)
	b.started()
	m.write("x\n")
	m.expect("x\r\nx\r\n")
	b.send(spec.ToGuest{Signal: int(unix.SIGHUP)})
	if f := b.recv(); f.Exited == nil || f.Exited.Signal != int(unix.SIGHUP) {
		t.Errorf("%+v", f.Exited)
	}
	b.end()
}
