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
	// parts are of its sub-verbs: each has flags and exit codes of its own.
	parts []page
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
		out = append(out, verbPage(v, v.name))
	}
	return out
}

func verbPage(v *verb, path string) page {
	p := page{name: "ai-sandbox " + path, about: strings.TrimSuffix(lowered(v.about), "."), examples: v.examples, exit: v.exit}
	for _, s := range v.subs {
		part := verbPage(s, path+" "+s.name)
		p.usage, p.parts = append(p.usage, part.usage...), append(p.parts, part)
	}
	if len(v.subs) == 0 {
		flags := ""
		if v.use != 0 || len(v.flags) > 0 {
			flags = "[FLAG...] "
		}
		p.usage = []string{strings.TrimSpace(p.name + " " + flags + v.args)}
	}
	p.sections = flagSections(v.use, v.flags)
	return p
}

func lowered(s string) string { return strings.ToLower(s[:1]) + s[1:] }
func upper(s string) string   { return strings.ToUpper(s[:1]) + s[1:] }

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
	p.man(&b, ".SH")
	for _, part := range p.parts {
		fmt.Fprintf(&b, ".SH \"%s\"\n", roff(strings.ToUpper(strings.TrimPrefix(part.name, "ai-sandbox "))))
		b.WriteString(roffLine(upper(part.about) + "."))
		part.man(&b, ".SS")
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

// all are the sections and, of what can be run itself, the exit codes.
func (p page) all() []pageSection {
	if len(p.exit) == 0 {
		return p.sections
	}
	return append(slices.Clip(p.sections), pageSection{"Exit status", p.exit})
}

// man writes what a page says under headings of a level (.SH or .SS).
func (p page) man(b *strings.Builder, heading string) {
	title := func(s string) { fmt.Fprintf(b, "%s \"%s\"\n", heading, roff(strings.ToUpper(s))) }
	title("Examples")
	for _, e := range p.examples {
		b.WriteString(".PP\n.EX\n" + roffLine(e) + ".EE\n")
	}
	for _, s := range p.all() {
		title(s.title)
		for _, it := range s.items {
			b.WriteString(".TP\n.B " + strings.ReplaceAll(roff(it[0]), `"`, `\(dq`) + "\n" + roffLine(it[1]))
		}
	}
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
		p.markdown(&b, "##")
	}
	return b.String()
}

func (p page) markdown(b *strings.Builder, heading string) {
	fmt.Fprintf(b, "\n%s %s\n\n%s.\n\n```\n%s\n```\n", heading, p.name, upper(p.about), strings.Join(p.usage, "\n"))
	fmt.Fprintf(b, "\nExamples:\n\n```\n%s\n```\n", strings.Join(p.examples, "\n"))
	for _, s := range p.all() {
		b.WriteString("\n" + s.title + ":\n\n")
		table(b, s.items)
	}
	for _, part := range p.parts {
		part.markdown(b, heading+"#")
	}
}

func table(b *strings.Builder, items [][2]string) {
	b.WriteString("| | |\n| --- | --- |\n")
	for _, it := range items {
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(it[0], "|", `\|`), strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`).Replace(it[1]))
	}
}
