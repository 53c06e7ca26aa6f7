// Pi's configuration on this machine, for a sandbox.

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/harness/pibridge"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/policy"
)

// readPi reads the two files that are bridged, and no other.
func readPi(s setup) (in pibridge.Input, err error) {
	in = pibridge.Input{Home: s.Facts.Home, Token: s.settings.Text("pi_token_env")}
	if !policy.ValidEnvName(in.Token) {
		return in, fmt.Errorf("pi_token_env %s is not a variable's name; name one", quote(in.Token))
	}
	var err1, err2 error
	in.Models, err1 = host.ReadBelow(s.Facts.Home, pibridge.ModelsFile, pibridge.MaxFile)
	in.Settings, err2 = host.ReadBelow(s.Facts.Home, pibridge.SettingsFile, pibridge.MaxFile)
	if err := errors.Join(err1, err2); err != nil {
		return in, fmt.Errorf("%w; mend that, or use --no-pi-config", err)
	}
	return in, nil
}

// bridge gives pi's home in the sandbox the configuration of this machine, and tells
// what its model needs. loggedIn is that it has its file with keys.
func (a *app) bridge(in *policy.Input, s setup, h harness.Harness, args []string, loggedIn bool) ([]need, error) {
	start := pibridge.Start{
		Provider: harness.Value(args, h.Provider), Model: harness.Value(args, h.Model), Models: harness.Value(args, h.Models),
		Has: func(name string) bool { return passes(*in, name) },
	}
	needs := func(r pibridge.Result) []need {
		if at := r.Address(start); at != "" && !h.OwnCommand(args) {
			return []need{needOf(h.Name, at)}
		}
		return nil
	}
	if !s.settings.Bool("pi_config") {
		return needs(pibridge.Result{}), nil
	}
	if slices.ContainsFunc(in.Links, func(l policy.HomeLink) bool { return l.To != "" && within(pibridge.Dir, l.Path) }) {
		a.notef("pi has this machine's own configuration (bind_harness_home), so nothing is brought in, and %s is not passed; --env passes what that names", s.settings.Text("pi_token_env"))
		return needs(pibridge.Result{}), nil
	}
	from, err := readPi(s)
	if err != nil {
		return nil, err
	}
	from.Value = a.env[from.Token]
	from.Passed = func(name string) bool { return name == from.Token || passes(*in, name) }
	r, err := pibridge.Bridge(from)
	if err != nil {
		return nil, err
	}
	if r.NeedsToken && !loggedIn && !a.env.Has(from.Token) && !passes(*in, from.Token) {
		return nil, fmt.Errorf("pi's providers (~/%s) take their key from %s in a sandbox, and it is unset or empty here; set it, name another variable with --pi-token-env, or use --no-pi-config", pibridge.ModelsFile, from.Token)
	}
	if r.NeedsToken {
		in.Token = from.Token
	}
	settings := policy.HomeManaged{Path: pibridge.SettingsFile, Mode: 0o600, Content: r.Settings, None: r.Settings == nil, Keys: true}
	if level := s.settings.Text("thinking"); level != policy.ThinkingHost {
		// What is set for one model would count for more.
		settings.Fixed = []policy.HomeKey{{Key: "defaultThinkingLevel", Value: level}, {Key: "modelThinkingLevels"}}
	}
	in.Managed = append(in.Managed,
		policy.HomeManaged{Path: pibridge.ModelsFile, Mode: 0o600, Content: r.Models, None: r.Models == nil},
		settings,
	)
	return needs(r), nil
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// passes tells whether the user passes a variable on.
func passes(in policy.Input, name string) bool {
	return slices.ContainsFunc(in.Env, func(s string) bool { n, _, _ := strings.Cut(s, "="); return n == name }) ||
		slices.ContainsFunc(in.EnvFile, func(s policy.Secret) bool { return s.Name() == name })
}

// inspectPi prints what is another one inside.
func (a *app) inspectPi(s setup) error {
	if !s.settings.Bool("pi_config") {
		return errors.New("pi_config is false, so nothing of pi's configuration gets into a sandbox")
	}
	from, err := readPi(s)
	if err != nil {
		return err
	}
	from.Value = a.env[from.Token]
	from.Passed = func(name string) bool {
		return name == from.Token || slices.ContainsFunc(s.settings.Values("env"), func(e string) bool { n, _, _ := strings.Cut(e, "="); return n == name })
	}
	r, err := pibridge.Bridge(from)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range []struct {
		path string
		text []byte
	}{{pibridge.ModelsFile, r.Models}, {pibridge.SettingsFile, r.Settings}} {
		path := "~/" + f.path
		if f.text == nil {
			fmt.Fprintf(&b, "%s: there is none\n", path)
			continue
		}
		fmt.Fprintf(&b, "%s:\n", path)
		for _, c := range r.Changes {
			if c.File != f.path {
				continue
			}
			if c.Now == "" {
				fmt.Fprintf(&b, "- %s (%s)\n", policy.Printable(c.At), c.Why)
			} else {
				fmt.Fprintf(&b, "~ %s: %s (%s)\n", policy.Printable(c.At), policy.Printable(c.Now), c.Why)
			}
		}
		for line := range strings.Lines(string(f.text)) {
			fmt.Fprintf(&b, "  %s\n", policy.Printable(strings.TrimRight(line, "\n")))
		}
	}
	if _, err := fmt.Fprint(a.Out, a.text(b.String())); err != nil {
		return fmt.Errorf("write the printout: %w", err)
	}
	return nil
}
