// The verb doctor: the preflight of a run, all of it, good and bad.

package cli

import (
	"errors"
	"fmt"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
)

var doctorVerb = &verb{
	name:     "doctor",
	about:    "Check that this machine can run a sandbox, and say how to mend it.",
	examples: []string{"ai-sandbox doctor"},
	use:      config.UseDoctor,
	exit:     [][2]string{{"0", "everything that is needed is there"}, {"1", "something that is needed is not"}, {"2", "the command line makes no sense"}},
	action: func(a *app, _ Invocation, flagLayer []config.Item) error {
		in := a.input(a.cwd)
		in.AnyDir, in.ConfigFile = true, a.userFile()
		facts, err := host.Probe(in)
		if err != nil {
			return err
		}
		settings, err := a.settings(facts, flagLayer, true)
		file := host.Verdict{Name: "project's file", Detail: "none, or a run may obey it"}
		var not *untrusted
		if errors.As(err, &not) {
			file.Problem, file.Fix = not.Error()+"; "+not.Hint(), not.command()
			settings, err = a.settings(facts, flagLayer, false)
		}
		if err != nil {
			return err
		}
		runtime := settings.Text("runtime")
		if cache := a.path(settings, "cache_dir", facts.Home); cache != "" {
			facts.Dirs.Cache = host.Resolve(cache)
		}
		images, err := imageRequest(settings, facts)
		if err != nil {
			return err
		}
		facts = host.ProbeTools(facts, "")
		verdicts := append(host.Doctor(facts, runtime), file)
		if len(host.Problems(verdicts)) == 0 {
			verdicts = append(verdicts, a.engine.Doctor(a.ctx, Machine{Facts: facts, Environ: a.env, Runtime: runtime, Std: a.std, Out: a.Out, Err: a.Err, Hide: a.text, HideIn: a.kept}, images)...)
		}
		fmt.Fprint(a.Out, doctorText(verdicts))
		if n := len(host.Problems(verdicts)); n > 0 {
			return &exitError{code: exitVerbFailed, err: fmt.Errorf("%d of %d checks failed; a run would be refused", n, len(verdicts))}
		}
		return nil
	},
}

func doctorText(list []host.Verdict) string {
	var b strings.Builder
	for _, v := range list {
		state, text := "ok", v.Detail
		switch {
		case v.Info && !v.OK(): // of a runtime that was not chosen
			state, text = "-", v.Problem
		case !v.OK():
			state, text = "FAIL", v.Problem
		}
		fmt.Fprintf(&b, "%-5s%-18s %s\n", state, v.Name, text)
		if !v.OK() && !v.Info && v.Fix != "" {
			fmt.Fprintf(&b, "     %-18s %s\n", "  fix:", v.Fix)
		}
	}
	return b.String()
}
