// Protected paths: what tools on the host later run or obey is read-only over a
// writable project. A mount on the path alone is not enough, as its parents can be
// renamed away and made anew: every directory on the way is mounted on itself, and
// the kernel renames and removes no mount point (rename(2), rmdir(2): EBUSY).
//
// What is not there must not be made either. An empty placeholder takes its place
// while the session lasts: a directory, which git does not see and which is removed
// only when it is empty; a file where git is known to mind a directory.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// What there is at a path of a Tree, looked at without following a link. What is
// not there has no entry.
const (
	FoundDir   = "directory"
	FoundEmpty = "empty directory"
	FoundFile  = "file"
	FoundLink  = "symbolic link"
	FoundOther = "special file"
	// FoundShut is nothing, where nobody but another user can make anything.
	FoundShut = "nothing, in a directory of another user"
)

// A Tree is a directory with protected paths in it, as the host saw it. Paths are
// relative to Root, with "." for itself.
type Tree struct {
	// Root is the host path.
	Root string
	// Found says what is at a path.
	Found map[string]string
	// Repos are git directories: those of the project and its submodules.
	Repos []string
	// Worktrees are what git keeps of a worktree, one directory each.
	Worktrees []string
	// Whole are directories of submodules and worktrees with nothing in them, or more
	// than is looked at.
	Whole []string
	// Linked are files that have another name (a hard link), somewhere.
	Linked []string
	// Obeyed are the hooks and files that git's configuration leads to; of these,
	// Files are files.
	Obeyed, Files []string
	// Links are where protected paths lead that are links.
	Links []Link
	// Notes are about what is led to and can't be held.
	Notes []string
}

// A Link is one step of where a protected path leads that is a symbolic link, lies
// in one, or is a link in a protected directory.
type Link struct {
	// Path is what is protected, as --unprotect calls it.
	Path string
	// To is the path in the tree that it leads to: another link, or the end. Or it is
	// "", and the end is elsewhere on the host.
	To, Outside string
}

// A GitDir is the git directory that a worktree belongs to: it lies elsewhere.
type GitDir struct {
	Tree
	// Own is the worktree's own directory in it.
	Own string
}

// protectedNames are the protected paths of every project.
var protectedNames = []string{
	".ai-sandbox", ".claude", ".cursor", ".devcontainer", ".envrc", ".idea",
	".mcp.json", ".npmrc", ".pre-commit-config.yaml", ".vscode",
}

// The protected paths of a git directory, and of what git keeps of a worktree
// (gitrepository-layout(5)). Where commondir leads, hooks and configuration are
// read, in a plain repository too.
var (
	protectedInRepo     = []string{"hooks", "config", "config.worktree", "commondir", "info/attributes"}
	protectedInWorktree = []string{"config.worktree", "commondir", "gitdir"}
)

// ProtectedPaths are the protected paths of a project's tree, with where links lead.
func ProtectedPaths(t Tree) []string { return t.withLinks(namedPaths(t)) }

// ProtectedInGitDir are the protected paths of a worktree's git directory.
func ProtectedInGitDir(g GitDir) []string { return g.withLinks(namedInGitDir(g)) }

func (t Tree) withLinks(paths []string) []string {
	for _, l := range t.Links {
		if l.To != "" {
			paths = append(paths, l.To)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func namedPaths(t Tree) []string {
	out := slices.Clone(protectedNames)
	for _, r := range append([]string{".git"}, t.Repos...) {
		out = append(out, inRepo(r)...)
	}
	out = append(out, inWorktrees(t.Worktrees)...)
	out = append(out, t.Whole...)
	return append(out, t.Obeyed...)
}

func namedInGitDir(g GitDir) []string {
	out := inRepo(".")
	for _, r := range g.Repos {
		out = append(out, inRepo(r)...)
	}
	// The other worktrees are none of this one's business.
	out = append(out, "worktrees")
	out = append(out, inWorktrees([]string{g.Own})...)
	out = append(out, g.Whole...)
	return append(out, g.Obeyed...)
}

func inRepo(dir string) []string {
	out := make([]string, len(protectedInRepo))
	for i, name := range protectedInRepo {
		out[i] = path.Join(dir, name)
	}
	return out
}

func inWorktrees(dirs []string) []string {
	var out []string
	for _, d := range dirs {
		for _, name := range protectedInWorktree {
			out = append(out, path.Join(d, name))
		}
	}
	return out
}

// Kinds of placeholder.
const (
	PlaceholderDir  = "directory"
	PlaceholderFile = "file"
)

// PlaceholderFor says what keeps a protected path from being made. git dies of a
// directory in the place of config.worktree (with extensions.worktreeConfig), and
// complains of others; it lives with empty files.
func PlaceholderFor(p string) string {
	switch path.Base(p) {
	case "config", "config.worktree", "attributes", "commondir", "gitdir":
		return PlaceholderFile
	}
	return PlaceholderDir
}

// PlaceholderContent is what a placeholder that is a file holds: an empty commondir
// makes git die, and this one leads to where it lies.
func PlaceholderContent(p string) string {
	if path.Base(p) == "commondir" {
		return "."
	}
	return ""
}

// protection is what is mounted for the protected paths of a writable project.
type protection struct {
	mounts []Mount
	unheld []string // host paths
	notes  []string // for Unusual
	// guarded are the host paths that no other mount may show writable: also where
	// the project is read-only, and nothing has to be mounted for it, and where a
	// worktree's git directory can't be mounted.
	guarded []string
}

// protect makes the mounts over the project that is mounted at target, and over
// the git directory of a worktree. lift are the paths that the user gave free.
func protect(in Input, target string) (protection, error) {
	f := in.Facts
	var p protection
	if f.Project == "" && len(in.Unprotect) == 0 {
		return p, nil
	}
	lift, err := checkLifts(in.Unprotect, f)
	if err != nil {
		return p, err
	}
	f.Tree.Root = f.Project
	var would protection
	would.cover(f.Tree, target, namedPaths(f.Tree), lift, "")
	p.guard(would, f.Tree, lift)
	if !in.ReadOnly {
		p.mounts, p.unheld, p.notes = would.mounts, would.unheld, would.notes
		for _, n := range f.Tree.Notes {
			p.notes = append(p.notes, "NOT HELD: "+n)
		}
	}
	note := f.GitNote
	if g := f.Git; g != nil {
		if note = unseen(g.Root); note == "" && (Touches(f.Project, g.Root) || Touches(target, g.Root)) {
			// Mounted after the project it would hide the project's mounts, and what is
			// protected there would be seen in it, writable.
			note = fmt.Sprintf("the project lies in it (%s), where nothing of it would be protected; use git on this machine, or a worktree beside it", Quote(g.Root))
		}
		if note != "" {
			note = "the git directory of this worktree is not mounted: " + note
		}
	}
	if g := f.Git; g != nil && note == "" {
		// It is seen at its own path: what leads to it is absolute.
		p.mounts = append(p.mounts, Mount{Kind: KindBind, Source: g.Root, Target: g.Root, ReadOnly: in.ReadOnly, Relabel: f.SELinux, Why: WhyGitDir})
	}
	if g := f.Git; g != nil {
		var would protection
		would.cover(g.Tree, g.Root, namedInGitDir(*g), append(lift, lifted{path: ".git/" + g.Own, below: true}), ".git/")
		p.guard(would, g.Tree, lift)
		if note == "" && !in.ReadOnly {
			p.mounts = append(p.mounts, would.mounts...)
			p.unheld = append(p.unheld, would.unheld...)
			p.notes = append(p.notes, would.notes...)
		}
	}
	if note != "" {
		p.notes = append(p.notes, "GIT: "+note)
	}
	for _, l := range lift {
		if in.ReadOnly {
			break
		}
		p.notes = append(p.notes, "UNPROTECTED: "+Quote(l.path)+": what the command leaves there, tools on this machine run or obey")
	}
	return p, nil
}

// guard adds what no other mount may show writable of a tree that would be so covered.
func (p *protection) guard(would protection, t Tree, lift []lifted) {
	for _, m := range would.mounts {
		if m.Why == WhyProtected {
			p.guarded = append(p.guarded, m.Source)
		}
	}
	p.guarded = append(p.guarded, outside(t, lift)...)
}

// over puts the mounts after the project's.
func (p protection) over(mounts []Mount) []Mount {
	i := slices.IndexFunc(mounts, func(m Mount) bool { return m.Why == WhyProject }) + 1
	return slices.Insert(mounts, i, p.mounts...)
}

// reachedAgain refuses a writable mount that would show the project, or something
// protected in it, a second time: there it could be changed.
func (p protection) reachedAgain(mounts []Mount, project string) error {
	var errs []error
	for _, m := range mounts {
		switch {
		case m.Kind != KindBind, m.ReadOnly, m.Why == WhyProject, m.Why == WhyGitDir, m.Why == WhyHeld:
			continue
		case project != "" && isOrIn(project, m.Source):
			errs = append(errs, fmt.Errorf("the mount of %s at %s is writable and shows the project a second time, where nothing of it is protected; mount it read-only", Quote(m.Source), Quote(m.Target)))
			continue
		}
		if i := slices.IndexFunc(p.guarded, func(path string) bool { return Touches(path, m.Source) }); i >= 0 {
			errs = append(errs, fmt.Errorf("the mount of %s at %s is writable and leads to %s, which is protected in the project; mount it read-only, or see --unprotect", Quote(m.Source), Quote(m.Target), Quote(p.guarded[i])))
		}
	}
	return errors.Join(errs...)
}

// unguarded are the sentences on the writable directories that are not the
// project's: neither protection nor what is told at the end covers them.
func (in Input) unguarded() []string {
	var out []string
	for _, m := range in.Mounts {
		if !m.Writable || !m.Dir || in.Facts.Project != "" && !in.ReadOnly && isOrIn(m.Source, in.Facts.Project) {
			continue
		}
		out = append(out, "UNPROTECTED: nothing is protected in the mount of "+Quote(m.Source)+", and what changes there is not told at the end")
	}
	return out
}

// unseen says why a host directory can't be mounted at its own path, or "".
func unseen(dir string) string {
	if err := checkProjectPath(dir); err != nil {
		return fmt.Sprintf("its path %s can't be mounted as it is", Quote(dir))
	}
	if block := hides(dir); block != "" {
		return fmt.Sprintf("its path %s would hide %s of the sandbox", Quote(dir), block)
	}
	return ""
}

// A lifted path is free: with all that is protected in it, or as a part of what is
// protected.
type lifted struct {
	path  string
	below bool
}

// checkLifts refuses what is not protected.
func checkLifts(paths []string, f Facts) ([]lifted, error) {
	var out []lifted
	all := ProtectedPaths(f.Tree)
	found := maps.Clone(f.Tree.Found)
	if f.Git != nil {
		for _, p := range ProtectedInGitDir(*f.Git) {
			all = append(all, path.Join(".git", p))
		}
		for p, what := range f.Git.Found {
			found[path.Join(".git", p)] = what
		}
	}
	for _, p := range paths {
		clean := path.Clean(p)
		whole := clean != "." && slices.ContainsFunc(all, func(a string) bool { return within(a, clean) })
		part := slices.ContainsFunc(all, func(a string) bool { return within(clean, a) })
		switch {
		case whole:
			out = append(out, lifted{path: clean})
		case part && (found[clean] == FoundDir || found[clean] == FoundEmpty || found[clean] == FoundFile):
			out = append(out, lifted{path: clean, below: true})
		case part:
			return nil, About(fmt.Errorf("unprotect %s: there is no such file or directory, and what it would lie in is read-only; make it first, or give all of that free", Quote(p)), "unprotect="+p)
		default:
			return nil, About(fmt.Errorf("unprotect %s: it is not protected; of these one can be given free: %s", Quote(p), strings.Join(append([]string{".git"}, all...), ", ")), "unprotect="+p)
		}
	}
	return out, nil
}

// outside are the host paths that links lead to, but for those that are given free.
func outside(t Tree, lift []lifted) []string {
	var out []string
	for _, l := range t.Links {
		if l.Outside != "" && !isFree(l.Path, lift) {
			out = append(out, l.Outside)
		}
	}
	return out
}

// isFree tells whether the user gave a protected path free.
func isFree(name string, lift []lifted) bool {
	return slices.ContainsFunc(lift, func(l lifted) bool { return !l.below && within(name, l.path) })
}

// within tells whether a relative path is dir or lies below it.
func within(p, dir string) bool { return p == dir || dir == "." || strings.HasPrefix(p, dir+"/") }

// cover adds the mounts for one tree that is seen at target. prefix is what its
// paths begin with for the user.
func (p *protection) cover(t Tree, target string, paths []string, lift []lifted, prefix string) {
	c := cover{protection: p, Tree: t, target: target, prefix: prefix, writable: map[string]bool{}}
	want := map[string]bool{} // by path: read-only?
	for _, name := range paths {
		if !isFree(prefix+name, lift) {
			want[name] = true
		}
	}
	for _, l := range t.Links {
		if l.To != "" && !isFree(l.Path, lift) && !isFree(prefix+l.To, lift) {
			want[l.To] = true
		}
	}
	for _, l := range lift {
		if name, ok := strings.CutPrefix(l.path, prefix); ok && l.below {
			want[name] = false
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(want), byComponents) {
		for _, step := range steps(name) {
			if !c.step(step, step == name, want[name]) {
				break
			}
		}
	}
}

// A cover is the making of one tree's mounts.
type cover struct {
	*protection
	Tree
	target, prefix string
	// writable are the paths that are mounted, or can't be.
	writable map[string]bool
}

// step mounts one step of the way to a path, and tells whether there is something
// to be mounted below it.
func (c *cover) step(step string, last, readOnly bool) bool {
	what := c.Found[step]
	dir := what == FoundDir || what == FoundEmpty
	writable, mounted := c.writable[step]
	switch {
	case mounted && (!last || writable != readOnly):
		return dir
	case !c.liesInWritable(step) && (!last || readOnly):
		return dir // it is read-only already
	case what == FoundShut:
	case what == FoundLink || what == FoundOther:
		c.writable[step] = false
		c.unheld = append(c.unheld, path.Join(c.Root, step))
		c.notes = append(c.notes, fmt.Sprintf("NOT HELD: %s is a %s, which can't be mounted over: inside, it can be replaced; a change is named at the end", Quote(c.prefix+step), what))
	case what == "" && last:
		placeholder := PlaceholderFor(step)
		if slices.Contains(c.Files, step) {
			placeholder = PlaceholderFile
		}
		c.add(step, placeholder, true)
	case what == "":
		c.add(step, PlaceholderDir, true)
	case last:
		c.add(step, "", readOnly)
		if readOnly && slices.Contains(c.Linked, step) {
			c.notes = append(c.notes, fmt.Sprintf("NOT HELD: %s has another name, by a hard link: where that is writable inside, it can be changed there; a change is named at the end", Quote(c.prefix+step)))
		}
	case what == FoundDir:
		c.add(step, "", false)
		return true
	default:
		// A file, as a worktree's .git is, or a directory with nothing in it: there
		// is nothing in it to leave free.
		c.add(step, "", true)
	}
	return false
}

// liesInWritable tells what a path gets from what it lies in.
func (c *cover) liesInWritable(p string) bool {
	for p != "." {
		p = path.Dir(p)
		if w, ok := c.writable[p]; ok {
			return w
		}
	}
	return true
}

func (c *cover) add(p, placeholder string, readOnly bool) {
	c.writable[p] = !readOnly
	why := WhyHeld
	if readOnly {
		why = WhyProtected
	}
	c.mounts = append(c.mounts, Mount{Kind: KindBind, Source: path.Join(c.Root, p), Target: path.Join(c.target, p),
		ReadOnly: readOnly, Placeholder: placeholder, Why: why})
}

// steps are a path and what it lies in, from above.
func steps(name string) []string {
	var out []string
	for i, c := range name {
		if c == '/' {
			out = append(out, name[:i])
		}
	}
	return append(out, name)
}

// byComponents sorts parents before what is below them.
func byComponents(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// protected shows the protected paths: those of the project by themselves, others
// whole.
func (b *page) protected(p Policy) {
	var readOnly, barred, held []string
	for _, m := range p.Mounts {
		name := m.Source
		if below, ok := strings.CutPrefix(name, p.Project+"/"); ok {
			name = below
		}
		switch {
		case m.Why == WhyProtected && m.Placeholder != "":
			barred = append(barred, Quote(name))
		case m.Why == WhyProtected:
			readOnly = append(readOnly, Quote(name))
		case m.Why == WhyHeld:
			held = append(held, Quote(name))
		}
	}
	if len(readOnly)+len(barred) == 0 {
		return
	}
	b.WriteString("\nprotected in the project, since tools on this machine run or obey it\n")
	if len(readOnly) > 0 {
		b.field("  read-only", readOnly...)
	}
	if len(barred) > 0 {
		b.field("  barred", append(barred, strings.Fields("(not there: an empty placeholder until the end keeps them from being made)")...)...)
	}
	if len(held) > 0 {
		b.field("  held", append(held, strings.Fields("(writable, and can't be renamed)")...)...)
	}
}
