//go:build e2e

// Package e2e drives the built ai-sandbox against real podman, pasta and squid.
// What a test claims is judged by what the far servers and the DNS server of
// tests/e2e/internet saw, and each refusal has a positive control in the same
// test. Nothing is skipped: what is missing is a failure that says so.
//
// tests/e2e/run compiles it and runs it in the test host.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/internet"
	"ai-sandbox/tests/e2e/stage"
)

var update = flag.String("update", "", "write the golden files to `DIR` instead of comparing with them")

// w is what every test stands on; TestMain makes it.
var w struct {
	bin   string
	home  string
	caPEM string
	net   *internet.Internet
	env   []string
	npm   string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := setup(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func setup(m *testing.M) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	bin := filepath.Dir(self)
	for _, name := range []string{"ai-sandbox", "ai-sandbox-testhook", "probe"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return 1, fmt.Errorf("%w; start this with tests/e2e/run", err)
		}
	}
	s, err := stage.Set(bin)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w.bin, w.home, w.caPEM, w.net, w.env, w.npm = s.Bin, s.Home, s.CAPEM, s.Net, s.Env, s.NPM
	start := time.Now()
	if err := s.Build(); err != nil {
		return 1, err
	}
	fmt.Fprintf(os.Stderr, "e2e: the images were ready after %.1f s\n", time.Since(start).Seconds())
	code = m.Run()
	return code, noStrays()
}

// noStrays is the verdict on the whole run: nobody but the tests themselves ever
// reached the servers that no list names.
func noStrays() error {
	var errs []error
	for _, h := range w.net.Hits("") {
		for _, ip := range []string{internet.Refused, internet.Private, internet.Metadata, "127.0.0.1:8888", internet.Refused6} {
			if strings.Contains(h.At, ip) && h.Net == "http" && !strings.Contains(h.Path, "control") {
				errs = append(errs, fmt.Errorf("a far server that nobody may reach was reached: %+v", h))
			}
		}
	}
	return errors.Join(errs...)
}

// A result is one ended ai-sandbox.
type result struct {
	Code     int
	Out, Err string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.Code, tail(r.Out), tail(r.Err))
}

func tail(s string) string {
	if len(s) > 4000 {
		return "[...]" + s[len(s)-4000:]
	}
	return s
}

// A box is a project and the way ai-sandbox is started in it.
type box struct {
	t   *testing.T
	dir string
	bin string
	env []string // on top of w.env
	// token is in no other test's names.
	token string
}

var notPlain = regexp.MustCompile(`[^a-z0-9]+`)

// newBox makes a project that holds the probe.
func newBox(t *testing.T) *box {
	t.Helper()
	name := strings.Trim(notPlain.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	if len(name) > 40 {
		name = name[:40]
	}
	parent := filepath.Join(w.home, "e2e", "projects")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		t.Fatal(err)
	}
	token := "t" + filepath.Base(dir)[strings.LastIndexByte(filepath.Base(dir), '-')+1:] + "x"
	b := &box{t: t, dir: dir, bin: filepath.Join(w.bin, "ai-sandbox"), token: token}
	probe, err := os.ReadFile(filepath.Join(w.bin, "probe"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "probe"), probe, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	return b
}

// host is a name of this test's own below a zone of the fixture ("ok.test").
func (b *box) host(zone string) string { return b.token + "." + zone }

// command is an ai-sandbox that has not been started.
func (b *box) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	cmd.Dir = b.dir
	cmd.Env = append(append([]string{}, w.env...), b.env...)
	cmd.WaitDelay = 20 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

const runTime = 5 * time.Minute

// run is one ai-sandbox, from its start to its end.
func (b *box) run(args ...string) result {
	b.t.Helper()
	return b.runWith(nil, args...)
}

func (b *box) runWith(stdin io.Reader, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	cmd := b.command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		b.t.Fatalf("ai-sandbox %q: %v (%v)\n%s", args, err, ctx.Err(), tail(errOut.String()))
	}
	return result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}

// ok is run for what has to end with exit code 0.
func (b *box) ok(args ...string) result {
	b.t.Helper()
	r := b.run(args...)
	if r.Code != 0 {
		b.t.Fatalf("ai-sandbox %q: %s", args, r)
	}
	return r
}

// gated puts the test's allowed host on the list and the command behind.
func (b *box) gated(command ...string) []string {
	return append([]string{"--allow", b.host("ok.test"), "--"}, command...)
}

// A report is what --report writes.
type report struct {
	ExitCode int                `json:"exit_code"`
	EndedBy  string             `json:"ended_by"`
	Reason   string             `json:"reason"`
	Control  string             `json:"control"`
	Signal   int                `json:"signal"`
	Leftover string             `json:"leftover"`
	Timings  map[string]float64 `json:"timings_ms"`
	Refused  []map[string]any   `json:"refused"`

	Published []struct {
		Addr         string `json:"addr"`
		HostPort     int    `json:"host_port"`
		Port         int    `json:"port"`
		LoopbackOnly bool   `json:"loopback_only"`
	} `json:"published"`
}

func readReport(t *testing.T, path string) report {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return r
}

// control asks a far server from outside, as a sandbox would have without any
// control in its way: the positive control of a refusal.
func control(t *testing.T, url string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	sep := "/"
	if strings.Count(url, "/") > 2 {
		sep = "?"
	}
	resp, err := c.Get(url + sep + "control")
	if err != nil {
		t.Fatalf("the positive control: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(b), w.net.Marker) {
		t.Fatalf("the positive control: %s answers %q, %v", url, b, err)
	}
}

// eventually waits until f is true.
func eventually(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
