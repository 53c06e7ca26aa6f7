//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is a pseudo terminal with an ai-sandbox on it.
type terminal struct {
	t      *testing.T
	fd     int // of master
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	done   chan struct{}

	mu  sync.Mutex
	out strings.Builder
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
	m := &terminal{t: t, fd: fd, master: master, slave: slave, cmd: b.command(t.Context(), args...), done: make(chan struct{})}
	m.resize(100, 30)
	m.cmd.Stdin, m.cmd.Stdout, m.cmd.Stderr = slave, slave, slave
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			m.mu.Lock()
			m.out.Write(buf[:n])
			m.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
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

func (m *terminal) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.String()
}

func (m *terminal) expect(what string) {
	m.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(m.text(), what) {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the terminal does not show %q, but %q", what, m.text())
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
		m.t.Fatalf("ai-sandbox has not ended; the terminal shows %q", m.text())
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

func TestTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.onTerminal(t, "--net", "none", "--", "bash", "--norc")
	before := m.settings()
	m.send("PS1='$ '; tty; test -t 0 && test -t 1 && test -t 2 && echo is''TTY; stty size; echo term''=$TERM\r")
	m.expect("/dev/pts/")
	m.expect("isTTY")
	m.expect("30 100")
	m.expect("term=xterm")
	m.resize(77, 22)
	eventually(t, 10*time.Second, "the new size", func() bool {
		m.send("stty size\r")
		time.Sleep(100 * time.Millisecond)
		return strings.Contains(m.text(), "22 77")
	})
	// Ctrl-C ends the foreground job, and neither the shell nor the session.
	m.send("echo wait''ing; sleep 500; echo after''=$?\r")
	m.expect("waiting")
	time.Sleep(200 * time.Millisecond)
	m.send("\x03")
	m.send("echo still''=here\r")
	m.expect("still=here")
	// Ctrl-Z stops the job inside, not ai-sandbox.
	m.send("echo again''; sleep 501\r")
	m.expect("again")
	time.Sleep(200 * time.Millisecond)
	m.send("\x1a")
	m.expect("Stopped")
	m.send("jobs; kill %1; echo back''=here\r")
	m.expect("back=here")
	// podman's detach keys are bytes like any other.
	m.send("\x10\x11")
	m.send("\x15echo attached''=still\r")
	m.expect("attached=still")
	m.send("exit 43\r")
	if code := m.wait(); code != 43 {
		t.Errorf("exit code %d: %q", code, m.text())
	}
	if after := m.settings(); after != before {
		t.Errorf("the terminal is not as it was: %+v, was %+v", after, before)
	}
}

// Ctrl-C reaches the command as a signal of its terminal.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.onTerminal(t, "--net", "none", "--", "sh", "-c", "trap 'echo got''INT; exit 5' INT; echo rea''dy; while :; do sleep 0.05; done")
	m.expect("ready")
	m.send("\x03")
	m.expect("gotINT")
	if code := m.wait(); code != 5 {
		t.Errorf("exit code %d: %q", code, m.text())
	}
}

// The window goes away: the command is hung up on, and nothing stays.
func TestTerminalHangup(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.onTerminal(t, "--net", "none", "--", "sh", "-c", "trap 'echo hup >hup; exit 0' HUP; echo rea''dy; while :; do sleep 0.05; done")
	m.expect("ready")
	m.slave.Close()
	m.master.Close()
	m.wait()
	b.file(t, "hup")
}

// What has a terminal on one side only is a pipe inside.
func TestPipeIsNoTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runWith(strings.NewReader("x"), "--net", "none", "--", "sh", "-c", "test -t 0 || test -t 1 || echo pipes; cat")
	if r.Code != 0 || r.Out != "pipes\nx" {
		t.Errorf("%s", r)
	}
}
