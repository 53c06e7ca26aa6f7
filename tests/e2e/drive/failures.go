// What can go wrong while sessions run, and is the same on each runtime.

package drive

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSuspended stops ai-sandbox (SIGTSTP) while its command runs, and lets it go on
// (SIGCONT): the command goes on all the while, and its end is told as ever.
func TestSuspended(t *testing.T, b *Box) {
	cmd := b.Command(context.Background(), "--net", "none", "--ephemeral-home", "--", "sh", "-c", "trap '' CONT; until test -e go; do printf . >>beats; sleep 0.02; done; exit 7")
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
	if !stopped() {
		t.Error("it goes on by itself")
	}
	if err := l.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := l.Wait(20 * time.Second); r.Code != 7 {
		t.Errorf("want the command's own end: %s", r)
	}
}

// TestManyAtOnce starts n sessions within a second. Each comes up with a gate of its
// own, which lets through what that session may reach and nothing else, or says
// clearly why it can't; and nothing is left.
func TestManyAtOnce(t *testing.T, b *Box, n int) {
	host := func(i int) string { return fmt.Sprintf("m%d%s.ok.test", i%n, b.Token) }
	results := make([]Result, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			results[i] = b.Run("--ephemeral-home", "--allow", host(i), "--", "sh", "-c",
				fmt.Sprintf("for h in %s %s; do curl -s -o /dev/null -w '%%{http_code} ' http://$h/; done", host(i), host(i+1)))
		})
	}
	wg.Wait()
	up := 0
	for i, r := range results {
		switch {
		case r.Code == 0 && r.Out == "200 403 ":
			up++
		case r.Code == 125 && r.Out == "" && strings.Contains(r.Err, "ai-sandbox: error: "):
			t.Logf("session %d: %s", i, r.Err)
		default:
			t.Errorf("session %d: %s", i, r)
		}
	}
	if up < n/2 {
		t.Errorf("only %d of %d came up", up, n)
	}
	for _, s := range b.Sessions(t) {
		if s.State != "ended" {
			t.Errorf("%+v", s)
		}
	}
}
