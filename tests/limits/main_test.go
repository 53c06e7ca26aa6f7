//go:build vm

// Package limits holds what a run may use of the machine to its limits, from
// inside, on both runtimes: in the test VM, where systemd gives its user control
// groups of version 2. Each limit has a positive control: the same program with
// more to use. There a machine can be broken, too, and its clock be set: what a
// session and the doctor make of that is tested here. tests/limits/run starts it.
package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/stage"
)

var prepare = flag.Bool("prepare", false, "make the images, in the test host, and nothing else")

// w is what every test stands on; TestMain makes it.
var w struct {
	bin  string
	home string
	env  []string // of every ai-sandbox
}

var runtimes = []string{"local", "podman"}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := setup(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		code = 1
	}
	os.Exit(code)
}

// envFile keeps the settings that the images were made with.
const envFile = "e2e/limits-env.json"

func setup(m *testing.M) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	w.bin, w.home = filepath.Dir(self), os.Getenv("HOME")
	if err := os.MkdirAll(filepath.Join(w.home, "projects"), 0o700); err != nil {
		return 1, err
	}
	if *prepare {
		return 0, makeImages()
	}
	if os.Getuid() == 0 { // the system's manager makes root's groups, and podman's runtime is a user's
		runtimes = []string{"local"}
		w.env = []string{"HOME=" + w.home, "PATH=" + os.Getenv("PATH")}
		return m.Run(), left()
	}
	text, err := os.ReadFile(filepath.Join(w.home, envFile))
	if err != nil {
		return 1, fmt.Errorf("%w; start this with tests/limits/run", err)
	}
	if err := json.Unmarshal(text, &w.env); err != nil {
		return 1, err
	}
	// The first start of a service takes seconds here.
	for _, runtime := range runtimes {
		b := newBoxAt(filepath.Join(w.home, "projects", "warm-"+runtime), runtime)
		start := time.Now()
		if r := b.start("--", "true"); r.Code != 0 {
			return 1, fmt.Errorf("a first run on %s: %s", runtime, r)
		}
		fmt.Fprintf(os.Stderr, "limits: a first run on %s took %v\n", runtime, time.Since(start).Round(time.Second/10))
	}
	return m.Run(), left()
}

// makeImages makes the images in the test host, and leaves out what only that takes.
func makeImages() error {
	s, err := stage.Set(w.bin)
	if err != nil {
		return err
	}
	err = s.Build()
	env, jerr := json.Marshal(s.Env)
	return errors.Join(err, jerr, os.WriteFile(filepath.Join(w.home, envFile), env, 0o600), s.Close(),
		os.RemoveAll(filepath.Join(w.home, ".npm")))
}

// left is the verdict on the whole run: nothing that a sandbox was is there.
func left() error {
	var errs []error
	for _, pattern := range []string{"aisb-*.scope", "libpod-*.scope"} {
		groups := scopes(pattern)
		for end := time.Now().Add(time.Minute); len(groups) > 0 && time.Now().Before(end); groups = scopes(pattern) {
			time.Sleep(50 * time.Millisecond) // systemd takes them away when it has heard
		}
		if len(groups) > 0 {
			errs = append(errs, fmt.Errorf("control groups are left: %v", groups))
		}
	}
	manager := "--user"
	if os.Getuid() == 0 {
		manager = "--system"
	}
	out, err := exec.Command("systemctl", manager, "list-units", "--all", "--no-legend", "--plain", "aisb-*.scope").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		errs = append(errs, fmt.Errorf("units are left: %s, %w", out, err))
	}
	if out, _ := exec.Command("pgrep", "-af", "[.]/probe").CombinedOutput(); len(out) > 0 {
		errs = append(errs, fmt.Errorf("processes are left: %s", out))
	}
	return errors.Join(errs...)
}

// userGroup is where systemd makes the groups of this user.
func userGroup() string {
	uid := os.Getuid()
	if uid == 0 {
		return "/sys/fs/cgroup"
	}
	return fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service", uid, uid)
}

func scopes(pattern string) []string {
	var out []string
	for _, depth := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(userGroup(), depth, pattern))
		for _, f := range found {
			if !strings.Contains(f, "libpod-conmon-") {
				out = append(out, f)
			}
		}
	}
	return out
}

// A result is one ended ai-sandbox.
type result struct {
	Code     int
	Out, Err string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.Code, r.Out, r.Err)
}

// A box is a project with the probe in it.
type box struct {
	dir, runtime string
	env          []string // on top of w.env
}

// each runs a test on both runtimes.
func each(t *testing.T, f func(t *testing.T, b *box)) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "p")
			if err != nil {
				t.Fatal(err)
			}
			f(t, newBoxAt(dir, runtime))
		})
	}
}

func newBoxAt(dir, runtime string) *box {
	probe, err := os.ReadFile(filepath.Join(w.bin, "probe"))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "probe"), probe, 0o755)
	}
	if err != nil {
		panic(err)
	}
	return &box{dir: dir, runtime: runtime}
}

// command is a run that has not been started.
func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	return b.bare(ctx, append([]string{"--runtime", b.runtime, "--net", "none"}, args...)...)
}

func (b *box) bare(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "ai-sandbox"), args...)
	cmd.Dir = b.dir
	for _, v := range w.env {
		if b.runtime == "podman" || !strings.HasPrefix(v, "AISB_") { // those are about the images
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, b.env...)
	cmd.WaitDelay = 2 * time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

func (b *box) start(args ...string) result { return b.wait(b.command, args) }

func (b *box) wait(command func(context.Context, ...string) *exec.Cmd, args []string) result {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		return result{Code: -1, Err: err.Error()}
	}
	return result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}

// run is one ai-sandbox that has to end with that exit code.
func (b *box) run(t *testing.T, code int, args ...string) result {
	t.Helper()
	start := time.Now()
	r := b.start(args...)
	t.Logf("%.1f s: %v", time.Since(start).Seconds(), args)
	if r.Code != code {
		t.Fatalf("ai-sandbox %q, which is to end with %d: %s", args, code, r)
	}
	return r
}

// verb is one of ai-sandbox's verbs, which has to succeed.
func (b *box) verb(t *testing.T, args ...string) result {
	t.Helper()
	start := time.Now()
	r := b.wait(b.bare, args)
	t.Logf("%.1f s: %v", time.Since(start).Seconds(), args)
	if r.Code != 0 {
		t.Fatalf("ai-sandbox %q: %s", args, r)
	}
	return r
}

type report struct {
	ExitCode int    `json:"exit_code"`
	EndedBy  string `json:"ended_by"`
	Reason   string `json:"reason"`
	Leftover string `json:"leftover"`
}

func (b *box) report(t *testing.T) report {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
