// What a user has said on an agent's command line, which is not said for him again.

package harness

import (
	"slices"
	"strings"
)

// Chosen is by what a user says something himself. Only what has the form of an option
// counts, and no word of a prompt.
type Chosen struct {
	// Choices are flags, each alone or with "=value".
	Choices []string
	// Short are Choices of one dash, whose value may follow without a space.
	Short []string
	// Keys are of the program's settings, as Harness.Setting gives them: KEY=VALUE or
	// KEY.MORE=VALUE.
	Keys []string
	// Levels are flags of models, several with commas between them, that may end in ":"
	// and one of Levels.
	Levels []string
	// Vars are variables that the user passes.
	Vars []string
}

// chosen tells whether the user has. A value that looks like a flag counts, too: then
// less is said for him, which is the harmless mistake.
func (h Harness) chosen(c Chosen, args []string, vars Vars) bool {
	if slices.ContainsFunc(c.Vars, func(name string) bool { _, ok := vars[name]; return ok }) {
		return true
	}
	for i, arg := range args {
		if arg == "--" {
			return false
		}
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains(c.Choices, name) || slices.ContainsFunc(c.Short, func(short string) bool { return strings.HasPrefix(arg, short) }) {
			return true
		}
		if v, ok := valueOf(args[i:], h.Setting); ok {
			key, _, _ := strings.Cut(v, "=")
			key = strings.TrimSpace(key)
			if slices.ContainsFunc(c.Keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") }) {
				return true
			}
		}
		if v, ok := valueOf(args[i:], c.Levels); ok && slices.ContainsFunc(strings.Split(v, ","), leveled) {
			return true
		}
	}
	return false
}

// leveled tells whether a model's name has a level at its end.
func leveled(model string) bool {
	i := strings.LastIndexByte(model, ':')
	return i >= 0 && slices.Contains(Levels, strings.TrimSpace(model[i+1:]))
}

// valueOf is the value of the first argument, if that is one of flags: the next one,
// or what follows in it, of "--flag=value", "-fvalue" and "-f=value".
func valueOf(args, flags []string) (string, bool) {
	for _, flag := range flags {
		rest, ok := strings.CutPrefix(args[0], flag)
		value, equals := strings.CutPrefix(rest, "=")
		switch {
		case !ok:
		case rest == "" && len(args) > 1:
			return args[1], true
		case rest != "" && (equals || !strings.HasPrefix(flag, "--")):
			return value, true
		}
	}
	return "", false
}
