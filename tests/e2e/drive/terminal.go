// Runs on a terminal.

package drive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Terminal is a pseudo terminal with an ai-sandbox on it.
type Terminal struct {
	T      *testing.T
	FD     int // of Master
	Master *os.File
	Slave  *os.File
	Cmd    *exec.Cmd
	Done   chan struct{}
	Out    Buffer
	// Before are its settings before the start.
	Before unix.Termios
}

// OnTerminal starts ai-sandbox on a terminal of its own, as a shell does.
func (b *Box) OnTerminal(t *testing.T, args ...string) *Terminal {
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
	m := &Terminal{T: t, FD: fd, Master: master, Slave: slave, Cmd: b.Command(context.Background(), args...), Done: make(chan struct{})}
	m.Resize(100, 30)
	m.Cmd.Stdin, m.Cmd.Stdout, m.Cmd.Stderr = slave, slave, slave
	m.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	m.Before = m.Settings()
	if err := m.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(&m.Out, master) }() // ends with the terminal
	go func() {
		_ = m.Cmd.Wait() // the state tells
		close(m.Done)
	}()
	t.Cleanup(func() {
		select {
		case <-m.Done:
		default:
			_ = m.Cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
			<-m.Done
		}
		slave.Close()
		master.Close()
	})
	return m
}

// Resize gives it another size.
func (m *Terminal) Resize(cols, rows int) {
	m.T.Helper()
	if err := unix.IoctlSetWinsize(m.FD, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)}); err != nil {
		m.T.Fatal(err)
	}
}

// Expect waits until the terminal shows something.
func (m *Terminal) Expect(what string) {
	m.T.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(m.Out.String(), what) {
			return
		}
		if time.Now().After(deadline) {
			m.T.Fatalf("the terminal does not show %q, but %q", what, m.Out.String())
		}
	}
}

// Send types.
func (m *Terminal) Send(s string) {
	m.T.Helper()
	if _, err := io.WriteString(m.Master, s); err != nil {
		m.T.Fatal(err)
	}
}

// Wait returns the exit code of one that ends by itself.
func (m *Terminal) Wait() int {
	m.T.Helper()
	select {
	case <-m.Done:
	case <-time.After(2 * time.Minute):
		m.T.Fatalf("ai-sandbox has not ended; the terminal shows %q", m.Out.String())
	}
	// What it wrote last may still be on its way: what the test writes comes behind it.
	const mark = "\x00\x00"
	if _, err := io.WriteString(m.Slave, mark); errors.Is(err, os.ErrClosed) {
		return m.Cmd.ProcessState.ExitCode() // the test has taken the terminal away
	} else if err != nil {
		m.T.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !m.Out.cut(mark); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.T.Fatalf("the end of what the terminal shows has not come; it shows %q", m.Out.String())
		}
	}
	return m.Cmd.ProcessState.ExitCode()
}

// Settings are the terminal's own, as the user's shell would find them.
func (m *Terminal) Settings() unix.Termios {
	m.T.Helper()
	s, err := unix.IoctlGetTermios(int(m.Slave.Fd()), unix.TCGETS)
	if err != nil {
		m.T.Fatal(err)
	}
	return *s
}
