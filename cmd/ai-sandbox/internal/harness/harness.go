// Package harness is the table of the agent programs that ai-sandbox knows by
// name. It is pure data: what a name runs. An entry that needs code of its own
// gets a sub-package.
package harness

import "slices"

// Default is what runs when the command line names no harness, verb or command.
const Default = "pi"

// A Harness is one agent program.
type Harness struct {
	// Name is the word on ai-sandbox's command line.
	Name string
	// Command is what runs inside; the user's arguments follow it.
	Command []string
	// About is one line for the help.
	About string
}

// Table lists every harness, in the order of the help.
var Table = []Harness{
	{Name: "pi", Command: []string{"pi"}, About: "the pi coding agent (default)"},
}

// Lookup finds a harness by its name.
func Lookup(name string) (Harness, bool) {
	for _, h := range Table {
		if h.Name == name {
			return h, true
		}
	}
	return Harness{}, false
}

// Argv is the command line inside: the harness with the user's arguments.
func (h Harness) Argv(args []string) []string {
	return slices.Concat(h.Command, args)
}
