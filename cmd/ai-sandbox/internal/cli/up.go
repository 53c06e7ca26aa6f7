// The verb up: a sandbox that outlives the command. The process that it is typed
// into starts this program again, detached, and only waits for its word; that one,
// the supervisor, does what a run does.

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

var jsonFlag = ownFlag{name: "json", usage: "print JSON; docs/integration.md has its schema"}

var upVerb = &verb{
	name: "up", args: "[DIR] [-- COMMAND...]",
	about: "Start a sandbox that stays, in DIR or in a workspace of its own.",
	asRun: true,
	use:   config.UseUp,
	flags: []ownFlag{jsonFlag},
	examples: []string{
		"ai-sandbox up --profile bwrap-local",
		"ai-sandbox up --json --allow api.example.com .",
		"ai-sandbox up --runtime local ~/shop -- make watch",
	},
	exit: [][2]string{
		{"0", "it is up, and its handle was printed"},
		{"77, 78, 125, 126, 127", "it is not, for the reason that a run would end so"},
	},
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		if !a.supervisor {
			return a.up(slices.Contains(inv.Own, jsonFlag.name))
		}
		code, err := a.supervise(inv, flagLayer)
		if err != nil && code == 0 {
			code = exitFailed
		}
		return &exitError{code: code, err: err}
	},
}

// up starts the supervisor and prints the handle that it tells. What is not
// printed does not stay.
func (a *app) up(asJSON bool) error {
	code, err := a.engine.Detach(a.ctx, a.args, func(h session.Handle) error {
		var err error
		if asJSON {
			err = printJSON(a.Out, h)
		} else {
			err = writeText(a.Out, handleText(h))
		}
		if err != nil {
			return err
		}
		return a.Out.flush()
	})
	switch {
	case err == nil && code == 0:
		return nil
	case code == 0:
		code = exitFailed
	}
	return &exitError{code: code, err: err} // without an error it has said why
}

// supervise is the life of the process that owns the sandbox.
func (a *app) supervise(inv Invocation, flagLayer []config.Item) (code int, err error) {
	// Nothing holds the directory that up was typed into, or what it is on.
	if err := os.Chdir("/"); err != nil {
		return 0, fmt.Errorf("leave the current directory: %w", err)
	}
	if len(inv.Args) > 0 {
		a.project = inv.Args[0]
		if !filepath.IsAbs(a.project) {
			a.project = filepath.Join(a.cwd, a.project)
		}
	}
	m, err := a.machine()
	if err != nil {
		return 0, err
	}
	sb, err := a.engine.NewSandbox(m, a.project == "")
	if err != nil {
		return 0, err
	}
	if sb.Workspace != "" {
		a.project, a.workspace = sb.Workspace, sb.Workspace
	}
	inv.Args = inv.Command // as a run has them
	s, err := a.prepare(flagLayer, forRun)
	var p policy.Policy
	if err == nil {
		p, _, err = a.policy(inv, s)
	}
	if err != nil {
		if derr := sb.Discard(); derr != nil {
			a.warnf("%v", derr)
		}
		return 0, err
	}
	a.tell(p)
	req := a.request(s, p)
	req.Hold = len(inv.Command) == 0
	return sb.Start(a.ctx, req)
}

// handleText is the handle for people.
func handleText(h session.Handle) string {
	var b strings.Builder
	workspace := policy.Quote(h.WorkspaceDir)
	if h.WorkspaceOwned {
		workspace += " (removed by down)"
	}
	argv := make([]string, 0, len(h.Reachability.Local.Exec)+1)
	for _, arg := range append(slices.Clone(h.Reachability.Local.Exec), "COMMAND...") {
		argv = append(argv, policy.Quote(arg))
	}
	rows := [][2]string{
		{"sandbox", h.SandboxID},
		{"host", h.Host},
		{"pid", fmt.Sprint(h.PID)},
		{"workspace", workspace},
		{"inside", policy.Quote(h.Workdir)},
		{"log", policy.Quote(h.Log)},
		{"runtime", fmt.Sprintf("%s (isolation: %s)", h.Runtime, h.Isolation)},
		{"can", capabilities(h.Capabilities)},
		{"run in it", strings.Join(argv, " ")},
		{"end it", "ai-sandbox down " + h.SandboxID},
	}
	for _, p := range h.Published {
		rows = append(rows, [2]string{"published", fmt.Sprintf("http://%s -> %d inside", p.Host(), p.Port)})
	}
	for _, l := range rows {
		fmt.Fprintf(&b, "%-12s %s\n", l[0], l[1])
	}
	return b.String()
}

// capabilities says what a backend can do.
func capabilities(c backend.Capabilities) string {
	list := func(what string, values []string) string {
		if len(values) == 0 {
			return "no " + what
		}
		return what + ": " + strings.Join(values, ", ")
	}
	yes := func(what string, can bool) string {
		if can {
			return what
		}
		return "no " + what
	}
	return strings.Join([]string{
		list("networks", c.Networks), list("gates", c.GateEngines), list("limits", c.Limits),
		yes("snapshots", c.Snapshots), yes("published ports", c.Publishing),
	}, "; ")
}

func printJSON(w io.Writer, v any) error {
	text, err := policy.RenderJSON(v)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}
