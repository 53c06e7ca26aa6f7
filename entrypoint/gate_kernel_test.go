//go:build kernel

// The gate's role with a squid of the test's own: the entrypoint's part is to
// keep two of them, and to end with either.

package entrypoint

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// squidMain stands in for squid: it listens where its configuration says, keeps
// a connection's worth of children, and stays.
func squidMain(args []string) {
	text, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		panic(err)
	}
	for strings.Contains(string(text), "never") {
		time.Sleep(time.Hour)
	}
	port := httpPort(string(text))
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		panic(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	fmt.Printf("squid %q\n%s", args, status)
	for {
		if _, err := l.Accept(); err != nil {
			panic(err)
		}
	}
}

func newGate(t *testing.T, args ...string) *box {
	b := newBox(t)
	b.role = append([]string{"gate"}, args...)
	b.env = []string{"STAGE_FAULT=gate"}
	for name, port := range map[string]int{"front": 3128, "peek": 3129} {
		b.must(os.WriteFile(b.path("proj", name+".conf"), []byte(fmt.Sprintf("http_port 127.0.0.1:%d\n", port)), 0o644))
	}
	b.start()
	return b
}

// squidsOf returns the pids of the gate's squids, by their configuration.
func squidsOf(name string) []string { return alive("/proj/" + name + ".conf") }

// squidPID is the one squid of that configuration, below PID 1. It may be looked for
// before the kernel shows its arguments: who has run it is told earlier in execve(2).
func squidPID(t *testing.T, b *box, name string) (pid int) {
	t.Helper()
	eventually(t, "a squid "+name, func() bool {
		for _, p := range squidsOf(name) {
			n, err := strconv.Atoi(p)
			if err == nil && n != b.cmd.Process.Pid {
				pid = n
			}
		}
		return pid != 0
	})
	return pid
}

func noSquid(t *testing.T) {
	t.Helper()
	eventually(t, "no squid is left", func() bool { return len(squidsOf("front"))+len(squidsOf("peek")) == 0 })
}

var confs = []string{"/proj/peek.conf", "/proj/front.conf"}

func TestGateLifeline(t *testing.T) {
	b := newGate(t, confs...)
	if f := b.recv(); !f.Started {
		t.Fatalf("%+v", f)
	}
	for _, name := range []string{"front", "peek"} {
		pid := squidPID(t, b, name)
		if pgid, err := unix.Getpgid(pid); err != nil || pgid != pid {
			t.Errorf("%s is in process group %d, not its own (%v)", name, pgid, err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		got := parseStatus(text)
		want := status{"CapPrm": noCaps, "CapEff": noCaps, "NoNewPrivs": "1", "Seccomp": "2"}
		if err := checkStatus(got, want); err != nil {
			t.Error(err)
		}
	}
	b.in.Close()
	if code := b.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, b.stderr.String())
	}
	noSquid(t)
}

func TestGateEndsWithEitherSquid(t *testing.T) {
	for _, name := range []string{"front", "peek"} {
		b := newGate(t, confs...)
		if f := b.recv(); !f.Started {
			t.Fatalf("%+v", f)
		}
		b.must(syscall.Kill(squidPID(t, b, name), unix.SIGKILL))
		if code := b.end(); code != 1 {
			t.Errorf("%s: exit code %d", name, code)
		}
		noSquid(t)
	}
}

func TestGateStopsAtOnce(t *testing.T) {
	b := newGate(t, append([]string{"--detached"}, confs...)...)
	// PID 1 has the names in its arguments too.
	eventually(t, "two squids", func() bool { return len(squidsOf("front"))+len(squidsOf("peek")) == 4 })
	b.in.Close() // nobody listens there
	b.must(b.cmd.Process.Signal(unix.SIGTERM))
	if code := b.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	noSquid(t)
}

// While a squid is awaited, the host's end and a signal count as later.
func TestGateEndsWhileItStarts(t *testing.T) {
	for _, how := range []func(b *box){
		func(b *box) { b.in.Close() },
		func(b *box) { b.must(b.cmd.Process.Signal(unix.SIGTERM)) },
	} {
		b := newBox(t)
		b.role = append([]string{"gate"}, "/proj/never.conf", "/proj/front.conf")
		b.env = []string{"STAGE_FAULT=gate"}
		b.must(os.WriteFile(b.path("proj/never.conf"), []byte("http_port 127.0.0.1:3129\nnever\n"), 0o644))
		b.must(os.WriteFile(b.path("proj/front.conf"), []byte("http_port 127.0.0.1:3128\n"), 0o644))
		b.start()
		// PID 1 has the name in its arguments too.
		eventually(t, "the first squid", func() bool { return len(squidsOf("never")) == 2 })
		begin := time.Now()
		how(b)
		if code := b.end(); code != 0 || time.Since(begin) > squidTime/2 {
			t.Errorf("exit code %d after %v: %s", code, time.Since(begin), b.stderr.String())
		}
		eventually(t, "no squid is left", func() bool { return len(squidsOf("never")) == 0 })
	}
}

// One that ends while it is awaited ends the gate, and says so.
func TestGateEndsWithASquidThatStarts(t *testing.T) {
	b := newBox(t)
	b.role = append([]string{"gate"}, "/proj/never.conf", "/proj/front.conf")
	b.env = []string{"STAGE_FAULT=gate"}
	b.must(os.WriteFile(b.path("proj/never.conf"), []byte("http_port 127.0.0.1:3129\nnever\n"), 0o644))
	b.start()
	eventually(t, "the first squid", func() bool { return len(squidsOf("never")) == 2 })
	b.must(syscall.Kill(squidPID(t, b, "never"), unix.SIGKILL))
	if code := b.end(); code != 1 || !strings.Contains(b.stderr.String(), "squid ended (exit code 137)") {
		t.Errorf("exit code %d: %s", code, b.stderr.String())
	}
}

func TestGateWithoutChannel(t *testing.T) {
	b := newBox(t)
	b.role = append([]string{"gate"}, confs...)
	b.env = []string{"STAGE_FAULT=gate"}
	b.must(os.Remove(b.path("ctl", spec.InName)))
	b.start()
	if code := b.end(); code != spec.ExitUnenforced {
		t.Errorf("exit code %d", code)
	}
}
