// A run, and the printouts of one.

package cli

import (
	"cmp"
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
	"ai-sandbox/image/truststore"
	"ai-sandbox/policy"
)

// printOptions start nothing.
var printOptions = []string{"print_policy", "dry_run", "print_entrypoint", "print_containerfile"}

func (a *app) run(inv Invocation, flagLayer []config.Item) error {
	look := slices.ContainsFunc(printOptions, func(key string) bool { return isOn(flagLayer, key) })
	why := forRun
	if look {
		why = forLook
	}
	s, err := a.prepare(flagLayer, why)
	if err == nil {
		err = a.start(inv, s, look)
	}
	var ran *exitError
	if err == nil || look || errors.As(err, &ran) {
		return err
	}
	// Refused before the run: the report says so, instead of an earlier run's.
	for _, it := range flagLayer {
		if it.Key == "report" && it.Value != "" {
			path := it.Value
			if !filepath.IsAbs(path) {
				path = filepath.Join(a.cwd, path)
			}
			return errors.Join(err, a.engine.Refused(cmp.Or(a.project, a.cwd), path, errors.New(a.text(err.Error()))))
		}
	}
	return err
}

// start runs the command, or prints what it would be.
func (a *app) start(inv Invocation, s setup, look bool) error {
	p, plan, err := a.policy(inv, s)
	if err != nil {
		return err
	}
	req := a.request(s, p)
	req.Report = a.path(s.settings, "report", s.Facts.Home)
	req.Keep = s.settings.Bool("keep")
	if look {
		return a.print(s, req, plan)
	}
	a.tell(p)
	for _, e := range p.Env {
		if e.From == policy.FromHarness {
			a.notef("%s is passed to %s, which needs it", e.Name, p.Harness)
		}
	}
	code, err := a.engine.Run(a.ctx, req)
	switch {
	case err == nil && code == 0:
		return nil
	case err != nil && code == 0:
		code = exitFailed
	}
	return &exitError{code: code, err: err}
}

// tell says what of a policy has to be known before it holds.
func (a *app) tell(p policy.Policy) {
	for _, u := range p.Loud() {
		a.warnf("%s", u)
	}
	for _, n := range p.Limits.Notes() {
		a.notef("%s", n)
	}
	switch {
	case p.Project == "":
		a.notef("%s", p.WorkdirNote)
	case p.WorkdirNote != "" && a.workspace == "": // which nobody expects anywhere
		a.notef("the project is %s", p.WorkdirNote)
	}
}

// request is the run of a policy.
func (a *app) request(s setup, p policy.Policy) RunRequest {
	s.UpstreamAuth = a.auth
	return RunRequest{Machine: s.Machine, Policy: p, Image: s.image, Values: a.values, Redact: a.redact}
}

// policy decides what the run may do.
func (a *app) policy(inv Invocation, s setup) (policy.Policy, ImagePlan, error) {
	h := harness.Generic
	if inv.Harness != "" {
		var ok bool
		if h, ok = harness.Lookup(inv.Harness); !ok {
			return policy.Policy{}, ImagePlan{}, fmt.Errorf("harness %s is unknown", quote(inv.Harness))
		}
	}
	in := policy.Input{
		Facts: policy.Facts{
			Project: s.Facts.Project.Path, RuntimeDir: s.Facts.Dirs.Runtime(),
			SELinux: s.Facts.SELinux, EnvSet: a.env.Has, Limits: s.Facts.LimitFacts(),
		},
		Runtime: s.settings.Text("runtime"), Harness: inv.Harness, Command: inv.Args,
		Net: s.settings.Text("net"), Engine: s.settings.Text("gate_engine"), GateName: s.settings.Text("gate"),
		ReadOnly: s.settings.Text("fs") == "ro", ExtraCA: s.image.CA != nil,
		KeepRoot: s.settings.Bool("insecure_keep_root"),
		Env:      s.settings.Values("env"), Limits: limits(s.settings),
		// A workspace that ends with the sandbox has no home to come back to.
		EphemeralHome: s.settings.Bool("ephemeral_home") || a.workspace != "",
		Hold:          inv.Verb != "" && h.Name == "" && len(inv.Args) == 0,
	}
	var errs []error
	var err error
	if in.EnvFile, err = a.readEnvFiles(s.settings["env_file"], s.Facts.Home); err != nil {
		errs = append(errs, err)
	}
	if err := a.throughUpstream(&in, s); err != nil {
		errs = append(errs, err)
	}
	secrets := slices.Clone(in.Env)
	if h.Bridge {
		secrets = append(secrets, s.settings.Text("pi_token_env"))
	}
	a.hide(secrets, in.EnvFile, h.Token != "")
	if in.NoCwd = s.settings.Bool("no_cwd"); s.settings.Text("workdir") != workdirAuto {
		in.Workdir = s.settings.Text("workdir")
	}
	if in.NoCwd {
		in.Facts.Project = ""
		if a.project != a.workspace { // up was given one
			errs = append(errs, fmt.Errorf("no_cwd (from %s) mounts no project, and %s was named as one; drop the directory, or use --no-cwd=false", s.settings["no_cwd"][0].Origin, quote(a.project)))
		}
	}
	if err := look(&in, s.Facts.Home, s.settings.Values("unprotect")); err != nil {
		errs = append(errs, err)
	}
	if in.GateName == "" || in.Runtime != policy.RuntimeLocal { // else it is refused below
		if in.Allow, in.AllowPrivate, err = a.lists(s, in.Net, in.GateName); err != nil {
			errs = append(errs, err)
		}
	}
	if in.Publish, in.PublishAddr, err = s.publish(); err != nil {
		errs = append(errs, err)
	}
	var loggedIn bool
	if in.Runtime == policy.RuntimeLocal {
		loggedIn = a.harness(&in, s, h)
	} else {
		loggedIn = a.login(&in, s, h)
	}
	vars := vars(in)
	if h.Name != "" {
		if v, ok := vars[h.BaseURL]; ok && v == "" && h.Keyed.Args != nil {
			a.notef("%s does not read %s, and is told what --env %[2]s=ADDRESS says; passed by name it leads nowhere", h.Name, h.BaseURL)
		}
		if loggedIn && h.Keyed.Args != nil { // by the file, which counts as it does outside
			for _, name := range h.Credentials {
				delete(vars, name)
			}
		}
		level := a.level(s, h)
		in.Command = h.Argv(inv.Args, level, vars)
		if as := h.Reasons(inv.Args, level, vars); as != "" {
			in.Thinking = &policy.Thinking{Level: level, As: as}
		}
	}
	a.unthinking(s, h, in)
	needs := hostsOf(h, inv.Args, vars)
	if h.Bridge {
		if needs, err = a.bridge(&in, s, h, inv.Args, loggedIn); err != nil {
			errs = append(errs, err)
		}
	}
	if err := a.mounts(&in, s); err != nil {
		errs = append(errs, err)
	}
	var plan ImagePlan
	if in.Runtime == policy.RuntimeLocal {
		if in.Facts.Local, err = localFacts(s, h); err != nil {
			errs = append(errs, err)
		}
	} else {
		if err := inImage(h, s.image.Harnesses); err != nil {
			errs = append(errs, err)
		}
		if s.settings.Bool("bind_harness_home") {
			errs = append(errs, policy.About(errors.New("bind_harness_home is for the local runtime; drop it, or use the runtime local"), "bind_harness_home", "runtime"))
		}
		if plan, err = a.engine.Image(s.image); err != nil {
			errs = append(errs, err)
		}
		in.Image = plan.Image
	}
	p, err := policy.Resolve(in)
	if err == nil {
		p.Settings = given(s.settings) // before it is seen whether all of it can be shown
		err = errors.Join(a.settle(p, s, in.EnvFile), a.unsteered(p), s.learns(p))
	}
	if err != nil {
		errs = append(errs, err)
	} else if err := host.CheckPoints(p.Mounts); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return policy.Policy{}, ImagePlan{}, placed(s.settings, errors.Join(errs...))
	}
	if p.Runtime == policy.RuntimePodman {
		text, err := a.engine.Ruleset(p)
		if err != nil {
			return policy.Policy{}, ImagePlan{}, err
		}
		p = p.WithRuleset(text)
	}
	if p.Net.Gated() && !p.Net.Learn && len(p.Net.Allow)+len(p.Net.AllowPrivate) == 0 {
		a.notef("the allowlist is empty, so the gate refuses every host; --allow HOST lets one through")
	}
	a.suggest(p, needs)
	return p, plan, nil
}

// given are the settings of a run that are not as they are built in.
func given(s config.Settings) []policy.Setting {
	var out []policy.Setting
	for _, o := range config.Options {
		one := policy.Setting{Key: o.Key, Values: []string{}}
		for _, it := range s[o.Key] {
			if it.Origin != config.BuiltIn {
				one.Values = append(one.Values, it.Value)
			}
		}
		slices.Sort(one.Values) // listed in another order it is the same policy
		if o.Use&config.UseConfig != 0 && len(one.Values) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// imageOptions say something about an image, which the local runtime has none of.
var imageOptions = []string{"base", "base_ttl_days", "base_auto_update", "base_pull_fallback", "node_version", "node_mirror",
	"harness_packages", "apt", "setup"}

// inImage refuses a harness that the image has not.
func inImage(h harness.Harness, set []string) error {
	switch {
	case h.Name == "", slices.Contains(set, h.Name):
		return nil
	case h.Package == "":
		return fmt.Errorf("podman's image has no %s, and npm has no package of it; use --runtime local with one that is installed on this machine", h.Name)
	}
	return fmt.Errorf("podman's image has no %s; use --harness-packages %s (harness_packages in a file), or --runtime local with one that is installed on this machine",
		h.Name, strings.Join(append(slices.Clone(set), h.Name), ","))
}

// harness adds what an agent gets of the user's home, and what its own home in
// the jail starts with.
func (a *app) harness(in *policy.Input, s setup, h harness.Harness) (loggedIn bool) {
	return a.access(in, h, harness.BindInput{
		Home: s.Facts.Home, Project: in.Facts.Project, Workdir: in.Place(), WholeHome: s.settings.Bool("bind_harness_home"),
		// Pi's has the keys of all providers, and it is given one by a variable.
		Login: s.settings.Text("credentials") == "host" || s.settings.Text("credentials") == "" && !h.Bridge,
	})
}

// login is the same for podman: nothing of the user's home, but for the file with the
// login where that is asked for.
func (a *app) login(in *policy.Input, s setup, h harness.Harness) (loggedIn bool) {
	asked := s.settings.Text("credentials") == "host"
	loggedIn = a.access(in, h, harness.BindInput{Home: s.Facts.Home, Workdir: in.Place(), Login: asked, Container: true})
	if asked && !loggedIn && h.Name != "" {
		a.notef("there is no file with a login of %s in your home; it is not logged in", h.Name)
	}
	return loggedIn
}

func (a *app) access(in *policy.Input, h harness.Harness, from harness.BindInput) (loggedIn bool) {
	from.Exists = func(path string) (isDir, ok bool) {
		info, err := os.Lstat(path)
		return err == nil && info.IsDir(), err == nil && (info.IsDir() || info.Mode().IsRegular())
	}
	access := h.Binds(from)
	in.Binds, in.Loud = access.Binds, access.Loud
	for _, l := range access.Links {
		in.Links = append(in.Links, policy.HomeLink{Path: l.Path, To: l.To})
	}
	a.seed(in, h, access.Links)
	for _, n := range access.Notes {
		a.notef("%s", n)
	}
	return access.LoggedIn
}

// seed is what an agent's own home in the sandbox starts with.
func (a *app) seed(in *policy.Input, h harness.Harness, links []harness.Link) {
	value := func(name string) string { return a.valueOf(*in, name) }
	for _, f := range h.Seeds(in.Place(), links, value) {
		in.Seeds = append(in.Seeds, policy.HomeSeed{Path: f.Path, Mode: uint32(f.Mode.Perm()), Content: f.Content})
	}
}

// vars are the variables that the user passes to an agent.
func vars(in policy.Input) harness.Vars {
	out := harness.Vars{}
	for _, s := range in.EnvFile {
		out[s.Name()] = ""
	}
	for _, e := range in.Env {
		name, value, _ := strings.Cut(e, "=")
		out[name] = value
	}
	return out
}

// localFacts are what the local runtime stands on.
func localFacts(s setup, h harness.Harness) (policy.LocalFacts, error) {
	f := policy.LocalFacts{System: host.SystemMounts(), Homes: filepath.Join(s.Facts.Dirs.State, "homes")}
	var errs []error
	if h.Name != "" {
		install, err := host.FindTool(s.Facts, h.Command[0])
		switch {
		case errors.Is(err, host.ErrNoTool) && h.Package != "":
			errs = append(errs, fmt.Errorf("%s is not installed on this machine, and the local runtime has no image; install it (npm install -g %s), or use --runtime podman", h.Command[0], h.Package))
		case errors.Is(err, host.ErrNoTool):
			errs = append(errs, fmt.Errorf("%s is not installed on this machine, and the local runtime has no image; install it", h.Command[0]))
		case err != nil:
			errs = append(errs, err)
		}
		f.Tools, f.ToolPath = install.Mounts, install.Path
	}
	for _, key := range imageOptions {
		for _, it := range s.settings[key] {
			if it.Origin != config.BuiltIn {
				errs = append(errs, fmt.Errorf("%s (from %s) is about an image, and the local runtime has none; drop it, or use --runtime podman", key, it.Origin))
			}
		}
	}
	if s.image.CA != nil {
		bundle, err := systemCAs()
		if err != nil {
			errs = append(errs, err)
		}
		f.ExtraCA = s.image.CA.PEM()
		f.CABundle = append(bundle, f.ExtraCA...)
		if f.TrustStore, err = truststore.New(f.CABundle); err != nil {
			errs = append(errs, policy.About(err, "ca_file"))
		}
	}
	return f, errors.Join(errs...)
}

// systemCAs are the machine's own CA certificates, where Debian and Fedora have
// them.
func systemCAs() ([]byte, error) {
	for _, path := range []string{policy.CABundle, "/etc/pki/tls/certs/ca-bundle.crt"} {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the machine's CA certificates: %w", err)
		}
		return data, nil
	}
	return nil, policy.About(errors.New("this machine has no bundle of CA certificates to add ca_file to; install ca-certificates, or drop ca_file"), "ca_file")
}

// lists are the allowlists that count: the settings', or a named gate's own.
func (a *app) lists(s setup, net, gate string) (allow, private []policy.Entry, err error) {
	allow, private, err = s.lists()
	if err != nil {
		return nil, nil, err
	}
	var flag string
	for _, key := range []string{"allow", "allow_private"} {
		for _, it := range s.settings[key] {
			if strings.HasPrefix(it.Origin, "--") {
				flag = it.Origin
			}
		}
	}
	switch {
	case net == policy.NetNone && flag != "":
		a.warnf("%s has no effect with --net none: nothing can be reached", flag)
	case net == policy.NetHost && flag != "":
		a.warnf("%s has no effect with --net host: everything can be reached", flag)
	case gate != "" && flag != "":
		return nil, nil, fmt.Errorf("the list of gate %s is its own; give %s to \"gate up\" or \"gate reload\" instead", quote(gate), flag)
	case gate != "":
		n, err := a.engine.GateNet(s.Machine, gate)
		return n.Allow, n.AllowPrivate, policy.About(err, "gate")
	}
	return allow, private, nil
}

// print writes what was asked for to stdout.
func (a *app) print(s setup, req RunRequest, plan ImagePlan) error {
	var out strings.Builder
	req.Policy = req.Policy.Redacted(a.redact)
	format := s.settings.Text("print_policy")
	dry := s.settings.Bool("dry_run")
	if format == "json" {
		text, err := req.Policy.JSON()
		if err != nil {
			return err
		}
		out.Write(text)
	} else if format == "text" || dry {
		out.WriteString(req.Policy.Text())
	}
	if dry {
		sections, err := a.engine.DryRun(req)
		if err != nil {
			return err
		}
		for _, sec := range sections {
			fmt.Fprintf(&out, "\n--- %s ---\n%s\n", sec.Title, strings.TrimRight(sec.Text, "\n"))
		}
	}
	if s.settings.Bool("print_entrypoint") {
		if req.Policy.Runtime == policy.RuntimeLocal {
			return errors.New("the local runtime installs no ruleset: its network has no device; drop --print-entrypoint, or use --runtime podman")
		}
		for _, line := range req.Policy.Ruleset {
			out.WriteString(line + "\n")
		}
	}
	if s.settings.Bool("print_containerfile") {
		if req.Policy.Runtime == policy.RuntimeLocal {
			return errors.New("the local runtime has no image; drop --print-containerfile, or use --runtime podman")
		}
		out.WriteString(plan.Containerfile)
	}
	_, err := fmt.Fprint(a.Out, out.String())
	if err != nil {
		return fmt.Errorf("write the printout: %w", err)
	}
	return nil
}
