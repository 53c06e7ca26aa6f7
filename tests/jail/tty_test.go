//go:build e2e

package jail

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	newBox(t).CheckTerminal(t)
}

// The size is there from the command's first moment, and the end of input is one.
func TestTerminalFirstMoment(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "stty size; cat; echo end''ed")
	m.Expect("30 100")
	m.Send("line\r")
	m.Expect("line\r\nline")
	m.Send("\x04")
	m.Expect("ended")
	if code := m.Wait(); code != 0 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
}

// Ctrl-C reaches the command as a signal of its terminal.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	newBox(t).CheckInterrupt(t)
}

// A signal to ai-sandbox ends it with the terminal as it was.
func TestTerminalRestored(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		b := newBox(t)
		m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "echo rea''dy; exec sleep 600")
		m.Expect("ready")
		if raw := m.Settings(); raw == m.Before {
			t.Error("the terminal was never raw, so nothing is restored")
		}
		if err := m.Cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code := m.Wait(); code != 128+int(sig) {
			t.Errorf("%v: exit code %d: %q", sig, code, m.Out.String())
		}
		if after := m.Settings(); after != m.Before {
			t.Errorf("%v: the terminal is not as it was", sig)
		}
	}
}

// The window goes away: the command is hung up on, and nothing stays.
func TestTerminalHangup(t *testing.T) {
	t.Parallel()
	newBox(t).CheckHangup(t)
}

// Output is whole, also when the command ends right after it.
func TestTerminalOutput(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for range 3 {
		m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "seq 1 20000; echo last''line")
		if code := m.Wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		m.Expect("lastline")
		text := m.Out.String()
		at := 0
		for i := 1; i <= 20000; i++ {
			line := fmt.Sprintf("\n%d\r\n", i)
			n := strings.Index(text[at:], line[1:])
			if n < 0 {
				t.Fatalf("line %d of 20000 is not there", i)
			}
			at += n
		}
	}
}

// What is pushed into the terminal's input goes nowhere, and the caller's
// terminal has no name inside.
func TestTerminalInjection(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "tty; ls /dev/pts | tr '\\n' ' '; ./probe calls | grep tiocsti; ls -l /dev/console /dev/tty1 /dev/vcs 2>&1 | grep -c 'No such'; stty -F /dev/tty size; echo do''ne")
	m.Expect("done")
	if code := m.Wait(); code != 0 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
	text := m.Out.String()
	for _, want := range []string{"/dev/pts/0\r\n0 ptmx ioctl", "ioctl-tiocsti EPERM", "ioctl-tiocsti-high EPERM", "30 100"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q: %q", want, text)
		}
	}
	// The positive control: outside, the same call reaches the driver (which newer
	// kernels tell to refuse it, with EIO).
	b.Bin = filepath.Join(w.bin, "probe")
	m = b.OnTerminal(t, "calls")
	m.Wait()
	drive.Eventually(t, 10*time.Second, "the positive control: the call reaches the driver", func() bool {
		return regexp.MustCompile(`ioctl-tiocsti (OK|EIO)`).MatchString(m.Out.String())
	})
}

// What has a terminal on one side only is a pipe inside.
func TestPipeIsNoTerminal(t *testing.T) {
	t.Parallel()
	newBox(t).CheckPipe(t)
}
