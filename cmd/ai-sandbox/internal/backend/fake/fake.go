// Package fake is a backend in memory, for tests of what drives a backend. Its
// gate answers the readiness probe and its guest speaks the real control
// protocol over the real FIFOs; nothing is isolated.
package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
)

var _ backend.Backend = (*Backend)(nil)

// A Guest plays the entrypoint: it gets the channel's two ends, and the
// container ends when it returns.
type Guest func(in, out *os.File) error

// A Backend keeps what is there by name. The zero value is not ready; see New.
type Backend struct {
	// Guest is what a started sandbox does.
	Guest Guest
	// Fail makes the named call fail: "home", "create", "attach", "start",
	// "verify", "gate".
	Fail map[string]error
	// GateGuest is called when a gate was started; its return ends the gate.
	GateGuest func()

	mu         sync.Mutex
	containers map[string]*container
	volumes    map[string]string // name to layout
	Calls      []string
}

type container struct {
	control string
	ended   chan struct{}
	once    sync.Once
	start   func() error // a gate's
	stop    func()
}

func (c *container) end() { c.once.Do(func() { close(c.ended) }) }

// New returns an empty machine.
func New(g Guest) *Backend {
	return &Backend{Guest: g, Fail: map[string]error{}, containers: map[string]*container{}, volumes: map[string]string{}}
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

// EnsureHome implements backend.Backend.
func (b *Backend) EnsureHome(_ context.Context, name, _ string, labels map[string]string) (string, error) {
	if err := b.call("home"); err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.volumes[name]; !ok {
		b.volumes[name] = labels[backend.LabelHomeLayout]
	}
	return b.volumes[name], nil
}

// CreateSandbox implements backend.Backend.
func (b *Backend) CreateSandbox(_ context.Context, s backend.Sandbox) (string, error) {
	if err := b.call("create"); err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.containers[s.Name] = &container{control: s.ControlDir, ended: make(chan struct{})}
	return s.Name, nil
}

// Attach implements backend.Backend.
func (b *Backend) Attach(_ context.Context, id string, _ bool, _ backend.Streams, ready chan<- struct{}) error {
	if err := b.call("attach"); err != nil {
		return err
	}
	close(ready)
	<-b.get(id).ended
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
	go func() {
		defer c.end()
		defer out.Close()
		defer in.Close()
		_ = b.Guest(in, out)
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
	select {
	case <-b.get(id).ended:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// EndsSoon implements backend.Backend.
func (b *Backend) EndsSoon(string) {}

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

// RemoveVolume implements backend.Backend.
func (b *Backend) RemoveVolume(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.volumes, name)
	return nil
}

// List implements backend.Backend.
func (b *Backend) List(context.Context) ([]backend.Leftover, error) {
	var out []backend.Leftover
	for _, n := range b.Left() {
		out = append(out, backend.Leftover{ID: n, Name: n})
	}
	return out, nil
}
