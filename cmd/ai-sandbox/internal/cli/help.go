// The help: made from the tables of options, verbs and harnesses, 80 columns.

package cli

import (
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
)

const helpWidth = 80

func newHelpVerb() *verb {
	return &verb{
		name: "help", args: "[VERB [WORD]]", about: "Show the help, or that of a verb.",
		examples: []string{"ai-sandbox help", "ai-sandbox help gate", "ai-sandbox help gate up"},
		exit:     usualExit,
		action: func(a *app, inv Invocation, _ []config.Item) error {
			argv := []string{"ai-sandbox"}
			if len(inv.Args) > 0 && (inv.Args[0] != "help" || len(inv.Args) > 1) {
				v, ok := lookupVerb(inv.Args[0])
				if !ok {
					text := fmt.Sprintf("%s is not a verb; choose from %s", quote(inv.Args[0]), strings.Join(verbNames(), ", "))
					return &errUsage{text: text, verb: true}
				}
				if len(inv.Args) > 1 && v.sub(inv.Args[1]) == nil {
					text := fmt.Sprintf("%s %s is not a verb; write: ai-sandbox help %s", v.name, quote(inv.Args[1]), v.name)
					return &errUsage{text: text, verb: true}
				}
				argv = append(argv, inv.Args...)
			}
			return a.cli(Invocation{}).RunContext(a.ctx, append(argv, "--help"))
		},
	}
}

// item writes a term and its text in two columns; a long term gets a line of
// its own.
func item(b *strings.Builder, term, text string, column int) {
	line := "  " + term
	if len(line)+2 > column {
		b.WriteString(line + "\n")
		line = ""
	}
	line += strings.Repeat(" ", column-len(line))
	for i, w := range strings.Fields(text) {
		if i > 0 {
			if len(line)+1+len(w) > helpWidth {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
				line = strings.Repeat(" ", column)
			} else {
				line += " "
			}
		}
		line += w
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func section(b *strings.Builder, title string) { b.WriteString("\n" + title + "\n") }

// term is a flag as the help writes it.
func (f ownFlag) term() string {
	switch {
	case f.arg == "":
		return "--" + f.name
	case f.bare != "":
		return "--" + f.name + "[=" + f.arg + "]"
	}
	return "--" + f.name + " " + f.arg
}

// topics are those of a verb's options, in the table's order.
func topics(use config.Use) []string {
	var out []string
	for _, o := range config.Options {
		if o.In(config.InFlag) && o.Use&use != 0 && !slices.Contains(out, o.Topic) {
			out = append(out, o.Topic)
		}
	}
	return out
}

// optionWords are an option's flag as the help writes it, and what it is.
func optionWords(o config.Option) (term, text string) {
	term = "--" + o.Flag()
	if o.Kind == config.Bool && o.Default == "true" {
		term += ", --no-" + o.Flag()
	}
	if o.Arg != "" && o.Bare == "" {
		term += " "
	}
	text = o.Usage
	if o.Default != "" && o.Kind != config.Bool {
		text += " (default " + o.Default + ")"
	}
	return term + o.Arg, text
}

// optionHelp lists the options of a verb by topic.
func optionHelp(b *strings.Builder, use config.Use, own []ownFlag) {
	for _, s := range flagSections(use, own) {
		section(b, s.title)
		for _, it := range s.items {
			item(b, it[0], it[1], 26)
		}
	}
}

// rootExamples and rootExit are of a run.
var (
	rootExamples = []string{
		"ai-sandbox --allow api.example.com pi",
		"ai-sandbox --allow .example.com -- curl -sS https://www.example.com/",
		"ai-sandbox --print-policy --allow api.example.com pi",
		"ai-sandbox --runtime local --allow api.example.com claude",
	}
	rootExit = [][2]string{
		{"77", "a control could not be installed or verified; nothing ran"},
		{"78", "the sandbox was given a policy that makes no sense; nothing ran"},
		{"124", "the run reached its limit of time"},
		{"125", "ai-sandbox failed, or refused"},
		{"126", "the command can't be executed"},
		{"127", "the command is not there"},
	}
)

func rootHelp() string {
	b := &strings.Builder{}
	b.WriteString(`ai-sandbox runs a coding agent in a sandbox whose network is shut but for the
hosts on a list: a podman container, or a bubblewrap jail (--runtime local).
What is not allowed is refused; what can't be enforced does not run.

Usage
  ai-sandbox [FLAG...] [HARNESS] [ARGUMENT...]
  ai-sandbox [FLAG...] -- COMMAND [ARGUMENT...]
  ai-sandbox VERB [FLAG...] [ARGUMENT...]

ai-sandbox reads flags until the first word that is not one of its own; from
there on everything goes to the harness as it is. So this works:
  alias pi='ai-sandbox pi'
`)
	section(b, "Examples")
	for _, e := range rootExamples {
		b.WriteString("  " + e + "\n")
	}
	section(b, "Harnesses")
	for _, h := range harness.Table {
		item(b, h.Name, h.About, 26)
	}
	section(b, "Verbs (ai-sandbox help VERB tells more)")
	for _, v := range verbs() {
		item(b, v.name, v.about, 26)
	}
	optionHelp(b, config.UseRun, nil)
	section(b, "Flags: help")
	item(b, "-h, --help", "show this", 26)
	item(b, "--version", "print the version", 26)
	b.WriteString(`
Configuration
  The files $XDG_CONFIG_HOME/ai-sandbox/config and, in the project,
  .ai-sandbox/config hold "key = value" lines, variables are AISB_KEY (lists
  separated by spaces), flags are --key. A flag beats a variable, that the
  project's file, and that the user's. Lists add up; "key =" alone empties what
  came before. What in a project's file lets a run do more counts only after
  "ai-sandbox trust"; "ai-sandbox config" tells what counts, and from where.

  A line "[profile NAME]" in a file begins a profile. The lines below it count
  when it is chosen, by --profile NAME, AISB_PROFILE or a line "profile = NAME"
  at a file's top, and lie over those above the first profile. These are built
  in, below what a file says in one of the same name:
`)
	for _, p := range config.Profiles {
		var settings []string
		for _, it := range p.Items {
			settings = append(settings, it.Key+" = "+it.Value)
		}
		item(b, p.Name, strings.Join(settings, ", "), 26)
	}
	b.WriteString(`
Exit status
  The command's own, or 128 and the signal's number, and:
`)
	for _, e := range rootExit {
		item(b, e[0], e[1], 26)
	}
	return b.String()
}

func verbHelp(v *verb, path string) string {
	b := &strings.Builder{}
	b.WriteString(v.about + "\n")
	section(b, "Usage")
	switch {
	case len(v.subs) > 0:
		for _, s := range v.subs {
			item(b, strings.TrimRight(fmt.Sprintf("ai-sandbox %s %s %s", path, s.name, s.args), " "), s.about, 40)
		}
	case v.use != 0 || len(v.flags) > 0:
		b.WriteString(strings.TrimRight("  ai-sandbox "+path+" [FLAG...] "+v.args, " ") + "\n")
	default:
		b.WriteString(strings.TrimRight("  ai-sandbox "+path+" "+v.args, " ") + "\n")
	}
	section(b, "Examples")
	for _, e := range v.examples {
		b.WriteString("  " + e + "\n")
	}
	if len(v.subs) > 0 {
		fmt.Fprintf(b, "\nFlags and exit codes of each: ai-sandbox help %s %s\n", path, v.subs[0].name)
		return b.String()
	}
	optionHelp(b, v.use, v.flags)
	section(b, "Exit status")
	for _, e := range v.exit {
		item(b, e[0], e[1], 26)
	}
	return b.String()
}
