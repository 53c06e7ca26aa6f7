//go:build kernel

package entrypoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// relayPort is where the relay listens inside.
const relayPort = 3128

// withRelay gives b a gate: serve handles what comes out of the sandbox.
func withRelay(b *box, serve func(c *net.UnixConn)) {
	b.t.Helper()
	b.must(os.Mkdir(b.path("gate"), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.path("gate", "sock"), Net: "unix"})
	b.must(err)
	b.must(os.Chmod(b.path("gate", "sock"), 0o666))
	b.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	b.Spec.Firewall = spec.Firewall{Mode: spec.ModeUnix}
	b.Spec.Relay = &spec.Relay{Port: relayPort, Socket: "/gate/sock"}
	b.Spec.Mounts = append(b.Spec.Mounts, "/gate")
	if b.opts != nil {
		b.option("--ro-bind", b.path("gate"), "/gate")
		b.Spec.ReadOnly = append(b.Spec.ReadOnly, "/gate")
	} else {
		b.env = []string{"STAGE_FAULT=no device", "STAGE_GATE=1"}
	}
}

// sum answers with the length and the hash of everything up to the end of the
// input, which it waits for, and n times the letter g after that.
func sum(n int) func(c *net.UnixConn) {
	return func(c *net.UnixConn) {
		h := sha256.New()
		got, err := io.Copy(h, c)
		if err != nil || got == 0 {
			return // the entrypoint's own try sends nothing
		}
		fmt.Fprintf(c, "%d %x ", got, h.Sum(nil))
		_, _ = c.Write(bytes.Repeat([]byte("g"), n))
	}
}

// Both directions, to the byte, each with its own end.
func TestRelay(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		const back = 7<<20 + 1
		b := sandbox("python3", "-c", `
import socket, sys, threading, os, hashlib
data = os.urandom(20*2**20 + 12345)
c = socket.create_connection(("127.0.0.1", 3128))
def send():
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = b""
while True:
    part = c.recv(1 << 16)
    if not part: break
    got += part
n, digest, rest = got.split(b" ", 2)
print(int(n) == len(data), digest.decode() == hashlib.sha256(data).hexdigest(), len(rest), rest.count(b"g"))
`)
		withRelay(b, sum(back))
		text, e := b.run()
		if want := fmt.Sprintf("True True %d %d\n", back, back); text != want || e.Code != 0 {
			t.Errorf("%q, want %q; %+v", text, want, e)
		}
	})
}

// The gate's end comes first; the client's bytes go on being taken.
func TestRelayOtherHalf(t *testing.T) {
	got := make(chan string, 2)
	heard := make(chan struct{})
	// The command stays until the gate has the rest: what is under way when a
	// session's command ends goes with its sandbox.
	b := newJail(t, devID, "python3", "-c", `
import socket
def connect(first):
    c = socket.create_connection(("127.0.0.1", 3128))
    c.sendall(first)
    return c
c = connect(b"hello ")
print(c.recv(100), c.recv(100))
c.sendall(b"and more")
c.close()
connect(b"heard?").recv(100)
`)
	withRelay(b, func(c *net.UnixConn) {
		buf := make([]byte, 6)
		if _, err := io.ReadFull(c, buf); err != nil {
			return // the entrypoint's own try sends nothing
		}
		if string(buf) == "heard?" {
			<-heard
			return
		}
		defer close(heard)
		_, _ = c.Write([]byte("over"))
		_ = c.CloseWrite()
		rest, err := io.ReadAll(c)
		got <- fmt.Sprintf("%s%s %v", buf, rest, err)
	})
	if text, _ := b.run(); text != "b'over' b''\n" {
		t.Errorf("%q", text)
	}
	if text := <-got; text != "hello and more <nil>" {
		t.Errorf("%q", text)
	}
}

// A connection that breaks on one side breaks on the other, and does not look
// like one that has ended.
func TestRelayBreaks(t *testing.T) {
	b := newJail(t, devID, "python3", "-c", `
import socket
c = socket.create_connection(("127.0.0.1", 3128))
c.sendall(b"x" * 20)
try:
    while c.recv(100): pass
    print("end")
except ConnectionResetError:
    print("reset")
`)
	withRelay(b, func(c *net.UnixConn) {
		// Closed with bytes unread, which a unix socket's peer sees as a reset.
		_, _ = io.ReadFull(c, make([]byte, 10))
	})
	if text, _ := b.run(); text != "reset\n" {
		t.Errorf("%q", text)
	}
}

// Whatever clients do, those after them are served, and nothing is kept of those
// that have gone.
func TestRelayManyAndRude(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := hold(func() *box {
			b := sandbox()
			withRelay(b, func(c *net.UnixConn) { _, _ = io.Copy(c, c) })
			return b
		}())
		before, threads := countSockets(b), countTasks(b)
		const script = `
import socket, struct, threading, sys
def connect():
    return socket.create_connection(("127.0.0.1", 3128))
def echo(c, i):
    m = b"%08d" % i * 100
    c.sendall(m); c.shutdown(socket.SHUT_WR)
    got = b""
    while True:
        p = c.recv(65536)
        if not p: break
        got += p
    return got == m
open_ = [connect() for i in range(900)]                      # many at a time
print("open", all(echo(c, i) for i, c in enumerate(open_)))
for c in open_: c.close()
for i in range(300):                                         # reset, with bytes on the way
    c = connect(); c.sendall(b"x" * (i * 100))
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.close()
for i in range(300): connect().close()                       # nothing said
idle = []
for i in range(200):                                         # no reader
    c = connect(); c.setblocking(False)
    try:
        while True: c.send(b"y" * 65536)
    except BlockingIOError: pass
    idle.append(c)
for c in idle: c.close()
print("after", echo(connect(), 7))
bad = []
def many(k):
    for i in range(50):
        if not echo(connect(), k * 50 + i): bad.append(i)
ts = [threading.Thread(target=many, args=(k,)) for k in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
print("many", bad)
`
		out, errs, e := b.exec(spec.Exec{ID: 1, Command: []string{"python3", "-c", script}}).started().ended("")
		if out != "open True\nafter True\nmany []\n" || e.Code != 0 {
			t.Errorf("%q %q %+v", out, errs, e)
		}
		// Pipes may stay: Go keeps them for the next splice, until its collector
		// comes.
		eventually(t, "no connection is left", func() bool { return countSockets(b) == before })
		if n := countTasks(b); n > threads+32 {
			t.Errorf("%d threads, %d before", n, threads)
		}
		b.holdEnds()
	})
}

// With few descriptors some have to wait, and all are served.
func TestRelayWithFewDescriptors(t *testing.T) {
	b := hold(func() *box {
		b := newJail(t, devID)
		withRelay(b, func(c *net.UnixConn) { _, _ = io.Copy(c, c) })
		b.files = 40
		return b
	}())
	out, errs, e := b.exec(spec.Exec{ID: 1, Command: []string{"python3", "-c", `
import socket, threading
m = b"z" * 300000
ok = []
def one():
    for i in range(5):
        c = socket.create_connection(("127.0.0.1", 3128))
        def send(): c.sendall(m); c.shutdown(socket.SHUT_WR)
        s = threading.Thread(target=send); s.start()
        n = 0
        while True:
            p = c.recv(65536)
            if not p: break
            n += len(p)
        s.join(); c.close(); ok.append(n)
ts = [threading.Thread(target=one) for k in range(24)]
[t.start() for t in ts]; [t.join() for t in ts]
print(len(ok), set(ok))
`}}).started().ended("")
	if out != "120 {300000}\n" || e.Code != 0 {
		t.Errorf("%q %.500q %+v", out, errs, e)
	}
	b.holdEnds()
}

func countSockets(b *box) (n int) {
	b.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", b.pid1())
	fds, err := os.ReadDir(dir)
	b.must(err)
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func countTasks(b *box) int {
	b.t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", b.pid1()))
	b.must(err)
	return len(tasks)
}

// More than the limit wait until others have gone, and are served then.
func TestRelayLimit(t *testing.T) {
	var at, most atomic.Int64
	b := hold(func() *box {
		b := newJail(t, devID)
		withRelay(b, func(c *net.UnixConn) {
			buf := make([]byte, 1)
			if _, err := io.ReadFull(c, buf); err != nil {
				return // the entrypoint's own try
			}
			n := at.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			_, _ = c.Write(buf)
			_, _ = io.Copy(c, c)
			at.Add(-1)
		})
		return b
	}())
	out, errs, e := b.exec(spec.Exec{ID: 1, Command: []string{"python3", "-c", `
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
cs = []
for i in range(1200):
    c = socket.create_connection(("127.0.0.1", 3128)); c.sendall(b"x"); cs.append(c)
print(len([c.recv(1) for c in cs[:1024]]))
cs[1100].settimeout(0.3)
try: cs[1100].recv(1); print("served")
except TimeoutError: print("waits")
for c in cs[:500]: c.close()
cs[1100].settimeout(10)
print(cs[1100].recv(1))
`}}).started().ended("")
	if out != "1024\nwaits\nb'x'\n" || e.Code != 0 {
		t.Errorf("%q %q %+v", out, errs, e)
	}
	if n := most.Load(); n != maxRelayed {
		t.Errorf("%d connections at a time", n)
	}
	b.holdEnds()
}

// Without a gate there is no session, and neither without the port.
func TestRelayRefusals(t *testing.T) {
	b := newJail(t, devID, "true")
	withRelay(b, sum(0))
	b.must(os.Remove(b.path("gate", "sock")))
	b.refused(77, "network", "connect to the gate's socket")

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	b.must(err)
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if r, err := newRelay(spec.Relay{Port: port, Socket: "/nonesuch"}); err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("%v %v", r, err)
	}
}

// Of the network there is nothing but the relay.
func TestRelayIsAllThereIs(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("bash", "-c", `
			exec 3<>/dev/tcp/127.0.0.1/3128 && echo -n hi >&3 && head -c 2 <&3; echo
			for a in 127.0.0.1/3129 127.0.0.2/3128 169.254.77.1/3128 198.51.100.10/80 ::1/3128; do
				(exec 3<>/dev/tcp/$a) 2>/dev/null && echo "connected to $a"
			done; echo end`)
		withRelay(b, func(c *net.UnixConn) { _, _ = io.Copy(c, c) })
		if text, e := b.run(); text != "hi\nend\n" || e.Code != 0 {
			t.Errorf("%q %+v", text, e)
		}
	})
}

// The kernel copies what flows: little of it passes through the entrypoint's
// memory.
func TestRelaySplices(t *testing.T) {
	const size = 256 << 20
	b := hold(func() *box {
		b := newJail(t, devID)
		withRelay(b, sum(size))
		return b
	}())
	out, errs, e := b.exec(spec.Exec{ID: 1, Command: []string{"python3", "-c", `
import socket
c = socket.create_connection(("127.0.0.1", 3128))
for i in range(256): c.sendall(b"x" * 2**20)
c.shutdown(socket.SHUT_WR)
n, buf = 0, bytearray(1 << 20)
while True:
    m = c.recv_into(buf)
    if not m: break
    n += m
print(n)`}}).started().ended("")
	if e.Code != 0 || strings.TrimSpace(out) != fmt.Sprint(size+len("268435456 ")+65) {
		t.Fatalf("%q %q %+v", out, errs, e)
	}
	// Of the threads, since a process's own count has its children's in it.
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/io", b.pid1()))
	b.must(err)
	var read, n int64
	for _, f := range files {
		text, err := os.ReadFile(f)
		b.must(err)
		_, err = fmt.Sscanf(string(text), "rchar: %d", &n) // proc_pid_io(5)
		b.must(err)
		read += n
	}
	if read > size/4 {
		t.Errorf("%d bytes of %d were read", read, 2*size)
	}
	b.holdEnds()
}

// A gate whose queue is full for a while is waited for.
func TestRelayWaitsForTheGate(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: dir + "/sock"}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	r := &relay{socket: dir + "/sock"}
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 20 {
		wg.Go(func() {
			c, err := r.dial()
			if err != nil {
				failed.Add(1)
				return
			}
			c.Close()
		})
	}
	go func() { // for as long as the test's process lives
		for {
			time.Sleep(2 * time.Millisecond)
			if n, _, err := unix.Accept(fd); err == nil {
				unix.Close(n)
			}
		}
	}()
	wg.Wait()
	if failed.Load() != 0 {
		t.Errorf("%d were refused", failed.Load())
	}
}
