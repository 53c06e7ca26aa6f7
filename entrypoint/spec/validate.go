// What a Spec has to satisfy. Both sides check: the host before it seals, the
// entrypoint before it believes.

package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"unicode/utf8"
)

// The modes of a Firewall.
const (
	ModeGated = "gated"
	ModeNone  = "none"
)

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
	if len(s.Command) == 0 || s.Command[0] == "" {
		bad("no command")
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			bad("argument %d of the command holds a NUL byte", i)
		}
	}
	// Values are secrets: no message quotes one.
	for i, e := range s.Env {
		name, _, ok := strings.Cut(e, "=")
		switch {
		case !ok || name == "":
			bad("element %d of the environment is not NAME=value", i)
		case strings.ContainsRune(e, 0):
			bad("element %d of the environment (%q) holds a NUL byte", i, name)
		}
	}
	// The sandbox's user is fixed by the image and by the user mapping; 0 would
	// be no drop at all.
	if s.UID != 1000 || s.GID != 1000 {
		bad("uid %d and gid %d are not 1000 and 1000", s.UID, s.GID)
	}
	if err := checkPath(s.Workdir); err != nil {
		bad("workdir: %w", err)
	}
	if err := s.Firewall.validate(); err != nil {
		errs = append(errs, err)
	}

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
	return errors.Join(errs...)
}

func (f Firewall) validate() error {
	switch f.Mode {
	case ModeNone:
		if f.GateAddr != "" || f.GatePort != 0 {
			return errors.New("firewall: mode none has no gate")
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
