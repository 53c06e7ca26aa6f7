//go:build vm

package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What asks for too much memory is killed, alone; with more to use it is not.
func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const tries = "./probe alloc 150; echo code $?; ./probe alloc 1"
		if r := b.run(t, 0, "--memory", "64m", "--", "sh", "-c", tries); strings.Contains(r.Out, "alloc 150") ||
			!strings.Contains(r.Out, "code 137") || !strings.Contains(r.Out, "alloc 1\n") {
			t.Errorf("with 64 MiB: %s", r)
		}
		if r := b.run(t, 0, "--memory", "400m", "--", "sh", "-c", tries); !strings.Contains(r.Out, "alloc 150\ncode 0") {
			t.Errorf("with 400 MiB: %s", r)
		}
		// What lies on a tmpfs is memory too, and stays when who wrote it is killed:
		// PID 1 may be next.
		r := b.start("--memory", "64m", "--disk", "600m", "--", "./probe", "fill", "/tmp")
		if all := r.Code == 125 && strings.Contains(r.Err, "its memory of 64 MiB was full"); r.Out != "" || r.Code != 137 && !all {
			t.Errorf("a file of more than that: %s", r)
		}
	})
}

// forked is how many processes the probe could make, and why not more.
func forked(t *testing.T, r result) (made int, why string) {
	t.Helper()
	for line := range strings.Lines(r.Out) {
		if rest, ok := strings.CutPrefix(line, "fork "); ok {
			n, w, _ := strings.Cut(strings.TrimSpace(rest), " ")
			made, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			return made, w
		}
	}
	t.Fatalf("the probe says nothing: %s", r)
	return 0, ""
}

const again = "resource temporarily unavailable"

// There are no more processes than the limit, which is there by default; what
// they were is gone afterwards.
func TestPids(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		if made, why := forked(t, b.run(t, 0, "--pids", "100", "--", "./probe", "fork", "300")); made > 98 || made < 60 || why != again {
			t.Errorf("of 300 there are %d: %s", made, why)
		}
		if made, why := forked(t, b.run(t, 0, "--", "./probe", "fork", "300")); made != 300 {
			t.Errorf("by default, of 300 there are %d: %s", made, why)
		}
		if b.runtime == "podman" { // it sees its control group
			if r := b.run(t, 0, "--", "cat", "/sys/fs/cgroup/pids.max"); r.Out != "4096\n" {
				t.Errorf("by default: %s", r)
			}
			if r := b.run(t, 0, "--pids", "none", "--", "cat", "/sys/fs/cgroup/pids.max"); r.Out != "max\n" {
				t.Errorf("without a limit: %s", r)
			}
		} else if made, why := forked(t, b.run(t, 0, "--", "./probe", "fork", "5000")); made > 4095 || made < 4000 || why != again {
			t.Errorf("by default, of 5000 there are %d: %s", made, why)
		}
	})
}

// A fork bomb fails, and the sandbox that it is in can be ended.
func TestForkBomb(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		start := time.Now()
		r := b.run(t, 124, "--pids", "200", "--time", "5s", "--report", "report.json", "--",
			"sh", "-c", "b() { b | b & }; b; exec sleep 1000")
		if !strings.Contains(r.Err, "Cannot fork") {
			t.Errorf("no fork has failed: %s", r)
		}
		if rep := b.report(t); rep.EndedBy != "time" || rep.Leftover != "" {
			t.Errorf("%+v", rep)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A quarter of a processor is much less than two. What is measured is coarse: the
// VM's own processors get what the machine has left.
func TestCPUs(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		spun := func(args ...string) (share float64, out string) {
			r := b.run(t, 0, append(args, "--", "sh", "-c", "./probe spin 10; cat /sys/fs/cgroup/cpu.max || :")...)
			if _, err := fmt.Sscanf(r.Out, "spin %f", &share); err != nil {
				t.Fatalf("%v: %s", err, r)
			}
			return share, r.Out
		}
		all, _ := spun()
		quarter, out := spun("--cpus", "0.25")
		t.Logf("%.2f, and with a limit %.2f", all, quarter)
		if quarter > all/2 || quarter < 0.1 {
			t.Errorf("with a quarter of a processor it had %.2f, and %.2f without a limit", quarter, all)
		}
		// A jail does not see its control group.
		if b.runtime == "podman" && !strings.HasSuffix(out, "\n25000 100000\n") {
			t.Errorf("inside: %s", out)
		}
	})
}

// /tmp is two thirds of the disk, and /var/tmp the rest.
func TestDisk(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for disk, want := range map[string]string{
			"30m": "fill /tmp 20971520 true\nfill /var/tmp 10485760 true\n",
			"60m": "fill /tmp 41943040 true\nfill /var/tmp 20971520 true\n",
		} {
			if r := b.run(t, 0, "--disk", disk, "--", "./probe", "fill", "/tmp", "/var/tmp"); r.Out != want {
				t.Errorf("--disk %s: %s", disk, r)
			}
		}
	})
}

// The kernel's own files say what was asked for, seen from outside.
func TestReadBack(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		cmd := b.command(ctx, "--memory", "100m", "--cpus", "1.5", "--pids", "123", "--", "sh", "-c", "touch up; sleep 1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(b.dir, "up")); err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("it does not start")
			}
			time.Sleep(50 * time.Millisecond)
		}
		pattern := "aisb-*.scope"
		if b.runtime == "podman" {
			pattern = "libpod-*.scope"
		}
		groups := scopes(pattern)
		if len(groups) != 1 {
			t.Fatalf("the groups are %v", groups)
		}
		for file, want := range map[string]string{
			"memory.max": "104857600", "memory.swap.max": "0", "pids.max": "123", "cpu.max": "150000 100000",
		} {
			// Its OCI runtime makes one more below, and may have set it there.
			got, _ := os.ReadFile(filepath.Join(groups[0], file))
			below, _ := os.ReadFile(filepath.Join(groups[0], "container", file))
			if strings.TrimSpace(string(got)) != want && strings.TrimSpace(string(below)) != want {
				t.Errorf("%s: %q, and below %q", file, got, below)
			}
		}
		cancel()
		_ = cmd.Wait() // it was ended
		// It is there until systemd has heard.
		eventually(t, "its control groups are gone", func() bool { return len(scopes(pattern)) == 0 })
	})
}

// Where the manager of the user's session is not to be reached, what was asked for
// is refused before anything starts, and the default takes another way.
func TestNoManager(t *testing.T) {
	b := newBoxAt(filepath.Join(w.home, "projects", "no-manager"), "local")
	b.env = []string{"XDG_RUNTIME_DIR=" + t.TempDir()}
	if err := os.Chmod(strings.TrimPrefix(b.env[0], "XDG_RUNTIME_DIR="), 0o700); err != nil {
		t.Fatal(err)
	}
	r := b.run(t, 125, "--memory", "100m", "--", "./probe", "fork", "1")
	if want := "ai-sandbox: error: memory 100m (from --memory) can't be enforced here: there is no systemd session of dev here, which alone gives out control groups; log in as this user, or run: sudo loginctl enable-linger dev; or drop it\n"; r.Err != want || r.Out != "" {
		t.Errorf("%s", r)
	}
	if made, why := forked(t, b.run(t, 0, "--pids", "100", "--", "./probe", "fork", "300")); made > 98 || made < 60 || why != again {
		t.Errorf("of 300 there are %d: %s", made, why)
	}
}

// A podman whose configuration has control groups made otherwise either enforces
// what was asked for all the same, or the run is refused.
func TestCgroupfs(t *testing.T) {
	b := newBoxAt(filepath.Join(w.home, "projects", "cgroupfs"), "podman")
	conf := filepath.Join(t.TempDir(), "containers.conf")
	if err := os.WriteFile(conf, []byte("[engine]\ncgroup_manager = \"cgroupfs\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	endServices(t)
	defer endServices(t)
	b.env = []string{"CONTAINERS_CONF_OVERRIDE=" + conf}
	r := b.start("--memory", "64m", "--", "sh", "-c", "./probe alloc 150; echo code $?")
	refused := r.Code == 125 && r.Out == "" && strings.Contains(r.Err, "cgroup_manager")
	if t.Logf("%s", r); !refused && (r.Code != 0 || r.Out != "code 137\n") {
		t.Errorf("neither refused nor enforced: %s", r)
	}
}

// endServices ends podman's services, so that the next one reads its configuration.
func endServices(t *testing.T) {
	t.Helper()
	out, _ := exec.Command("pgrep", "-f", "podman .*system service").Output() // it may have ended by itself
	for _, pid := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(pid)
		if err == nil {
			err = syscall.Kill(n, syscall.SIGKILL)
		}
		if err != nil && err != syscall.ESRCH { // its parent's end was its own
			t.Fatal(err)
		}
	}
}

// Further commands count with the first.
func TestExecCounts(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		r := b.verb(t, "up", "--runtime", b.runtime, "--net", "none", "--json", "--pids", "100", b.dir)
		var h struct {
			ID string `json:"sandbox_id"`
		}
		if err := json.Unmarshal([]byte(r.Out), &h); err != nil {
			t.Fatalf("%v: %s", err, r)
		}
		first, _ := forked(t, b.verb(t, "exec", h.ID, "--", "./probe", "fork", "40"))
		second, why := forked(t, b.verb(t, "exec", h.ID, "--", "./probe", "fork", "300"))
		if first != 40 || second > 58 || second < 20 || why != again {
			t.Errorf("%d and then %d: %s", first, second, why)
		}
		b.verb(t, "down", h.ID)
	})
}
