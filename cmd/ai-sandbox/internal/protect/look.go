// Package protect is the host's side of the protected paths of a project
// (policy/protect.go): it looks which are there, keeps those that are not from
// being made with empty placeholders, and tells at the end of a run what has
// changed that tools on this machine run or obey.
//
// Whatever lies in the project may be an agent's. It is opened beneath the
// project's directory, by a path without links, and nothing is read that is not a
// file of a few bytes of git's. Where a link leads is asked and then judged.
package protect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// What is looked at of git's submodules and worktrees; with more of them, all that
// they lie in is read-only. A worktree has submodules of its own.
const (
	maxRepos     = 16
	maxWorktrees = 16
	maxDirs      = 256
	maxNames     = 4096
)

// openBeneath opens a path below a directory. No link is followed, and one at its
// end is opened only with O_PATH.
func openBeneath(root int, name string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), //nolint:gosec // flags of open(2)
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		Mode:    uint64(mode),
	}
	for range 32 {
		fd, err := unix.Openat2(root, name, &how)
		// openat2(2): something was renamed meanwhile.
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// openRoot opens a directory to look below it.
func openRoot(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", policy.Quote(dir), err)
	}
	return fd, nil
}

// OpenDir opens a directory. Where the way to it leads into the project, no link is
// followed from there on: one may be an agent's.
func OpenDir(dir, project string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_RDONLY
	top, err := os.Stat(project)
	if err != nil {
		return unix.Open(dir, flags|unix.O_CLOEXEC, 0) // there is none
	}
	for i := 0; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		if info, err := os.Stat(dir[:i] + "/"); err != nil || !os.SameFile(info, top) {
			continue
		}
		root, err := openRoot(project)
		if err != nil {
			return -1, err
		}
		defer unix.Close(root)
		return openBeneath(root, "."+filepath.Clean("/"+dir[i:]), flags, 0)
	}
	return unix.Open(dir, flags|unix.O_CLOEXEC, 0)
}

// A tree is a policy.Tree while it is looked at.
type tree struct {
	policy.Tree
	fd int
	// home is the user's, in the project's: what ~ stands for.
	home string
}

// kind says what is at a path: nothing, where a link leads there.
func (t *tree) kind(name string) (string, error) {
	fd, err := openBeneath(t.fd, name, unix.O_PATH, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return "", nil // ELOOP: there is a link on the way
	}
	if err != nil {
		return "", fmt.Errorf("look at %s in %s: %w", policy.Quote(name), policy.Quote(t.Root), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("look at %s in %s: %w", policy.Quote(name), policy.Quote(t.Root), err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return policy.FoundDir, nil
	case unix.S_IFREG:
		if st.Nlink > 1 {
			t.Linked = append(t.Linked, name)
		}
		return policy.FoundFile, nil
	case unix.S_IFLNK:
		return policy.FoundLink, nil
	}
	return policy.FoundOther, nil
}

// find looks at paths and at what they lie in.
func (t *tree) find(paths []string) error {
	for _, p := range paths {
		for i := 0; i <= len(p); i++ {
			if i < len(p) && p[i] != '/' {
				continue
			}
			step := p[:i]
			what, known := t.Found[step]
			if !known {
				var err error
				if what, err = t.kind(step); err != nil {
					return err
				}
				if what == policy.FoundDir && i < len(p) {
					names, _, err := t.names(step, 1)
					if err != nil {
						return err
					}
					if len(names) == 0 {
						what = policy.FoundEmpty
					}
				}
				if what == "" && t.shut(path.Dir(step)) {
					what = policy.FoundShut
				}
				if what != "" {
					t.Found[step] = what
				}
			}
			if what != policy.FoundDir {
				break
			}
		}
	}
	return nil
}

// shut tells whether nothing can be made in a directory by this user, and so by a
// command inside: it belongs to another one and is not writable.
func (t *tree) shut(dir string) bool {
	fd, err := openBeneath(t.fd, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false // the start tells
	}
	defer unix.Close(fd)
	s, err := look(fd, "")
	return err == nil && int(s.uid) != os.Geteuid() && errors.Is(unix.Faccessat(fd, ".", unix.W_OK, unix.AT_EACCESS), unix.EACCES)
}

// names lists a directory, and the directories in it, and links, up to limit names.
func (t *tree) names(dir string, limit int) (names, dirs []string, err error) {
	fd, err := openBeneath(t.fd, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("look into %s in %s: %w", policy.Quote(dir), policy.Quote(t.Root), err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	entries, err := f.ReadDir(limit)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("look into %s in %s: %w", policy.Quote(dir), policy.Quote(t.Root), err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		if e.IsDir() || e.Type()&os.ModeSymlink != 0 {
			dirs = append(dirs, e.Name())
		}
	}
	slices.Sort(dirs)
	return names, dirs, nil
}

// repo adds the git directory at a path, and those of its submodules and
// worktrees.
func (t *tree) repo(dir string) error {
	t.Repos = append(t.Repos, dir)
	if err := t.submodules(dir); err != nil {
		return err
	}
	worktrees := path.Join(dir, "worktrees")
	what, err := t.kind(worktrees)
	if what == policy.FoundLink {
		t.Whole = append(t.Whole, worktrees)
	}
	if err != nil || what != policy.FoundDir {
		return err
	}
	names, dirs, err := t.names(worktrees, maxNames)
	if err != nil {
		return err
	}
	if len(dirs) > maxWorktrees || len(names) == maxNames {
		t.Whole = append(t.Whole, worktrees)
		return nil
	}
	for _, d := range dirs {
		t.Worktrees = append(t.Worktrees, path.Join(worktrees, d))
		if err := t.submodules(path.Join(worktrees, d)); err != nil {
			return err
		}
	}
	return nil
}

// submodules adds the git directories of the submodules of a git directory, or of a
// worktree: it has its own. Where there is none, none can be made.
func (t *tree) submodules(dir string) error {
	modules := path.Join(dir, "modules")
	what, err := t.kind(modules)
	if err != nil {
		return err
	}
	var repos []string
	if what == policy.FoundDir {
		budget := maxDirs
		var whole bool
		if repos, whole, err = t.modules(modules, &budget); err != nil {
			return err
		}
		if !whole || len(repos) > maxRepos {
			repos = nil
		}
	}
	if len(repos) == 0 {
		t.Whole = append(t.Whole, modules)
	}
	for _, r := range repos {
		t.Repos = append(t.Repos, r)
		inner := path.Join(r, "modules")
		if !slices.ContainsFunc(repos, func(p string) bool { return strings.HasPrefix(p, inner+"/") }) {
			t.Whole = append(t.Whole, inner)
		}
	}
	return nil
}

// modules finds the git directories of submodules: a submodule's name may have
// slashes in it, and a submodule has submodules. whole is false where there are
// more than the budget lets look at.
func (t *tree) modules(dir string, budget *int) (repos []string, whole bool, err error) {
	if *budget--; *budget < 0 {
		return nil, false, nil
	}
	names, dirs, err := t.names(dir, maxNames)
	if err != nil || len(names) == maxNames {
		return nil, false, err
	}
	for _, d := range dirs {
		at := path.Join(dir, d)
		if what, err := t.kind(at); err != nil {
			return nil, false, err
		} else if what == policy.FoundLink {
			repos = append(repos, at) // where it leads, git finds one
			continue
		}
		inner, _, err := t.names(at, maxNames)
		if err != nil {
			return nil, false, err
		}
		next := at
		if slices.Contains(inner, "HEAD") || slices.Contains(inner, "config") {
			repos = append(repos, at)
			if !slices.Contains(inner, "modules") {
				continue
			}
			next = path.Join(at, "modules")
			if what, err := t.kind(next); err != nil {
				return nil, false, err
			} else if what != policy.FoundDir {
				continue
			}
		}
		below, whole, err := t.modules(next, budget)
		if err != nil || !whole {
			return nil, false, err
		}
		repos = append(repos, below...)
	}
	return repos, true, nil
}

// A Project is what a policy has to know of the project's protected paths.
type Project struct {
	Tree policy.Tree
	Git  *policy.GitDir
	Note string // of what of git's is not mounted
}

// Look looks at the protected paths of a project, and at the paths of which the
// user says that they need no protection. home is the user's, or "".
func Look(project, home string, unprotect []string) (Project, error) {
	fd, err := openRoot(project)
	if err != nil {
		return Project{}, err
	}
	defer unix.Close(fd)
	t := &tree{policy.Tree{Root: project, Found: map[string]string{}}, fd, home}
	var out Project
	dot, err := t.kind(".git")
	if err != nil {
		return out, err
	}
	if bare, err := t.bare(); err != nil {
		return out, err
	} else if bare {
		if err := t.repo("."); err != nil {
			return out, err
		}
	}
	git := ".git"
	if dot == policy.FoundLink {
		if git, dot, err = t.gitLink(); err != nil {
			return out, err
		}
	}
	switch dot {
	case policy.FoundDir:
		err = t.repo(git)
	case policy.FoundFile:
		out.Git, out.Note, err = t.gitFile(git, unprotect)
	}
	if err != nil {
		return out, err
	}
	if out.Git == nil {
		t.configured()
	}
	paths := policy.ProtectedPaths(t.Tree)
	if err := t.find(append(slices.Clone(paths), local(unprotect)...)); err != nil {
		return out, err
	}
	if out.Git == nil {
		err = links([]*tree{t}, paths)
	} else {
		err = t.linksWith(out.Git, paths)
	}
	out.Tree = t.Tree
	return out, err
}

// linksWith follows the links of the project, and those of the git directory that it
// is a worktree of.
func (t *tree) linksWith(g *policy.GitDir, paths []string) error {
	fd, err := openRoot(g.Root)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c := &tree{g.Tree, fd, ""}
	c.Worktrees = []string{g.Own} // it has to stay writable
	err = links([]*tree{t, c}, paths, policy.ProtectedInGitDir(*g))
	c.Worktrees = nil
	g.Tree = c.Tree
	return err
}

// gitLink follows a .git that is a link. What is elsewhere is not mounted, and git on
// the host obeys it here.
func (t *tree) gitLink() (name, what string, err error) {
	_, end, err := follow(path.Join(t.Root, ".git"))
	if err != nil {
		return "", "", nil //nolint:nilerr // it leads nowhere, for git too
	}
	if below, ok := strings.CutPrefix(end, t.Root+"/"); ok {
		what, err := t.kind(below)
		return below, what, err
	}
	fd, err := openRoot(end)
	if err != nil {
		return "", "", nil //nolint:nilerr // nor is it a directory
	}
	defer unix.Close(fd)
	r := reader{trees: []*tree{t, {policy.Tree{Root: end}, fd, ""}}, seen: map[string]bool{}}
	r.repo(end, t.Root, "config", "config.worktree")
	return "", "", nil
}

// configured adds where the configuration of the git directories in the project
// leads.
func (t *tree) configured() {
	r := reader{trees: []*tree{t}, seen: map[string]bool{}}
	for _, dir := range t.Repos {
		top := ""
		if !strings.Contains("/"+dir+"/", "/modules/") {
			top = t.Root
		}
		r.repo(path.Join(t.Root, dir), top, "config", "config.worktree")
	}
	for _, dir := range t.Worktrees {
		r.repo(path.Join(t.Root, dir), "", "config.worktree")
	}
}

// bare tells whether the project is a git directory itself.
func (t *tree) bare() (bool, error) {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if what, err := t.kind(name); what == "" || err != nil {
			return false, err
		}
	}
	return true, nil
}

// local are those of the paths that can be looked at below a directory.
func local(paths []string) []string {
	var out []string
	for _, p := range paths {
		if p = filepath.Clean(p); filepath.IsLocal(p) && p != "." {
			out = append(out, p)
		}
	}
	return out
}

// gitFile follows a .git that is a file (gitrepository-layout(5), gitfile) where
// it can be believed: to the project itself, or to a repository of which the
// project is a worktree, and which says so too. The file may be an agent's; what
// the repository has may not.
func (t *tree) gitFile(name string, unprotect []string) (g *policy.GitDir, note string, err error) {
	text, err := readUpTo(t.fd, name, maxSmall)
	if err != nil && !errors.Is(err, errTooLong) {
		return nil, "", fmt.Errorf("read %s in %s: %w", policy.Quote(name), policy.Quote(t.Root), err)
	}
	to, ok := t.gitDir(text)
	if !ok || err != nil {
		return nil, "the project's .git is a file that git can't read", nil
	}
	no := func(why string) (*policy.GitDir, string, error) {
		return nil, "the project's .git leads to " + policy.Quote(to) + ", which is not mounted, so git does not work inside: " + why, nil
	}
	own, err := filepath.EvalSymlinks(to)
	if err != nil {
		return no("it can't be found")
	}
	if below, ok := strings.CutPrefix(own, t.Root+"/"); ok {
		// The repository of a bare clone, or one of its worktrees.
		if dir := path.Dir(path.Dir(below)); path.Base(path.Dir(below)) == "worktrees" && dir != "." {
			below = dir
		}
		return nil, "", t.repo(below)
	}
	common := filepath.Dir(filepath.Dir(own))
	switch {
	case strings.Contains(own, "/.git/modules/"):
		fd, err := openRoot(own)
		if err != nil {
			return no("it can't be opened")
		}
		defer unix.Close(fd)
		r := reader{trees: []*tree{t, {policy.Tree{Root: own}, fd, ""}}, seen: map[string]bool{}}
		r.repo(own, t.Root, "config", "config.worktree")
		return no("it is a submodule's; start ai-sandbox in the project that it is a part of")
	case filepath.Base(filepath.Dir(own)) != "worktrees":
		return no("it is not a worktree's")
	}
	fd, err := openRoot(common)
	if err != nil {
		return no("it can't be opened")
	}
	defer unix.Close(fd)
	c := &tree{policy.Tree{Root: common, Found: map[string]string{}}, fd, ""}
	name = path.Join("worktrees", filepath.Base(own))
	if why, err := c.isOwn(name, own, t.Root); why != "" || err != nil {
		if err != nil {
			why = err.Error()
		}
		return no(why)
	}
	for _, dir := range []string{".", name} {
		if err := c.submodules(dir); err != nil {
			return nil, "", err
		}
	}
	// What is not mounted has a configuration that git on the host obeys here, too.
	r := reader{trees: []*tree{t, c}, seen: map[string]bool{}}
	r.repo(common, t.Root, "config", "config.worktree")
	r.repo(own, t.Root, "config.worktree")
	for _, dir := range c.Repos {
		r.repo(path.Join(common, dir), "", "config", "config.worktree")
	}
	if why, err := c.showsOthers(name); why != "" || err != nil {
		if err != nil {
			why = err.Error()
		}
		return no(why)
	}
	// Its own directory alone is looked at: the others are read-only as a whole.
	out := &policy.GitDir{Tree: c.Tree, Own: name}
	paths := policy.ProtectedInGitDir(*out)
	for _, p := range local(unprotect) {
		if below, ok := strings.CutPrefix(p, ".git/"); ok {
			paths = append(paths, below)
		}
	}
	if err := c.find(append(paths, name)); err != nil {
		return nil, "", err
	}
	out.Tree = c.Tree
	return out, "", nil
}

// gitDir is the path that the text of a .git leads to.
func (t *tree) gitDir(text string) (to string, ok bool) {
	to, ok = strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if ok && !filepath.IsAbs(to) {
		to = t.Root + "/" + to // as the kernel goes: up after a link, not before
	}
	return to, ok
}

// Worktree is the git directory of the repository that a project is a worktree of, by
// its resolved path, or "": what Look may have mounted beside the project.
func Worktree(project string) string {
	fd, err := openRoot(project)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	t := &tree{policy.Tree{Root: project}, fd, ""}
	name := ".git"
	what, err := t.kind(name)
	if what == policy.FoundLink {
		name, what, err = t.gitLink()
	}
	if err != nil || what != policy.FoundFile {
		return ""
	}
	text, err := readUpTo(fd, name, maxSmall)
	to, ok := t.gitDir(text)
	if err != nil || !ok {
		return ""
	}
	own, err := filepath.EvalSymlinks(to)
	if err != nil || filepath.Base(filepath.Dir(own)) != "worktrees" {
		return ""
	}
	common := filepath.Dir(filepath.Dir(own))
	root, err := openRoot(common)
	if err != nil {
		return ""
	}
	defer unix.Close(root)
	c := &tree{policy.Tree{Root: common}, root, ""}
	if why, err := c.isOwn(path.Join("worktrees", filepath.Base(own)), own, project); why != "" || err != nil {
		return ""
	}
	return common
}

// isOwn says why the directory of a worktree is not the project's, or "".
func (t *tree) isOwn(name, own, project string) (why string, err error) {
	for _, p := range []string{".", name} {
		var st unix.Stat_t
		if err := unix.Fstatat(t.fd, p, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return "", err
		}
		if int(st.Uid) != os.Getuid() {
			return "it belongs to another user", nil
		}
	}
	for _, p := range []string{"HEAD", "objects"} {
		if what, err := t.kind(p); err != nil || what == "" {
			return "it is not a repository's", err
		}
	}
	// A path in one of these is absolute, or relative to where they lie.
	said := func(file string) (string, error) {
		text, err := readUpTo(t.fd, path.Join(name, file), maxSmall)
		if err != nil {
			return "", err
		}
		p := strings.TrimRight(text, "\r\n")
		if !filepath.IsAbs(p) {
			p = filepath.Join(own, p)
		}
		return p, nil
	}
	back, err := said("gitdir")
	if err != nil {
		return "it does not say whose it is", nil //nolint:nilerr // that is the answer
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(back))
	if err != nil || dir != project || filepath.Base(back) != ".git" {
		return "it is that of another worktree", nil //nolint:nilerr // that is the answer
	}
	common, err := said("commondir")
	if err != nil {
		return "it does not say what repository it is of", nil //nolint:nilerr // that is the answer
	}
	if common, err = filepath.EvalSymlinks(common); err != nil || common != t.Root {
		return "it names another repository", nil //nolint:nilerr // that is the answer
	}
	return "", nil
}

// showsOthers says which other worktree's checkout lies in a git directory, as those
// of a bare repository may, or "": whoever mounts the one shows the other.
func (t *tree) showsOthers(own string) (why string, err error) {
	entries, dirs, err := t.names("worktrees", maxNames)
	if err != nil {
		return "", err
	}
	if len(entries) == maxNames {
		return "it has more worktrees than are looked at", nil
	}
	for _, d := range dirs {
		name := path.Join("worktrees", d)
		if name == own {
			continue
		}
		text, err := readUpTo(t.fd, path.Join(name, "gitdir"), maxSmall)
		if errors.Is(err, unix.ENOENT) {
			continue // git knows of no checkout
		}
		if err != nil {
			return "", fmt.Errorf("read where %s has its checkout: %w", policy.Quote(name), err)
		}
		at := filepath.Dir(strings.TrimRight(text, "\r\n"))
		if !filepath.IsAbs(at) {
			at = filepath.Join(t.Root, name, at)
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			real = at // gone, and it may come back
		}
		for _, p := range []string{at, real} {
			if below, err := filepath.Rel(t.Root, p); err == nil && filepath.IsLocal(below) {
				return fmt.Sprintf("it would show the checkout of another worktree, %s", policy.Quote(p)), nil
			}
		}
	}
	return "", nil
}

// maxSmall bounds what is read of a file of git's, in bytes: paths.
const maxSmall = 2 * unix.PathMax
