// Bringing a gate up and making sure that it is ours.

package session

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/gate/builtin"
	"ai-sandbox/gate/relay"
	"ai-sandbox/policy"
)

const (
	// gateTries is how often another port is tried when somebody takes the
	// one that was free a moment ago.
	gateTries = 3
	// gateTime bounds a gate's start until its first answer.
	gateTime = 30 * time.Second
)

// errPortTaken says that somebody else listens on the gate's port.
var errPortTaken = errors.New("another process listens on the gate's port")

// A runningGate is a gate that has answered with our nonce, or one of our own
// process.
type runningGate struct {
	container string // "" for one of our own process
	port      uint16 // of 127.0.0.1; 0 where it is reached over a socket alone
	socket    string // where it is reached over one
	logDir    string
	confDir   string
	// change makes it go by other lists, and tells how many connections that was the
	// end of.
	change func(context.Context, gate.Config) (cut int, err error)

	mu  sync.Mutex
	cfg gate.Config // what it answers with
	// ended is closed when the gate is gone; nil for one that ends with us.
	ended <-chan struct{}
	// reload makes a squid of the session's read its configuration again, the first one
	// is 1; and drop ends both. They are nil for a gate of our own process.
	reload func(squid int) error
	drop   func()
	// settle ends what it has to tell of this session: every decision is logged when it
	// returns.
	settle func() error
}

// config is what the gate goes by.
func (g *runningGate) config() gate.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg
}

func (g *runningGate) setConfig(c gate.Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cfg = c
}

// confirm asks the gate itself what it goes by.
func (g *runningGate) confirm(ctx context.Context) error {
	c := g.config()
	var ready bool
	var err error
	if g.port != 0 {
		ready, err = probe(ctx, g.port, c)
	} else {
		ready, err = probeAt(ctx, "unix", g.socket, c)
	}
	if ready {
		return nil
	}
	return errors.Join(errors.New("the gate does not answer with the hash of what should be in force: end the session"), err)
}

// builtinGate serves the gate from this process: it ends with us, as the
// sandbox does.
func (r *run) builtinGate(ctx context.Context, n policy.Net, u *undo) (*runningGate, error) {
	up, err := r.m.upstream(ctx, n)
	if err != nil {
		return nil, err
	}
	r.tryUpstream(ctx, up)
	cfg := gate.Config{Allow: n.Allow, AllowPrivate: n.AllowPrivate, Upstream: up, Nonce: nonce(), PolicyHash: PolicyHash(n)}
	if !n.Learn { // else there is nothing to let through later
		cfg.Session = r.id
	}
	g, err := builtin.New(builtin.Config{
		Allow: cfg.Allow, AllowPrivate: cfg.AllowPrivate, Upstream: up, Learn: n.Learn, Nonce: cfg.Nonce, PolicyHash: cfg.PolicyHash, Session: cfg.Session, UID: os.Getuid(), Decided: r.gateLog.decided,
	})
	if err != nil {
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	end := sync.OnceValue(g.Close)
	u.push("end the gate", func(context.Context) error { return end() })
	// Its end tells of what is still open; an error is the undoing's to tell.
	rg := &runningGate{cfg: cfg, change: changeBuiltin(g), settle: func() error {
		_ = end()
		return nil
	}}
	var l net.Listener
	if n.Mode == policy.NetUnix {
		l, err = r.gateSocket()
	} else {
		l, err = listenApart(r.taken)
	}
	if err != nil {
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		rg.port = uint16(a.Port) //nolint:gosec // a port
	} else {
		rg.socket = l.Addr().String()
	}
	ended := make(chan struct{})
	rg.ended = ended
	go func() {
		defer close(ended)
		_ = g.Serve(l) // its end is what counts
	}()
	return rg, nil
}

// listenApart listens at a port of 127.0.0.1 that is not taken otherwise.
func listenApart(taken func(port uint16) bool) (net.Listener, error) {
	for {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if a, ok := l.Addr().(*net.TCPAddr); !ok || !taken(uint16(a.Port)) { //nolint:gosec // a port
			return l, nil
		}
		defer l.Close() // until another is found
	}
}

// gateSocket listens where the sandbox finds the gate with policy.NetUnix.
func (r *run) gateSocket() (net.Listener, error) {
	path := filepath.Join(r.gateDir(), policy.GateSocketName)
	const most = 107 // of sun_path, with its zero (unix(7))
	if len(path) > most {
		return nil, fmt.Errorf("the path of the gate's socket is longer than %d bytes: set XDG_RUNTIME_DIR to a shorter one", most)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at the gate's socket: %w", err)
	}
	return l, nil
}

// relay leads the gate's socket to a squid on a port of 127.0.0.1.
func (r *run) relay(port uint16, u *undo) error {
	l, err := r.gateSocket()
	if err != nil {
		return fmt.Errorf("start the gate: %w", err)
	}
	rl := relay.New(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), os.Getuid())
	u.push("end the relay", func(context.Context) error { return rl.Close() })
	go func() { _ = rl.Serve(l) }() // without it nothing is reached
	return nil
}

// nonce is a fresh random name, 128 bits in hex.
func nonce() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Ports below those that the kernel gives to outgoing connections by itself
// (ip_local_port_range, ip(7)), so that none of these takes one in between.
const firstPort, lastPort = 20000, 32767

// holdPorts picks n ports of 127.0.0.1 that are free now and not taken otherwise, and
// holds them until release is called: no other ai-sandbox picks one, and a squid can
// still listen at it. Any other process may take one before the squid does: the probe
// finds that out.
func holdPorts(n int, taken func(port uint16) bool) (ports []uint16, release func(), err error) {
	var held []int
	release = func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}
	for try := 0; len(ports) < n; try++ {
		port := uint16(firstPort + mathrand.IntN(lastPort-firstPort+1)) //nolint:gosec // in range, and no secret
		if taken(port) {
			continue
		}
		fd, err := holdPort(port)
		if err != nil && try < 1000 {
			continue
		}
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("pick a port for the gate: %w", err)
		}
		held, ports = append(held, fd), append(ports, port)
	}
	return ports, release, nil
}

// holdPort binds a socket that never listens. Two sockets may have one port if both have
// SO_REUSEADDR, which squid's has, and neither listens yet (socket(7)); while this one
// is bound it has not, so that it gets no port that another one has.
func holdPort(port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// writeConfig lays the gate's configuration down in a directory of its own.
func writeConfig(dir string, c gate.Config) error {
	files, err := gate.Files(c)
	if err != nil {
		return fmt.Errorf("write the gate's configuration: %w", err)
	}
	if files[gate.TLSFile], err = gate.Cert(time.Now()); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("write the gate's configuration: %w", err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("write the gate's configuration: %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write the gate's configuration: %w", err)
		}
	}
	return nil
}

// probe asks the gate for the reserved name and looks for the nonce in its
// answer. A connection refused is "not yet"; an answer without the nonce is
// somebody else's.
func probe(ctx context.Context, port uint16, c gate.Config) (ready bool, err error) {
	return probeAt(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port), c)
}

func probeAt(ctx context.Context, network, addr string, c gate.Config) (ready bool, err error) {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return false, nil
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return false, fmt.Errorf("probe the gate: %w", err)
	}
	const request = "GET http://" + gate.ReadyHost + "/ HTTP/1.1\r\nHost: " + gate.ReadyHost + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return false, nil
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	if err != nil || len(answer) == 0 {
		return false, nil
	}
	if !bytes.Contains(answer, []byte(c.ReadyLine())) {
		return false, errPortTaken
	}
	return true, nil
}

// awaitGate probes until both of the gate's squids answer, the gate ends, or
// time is up.
func awaitGate(ctx context.Context, c gate.Config, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, gateTime)
	defer cancel()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := probe(ctx, c.PeekPort, c)
		if err == nil && ready {
			ready, err = probe(ctx, c.FrontPort, c)
		}
		if err != nil {
			return err
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the gate did not answer: %w", ctx.Err())
		case <-ended:
			return errors.New("the gate ended at once")
		case <-tick.C:
		}
	}
}

// A place is where a gate's files go. Its configuration is half a hundred small
// files, which a file system in memory writes quicker; its log may get long.
type place struct {
	conf, log string
	// taken are ports that the gate may not have.
	taken func(port uint16) bool
}

// gateTry names the directory of a try.
func gateTry(n int) string { return fmt.Sprintf("gate-%d", n) }

// FirstGate is the only one of a session's own gate.
var FirstGate = gateTry(0)

func (p place) sub(name string) place {
	return place{filepath.Join(p.conf, name), filepath.Join(p.log, name), p.taken}
}

// startGate brings up a gate under the given container name, on a port that it
// finds itself. Without an owner it is a named one. What it started is pushed on
// the undo stack before it is started. A session's is told its port by fixed, just
// before the container is made, and gets no second try.
func (m *Manager) startGate(ctx context.Context, be backend.Backend, g backend.Gate, cfg gate.Config, in place, u *undo, fixed func(port uint16)) (*runningGate, error) {
	var last error
	for try := range gateTries {
		r, err := m.tryGate(ctx, be, g, cfg, in.sub(gateTry(try)), u, fixed)
		if err == nil {
			return r, nil
		}
		last = err
		if ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			break
		}
		if fixed != nil {
			last = fmt.Errorf("%w: try again", err)
			break
		}
	}
	return nil, fmt.Errorf("start the gate: %w", last)
}

func (m *Manager) tryGate(ctx context.Context, be backend.Backend, g backend.Gate, cfg gate.Config, in place, u *undo, fixed func(port uint16)) (_ *runningGate, err error) {
	ports, release, err := holdPorts(2, in.taken)
	if err != nil {
		return nil, err
	}
	u.push("let the gate's ports go", func(context.Context) error {
		release()
		return nil
	})
	cfg.FrontPort, cfg.PeekPort = ports[0], ports[1]
	cfg.Classes = cfg.Listed()
	g.ConfigDir, g.LogDir = filepath.Join(in.conf, "conf"), filepath.Join(in.log, "log")
	for _, d := range []string{in.conf, g.LogDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the gate's directory: %w", err)
		}
	}
	if err := writeConfig(g.ConfigDir, cfg); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	r := &runningGate{port: cfg.FrontPort, logDir: g.LogDir, confDir: g.ConfigDir, cfg: cfg, ended: ended}
	var ctl *control
	if g.Session != "" {
		g.ControlDir = filepath.Join(in.conf, "ctl")
		if ctl, err = newControl(g.ControlDir); err != nil {
			return nil, err
		}
		r.drop = ctl.Close
		r.reload = func(squid int) error { return ctl.Send(spec.ToGuest{Reload: squid}) }
		u.push("end the gate", func(context.Context) error {
			ctl.Close()
			return nil
		})
		r.change = r.changeSquids
	}
	u.push("remove the gate", func(ctx context.Context) error { return be.Remove(ctx, g.Name) })
	if fixed != nil {
		fixed(r.port)
	}
	r.container, err = be.CreateGate(ctx, g)
	if err != nil {
		return nil, err
	}
	out := &bounded{}
	if ctl != nil {
		if err := r.watch(ctx, be, ctl, out, ended); err != nil {
			return nil, err
		}
	}
	if err := be.Start(ctx, r.container); err != nil {
		return nil, err
	}
	verified := make(chan error, 1)
	go func() { verified <- be.VerifyGate(ctx, r.container, g) }()
	err = awaitGate(ctx, cfg, ended)
	if verr := <-verified; err == nil && verr != nil {
		return nil, verr
	}
	if err != nil {
		if text := out.String(); text != "" {
			err = fmt.Errorf("%w: %s", err, policy.Printable(text))
		}
		return nil, errors.Join(squidError(err, g.LogDir), be.Remove(ctx, g.Name))
	}
	if ctl != nil {
		if err := ctl.Unlink(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// watch closes ended when the gate is gone: its end of the control channel, or
// what it says (which ends with conmon and with podman's service).
func (g *runningGate) watch(ctx context.Context, be backend.Backend, ctl *control, out *bounded, ended chan<- struct{}) error {
	var once sync.Once
	end := func() { once.Do(func() { close(ended) }) }
	go func() {
		defer end()
		for {
			if _, err := ctl.Recv(); err != nil {
				return
			}
		}
	}()
	ready, gone := make(chan struct{}), make(chan error, 1)
	go func() {
		defer end()
		gone <- be.Attach(context.WithoutCancel(ctx), g.container, false, backend.Streams{Stdout: out, Stderr: out}, ready)
	}()
	select {
	case <-ready:
		return nil
	case err := <-gone:
		return errors.Join(errors.New("the gate's output ended before it started"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bounded keeps the first of what a gate says, for an error message.
type bounded struct {
	mu   sync.Mutex
	text []byte
}

const boundedSize = 1 << 10

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p[:min(len(p), boundedSize-len(b.text))]...)
	return len(p), nil
}

func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(string(b.text))
}

// squidError adds to an error what squids have logged of why.
func squidError(err error, logDir string) error {
	for _, which := range []string{"front", "peek"} {
		log := tail(filepath.Join(logDir, which+".cache.log"))
		if strings.Contains(log, "Address already in use") {
			err = errPortTaken
		}
		if log != "" {
			err = fmt.Errorf("%w: %s", err, log)
		}
	}
	return err
}

// tail is the last telling line of squid's own log, for an error message.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if len(b) > 1<<16 {
		b = b[len(b)-1<<16:]
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "FATAL") || strings.Contains(lines[i], "ERROR") {
			return policy.Quote(lines[i])
		}
	}
	return policy.Quote(lines[len(lines)-1])
}
