// The verb log: what a session's gate has decided.

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

var logVerb = &verb{
	name: "log", args: "[SESSION]",
	about: "Show what a session's gate has decided; the last session's, unless named.",
	flags: []ownFlag{
		{name: "denied", usage: "only what was refused: by the gate, or by the kernel beside it"},
		{name: "follow", usage: "go on until the session has ended"},
		{name: "json", usage: "print the JSON lines; docs/networking.md says what is in them"},
	},
	examples: []string{"ai-sandbox log --denied", "ai-sandbox log 0123456789ab --follow"},
	exit: [][2]string{{"0", "printed"}, {"1", "ai-sandbox failed"}, {"2", "the command line makes no sense"},
		{"3", "there is no such session, or it has no log of a gate"}, {"130", "SIGINT has ended --follow; with other signals, 128 and the signal's number"}},
	action: func(a *app, inv Invocation, _ []config.Item) error {
		m, err := a.machine()
		if err != nil {
			return err
		}
		id := ""
		if len(inv.Args) > 0 {
			id = inv.Args[0]
		}
		err = a.engine.GateLog(a.ctx, m, id, slices.Contains(inv.Own, "follow"), a.eventLines(inv, eventText))
		var sig *SignalError
		switch {
		case errors.Is(err, session.ErrNoLog):
			return &exitError{code: exitNoSandbox, err: err}
		case errors.As(err, &sig): // which is how it ends, so there is nothing to say
			return &exitError{code: 128 + int(sig.Signal)}
		}
		return err
	},
}

// eventLines prints events as a verb's flags denied and json say.
func (a *app) eventLines(inv Invocation, text func(gate.Event) string) func(gate.Event) error {
	denied, asJSON := slices.Contains(inv.Own, "denied"), slices.Contains(inv.Own, "json")
	return func(e gate.Event) error {
		if denied && e.Verdict != gate.VerdictRefused && e.Verdict != gate.VerdictBlocked {
			return nil
		}
		line := text(e)
		if asJSON {
			b, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("render the log: %w", err)
			}
			line = string(b)
		}
		if _, err := fmt.Fprintln(a.Out, policy.Printable(line)); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	}
}

// eventText is an event for people, on one line.
func eventText(e gate.Event) string {
	host := e.Host
	if e.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(e.Port)))
	}
	if e.SNI != "" {
		host += " (TLS for " + e.SNI + ")"
	}
	words := []string{e.Time.Local().Format("2006-01-02 15:04:05.000"), fmt.Sprintf("%-7s", e.Verdict), e.Method, host}
	switch e.Verdict {
	case gate.VerdictBlocked:
		words = append(words, fmt.Sprintf("%d times, past the gate", max(e.Count, 1)))
	case gate.VerdictRefused:
		words = append(words, "rule: "+e.Rule)
	default:
		words = append(words, fmt.Sprintf("%s; %d bytes in, %d out, %d ms", e.Rule, e.BytesIn, e.BytesOut, e.DurationMS))
	}
	return strings.Join(words, "  ")
}
