// What a user may mount beside the project: host paths, resolved once, and the
// verdict on them.

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ai-sandbox/policy"
)

// A Source is a host path to be mounted, as it was when it was resolved.
type Source struct {
	// Path is absolute and without symlinks.
	Path  string
	Dir   bool
	Owner int
	ID    policy.Identity
}

// FindSource resolves a path. What is neither a directory nor a regular file is
// an error: a socket, a device or a FIFO leads to whoever serves it.
func FindSource(path string) (Source, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Source{}, err
	}
	info, err := os.Lstat(real)
	if err != nil {
		return Source{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Source{}, fmt.Errorf("%s has no owner", quote(real))
	}
	switch {
	case info.Mode()&fs.ModeSocket != 0:
		return Source{}, errors.New("it is a unix socket, and whoever listens there would be reached from inside")
	case !info.IsDir() && !info.Mode().IsRegular():
		return Source{}, errors.New("it is neither a directory nor a file")
	}
	return Source{Path: real, Dir: info.IsDir(), Owner: int(st.Uid), ID: policy.Identity{Dev: st.Dev, Ino: st.Ino}}, nil
}

// A Special is a socket that nothing inside may reach.
type Special struct{ Path, What string }

// specials are the sockets that the environment and custom name: container
// services, agents that hold keys, message buses.
func specials(env map[string]string, home string) []Special {
	var out []Special
	add := func(what string, paths ...string) {
		for _, p := range paths {
			if filepath.IsAbs(p) {
				out = append(out, Special{Resolve(p), what})
			}
		}
	}
	const (
		container = "a container service's socket"
		keys      = "the socket of an agent that holds keys"
		bus       = "a message bus's socket"
	)
	add(container, "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
		filepath.Join(home, ".docker/run/docker.sock"), filepath.Join(home, ".docker/desktop/docker.sock"))
	for _, name := range []string{"DOCKER_HOST", "CONTAINER_HOST"} {
		add(container, strings.TrimPrefix(env[name], "unix://"))
	}
	add(keys, env["SSH_AUTH_SOCK"], filepath.Join(home, ".gnupg/S.gpg-agent"))
	add(bus, "/run/dbus/system_bus_socket")
	add(bus, busSockets(env)...)
	return out
}

// busSockets are the paths in the address of the user's message bus (D-Bus
// specification, "Server Addresses").
func busSockets(env map[string]string) []string {
	var out []string
	for _, address := range strings.Split(env["DBUS_SESSION_BUS_ADDRESS"], ";") {
		_, keys, _ := strings.Cut(address, ":") // a socket's, or a program's with unixexec
		for _, kv := range strings.Split(keys, ",") {
			p, ok := strings.CutPrefix(kv, "path=")
			if plain, err := url.PathUnescape(p); err == nil {
				p = plain // a client refuses others
			}
			if ok && p != "" {
				out = append(out, p)
			}
		}
	}
	return out
}

// specialNames are what container services and key agents call their sockets.
var specialNames = []string{
	"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock", "cri-dockerd.sock", "nerdctl.sock",
	"S.gpg-agent", "S.gpg-agent.ssh", "S.gpg-agent.extra", "S.gpg-agent.browser", "S.scdaemon", "system_bus_socket",
}

// SpecialIn is the first of a tree's sockets, and of those that the environment
// names, that may not be in it, or nil.
func (f Facts) SpecialIn(path string, sockets []string) *Special {
	for _, s := range f.Specials {
		if within(s.Path, path) {
			return &s
		}
	}
	for _, s := range sockets {
		if slices.Contains(specialNames, filepath.Base(s)) {
			return &Special{Path: s, What: "a socket of a container service or of an agent that holds keys"}
		}
	}
	return nil
}

// MountProblem says why a source may not be mounted, or "". What it is named in
// the sentence is what ("mount", "agents_dir"). Pure.
func MountProblem(f Facts, what string, s Source, writable bool, sockets []string) string {
	p := s.Path
	bad := func(format string, a ...any) string {
		return fmt.Sprintf("%s %s "+format, append([]any{what, quote(p)}, a...)...)
	}
	switch {
	case p == "/":
		return bad("is the whole machine; name a directory in it")
	case strings.Contains(p, ":"):
		return bad("holds a \":\", which separates the parts of a mount; rename it")
	}
	for _, h := range []string{f.Home, f.PasswdHome} {
		switch {
		case h == "":
		case p == h:
			return bad("is your home, with everything in it; name a directory in it")
		case within(h, p):
			return bad("holds your home; name a directory of one purpose")
		}
		for _, d := range secretTrees {
			if writable && h != "" && within(p, filepath.Join(h, d)) {
				return bad("holds credentials, and what is written there is obeyed; mount it read-only")
			}
		}
		for _, d := range homeDirsOnly {
			if h != "" && p == filepath.Join(h, d) {
				return bad("holds the settings of every program; name a directory in it")
			}
		}
	}
	for _, own := range f.Dirs.own() {
		if overlap(p, own.Path) {
			return bad("and ai-sandbox's %s %s lie in one another; name another directory", own.What, quote(own.Path))
		}
	}
	if special := f.SpecialIn(p, sockets); special != nil {
		return bad("would show %s (%s); name a directory without it", special.What, quote(special.Path))
	}
	if slices.ContainsFunc(systemTrees, func(d string) bool { return within(p, d) }) || slices.Contains(systemDirsOnly, p) || p == "/run/user" {
		what := "file"
		if s.Dir {
			what = "directory"
		}
		return bad("is a %s of the system; name one of your own", what)
	}
	if s.Owner != f.UID {
		return bad("belongs to another user (uid %d); name one of your own", s.Owner)
	}
	return ""
}

// Secret tells whether a path is in one of the trees where programs keep
// credentials.
func (f Facts) Secret(path string) bool {
	for _, h := range []string{f.Home, f.PasswdHome} {
		if h != "" && slices.ContainsFunc(secretTrees, func(d string) bool { return within(path, filepath.Join(h, d)) }) {
			return true
		}
	}
	return false
}

// keyFiles are what programs keep a login in, below a home and outside of secretTrees.
var keyFiles = []string{
	".netrc", ".npmrc", ".git-credentials", ".config/git/credentials", ".pypirc", ".config/gh", ".config/gcloud", ".cargo/credentials", ".cargo/credentials.toml",
}

// ShowsKeys tells whether a path is, lies in or holds what programs keep keys or logins
// in, by those places' own names or where links lead.
func (f Facts) ShowsKeys(path string) bool {
	if f.Secret(path) {
		return true
	}
	for _, h := range []string{f.Home, f.PasswdHome} {
		for _, name := range keyFiles {
			p := filepath.Join(h, name)
			if _, err := os.Lstat(p); h == "" || err != nil {
				continue
			}
			if real := Resolve(p); within(path, p) || within(p, path) || within(path, real) || within(real, path) {
				return true
			}
		}
	}
	return false
}

// CheckPoints says what is missing where one mount lies in another: nothing is
// made in a directory of the host's for it, and no link there is followed.
func CheckPoints(mounts []policy.Mount) error {
	var errs []error
	for i, m := range mounts {
		if m.ID == (policy.Identity{}) || m.Why == policy.WhyProject && i == 0 {
			continue
		}
		errs = append(errs, checkPoint(mounts[:i], m))
	}
	// The other way: what is below a mount of the user's.
	for i, m := range mounts {
		if up, ok := policy.Above(mounts[:i], m.Target); ok && m.ID == (policy.Identity{}) && up.ID != (policy.Identity{}) && up.Why != policy.WhyProject {
			errs = append(errs, checkPoint(mounts[:i], m))
		}
	}
	return errors.Join(errs...)
}

func checkPoint(before []policy.Mount, m policy.Mount) error {
	up, ok := policy.Above(before, m.Target)
	if !ok || up.Kind != policy.KindBind || up.Why == policy.WhyHome {
		return nil
	}
	rel := strings.TrimPrefix(m.Target, up.Target+"/")
	wantDir := m.Kind != policy.KindBind
	if m.Kind == policy.KindBind {
		info, err := os.Stat(m.Source)
		if err != nil {
			return fmt.Errorf("look at %s: %w", quote(m.Source), err)
		}
		wantDir = info.IsDir()
	}
	at := up.Source
	parts := strings.Split(rel, "/")
	for i, name := range parts {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		last := i == len(parts)-1
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no %s on this machine to mount %s on; make it first, or name another place", quote(at), quote(m.Source))
		case err != nil:
			return fmt.Errorf("look at the place for %s: %w", quote(m.Source), err)
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s is a symlink, so %s is not mounted there; name the place that it leads to", quote(at), quote(m.Source))
		case info.IsDir() != (wantDir || !last):
			return fmt.Errorf("%s and %s are not both directories or both files; name another place", quote(at), quote(m.Source))
		}
	}
	return nil
}

// Links are the places that decide what a path leads to: each symlink at its end,
// and what it resolves to.
func Links(path string) []string {
	var out []string
	for range 40 { // as many as the kernel follows (path_resolution(7))
		at := filepath.Join(Resolve(filepath.Dir(path)), filepath.Base(path))
		out = append(out, at)
		to, err := os.Readlink(at)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		path = to
	}
	return out
}
