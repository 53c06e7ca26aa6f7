// Pi's configuration on this machine, for a sandbox.

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/harness/pibridge"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/entrypoint/managed"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// piFiles are pi's two files for a run, from this machine's, which are read and no
// other of pi's; what a run has of variables is in in.
func (a *app) piFiles(in policy.Input, s setup) (r pibridge.Result, token string, files []policy.HomeManaged, err error) {
	from := pibridge.Input{Homes: []string{s.Facts.Home, a.env["HOME"], s.Facts.PasswdHome}, Token: s.settings.Text("pi_token_env")}
	if !policy.ValidEnvName(from.Token) {
		return r, "", nil, fmt.Errorf("pi_token_env %s is not a variable's name; name one", quote(from.Token))
	}
	var err1, err2 error
	from.Models, err1 = host.ReadBelow(s.Facts.Home, pibridge.ModelsFile, pibridge.MaxFile)
	from.Settings, err2 = host.ReadBelow(s.Facts.Home, pibridge.SettingsFile, pibridge.MaxFile)
	if err := errors.Join(err1, err2); err != nil {
		return r, "", nil, fmt.Errorf("%w; mend that, or use --no-pi-config", err)
	}
	if from.Value = a.valueOf(in, from.Token); from.Value == "" {
		from.Value = a.env[from.Token]
	}
	from.Passed = func(name string) bool { return name == from.Token || passes(in, name) }
	if r, err = pibridge.Bridge(from); err != nil {
		return r, "", nil, err
	}
	settings := policy.HomeManaged{Path: pibridge.SettingsFile, Mode: 0o600, Content: r.Settings, None: r.Settings == nil, Keys: true}
	if level := s.settings.Text("thinking"); level != policy.ThinkingHost {
		// What is set for one model would count for more.
		settings.Fixed = []policy.HomeKey{{Key: "defaultThinkingLevel", Value: level}, {Key: "modelThinkingLevels"}}
	}
	files = []policy.HomeManaged{
		{Path: pibridge.ModelsFile, Mode: 0o600, Content: r.Models, None: r.Models == nil},
		settings,
	}
	for i := range files {
		if err := pack(&files[i]); err != nil {
			return r, "", nil, err
		}
	}
	return r, from.Token, files, nil
}

// pack takes the space out of a file of JSON that is too large with it.
func pack(f *policy.HomeManaged) error {
	if len(f.Content) <= spec.MaxManaged {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, f.Content); err != nil {
		return fmt.Errorf("pack ~/%s: %w", f.Path, err)
	}
	if b.Len() > spec.MaxManaged {
		return fmt.Errorf("~/%s would have %d bytes in the sandbox, and %d is the most; take out what is not used, or use --no-pi-config", f.Path, b.Len(), spec.MaxManaged)
	}
	f.Content = b.Bytes()
	return nil
}

// bridge gives pi's home in the sandbox the configuration of this machine, and tells
// what its model needs. loggedIn is that it has its file with keys.
func (a *app) bridge(in *policy.Input, s setup, h harness.Harness, args []string, loggedIn bool) ([]need, error) {
	start := pibridge.Start{
		Provider: harness.Value(args, h.Provider), Model: harness.Value(args, h.Model), Models: harness.Value(args, h.Models),
		Has:      func(name string) bool { return name == in.Token || passes(*in, name) },
		LoggedIn: loggedIn, Resumes: h.Resumes(args),
	}
	needs := func(r pibridge.Result) []need {
		var err error
		if in.Facts.Project != "" && start.Model == "" {
			start.Project, err = host.ReadBelow(in.Facts.Project, pibridge.ProjectSettings, pibridge.MaxFile)
		}
		// Of a file that can't be read, pi will tell.
		if at := r.Address(start); err == nil && at != "" && !h.OwnCommand(args) {
			return []need{needOf(h.Name, at)}
		}
		return nil
	}
	if !s.settings.Bool("pi_config") {
		return needs(pibridge.Result{}), nil
	}
	if slices.ContainsFunc(in.Links, func(l policy.HomeLink) bool { return l.To != "" && within(pibridge.Dir, l.Path) }) {
		a.notef("pi has this machine's own configuration (bind_harness_home), so nothing is brought in, and %s is not passed; --env passes what that names", s.settings.Text("pi_token_env"))
		start.LoggedIn = true // maybe: its files are not read
		return needs(pibridge.Result{}), nil
	}
	r, token, files, err := a.piFiles(*in, s)
	if err != nil {
		return nil, err
	}
	if r.NeedsToken && !loggedIn && !a.env.Has(token) && !passes(*in, token) {
		return nil, fmt.Errorf("pi's providers (~/%s) take their key from %s in a sandbox, and it is unset or empty here; set it, name another variable with --pi-token-env, or use --no-pi-config", pibridge.ModelsFile, token)
	}
	for _, l := range r.Left {
		a.notef("pi in the sandbox is without %s of ~/%s; ai-sandbox inspect --pi tells of all that is another one there", l, pibridge.ModelsFile)
	}
	if r.NeedsToken {
		in.Token = token
	}
	in.Managed = append(in.Managed, files...)
	return needs(r), nil
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// passes tells whether the user passes a variable on.
func passes(in policy.Input, name string) bool {
	return slices.ContainsFunc(in.Env, func(s string) bool { n, _, _ := strings.Cut(s, "="); return n == name }) ||
		slices.ContainsFunc(in.EnvFile, func(s policy.Secret) bool { return s.Name() == name })
}

// valueOf is the value of a variable that the user passes on, or "".
func (a *app) valueOf(in policy.Input, name string) string {
	if i := slices.IndexFunc(in.EnvFile, func(s policy.Secret) bool { return s.Name() == name }); i >= 0 {
		return in.EnvFile[i].Reveal()
	}
	if v, ok := vars(in)[name]; ok {
		return cmp.Or(v, a.env[name])
	}
	return ""
}

// inspectPi prints what is another one inside.
func (a *app) inspectPi(s setup) error {
	if !s.settings.Bool("pi_config") {
		return errors.New("pi_config is false, so nothing of pi's configuration gets into a sandbox")
	}
	in := policy.Input{Env: s.settings.Values("env")}
	var err error
	if in.EnvFile, err = a.readEnvFiles(s.settings["env_file"], s.Facts.Home); err != nil {
		return err
	}
	a.hide(append(slices.Clone(in.Env), s.settings.Text("pi_token_env")), in.EnvFile, true)
	r, _, files, err := a.piFiles(in, s)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range files {
		path := "~/" + f.Path
		if f.None && len(f.Fixed) == 0 {
			fmt.Fprintf(&b, "%s: there is none\n", path)
			continue
		}
		// As a home has it that is new.
		text := managed.Result{File: f.Content}
		if f.Keys {
			fixed := map[string]string{}
			for _, k := range f.Fixed {
				fixed[k.Key] = k.Value
			}
			if text, err = managed.Keys(managed.Input{Host: f.Content}, fixed); err != nil {
				return fmt.Errorf("show %s: %w", path, err)
			}
		}
		fmt.Fprintf(&b, "%s:\n", path)
		for _, c := range r.Changes {
			if c.File != f.Path {
				continue
			}
			if c.Now == "" {
				fmt.Fprintf(&b, "- %s (%s)\n", policy.Printable(c.At), c.Why)
			} else {
				fmt.Fprintf(&b, "~ %s: %s (%s)\n", policy.Printable(c.At), policy.Printable(c.Now), c.Why)
			}
		}
		for _, k := range f.Fixed {
			if k.Value == "" {
				fmt.Fprintf(&b, "- %s (the setting thinking says how much to reason)\n", k.Key)
			} else {
				fmt.Fprintf(&b, "~ %s: %s (the setting thinking says it)\n", k.Key, k.Value)
			}
		}
		for line := range strings.Lines(string(text.File)) {
			fmt.Fprintf(&b, "  %s\n", policy.Printable(strings.TrimRight(line, "\n")))
		}
	}
	if _, err := fmt.Fprint(a.Out, a.text(b.String())); err != nil {
		return fmt.Errorf("write the printout: %w", err)
	}
	return nil
}
