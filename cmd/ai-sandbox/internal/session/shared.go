// A session's part of a gate that it shares: two squids of its own there, with a port, a
// list and a log that are the session's alone. They live as long as this process holds
// its connection to the gate's socket.

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// gateConf is the directory of a named gate's configuration.
func gateConf(g store.Record) string { return filepath.Join(filepath.Dir(g.GateLog), "conf") }

// sharedDirs are a session's own below those of a named gate.
func sharedDirs(g store.Record, id string) (conf, log string) {
	return filepath.Join(gateConf(g), spec.GateSessions, id), filepath.Join(g.GateLog, spec.GateSessions, id)
}

// gateOf is how the container of a named gate was asked for.
func gateOf(g store.Record) backend.Gate {
	return backend.Gate{
		Name: g.Containers[0], GateName: g.ID, Image: g.GateImage, ConfigDir: gateConf(g), LogDir: g.GateLog,
		Idle: time.Duration(g.GateTTL) * time.Second, Unit: g.Unit != "",
	}
}

// noGate is the error for a name that no gate has.
func noGate(name string) error {
	return fmt.Errorf("gate %s: %w; start it with ai-sandbox gate up %s --allow HOST", name, ErrNoGate, name)
}

// findGate is the record of the named gate that the policy was made with.
func (m *Manager) findGate(net policy.Net) (store.Record, error) {
	rec, ok, err := m.Store.Gate(net.GateName)
	switch {
	case err != nil:
		return rec, err
	case !ok || rec.GatePort == 0 || len(rec.Containers) != 1:
		return rec, noGate(net.GateName)
	case rec.PolicyHash != PolicyHash(net):
		return rec, fmt.Errorf("gate %s has another list since just now: start the run again", net.GateName)
	}
	return rec, nil
}

// joinGate gets the session a port of its own of the named gate. The gate is read back as
// a session's own one is, and refused where it is not what was asked for.
func (r *run) joinGate(ctx context.Context, cfg gate.Config, u *undo, fixed func(port uint16)) (*runningGate, error) {
	name := r.req.Policy.Net.GateName
	rg, err := r.tryJoin(ctx, cfg, u, fixed)
	if err != nil {
		return nil, fmt.Errorf("use gate %s: %w", name, err)
	}
	return rg, nil
}

func (r *run) tryJoin(ctx context.Context, cfg gate.Config, u *undo, fixed func(port uint16)) (*runningGate, error) {
	// The session's own record names the gate by now: who changes the gate's list from
	// here on asks this session, too.
	g, err := r.m.findGate(r.req.Policy.Net)
	if err != nil {
		return nil, err
	}
	if g.Nonce != r.shared.Nonce {
		return nil, errors.New("it was made anew just now: start the run again")
	}
	ctx, cancel := context.WithTimeout(ctx, gateTime)
	defer cancel()
	conf, log := sharedDirs(g, r.id)
	in := spec.GateSessions + "/" + r.id
	cfg.Dir, cfg.Logs = gate.ConfDir+"/"+in, gate.LogDir+"/"+in
	cfg.FrontPort, cfg.PeekPort = r.ports[0], r.ports[1]
	cfg.Classes = cfg.Listed()
	for _, d := range []string{conf, log} {
		u.push("remove the session's files of the gate", func(context.Context) error { return os.RemoveAll(d) })
	}
	if err := os.Mkdir(log, 0o700); errors.Is(err, fs.ErrNotExist) { // taken away meanwhile
		return nil, notUp(g)
	} else if err != nil {
		return nil, fmt.Errorf("make the session's log of the gate: %w", err)
	}
	if err := writeConfig(conf, cfg); err != nil {
		return nil, err
	}
	line, err := callGate(ctx, g, r.id)
	if err != nil {
		return nil, err
	}
	u.push("leave the gate", func(context.Context) error {
		line.close()
		return nil
	})
	fixed(cfg.FrontPort)
	verified := make(chan error, 1)
	go func() { verified <- r.be.VerifyGate(ctx, g.Containers[0], gateOf(g)) }()
	if err = line.started(); err == nil {
		err = awaitGate(ctx, cfg, line.ended)
	}
	if err != nil {
		err = squidError(errors.Join(err, line.lost()), log)
	}
	if verr := <-verified; verr != nil || err != nil {
		return nil, errors.Join(verr, err)
	}
	rg := &runningGate{
		container: g.Containers[0], port: cfg.FrontPort, logDir: log, confDir: conf, cfg: cfg, ended: line.ended,
		reload: line.reload, drop: line.close,
	}
	rg.change = rg.changeSquids
	return rg, nil
}

// A gateLine is a connection to the socket of a named gate.
type gateLine struct {
	conn  *net.UnixConn
	begun chan struct{} // it has said that it does as asked
	ended chan struct{} // it is gone
	close func()
	send  sync.Mutex
	why   error // set when ended is closed
}

// errNotUp is returned for a gate that has a record and whose process is surely gone.
var errNotUp = errors.New("it has ended")

// notUp tells why, as far as that can be seen from here: what a unit says goes nowhere.
func notUp(g store.Record) error {
	if g.Unit != "" {
		for _, port := range []uint16{g.GatePort, g.GatePeek} {
			fd, err := holdPort(port)
			if errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("%w: port %d of 127.0.0.1, which is its own, has another process; end that, and start it anew with %s", errNotUp, port, beginOf(g))
			}
			if err == nil {
				unix.Close(fd)
			}
		}
	}
	return fmt.Errorf("%w: start it anew with %s", errNotUp, beginOf(g))
}

// callGate calls the gate about a session, or with "" about itself.
func callGate(ctx context.Context, g store.Record, session string) (*gateLine, error) {
	conn, err := dialIn(ctx, g.GateLog, spec.GateSocket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, notUp(g)
	case err != nil:
		return nil, fmt.Errorf("reach its socket: %w", err)
	}
	if err := checkPeer(conn, os.Getuid()); err != nil {
		conn.Close()
		return nil, err
	}
	l := &gateLine{conn: conn, begun: make(chan struct{}), ended: make(chan struct{})}
	l.close = sync.OnceFunc(func() { conn.Close() })
	if err := l.write(spec.NewGateCall(session)); err != nil {
		l.close()
		return nil, err
	}
	go l.read()
	return l, nil
}

// dialIn connects to a socket in a directory, whose path may be longer than a socket's.
func dialIn(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(fd)+"/"+name)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return conn, nil
}

func (l *gateLine) read() {
	defer close(l.ended)
	for begun := false; ; {
		var f spec.ToHost
		if err := spec.ReadFrame(l.conn, &f); err != nil {
			return
		}
		switch {
		case f.Refused != nil:
			l.why = errors.New(policy.Printable(f.Refused.Reason))
			return
		case f.Started && !begun:
			begun = true
			close(l.begun)
		}
	}
}

// started waits until the gate has done as asked.
func (l *gateLine) started() error {
	select {
	case <-l.begun:
		return nil
	case <-l.ended:
		return errors.New("it did not give the session a port")
	case <-time.After(gateTime):
		return errors.New("it does not answer")
	}
}

// lost is what the gate said last, if it is gone.
func (l *gateLine) lost() error {
	select {
	case <-l.ended:
		return l.why
	default:
		return nil
	}
}

func (l *gateLine) reload(squid int) error { return l.write(spec.ToGuest{Reload: squid}) }

func (l *gateLine) write(v any) error {
	l.send.Lock()
	defer l.send.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("send to the gate: %w", err)
	}
	if err := spec.WriteFrame(l.conn, v); err != nil {
		return fmt.Errorf("send to the gate: %w", err)
	}
	return nil
}
