//go:build vm

package limits

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/canary"
)

// No value that a run passes on is in the journal, to which podman, conmon and crun
// write: not after success, not where an error quotes it, not after a SIGKILL and the
// reaping.
func TestJournal(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		began := time.Now()
		c := canary.New()
		byName, filed := c.Add("NAME"), c.Add("FILE")
		file := filepath.Join(t.TempDir(), "env")
		if err := os.WriteFile(file, []byte("FILED="+filed+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.env = append(b.env, "BY_NAME="+byName, "HOST_ONLY="+c.Add("HOST"))
		args := func(more ...string) []string {
			return append([]string{"--env", "BY_NAME", "--env-file", file}, more...)
		}
		if r := b.run(t, 0, args("--", "sh", "-c", `echo "$BY_NAME $FILED"`)...); r.Out != byName+" "+filed+"\n" {
			t.Errorf("inside they are not: %s", r)
		}
		if r := b.run(t, 127, args("--", "/no/such/"+byName)...); !strings.Contains(r.Err, "/no/such/[BY_NAME]: ") {
			t.Errorf("%s", r)
		}
		cmd := b.command(context.Background(), args("--", "sh", "-c", `echo "$BY_NAME" >up; sleep 1000`)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(b.dir, "up")); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the command does not begin")
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		b.verb(t, "clean", "--runtime", b.runtime)

		in, text, err := c.Journal(began)
		if err != nil || len(in) > 0 {
			t.Errorf("the journal has %q (%v)", in, err)
		}
		if b.runtime == "podman" && !strings.Contains(text, "aisb-") {
			t.Errorf("podman wrote nothing to the journal: %d bytes", len(text))
		}
		// And the positive control: what is there is found.
		planted := c.Add("PLANTED")
		if out, err := exec.Command("logger", planted).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if in, _, err := c.Journal(began); err != nil || !slices.Equal(in, []string{"PLANTED"}) {
			t.Errorf("the journal has %q, not the control (%v)", in, err)
		}
	})
}
