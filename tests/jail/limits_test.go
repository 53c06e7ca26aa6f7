//go:build e2e

package jail

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// Here nothing gives out control groups: a limit that takes one is refused by name
// before anything starts, and of a default one line says so at most.
func TestLimitsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for key, value := range map[string]string{"memory": "2g", "cpus": "1.5"} {
		r := b.Run("--net", "none", "--"+key, value, "--", "touch", "ran")
		if r.Code != 125 || !oneError(r, key+` `+regexp.QuoteMeta(value)+` \(from --`+key+`\) can't be enforced here: (this machine has no|there is no systemd|systemd does not run).*; or drop it`) {
			t.Errorf("--%s: %s", key, r)
		}
		if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil {
			t.Errorf("--%s: the command ran", key)
		}
	}
	// The positive control: a limit that needs no such group.
	r := b.OK("--net", "none", "--disk", "30m", "--", "./probe", "fill", "/tmp", "/var/tmp")
	if r.Out != "fill /tmp 20971520 true\nfill /var/tmp 10485760 true\n" {
		t.Errorf("%s", r)
	}
	const note = "ai-sandbox: the default limit of 4096 processes and threads is not enforced: "
	switch told := strings.Count(r.Err, note); {
	case os.Getuid() == 0 && told != 1: // the kernel does not count root's
		t.Errorf("%d lines say that the default is not enforced: %s", told, r)
	case os.Getuid() != 0 && told != 0:
		t.Errorf("%s", r)
	}
	if os.Getuid() == 0 {
		if r := b.Run("--net", "none", "--pids", "100", "--", "true"); r.Code != 125 || !oneError(r, `pids 100 \(from --pids\) can't be enforced here: .*`) {
			t.Errorf("%s", r)
		}
		return
	}
	// The kernel counts a user's processes in the jail's own namespace.
	if r := b.OK("--net", "none", "--pids", "100", "--", "./probe", "fork", "300"); !strings.HasSuffix(r.Out, " resource temporarily unavailable\n") {
		t.Errorf("%s", r)
	}
	if r := b.OK("--net", "none", "--", "./probe", "fork", "300"); r.Out != "fork 300 <nil>\n" {
		t.Errorf("%s", r)
	}
}

// At the end of its time a command gets SIGTERM, and SIGKILL when it does not mind;
// its exit code says which it was, whatever the command made of it.
func TestTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		command string
		limit   time.Duration
		least   time.Duration
		ended   string
	}{
		"sleeps": {"exec sleep 1000", time.Second, time.Second, "ended by SIGTERM"},
		"obeys":  {"trap 'exit 0' TERM; while :; do sleep 0.1; done", time.Second, time.Second, "ended by SIGTERM"},
		// With time enough to come to its trap.
		"ignores": {"trap '' TERM; while :; do sleep 0.1; done", 10 * time.Second, 20 * time.Second, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			report := filepath.Join(t.TempDir(), "report.json")
			start := time.Now()
			r := b.Run("--net", "none", "--time", tc.limit.String(), "--report", report, "--", "sh", "-c", tc.command)
			took := time.Since(start)
			rep := drive.ReadReport(t, report)
			if r.Code != 124 || rep.ExitCode != 124 || rep.EndedBy != "time" || !strings.Contains(rep.Reason, tc.ended) || !strings.Contains(r.Err, rep.Reason) {
				t.Errorf("%s\n%+v", r, rep)
			}
			if took < tc.least || took > tc.least+30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	if r := newBox(t).Run("--net", "none", "--time", "1h", "--", "sh", "-c", "exit 7"); r.Code != 7 {
		t.Errorf("the positive control: %s", r)
	}
}

// The limits are in the printout, with what holds them, and in what would be run.
func TestLimitsArePrinted(t *testing.T) {
	t.Parallel()
	r := newBox(t).OK("--dry-run", "--time", "90s", "--disk", "300m", "--", "true")
	for _, want := range []string{"\n  time       1m30s, then SIGTERM\n", "\n  disk       300 MiB: 200 MiB for /tmp and 100 MiB for /var/tmp\n", "--size 209715200 \\\n  --tmpfs /tmp"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in %s", want, r.Out)
		}
	}
	if os.Getuid() != 0 && !strings.Contains(r.Out, "prlimit --nproc=4096") {
		t.Errorf("%s", r.Out)
	}
}
