//go:build e2e

package e2e

import (
	"bufio"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// newSlowBox is a pinBox with a base on which apt-get goes on for ever and says nothing,
// where one of its arguments is that.
func newSlowBox(t *testing.T, arg string) *pinBox {
	t.Helper()
	p := newPinBox(t)
	p.base += `RUN echo '#!/bin/sh' >/usr/bin/apt-get; echo 'for a; do if [ "$a" = ` + arg + " ]; then exec tail -f /etc/slow-" + p.Token + "; fi; done' >>/usr/bin/apt-get; : >/etc/slow-" + p.Token + "\n"
	p.push("slow")
	return p
}

// slow are the processes of such a step.
func (p *pinBox) slow() []process { return find(p.T, "tail -f /etc/slow-"+p.Token) }

// A building is an ai-sandbox that has begun to build.
type building struct {
	*exec.Cmd
	t    *testing.T
	said chan string
	all  string
}

func (p *pinBox) building(args ...string) *building {
	p.T.Helper()
	b := &building{Cmd: p.Command(p.T.Context(), args...), t: p.T, said: make(chan string, 1000)}
	r, w := io.Pipe()
	b.Stderr, b.Stdout = w, w
	if err := b.Start(); err != nil {
		p.T.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			b.said <- lines.Text()
		}
		close(b.said)
	}()
	p.T.Cleanup(func() { b.Process.Kill() })
	return b
}

// until reads what it says until that is in it.
func (b *building) until(text string) {
	b.t.Helper()
	limit := time.After(3 * time.Minute)
	for {
		select {
		case line, ok := <-b.said:
			b.all += line + "\n"
			if strings.Contains(line, text) {
				return
			}
			if !ok {
				b.t.Fatalf("it has ended without saying %q: %s", text, drive.Tail(b.all))
			}
		case <-limit:
			b.t.Fatalf("it does not say %q: %s", text, drive.Tail(b.all))
		}
	}
}

// end waits for its end, and returns its exit code and all that it said.
func (b *building) end() (int, string) {
	b.t.Helper()
	err := b.Wait()
	b.Stderr.(*io.PipeWriter).Close()
	for line := range b.said {
		b.all += line + "\n"
	}
	if b.ProcessState == nil {
		b.t.Fatal(err)
	}
	return b.ProcessState.ExitCode(), b.all
}

// Ctrl-C in a step that says nothing: it ends at once, says so, and nothing is left of
// the build, not even for podman to finish. A builder that is killed leaves its step,
// which the next one ends.
func TestInterruptedBuild(t *testing.T) {
	t.Parallel()
	p := newSlowBox(t, "update")
	// layers are those on this base, of which each has its history.
	layers := func() []string {
		return slices.DeleteFunc(strings.Fields(drive.Output(t, "podman", "images", "-aq", "--no-trunc", "--filter", "label=aisb.build")), func(id string) bool {
			text, err := exec.Command("podman", "image", "inspect", "--format", "{{range .History}}{{.CreatedBy}}{{end}}", id).Output()
			return err != nil || !strings.Contains(string(text), p.Token)
		})
	}
	working := func() []string {
		return slices.DeleteFunc(strings.Split(drive.Output(t, "podman", "ps", "-a", "--external", "--format", "{{.ID}} {{.Image}}"), "\n"), func(line string) bool {
			return !strings.Contains(line, p.Token)
		})
	}
	nothing := func(how string) {
		t.Helper()
		if left := p.slow(); len(left) > 0 {
			t.Errorf("%s: the step goes on: %v", how, left)
		}
		if left := layers(); len(left) > 0 {
			t.Errorf("%s: layers stay: %v", how, left)
		}
		if left := working(); len(left) > 0 {
			t.Errorf("%s: containers of the build stay: %q", how, left)
		}
	}
	begun := func() {
		t.Helper()
		drive.Eventually(t, 3*time.Minute, "the step's command", func() bool { return len(p.slow()) == 1 })
		if len(layers()) == 0 || len(working()) == 0 {
			t.Error("the positive control: there is nothing to remove")
		}
	}

	// On a terminal, where the step's line is drawn anew.
	m := p.OnTerminal(t, "build")
	begun()
	drawn := regexp.MustCompile(`Debian packages \d+s\x1b\[K\r`)
	drive.Eventually(t, time.Minute, "the step's line, drawn anew", func() bool { return len(drawn.FindAllString(m.Out.String(), -1)) > 1 })
	m.Send("\x03")
	code := m.Wait()
	said := m.Out.String()
	if code != 130 || !strings.Contains(said, "ended by interrupt") || !strings.Contains(said, "what had been begun is removed") {
		t.Errorf("Ctrl-C: exit code %d: %q", code, said)
	}
	for line := range strings.SplitSeq(said, "\n") {
		frames := drawn.Split(strings.TrimSuffix(line, "\r"), -1)
		for _, frame := range frames[1:] {
			if !strings.HasPrefix(frame, "ai-sandbox: ai-sandbox-gate:") {
				t.Errorf("the step's line is not drawn anew: %q", line)
			}
		}
	}
	nothing("Ctrl-C")

	b := p.building("build")
	b.until("Debian packages")
	begun()
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, said := b.end(); code != 128+int(syscall.SIGTERM) || !strings.Contains(said, "ended by terminated") || !strings.Contains(said, "what had been begun is removed") {
		t.Errorf("a signal: exit code %d: %s", code, said)
	}
	nothing("a signal")

	// Killed, it can tell nobody; podman goes on with the step.
	b = p.building("build")
	b.until("Debian packages")
	begun()
	first := p.slow()[0].pid
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.end()
	next := p.building("build")
	next.until("Debian packages")
	drive.Eventually(t, 3*time.Minute, "the step of the next one, alone", func() bool { s := p.slow(); return len(s) == 1 && s[0].pid != first })
	// Two at once: one works, and the other waits, and says for what.
	other := p.building("build")
	other.until("waiting for another ai-sandbox that ")
	if err := other.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code, said := other.end(); code != 130 {
		t.Errorf("the one that waits ends with %d: %s", code, said)
	}
	if len(p.slow()) != 1 {
		t.Error("the one that waits has ended the other's build")
	}
	if err := next.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next.end()
	if len(layers()) == 0 {
		t.Error("the positive control: nothing is left to clean up")
	}
	p.OK("clean")
	if left := layers(); len(left) > 0 {
		t.Errorf("clean leaves %v", left)
	}
	if left := p.slow(); len(left) > 0 {
		t.Errorf("clean leaves the step: %v", left)
	}
}

// A check that is killed leaves the container in which it asks apt; clean removes that,
// and nothing while the check goes on. The proxy's password is in no record of podman's.
func TestKilledCheck(t *testing.T) {
	t.Parallel()
	p := newSlowBox(t, "-s")
	p.OK("build")
	const password = "hunter2-of-the-proxy"
	p.Env = append(p.Env, "http_proxy=http://me:"+password+"@192.0.2.1:3128", "NO_PROXY=127.0.0.1")
	b := p.building("update", "--check")
	drive.Eventually(t, 3*time.Minute, "apt", func() bool { return len(p.slow()) == 1 })
	look := func() []string {
		return slices.DeleteFunc(strings.Fields(drive.Output(t, "podman", "ps", "-aq", "--no-trunc", "--filter", "label=aisb.kind=look")), func(id string) bool {
			out, err := exec.Command("podman", "exec", id, "cat", "/etc/token").Output()
			return err != nil || strings.TrimSpace(string(out)) != p.Token
		})
	}
	ids := look()
	if len(ids) != 1 {
		t.Fatalf("containers that look: %q", ids)
	}
	if text := drive.Output(t, "podman", "inspect", ids[0]); strings.Contains(text, password) || !strings.Contains(text, "aisb-look-") {
		t.Errorf("podman's record of the container: %s", drive.Tail(text))
	}
	// The positive control: apt has it.
	if env := drive.Output(t, "podman", "exec", ids[0], "sh", "-c", `cat /proc/[0-9]*/environ | tr '\0' '\n'`); !strings.Contains(env, "http_proxy=http://me:"+password+"@192.0.2.1:3128\n") {
		t.Errorf("apt has no proxy: %s", drive.Tail(env))
	}
	p.OK("clean")
	if len(look()) != 1 {
		t.Error("clean has removed what is in use")
	}
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.end()
	if len(look()) != 1 {
		t.Error("the positive control: nothing was left to clean up")
	}
	p.OK("clean")
	if left := look(); len(left) > 0 {
		t.Errorf("clean leaves %q", left)
	}
	if left := p.slow(); len(left) > 0 {
		t.Errorf("clean leaves %v", left)
	}

	// Interrupted, it takes it away itself.
	b = p.building("update", "--check")
	drive.Eventually(t, 3*time.Minute, "apt", func() bool { return len(p.slow()) == 1 })
	if err := b.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code, said := b.end(); code != 130 {
		t.Errorf("exit code %d: %s", code, said)
	}
	if left := look(); len(left) > 0 {
		t.Errorf("an interrupted check leaves %q", left)
	}
}
