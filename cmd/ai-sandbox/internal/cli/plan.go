// From flags, environment, files and facts to what a verb acts on.

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
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
	// forVerb mounts no project.
	forVerb
)

// prepare puts the settings together and judges the machine.
func (a *app) prepare(flagLayer []config.Item, why purpose) (setup, error) {
	dirs := a.env.Dirs(host.UserHome())
	file := filepath.Join(dirs.Config, config.FileName)
	facts, err := host.Probe(host.Input{
		Cwd: cmp.Or(a.project, a.cwd), Workspace: a.workspace, Env: a.env, AnyDir: why == forVerb,
		Config: dirs.Config, State: dirs.State, Cache: dirs.Cache, Runtime: dirs.Runtime, Home: dirs.Home,
		ConfigFile: file,
	})
	if err != nil {
		return setup{}, err
	}
	// Before the user's file is read: where it lies is part of the verdict.
	if err := refuse(host.CheckProject(facts)); err != nil {
		return setup{}, err
	}
	fileLayer, err1 := config.ReadFile(file)
	envLayer, err2 := config.FromEnviron(a.env)
	settings, err3 := config.Settle(fileLayer, envLayer, flagLayer)
	if err := errors.Join(err1, err2, err3); err != nil {
		return setup{}, err
	}
	if cache := a.path(settings, "cache_dir", dirs.Home); cache != "" {
		facts.Dirs.Cache = host.Resolve(cache)
	}
	runtime := settings.Text("runtime")
	verdicts := host.CheckProject(facts)
	if why != forLook {
		facts = host.ProbeTools(facts, runtime)
		verdicts = host.Check(facts, runtime)
		if runtime == policy.RuntimeLocal && settings.Text("gate_engine") == policy.EngineSquid {
			verdicts = append(verdicts, host.CheckSquid(facts))
		}
	}
	if err := refuse(verdicts); err != nil {
		return setup{}, err
	}
	if _, err := os.Lstat(filepath.Join(facts.Project.Path, ".ai-sandbox", "config")); err == nil {
		a.notef("the project's .ai-sandbox/config is not read by this version")
	}
	s := setup{
		Machine:  Machine{Facts: facts, Environ: a.env, Runtime: runtime, In: a.In, Out: a.Out, Err: a.Err},
		settings: settings,
		image: ImageRequest{
			Base: settings.Text("base"), NodeVersion: settings.Text("node_version"), NodeMirror: settings.Text("node_mirror"),
			CacheDir: facts.Dirs.Cache, StateDir: facts.Dirs.State,
		},
	}
	if ca := a.path(settings, "ca_file", dirs.Home); ca != "" {
		if s.image.CA, err = readCA(ca); err != nil {
			return setup{}, err
		}
	}
	return s, nil
}

// machine is for what knows the rest from a sandbox's record: it reads no
// settings.
func (a *app) machine() (Machine, error) {
	dirs := a.env.Dirs(host.UserHome())
	facts, err := host.Probe(host.Input{
		Cwd: a.cwd, Env: a.env, AnyDir: true,
		Config: dirs.Config, State: dirs.State, Cache: dirs.Cache, Runtime: dirs.Runtime, Home: dirs.Home,
	})
	if err != nil {
		return Machine{}, err
	}
	if err := refuse(host.CheckProject(facts)); err != nil {
		return Machine{}, err
	}
	return Machine{Facts: facts, Environ: a.env, In: a.In, Out: a.Out, Err: a.Err}, nil
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
