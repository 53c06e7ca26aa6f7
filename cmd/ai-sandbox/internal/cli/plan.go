// From flags, environment, files and facts to what a verb acts on.

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// setup is what every verb that does something starts from.
type setup struct {
	Machine
	settings config.Settings
	image    ImageRequest
}

// A purpose says how much of the machine has to be right.
type purpose int

const (
	// forRun needs all of it.
	forRun purpose = iota
	// forLook only prints: the machine may lack what a run needs.
	forLook
	// forBuild mounts no project, and makes what a run in this one would stand on.
	forBuild
	// forVerb has nothing to do with a project.
	forVerb
	// forClean neither, and what the machine lacks is no reason to leave the rest.
	forClean
)

// prepare puts the settings together and judges the machine.
func (a *app) prepare(flagLayer []config.Item, why purpose) (setup, error) {
	facts, err := a.probe(why == forBuild || why >= forVerb, a.withoutProject(flagLayer))
	if err != nil {
		return setup{}, err
	}
	settings, err := a.settings(facts, flagLayer, why < forVerb)
	if err != nil {
		return setup{}, err
	}
	if cache := a.path(settings, "cache_dir", facts.Home); cache != "" {
		facts.Dirs.Cache = host.Resolve(cache)
	}
	if settings.Bool("no_cwd") {
		facts.Project = host.Dir{}
	}
	runtime := settings.Text("runtime")
	verdicts := host.CheckProject(facts)
	if why != forLook {
		facts = host.ProbeTools(facts, runtime)
		if why != forClean {
			verdicts = host.Check(facts, runtime)
		}
		if why != forClean && runtime == policy.RuntimeLocal && settings.Text("gate_engine") == policy.EngineSquid {
			verdicts = append(verdicts, host.CheckSquid(facts))
		}
	}
	if err := refuse(verdicts); err != nil {
		return setup{}, err
	}
	return a.setup(facts, settings)
}

// setup is what settings come to on a machine.
func (a *app) setup(facts host.Facts, settings config.Settings) (setup, error) {
	s := setup{
		Machine:  Machine{Facts: facts, Environ: a.env, Runtime: settings.Text("runtime"), Std: a.std, Out: a.Out, Err: a.Err, Hide: a.text, HideIn: a.kept},
		settings: settings,
	}
	var err error
	if s.Retention, err = retention(settings); err != nil {
		return setup{}, err
	}
	if s.image, err = imageRequest(settings, facts); err != nil {
		return setup{}, err
	}
	if ca := a.path(settings, "ca_file", facts.Home); ca != "" {
		if s.image.CA, err = readCA(ca); err != nil {
			return setup{}, placed(settings, policy.About(err, "ca_file"))
		}
	}
	if s.image.Setup, err = a.setupScript(settings, facts); err != nil {
		return setup{}, err
	}
	if ring := a.path(settings, "node_keyring", facts.Home); ring != "" {
		keys, err := readKeyring(ring)
		if err != nil {
			return setup{}, placed(settings, policy.About(err, "node_keyring"))
		}
		s.image.Keyring, s.image.Verify = keys, func(ctx context.Context, list, signature []byte) (string, error) {
			return host.VerifySignature(ctx, facts, keys, list, signature)
		}
	}
	return s, nil
}

// probe gathers the facts and judges where this was started. With anyDir that
// may be where no run can be; with noProject nothing is mounted, wherever it was.
func (a *app) probe(anyDir, noProject bool) (host.Facts, error) {
	in := a.input(cmp.Or(a.project, a.cwd))
	in.Workspace, in.AnyDir, in.NoProject, in.ConfigFile = a.workspace, anyDir, noProject, a.userFile()
	facts, err := host.Probe(in)
	if err != nil {
		return host.Facts{}, err
	}
	// Before the user's file is read: where it lies is part of the verdict.
	return facts, refuse(host.CheckProject(facts))
}

func (a *app) input(cwd string) host.Input {
	dirs := a.env.Dirs(host.UserHome())
	return host.Input{
		Cwd: cwd, Env: a.env,
		Config: dirs.Config, State: dirs.State, Cache: dirs.Cache, Runtime: dirs.Runtime, Home: dirs.Home,
		FileVars: fileVars(),
	}
}

// fileVars are the variables that name a file or directory.
func fileVars() []string {
	var out []string
	for _, o := range config.Options {
		if o.In(config.InEnv) && (o.Kind == config.Path || o.Kind == config.Script) {
			out = append(out, o.Env())
		}
	}
	return out
}

func (a *app) userFile() string {
	return filepath.Join(a.env.Dirs(host.UserHome()).Config, config.FileName)
}

// settings puts together what was said, with project also in the project's file.
// It refuses one that a run may not obey. Where the user's own word is that there is
// no project, nothing of it is read.
func (a *app) settings(facts host.Facts, flagLayer []config.Item, project bool) (config.Settings, error) {
	own, ownErr := a.own(flagLayer)
	// What is wrong in it is reported below: a profile may be in the project's file.
	if s, _ := own.Settle(); s.Bool("no_cwd") {
		facts.Project = host.Dir{}
	}
	project = project && facts.Project.Path != "" && !isOn(flagLayer, "ignore_project_config")
	l, settings, err := a.layers(own, ownErr, facts, project)
	if err == nil && project {
		err = a.obey(l, facts)
	}
	if err == nil {
		err = a.stayOutside(settings, facts)
	}
	return settings, err
}

// notObeyed are the options that name a file or directory from which ai-sandbox takes
// nothing: one is shown inside, and one is written.
var notObeyed = []string{"agents_dir", "report"}

// stayOutside refuses a file or directory that ai-sandbox obeys where a sandbox
// writes, whoever named it: what the command leaves there, the next run would trust.
// A script that the project's file names is trusted by its content.
func (a *app) stayOutside(s config.Settings, facts host.Facts) error {
	var errs []error
	dirs := a.written(s, facts)
	for _, o := range config.Options {
		path := a.path(s, o.Key, facts.Home)
		if path == "" || o.Kind != config.Path && o.Kind != config.Script || slices.Contains(notObeyed, o.Key) {
			continue
		}
		it, fix := s[o.Key][0], "keep it elsewhere"
		if o.Kind == config.Script {
			if it.FromProject() {
				continue
			}
			fix += ", or name it in the project's " + config.ProjectFile + " and trust that"
		}
		i := slices.IndexFunc(dirs, func(d string) bool { return host.Through(path, d) })
		if i < 0 {
			continue
		}
		where := policy.Quote(dirs[i])
		if dirs[i] == facts.Project.Path {
			where = "the project"
		}
		errs = append(errs, &config.Error{
			Origin: it.Origin, Text: o.Key + " leads into " + where + ", where a sandboxed command can change it", Fix: fix,
		})
	}
	return errors.Join(errs...)
}

// written are the directories in which a sandbox writes, this one or another:
// resolved, and the project first.
func (a *app) written(s config.Settings, facts host.Facts) []string {
	var dirs []string
	for _, d := range []string{facts.Project.Path, protect.Worktree(facts.Project.Path), facts.Dirs.State, facts.Dirs.Store} {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	for _, it := range s["mount"] {
		if e, err := policy.ParseMount(it.Value); err == nil && e.Writable {
			dirs = append(dirs, host.Resolve(a.source(e, facts)))
		}
	}
	for _, d := range harness.Writable(s.Bool("bind_harness_home")) {
		dirs = append(dirs, host.Resolve(filepath.Join(facts.Home, d)))
	}
	return dirs
}

// own reads what the user said: in his file, the environment and flags.
func (a *app) own(flagLayer []config.Item) (config.Layers, error) {
	var err1, err2 error
	l := config.Layers{Flags: flagLayer}
	l.User, err1 = config.ReadFile(a.userFile())
	l.Env, err2 = config.FromEnviron(a.env)
	return l, errors.Join(err1, err2)
}

// layers adds the project's file to what the user said, and reports every problem
// in all of it.
func (a *app) layers(l config.Layers, ownErr error, facts host.Facts, project bool) (config.Layers, config.Settings, error) {
	var err error
	if project {
		l.Project, err = config.ReadProject(facts.Project.Path, facts.Project.Dev, facts.Project.Ino)
	}
	a.heard(l)
	a.inProject = l.Project
	settings, settleErr := l.Settle()
	return l, settings, errors.Join(ownErr, err, settleErr)
}

// unsteered refuses what the sandbox could write and ai-sandbox obeys: by such a
// place the next run would be led to another configuration. Where the project is
// concerned, host.CheckProject has done that before anything was read.
func (a *app) unsteered(p policy.Policy) error {
	in := a.input("")
	for _, m := range p.Mounts {
		if m.Kind != policy.KindBind || m.ReadOnly {
			continue
		}
		for _, path := range []string{a.userFile(), in.Config, in.State, in.Cache, in.Runtime} {
			if host.Through(path, m.Source) {
				return fmt.Errorf("%s would be writable inside, and ai-sandbox's own %s leads there; mount it read-only", quote(m.Source), quote(path))
			}
		}
	}
	return nil
}

// isOn tells whether a switch is among the flags.
func isOn(flagLayer []config.Item, key string) bool {
	return slices.ContainsFunc(flagLayer, func(it config.Item) bool { return it.Key == key && it.Value != "false" && it.Value != "0" })
}

// machine is for what knows the rest from a sandbox's record: it reads no
// settings.
func (a *app) machine() (Machine, error) {
	in := a.input(a.cwd)
	in.AnyDir = true
	facts, err := host.Probe(in)
	if err != nil {
		return Machine{}, err
	}
	if err := refuse(host.CheckProject(facts)); err != nil {
		return Machine{}, err
	}
	return Machine{Facts: facts, Environ: a.env, Std: a.std, Out: a.Out, Err: a.Err, Hide: a.text, HideIn: a.kept}, nil
}

// refuse is the error of all problems at once, or nil.
func refuse(list []host.Verdict) error {
	var errs []error
	for _, v := range host.Problems(list) {
		errs = append(errs, errors.New(v.Problem))
	}
	return errors.Join(errs...)
}

// path is the value of a Path option, absolute, or "".
func (a *app) path(s config.Settings, key, home string) string {
	p := s.Text(key)
	if p == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(home, rest)
	}
	if !filepath.IsAbs(p) {
		return filepath.Join(a.cwd, p)
	}
	return filepath.Clean(p)
}

const maxCA = 4 << 20

// readCA reads CA certificates, and takes nothing that is not one.
func readCA(path string) (image.CA, error) {
	bad := func(why string) error {
		return fmt.Errorf("ca_file %s %s; name a file of CA certificates in PEM form", quote(path), why)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bad("does not exist")
	case err != nil:
		return nil, fmt.Errorf("read ca_file: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxCA:
		return nil, bad("is not a file of at most 4 MiB")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	ca, err := image.ParseCA(data)
	if err != nil {
		return nil, bad(err.Error())
	}
	return ca, nil
}

// entries parses a list of the allowlist's grammar, and names where a bad entry
// stands.
func entries(items []config.Item) ([]policy.Entry, error) {
	var out []policy.Entry
	var errs []error
	for _, it := range items {
		e, err := policy.ParseEntry(it.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (from %s)", err, it.Origin))
			continue
		}
		out = append(out, e)
	}
	return out, errors.Join(errs...)
}

// lists are the allowlists that the settings name.
func (s setup) lists() (allow, private []policy.Entry, err error) {
	allow, err1 := entries(s.settings["allow"])
	private, err2 := entries(s.settings["allow_private"])
	return allow, private, errors.Join(err1, err2)
}
