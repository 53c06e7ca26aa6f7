//go:build e2e

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// TestSuspended is the same on each runtime: see drive.TestSuspended.
func TestSuspended(t *testing.T) {
	t.Parallel()
	drive.TestSuspended(t, newBox(t).Box, "builtin")
}

// TestManyAtOnce is the same on each runtime: see drive.TestManyAtOnce.
func TestManyAtOnce(t *testing.T) {
	b := newBox(t)
	settle(t)
	b.OK("--net", "none", "--ephemeral-home", "--", "true") // makes what all have in common
	before := snapshot(t)
	drive.TestManyAtOnce(t, b.Box, 30)
	nothingLeft(t, before)
}

// A session that runs out of files says so, and leaves nothing that the next does not
// remove: it takes files to remove files.
func TestFewFiles(t *testing.T) {
	b := newBox(t)
	settle(t)
	b.OK("--net", "none", "--ephemeral-home", "--", "true") // makes what all have in common
	before := snapshot(t)
	drive.TestFewFiles(t, b.Box)
	b.OK("clean")
	nothingLeft(t, before)
}

// A state directory that is full, in bytes or in files, lets nothing start; one that
// gets full ends no command, and what is not kept is told.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		return // see isolated
	}
	const fill = `head -c 100m /dev/zero >$S/fill 2>/dev/null`
	for _, c := range []struct{ name, options, script, says string }{
		{"full", "size=8m", fill, "no space left on device"},
		{"no files", "size=64m,nr_inodes=6", "true", "no space left on device"},
		{"enough", "size=64m", "true", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, on := onDisk(t, c.options, c.script)
			r := b.runIn(on, "--net", "none", "--ephemeral-home", "--", "sh", "-c", "echo x >ran")
			ran := b.Size("ran") > 0
			if c.says == "" && (r.Code != 0 || !ran) {
				t.Errorf("the positive control failed: %s", r)
			}
			if c.says != "" && (r.Code != 125 || ran || !strings.Contains(r.Err, c.says)) {
				t.Errorf("%s, ran %v", r, ran)
			}
			names, err := os.ReadDir(b.Dir)
			if err != nil || len(names) > 2 { // the probe, and what ran
				t.Errorf("left in the project: %v, %v", names, err)
			}
		})
	}
	t.Run("later", func(t *testing.T) {
		b, on := onDisk(t, "size=64m", `(until test -e up; do sleep 0.02; done; `+fill+`; touch full) >/dev/null 2>&1 &`)
		r := b.runIn(on, "--net", "none", "--ephemeral-home", "--", "sh", "-c", "touch up; until test -e full; do sleep 0.02; done; exit 7")
		// What ends with it makes a little room for what is kept of it.
		if r.Code != 7 {
			t.Errorf("%s", r)
		}
	})
}

// onDisk is a box whose state is on a file system of its own, and what runs a command
// with that mounted. script is run before, with it at $S.
func onDisk(t *testing.T, options, script string) (*box, func(*exec.Cmd) *exec.Cmd) {
	t.Helper()
	b := newBox(t)
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	b.Env = append(b.Env, "XDG_STATE_HOME="+state)
	return b, func(cmd *exec.Cmd) *exec.Cmd {
		return isolated(cmd, fmt.Sprintf("S=%s; mount -t tmpfs -o %s,mode=0700 tmpfs $S; %s\ntrue", state, options, script))
	}
}
