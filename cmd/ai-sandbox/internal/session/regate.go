// Another list for a gate that runs: what it lets through changes, what stays allowed
// stays open, and what is open to others is cut.

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/gate"
	"ai-sandbox/gate/builtin"
	"ai-sandbox/policy"
)

// changeTime bounds how long a gate may take to answer with a new list's hash.
const changeTime = 10 * time.Second

// errGateLost: the gate may go by either list, so it was ended, and the session with it.
var errGateLost = errors.New("the gate did not take the change and was ended, and the session with it")

// changeBuiltin is how a gate of our own process is changed.
func changeBuiltin(g *builtin.Gate) func(context.Context, gate.Config) (int, error) {
	return func(_ context.Context, c gate.Config) (int, error) {
		return g.Change(builtin.Config{Allow: c.Allow, AllowPrivate: c.AllowPrivate, Nonce: c.Nonce, PolicyHash: c.PolicyHash})
	}
}

// changeSquids is how the session's own squids are. The peeking one comes first: until
// the front one follows, what only one of them lets through is refused. So nothing that is
// still on its way when the front one is cut off from it gets further.
func (g *runningGate) changeSquids(ctx context.Context, c gate.Config) (cut int, err error) {
	before := g.config()
	gone, err := goneClasses(before, c)
	if err != nil {
		return 0, err
	}
	lost := func(err error) (int, error) {
		g.drop()
		return 0, errors.Join(errGateLost, err)
	}
	if err := g.reconfigure(ctx, c); err != nil {
		return lost(err)
	}
	if cut, err = cutOpen(gone, c.PeekPort); err != nil {
		return lost(err)
	}
	return cut, nil
}

// goneClasses are the addresses of what c does not let through any more: those of entries
// that are no longer let through, or have another number (see classesOf). Where nothing is
// let through they are all of them, with that of what has no class. An entry that is no
// longer listed because another one covers it still is let through.
func goneClasses(was, c gate.Config) (gone map[netip.Addr]bool, err error) {
	gone = map[netip.Addr]bool{}
	had, in := listed(was), listed(c)
	if len(in) == 0 {
		gone[gate.Unclassed] = true
	}
	for i, e := range was.Classes {
		switch {
		case !policy.Covered(had, e): // it was cut when it went
		case policy.Covered(in, e) && c.Classes[i] == e:
		case i < gate.MaxClasses:
			gone[gate.ClassAddr(i)] = true
		case len(in) > 0:
			return nil, fmt.Errorf("%s can't be denied while the session runs: squid tells the first %d entries of a list apart, and what is open to this one would stay open; deny everything with --all, or use --gate-engine builtin", e, gate.MaxClasses)
		}
	}
	return gone, nil
}

func listed(c gate.Config) map[policy.Entry]bool { return setOf(c.Listed()) }

func setOf(list []policy.Entry) map[policy.Entry]bool {
	out := make(map[policy.Entry]bool, len(list))
	for _, e := range list {
		out[e] = true
	}
	return out
}

// reconfigure makes both squids read another list, and waits until each answers with its
// hash.
func (g *runningGate) reconfigure(ctx context.Context, c gate.Config) error {
	files, err := gate.Files(c)
	if err != nil {
		return fmt.Errorf("write the gate's configuration: %w", err)
	}
	for name, content := range files {
		if err := replace(filepath.Join(g.confDir, name), content); err != nil {
			return fmt.Errorf("write the gate's configuration: %w", err)
		}
	}
	// As the entrypoint was told them (backend.Gate).
	for i, port := range []uint16{c.PeekPort, c.FrontPort} {
		if err := g.reload(i + 1); err != nil {
			return err
		}
		if err := awaitHash(ctx, port, c, g.ended); err != nil {
			return err
		}
	}
	return nil
}

// replace writes a file under another name and renames it.
func replace(path string, content []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// awaitHash waits until a squid answers with the hash of its new list. While it reads
// that, it refuses connections for a moment.
func awaitHash(ctx context.Context, port uint16, c gate.Config, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := probe(ctx, port, c)
		if ready {
			return nil
		}
		if err != nil && !errors.Is(err, errPortTaken) { // the old hash looks the same
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the gate does not answer with the hash of the new list")
		case <-ended:
			return errors.New("the gate has ended")
		case <-tick.C:
		}
	}
}

// cutOpen shuts what is open from these addresses: the front squid's sockets that lead to
// the peeking one, each of which is a tunnel or an answer under way. squid itself has no
// way to end them. It tells how many they were.
func cutOpen(from map[netip.Addr]bool, peek uint16) (int, error) {
	if len(from) == 0 {
		return 0, nil
	}
	cut := 0
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		inodes, err := openFrom(from, peek)
		if err != nil || len(inodes) == 0 {
			return cut, err
		}
		n, err := shutSockets(inodes)
		cut = max(cut, n)
		if time.Now().After(end) {
			return cut, errors.Join(errors.New("connections to what is refused now can't be cut"), err)
		}
	}
}

// openFrom are the inodes of open sockets from such addresses to a port of 127.0.0.1.
// Source: proc_net_tcp (the kernel's Documentation/networking/proc_net_tcp.rst).
func openFrom(from map[netip.Addr]bool, peek uint16) (map[string]bool, error) {
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return nil, fmt.Errorf("look for open connections: %w", err)
	}
	const established, closeWait = "01", "08"
	out := map[string]bool{}
	remote := fmt.Sprintf("0100007F:%04X", peek)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[2] != remote || f[3] != established && f[3] != closeWait {
			continue
		}
		host, _, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(host, 16, 32)
		if err != nil {
			continue
		}
		// A number of this machine's, which are little-endian wherever this runs.
		if from[netip.AddrFrom4([4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})] {
			out["socket:["+f[9]+"]"] = true
		}
	}
	return out, nil
}

// shutSockets ends both directions of sockets of other processes of this user's, by
// their names in /proc/PID/fd. A process in a user namespace that this user has made
// lets him (pidfd_getfd(2), ptrace(2)).
func shutSockets(names map[string]bool) (n int, err error) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("look for the gate's process: %w", err)
	}
	var errs []error
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name(), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // another user's, or gone
		}
		for _, d := range fds {
			name, err := os.Readlink(filepath.Join(dir, d.Name()))
			if err != nil || !names[name] {
				continue
			}
			fd, err := strconv.Atoi(d.Name())
			if err == nil {
				err = shutSocket(pid, fd, name)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
				continue
			}
			n++
		}
	}
	return n, errors.Join(errs...)
}

func shutSocket(pid, fd int, name string) error {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open the gate's process: %w", err)
	}
	defer unix.Close(p)
	s, err := unix.PidfdGetfd(p, fd, 0)
	if err != nil {
		return fmt.Errorf("take a connection of the gate's: %w", err)
	}
	defer unix.Close(s)
	// Its number may be another file's by now.
	if is, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(s)); err != nil || is != name {
		return fs.ErrNotExist
	}
	if err := unix.Shutdown(s, unix.SHUT_RDWR); err != nil && !errors.Is(err, unix.ENOTCONN) {
		return fmt.Errorf("cut a connection: %w", err)
	}
	return nil
}

// classesOf are a gate's classes with what c's lists add. The number of an entry that was
// denied is free: what was open from its address is cut. One that these lists deny is not
// yet, and keeps its place; so does one that another covers, until that is denied. One that
// may have led to a private address and may not any more gets another number: what is open
// from the old one's address is cut, wherever it leads.
func classesOf(was, c gate.Config) []policy.Entry {
	had, in, private := listed(was), listed(c), setOf(policy.Normalise(c.AllowPrivate))
	lost := slices.DeleteFunc(slices.Clone(was.AllowPrivate), func(e policy.Entry) bool { return policy.Covered(private, e) })
	out, has, free := slices.Clone(was.Classes), map[policy.Entry]bool{}, []int{}
	for i, e := range out {
		switch {
		case !policy.Covered(had, e) && !in[e]:
			free = append(free, i)
		case policy.Covered(had, e) && slices.ContainsFunc(lost, func(p policy.Entry) bool { return overlap(e, p) }):
			out[i] = policy.Entry{}
		default:
			has[e] = true
		}
	}
	for _, e := range c.Listed() {
		switch {
		case has[e]:
		case len(free) > 0:
			out[free[0]], free = e, free[1:]
		default:
			out = append(out, e)
		}
	}
	return out
}

// overlap tells whether there is something that both let through.
func overlap(a, b policy.Entry) bool {
	both := slices.ContainsFunc(a.Ports(), func(p uint16) bool { return slices.Contains(b.Ports(), p) })
	a.Port, b.Port = 0, 0
	return both && (a.Covers(b) || b.Covers(a))
}
