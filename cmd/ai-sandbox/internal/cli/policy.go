// The verb policy: printouts of policies compared.

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

var policyVerb = &verb{
	name:     "policy",
	about:    "Compare what two runs may do, or tell what one may that runs.",
	examples: []string{"ai-sandbox policy diff before.json after.json", "ai-sandbox policy show 0123456789ab"},
	subs: []*verb{{
		name: "diff", args: "A B", about: "Tell what B allows more than A, and what less.",
		flags: []ownFlag{{name: "json", usage: "print JSON; docs/policy.md has its schema"}},
		examples: []string{
			"ai-sandbox --print-policy=json pi >before.json",
			"ai-sandbox --print-policy=json pi | ai-sandbox policy diff before.json -",
		},
		exit: diffExit,
		action: func(a *app, inv Invocation, _ []config.Item) error {
			differ, err := a.diff(inv.Args[0], inv.Args[1], slices.Contains(inv.Own, "json"))
			switch {
			case err != nil:
				return &exitError{code: exitVerbUsage, err: err}
			case differ:
				return &exitError{code: exitVerbFailed}
			}
			return nil
		},
	}, policyShowVerb},
	action: func(_ *app, inv Invocation, _ []config.Item) error {
		return fmt.Errorf("policy %v: no such verb", inv.Args) // checkArgs lets none through
	},
}

// As diff(1).
var diffExit = [][2]string{{"0", "the two allow the same"}, {"1", "they differ"}, {"2", "one of them can't be read, or the command line makes no sense"}}

// diff compares two printouts and tells whether they differ.
func (a *app) diff(nameA, nameB string, asJSON bool) (bool, error) {
	if nameA == "-" && nameB == "-" {
		return false, usagef("A and B can't both be standard input; name a file for one of them")
	}
	before, err := a.readPolicy(nameA)
	if err != nil {
		return false, err
	}
	after, err := a.readPolicy(nameB)
	if err != nil {
		return false, err
	}
	d := policy.Diff(before, after)
	if asJSON {
		err = printJSON(a.Out, d)
	} else if _, err = io.WriteString(a.Out, d.Text()); err != nil {
		err = fmt.Errorf("write to standard output: %w", err)
	}
	return !d.Empty(), err
}

// readPolicy reads a printout from a file, or from standard input for "-".
func (a *app) readPolicy(name string) (policy.Policy, error) {
	in := a.std.In
	if name != "-" {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(a.cwd, path)
		}
		f, err := os.Open(path)
		if err != nil {
			return policy.Policy{}, fmt.Errorf("open the policy: %w; name a file with what --print-policy=json printed, or - for standard input", err)
		}
		defer f.Close()
		in = f
	}
	p, err := policy.Decode(in)
	if err != nil {
		return policy.Policy{}, fmt.Errorf("%s: %w", quote(name), err)
	}
	return p, nil
}
