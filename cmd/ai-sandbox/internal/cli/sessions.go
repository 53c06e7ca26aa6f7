// The verbs about sessions: ls, logs, stop and rm; and how long what is known of an
// ended one is kept.

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/policy"
)

// sessionExit are the codes of what is about one session.
var sessionExit = append(usualExit[:len(usualExit):len(usualExit)], [2]string{"3", "there is no such session"})

var lsVerb = &verb{
	name:     "ls",
	about:    "List sessions: live, ended and kept ones.",
	flags:    []ownFlag{{name: "json", usage: "print JSON; docs/operations.md has its schema"}},
	examples: []string{"ai-sandbox ls", "ai-sandbox ls --json"},
	exit:     usualExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		list, err := a.engine.Sessions(m)
		if list == nil {
			return err
		}
		// What can't be read is no reason to hide the rest.
		if slices.Contains(inv.Own, "json") {
			return errors.Join(printJSON(a.Out, struct {
				Version  int               `json:"version"`
				Sessions []session.Summary `json:"sessions"`
			}{1, list}), err)
		}
		return errors.Join(writeText(a.Out, sessionsText(list, time.Now())), err)
	},
}

var logsVerb = &verb{
	name: "logs", args: "ID",
	about:    "Print what happened in a session, and the output of a sandbox.",
	flags:    []ownFlag{{name: "json", usage: "print the events as JSON; docs/operations.md has their schema"}},
	examples: []string{"ai-sandbox logs 0123456789ab", "ai-sandbox logs --json 0123456789ab"},
	exit:     sessionExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		l, err := a.engine.Logs(m, inv.Args[0])
		if err != nil {
			return aboutSandbox(err)
		}
		if slices.Contains(inv.Own, "json") {
			return printJSON(a.Out, l)
		}
		return writeText(a.Out, logsText(l))
	},
}

var stopVerb = &verb{
	name: "stop", args: "ID",
	about:    "End a session: SIGTERM, and after ten seconds SIGKILL.",
	examples: []string{"ai-sandbox stop 0123456789ab"},
	exit:     sessionExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		return aboutSandbox(a.engine.Stop(a.ctx, m, inv.Args[0]))
	},
}

var rmVerb = &verb{
	name: "rm", args: "ID",
	about:    "Remove what is kept of a session that has ended.",
	examples: []string{"ai-sandbox rm 0123456789ab"},
	exit:     sessionExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		return aboutSandbox(a.engine.Remove(a.ctx, m, inv.Args[0]))
	},
}

func writeText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// maxDays is the longest that a session is kept, but for ever.
const maxDays = 36500

// leastSize is about what one session takes, in bytes.
const leastSize = 64 << 10

// retention is what the settings say about ended sessions.
func retention(s config.Settings) (r trace.Retention, err error) {
	if items := s["sessions_days"]; len(items) > 0 && items[0].Value != policy.NoLimit {
		n, err := strconv.Atoi(items[0].Value)
		if err != nil || n < 1 || n > maxDays {
			return r, &config.Error{Origin: items[0].Origin, Text: "sessions_days is " + quote(items[0].Value), Fix: fmt.Sprintf("write a number of days from 1 to %d, or none", maxDays)}
		}
		r.Age = time.Duration(n) * 24 * time.Hour
	}
	if items := s["sessions_size"]; len(items) > 0 {
		r.Size, err = policy.ParseSize("sessions_size", items[0].Value, leastSize, "one session may take that")
		if err != nil {
			return r, fmt.Errorf("%w (from %s)", err, items[0].Origin)
		}
	}
	return r, nil
}

// sessionsText has a line for each session.
func sessionsText(list []session.Summary, now time.Time) string {
	var b strings.Builder
	if len(list) > 0 {
		fmt.Fprintf(&b, "%-12s  %-7s  %-7s  %-6s  %-9s  %-20s  %s\n", "ID", "STATE", "RUNTIME", "NET", "BEGUN", "END", "COMMAND, PROJECT")
	}
	for _, s := range list {
		what := "(commands of exec)"
		if len(s.Command) > 0 {
			what = shorten(commandText(s.Command), 40)
		}
		if s.Project != "" {
			what += ", " + policy.Quote(s.Project)
		}
		begun := "-"
		if !s.Begun.IsZero() {
			begun = ago(now.Sub(s.Begun))
		}
		end := "-"
		if s.EndedBy != "" {
			end = policy.Printable(s.EndedBy)
			if s.ExitCode != nil {
				end += fmt.Sprintf(", exit %d", *s.ExitCode)
			}
		}
		line := fmt.Sprintf("%-12s  %-7s  %-7s  %-6s  %-9s  %-20s  %s", policy.Printable(s.ID), s.State, policy.Printable(s.Runtime), policy.Printable(s.Net), begun, end, what)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// commandText is a command line for people.
func commandText(argv []string) string {
	out := make([]string, 0, len(argv))
	for _, arg := range argv {
		out = append(out, policy.Quote(arg))
	}
	return strings.Join(out, " ")
}

// shorten cuts a text that is longer than n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

// ago is a time that has gone by, for people. A clock that was set back since makes
// it less than nothing.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d d ago", int(d.Hours()/24))
}

// logsText has a line for each event, and then the output.
func logsText(l session.Logs) string {
	var b strings.Builder
	for _, e := range l.Events {
		line := e.Time.Local().Format("2006-01-02 15:04:05.000") + "  " + policy.Printable(e.Event)
		if e.Event == trace.Begun {
			line += fmt.Sprintf(": %s, --net %s", policy.Printable(e.Runtime), policy.Printable(e.Net))
			if e.Project != "" {
				line += ", project " + policy.Quote(e.Project)
			}
		}
		if len(e.Command) > 0 {
			line += ": " + commandText(e.Command)
		}
		if e.EndedBy != "" && e.ExitCode != nil {
			line += fmt.Sprintf(" (by %s, exit code %d)", policy.Printable(e.EndedBy), *e.ExitCode)
		}
		if e.Reason != "" {
			line += ": " + policy.Printable(e.Reason)
		}
		b.WriteString(line + "\n")
	}
	if l.Output != "" {
		b.WriteString("\noutput\n")
		for line := range strings.Lines(l.Output) {
			b.WriteString("  " + policy.Printable(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	return b.String()
}
