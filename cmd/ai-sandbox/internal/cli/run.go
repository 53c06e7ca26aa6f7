// A run, and the printouts of one.

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/policy"
)

// printOptions start nothing.
var printOptions = []string{"print_policy", "dry_run", "print_entrypoint", "print_containerfile"}

func (a *app) run(inv Invocation, flagLayer []config.Item) error {
	look := false
	for _, it := range flagLayer {
		for _, key := range printOptions {
			look = look || it.Key == key && it.Value != "false"
		}
	}
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
			return errors.Join(err, a.engine.Refused(path, err))
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
	req := RunRequest{
		Machine: s.Machine, Policy: p, Image: s.image, Values: map[string]string{},
		Report: a.path(s.settings, "report", s.Facts.Home),
	}
	for _, e := range p.Env {
		if e.From == policy.FromHost {
			req.Values[e.Name] = a.env[e.Name]
		}
	}
	if look {
		return a.print(s, req, plan)
	}
	if p.WorkdirNote != "" {
		a.notef("the project is %s", p.WorkdirNote)
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

// policy decides what the run may do.
func (a *app) policy(inv Invocation, s setup) (policy.Policy, ImagePlan, error) {
	command := inv.Args
	if inv.Harness != "" {
		h, ok := harness.Lookup(inv.Harness)
		if !ok {
			return policy.Policy{}, ImagePlan{}, fmt.Errorf("harness %s is unknown", quote(inv.Harness))
		}
		command = h.Argv(inv.Args)
	}
	in := policy.Input{
		Facts: policy.Facts{
			Project: s.Facts.Project.Path, RuntimeDir: s.Facts.Dirs.Runtime(),
			SELinux: s.Facts.SELinux, EnvSet: a.env.Has,
		},
		Runtime: s.settings.Text("runtime"), Harness: inv.Harness, Command: command,
		Net: s.settings.Text("net"), GateName: s.settings.Text("gate"),
		EphemeralHome: s.settings.Bool("ephemeral_home"), ExtraCA: s.image.CA != nil,
		Env: s.settings.Values("env"),
	}
	lists := a.lists
	var errs []error
	var err error
	if in.Allow, in.AllowPrivate, err = lists(s, in.Net, in.GateName); err != nil {
		errs = append(errs, err)
	}
	plan, err := a.engine.Image(s.image)
	if err != nil {
		errs = append(errs, err)
	}
	in.Image = plan.Image
	if in.Net == policy.NetNone || in.GateName != "" {
		in.Image.GateRef, in.Image.GateID = "", "" // the run starts none
	}
	p, err := policy.Resolve(in)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return policy.Policy{}, ImagePlan{}, errors.Join(errs...)
	}
	if p.Net.Mode == policy.NetGated && len(p.Net.Allow)+len(p.Net.AllowPrivate) == 0 {
		a.notef("the allowlist is empty, so the gate refuses every host; --allow HOST lets one through")
	}
	return p, plan, nil
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
	case net == policy.NetGated && gate != "" && flag != "":
		return nil, nil, fmt.Errorf("the list of gate %s was fixed when it was made; give %s to \"gate up\" instead", quote(gate), flag)
	case net == policy.NetGated && gate != "":
		n, err := a.engine.GateNet(s.Machine, gate)
		return n.Allow, n.AllowPrivate, err
	}
	return allow, private, nil
}

// print writes what was asked for to stdout.
func (a *app) print(s setup, req RunRequest, plan ImagePlan) error {
	var out strings.Builder
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
		text, err := a.engine.Ruleset(req.Policy)
		if err != nil {
			return err
		}
		out.WriteString(text)
	}
	if s.settings.Bool("print_containerfile") {
		out.WriteString(plan.Containerfile)
	}
	_, err := fmt.Fprint(a.Out, out.String())
	if err != nil {
		return fmt.Errorf("write the printout: %w", err)
	}
	return nil
}
