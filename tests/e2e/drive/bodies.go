// Bodies of tests that are the same for both runtimes.

package drive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// CheckGuide looks at the guide: it is where the agent is told that it is, says what
// this run may, and can't be changed.
func (b *Box) CheckGuide(t *testing.T) {
	t.Helper()
	host := b.Host("ok.test")
	script := `cat /etc/aisb/GUIDE.md; grep "^The project is " /etc/aisb/GUIDE.md | grep -qF "$PWD" && echo named; echo -- >/etc/aisb/GUIDE.md; rm -f /etc/aisb/GUIDE.md /run/aisb/GUIDE.md; ` +
		`stat -Lc %a /etc/aisb/GUIDE.md; curl -sS https://` + b.Host("no.test") + `/; curl -sS --noproxy '*' https://` + host + `/; true`
	r := b.OK("--allow", host, "--publish", ":3000", "--", "sh", "-c", script)
	for _, want := range []string{"- " + host + "\n", "- 3000\n", "\nnamed\n", "git push origin BRANCH", "\n400\n"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("%q is not there: %s", want, r)
		}
	}
	// What it says of a refusal is what one looks like.
	for _, said := range []string{"CONNECT tunnel failed, response 403", "Could not resolve host"} {
		if !strings.Contains(r.Out, said) || !strings.Contains(r.Err, said) {
			t.Errorf("%q is not said, or not so: %s", said, r)
		}
	}
	if !strings.Contains(r.Err, "Read-only file system") {
		t.Errorf("the guide can be changed: %s", r)
	}
}

// CheckExitCodes looks at what a command ends with, each in a box of its own.
func CheckExitCodes(t *testing.T, box func(*testing.T) *Box) {
	t.Helper()
	run := func(t *testing.T, command ...string) (Result, Report) {
		file := filepath.Join(t.TempDir(), "report.json")
		r := box(t).Run(append([]string{"--report", file, "--net", "none", "--"}, command...)...)
		return r, ReadReport(t, file)
	}
	for _, code := range []int{0, 1, 2, 42, 77, 78, 125, 126, 127, 128, 130, 137, 255} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r, rep := run(t, "sh", "-c", fmt.Sprintf("exit %d", code))
			if r.Code != code || rep.EndedBy != "command" || rep.ExitCode != code || rep.Control != "" || rep.Leftover != "" {
				t.Errorf("the command ended by itself: %s: %+v", r, rep)
			}
			if strings.Contains(r.Err, "error") {
				t.Errorf("a command's own exit code is no error of ours: %s", r)
			}
		})
	}
	for name, tc := range map[string]struct {
		command []string
		code    int
	}{
		"KILL":           {[]string{"sh", "-c", "kill -KILL $$"}, 137},
		"TERM":           {[]string{"sh", "-c", "kill -TERM $$"}, 143},
		"SEGV":           {[]string{"sh", "-c", "kill -SEGV $$"}, 139},
		"not found":      {[]string{"no-such-command"}, 127},
		"not there":      {[]string{"/no/such/command"}, 127},
		"not executable": {[]string{"/etc/passwd"}, 126},
		"a directory":    {[]string{"/etc"}, 126},
	} {
		t.Run(name, func(t *testing.T) {
			r, rep := run(t, tc.command...)
			if r.Code != tc.code || rep.ExitCode != tc.code || (rep.EndedBy == "command") != (tc.code > 128) || tc.code > 128 && rep.Signal != tc.code-128 {
				t.Errorf("want %d: %s: %+v", tc.code, r, rep)
			}
		})
	}
}

// CheckTerminal works at a terminal as a user does.
func (b *Box) CheckTerminal(t *testing.T) {
	t.Helper()
	m := b.OnTerminal(t, "--net", "none", "--", "bash", "--norc", "-i")
	m.Send("PS1='$ '; tty; test -t 0 && test -t 1 && test -t 2 && echo is''TTY; stty size; echo term''=$TERM; : </dev/tty && echo has''CTTY\r")
	m.Expect("/dev/pts/")
	m.Expect("isTTY")
	m.Expect("30 100")
	m.Expect("term=xterm")
	m.Expect("hasCTTY")
	if strings.Contains(m.Out.String(), "no job control") || strings.Contains(m.Out.String(), "cannot set terminal process group") {
		t.Errorf("bash has no job control: %q", m.Out.String())
	}
	m.Resize(77, 22)
	Eventually(t, 10*time.Second, "the new size", func() bool {
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
	// Ctrl-Z stops the job inside, not ai-sandbox; fg goes on with it.
	m.Send("sh -c 'echo ag\"\"ain; until test -e go; do sleep 0.1; done; echo slept\"\"=well'\r")
	m.Expect("again")
	m.Send("\x1a")
	m.Expect("Stopped")
	if err := os.WriteFile(filepath.Join(b.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Send("jobs; fg\r")
	m.Expect("slept=well")
	m.Send("\x15echo back''=here\r")
	m.Expect("back=here")
	// podman's detach keys are bytes like any other.
	m.Send("\x10\x11")
	m.Send("\x15echo attached''=still\r")
	m.Expect("attached=still")
	m.Send("exit 43\r")
	if code := m.Wait(); code != 43 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
	if after := m.Settings(); after != m.Before {
		t.Errorf("the terminal is not as it was: %+v, was %+v", after, m.Before)
	}
}

// CheckInterrupt presses Ctrl-C, which reaches the command as a signal of its terminal.
func (b *Box) CheckInterrupt(t *testing.T) {
	t.Helper()
	m := b.OnTerminal(t, "--net", "none", "--", "sh", "-c", "trap 'echo got''INT; exit 5' INT; echo rea''dy; while :; do sleep 0.05; done")
	m.Expect("ready")
	m.Send("\x03")
	m.Expect("gotINT")
	if code := m.Wait(); code != 5 {
		t.Errorf("exit code %d: %q", code, m.Out.String())
	}
}

// CheckHangup has the window go away: the command is hung up on, still has its time,
// whatever it says then, and ends by itself; and nothing stays.
func (b *Box) CheckHangup(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	// More than lies between the command and the terminal: it waits for what takes it. And
	// longer than the connection to a sandbox may be lost.
	m := b.OnTerminal(t, "--report", file, "--net", "none", "--", "sh", "-c",
		"trap 'head -c 1000000 /dev/zero; sleep 2; echo hup >hup; exit 3' HUP; echo rea''dy; while :; do sleep 0.05; done")
	m.Expect("ready")
	m.Slave.Close()
	m.Master.Close()
	code := m.Wait()
	b.File(t, "hup")
	if rep := ReadReport(t, file); code != 3 || rep.EndedBy != "command" || rep.Leftover != "" {
		t.Errorf("exit code %d: %+v", code, rep)
	}
}

// CheckPipe has a terminal on one side only, which is a pipe inside.
func (b *Box) CheckPipe(t *testing.T) {
	t.Helper()
	r := b.RunWith(strings.NewReader("x"), "--net", "none", "--", "sh", "-c", "test -t 0 || test -t 1 || echo pipes; cat")
	if r.Code != 0 || r.Out != "pipes\nx" {
		t.Errorf("%s", r)
	}
}
