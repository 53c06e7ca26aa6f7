// The verbs allow and deny, and policy show: what a session that runs may reach.

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

var steerExit = [][2]string{{"0", "done, and the gate has answered with the hash of the new list"}, {"1", "refused, or ai-sandbox failed"}, {"2", "the command line makes no sense"}, {"3", "no such session runs"}}

var allowVerb = &verb{
	name: "allow", args: "SESSION HOST...",
	about:    "Let a session that runs reach HOST, too.",
	flags:    []ownFlag{{name: "private", usage: "as --allow-private: HOST may lead to a private or loopback address"}},
	examples: []string{"ai-sandbox allow 0123456789ab api.example.com"},
	exit:     steerExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		list, err := hostArgs(inv)
		if err != nil {
			return err
		}
		want := session.Steering{Allow: list}
		if slices.Contains(inv.Own, "private") {
			want = session.Steering{AllowPrivate: list}
		}
		return a.steer(inv.Args[0], want)
	},
}

var denyVerb = &verb{
	name: "deny", args: "SESSION [HOST...]",
	about:    "Let a session that runs reach HOST no more, and cut what it has open there.",
	flags:    []ownFlag{{name: "all", usage: "instead of HOST: let it reach nothing, and cut all that it has open; it runs on"}},
	examples: []string{"ai-sandbox deny 0123456789ab api.example.com", "ai-sandbox deny 0123456789ab --all"},
	exit:     steerExit,
	action: func(a *app, inv Invocation, _ []config.Item) error {
		all := slices.Contains(inv.Own, "all")
		if all == (len(inv.Args) > 1) {
			return &errUsage{text: "deny takes hosts, or --all for every one; write: ai-sandbox deny SESSION HOST, or: ai-sandbox deny SESSION --all", verb: true}
		}
		if all {
			return a.steer(inv.Args[0], session.Steering{Lists: &session.Lists{Allow: []policy.Entry{}, AllowPrivate: []policy.Entry{}}})
		}
		list, err := hostArgs(inv)
		if err != nil {
			return err
		}
		return a.steer(inv.Args[0], session.Steering{Deny: list})
	},
}

func hostArgs(inv Invocation) ([]policy.Entry, error) {
	list, err := policy.ParseEntries(inv.Args[1:])
	if err != nil {
		return nil, &exitError{code: exitVerbUsage, err: err}
	}
	return list, nil
}

// steer changes a session and says what came of it.
func (a *app) steer(id string, want session.Steering) error {
	f, p, err := a.force(id, want)
	if err != nil {
		return err
	}
	allow := entryTexts(p.Net.Allow)
	for _, e := range entryTexts(p.Net.AllowPrivate) {
		allow = append(allow, e+" (private)")
	}
	if len(allow) == 0 {
		allow = []string{"nothing"}
	}
	text := fmt.Sprintf("session %s may reach: %s (confirmed by its gate: %s)\n", id, strings.Join(allow, " "), f.Hash)
	if len(want.Deny) > 0 || want.Lists != nil {
		text += fmt.Sprintf("connections cut: %d\n", f.Cut)
	}
	if name := p.Net.GateName; name != "" {
		text += fmt.Sprintf("that is this session alone: gate %s and the others that share it keep their lists\n", policy.Printable(name))
	}
	if _, err := io.WriteString(a.Out, text); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

func entryTexts(list []policy.Entry) []string {
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

func (a *app) force(id string, want session.Steering) (f session.Force, p policy.Policy, err error) {
	m, err := a.machine()
	if err != nil {
		return f, p, err
	}
	f, err = a.engine.Steer(a.ctx, m, id, want)
	if errors.Is(err, session.ErrNotRunning) {
		return f, p, &exitError{code: exitNoSandbox, err: err}
	}
	if err == nil {
		p, err = policy.Decode(strings.NewReader(string(f.Policy)))
	}
	return f, p, err
}

var policyShowVerb = &verb{
	name: "show", args: "SESSION", about: "Tell what is in force in a session that runs, confirmed by its gate.",
	flags:    []ownFlag{{name: "json", usage: "print JSON, as --print-policy=json does, with the hash in in_force"}},
	examples: []string{"ai-sandbox policy show 0123456789ab"},
	exit:     [][2]string{{"0", "printed"}, {"1", "its gate does not confirm it, or ai-sandbox failed"}, {"2", "the command line makes no sense"}, {"3", "no such session runs"}},
	action: func(a *app, inv Invocation, _ []config.Item) error {
		_, p, err := a.force(inv.Args[0], session.Steering{})
		if err != nil {
			return err
		}
		text := p.Text()
		if slices.Contains(inv.Own, "json") {
			b, err := p.JSON()
			if err != nil {
				return err
			}
			text = string(b)
		}
		if _, err := io.WriteString(a.Out, text); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	},
}
