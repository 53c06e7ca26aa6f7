// What can go wrong while sessions run, and is the same on each runtime.

package drive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSuspended stops ai-sandbox (SIGTSTP) while its command runs, and lets it go on
// (SIGCONT): the command goes on all the while, what it asks of squid is answered, of the
// builtin gate at the latest after that, and its end is told as ever.
func TestSuspended(t *testing.T, b *Box, engine string) {
	cmd := b.Command(context.Background(), append([]string{"--ephemeral-home", "--gate-engine", engine}, b.Gated("sh", "-c",
		"trap '' CONT; until test -e go; do printf . >>beats; sleep 0.02; done; curl -sSf https://"+b.Host("ok.test")+"/ >got && exit 7")...)...)
	// As a shell's job: the kernel stops nothing of an orphaned process group
	// (setpgid(2)), which the tests' may be.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l := Started(t, cmd)
	b.File(t, "beats")
	stopped := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.Cmd.Process.Pid))
		return err == nil && strings.Contains(string(text), ") T ")
	}
	if err := l.Cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 10*time.Second, "ai-sandbox stopped", stopped)
	n := b.Size("beats")
	Eventually(t, 10*time.Second, "the command goes on", func() bool { return b.Size("beats") > n+2 })
	if err := os.WriteFile(b.Dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if engine == "squid" { // else the gate is in the process that stands still
		Eventually(t, RunTime, "squid's answer to the command", func() bool { return b.Size("got") > 0 })
	}
	if !stopped() {
		t.Error("it goes on by itself")
	}
	if err := l.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := l.Wait(20 * time.Second); r.Code != 7 || b.Size("got") == 0 {
		t.Errorf("want the command's own end, with an answer: %s", r)
	}
}

// TestManyAtOnce starts n sessions at once. Each comes up with a gate of its own, which
// lets through what that session may reach and nothing else, while all the others live.
func TestManyAtOnce(t *testing.T, b *Box, n int) {
	host := func(i int) string { return fmt.Sprintf("m%d%s.ok.test", i%n, b.Token) }
	began := time.Now()
	lives := make([]*Live, n)
	for i := range lives {
		lives[i] = b.Start(t, "--ephemeral-home", "--allow", host(i), "--", "sh", "-c",
			fmt.Sprintf("echo >up.%d; until test -e all; do sleep 0.1; done; for h in %s %s; do curl -s -o /dev/null -w '%%{http_code} ' http://$h/; done", i, host(i), host(i+1)))
	}
	t.Logf("%d were started within %v", n, time.Since(began))
	limit := time.Now().Add(10 * time.Minute)
	for up := 0; up < n && time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(b.Dir, "up.*"))
		if err != nil {
			t.Fatal(err)
		}
		ended := 0
		for _, l := range lives {
			select {
			case <-l.Done:
				ended++
			default:
			}
		}
		if up = len(names); ended > 0 {
			break // which none does by itself
		}
	}
	if err := os.WriteFile(filepath.Join(b.Dir, "all"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, l := range lives {
		if r := l.Wait(RunTime); r.Code != 0 || r.Out != "200 403 " {
			t.Errorf("session %d: %s", i, r)
		}
	}
	for _, s := range b.Sessions(t) {
		if s.State != "ended" {
			t.Errorf("%+v", s)
		}
	}
}

// TestFewFiles starts sessions with fewer and fewer open files. Each comes up, or ends
// with 125 and says what ran out, wherever it was by then, and its command has not run.
func TestFewFiles(t *testing.T, b *Box) {
	refused := 0
	for _, n := range []int{256, 128, 40, 34, 30, 26, 22, 20, 18, 16, 14, 12} {
		cmd := b.Command(context.Background(), "--ephemeral-home", "--allow", b.Host("ok.test"), "--", "sh", "-c", fmt.Sprintf("echo >ran.%d", n))
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, n), "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
		r := Started(t, cmd).Wait(RunTime)
		ran := b.Size(fmt.Sprintf("ran.%d", n)) > 0
		switch {
		case r.Code == 0 && ran:
		case r.Code == 125 && !ran && n < 128 && strings.Contains(r.Err, "ai-sandbox: error: ") && strings.Contains(r.Err, "too many open files"):
			refused++
		default:
			t.Errorf("%d open files: ran %v, %s", n, ran, r)
		}
	}
	if refused < 3 {
		t.Errorf("only %d had too few", refused)
	}
}
