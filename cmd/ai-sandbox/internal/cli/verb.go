// The table of verbs. One file a verb holds what it does.

package cli

import (
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// A verb is one of ai-sandbox's own commands.
type verb struct {
	name string
	// args names the arguments in the help; "" is none, and each word is one
	// that is needed unless it stands in brackets. What comes after "--", if that
	// is in it, is a command.
	args  string
	about string
	// asRun: it ends as a run does, with 125 for a command line that makes no
	// sense, since any other code may be the command's.
	asRun bool
	// use picks the options of the table that are flags of this verb; flags
	// are its own.
	use      config.Use
	flags    []ownFlag
	examples []string
	// exit are its codes; one with subs has none, as each of those has its own.
	exit   [][2]string
	subs   []*verb
	action func(*app, Invocation, []config.Item) error
}

// An ownFlag is a flag that only one verb has and no file sets: a switch, unless
// arg names its value. With bare, that is the value of one that stands alone.
type ownFlag struct{ name, usage, arg, bare string }

var usualExit = [][2]string{{"0", "done"}, {"1", "ai-sandbox failed"}, {"2", "the command line makes no sense"}}

// verbs is the table; a function, as the help verb needs it in turn.
func verbs() []*verb {
	return []*verb{allowVerb, buildVerb, cleanVerb, newCompletionVerb(), configVerb, denyVerb, doctorVerb, downVerb, execVerb, explainVerb, gateVerb, newHelpVerb(), imageVerb, imagesVerb, inspectVerb, logVerb, logsVerb, lsVerb, newManualVerb(), policyVerb, rmVerb, stopVerb, trustVerb, upVerb, updateVerb, versionVerb, waitVerb}
}

func lookupVerb(name string) (*verb, bool) {
	for _, v := range verbs() {
		if v.name == name {
			return v, true
		}
	}
	return nil, false
}

func verbNames() []string {
	var out []string
	for _, v := range verbs() {
		out = append(out, v.name)
	}
	return out
}

func (v *verb) sub(name string) *verb {
	i := slices.IndexFunc(v.subs, func(s *verb) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return v.subs[i]
}

func (v *verb) specs() []flagSpec {
	out := flagSpecs(v.use)
	for _, f := range v.flags {
		if f.arg != "" {
			out = append(out, flagSpec{name: f.name, bare: f.bare})
		} else {
			out = append(out, flagSpec{name: f.name, kind: config.Bool, bare: "true"})
		}
	}
	return out
}

// takesCommand tells whether a command may follow "--", and whether it has to.
func (v *verb) takesCommand() (may, must bool) {
	return strings.Contains(v.args, "-- "), strings.Contains(v.args, " -- ")
}

// checkArgs counts a verb's arguments.
func (v *verb) checkArgs(inv Invocation) error {
	before, _, _ := strings.Cut(v.args, "-- ")
	words := strings.Fields(strings.TrimSuffix(before, "["))
	_, command := v.takesCommand()
	need := 0
	for _, w := range words {
		if !strings.HasPrefix(w, "[") {
			need++
		}
	}
	many := strings.HasSuffix(before, "...")
	var err *errUsage
	switch {
	case len(v.subs) > 0:
		var names []string
		for _, s := range v.subs {
			names = append(names, inv.Verb+" "+s.name)
		}
		err = usagef("%s needs a word more; write one of: %s", inv.Verb, strings.Join(names, ", "))
		if len(inv.Args) > 0 {
			err = usagef("%s %s is not a verb; write one of: %s", inv.Verb, quote(inv.Args[0]), strings.Join(names, ", "))
		}
	case len(inv.Args) < need:
		err = usagef("%s needs %s; write: ai-sandbox %s %s", inv.Verb, v.args, inv.Verb, v.args)
	case len(inv.Args) > len(words) && command:
		err = usagef("%s takes a command after \"--\" only; write: ai-sandbox %s %s", inv.Verb, inv.Verb, v.args)
	case len(inv.Args) > len(words) && !many:
		err = usagef("%s takes no argument %s; drop it", inv.Verb, quote(inv.Args[len(words)]))
	case command && len(inv.Command) == 0:
		err = usagef("%s needs a command; write: ai-sandbox %s %s", inv.Verb, inv.Verb, v.args)
	default:
		return nil
	}
	err.verb = !v.asRun
	return err
}
