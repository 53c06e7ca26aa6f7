// The verb wait.

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

var waitVerb = &verb{
	name: "wait", args: "ID",
	about: "Wait until a sandbox can be used, or has ended.",
	flags: []ownFlag{
		{name: "ready", usage: "wait until every control holds, its supervisor lives and its workspace is there"},
		{name: "exit", usage: "wait until it has ended, and tell how"},
		{name: "timeout", arg: "TIME", usage: "give up after TIME (30s, 5m)"},
		{name: "json", usage: "print the handle (--ready) or the report (--exit) as JSON"},
	},
	examples: []string{"ai-sandbox wait 0123456789ab --ready --timeout 30s", "ai-sandbox wait 0123456789ab --exit --json"},
	exit: [][2]string{
		{"0", "it is ready, or has ended, whatever its command's exit code was"},
		{"1", "it has ended instead of being ready, or ai-sandbox failed"},
		{"2", "the command line makes no sense"},
		{"3", "there is no such sandbox: it was never there, or is down already"},
		{"124", "the time is over"},
	},
	action: func(a *app, inv Invocation, _ []config.Item) error {
		ready, exit := slices.Contains(inv.Own, "ready"), slices.Contains(inv.Own, "exit")
		if ready == exit {
			return &errUsage{text: "wait needs one of --ready and --exit", verb: true}
		}
		ctx := a.ctx
		if text, ok := inv.Values["timeout"]; ok {
			d, err := time.ParseDuration(text)
			if err != nil || d <= 0 {
				return &errUsage{text: fmt.Sprintf("--timeout %s is not a time; write it as 30s or 5m", quote(text)), verb: true}
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w (%s)", errTimeout, d))
			defer cancel()
		}
		m, err := a.machine()
		if err != nil {
			return err
		}
		asJSON := slices.Contains(inv.Own, jsonFlag.name)
		if ready {
			h, err := a.engine.WaitReady(ctx, m, inv.Args[0])
			if err == nil && asJSON {
				err = printJSON(a.Out, h)
			}
			return aboutSandbox(err)
		}
		rep, err := a.engine.WaitExit(ctx, m, inv.Args[0])
		switch {
		case err != nil:
		case asJSON:
			err = printJSON(a.Out, rep)
		default:
			_, err = fmt.Fprintln(a.Out, endText(rep))
		}
		return aboutSandbox(err)
	},
}

var errTimeout = errors.New("the time is over")

// endText is how a sandbox ended, in a line.
func endText(r session.Report) string {
	s := fmt.Sprintf("ended by %s, exit code %d", policy.Printable(r.EndedBy), r.ExitCode)
	if r.Reason != "" {
		s += ": " + policy.Printable(r.Reason)
	}
	return s
}

// aboutSandbox gives the errors that a caller tells apart codes of their own.
func aboutSandbox(err error) error {
	switch {
	case errors.Is(err, session.ErrNoSandbox), errors.Is(err, session.ErrNoSession):
		return &exitError{code: exitNoSandbox, err: err}
	case errors.Is(err, errTimeout):
		return &exitError{code: exitTimeout, err: err}
	}
	return err
}
