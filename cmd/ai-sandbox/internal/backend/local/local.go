// Package local is the backend on bubblewrap: a jail of namespaces that one
// process of ours holds, with the machine's own system directories instead of an
// image. There is no daemon and nothing that stays: the kernel ends a jail with
// the process that started it.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

var _ backend.Backend = (*Backend)(nil)

// Config is what a Backend stands on.
type Config struct {
	// Bwrap is the path of bubblewrap, as host has found it.
	Bwrap string
	// StateDir is ai-sandbox's own: the homes are in it, and the entrypoint.
	StateDir string
	// Manager is the socket of the service manager that makes control groups, or
	// "" where there is none.
	Manager string
	// Entrypoint returns the program of that name, and a name for this build of
	// it.
	Entrypoint func() (program *io.SectionReader, build string, err error)
	// System is what a squid gate sees of the machine, and Squid that one's
	// path, or "" where there is none that can be used.
	System []policy.Mount
	Squid  string
}

// A Backend holds the jails of this process.
type Backend struct {
	config Config

	// program is the path of the entrypoint's file, made sure of once.
	program func() (string, error)
	mu      sync.Mutex
	jails   map[string]*process // by name, which is the id
}

// New returns a Backend without any jail. It touches nothing.
func New(c Config) *Backend {
	b := &Backend{config: c, jails: map[string]*process{}}
	b.program = sync.OnceValues(b.programFile)
	return b
}

// Prepare begins what the first jail has to wait for otherwise.
func (b *Backend) Prepare() {
	go func() { _, _ = b.program() }() // who needs it hears of an error
}

// Capabilities implements backend.Backend.
func (b *Backend) Capabilities() backend.Capabilities {
	engines := []string{policy.EngineBuiltin}
	if b.config.Squid != "" {
		engines = append(engines, policy.EngineSquid)
	}
	return backend.Capabilities{
		Runtime: policy.RuntimeLocal, Isolation: policy.IsolationProcess,
		Limits: backend.LimitNames, Networks: slices.Clone(networks), GateEngines: engines, Publishing: true, OwnTerminal: true,
	}
}

// CreateSandbox implements backend.Backend.
func (b *Backend) CreateSandbox(_ context.Context, s backend.Sandbox) (string, error) {
	j, err := jailOf(s)
	if err != nil {
		return "", err
	}
	if j.limits.ByCgroup() && b.config.Manager == "" {
		return "", &backend.UnsupportedError{Runtime: policy.RuntimeLocal, What: "limits by a control group without systemd"}
	}
	return b.create(s.Name, backend.Leftover{Session: s.Session}, j)
}

// squidPath is where the entrypoint starts squid.
const squidPath = "/usr/sbin/squid"

// CreateGate implements backend.Backend: a squid, as on podman's runtime.
func (b *Backend) CreateGate(_ context.Context, g backend.Gate) (string, error) {
	if g.GateName != "" || g.ControlDir == "" {
		return "", &backend.UnsupportedError{Runtime: policy.RuntimeLocal, What: "a named gate"}
	}
	if b.config.Squid != squidPath {
		return "", fmt.Errorf("there is no squid with OpenSSL at %s: install squid-openssl, or use --gate-engine builtin", squidPath)
	}
	return b.create(g.Name, backend.Leftover{Session: g.Session}, gateJail(g, b.config.System))
}

func (b *Backend) create(name string, l backend.Leftover, j jail) (string, error) {
	if !filepath.IsAbs(b.config.Bwrap) {
		return "", errors.New("bubblewrap was not found: install it (apt-get install bubblewrap), or choose another runtime with --runtime")
	}
	program, err := b.program()
	if err != nil {
		return "", err
	}
	if err := mountPoints(j.mounts); err != nil {
		return "", err
	}
	p, err := newProcess(j, build(j, facts{program: program, masks: masks()}))
	if err != nil {
		return "", err
	}
	l.ID, l.Name = name, name
	p.bwrap, p.manager, p.info = b.config.Bwrap, b.config.Manager, l
	p.programPath = program
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jails[name] != nil {
		p.closePipes()
		return "", fmt.Errorf("a jail of the name %s is there already", name)
	}
	b.jails[name] = p
	return name, nil
}

func (b *Backend) get(id string) (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.jails[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("jail %s: %w", id, backend.ErrNotExist)
}

// Attach implements backend.Backend.
func (b *Backend) Attach(ctx context.Context, id string, tty bool, s backend.Streams, ready chan<- struct{}) error {
	p, err := b.get(id)
	if err != nil {
		return err
	}
	return p.attach(ctx, tty, s, ready)
}

// Start implements backend.Backend. When it returns nil, bubblewrap has done all
// that it was asked for and starts the entrypoint.
func (b *Backend) Start(ctx context.Context, id string) error {
	p, err := b.get(id)
	if err != nil {
		return err
	}
	return p.start(ctx)
}

// Resize implements backend.Backend: the terminal is the entrypoint's, and its
// size goes to that one.
func (b *Backend) Resize(context.Context, string, int, int) error {
	return &backend.UnsupportedError{Runtime: policy.RuntimeLocal, What: "the size of a terminal from outside"}
}

// Exit implements backend.Backend.
func (b *Backend) Exit(ctx context.Context, id string) (int, error) {
	p, err := b.get(id)
	if err != nil {
		return 0, err
	}
	select {
	case <-p.ended:
		return p.code, nil
	case <-p.removed:
		return 0, fmt.Errorf("jail %s: %w", id, backend.ErrNotExist)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Remove implements backend.Backend. A jail of another process ends with that
// one, but for a bubblewrap that was left half-way (see endStrays).
func (b *Backend) Remove(ctx context.Context, id string) error {
	p, err := b.get(id)
	if err != nil {
		return endStrays(id)
	}
	if err := p.kill(ctx); err != nil {
		return fmt.Errorf("end the jail %s: %w", id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jails[id] == p {
		delete(b.jails, id)
	}
	return nil
}

// List implements backend.Backend. It knows the jails of this process alone, and
// no others can be left over: bubblewrap dies with the thread that started it,
// PID 1 with bubblewrap, and everything else with PID 1. Should one of these
// deaths be missed (bubblewrap asks for the signal a moment after its start),
// the entrypoint sees the end of its control channel, and what has not come that
// far is ended when the session's record is (see Remove).
func (b *Backend) List(context.Context) ([]backend.Leftover, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []backend.Leftover
	for _, p := range b.jails {
		l := p.info
		l.Running = p.running()
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b backend.Leftover) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// endTime bounds the end of a jail after it was killed: the kernel may have much
// memory to give back.
const endTime = 10 * time.Second

// closeInherited keeps what this program itself was started with from bubblewrap,
// which hands every open descriptor on: one of a directory of the host's would
// lead out of the jail.
func closeInherited() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep inherited descriptors out of the jail: %w", err)
	}
	return nil
}

// memfile is a file of content in memory, to be read from its start.
func memfile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the file %s for the jail: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the file %s for the jail: %w", name, err), f.Close())
	}
	return f, nil
}
