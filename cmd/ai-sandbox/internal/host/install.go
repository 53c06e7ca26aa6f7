// Programs that are installed below the user's home, by nvm, npm, bun, pipx, an
// installer of their own and so on: where they are, and which directories a jail
// has to see for them to run. What is bound is the installation, and never a
// directory that holds other things of the user's.

package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/policy"
)

// An Install is a program and what it needs to be seen of the machine, all of it
// at its own path.
type Install struct {
	// Command is the path to run.
	Command string
	// Mounts are read-only binds, and the links that lead to them.
	Mounts []policy.Mount
	// Path are directories to look for programs in before the system's.
	Path []string
}

// ErrNoTool is returned when a program is nowhere.
var ErrNoTool = errors.New("is not installed here")

// A shimError is returned where only a version manager's stand-in was found.
type shimError struct{ name, path string }

func (e *shimError) Error() string {
	return fmt.Sprintf("%s at %s is a version manager's stand-in, which runs only with all of that manager; put the directory of the real program before it in PATH", e.name, quote(e.path))
}

// shims are what such stand-ins lead to.
var shims = []string{"volta-shim", "mise", "rtx", "asdf", "snap", "proto", "proto-shim"}

// FindTool looks a program up as a shell would, in f's SearchPath, and works out
// what it stands on.
func FindTool(f Facts, name string) (Install, error) {
	if name == "" || strings.Contains(name, "/") {
		return Install{}, fmt.Errorf("%s is not the name of a program", quote(name))
	}
	i := installer{facts: f}
	path, err := i.lookup(name)
	if err != nil {
		return Install{}, err
	}
	if err := i.program(path, 0); err != nil {
		return Install{}, fmt.Errorf("take %s at %s into a jail: %w", name, quote(path), err)
	}
	mounts, err := i.mounts()
	if err != nil {
		return Install{}, fmt.Errorf("take %s at %s into a jail: %w", name, quote(path), err)
	}
	return Install{Command: path, Mounts: mounts, Path: i.path}, nil
}

// An installer gathers what a program stands on.
type installer struct {
	facts Facts
	trees []string          // to be bound
	links map[string]string // from path to where it leads, one step each
	path  []string
}

// lookup passes stand-ins over.
func (i *installer) lookup(name string) (string, error) {
	var shim *shimError
	for _, dir := range i.facts.SearchPath {
		path := lookup(name, []string{dir}, i.facts.Project.Path, i.facts.UID)
		if path == "" {
			continue
		}
		if filepath.Base(dir) == "shims" || slices.Contains(shims, filepath.Base(Resolve(path))) && filepath.Base(Resolve(path)) != name {
			shim = &shimError{name, path}
			continue
		}
		return path, nil
	}
	if shim != nil {
		return "", shim
	}
	return "", fmt.Errorf("%s %w: install it, or name another command after --", name, ErrNoTool)
}

// system tells whether a path is in a directory that every jail has.
func system(path string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains(systemTops, top)
}

// searched are the directories that a jail looks through by itself.
var searched = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/bin", "/sbin"}

// maxInterpreters bounds how long a chain of interpreters is followed.
const maxInterpreters = 4

// program adds what one program stands on.
func (i *installer) program(path string, depth int) error {
	real, err := i.follow(path)
	if err != nil {
		return err
	}
	if dir := filepath.Dir(path); !slices.Contains(searched, dir) && !slices.Contains(i.path, dir) {
		i.path = append(i.path, dir)
	}
	if !system(real) {
		i.trees = append(i.trees, i.installation(real)...)
	}
	if depth == maxInterpreters {
		return nil
	}
	next, err := interpreter(real)
	if err != nil || next == "" {
		return err
	}
	if !strings.Contains(next, "/") {
		if next, err = i.lookup(next); err != nil {
			return err
		}
	}
	return i.program(next, depth+1)
}

// maxLinks is how many links the kernel itself follows (path_resolution(7)).
const maxLinks = 40

// follow steps through the links that a path is, keeps each, and returns what is
// at their end.
func (i *installer) follow(path string) (string, error) {
	if i.links == nil {
		i.links = map[string]string{}
	}
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		real := filepath.Join(dir, filepath.Base(path))
		if real != path {
			// A directory on the way is a link: one link stands for it.
			i.links[path] = real
			path = real
		}
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		i.links[path] = to
		path = filepath.Clean(to)
	}
	return "", errors.New("too many links")
}

// installation is what has to be seen of a program's surroundings, in directories
// or as the file alone.
func (i *installer) installation(real string) []string {
	dir := filepath.Dir(real)
	// Homebrew: programs, their libraries and the links between them.
	if prefix, _, ok := strings.Cut(real, "/.linuxbrew/"); ok {
		return []string{prefix + "/.linuxbrew"}
	}
	// node's packages.
	if prefix, rest, ok := strings.Cut(real, "/lib/node_modules/"); ok {
		if info, err := os.Lstat(prefix + "/bin/node"); err == nil && info.Mode().IsRegular() && i.safe(prefix) == nil {
			return existing(prefix+"/bin", prefix+"/lib") // nvm, n, fnm, a tarball
		}
		// npm puts what a package depends on below it.
		parts := strings.SplitN(rest, "/", 3)
		pkg := parts[0]
		if strings.HasPrefix(pkg, "@") && len(parts) > 2 {
			pkg += "/" + parts[1]
		}
		return []string{prefix + "/lib/node_modules/" + pkg}
	}
	if prefix, _, ok := strings.Cut(real, "/node_modules/"); ok {
		return []string{prefix + "/node_modules"} // bun, pnpm and yarn: side by side
	}
	// python's environments: pipx, uv, venv.
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "pyvenv.cfg")); err == nil && filepath.Base(dir) == "bin" {
		return []string{filepath.Dir(dir)}
	}
	// A language of the user's own: with its libraries, if that is all there is.
	prefix := filepath.Dir(dir)
	if filepath.Base(dir) == "bin" && i.safe(prefix) == nil && hasLibraries(prefix) {
		return existing(prefix+"/bin", prefix+"/lib")
	}
	return []string{real}
}

// hasLibraries tells whether a prefix is node's or python's own.
func hasLibraries(prefix string) bool {
	for _, p := range []string{"lib/node_modules", "lib/python3*"} {
		if found, err := filepath.Glob(filepath.Join(prefix, p)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

func existing(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool {
		_, err := os.Stat(p)
		return err != nil
	})
}

// interpreter is the program that a script is run with: a path, or the name that
// env(1) is to look up; "" where the kernel needs none.
func interpreter(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// The kernel reads 256 bytes of it (execve(2)).
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return "", nil
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return "", nil
	}
	if filepath.Base(words[0]) != "env" {
		if !filepath.IsAbs(words[0]) {
			return "", fmt.Errorf("its interpreter %s is not an absolute path", quote(words[0]))
		}
		return words[0], nil
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return w, nil
		}
	}
	return "", nil
}

// mounts are the trees and the links that lie outside of them.
func (i *installer) mounts() ([]policy.Mount, error) {
	const why = "the program's installation"
	slices.Sort(i.trees)
	i.trees = slices.Compact(i.trees)
	bound := func(path string) bool {
		return system(path) || slices.ContainsFunc(i.trees, func(t string) bool { return within(path, t) })
	}
	var out []policy.Mount
	for n, tree := range i.trees {
		if slices.ContainsFunc(i.trees[:n], func(t string) bool { return within(tree, t) }) {
			continue // with the one above it
		}
		if err := i.safe(tree); err != nil {
			return nil, err
		}
		out = append(out, policy.Mount{Kind: policy.KindBind, Source: tree, Target: tree, ReadOnly: true, Why: why})
	}
	var froms []string
	for from := range i.links {
		froms = append(froms, from)
	}
	slices.Sort(froms)
	for _, from := range froms {
		// A link in what is bound is seen anyway, and a jail has no other places.
		if bound(from) {
			continue
		}
		if err := i.placed(from); err != nil {
			return nil, err
		}
		out = append(out, policy.Mount{Kind: policy.KindSymlink, Source: i.links[from], Target: from, Why: why})
	}
	return out, nil
}

// safe refuses a tree that holds more than an installation, or that the sandbox
// could change.
func (i *installer) safe(tree string) error {
	f := i.facts
	if err := i.placed(tree); err != nil {
		return err
	}
	if overlap(tree, f.Project.Path) {
		return fmt.Errorf("%s and the project lie in one another, so the sandbox could change its own program", quote(tree))
	}
	for _, own := range []string{f.Dirs.Config, f.Dirs.State, f.Dirs.Cache, f.Dirs.XDGRuntime, f.Dirs.Store} {
		if overlap(tree, own) {
			return fmt.Errorf("%s and ai-sandbox's own %s lie in one another", quote(tree), quote(own))
		}
	}
	info, err := os.Stat(tree)
	if err != nil {
		return err
	}
	if !trusted(tree, f.UID, info.IsDir()) {
		return fmt.Errorf("%s can be changed by other users", quote(tree))
	}
	for _, home := range []string{f.Home, f.PasswdHome} {
		if home == "" {
			continue
		}
		if within(home, tree) {
			return fmt.Errorf("%s holds your home", quote(tree))
		}
		for _, d := range secretTrees {
			if overlap(tree, filepath.Join(home, d)) {
				return fmt.Errorf("%s holds credentials, or lies among them", quote(tree))
			}
		}
		for _, d := range homeDirsOnly {
			if tree == filepath.Join(home, d) {
				return fmt.Errorf("%s holds what other programs keep there", quote(tree))
			}
		}
	}
	return nil
}

// placed refuses a path that a jail has something else at.
func (i *installer) placed(path string) error {
	for _, d := range append([]string{policy.HomeDir, "/proc", "/dev", "/etc", "/run", "/sys"}, "/") {
		if path == d || d != "/" && within(path, d) {
			return fmt.Errorf("%s is a place that the jail has for itself; install it elsewhere", quote(path))
		}
	}
	return nil
}
