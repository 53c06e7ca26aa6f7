// The role in the gate's container: two squids, together or not at all.
// They start in the order in which they are named, each when the one before
// accepts connections: squid 6 tries its parent once as it starts, takes one that
// is not there yet for dead, and tries again only when a request has failed for
// it, at most once a second. No option of cache_peer changes that
// (connect-fail-limit, standby and default were tried: with both started at once
// the first request failed in most of 30 starts each, one after the other in none
// of 150).

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/seccomp"
	"ai-sandbox/entrypoint/spec"
)

// maxLog bounds each file that a squid writes, in bytes.
const maxLog = 64 << 20

// squid is where Debian's package has it.
const squid = "/usr/sbin/squid"

// runGate runs one squid for each configuration file. They live as long as the
// lifeline; with --detached there is none, and they live until we are told, or, with
// --idle SECONDS, have had no session for so long. Such a gate serves sessions
// (sharedgate.go).
func runGate(args []string) int {
	signals := make(chan os.Signal, 8)
	// How long a log gets is the sandbox's doing. What is past the limit is an
	// error of the write, and squid drops it.
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: maxLog, Max: maxLog}); err != nil {
		say("limit the log: %v", err)
		return spec.ExitUnenforced
	}
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	detached, idle, args, err := gateArgs(args)
	if err != nil {
		say("%v", err)
		return spec.ExitBadSpec
	}
	if err := lockGate(); err != nil {
		say("%v", err)
		return spec.ExitUnenforced
	}
	var line channel // with no frames, ever
	if !detached {
		ch, err := openChannel(spec.Dir, os.Getuid())
		if err != nil {
			say("control channel: %v", err)
			return spec.ExitUnenforced
		}
		line = *ch
	}

	squids := newSquids()
	g := gate{squids: squids, signals: signals, line: line.frames, deaths: make(chan death, len(args))}
	if err := g.start("", args); err != nil {
		return g.endGate(err, args)
	}
	if detached {
		return g.endGate(g.share(idle), args)
	}
	if err := spec.WriteFrame(line.out, spec.ToHost{Started: true}); err != nil {
		return 0
	}
	for {
		if err := g.wait(nil); err != nil {
			return g.endGate(err, args)
		}
	}
}

// gateArgs reads "[--detached [--idle SECONDS]] CONFIG...".
func gateArgs(args []string) (detached bool, idle time.Duration, confs []string, err error) {
	if detached = args[0] == "--detached"; detached {
		args = args[1:]
	}
	if detached && len(args) > 1 && args[0] == "--idle" {
		seconds, err := strconv.ParseUint(args[1], 10, 31)
		if err != nil {
			return false, 0, nil, fmt.Errorf("read --idle: %w", err)
		}
		idle, args = time.Duration(seconds)*time.Second, args[2:] //nolint:gosec // of 31 bits
	}
	if len(args) == 0 {
		return false, 0, nil, errors.New("no configuration file")
	}
	return detached, idle, args, nil
}

// start runs them one after the other, each when the one before accepts connections.
func (g *gate) start(instance string, confs []string) error {
	for i, conf := range confs {
		pid, err := g.squids.start(conf, instance, g.deaths)
		if err != nil {
			return err
		}
		g.pids = append(g.pids, pid)
		if i < len(confs)-1 {
			if err := g.await(conf); err != nil {
				return err
			}
		}
	}
	return nil
}

// endGate kills every squid and tells our exit code: none has a shutdown of its own,
// which waits for its clients. Of a squid that has ended by itself it looks for why.
func (g *gate) endGate(err error, confs []string) int {
	_ = unix.Kill(-1, unix.SIGKILL)
	if errors.Is(err, errStop) {
		return 0
	}
	say("%v", err)
	if err := g.end(endTime); err != nil {
		return 1 // they have their ports themselves
	}
	for _, conf := range confs {
		if text, err := os.ReadFile(conf); err == nil {
			if port := httpPort(string(text)); port != 0 && taken(port) {
				say("port %d of 127.0.0.1, which is the gate's, has another process", port)
				return spec.ExitPortTaken
			}
		}
	}
	return 1
}

// taken tells whether another process listens at a port of 127.0.0.1. Connections of
// before that are still closing do not count (SO_REUSEADDR, socket(7)).
func taken(port int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return false
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// errStop: we were told to stop, or the host is gone.
var errStop = errors.New("told to stop")

// A gate is a pair of squids and what ends it.
type gate struct {
	squids  *squids
	signals <-chan os.Signal
	line    <-chan received // nil without a lifeline
	deaths  chan death      // of its own squids, with room for all
	pids    []int
}

// squids are all that run, and whose they are.
type squids struct {
	mu    sync.Mutex
	whose map[int]chan<- death
}

// newSquids begins to reap.
func newSquids() *squids {
	s := &squids{whose: map[int]chan<- death{}}
	all := make(chan death)
	go reap(all)
	go func() {
		for d := range all {
			s.mu.Lock()
			if whose, ok := s.whose[d.pid]; ok {
				delete(s.whose, d.pid)
				whose <- d
			}
			s.mu.Unlock()
		}
	}()
	return s
}

// start runs one in the foreground (-N). Its configuration's name, and what instance
// adds to that, is its instance's (-n), or two of them would share names in /dev/shm.
func (s *squids) start(conf, instance string, deaths chan<- death) (int, error) {
	name := "aisb" + strings.TrimSuffix(filepath.Base(conf), ".conf") + instance
	s.mu.Lock() // or it might be reaped before it is known whose it is
	defer s.mu.Unlock()
	pid, err := syscall.ForkExec(squid, []string{"squid", "-N", "-n", name, "-f", conf}, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("run %s -f %s: %w", squid, conf, err)
	}
	s.whose[pid] = deaths
	return pid, nil
}

// lives tells whether a squid's end has not been told yet.
func (s *squids) lives(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.whose[pid]
	return ok
}

// wait returns an error when the gate has to end, and nil when a tick or
// something of no account came.
func (g *gate) wait(tick <-chan time.Time) error {
	select {
	case d := <-g.deaths:
		return fmt.Errorf("squid ended (exit code %d)", exited(d.status).Code)
	case <-g.signals:
		return errStop
	case f, ok := <-g.line:
		if !ok || f.err != nil {
			return errStop
		}
		if f.Reload > 0 && f.Reload <= len(g.pids) {
			// squid(8): SIGHUP reads the configuration, and what is open stays.
			if err := unix.Kill(g.pids[f.Reload-1], unix.SIGHUP); err != nil {
				return fmt.Errorf("tell squid of its new configuration: %w", err)
			}
		}
	case <-tick:
	}
	return nil
}

// lockGate closes to squid what it never needs. It is the unprivileged user
// from the start.
func lockGate() error {
	if err := closeInherited(); err != nil {
		return err
	}
	if err := lock(); err != nil {
		return err
	}
	filters, err := filterCount()
	if err != nil {
		return err
	}
	if err := seccomp.Install(); err != nil {
		return err
	}
	all, err := threads()
	if err != nil {
		return err
	}
	if err := checkThreads(all, status{"CapPrm": noCaps, "CapEff": noCaps, "CapAmb": noCaps, "NoNewPrivs": "1"}); err != nil {
		return err
	}
	return checkThreads(all, filtered(filters+1))
}

// httpPort is where a configuration listens on 127.0.0.1, or 0.
func httpPort(conf string) int {
	for line := range strings.Lines(conf) {
		if rest, ok := strings.CutPrefix(line, "http_port 127.0.0.1:"); ok {
			port, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return 0
			}
			return int(n)
		}
	}
	return 0
}

// squidTime bounds a squid's start.
const squidTime = 20 * time.Second

// await waits until the squid of a configuration accepts connections.
func (g *gate) await(conf string) error {
	text, err := os.ReadFile(conf)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	port := httpPort(string(text))
	if port == 0 {
		return fmt.Errorf("%s names no port on 127.0.0.1", conf)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(squidTime); time.Now().Before(deadline); {
		if accepts(port) {
			return nil
		}
		if err := g.wait(tick.C); err != nil {
			return err
		}
	}
	return fmt.Errorf("squid -f %s did not listen within %s", conf, squidTime)
}

// accepts tries to connect to a port of 127.0.0.1.
func accepts(port int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}
