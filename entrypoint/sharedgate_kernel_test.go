//go:build kernel

// Sessions that share a gate, with squids of the test's own.

package entrypoint

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// sharedGate starts one that ends after so many seconds without a session.
func sharedGate(t *testing.T, idle string) *box {
	b := newGate(t, append([]string{"--detached", "--idle", idle}, confs...)...)
	eventually(t, "the gate's socket", func() bool {
		_, err := os.Lstat(b.path("proj", spec.GateSocket))
		return err == nil
	})
	return b
}

// join calls the gate about a session, which has a configuration with these ports.
func join(b *box, id string, port int) *net.UnixConn {
	b.t.Helper()
	if port != 0 {
		dir := b.path("proj", spec.GateSessions, id)
		b.must(os.MkdirAll(dir, 0o755))
		for i, name := range []string{"peek", "front"} {
			b.must(os.WriteFile(dir+"/"+name+".conf", []byte(fmt.Sprintf("http_port 127.0.0.1:%d\n", port+i)), 0o644))
		}
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: b.path("proj", spec.GateSocket)})
	b.must(err)
	b.t.Cleanup(func() { c.Close() })
	b.must(c.SetReadDeadline(time.Now().Add(time.Minute)))
	b.must(spec.WriteFrame(c, spec.NewGateCall(id)))
	return c
}

func said(b *box, c *net.UnixConn) spec.ToHost {
	b.t.Helper()
	var f spec.ToHost
	if err := spec.ReadFrame(c, &f); err != nil && !errors.Is(err, io.EOF) {
		b.t.Fatal(err)
	}
	return f
}

// of are the squids of a session.
func of(id string) (n int) {
	for _, name := range []string{"peek", "front"} {
		n += len(alive(gateConfs + "/" + spec.GateSessions + "/" + id + "/" + name + ".conf"))
	}
	return n
}

// Each session has squids of its own, for as long as it holds its connection; neither its
// end nor that of one of them is anybody else's.
func TestGateSessions(t *testing.T) {
	b := sharedGate(t, "600")
	a, other := join(b, "aa", 4000), join(b, "bb", 4100)
	for _, c := range []*net.UnixConn{a, other} {
		if f := said(b, c); !f.Started {
			t.Fatalf("%+v", f)
		}
	}
	eventually(t, "two squids each", func() bool { return of("aa") == 2 && of("bb") == 2 })
	for id, want := range map[string]string{"aa": "has a port of this gate already", "../aa": "other letters", strings.Repeat("a", 65): "too long"} {
		if f := said(b, join(b, id, 0)); f.Refused == nil || !strings.Contains(f.Refused.Reason, want) {
			t.Errorf("%q: %+v", id, f)
		}
	}
	// Of one that never says a word nothing is held up.
	silent, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: b.path("proj", spec.GateSocket)})
	b.must(err)
	defer silent.Close()
	a.Close()
	eventually(t, "no squid of the session that left", func() bool { return of("aa") == 0 })
	if of("bb") != 2 || len(squidsOf("front")) == 0 {
		t.Error("others ended with it")
	}
	// Its place is free again, as soon as its squids have been seen to be gone.
	eventually(t, "a place for the session that left", func() bool {
		f := said(b, join(b, "aa", 4000))
		if f.Refused != nil && !strings.Contains(f.Refused.Reason, "has a port of this gate already") {
			t.Fatalf("%+v", f)
		}
		return f.Started
	})
	pid := 0
	_, err = fmt.Sscan(alive(gateConfs + "/s/bb/peek.conf")[0], &pid)
	b.must(err)
	b.must(syscall.Kill(pid, unix.SIGKILL))
	if f := said(b, other); f.Refused == nil || !strings.Contains(f.Refused.Reason, "squid ended (exit code 137)") {
		t.Errorf("%+v", f)
	}
	eventually(t, "no squid of the session that lost one", func() bool { return of("bb") == 0 })
	eventually(t, "both squids of the other session", func() bool { return of("aa") == 2 }) // one may just begin
	b.must(b.cmd.Process.Signal(unix.SIGTERM))
	if code := b.end(); code != 0 || of("aa") != 0 {
		t.Errorf("exit code %d, %d squids", code, of("aa"))
	}
	noSquid(t)
}

// A gate ends when no session has used it for as long as it may be without, and not
// while one does.
func TestGateIdle(t *testing.T) {
	b := sharedGate(t, "20")
	a := join(b, "aa", 4000)
	said(b, a)
	time.Sleep(21 * time.Second)
	if of("aa") != 2 {
		t.Error("it ended under a session")
	}
	a.Close()
	if code := b.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	noSquid(t)
}
