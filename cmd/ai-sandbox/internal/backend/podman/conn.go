// Package podman is the backend on rootless podman, through its API bindings.
// It is the only package that imports podman.
//
// This file finds the user's podman service, or starts one.
package podman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"golang.org/x/sys/unix"
)

// MinMajor is the oldest podman that pasta's loopback mapping and keep-id work
// with as needed.
const MinMajor = 5

// serviceIdle is how long a service that we started stays when nobody uses it,
// so that the next start is quick.
const serviceIdle = 5 * time.Minute

// Config is where to find podman on this machine; facts, not choices.
type Config struct {
	// Binary is the absolute path of podman.
	Binary string
	// UserSocket is where the user's own service would be.
	UserSocket string
	// RuntimeDir is ai-sandbox's own directory under XDG_RUNTIME_DIR.
	RuntimeDir string
	// Env is the environment of a service that we start. What it says of
	// containers.conf comes before neutralConf.
	Env []string
	UID int
	// Claim keeps a record of a container that is about to be made for a moment, and
	// returns what forgets it again. nil keeps none.
	Claim func(name string) (release func() error, err error)
	// Proxy are the variables, NAME=value, that lead to the network where there is no
	// other way. Their values may hold a password.
	Proxy []string
	// AuthFile is where the credentials for registries are, or "" for podman's own
	// places.
	AuthFile string
}

// A TooOldError is a podman that is older than MinMajor.
type TooOldError struct{ Version string }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("podman %s is too old: install podman %d or newer, or choose another runtime with --runtime local (in the configuration file: runtime = local)", e.Version, MinMajor)
}

// A Client talks to one podman service.
type Client struct {
	config     Config
	createLock string // the file that is locked while a container is created
	Version    string

	mu     sync.Mutex
	conn   context.Context // carries the bindings' connection
	socket string          // of the service at its other end
	pastas map[string]int  // pidfds of those that listen for a container
}

// Connect reaches the user's podman service, starting one where none is served.
// A service that is not the user's own (rootful, say) is refused.
func Connect(ctx context.Context, c Config) (*Client, error) {
	cl := &Client{config: c, createLock: filepath.Join(c.RuntimeDir, "create.lock")}
	return cl, cl.reconnect(ctx)
}

// reconnect reaches the service anew, if the one that was there is gone.
func (c *Client) reconnect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.ownSocket()
	for _, socket := range []string{c.config.UserSocket, own} {
		if served(socket) {
			return c.connect(ctx, socket)
		}
	}
	if err := startService(ctx, c.config, own); err != nil {
		return err
	}
	return c.connect(ctx, own)
}

// ownSocket is where a service that we start is.
func (c *Client) ownSocket() string { return filepath.Join(c.config.RuntimeDir, "podman.sock") }

// served tells whether somebody accepts connections at the socket. The bindings
// would retry a dead one for 0.6 s.
func served(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// connect is called with c.mu held.
func (c *Client) connect(ctx context.Context, socket string) error {
	if err := checkPeer(socket, c.config.UID); err != nil {
		return err
	}
	// The connection outlives the caller's context; with ties each call to its own.
	conn, err := bindings.NewConnection(context.WithoutCancel(ctx), "unix://"+socket)
	if err != nil {
		return fmt.Errorf("connect to podman at %s: %w", socket, err)
	}
	v := bindings.ServiceVersion(conn)
	if v.Major < MinMajor {
		return &TooOldError{Version: v.String()}
	}
	c.conn, c.Version, c.socket = conn, v.String(), socket
	return nil
}

// checkPeer refuses a service that another user runs: a rootful one would make
// the container's root the host's.
func checkPeer(socket string, uid int) error {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return fmt.Errorf("connect to podman at %s: %w", socket, err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return fmt.Errorf("look at podman's socket: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("look at podman's socket: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("look at podman's socket: %w", credErr)
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("the podman service at %s belongs to uid %d, not to you: stop it, and ai-sandbox starts a rootless one of your own", socket, cred.Uid)
	}
	return nil
}

// startService starts `podman system service` for this user and waits until it
// answers. Two starts at once make one service: the second waits for the lock
// and finds it served.
func startService(ctx context.Context, c Config, socket string) error {
	if c.Binary == "" {
		return errors.New("podman is not installed: install podman 5 or newer, or choose another runtime with --runtime local (in the configuration file: runtime = local)")
	}
	if err := os.MkdirAll(c.RuntimeDir, 0o700); err != nil { // the first command of a login
		return fmt.Errorf("start podman's service: %w", err)
	}
	unlock, err := flock(ctx, filepath.Join(c.RuntimeDir, "podman.lock"))
	if err != nil {
		return fmt.Errorf("start podman's service: %w", err)
	}
	defer unlock()
	if served(socket) {
		return nil
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start podman's service: %w", err)
	}
	conf := filepath.Join(c.RuntimeDir, "containers.conf")
	global, env := serviceCommand(c.Env, conf)
	if err := writeConf(conf); err != nil {
		return err
	}
	logPath := filepath.Join(c.RuntimeDir, "podman.log")
	log, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("start podman's service: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(c.Binary, append(global, "system", "service", "--time", fmt.Sprint(int(serviceIdle.Seconds())), "unix://"+socket)...)
	cmd.Env = env
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: the service outlives this command and its terminal.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start podman's service: %w", err)
	}
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-died:
			return fmt.Errorf("podman's service ended at once: %s (see %s)", lastLine(logPath), logPath)
		case <-deadline:
			return fmt.Errorf("podman's service did not answer within 30 s (see %s)", logPath)
		case <-tick.C:
			if served(socket) {
				return nil
			}
		}
	}
}

// TryNamespace has podman run a program in its user namespace, which it makes with the
// user's range of ids where no container runs yet. said is podman's own word where it
// can't, or "".
func TryNamespace(ctx context.Context, c Config) (said string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Binary, "unshare", "true")
	cmd.Dir, cmd.Env = "/", c.Env
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	if out = bytes.TrimSpace(out); len(out) == 0 {
		return err.Error()
	}
	return string(out[bytes.LastIndexByte(out, '\n')+1:])
}

// lastLine is the last line of a log, for an error message.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	return string(b)
}

// with gives the bindings' connection the caller's cancellation.
func (c *Client) with(ctx context.Context) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	base := c.conn
	c.mu.Unlock()
	conn, cancel := context.WithCancelCause(base)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return conn, func() { stop(); cancel(nil) }
}

// flock locks a file for as long as the returned function is not called. It
// holds across processes, and ends with the process that holds it. The end of
// the context ends the wait.
func flock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	locked := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		// The call can't be called off: a lock that comes late is let go.
		go func() {
			<-locked
			f.Close()
		}()
		return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
	}
}
