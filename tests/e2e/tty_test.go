//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.OnTerminal(t, "--net", "none", "--", "bash", "--norc")
	before := m.Settings()
	m.Send("PS1='$ '; tty; test -t 0 && test -t 1 && test -t 2 && echo is''TTY; stty size; echo term''=$TERM\r")
	m.Expect("/dev/pts/")
	m.Expect("isTTY")
	m.Expect("30 100")
	m.Expect("term=xterm")
	m.Resize(77, 22)
	drive.Eventually(t, 10*time.Second, "the new size", func() bool {
		m.Send("stty size\r")
		time.Sleep(100 * time.Millisecond)
		return strings.Contains(m.Out.String(), "22 77")
	})
	// Ctrl-C ends the foreground job, and neither the shell nor the session.
	m.Send("sh -c 'echo wait\"\"ing; exec sleep 500'; echo after''=$?\r") // in the foreground before it speaks
	m.Expect("waiting")
	m.Send("\x03")
	m.Send("echo still''=here\r")
	m.Expect("still=here")
	// Ctrl-Z stops the job inside, not ai-sandbox.
	m.Send("sh -c 'echo ag\"\"ain; exec sleep 501'\r")
	m.Expect("again")
	m.Send("\x1a")
	m.Expect("Stopped")
	m.Send("jobs; kill %1; echo back''=here\r")
	m.Expect("back=here")
	// podman's detach keys are bytes like any other.
	m.Send("\x10\x11")
	m.Send("\x15echo attached''=still\r")
	m.Expect("attached=still")
	m.Send("exit 43\r")
	if code := m.Wait(); code != 43 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
	if after := m.Settings(); after != before {
		t.Errorf("the terminal is not as it was: %+v, was %+v", after, before)
	}
}

// Ctrl-C reaches the command as a signal of its terminal.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "trap 'echo got''INT; exit 5' INT; echo rea''dy; while :; do sleep 0.05; done")
	m.Expect("ready")
	m.Send("\x03")
	m.Expect("gotINT")
	if code := m.Wait(); code != 5 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
}

// The window goes away: the command is hung up on, and nothing stays.
func TestTerminalHangup(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "trap 'echo hup >hup; exit 0' HUP; echo rea''dy; while :; do sleep 0.05; done")
	m.Expect("ready")
	m.Slave.Close()
	m.Master.Close()
	m.Wait()
	b.File(t, "hup")
}

// What has a terminal on one side only is a pipe inside.
func TestPipeIsNoTerminal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.RunWith(strings.NewReader("x"), "--net", "none", "--", "sh", "-c", "test -t 0 || test -t 1 || echo pipes; cat")
	if r.Code != 0 || r.Out != "pipes\nx" {
		t.Errorf("%s", r)
	}
}
