// The verb manual: man pages and the reference in docs, from the same tables as the
// help. The library's own generator knows flags alone, without our topics, verbs'
// arguments and exit codes, and brings a Markdown parser.

package cli

import (
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

func newManualVerb() *verb {
	return &verb{
		name: "manual", args: "[VERB]",
		about:    "Print the man page of ai-sandbox or of a verb, or all as one document.",
		flags:    []ownFlag{{name: "markdown", usage: "print all of it as Markdown"}},
		examples: []string{"ai-sandbox manual | man -l -", "ai-sandbox manual exec >ai-sandbox-exec.1", "ai-sandbox manual --markdown"},
		exit:     usualExit,
		action: func(a *app, inv Invocation, _ []config.Item) error {
			if slices.Contains(inv.Own, "markdown") {
				return writeText(a.Out, Reference())
			}
			if len(inv.Args) == 0 {
				return writeText(a.Out, ManPage(""))
			}
			if _, ok := lookupVerb(inv.Args[0]); !ok {
				return &errUsage{text: fmt.Sprintf("%s is not a verb; choose from %s", quote(inv.Args[0]), strings.Join(verbNames(), ", ")), verb: true}
			}
			return writeText(a.Out, ManPage(inv.Args[0]))
		},
	}
}

// A page is what a manual says of ai-sandbox or a verb, in whatever form.
type page struct {
	name, about string
	usage       []string
	examples    []string
	sections    []pageSection
	exit        [][2]string
}

type pageSection struct {
	title string
	items [][2]string
}

// pages are ai-sandbox's own and then one for each verb.
func pages() []page {
	root := page{
		name: "ai-sandbox", about: "run a coding agent in a sandbox whose network is shut but for the hosts on a list",
		usage:    []string{"ai-sandbox [FLAG...] [HARNESS] [ARGUMENT...]", "ai-sandbox [FLAG...] -- COMMAND [ARGUMENT...]", "ai-sandbox VERB [FLAG...] [ARGUMENT...]"},
		examples: rootExamples, exit: rootExit,
	}
	verbItems := pageSection{title: "Verbs"}
	for _, v := range verbs() {
		verbItems.items = append(verbItems.items, [2]string{strings.TrimSpace(v.name + " " + v.args), v.about})
	}
	root.sections = append([]pageSection{verbItems}, flagSections(config.UseRun, nil)...)
	out := []page{root}
	for _, v := range verbs() {
		out = append(out, verbPage(v))
	}
	return out
}

func verbPage(v *verb) page {
	p := page{name: "ai-sandbox " + v.name, about: strings.TrimSuffix(lowered(v.about), "."), examples: v.examples, exit: v.exit}
	use, own := v.use, v.flags
	line := func(path string, v *verb) string {
		flags := ""
		if v.use != 0 || len(v.flags) > 0 {
			flags = "[FLAG...] "
		}
		return strings.TrimSpace("ai-sandbox " + path + " " + flags + v.args)
	}
	if len(v.subs) == 0 {
		p.usage = []string{line(v.name, v)}
	}
	for _, s := range v.subs {
		p.usage = append(p.usage, line(v.name+" "+s.name, s))
		p.sections = append(p.sections, pageSection{v.name + " " + s.name, [][2]string{{strings.Join(s.examples, "; "), s.about}}})
		use, own = use|s.use, append(own[:len(own):len(own)], s.flags...)
	}
	p.sections = append(p.sections, flagSections(use, own)...)
	return p
}

func lowered(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// flagSections are the flags by topic.
func flagSections(use config.Use, own []ownFlag) []pageSection {
	var out []pageSection
	if len(own) > 0 {
		s := pageSection{title: "Flags"}
		for _, f := range own {
			s.items = append(s.items, [2]string{f.term(), f.usage})
		}
		out = append(out, s)
	}
	for _, topic := range topics(use) {
		s := pageSection{title: "Flags: " + topic}
		for _, o := range config.Options {
			if o.Topic == topic && o.In(config.InFlag) && o.Use&use != 0 {
				term, text := optionWords(o)
				s.items = append(s.items, [2]string{term, text})
			}
		}
		out = append(out, s)
	}
	return out
}

// ManPage is the man page (groff_man(7)) of a verb, or with "" that of ai-sandbox.
func ManPage(verb string) string {
	name := strings.TrimSpace("ai-sandbox " + verb)
	i := slices.IndexFunc(pages(), func(p page) bool { return p.name == name })
	p := pages()[i]
	title := strings.ReplaceAll(p.name, " ", "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"ai-sandbox\" \"ai-sandbox\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(strings.ToUpper(title)), roff(title), roff(p.about))
	for i, u := range p.usage {
		if i > 0 {
			b.WriteString(".br\n")
		}
		b.WriteString(roffLine(u))
	}
	b.WriteString(".SH EXAMPLES\n")
	for _, e := range p.examples {
		b.WriteString(".PP\n.EX\n" + roffLine(e) + ".EE\n")
	}
	for _, s := range p.sections {
		fmt.Fprintf(&b, ".SH \"%s\"\n", roff(strings.ToUpper(s.title)))
		for _, it := range s.items {
			b.WriteString(".TP\n.B " + strings.ReplaceAll(roff(it[0]), `"`, `\(dq`) + "\n" + roffLine(it[1]))
		}
	}
	b.WriteString(".SH \"EXIT STATUS\"\n")
	for _, e := range p.exit {
		b.WriteString(".TP\n.B " + strings.ReplaceAll(roff(e[0]), `"`, `\(dq`) + "\n" + roffLine(e[1]))
	}
	b.WriteString(".SH \"SEE ALSO\"\n")
	if verb != "" {
		b.WriteString(".BR ai\\-sandbox (1)\n")
	} else {
		var all []string
		for _, n := range verbNames() {
			all = append(all, ".BR ai\\-sandbox\\-"+roff(n)+" (1)")
		}
		b.WriteString(strings.Join(all, ",\n") + "\n")
	}
	return b.String()
}

// roff escapes a text; a "-" is a minus, as people copy it to a shell.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`).Replace(s)
}

// roffLine is a line of text that begins with no request.
func roffLine(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s + "\n"
}

// Reference is all pages as Markdown: docs/reference.md.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Reference\n\nMade from the definitions of the command line: `ai-sandbox manual --markdown`.\n")
	for _, p := range pages() {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```\n%s\n```\n", p.name, strings.ToUpper(p.about[:1])+p.about[1:], strings.Join(p.usage, "\n"))
		fmt.Fprintf(&b, "\nExamples:\n\n```\n%s\n```\n", strings.Join(p.examples, "\n"))
		for _, s := range p.sections {
			b.WriteString("\n" + s.title + ":\n\n")
			table(&b, s.items)
		}
		b.WriteString("\nExit status:\n\n")
		table(&b, p.exit)
	}
	return b.String()
}

func table(b *strings.Builder, items [][2]string) {
	b.WriteString("| | |\n| --- | --- |\n")
	for _, it := range items {
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(it[0], "|", `\|`), strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`).Replace(it[1]))
	}
}
