// Where a path is seen, and whether it can be written there. A pure reading of a
// policy's mounts.

package policy

import (
	"path"
	"slices"
	"strings"
)

// Access says what can be done at a path inside.
type Access string

// Accesses, from the least.
const (
	// AccessNone: nothing is there.
	AccessNone Access = "not visible"
	// AccessRead: it can be read, as far as its own permissions allow.
	AccessRead Access = "read-only"
	// AccessKernel: each file there is the kernel's, and has rules of its own.
	AccessKernel Access = "as the kernel lets a process without privileges"
	// AccessWrite: it can be written, too, as far as its own permissions allow.
	AccessWrite Access = "read-write"
)

// A Place is a path inside.
type Place struct {
	// Path is where it is, links of the policy's own followed.
	Path   string
	Access Access
	// Mount is what covers it: an index into Policy.Mounts, or -1 for the root
	// file system, which is the image's with podman's runtime.
	Mount int
	// Host is the host path that is seen there, or "".
	Host string
}

// maxLinks bounds how many links are followed, as the kernel does (path_resolution(7)).
const maxLinks = 40

// Inside tells what is at an absolute path inside.
func (p Policy) Inside(at string) Place {
	at = p.follow(path.Clean("/" + at))
	pl := Place{Path: at, Mount: p.covering(at), Access: AccessRead}
	if pl.Mount < 0 {
		if p.Image == nil && at != "/" && !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return below(m.Target, at) }) {
			pl.Access = AccessNone
		}
		return pl
	}
	m := p.Mounts[pl.Mount]
	rest := strings.TrimPrefix(at[len(m.Target):], "/")
	switch m.Kind {
	case KindBind:
		pl.Host = path.Join(m.Source, rest)
	case KindFile, KindProgram, KindSymlink:
		if rest != "" {
			pl.Access = AccessNone
		}
	case KindProc, KindDev, KindSys:
		pl.Access = AccessKernel
	}
	if p.writable(m) {
		pl.Access = AccessWrite
	}
	return pl
}

// writable tells whether the command can write to a mount.
func (p Policy) writable(m Mount) bool {
	switch {
	case m.ReadOnly:
		return false
	case m.Kind == KindTmpfs:
		// Of root, in a container, which the command may be.
		return p.Isolation != IsolationContainer || p.KeepRoot || strings.HasSuffix(m.Mode, "7")
	}
	return m.Kind == KindBind || m.Kind == KindVolume
}

// Outside tells where a host path is seen inside: everywhere that a bind leads to
// it and no other mount covers it.
func (p Policy) Outside(host string) []Place {
	var out []Place
	for i, m := range p.Mounts {
		if m.Kind != KindBind || m.Source != host && !below(host, m.Source) {
			continue
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(host, m.Source), "/")
		if pl := p.Inside(path.Join(m.Target, rest)); pl.Mount == i && pl.Host == host {
			out = append(out, pl)
		}
	}
	return out
}

// Hidden are the mounts that would show a host path, were another one not over it
// there: pairs of the one and the other.
func (p Policy) Hidden(host string) [][2]Mount {
	var out [][2]Mount
	for i, m := range p.Mounts {
		if m.Kind != KindBind || m.Source != host && !below(host, m.Source) {
			continue
		}
		rest := strings.TrimPrefix(strings.TrimPrefix(host, m.Source), "/")
		if over := p.covering(path.Join(m.Target, rest)); over >= 0 && over != i && p.Mounts[over].Source != host {
			out = append(out, [2]Mount{m, p.Mounts[over]})
		}
	}
	return out
}

// Under are the mounts below a path inside: other rules hold there.
func (p Policy) Under(at string) []Mount {
	var out []Mount
	for _, m := range p.Mounts {
		if below(m.Target, at) {
			out = append(out, m)
		}
	}
	return out
}

// UnderHost are the binds of what lies below a host path.
func (p Policy) UnderHost(host string) []Mount {
	var out []Mount
	for _, m := range p.Mounts {
		if m.Kind == KindBind && below(m.Source, host) {
			out = append(out, m)
		}
	}
	return out
}

// follow resolves the links that the policy makes itself.
func (p Policy) follow(at string) string {
	for range maxLinks {
		next := at
		link := func(from, to string) {
			if next != at || from != at && !below(at, from) {
				return
			}
			if !path.IsAbs(to) {
				to = path.Join(path.Dir(from), to)
			}
			next = path.Join(to, at[len(from):])
		}
		for _, m := range p.Mounts {
			if m.Kind == KindSymlink {
				link(m.Target, m.Source)
			}
		}
		for _, l := range p.Home.Links {
			if l.To != "" {
				link(path.Join(HomeDir, l.Path), l.To)
			}
		}
		if next == at {
			return at
		}
		at = next
	}
	return at
}

// covering is the mount that a path inside is on: the deepest, and of those the
// last. Mounts are listed parents first.
func (p Policy) covering(at string) int {
	found := -1
	for i, m := range p.Mounts {
		if m.Kind == KindSymlink || m.Target != at && !below(at, m.Target) {
			continue
		}
		if found < 0 || len(m.Target) >= len(p.Mounts[found].Target) {
			found = i
		}
	}
	return found
}

// below tells whether an absolute path is strictly below another.
func below(p, dir string) bool {
	return dir == "/" && p != "/" || strings.HasPrefix(p, dir+"/")
}

// Line shows a mount as the printout does, on one line.
func (m Mount) Line() string {
	label, words := m.words()
	return label + " " + strings.Join(words, " ")
}
