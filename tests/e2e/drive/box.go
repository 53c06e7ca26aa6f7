// Package drive starts the built ai-sandbox as a user does and waits for what it
// does: for the tests of either runtime. Those make the boxes, as each has a world
// of its own around it.
//
// This file has projects, and runs from their start to their end.
package drive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RunTime is how long a run may take.
const RunTime = 15 * time.Minute

// A Result is one ended ai-sandbox. Code is negative for a signal that ended it.
type Result struct {
	Code     int
	Out, Err string
}

func (r Result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.Code, Tail(r.Out), Tail(r.Err))
}

// Tail is the end of what would be too long for a test's output.
func Tail(s string) string {
	if len(s) > 4000 {
		return "[...]" + s[len(s)-4000:]
	}
	return s
}

// A Box is a project and the way ai-sandbox is started in it.
type Box struct {
	T   *testing.T
	Dir string
	Bin string
	// Base is the environment of every ai-sandbox, and Env this box's on top.
	Base, Env []string
	// Token is in no other test's names.
	Token string
}

// Host is a name of this test's own below a zone of the fixture ("ok.test").
func (b *Box) Host(zone string) string { return b.Token + "." + zone }

// Command is an ai-sandbox that has not been started.
func (b *Box) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.Bin, args...)
	cmd.Dir = b.Dir
	cmd.Env = append(append([]string{}, b.Base...), b.Env...)
	cmd.WaitDelay = 20 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// Run is one ai-sandbox, from its start to its end.
func (b *Box) Run(args ...string) Result {
	b.T.Helper()
	return b.RunWith(nil, args...)
}

// RunWith is Run with an input.
func (b *Box) RunWith(stdin io.Reader, args ...string) Result {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), RunTime)
	defer cancel()
	cmd := b.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		b.T.Fatalf("ai-sandbox %q: %v (%v)\n%s", args, err, ctx.Err(), Tail(errOut.String()))
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
}

// Head is Run with a reader of the output that goes away after the first line.
func (b *Box) Head(args ...string) Result {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), RunTime)
	defer cancel()
	cmd := b.Command(ctx, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.T.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	out.Close()
	werr := cmd.Wait()
	if err != nil || cmd.ProcessState == nil || ctx.Err() != nil {
		b.T.Fatalf("ai-sandbox %q: %v, %v (%v)\n%s", args, err, werr, ctx.Err(), Tail(errOut.String()))
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Out: line, Err: errOut.String()}
}

// OK is Run for what has to end with exit code 0.
func (b *Box) OK(args ...string) Result {
	b.T.Helper()
	r := b.Run(args...)
	if r.Code != 0 {
		b.T.Fatalf("ai-sandbox %q: %s", args, r)
	}
	return r
}

// Gated puts the test's allowed host on the list and the command behind.
func (b *Box) Gated(command ...string) []string {
	return append([]string{"--allow", b.Host("ok.test"), "--"}, command...)
}

// File waits for a file of the project and returns what is in it.
func (b *Box) File(t *testing.T, name string) string {
	t.Helper()
	var data []byte
	Eventually(t, time.Minute, "the file "+name+" of the project", func() bool {
		var err error
		data, err = os.ReadFile(filepath.Join(b.Dir, name))
		return err == nil && len(data) > 0
	})
	return strings.TrimSpace(string(data))
}

// Size is the length of a file of the project, 0 when it is not there.
func (b *Box) Size(name string) int64 {
	info, err := os.Stat(filepath.Join(b.Dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// A Report is what --report writes.
type Report struct {
	Session  string             `json:"session"`
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

// ReadReport reads a report, which has to be there.
func ReadReport(t *testing.T, path string) Report {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return r
}

// WriteProgram makes a file that is run at once. No other goroutine's child gets it while it
// is open for writing: such a program can't be run (ETXTBSY in execve(2)).
func WriteProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}

// Output is what a command writes that ends with 0. podman is asked again where another
// test was removing an image that it looked into: ai-sandbox does so, too.
func Output(t *testing.T, name string, args ...string) string {
	t.Helper()
	for try := 1; ; try++ {
		out, errOut, err := output(name, args...)
		if err == nil {
			return out
		}
		gone := name == "podman" && (strings.Contains(errOut, "layer not known") || strings.Contains(errOut, "image not known") || strings.Contains(errOut, "layer for blob ") || strings.Contains(errOut, "does not resolve to an image ID"))
		if !gone || try == 60 {
			t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, errOut)
		}
		time.Sleep(time.Second) // of many layers, say
	}
}

func output(name string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), RunTime) // of a store, rm takes its time on a busy machine
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// Eventually waits until f is true, on a busy machine a minute at least.
func Eventually(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	if limit > 0 { // 0 claims that it is so at once
		limit = max(limit, time.Minute)
	}
	for deadline := time.Now().Add(limit); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
