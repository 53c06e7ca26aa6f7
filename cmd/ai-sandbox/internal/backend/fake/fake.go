// Package fake is a backend in memory, for tests of what drives a backend. Its
// gate answers the readiness probe and its guest speaks the real control
// protocol over the real FIFOs; nothing is isolated. It stands for podman's, and
// refuses what that one refuses.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

var _ backend.Backend = (*Backend)(nil)

// A Guest plays the entrypoint: it gets the channel's two ends, and the
// container ends when it returns.
type Guest func(in, out *os.File) error

// A Backend keeps what is there by name. The zero value is not ready; see New.
type Backend struct {
	// Guest is what a started sandbox does; nil runs the command on the host.
	Guest Guest
	// Fail makes the named call fail: "home", "create", "attach", "start",
	// "verify", "gate".
	Fail map[string]error
	// InUse is a home that a container of somebody else's refers to.
	InUse string
	// GateGuest is called when a gate was started; its return ends the gate.
	GateGuest func()

	mu         sync.Mutex
	containers map[string]*container
	volumes    map[string]map[string]string // name to labels
	Calls      []string
}

type container struct {
	session string
	control string
	ended   chan struct{}
	once    sync.Once
	start   func() error // a gate's
	stop    func()
	started bool
	code    int
	// output passes what the command writes on, once streams are attached.
	streams chan backend.Streams
	output  chan error
}

func (c *container) end() { c.once.Do(func() { close(c.ended) }) }

// New returns an empty machine.
func New(g Guest) *Backend {
	return &Backend{Guest: g, Fail: map[string]error{}, containers: map[string]*container{}, volumes: map[string]map[string]string{}}
}

func (b *Backend) call(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Calls = append(b.Calls, name)
	return b.Fail[name]
}

// Left is what is still there, for a test that nothing is.
func (b *Backend) Left() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.containers {
		names = append(names, n)
	}
	return names
}

// Capabilities implements backend.Backend.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Runtime: policy.RuntimePodman, Isolation: policy.IsolationContainer, Limits: []string{},
		Networks:    []string{policy.NetGated, policy.NetUnix, policy.NetNone},
		GateEngines: []string{policy.EngineSquid, policy.EngineBuiltin},
		Publishing:  true,
	}
}

// EnsureHome implements backend.Backend.
func (b *Backend) EnsureHome(_ context.Context, name, _ string, labels map[string]string) (string, error) {
	if err := b.call("home"); err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, ok := b.volumes[name]
	if !ok {
		old = maps.Clone(labels)
		b.volumes[name] = old
	}
	if got := old[backend.LabelProject]; got != labels[backend.LabelProject] {
		return "", fmt.Errorf("the home %s belongs to the project %q", name, got)
	}
	return old[backend.LabelHomeLayout], nil
}

// CreateSandbox implements backend.Backend.
func (b *Backend) CreateSandbox(_ context.Context, s backend.Sandbox) (string, error) {
	if err := b.call("create"); err != nil {
		return "", err
	}
	p := s.Policy
	caps := b.Capabilities()
	switch {
	case p.Runtime != caps.Runtime:
		return "", &backend.UnsupportedError{Runtime: caps.Runtime, What: "a policy of runtime " + policy.Quote(p.Runtime)}
	case !slices.Contains(caps.Networks, p.Net.Mode):
		return "", &backend.UnsupportedError{Runtime: caps.Runtime, What: "--net " + policy.Quote(p.Net.Mode)}
	}
	for _, m := range p.Mounts {
		if !slices.Contains([]string{policy.KindBind, policy.KindVolume, policy.KindTmpfs, policy.KindProc, policy.KindSys, policy.KindDev}, m.Kind) {
			return "", &backend.UnsupportedError{Runtime: caps.Runtime, What: "a mount of kind " + policy.Quote(m.Kind)}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers[s.Name] = &container{session: s.Session, control: s.ControlDir, ended: make(chan struct{}),
		streams: make(chan backend.Streams, 1), output: make(chan error, 1)}
	return s.Name, nil
}

// Attach implements backend.Backend.
func (b *Backend) Attach(_ context.Context, id string, _ bool, s backend.Streams, ready chan<- struct{}) error {
	if err := b.call("attach"); err != nil {
		return err
	}
	c := b.get(id)
	if c.streams != nil {
		c.streams <- s
	}
	close(ready)
	select {
	case <-c.ended:
	case err := <-c.output:
		return err
	}
	return nil
}

func (b *Backend) get(id string) *container {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.containers[id]; c != nil {
		return c
	}
	c := &container{ended: make(chan struct{})}
	c.end()
	return c
}

// Start implements backend.Backend.
func (b *Backend) Start(_ context.Context, id string) error {
	if err := b.call("start"); err != nil {
		return err
	}
	c := b.get(id)
	if c.start != nil {
		return c.start()
	}
	in, err := os.OpenFile(filepath.Join(c.control, spec.InName), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(c.control, spec.OutName), os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	b.mu.Lock()
	c.started = true
	b.mu.Unlock()
	guest := b.Guest
	if guest == nil {
		guest = c.run
	}
	go func() {
		defer c.end()
		defer out.Close()
		defer in.Close()
		_ = guest(in, out)
	}()
	return nil
}

// Resize implements backend.Backend.
func (b *Backend) Resize(context.Context, string, int, int) error { return b.call("resize") }

// Verify implements backend.Backend.
func (b *Backend) Verify(context.Context, string, backend.Sandbox) error { return b.call("verify") }

// VerifyGate implements backend.Backend.
func (b *Backend) VerifyGate(context.Context, string, backend.Gate) error {
	return b.call("verify gate")
}

var port = regexp.MustCompile(`(?m)^http_port 127\.0\.0\.1:(\d+)`)

// CreateGate implements backend.Backend. Started, the gate listens where its
// configuration says, and answers with what its readiness page holds.
func (b *Backend) CreateGate(_ context.Context, g backend.Gate) (string, error) {
	if err := b.call("gate"); err != nil {
		return "", err
	}
	c := &container{control: g.ControlDir, ended: make(chan struct{})}
	c.start = func() error { return b.startGate(c, g) }
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers[g.Name] = c
	return g.Name, nil
}

func (b *Backend) startGate(c *container, g backend.Gate) error {
	var listeners []net.Listener
	page, err := readyPage(g.ConfigDir)
	if err != nil {
		return err
	}
	for _, name := range []string{gate.FrontConf, gate.PeekConf} {
		conf, err := os.ReadFile(filepath.Join(g.ConfigDir, name))
		if err != nil {
			return err
		}
		m := port.FindSubmatch(conf)
		if m == nil {
			return fmt.Errorf("%s has no http_port", name)
		}
		l, err := net.Listen("tcp4", "127.0.0.1:"+string(m[1]))
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		go serve(l, page)
	}
	var out *os.File
	if g.ControlDir != "" {
		if out, err = os.OpenFile(filepath.Join(g.ControlDir, spec.OutName), os.O_WRONLY, 0); err != nil {
			return err
		}
		if err := spec.WriteFrame(out, spec.ToHost{Started: true}); err != nil {
			return err
		}
	}
	c.stop = func() {
		for _, l := range listeners {
			l.Close()
		}
		if out != nil {
			out.Close()
		}
	}
	if b.GateGuest != nil {
		go func() {
			b.GateGuest()
			c.stop()
			c.end()
		}()
	}
	return nil
}

// readyPage finds the page that holds the readiness line.
func readyPage(dir string) (page []byte, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if regexp.MustCompile(`aisb-gate ready nonce=`).Match(b) {
			page = b
		}
		return err
	})
	if err == nil && page == nil {
		err = errors.New("the gate's configuration has no readiness page")
	}
	return page, err
}

func serve(l net.Listener, page []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(page), page)
		c.Close()
	}
}

// Exit implements backend.Backend.
func (b *Backend) Exit(ctx context.Context, id string) (int, error) {
	c := b.get(id)
	select {
	case <-c.ended:
		return c.code, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Remove implements backend.Backend.
func (b *Backend) Remove(_ context.Context, id string) error {
	if err := b.call("remove " + id); err != nil {
		return err
	}
	b.mu.Lock()
	c := b.containers[id]
	delete(b.containers, id)
	b.mu.Unlock()
	if c != nil {
		if c.stop != nil {
			c.stop()
		}
		c.end()
	}
	return nil
}

// Homes implements backend.Backend.
func (b *Backend) Homes(context.Context) ([]backend.Home, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []backend.Home
	for _, name := range slices.Sorted(maps.Keys(b.volumes)) {
		out = append(out, backend.Home{Name: name, InUse: name == b.InUse})
	}
	return out, nil
}

// RemoveVolume implements backend.Backend.
func (b *Backend) RemoveVolume(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if name == b.InUse {
		return backend.ErrInUse
	}
	delete(b.volumes, name)
	return nil
}

// List implements backend.Backend.
func (b *Backend) List(context.Context) ([]backend.Leftover, error) {
	var out []backend.Leftover
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, c := range b.containers {
		out = append(out, backend.Leftover{ID: n, Name: n, Session: c.session, Running: c.started})
	}
	return out, nil
}
