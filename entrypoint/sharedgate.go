// A gate that several sessions share: each has two squids of its own, with a port, a list
// and a log of its own, for as long as it holds its connection to the gate's socket. So
// none's change or end touches another's connections, and one that dies with its owner
// is gone with it.

package entrypoint

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// gateConfs and gateLogs are gate.ConfDir and gate.LogDir, as the host mounts them.
const (
	gateConfs = "/etc/aisb/gate"
	gateLogs  = "/var/log/aisb"
)

const (
	// maxSessions bounds the sessions of a gate at a time: two squids each.
	maxSessions = 100
	// callTime bounds the wait for a caller's first word.
	callTime = 5 * time.Second
)

// errIdle: no session for as long as the gate may be without.
var errIdle = fmt.Errorf("%w: no session uses the gate", errStop)

// A house is a gate with its sessions.
type house struct {
	base *gate

	mu     sync.Mutex
	inside map[string]bool // sessions
	count  int             // of all that there were
	since  time.Time       // when the last one left
}

// share serves sessions until the gate ends.
func (g *gate) share(idle time.Duration) error {
	socket := filepath.Join(gateLogs, spec.GateSocket)
	// Of an earlier start of this container: its process is gone.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen for sessions: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		return fmt.Errorf("listen for sessions: %w", err)
	}
	h := &house{base: g, inside: map[string]bool{}, since: time.Now()}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				scarce()
				continue
			}
			go h.call(c)
		}
	}()
	var tick <-chan time.Time
	if idle > 0 {
		t := time.NewTicker(min(idle/10, 10*time.Second))
		defer t.Stop()
		tick = t.C
	}
	for {
		if err := g.wait(tick); err != nil {
			return err
		}
		if h.idleFor(idle) {
			return errIdle
		}
	}
}

// idleFor tells whether there has been no session for so long; 0 is for ever.
func (h *house) idleFor(d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d > 0 && len(h.inside) == 0 && time.Since(h.since) >= d
}

// call serves one connection.
func (h *house) call(c *net.UnixConn) {
	defer c.Close()
	var call spec.GateCall
	_ = c.SetReadDeadline(time.Now().Add(callTime))
	err := spec.ReadFrame(c, &call)
	if err == nil {
		err = errors.Join(call.Check(), c.SetReadDeadline(time.Time{}))
	}
	if err == nil {
		frames := make(chan received)
		go read(c, frames)
		if call.Session == "" {
			err = h.own(c, frames)
		} else {
			err = h.session(c, call.Session, frames)
		}
		go func() { // the reader ends with the connection
			for range frames { //nolint:revive // nothing of it counts any more
			}
		}()
	}
	if err != nil {
		_ = spec.WriteFrame(c, spec.ToHost{Refused: &spec.Refused{Code: spec.ExitUnenforced, Control: "gate", Reason: err.Error()}})
	}
}

// own passes reloads on to the gate's own squids.
func (h *house) own(c *net.UnixConn, frames <-chan received) error {
	if err := spec.WriteFrame(c, spec.ToHost{Started: true}); err != nil {
		return nil
	}
	for f := range frames {
		if f.err != nil || f.Reload < 1 || f.Reload > len(h.base.pids) {
			return errors.New("a frame that makes no sense")
		}
		if err := unix.Kill(h.base.pids[f.Reload-1], unix.SIGHUP); err != nil {
			return fmt.Errorf("tell squid of its new configuration: %w", err)
		}
	}
	return nil
}

// session runs a session's squids until its connection ends, or one of them does.
func (h *house) session(c *net.UnixConn, id string, frames <-chan received) (err error) {
	number, err := h.enter(id)
	if err != nil {
		return err
	}
	defer h.leave(id)
	g := &gate{squids: h.base.squids, line: frames, deaths: make(chan death, 2)}
	defer func() {
		if late := g.end(endTime); late != nil {
			say("session %s: %v", id, late)
			err = errors.Join(err, late)
		}
	}()
	dir := filepath.Join(gateConfs, spec.GateSessions, id)
	err = g.start(strconv.Itoa(number), []string{filepath.Join(dir, "peek.conf"), filepath.Join(dir, "front.conf")})
	if err == nil {
		err = spec.WriteFrame(c, spec.ToHost{Started: true})
	}
	for err == nil {
		err = g.wait(nil)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// enter counts a session in, and gives it a number that none had before.
func (h *house) enter(id string) (number int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.inside[id]:
		return 0, errors.New("the session has a port of this gate already")
	case len(h.inside) >= maxSessions:
		return 0, fmt.Errorf("%d sessions use this gate, which is as many as it takes", maxSessions)
	}
	h.inside[id] = true
	h.count++
	return h.count, nil
}

func (h *house) leave(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inside, id)
	h.since = time.Now()
}

// endTime bounds the wait for squids that were killed. One that the kernel does not let go
// (in state D, for a disk that does not answer) keeps its ports, which no session is given
// then, and ends as soon as it can; its session counts as gone.
const endTime = 10 * time.Second

// end kills the squids, and returns when they are gone: their ports are then free. It is an
// error that one is still there when time is up.
func (g *gate) end(most time.Duration) error {
	for _, pid := range g.pids {
		if g.squids.lives(pid) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended just now
		}
	}
	for until := time.Now().Add(most); ; time.Sleep(time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(g.pids), func(pid int) bool { return !g.squids.lives(pid) })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("killed squids do not end within %s (processes %v): they keep their ports until the kernel lets them go", most, left)
		}
	}
}
