// The verb update.

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// exitUnknown: a check could not be made, so neither of its answers is right.
const exitUnknown = 2

var updateVerb = &verb{
	name:  "update",
	about: "Ask for the newest base, Node, harness and packages, and build the images.",
	use:   config.UseBuild,
	flags: []ownFlag{
		{name: "check", usage: "only say what would change"},
		{name: "json", usage: "write it as JSON"},
		verboseFlag,
	},
	examples: []string{"ai-sandbox update", "ai-sandbox update --check --json"},
	exit: [][2]string{
		{"0", "done; with --check: nothing would change"},
		{"1", "ai-sandbox failed; with --check: something would change"},
		{"2", "the command line makes no sense; with --check: also that ai-sandbox failed"},
	},
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		check, asJSON := slices.Contains(inv.Own, "check"), slices.Contains(inv.Own, "json")
		s, err := a.prepare(flagLayer, forBuild)
		if err != nil {
			return updated(a.Out, imagebuild.Outcome{}, err, check, asJSON)
		}
		out, err := a.engine.Update(a.ctx, BuildRequest{Machine: s.Machine, Image: s.image, Verbose: slices.Contains(inv.Own, verboseFlag.name)}, check)
		return updated(a.Out, out, err, check, asJSON)
	},
}

// updated writes what came of an update, and makes its exit code.
func updated(w io.Writer, out imagebuild.Outcome, err error, check, asJSON bool) error {
	switch {
	case err != nil: // nothing to write
	case asJSON:
		err = writeJSON(w, out)
	default:
		err = writeOutcome(w, out)
	}
	var sig *SignalError
	switch {
	case !check, errors.As(err, &sig):
		return err
	case err != nil:
		return &exitError{code: exitUnknown, err: err}
	case len(out.Changes) > 0:
		return &exitError{code: exitVerbFailed}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s\n", b); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// writeOutcome is a line a change. Names and versions are those of registries.
func writeOutcome(w io.Writer, o imagebuild.Outcome) error {
	var errs []error
	line := func(format string, args ...any) {
		_, err := fmt.Fprintln(w, policy.Printable(fmt.Sprintf(format, args...)))
		errs = append(errs, err)
	}
	for _, n := range o.Notes {
		line("# %s", n)
	}
	for _, c := range o.Changes {
		where := ""
		if c.Image != "" {
			where = " (" + string(c.Image) + ")"
		}
		switch {
		case c.From == "":
			line("%-8s %s%s: new, %s", c.Kind, c.Name, where, c.To)
		case c.To == "":
			line("%-8s %s%s: %s, gone", c.Kind, c.Name, where, c.From)
		default:
			line("%-8s %s%s: %s -> %s", c.Kind, c.Name, where, c.From, c.To)
		}
	}
	if len(o.Changes) == 0 {
		line("nothing is newer than what is there")
	}
	for _, kind := range []image.Kind{image.KindSandbox, image.KindGate} {
		if id, ok := o.Images[kind]; ok {
			line("%s %s", id.Ref, id.ID)
		}
	}
	return errors.Join(errs...)
}
