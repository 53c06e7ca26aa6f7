// From the settings about files to what policy.Resolve takes: each path resolved
// once, judged, and looked through for unix sockets.

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// workdirAuto is --workdir's word for its default.
const workdirAuto = "auto"

// withoutProject tells whether a flag or the variable says so. A file's word comes
// too late: before it is read, it has to be known that it does not lie in the
// project.
func (a *app) withoutProject(flagLayer []config.Item) bool {
	env, _ := config.FromEnviron(a.env) // what is wrong in it is reported with the files
	s, _ := config.Resolve(env, flagLayer)
	return s.Bool("no_cwd")
}

// mounts adds the project, the user's mounts and the agents directory. It comes
// after the harness, whose binds are looked through as well.
func (a *app) mounts(in *policy.Input, s setup) error {
	f := s.Facts
	if in.NoCwd {
		f.Project = host.Dir{}
	}
	if p := f.Project; p.Path != "" {
		in.Facts.ProjectID = policy.Identity{Dev: p.Dev, Ino: p.Ino}
	}
	var errs []error
	sources := make([]host.Source, 0, len(s.settings["mount"]))
	written := a.written(s.settings, f)
	for _, it := range s.settings["mount"] {
		r, src, err := a.mountEntry(it, f, written)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (from %s)", err, it.Origin))
			continue
		}
		in.Mounts, sources = append(in.Mounts, r), append(sources, src)
	}
	for _, it := range s.settings["harness_extra"] {
		r, src, err := a.extra(it, in.Harness, f, written)
		if err != nil {
			errs = append(errs, fmt.Errorf("harness_extra %s: %w (from %s)", quote(it.Value), err, it.Origin))
			continue
		}
		in.Mounts, sources = append(in.Mounts, r), append(sources, src)
	}
	agents, err := a.agents(in, s, written)
	if err != nil {
		errs = append(errs, err)
	}

	// What is refused whatever is in it is not looked through: it may be the whole machine.
	in.Mounts, sources, errs = fitting(f, in.Mounts, sources, errs)
	// One look at all the trees.
	trees := []string{}
	add := func(path string) int { trees = append(trees, path); return len(trees) - 1 }
	var project []int
	if f.Project.Path != "" {
		project = append(project, add(f.Project.Path))
	}
	for _, b := range in.Binds {
		project = append(project, add(b.Source))
	}
	if g := in.Facts.Git; g != nil { // of a worktree
		project = append(project, add(g.Root))
	}
	first := len(trees)
	for _, m := range in.Mounts {
		add(m.Source)
	}
	if in.Agents.Bind != nil {
		add(in.Agents.Bind.Source)
	}
	sockets, err := host.Sockets(trees...)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, i := range project {
		in.Facts.Sockets = append(in.Facts.Sockets, sockets[i]...)
	}
	if f.Project.Path != "" {
		if special := f.SpecialIn(f.Project.Path, sockets[project[0]]); special != nil {
			errs = append(errs, fmt.Errorf("the project %s would show %s (%s); move that elsewhere", quote(f.Project.Path), special.What, quote(special.Path)))
		}
	}
	for i := range in.Mounts {
		in.Mounts[i].Sockets = sockets[first+i]
	}
	in.Mounts, _, errs = fitting(f, in.Mounts, sources, errs)
	for _, m := range in.Mounts {
		if f.Secret(m.Source) {
			in.Loud = append(in.Loud, fmt.Sprintf("CREDENTIALS: %s is in a place where programs keep keys and tokens, and the command can read it", policy.Quote(m.Source)))
		}
	}
	if in.Agents.Bind != nil {
		in.Agents.Bind.Sockets = sockets[len(sockets)-1]
		if p := host.MountProblem(f, "agents_dir", agents, false, in.Agents.Bind.Sockets); p != "" {
			errs = append(errs, policy.About(fmt.Errorf("%s, or switch agents off", p), "agents_dir"))
		}
	}
	return errors.Join(slices.Concat(errs, sameAsAgents(*in), sameAsProject(*in))...)
}

// fitting are the mounts that nothing speaks against, with their sources; policy has
// nothing to add to what is refused here.
func fitting(f host.Facts, mounts []policy.BindRequest, sources []host.Source, errs []error) ([]policy.BindRequest, []host.Source, []error) {
	var fit []policy.BindRequest
	var of []host.Source
	for i, m := range mounts {
		if p := host.MountProblem(f, "mount", sources[i], m.Writable, m.Sockets); p != "" {
			errs = append(errs, fmt.Errorf("%s (from %s)", p, m.Origin))
			continue
		}
		fit, of = append(fit, m), append(of, sources[i])
	}
	return fit, of, errs
}

// mountEntry reads one entry of --mount. written are the directories in which a
// sandbox writes.
func (a *app) mountEntry(it config.Item, f host.Facts, written []string) (policy.BindRequest, host.Source, error) {
	e, err := policy.ParseMount(it.Value)
	if err != nil {
		return policy.BindRequest{}, host.Source{}, err
	}
	path := a.source(e, f)
	if !filepath.IsAbs(e.Source) && e.Source[0] != '~' && !strings.HasPrefix(it.Origin, "--") {
		return policy.BindRequest{}, host.Source{}, fmt.Errorf("mount %s has a source that is not absolute; begin it with / or ~/", quote(e.Source))
	}
	src, err := host.FindSource(path)
	if err != nil {
		return policy.BindRequest{}, host.Source{}, fmt.Errorf("mount %s: %w", quote(e.Source), reason(err))
	}
	if err := unled("mount", path, src.Path, written); err != nil {
		return policy.BindRequest{}, host.Source{}, err
	}
	return policy.BindRequest{Source: src.Path, Dir: src.Dir, ID: src.ID, Target: e.Target, Writable: e.Writable, Origin: it.Origin}, src, nil
}

// unled refuses a source that a link leads out of where a sandbox writes: the
// command could lead the next run's mount anywhere, and no setting would have
// changed. It is judged by what was resolved, which is what will be mounted.
func unled(what, path, real string, written []string) error {
	for _, d := range written {
		if host.Through(path, d) && d != real && !strings.HasPrefix(real, d+"/") {
			return fmt.Errorf("%s %s is reached by a symbolic link in %s, where the command can lead it anywhere; name the directory itself, not the link", what, quote(path), quote(d))
		}
	}
	return nil
}

// source is an entry's host path, absolute and not resolved.
func (a *app) source(e policy.MountEntry, f host.Facts) string {
	rest, ok := strings.CutPrefix(e.Source, "~/")
	switch {
	case ok, e.Source == "~":
		return filepath.Join(f.Home, strings.TrimPrefix(rest, "~"))
	case filepath.IsAbs(e.Source):
		return e.Source
	}
	return filepath.Join(a.cwd, e.Source)
}

// reason leaves the path away, which is said already.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s does not exist; make it first, or drop it", quote(p.Path))
		}
		return fmt.Errorf("%s: %w", quote(p.Path), p.Err)
	}
	return err
}

// agents finds the agents directory. The user's own that is not there, or that
// can't be read, is no error unless it was named.
func (a *app) agents(in *policy.Input, s setup, written []string) (host.Source, error) {
	standard := filepath.Join(s.Facts.Home, ".agents")
	dir, named := standard, false
	if d := a.path(s.settings, "agents_dir", s.Facts.Home); d != "" {
		dir, named = d, true
	}
	in.Agents.Dest = s.settings.Text("agents_dest")
	for _, d := range []string{standard, dir} {
		in.Agents.Never = append(in.Agents.Never, host.Links(d)...)
	}
	if !s.settings.Bool("agents") {
		return host.Source{}, nil
	}
	for _, it := range s.settings["agents"] {
		named = named || strings.HasPrefix(it.Origin, "--")
	}
	src, err := host.FindSource(dir)
	if err == nil && !src.Dir {
		err = errors.New("is not a directory")
	}
	if err == nil {
		var d *os.File
		if d, err = os.Open(src.Path); err == nil {
			d.Close()
		}
	}
	switch {
	case err != nil && named:
		why := err.Error()
		var p *os.PathError
		switch {
		case errors.Is(err, os.ErrNotExist):
			why = "does not exist"
		case errors.As(err, &p):
			why = "can't be read: " + p.Err.Error()
		}
		return src, policy.About(fmt.Errorf("agents_dir %s %s; name another directory, or switch agents off", quote(dir), why), "agents_dir", "agents")
	case err != nil:
		return src, nil
	case unled("agents_dir", dir, src.Path, written) != nil:
		return src, policy.About(fmt.Errorf("%w, or switch agents off", unled("agents_dir", dir, src.Path, written)), "agents_dir")
	case s.Facts.Secret(src.Path):
		return src, policy.About(fmt.Errorf("agents_dir %s leads to %s, where credentials are; name another directory, or switch agents off", quote(dir), quote(src.Path)), "agents_dir")
	}
	in.Agents.Bind = &policy.BindRequest{Source: src.Path, Dir: true, ID: src.ID, Origin: "agents_dir"}
	return src, nil
}

// sameAsAgents is policy's refusal of a writable mount that touches the agents
// directory, by identity: the host may have bound one on another name.
func sameAsAgents(in policy.Input) []error {
	var sources []string
	if in.Facts.Project != "" && !in.ReadOnly {
		sources = append(sources, in.Facts.Project)
	}
	for _, m := range in.Mounts {
		if m.Writable {
			sources = append(sources, m.Source)
		}
	}
	for _, b := range in.Binds {
		if !b.ReadOnly {
			sources = append(sources, b.Source)
		}
	}
	var errs []error
	for _, dir := range in.Agents.Never {
		for _, src := range sources {
			if !policy.Touches(src, dir) && host.Same(src, dir) { // else policy says it
				errs = append(errs, fmt.Errorf("%s can be written and is, holds or lies in the agents directory %s by another name; mount it read-only", quote(src), quote(dir)))
			}
		}
	}
	return errs
}

// sameAsProject is policy's refusal of a writable mount that shows the project, or
// the git directory of its worktree, a second time, by identity.
func sameAsProject(in policy.Input) []error {
	var dirs []string
	if in.Facts.Project != "" {
		dirs = append(dirs, in.Facts.Project)
	}
	if g := in.Facts.Git; g != nil {
		dirs = append(dirs, g.Root)
	}
	var errs []error
	for _, m := range in.Mounts {
		for _, dir := range dirs {
			if m.Writable && !policy.Touches(m.Source, dir) && host.Same(m.Source, dir) { // else policy says it
				errs = append(errs, fmt.Errorf("mount %s (from %s) is writable and is, holds or lies in %s by another name, where nothing of it is protected; mount it read-only", quote(m.Source), m.Origin, quote(dir)))
			}
		}
	}
	return errs
}
