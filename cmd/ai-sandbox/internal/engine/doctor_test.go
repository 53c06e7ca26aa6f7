package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

// A sandbox that does not come up fails one check, with a command; the others were not
// looked at, and each of them is told so.
func TestTrialNamesTheCheck(t *testing.T) {
	for _, c := range []struct {
		control, err string
		runtime      string
		name, fix    string
	}{
		{"ruleset", "listen (the kernel module nfnetlink_log): x", policy.RuntimePodman, "nftables", "sudo modprobe -a nf_tables"},
		{"ruleset", "x", policy.RuntimePodman, "nftables", "ai-sandbox logs s1"},
		{"network", "x", policy.RuntimePodman, "loopback", "passt"},
		{"gate", "x", policy.RuntimePodman, "loopback", "passt"},
		{"", "start the container: pasta failed with exit code 1:\nx", policy.RuntimePodman, "loopback", "passt"},
		{"mounts", "x", policy.RuntimePodman, "sandbox", "ai-sandbox logs s1"},
		{"seccomp", "x", policy.RuntimeLocal, "sandbox", "ai-sandbox logs s1"},
	} {
		tr := trialOf{r: cli.RunRequest{Policy: policy.Policy{Runtime: c.runtime}}}
		list := tr.startFailed(session.Report{Session: "s1", Control: c.control}, errors.New(c.err))
		if want := map[string]int{policy.RuntimePodman: 4, policy.RuntimeLocal: 3}[c.runtime]; len(list) != want {
			t.Errorf("%s: %d checks of %d: %+v", c.control, len(list), want, list)
		}
		for _, v := range list {
			if v.OK() || v.Fix == "" || v.Untried() != (v.Name != c.name) {
				t.Errorf("%s: %+v", c.control, v)
			}
		}
		if bad := host.Problems(list); len(bad) != 1 || bad[0].Name != c.name || !strings.Contains(bad[0].Fix, c.fix) || !strings.Contains(bad[0].Problem, strings.ReplaceAll(c.err, "\n", "; ")) {
			t.Errorf("%s: %+v", c.control, bad)
		}
	}
}

// An old pin is told with what replaces it.
func TestOldBase(t *testing.T) {
	for name, c := range map[string]struct {
		ttl  int
		keep bool
		want string // "": nothing to tell
	}{
		"too old": {7, false, "pinned; base_ttl_days is 7, so the next build asks anew"}, "kept": {7, true, "pinned; base_auto_update is 0, so only ai-sandbox update replaces it"},
		"young enough": {9, false, ""}, "young enough, and kept": {9, true, ""}, "never": {-1, false, ""},
	} {
		v := aged(host.Verdict{Detail: "pinned"}, cli.ImageRequest{BaseTTL: c.ttl, KeepBase: c.keep}, 8*24*time.Hour)
		if v.Problem != c.want || v.Info != (c.want != "") || (v.Fix == "ai-sandbox update") != v.Info || v.Detail != "pinned" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A file that did not make the round trip is told with what happened to it.
func TestTrialOfAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "aisb-doctor-1-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "inside")
	for _, c := range []struct {
		out, err string
		made     func() error
		says     string
	}{
		{"owner ok\ngate ok\n", "", func() error { return os.WriteFile(inside, []byte("word"), 0o600) }, ""},
		{"gate ok\n", "aisb-entrypoint: owner: open outside: permission denied\naisb-entrypoint: gate: x\n", nil, "round trip: open outside: permission denied"},
		{"", "", nil, "round trip"},
		{"owner ok\n", "", func() error { return os.Remove(inside) }, "is not there"},
		{"owner ok\n", "", func() error { return os.WriteFile(inside, []byte("other"), 0o600) }, "something else in it"},
		{"owner ok\n", "", func() error { return errors.Join(os.Remove(inside), os.Symlink("/etc/passwd", inside)) }, "somebody else"},
	} {
		tr := trialOf{r: cli.RunRequest{Machine: cli.Machine{Facts: host.Facts{UID: os.Getuid()}}}, dir: dir}
		tr.stdout.WriteString(c.out)
		tr.stderr.WriteString(c.err)
		if c.made != nil {
			if err := c.made(); err != nil {
				t.Fatal(err)
			}
		}
		if v := tr.bind("word"); v.OK() != (c.says == "") || !strings.Contains(v.Problem, c.says) || v.OK() == (v.Fix != "") {
			t.Errorf("%q: %+v", c.out, v)
		}
	}
	// It belongs to somebody else.
	if err := errors.Join(os.Remove(inside), os.WriteFile(inside, []byte("word"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tr := trialOf{r: cli.RunRequest{Machine: cli.Machine{Facts: host.Facts{UID: os.Getuid() + 1}}}, dir: dir}
	tr.stdout.WriteString("owner ok\n")
	if v := tr.bind("word"); !strings.Contains(v.Problem, "belongs to somebody else") {
		t.Errorf("%+v", v)
	}
	if v := tr.loopback(); v.OK() || v.Fix == "" {
		t.Errorf("%+v", v)
	}
}
