// What the user mounts beside the project: the grammar of --mount, where each
// mount is seen inside, and what is refused.

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MountGrammar is what an entry of --mount looks like.
const MountGrammar = "SRC[:DST][:ro|rw]"

// MountsDir is where a mount is inside whose place is in the home, and which
// can't be mounted there (see homeMount). Links in the home lead to it.
const MountsDir = "/run/aisb-mounts"

// Why of the mounts of this file.
const (
	WhyMount   = "--mount"
	WhyExtra   = "--harness-extra"
	WhyAgents  = "your agents directory, live"
	WhyScratch = "scratch space, empty at first and gone with the run; as large as --disk says, 2 GiB at most"
	WhyMasked  = "a unix socket is there, which is masked"
)

// DefaultAgentsDest is where the agents directory is inside, unless said
// otherwise.
const DefaultAgentsDest = HomeDir + "/.agents"

// A MountEntry is one entry of --mount as it was written.
type MountEntry struct {
	// Source is a host path; it may be relative, or begin with "~/".
	Source string
	// Target is the place inside, absolute and clean, or "" for the same path.
	Target string
	// Writable is false unless the entry ends with ":rw".
	Writable bool
}

// ParseMount reads an entry. Both paths are taken as they are, byte for byte; a
// colon can't be in either.
func ParseMount(s string) (MountEntry, error) {
	bad := func(format string, a ...any) (MountEntry, error) {
		return MountEntry{}, fmt.Errorf("mount %s "+format+"; write "+MountGrammar+", where a colon can't be in a path",
			append([]any{Quote(s)}, a...)...)
	}
	var e MountEntry
	parts := strings.Split(s, ":")
	switch last := parts[len(parts)-1]; {
	case len(parts) == 1:
	case last == "ro" || last == "rw":
		e.Writable = last == "rw"
		parts = parts[:len(parts)-1]
	}
	if len(parts) > 2 {
		return bad("has a third part that is neither ro nor rw")
	}
	e.Source = parts[0]
	if len(parts) == 2 {
		e.Target = parts[1]
		if err := checkTarget(e.Target); err != nil {
			return bad("has a place inside that %w", err)
		}
	}
	switch {
	case e.Source == "":
		return bad("has no source")
	case !utf8.ValidString(e.Source) || strings.ContainsRune(e.Source, 0):
		return bad("has a source that is not valid UTF-8")
	}
	return e, nil
}

// checkTarget judges the form of a path inside.
func checkTarget(p string) error {
	switch {
	case !path.IsAbs(p):
		return errors.New("is not absolute")
	case path.Clean(p) != p:
		return fmt.Errorf("is not clean (%s)", Quote(path.Clean(p)))
	case !utf8.ValidString(p) || strings.ContainsRune(p, 0):
		return errors.New("is not valid UTF-8")
	case strings.Contains(p, ":"):
		return errors.New("holds a colon")
	}
	return nil
}

// An Identity is a file's, as the host saw it when the policy was decided
// (stat(2)); the zero value is none.
type Identity struct{ Dev, Ino uint64 }

// A BindRequest is a host path that is to be seen inside, resolved and found fit
// to be mounted.
type BindRequest struct {
	// Source is absolute, and without symlinks.
	Source string
	Dir    bool
	ID     Identity
	// Target is the place inside, or "" for the same path.
	Target   string
	Writable bool
	// Why is what asks for it, WhyMount if it is "".
	Why string
	// Origin says where it was asked for ("--mount", "config:3").
	Origin string
	// Sockets are the unix sockets below Source, as absolute host paths.
	Sockets []string
}

// An Agents is what an Input says about the agents directory.
type Agents struct {
	// Bind is the directory, or nil when there is none to show.
	Bind *BindRequest
	// Dest is where it goes.
	Dest string
	// Never are the directories, resolved, that no writable mount may touch:
	// also when they are not shown.
	Never []string
}

// MaxSockets bounds the sockets that are masked in one run: each is a mount.
const MaxSockets = 64

// workdir is where the command starts, and why that is not the project's own
// path when it isn't.
func (in Input) workdir() (dir, note string, err error) {
	switch {
	case in.NoCwd && in.Workdir != "":
		return "", "", About(fmt.Errorf("there is no project to be at workdir %s with no_cwd; drop one of them", Quote(in.Workdir)), "workdir", "no_cwd")
	case in.NoCwd:
		return FallbackDir, "no project is mounted (no_cwd); " + FallbackDir + " is empty scratch space, gone with the run", nil
	case in.Workdir == "":
		dir, note = Workdir(in.Facts.Project)
		return dir, note, nil
	}
	if err := checkTarget(in.Workdir); err != nil {
		return "", "", About(fmt.Errorf("workdir %s %w; name an absolute path, as /work/shop, or auto", Quote(in.Workdir), err), "workdir")
	}
	if block := hides(in.Workdir); block != "" {
		return "", "", About(fmt.Errorf("workdir %s would hide %s of the sandbox; name another, or auto", Quote(in.Workdir), block), "workdir")
	}
	if in.Workdir != in.Facts.Project {
		note = fmt.Sprintf("mounted at %s, as workdir says", in.Workdir)
	}
	return in.Workdir, note, nil
}

// Place is where the command starts; "" where that is refused.
func (in Input) Place() string {
	dir, _, err := in.workdir()
	if err != nil {
		return ""
	}
	return dir
}

// project is the mount that the command works in.
func (in Input) project(workdir string, limits Limits) Mount {
	if in.NoCwd {
		size := min(limits.DiskBytes.Value/mib, 2048) * mib
		return Mount{Kind: KindTmpfs, Target: workdir, SizeBytes: size, Mode: "1777", Why: WhyScratch}
	}
	return Mount{Kind: KindBind, Source: in.Facts.Project, Target: workdir, ReadOnly: in.ReadOnly,
		Relabel: in.Facts.SELinux && in.Runtime == RuntimePodman, Why: WhyProject, ID: in.Facts.ProjectID}
}

// extraMounts adds the user's mounts and the agents directory to the list, and
// masks the sockets in all of it. What is added has its parents before it.
func extraMounts(in Input, list []Mount, home *Home) ([]Mount, error) {
	var errs []error
	relabel := in.Facts.SELinux && in.Runtime == RuntimePodman
	wins := false
	for _, r := range in.Mounts {
		m := Mount{Kind: KindBind, Source: r.Source, Target: r.Target, ReadOnly: !r.Writable, Relabel: relabel, Why: cmp.Or(r.Why, WhyMount), ID: r.ID}
		if m.Target == "" {
			m.Target = m.Source
		}
		if !r.Dir {
			m.Why += ", a file: stays as it is when the host replaces it"
		}
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("mount %s (from %s) "+format, append([]any{Quote(r.Source), r.Origin}, a...)...))
		}
		if err := checkTarget(m.Target); err != nil {
			bad("is at %s, which %w; name another place: SRC:DST", Quote(m.Target), err)
			continue
		}
		inHome := strings.HasPrefix(m.Target, HomeDir+"/")
		if block := hides(m.Target); block != "" && !inHome {
			bad("would hide %s of the sandbox at %s; name another place, as %s:/mnt/%s", block, Quote(m.Target), Quote(r.Source), Quote(path.Base(r.Source)))
			continue
		}
		if m.Target == FallbackDir && in.NoCwd {
			bad("is at %s, where the command works with no_cwd; name another place", FallbackDir)
			continue
		}
		wins = wins || m.Target == in.Agents.Dest
		if inHome {
			var err error
			if m, err = homeMount(m, r.Dir, home); err != nil {
				bad("%w", err)
				continue
			}
		}
		var err error
		if list, err = insert(list, m); err != nil {
			bad("%w", err)
		}
	}
	// Judged also where there is no such directory: tomorrow there may be one.
	err := in.Agents.checkDest()
	if r := in.Agents.Bind; r != nil && !wins && err == nil {
		m := Mount{Kind: KindBind, Source: r.Source, Target: in.Agents.Dest, ReadOnly: true, Relabel: relabel, Why: WhyAgents, ID: r.ID}
		if strings.HasPrefix(m.Target, HomeDir+"/") {
			m, err = homeMount(m, r.Dir, home)
		}
		if err == nil {
			list, err = insert(list, m)
		}
	}
	if err != nil {
		errs = append(errs, About(fmt.Errorf("agents_dest %s %w; name another place, as %s", Quote(in.Agents.Dest), err, DefaultAgentsDest), "agents_dest"))
	}
	errs = append(errs, in.Agents.check(list)...)
	list, err = maskSockets(in, list)
	return list, errors.Join(append(errs, err)...)
}

// checkDest refuses a place that can't be mounted on, or that hides something.
func (a Agents) checkDest() error {
	if a.Dest == "" && a.Bind == nil {
		return nil
	}
	if err := checkTarget(a.Dest); err != nil {
		return err
	}
	if block := hides(a.Dest); block != "" && !strings.HasPrefix(a.Dest, HomeDir+"/") {
		return fmt.Errorf("would hide %s of the sandbox", block)
	}
	return nil
}

// homeMount is a mount whose place is in the home. A directory right below it is
// mounted there. Anything else is mounted below MountsDir, and a link in the home
// leads there: a mount point deeper in a tree that the sandbox writes could be led
// elsewhere by a link of its own, and the directories on the way would not be its
// own. There it has a name that no other place has: a link that an earlier run left
// must not show what this one has.
func homeMount(m Mount, dir bool, home *Home) (Mount, error) {
	rel := strings.TrimPrefix(m.Target, HomeDir+"/")
	point := dir && !strings.Contains(rel, "/")
	if err := home.free(rel, point); err != nil {
		return m, err
	}
	if point {
		home.Points = append(home.Points, rel)
		return m, nil
	}
	m.Why += ", seen at " + Quote(m.Target)
	m.Target = MountsDir + "/" + hash([]byte(rel))[:12]
	home.Links = append(home.Links, HomeLink{Path: rel, To: m.Target})
	return m, nil
}

// free refuses a place that is, holds or lies in another's of which one is a link:
// it would be made in what that one leads to, or in the host's directory.
func (h Home) free(rel string, point bool) error {
	if !point && strings.HasSuffix(rel, OwnSuffix) {
		return fmt.Errorf("is at %s, and %s ends the name of what was there before; name another", Quote(HomeDir+"/"+rel), OwnSuffix)
	}
	taken := ""
	for _, l := range h.Links {
		if l.To != "" && Touches("/"+l.Path, "/"+rel) {
			taken = l.Path
		}
	}
	if i := slices.IndexFunc(h.Points, func(p string) bool { return !point && Touches("/"+p, "/"+rel) }); i >= 0 {
		taken = h.Points[i]
	}
	if taken != "" {
		return fmt.Errorf("is at %s, and something else of this run is at %s; name another place, or drop one of them", Quote(HomeDir+"/"+rel), Quote(HomeDir+"/"+taken))
	}
	return nil
}

// OwnSuffix is on the sandbox's own file while a HomeLink is in its place.
const OwnSuffix = ".own"

// insert puts a mount before the first that lies below it.
func insert(list []Mount, m Mount) ([]Mount, error) {
	at := len(list)
	for i, o := range list {
		if o.Target == m.Target {
			return list, fmt.Errorf("is at %s, where something else is mounted already (%s); name another place", Quote(m.Target), o.Why)
		}
		if at == len(list) && isOrIn(o.Target, m.Target) {
			at = i
		}
	}
	return slices.Insert(slices.Clone(list), at, m), nil
}

// check refuses a writable bind of what the agents directory is, holds or lies
// in: whatever the agent writes there, every agent on the host obeys later.
// Nothing lifts this.
func (a Agents) check(list []Mount) []error {
	var errs []error
	for _, m := range list {
		if m.Kind != KindBind || m.ReadOnly {
			continue
		}
		for _, dir := range a.Never {
			if Touches(m.Source, dir) {
				what := "the mount of " + Quote(m.Source)
				fix := "mount it read-only"
				if m.Why == WhyProject {
					what, fix = "the project "+Quote(m.Source), "mount it read-only (fs ro), or use another directory"
				}
				errs = append(errs, fmt.Errorf("%s can be written and is, holds or lies in the agents directory %s, which every agent obeys; %s", what, Quote(dir), fix))
				break
			}
		}
	}
	return errs
}

// Touches tells whether one of two paths is, holds or lies in the other.
func Touches(a, b string) bool { return isOrIn(a, b) || isOrIn(b, a) }

// maskSockets covers each unix socket that one of the mounts would show: a
// read-only bind does not stop connect(2), and no rule of the network sees it.
func maskSockets(in Input, list []Mount) ([]Mount, error) {
	sockets := slices.Clone(in.Facts.Sockets)
	for _, r := range in.Mounts {
		sockets = append(sockets, r.Sockets...)
	}
	if in.Agents.Bind != nil {
		sockets = append(sockets, in.Agents.Bind.Sockets...)
	}
	slices.Sort(sockets)
	sockets = slices.Compact(sockets)
	var masks []Mount
	for _, m := range list {
		if m.Kind != KindBind || m.Why == WhyGate || m.Why == WhyControl {
			continue
		}
		for _, s := range sockets {
			if !isOrIn(s, m.Source) || s == m.Source {
				continue
			}
			target := m.Target + strings.TrimPrefix(s, m.Source)
			if !utf8.ValidString(target) {
				return list, fmt.Errorf("the unix socket %s would be seen inside, and its name is not valid UTF-8, so it can't be masked; move it away", Quote(s))
			}
			if top, ok := Above(list, target); ok && top.Target == m.Target {
				masks = append(masks, Mount{Kind: KindBind, Source: "/dev/null", Target: target, ReadOnly: true, Why: WhyMasked})
			}
		}
	}
	if len(masks) > MaxSockets {
		return list, fmt.Errorf("more than %d unix sockets would be seen inside, %s among them; move them away, or mount less", MaxSockets, Quote(masks[0].Target))
	}
	return append(list, masks...), nil
}

// Above is the mount that a path inside lies below, the closest and of those the
// last.
func Above(list []Mount, target string) (Mount, bool) {
	var found Mount
	ok := false
	for _, m := range list {
		if m.Target != target && isOrIn(target, m.Target) && (!ok || len(m.Target) >= len(found.Target)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// isOrIn tells whether a path is dir or lies below it.
func isOrIn(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
