// Whose argument is whose: a pure function over argv.

package cli

import (
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
)

// An Invocation is a command line taken apart.
type Invocation struct {
	// Verb is the path of the verb ("build", "gate up"), or "" for a run.
	Verb string
	// Flags are ai-sandbox's own, each as "--name=value".
	Flags []string
	// Harness is the one to run, or "" when Args is a command given after
	// "--" (or a verb's arguments).
	Harness string
	Args    []string
	// Command is what a verb got after "--".
	Command []string
	// Own are the switches of the verb's own that are on, and Values its other
	// flags.
	Own    []string
	Values map[string]string
	// Help and Version were asked for.
	Help, Version bool
	// Warnings are for stderr.
	Warnings []string
}

// A flagSpec is what splitting has to know about a flag.
type flagSpec struct {
	name string
	kind config.Kind
	// bare is the value of the flag when it stands alone; "" needs one.
	bare string
	// negates names the flag that this one sets to false.
	negates string
}

// errUsage is a command line that makes no sense.
type errUsage struct {
	text, hint string
	// verb is set when a verb other than a run was asked for.
	verb bool
}

func (e *errUsage) Error() string { return e.text }

// Hint is what the user may have meant.
func (e *errUsage) Hint() string { return e.hint }

func usagef(format string, args ...any) *errUsage {
	return &errUsage{text: fmt.Sprintf(format, args...)}
}

// Split takes a command line (without the program's name) apart. Sandbox flags
// are read until the first positional or unknown flag; everything from there on
// goes to the harness untouched.
func Split(args []string) (Invocation, error) {
	var inv Invocation
	specs := flagSpecs(config.UseRun)
	seen := map[string]bool{}
	if len(args) == 0 {
		inv.Help = true
		return inv, nil
	}
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			if len(args) == 1 {
				return inv, usagef("no command follows \"--\"; name one, as in: ai-sandbox -- COMMAND")
			}
			inv.Args = args[1:]
			return inv, nil
		case arg == "-h", arg == "--help":
			inv.Help = true
			return inv, nil
		case arg == "--version":
			inv.Version = true
			return inv, nil
		case len(arg) > 1 && arg[0] == '-':
			flag, n, err := takeFlag(args, specs, seen)
			if err != nil {
				return inv, err
			}
			if n == 0 { // unknown: the harness's
				if err := nearFlag(arg, specs); err != nil {
					return inv, err
				}
				return inv.toHarness(harness.Default, args, specs, arg), nil
			}
			inv.Flags = append(inv.Flags, flag)
			args = args[n:]
		default:
			if _, ok := harness.Lookup(arg); ok {
				return inv.toHarness(arg, args[1:], specs, arg), nil
			}
			if v, ok := lookupVerb(arg); ok {
				return inv.toVerb(v, args[1:])
			}
			if near := config.Near(arg, verbNames()); near != "" && len(args) == 1 {
				inv.warnf("%s is not a verb, so %s gets it as an argument; did you mean %s?", quote(arg), harness.Default, near)
			}
			return inv.toHarness(harness.Default, args, specs, arg), nil
		}
	}
	return inv.toHarness(harness.Default, nil, specs, ""), nil
}

func (inv *Invocation) warnf(format string, args ...any) {
	inv.Warnings = append(inv.Warnings, fmt.Sprintf(format, args...))
}

// toHarness gives the rest to a harness, and warns of flags of ours in it.
// after is the argument that ended our part.
func (inv Invocation) toHarness(name string, rest []string, specs []flagSpec, after string) Invocation {
	inv.Harness, inv.Args = name, rest
	warned := map[string]bool{}
	for _, arg := range rest {
		if arg == "--" {
			break
		}
		long, ok := strings.CutPrefix(arg, "--")
		long, _, _ = strings.Cut(long, "=")
		if !ok || warned[long] || !slices.ContainsFunc(specs, func(s flagSpec) bool { return s.name == long }) {
			continue
		}
		warned[long] = true
		inv.warnf("--%s comes after %s, so %s gets it; put it first if it is meant for ai-sandbox", long, quote(after), name)
	}
	return inv
}

// toVerb reads a verb's flags, which may stand anywhere among its arguments.
func (inv Invocation) toVerb(v *verb, rest []string) (Invocation, error) {
	inv.Verb = v.name
	if len(v.subs) > 0 && len(rest) > 0 {
		if sub := v.sub(rest[0]); sub != nil {
			inv.Verb, v, rest = v.name+" "+sub.name, sub, rest[1:]
		}
	}
	specs := v.specs()
	seen := map[string]bool{}
	for _, f := range inv.Flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		seen[name] = true
		if !slices.ContainsFunc(specs, func(s flagSpec) bool { return s.name == name }) {
			return inv, &errUsage{text: fmt.Sprintf("--%s is not a flag of %s; drop it", name, inv.Verb), verb: !v.asRun}
		}
	}
	for len(rest) > 0 {
		arg := rest[0]
		switch {
		case arg == "--":
			if may, _ := v.takesCommand(); !may {
				inv.Args = append(inv.Args, rest[1:]...)
			} else if inv.Command = rest[1:]; len(inv.Command) == 0 {
				return inv, &errUsage{text: "no command follows \"--\"; name one, or drop the \"--\"", verb: !v.asRun}
			}
			rest = nil
		case arg == "-h", arg == "--help":
			inv.Help = true
			return inv, nil
		case len(arg) > 1 && arg[0] == '-':
			flag, n, err := takeFlag(rest, specs, seen)
			if err == nil && n == 0 {
				if err = nearFlag(arg, specs); err == nil {
					err = usagef("%s is not a flag of %s; see: ai-sandbox help %s", quote(arg), inv.Verb, inv.Verb)
				}
			}
			if err != nil {
				err.verb = !v.asRun
				return inv, err
			}
			inv.Flags = append(inv.Flags, flag)
			rest = rest[n:]
		default:
			inv.Args = append(inv.Args, arg)
			rest = rest[1:]
		}
	}
	if err := v.checkArgs(inv); err != nil {
		return inv, err
	}
	return inv, nil
}

// takeFlag reads the flag at the head of args and tells how many arguments it
// is; 0 when it is not one of specs.
func takeFlag(args []string, specs []flagSpec, seen map[string]bool) (string, int, *errUsage) {
	long, ok := strings.CutPrefix(args[0], "--")
	if !ok {
		return "", 0, nil
	}
	name, value, has := strings.Cut(long, "=")
	i := slices.IndexFunc(specs, func(s flagSpec) bool { return s.name == name })
	if i < 0 {
		return "", 0, nil
	}
	s, n := specs[i], 1
	if s.negates != "" {
		if has {
			return "", 0, usagef("--%s takes no value; write --%s=false", name, s.negates)
		}
		name, value, has = s.negates, "false", true
	}
	if seen[name] && s.kind != config.List {
		return "", 0, usagef("--%s is given twice; keep one of them", name)
	}
	seen[name] = true
	switch {
	case has:
	case s.bare != "":
		value = s.bare
	case len(args) < 2 || args[1] == "--" || isFlag(args[1], specs):
		return "", 0, usagef("--%s needs a value; write --%s=VALUE", name, name)
	default:
		value, n = args[1], 2
	}
	if value == "" {
		return "", 0, usagef("--%s has an empty value; give it one or drop it", name)
	}
	return "--" + name + "=" + value, n, nil
}

func isFlag(arg string, specs []flagSpec) bool {
	long, ok := strings.CutPrefix(arg, "--")
	name, _, _ := strings.Cut(long, "=")
	return ok && slices.ContainsFunc(specs, func(s flagSpec) bool { return s.name == name })
}

// nearFlag refuses an unknown flag that is near one of ours: taken for the
// harness's, a misspelt --net none would run with a network.
func nearFlag(arg string, specs []flagSpec) *errUsage {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	var names []string
	for _, s := range specs {
		names = append(names, s.name)
	}
	near := config.Near(name, names)
	if !strings.HasPrefix(arg, "--") && slices.Contains(names, name) {
		near = name // -allow
	}
	if near == "" {
		return nil
	}
	dash := quote(arg[:len(arg)-len(strings.TrimLeft(arg, "-"))] + name)
	return &errUsage{
		text: fmt.Sprintf("unknown flag %s; did you mean --%s?", dash, near),
		hint: fmt.Sprintf("a flag for the harness goes after its name: ai-sandbox %s %s", harness.Default, dash),
	}
}

// flagSpecs are the flags that the option table gives a verb.
func flagSpecs(use config.Use) []flagSpec {
	var out []flagSpec
	for _, o := range config.Options {
		if o.In(config.InFlag) && o.Use&use != 0 {
			s := flagSpec{name: o.Flag(), kind: o.Kind, bare: o.Bare}
			if o.Kind == config.Bool {
				s.bare = "true"
				if o.Default == "true" {
					out = append(out, flagSpec{name: "no-" + s.name, kind: o.Kind, bare: "true", negates: s.name})
				}
			}
			out = append(out, s)
		}
	}
	return out
}
