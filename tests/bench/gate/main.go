// Command gate measures the builtin gate engine on loopback, against a bare
// CONNECT relay that splices and, where it is installed, against squid as the
// sessions run it. It prints one line a figure: bench NAME VALUE GOAL ok|short.
// Each is a median of runs that are interleaved with what they are compared to.
// tests/bench/gate/run starts it in the test host.
//
// Client, gate and far server are processes of their own, on the same two cores.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/gate"
	"ai-sandbox/gate/builtin"
	"ai-sandbox/policy"
)

const (
	bulk      = 1 << 30 // bytes through a tunnel
	bulkRuns  = 9
	pings     = 2000
	pingRuns  = 15
	decisions = 500
	tunnels   = 500
)

func main() {
	roles := map[string]func([]string) error{"server": server, "relay": relay, "builtin": serveBuiltin}
	var err error
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		err = roles[os.Args[1]](os.Args[2:])
	} else {
		err = bench()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A child is a process of this benchmark. It dies with it.
type child struct {
	*exec.Cmd
	addr string
}

func (c *child) stop() {
	c.Process.Kill()
	c.Wait() // it was killed
}

// role starts this program again as one of its roles, which says its address.
func role(args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", args, err)
	}
	return &child{cmd, strings.TrimSpace(line)}, nil
}

func bench() error {
	// The first two cores that this process may use.
	var all, two unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for i := 0; two.Count() < 2 && i < 1024; i++ {
		if all.IsSet(i) {
			two.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(0, &two); err != nil {
		return err
	}
	far, err := role("server")
	if err != nil {
		return err
	}
	defer far.stop()
	bare, err := role("relay")
	if err != nil {
		return err
	}
	defer bare.stop()
	ours, err := role("builtin", "tcp", "10", far.addr)
	if err != nil {
		return err
	}
	defer ours.stop()
	dir, err := os.MkdirTemp("", "aisb-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	onUnix, err := role("builtin", filepath.Join(dir, "gate"), "10", far.addr)
	if err != nil {
		return err
	}
	defer onUnix.stop()
	squid, err := startSquid(filepath.Join(dir, "squid"), far.addr)
	if err != nil {
		return err
	}
	defer squid.stop()

	if err := throughput(far.addr, bare.addr, ours.addr, onUnix.addr, squid.addr); err != nil {
		return err
	}
	if err := latency(far.addr, ours.addr, squid.addr); err != nil {
		return err
	}
	if err := deciding(far.addr); err != nil {
		return err
	}
	return idle(far.addr)
}

func throughput(far, bare, ours, onUnix, squid string) error {
	ways := map[string]string{"bare": bare, "builtin": ours, "unix": onUnix, "squid": squid}
	rates := map[string][]float64{}
	for i := range bulkRuns + 1 {
		for _, name := range []string{"bare", "builtin", "unix", "squid"} {
			if ways[name] == "" {
				continue
			}
			rate, err := download(ways[name], far)
			if err != nil {
				return fmt.Errorf("1 GiB through %s: %w", name, err)
			}
			if i > 0 {
				rates[name] = append(rates[name], rate)
			}
		}
	}
	fmt.Printf("a tunnel: bare %.2f GB/s, builtin %.2f, on a unix socket %.2f, squid %.2f\n",
		median(rates["bare"]), median(rates["builtin"]), median(rates["unix"]), median(rates["squid"]))
	atLeast("gate-tunnel-to-bare", median(rates["builtin"])/median(rates["bare"]), 0.9)
	atLeast("gate-unix-tunnel-to-bare", median(rates["unix"])/median(rates["bare"]), 0.9)
	if squid != "" {
		atLeast("gate-tunnel-to-squid", median(rates["builtin"])/median(rates["squid"]), 1.2)
	}
	return nil
}

func latency(far, ours, squid string) error {
	ways := map[string]string{"direct": "", "builtin": ours, "squid": squid}
	took := map[string][]float64{}
	for i := range pingRuns + 1 {
		for _, name := range []string{"direct", "builtin", "squid"} {
			if name == "squid" && squid == "" {
				continue
			}
			t, err := ping(ways[name], far)
			if err != nil {
				return fmt.Errorf("small requests through %s: %w", name, err)
			}
			if i > 0 {
				took[name] = append(took[name], t)
			}
		}
	}
	added := median(took["builtin"]) - median(took["direct"])
	fmt.Printf("a small request: direct %.3f ms, the gate adds %.3f\n", median(took["direct"]), added)
	if squid != "" {
		of := median(took["squid"]) - median(took["direct"])
		fmt.Printf("squid adds %.3f ms\n", of)
		atMost("gate-latency-to-squid", added/of, 0.5)
	}
	return nil
}

func deciding(far string) error {
	short, err := role("builtin", "tcp", "10", far)
	if err != nil {
		return err
	}
	defer short.stop()
	long, err := role("builtin", "tcp", "100000", far)
	if err != nil {
		return err
	}
	defer long.stop()
	var a, b []float64
	for i := range pingRuns + 1 {
		x, err1 := decide(short.addr)
		y, err2 := decide(long.addr)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if i > 0 {
			a, b = append(a, x), append(b, y)
		}
	}
	fmt.Printf("a refusal: %.3f ms with 10 entries, %.3f with 100,000\n", median(a), median(b))
	atMost("gate-decide-100000-to-10", median(b)/median(a), 1.5)
	return nil
}

func idle(far string) error {
	g, err := role("builtin", "tcp", "10", far)
	if err != nil {
		return err
	}
	defer g.stop()
	// What the first ones take, the gate takes once.
	for range 20 {
		c, err := open(g.addr, far)
		if err != nil {
			return err
		}
		if err := echo(c, make([]byte, 64)); err != nil {
			return err
		}
		c.Close()
	}
	time.Sleep(time.Second)
	before, err := resident(g.Process.Pid)
	if err != nil {
		return err
	}
	var open500 []net.Conn
	defer func() {
		for _, c := range open500 {
			c.Close()
		}
	}()
	for range tunnels {
		c, err := open(g.addr, far)
		if err != nil {
			return err
		}
		open500 = append(open500, c)
		if err := echo(c, make([]byte, 64)); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	after, err := resident(g.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("resident: %.1f MiB, with %d idle tunnels %.1f\n", before, tunnels, after)
	atMost("gate-idle-tunnels-mib", after-before, 15)
	return nil
}

// resident is what a process has in memory, in MiB (proc_pid_status(5)).
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// open opens a tunnel, or a direct connection where there is no gate.
func open(via, to string) (net.Conn, error) {
	if via == "" {
		return net.Dial("tcp", to)
	}
	network := "tcp"
	if strings.HasPrefix(via, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, via)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	// Byte by byte: what follows is the tunnel's.
	var head []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, b[0]) {
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, fmt.Errorf("open a tunnel: %w after %q", err, head)
		}
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 200 ") {
		return nil, fmt.Errorf("open a tunnel: %q", head)
	}
	return c, nil
}

// download returns the rate in GB/s.
func download(via, far string) (float64, error) {
	c, err := open(via, far)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{'G'}, bulk)); err != nil {
		return 0, err
	}
	buf := make([]byte, 256<<10)
	for left := bulk; left > 0; {
		n, err := c.Read(buf)
		if err != nil {
			return 0, err
		}
		left -= n
	}
	return bulk / 1e9 / time.Since(start).Seconds(), nil
}

func echo(c net.Conn, msg []byte) error {
	msg[0] = 'E'
	if _, err := c.Write(msg); err != nil {
		return err
	}
	_, err := io.ReadFull(c, msg)
	return err
}

// ping returns the median of what small requests take, in milliseconds.
func ping(via, far string) (float64, error) {
	c, err := open(via, far)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var took []float64
	msg := make([]byte, 64)
	for range pings {
		start := time.Now()
		if err := echo(c, msg); err != nil {
			return 0, err
		}
		took = append(took, ms(time.Since(start)))
	}
	return median(took), nil
}

// decide returns the median of what a refusal takes, in milliseconds.
func decide(via string) (float64, error) {
	c, err := net.Dial("tcp", via)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	var took []float64
	for i := range decisions {
		start := time.Now()
		fmt.Fprintf(c, "GET http://host%d.under.many.labels.example.org/ HTTP/1.1\r\nHost: x\r\n\r\n", i)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return 0, err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return 0, err
		}
		if resp.StatusCode != http.StatusForbidden {
			return 0, fmt.Errorf("a host off the list is answered %s", resp.Status)
		}
		took = append(took, ms(time.Since(start)))
	}
	return median(took), nil
}

// listen says where, and serves.
func listen(network, addr string, serve func(net.Conn)) error {
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

// server echoes messages of 64 bytes that begin with E, and sends as many bytes
// as one that begins with G says.
func server([]string) error {
	return listen("tcp", "127.0.0.1:0", func(c net.Conn) {
		defer c.Close()
		msg, block := make([]byte, 64), make([]byte, 256<<10)
		for {
			if _, err := io.ReadFull(c, msg[:1]); err != nil {
				return
			}
			if msg[0] == 'E' {
				if _, err := io.ReadFull(c, msg[1:]); err != nil {
					return
				}
				if _, err := c.Write(msg); err != nil {
					return
				}
				continue
			}
			if _, err := io.ReadFull(c, msg[:8]); err != nil {
				return
			}
			for left := int(binary.BigEndian.Uint64(msg)); left > 0; {
				n, err := c.Write(block[:min(left, len(block))])
				if err != nil {
					return
				}
				left -= n
			}
		}
	})
}

// relay is the least that a CONNECT proxy in Go can be: it judges nothing, and
// its io.Copy between TCP connections splices.
func relay([]string) error {
	return listen("tcp", "127.0.0.1:0", func(c net.Conn) {
		defer c.Close()
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", req.Host)
		if err != nil {
			return
		}
		defer up.Close()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			io.Copy(up, c)
			up.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(c, up)
	})
}

// serveBuiltin is the gate: where it listens, how many entries it has, and the
// one that counts.
func serveBuiltin(args []string) error {
	network, addr := "tcp", "127.0.0.1:0"
	if args[0] != network {
		network, addr = "unix", args[0]
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var c builtin.Config
	for i := range count {
		e, err := policy.ParseEntry(fmt.Sprintf("host%d.example.com", i))
		if err != nil {
			return err
		}
		c.Allow = append(c.Allow, e)
	}
	e, err := policy.ParseEntry(args[2])
	if err != nil {
		return err
	}
	c.AllowPrivate, c.Nonce, c.PolicyHash, c.UID = []policy.Entry{e}, "n", "h", os.Getuid()
	g, err := builtin.New(c)
	if err != nil {
		return err
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return g.Serve(l)
}

// A pair is the two squids of a session's gate, or nothing where none is
// installed.
type pair struct {
	addr  string
	procs []*child
}

func (p *pair) stop() {
	for _, c := range p.procs {
		c.stop()
	}
}

func startSquid(dir, far string) (*pair, error) {
	program, err := exec.LookPath("squid")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/squid")
	}
	if err != nil {
		fmt.Println("squid is not installed: nothing is compared to it")
		return &pair{}, nil
	}
	e, err := policy.ParseEntry(far)
	if err != nil {
		return nil, err
	}
	c := gate.Config{
		AllowPrivate: []policy.Entry{e}, Nonce: "n", PolicyHash: "h",
		Dir: dir + "/conf", Logs: dir + "/log", Resolvers: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	}
	for _, port := range []*uint16{&c.FrontPort, &c.PeekPort} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*port = l.Addr().(*net.TCPAddr).AddrPort().Port()
		l.Close()
	}
	files, err := gate.Files(c)
	if err != nil {
		return nil, err
	}
	if files[gate.TLSFile], err = gate.Cert(time.Now()); err != nil {
		return nil, err
	}
	for name, b := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(c.Dir, name)), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(c.Dir, name), b, 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(c.Logs, 0o755); err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
		if err := errors.Join(os.Chown(c.Logs, 1000, 1000), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			return nil, err
		}
	}
	p := &pair{addr: fmt.Sprintf("127.0.0.1:%d", c.FrontPort)}
	for _, which := range []struct {
		conf string
		port uint16
	}{{gate.PeekConf, c.PeekPort}, {gate.FrontConf, c.FrontPort}} {
		cmd := exec.Command(program, gate.Args(c.Dir, which.conf)...)
		cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		p.procs = append(p.procs, &child{Cmd: cmd})
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			l, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", which.port))
			if err == nil {
				l.Close()
				break
			}
			if time.Now().After(end) {
				return nil, fmt.Errorf("squid does not listen: %w", err)
			}
		}
	}
	return p, nil
}

func atLeast(name string, value, goal float64) { figure(name, value, goal, value >= goal) }
func atMost(name string, value, goal float64)  { figure(name, value, goal, value <= goal) }

func figure(name string, value, goal float64, ok bool) {
	verdict := "short"
	if ok {
		verdict = "ok"
	}
	fmt.Printf("bench %s %s %s %s\n", name, number(value), number(goal), verdict)
}

func number(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}
