//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// In the test host nothing gives out control groups, so a limit that takes one is
// refused; tests/limits holds podman's runtime to them where there are some. What
// needs none holds here too.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	groups := !strings.Contains(b.OK("--print-policy", "--net", "none", "--", "true").Out, "(rlimit)")
	for key, value := range map[string]string{"memory": "2g", "cpus": "1.5"} {
		r := b.Run("--net", "none", "--"+key, value, "--", "echo", "ran")
		if refused := r.Code == 125 && r.Out == "" && strings.Contains(r.Err, key+" "+value+" (from --"+key+") can't be enforced here: "); refused == groups {
			t.Errorf("--%s, where there are control groups: %v: %s", key, groups, r)
		}
	}
	if r := b.OK("--net", "none", "--pids", "100", "--", "./probe", "fork", "300"); !strings.HasSuffix(r.Out, " resource temporarily unavailable\n") {
		t.Errorf("%s", r)
	}
	if r := b.OK("--net", "none", "--", "./probe", "fork", "300"); r.Out != "fork 300 <nil>\n" || strings.Contains(r.Err, "not enforced") {
		t.Errorf("the positive control: %s", r)
	}
	if r := b.OK("--net", "none", "--disk", "30m", "--", "./probe", "fill", "/tmp", "/var/tmp"); r.Out != "fill /tmp 20971520 true\nfill /var/tmp 10485760 true\n" {
		t.Errorf("%s", r)
	}
}

// The end of its time is the command's end, and the exit code says so.
func TestTime(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	path := filepath.Join(t.TempDir(), "report.json")
	start := time.Now()
	r := b.Run("--net", "none", "--time", "1s", "--report", path, "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
	if rep := drive.ReadReport(t, path); r.Code != 124 || rep.ExitCode != 124 || rep.EndedBy != "time" || rep.Leftover != "" {
		t.Errorf("%s\n%+v", r, rep)
	}
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("it took %v", took)
	}
	if r := b.Run("--net", "none", "--time", "1h", "--", "sh", "-c", "exit 7"); r.Code != 7 {
		t.Errorf("the positive control: %s", r)
	}
}
