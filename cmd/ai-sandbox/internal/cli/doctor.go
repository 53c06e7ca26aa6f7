// The verb doctor: the preflight of a run, all of it, good and bad, and what else has
// made one fail; at last, a sandbox is started and looked at from inside.

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/trust"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

var doctorVerb = &verb{
	name:     "doctor",
	about:    "Check that this machine can run a sandbox, and say how to mend it.",
	flags:    []ownFlag{{name: "json", usage: "print JSON; docs/operations.md has its schema"}},
	examples: []string{"ai-sandbox doctor", "ai-sandbox doctor --runtime local --json"},
	use:      config.UseDoctor,
	exit:     [][2]string{{"0", "everything that is needed is there"}, {"1", "something that is needed is not"}, {"2", "the command line makes no sense"}},
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		verdicts, err := a.examine(flagLayer), error(nil)
		if slices.Contains(inv.Own, "json") {
			err = printJSON(a.Out, diagnosis(verdicts))
		} else {
			err = writeText(a.Out, doctorText(verdicts, a.columns()))
		}
		if err != nil {
			return err
		}
		if n := len(host.Problems(verdicts)); n > 0 {
			return &exitError{code: exitVerbFailed, err: fmt.Errorf("%d of %d checks failed; a run would be refused", n, len(verdicts))}
		}
		return nil
	},
}

// examine makes every check. What stands on something that has failed already is not
// tried. Settings that make no sense are a failure of their own, and it goes on with the
// rest of them.
func (a *app) examine(flagLayer []config.Item) []host.Verdict {
	in := a.input(a.cwd)
	in.AnyDir, in.ConfigFile = true, a.userFile()
	facts, err := host.Probe(in)
	if err != nil {
		return []host.Verdict{{Name: "project", Problem: err.Error(), Fix: "cd"}}
	}
	file, obeyed := a.projectFile(facts, flagLayer)
	settings, err := a.settings(facts, flagLayer, obeyed)
	runtime := settings.Text("runtime")
	if cache := a.path(settings, "cache_dir", facts.Home); cache != "" {
		facts.Dirs.Cache = host.Resolve(cache)
	}
	images, err2 := imageRequest(settings, facts)
	said := a.settingsVerdicts(errors.Join(err, err2))
	facts = host.AskTools(facts)
	verdicts := append(append(host.Doctor(facts, runtime), said...), file)
	verdicts = append(append(verdicts, host.Kernels(facts)...), host.CheckClock(host.ReadClock(facts)))
	if runtime == policy.RuntimePodman {
		verdicts = append(verdicts, host.IDMapping(facts))
	}
	verdicts = append(verdicts, a.checkUpstream(settings, facts)...)
	if len(host.Problems(verdicts)) == 0 {
		m := Machine{Facts: facts, Environ: a.env, Runtime: runtime, Std: a.std, Out: a.Out, Err: a.Err, Hide: a.text, HideIn: a.kept}
		verdicts = append(verdicts, a.engine.Doctor(a.ctx, m, images)...)
	}
	if len(host.Problems(verdicts)) == 0 {
		verdicts = append(verdicts, a.tryRun(settings, facts)...)
	}
	return append(verdicts, host.Waiting(verdicts, runtime)...)
}

// projectFile tells what the project's own file is to a run, and whether that obeys it.
func (a *app) projectFile(facts host.Facts, flagLayer []config.Item) (v host.Verdict, obeyed bool) {
	v.Name = "project's file"
	fail := func(err error, fix string) (host.Verdict, bool) {
		v.Problem, v.Fix = err.Error(), fix
		return v, false
	}
	own, _ := a.own(flagLayer) // what is wrong there is told by itself
	if s, _ := own.Settle(); facts.Project.Path == "" || s.Bool("no_cwd") || isOn(flagLayer, "ignore_project_config") {
		v.Detail = "not looked at: there is no project, or none is wanted"
		return v, false
	}
	path := filepath.Join(facts.Project.Path, config.ProjectFile)
	var err error
	if own.Project, err = config.ReadProject(facts.Project.Path, facts.Project.Dev, facts.Project.Ino); err != nil {
		return fail(err, "${EDITOR:-vi} "+quote(path))
	}
	a.heard(own)
	trusted, known, err := trust.In(facts.Dirs.State).Load(facts.Project.Path)
	if err != nil {
		return fail(err, "ai-sandbox trust --revoke")
	}
	var not *untrusted
	if errors.As(a.obey(own, facts), &not) {
		return fail(errors.New(not.Error()+"; "+not.Hint()), not.command())
	}
	switch {
	case len(own.Project.Lines()) == 0:
		v.Detail = "none, or nothing is set in it"
	case trust.Decide(own, trusted, known).Trusted:
		v.Detail = "trusted, and nothing has changed since: a run obeys it"
	default:
		v.Detail = "not trusted, and it only narrows what a run may do: a run obeys it"
	}
	return v, true
}

// settingsVerdicts are a verdict for each thing that is wrong in the settings, or one
// that says that nothing is.
func (a *app) settingsVerdicts(err error) []host.Verdict {
	if err == nil {
		return []host.Verdict{{Name: "settings", Detail: "each that is set makes sense"}}
	}
	var out []host.Verdict
	for _, e := range flatten(err) {
		v := host.Verdict{Name: "settings", Problem: e.Error(), Fix: "ai-sandbox config"}
		var at *config.Error
		switch {
		case !errors.As(e, &at) || strings.HasPrefix(at.Origin, "--"):
		case strings.HasPrefix(at.Origin, "AISB_"):
			v.Fix = "unset " + at.Origin
		case strings.HasPrefix(at.Origin, a.userFile()):
			v.Fix = "${EDITOR:-vi} " + quote(a.userFile())
		}
		out = append(out, v)
	}
	return out
}

// tryRun starts a sandbox in a project of its own, with no setting but those about
// the runtime and the images.
func (a *app) tryRun(settings config.Settings, machine host.Facts) []host.Verdict {
	fail := func(err error) []host.Verdict {
		return []host.Verdict{{Name: "sandbox", Problem: "none can be started: " + err.Error(), Fix: "ai-sandbox --net none -- true"}}
	}
	dir, remove, err := host.TempDir("doctor")
	if err != nil {
		return fail(fmt.Errorf("make a project to try: %w", err))
	}
	defer func() { _ = remove() }() // what stays is clean's
	b := *a
	b.Err = io.Discard // what is said of every run is no news here
	b.project, b.workspace = dir, ""
	facts, err := host.Probe(b.input(dir))
	if err != nil {
		return fail(err)
	}
	s, err := config.Resolve()
	if err != nil {
		return fail(err)
	}
	for _, o := range config.Options {
		if o.Topic == "image" || o.Key == "runtime" {
			s[o.Key] = settings[o.Key]
		}
	}
	for key, value := range map[string]string{"ephemeral_home": "true", "agents": "false"} {
		s[key] = []config.Item{{Key: key, Value: value, Origin: config.BuiltIn}}
	}
	if cache := a.path(settings, "cache_dir", facts.Home); cache != "" {
		facts.Dirs.Cache = host.Resolve(cache)
	}
	// Those that were found with the project that the doctor was started in: it could
	// have programs in the PATH, which are strange to the other one.
	facts.SearchPath, facts.Tools, facts.Kernel, facts.SubUIDs, facts.SubGIDs = machine.SearchPath, machine.Tools, machine.Kernel, machine.SubUIDs, machine.SubGIDs
	facts.Installer = machine.Installer
	facts.Podman, facts.Pasta, facts.Bwrap, facts.Squid = machine.Podman, machine.Pasta, machine.Bwrap, machine.Squid
	set, err := b.setup(facts, s)
	if err != nil {
		return fail(err)
	}
	set.image.KeepBase, set.image.NoPull = true, true // it asks no registry
	p, _, err := b.policy(Invocation{Args: trialCommand(settings.Text("runtime"))}, set)
	if err != nil {
		return fail(err)
	}
	return a.engine.Trial(a.ctx, b.request(set, p), dir)
}

// trialCommand looks from inside at what a run needs: whether a file of the user's is
// the user's inside, and whether the gate answers. What it makes is looked at from
// outside. It is the entrypoint's own, so it needs nothing else of an image.
func trialCommand(runtime string) []string {
	program := image.EntrypointPath
	if runtime == policy.RuntimeLocal {
		program = policy.EntrypointPath
	}
	return []string{program, "try", gate.ReadyHost, gate.ReadyWord}
}

// A check is a verdict as JSON.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Needed: a run would be refused without it.
	Needed  bool   `json:"needed"`
	Detail  string `json:"detail,omitempty"`
	Problem string `json:"problem,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

func diagnosis(list []host.Verdict) any {
	checks := []check{}
	for _, v := range list {
		c := check{Name: v.Name, OK: v.OK(), Needed: !v.Info, Problem: v.Problem}
		if v.OK() {
			c.Detail = v.Detail
		} else {
			c.Fix = v.Fix
		}
		checks = append(checks, c)
	}
	return struct {
		Version int  `json:"version"`
		OK      bool `json:"ok"`
		// Complete: nothing was left untried.
		Complete bool    `json:"complete"`
		Checks   []check `json:"checks"`
	}{1, len(host.Problems(list)) == 0, !slices.ContainsFunc(list, host.Verdict.Untried), checks}
}

// columns is how wide the terminal is that is written to, or 0 where it is none.
func (a *app) columns() int {
	if out, ok := a.std.Out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil {
			return columns
		}
	}
	return 0
}

// textFrom is the column of a doctor's line at which its text begins, and leastText how
// wide that is at least.
const textFrom, leastText = 24, 30

// doctorText has a line for each check. Where it is for a terminal of so many columns,
// words that do not fit go below the text's beginning; a command is never broken.
func doctorText(list []host.Verdict, columns int) string {
	var b strings.Builder
	for _, v := range list {
		state, text := "ok", v.Detail
		switch {
		case v.Info && !v.OK(): // nothing that a run fails by
			state, text = "-", v.Problem
		case !v.OK():
			state, text = "FAIL", v.Problem
		}
		if columns > 0 {
			text = hang(text, max(columns-textFrom, leastText), textFrom)
		}
		fmt.Fprintf(&b, "%-5s%-18s %s\n", state, v.Name, text)
		if !v.OK() && v.Fix != "" && !v.Untried() {
			fmt.Fprintf(&b, "     %-18s %s\n", "  fix:", v.Fix)
		}
	}
	return b.String()
}

// hang breaks a text between words into lines of a width, those after the first indented.
func hang(text string, width, indent int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
