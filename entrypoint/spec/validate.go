// What a Spec has to satisfy. Both sides check: the host before it seals, the
// entrypoint before it believes.

package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// The modes of a Firewall.
const (
	// ModeGated: the gate's address and port through the ruleset, and nothing
	// else. Containers only.
	ModeGated = "gated"
	// ModeUnix: no network; the gate is behind Spec.Relay.
	ModeUnix = "unix"
	// ModeNone: no network.
	ModeNone = "none"
	// ModeHost: the host's network, and no control. Jails only.
	ModeHost = "host"
)

// maxSocket is the longest path that a unix socket may have (unix(7)).
const maxSocket = 107

// Validate returns every problem of s, joined, or nil.
func Validate(s Spec) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if s.Version != Version {
		bad("version %d is not %d: the image is of another build", s.Version, Version)
	}
	if s.Session == "" {
		bad("no session id")
	}
	if s.Isolation != IsolationContainer && s.Isolation != IsolationProcess {
		bad("unknown isolation %q", s.Isolation)
	}
	if s.Hold {
		if len(s.Command) > 0 || s.TTY {
			bad("a session that holds has neither command nor terminal")
		}
	} else {
		errs = append(errs, checkCommand(s.Command)...)
	}
	errs = append(errs, checkEnv(s.Env)...)
	// The sandbox's user is fixed by the image and by the user mapping.
	id := 1000
	if s.KeepRoot {
		id = 0
	}
	if s.UID != id || s.GID != id {
		bad("uid %d and gid %d are not %d and %d", s.UID, s.GID, id, id)
	}
	if s.KeepRoot && s.Isolation != IsolationContainer {
		bad("a jail has no root to keep")
	}
	if err := checkPath(s.Workdir); err != nil {
		bad("workdir: %w", err)
	}
	// The caller's own terminal stays out of a jail.
	if s.PTY != (s.TTY && s.Isolation == IsolationProcess) {
		bad("a terminal is made inside (pty) for a jail, and only there")
	}
	if !s.PTY && (s.Cols != 0 || s.Rows != 0) {
		bad("a size without a terminal that is made inside")
	}
	errs = append(errs, checkNetwork(s)...)
	errs = append(errs, checkMounts(s)...)
	errs = append(errs, checkOutside(s)...)
	errs = append(errs, checkHome(s)...)
	return errors.Join(errs...)
}

// ValidateExec returns every problem of e, joined, or nil.
func ValidateExec(e Exec) error {
	var errs []error
	if e.ID <= 0 {
		errs = append(errs, fmt.Errorf("exec id %d is not above 0", e.ID))
	}
	errs = append(errs, checkCommand(e.Command)...)
	errs = append(errs, checkEnv(e.Env)...)
	if err := checkPath(e.Workdir); err != nil {
		errs = append(errs, fmt.Errorf("workdir: %w", err))
	}
	if !e.TTY && (e.Cols != 0 || e.Rows != 0) {
		errs = append(errs, errors.New("a size without a terminal"))
	}
	return errors.Join(errs...)
}

// Check reports a frame that has not exactly one field, or a signal that is
// none. What is in a Spec or an Exec is for Validate and ValidateExec.
func (f ToGuest) Check() error {
	n := 0
	for _, set := range []bool{f.Spec != nil, f.Gate != nil, f.Go, f.Signal != 0, f.Resize != nil, f.Exec != nil, f.SignalExec != nil, f.Reload != 0} {
		if set {
			n++
		}
	}
	if n != 1 {
		return errors.New("a frame has not exactly one field")
	}
	if f.Gate != nil {
		return f.Gate.Check()
	}
	sig := f.Signal
	if f.SignalExec != nil {
		sig = f.SignalExec.Signal
	}
	// signal(7): 64 is the last one; 0 would only look.
	if (f.Signal != 0 || f.SignalExec != nil) && (sig < 1 || sig > 64) {
		return fmt.Errorf("no signal %d", sig)
	}
	return nil
}

func checkCommand(command []string) (errs []error) {
	if len(command) == 0 || command[0] == "" {
		errs = append(errs, errors.New("no command"))
	}
	for i, arg := range command {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %d of the command holds a NUL byte", i))
		}
	}
	return errs
}

// checkEnv quotes no value: they are secrets.
func checkEnv(env []string) (errs []error) {
	for i, e := range env {
		name, _, ok := strings.Cut(e, "=")
		switch {
		case !ok || name == "":
			errs = append(errs, fmt.Errorf("element %d of the environment is not NAME=value", i))
		case strings.ContainsRune(e, 0):
			errs = append(errs, fmt.Errorf("element %d of the environment (%q) holds a NUL byte", i, name))
		}
	}
	return errs
}

// checkMounts looks at the mounts and at the lists that are parts of them.
func checkMounts(s Spec) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	mounts := make(map[string]bool, len(s.Mounts))
	for _, m := range s.Mounts {
		if err := checkPath(m); err != nil {
			bad("mount: %w", err)
		}
		if mounts[m] {
			bad("mount %q is there twice", m)
		}
		mounts[m] = true
	}
	binds := make(map[string]bool, len(s.Binds))
	for _, b := range s.Binds {
		if err := checkPath(b.Target); err != nil {
			bad("bind: %w", err)
		}
		if !mounts[b.Target] {
			bad("bind %q is not among the mounts", b.Target)
		}
		if binds[b.Target] {
			bad("bind %q is there twice", b.Target)
		}
		if b.Ino == 0 {
			bad("bind %q has no inode", b.Target)
		}
		binds[b.Target] = true
	}
	for _, part := range []struct {
		name    string
		targets []string
	}{{"read-only target", s.ReadOnly}, {"tmpfs", s.Tmpfs}} {
		seen := make(map[string]bool, len(part.targets))
		for _, t := range part.targets {
			if !mounts[t] {
				bad("%s %q is not among the mounts", part.name, t)
			}
			if seen[t] {
				bad("%s %q is there twice", part.name, t)
			}
			seen[t] = true
		}
	}
	return errs
}

// checkOutside: a jail has to prove that its namespaces are its own.
func checkOutside(s Spec) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Isolation != IsolationProcess {
		if len(s.Outside) > 0 || s.Groups {
			bad("namespaces and groups of the host are for a jail only")
		}
		return errs
	}
	for _, name := range Namespaces {
		if s.Outside[name] == 0 {
			bad("no %s namespace of the host", name)
		}
	}
	for name := range s.Outside {
		if !slices.Contains(Namespaces, name) {
			bad("unknown namespace %q", name)
		}
	}
	return errs
}

// checkNetwork looks at the firewall, and at the relay that goes with it.
func checkNetwork(s Spec) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := s.Firewall.validate(); err != nil {
		errs = append(errs, err)
	}
	if err := checkPublish(s); err != nil {
		errs = append(errs, err)
	}
	switch mode := s.Firewall.Mode; {
	case mode == ModeGated && s.Isolation != IsolationContainer,
		mode == ModeHost && s.Isolation != IsolationProcess:
		bad("firewall: there is no mode %s with isolation %s", mode, s.Isolation)
	}
	if s.Canary != nil {
		if err := s.Canary.check(); err != nil {
			errs = append(errs, err)
		}
	}
	if (s.Relay != nil) != (s.Firewall.Mode == ModeUnix) {
		bad("a relay goes with mode %s, and only with it", ModeUnix)
	}
	if s.Relay == nil {
		return errs
	}
	if s.Relay.Port == 0 {
		bad("relay: no port")
	}
	socket := s.Relay.Socket
	if err := checkPath(socket); err != nil {
		bad("relay: %w", err)
	}
	if len(socket) > maxSocket {
		bad("relay: the socket's path is longer than %d bytes", maxSocket)
	}
	if !slices.ContainsFunc(s.Mounts, func(m string) bool { return strings.HasPrefix(socket, m+"/") }) {
		bad("relay: socket %q is below no mount", socket)
	}
	return errs
}

func (f Firewall) validate() error {
	switch f.Mode {
	case ModeUnix, ModeNone, ModeHost:
		if f.GateAddr != "" || f.GatePort != 0 {
			return fmt.Errorf("firewall: mode %s has no gate address", f.Mode)
		}
	case ModeGated:
		a, err := netip.ParseAddr(f.GateAddr)
		// The gate is the host's loopback under a link-local name. Any other
		// address there would open a real host to the sandbox.
		if err != nil || !a.Is4() || !a.IsLinkLocalUnicast() {
			return fmt.Errorf("firewall: gate address %q is not a link-local IPv4 address", f.GateAddr)
		}
		if f.GatePort == 0 {
			return errors.New("firewall: no gate port")
		}
	default:
		return fmt.Errorf("firewall: unknown mode %q", f.Mode)
	}
	return nil
}

func checkPath(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/":
		return fmt.Errorf("%q is not an absolute, clean path below /", p)
	case !utf8.ValidString(p) || strings.ContainsRune(p, 0):
		return fmt.Errorf("%q is not text", p)
	}
	return nil
}
