// The project's own file: whether a run may obey it, and the verb trust, by which
// the user says so.

package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/trust"
)

var trustVerb = &verb{
	name: "trust", args: "[DIR]",
	about: "Look at a project's own configuration, and let runs obey it.",
	flags: []ownFlag{
		{name: "yes", usage: "do not ask; for when the settings have been looked at"},
		{name: "revoke", usage: "forget what was trusted in this project"},
	},
	examples: []string{"ai-sandbox trust", "ai-sandbox trust ~/shop", "ai-sandbox trust --revoke"},
	exit:     [][2]string{{"0", "it is trusted, or there is nothing to trust"}, {"1", "it is not"}, {"2", "the command line makes no sense"}},
	action: func(a *app, inv Invocation, _ []config.Item) error {
		if len(inv.Args) > 0 {
			a.project = inv.Args[0]
			if !filepath.IsAbs(a.project) {
				a.project = filepath.Join(a.cwd, a.project)
			}
		}
		revoke := slices.Contains(inv.Own, "revoke")
		// One that is gone is known by the path that it had.
		gone := ""
		if _, err := os.Lstat(a.project); revoke && a.project != "" && errors.Is(err, fs.ErrNotExist) {
			gone, a.project = filepath.Clean(a.project), ""
		}
		facts, err := a.probe(gone != "", false)
		if err != nil {
			return err
		}
		if revoke {
			return a.revoke(facts, cmp.Or(gone, facts.Project.Path))
		}
		return a.trust(facts, slices.Contains(inv.Own, "yes"))
	},
}

// trust shows the project's file, asks, and records what was shown.
func (a *app) trust(facts host.Facts, yes bool) error {
	project := facts.Project.Path
	own, err := a.own(nil)
	l, _, err := a.layers(own, err, facts, true)
	if err != nil {
		return err
	}
	store := trust.In(facts.Dirs.State)
	old, known, err := store.Load(project)
	if err != nil {
		return err
	}
	d := trust.Decide(l, old, known)
	empty := len(l.Project.Lines()) == 0
	file := filepath.Join(project, config.ProjectFile)
	switch {
	case empty && !known:
		a.notef("there is nothing to trust: %s has no settings", quote(file))
		return nil
	case d.Trusted:
		a.notef("%s is what was trusted; nothing has changed", quote(file))
		return nil
	}
	against := "nothing of it was trusted before"
	if known {
		against = "- is what was trusted before, + is new"
	}
	width := columns(a.std.Out, a.std.Err, a.std.In)
	lines := diffLines(d.Diff)
	if head := fmt.Sprintf("%s (%s):", quote(file), against); strings.Contains(file, " ") {
		lines = slices.Concat([]string{head, ""}, lines)
	} else { // it can't look like a setting, and is left whole to be copied
		fmt.Fprintf(a.Out, "%s\n\n", head)
	}
	for _, line := range lines {
		for _, part := range folded(a.text(line), width) {
			fmt.Fprintln(a.Out, part)
		}
	}
	fmt.Fprintln(a.Out)
	if !yes {
		if err := a.confirm("Trust this? A run in this project then obeys it. Write yes: ", "nothing was trusted", "look at the settings above, then: ai-sandbox trust --yes"); err != nil {
			return err
		}
	}
	if empty {
		_, err = store.Forget(project)
	} else {
		err = store.Save(project, l.Project)
	}
	switch {
	case err != nil:
		return err
	case empty:
		a.notef("nothing is trusted here any more, as the file has no settings")
	default:
		a.notef("trusted, until a setting changes")
	}
	return nil
}

func (a *app) revoke(facts host.Facts, project string) error {
	was, err := trust.In(facts.Dirs.State).Forget(project)
	switch {
	case err != nil:
		return err
	case was:
		a.notef("nothing is trusted here any more")
	default:
		a.notef("nothing was trusted here")
	}
	return nil
}

// confirm asks the user on the terminal. Without a yes, nothing is what comes of it,
// and instead is what to do where there is nobody to ask.
func (a *app) confirm(question, nothing, instead string) error {
	out, ok := a.std.Out.(*os.File)
	if !ok || a.std.In == nil || !term.IsTerminal(int(a.std.In.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return errors.New("there is no terminal to ask on, so " + nothing + "; " + instead)
	}
	// What a sandboxed command made the terminal say (as an answer to a query) is
	// not what the user types.
	if err := unix.IoctlSetInt(int(a.std.In.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return fmt.Errorf("empty the terminal's input: %w", err)
	}
	if _, err := io.WriteString(a.Out, question); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	if err := a.Out.flush(); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(a.std.In, 1<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("the answer was not yes, so " + nothing)
	}
	return nil
}

// obey refuses a project's file that the user would have to trust first.
func (a *app) obey(l config.Layers, facts host.Facts) error {
	trusted, known, err := trust.In(facts.Dirs.State).Load(facts.Project.Path)
	if err != nil {
		return err
	}
	if d := trust.Decide(l, trusted, known); !d.Obey {
		e := &untrusted{Decision: d}
		if cwd, err := filepath.EvalSymlinks(a.cwd); err != nil || cwd != facts.Project.Path {
			e.dir = facts.Project.Path
		}
		return e
	}
	return nil
}

// untrusted is a project's file that a run may not obey.
type untrusted struct {
	trust.Decision
	dir string // to name; "" is the current one
}

func (e *untrusted) Error() string {
	if e.Known {
		return "the project's " + config.ProjectFile + " is not what was trusted"
	}
	return "the project's " + config.ProjectFile + " is not trusted, and it widens what a run may do"
}

// maxShown bounds what a run that stops shows of a file; trust shows all.
const maxShown = 60

// Detail is the diff.
func (e *untrusted) Detail() []string {
	lines := diffLines(e.Diff)
	if n := len(lines); n > maxShown {
		lines = append(lines[:maxShown], fmt.Sprintf("... and %d lines more, which ai-sandbox trust shows", n-maxShown))
	}
	return lines
}

// Hint is what to do.
func (e *untrusted) Hint() string {
	return "look at it and trust it: " + e.command() + "; or run without it: --ignore-project-config"
}

func (e *untrusted) command() string {
	if e.dir != "" {
		return "ai-sandbox trust " + quote(e.dir)
	}
	return "ai-sandbox trust"
}

// plain escapes what is not plain ASCII, and leaves quotes and backslashes, of which
// scripts are full.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= ' ' && r <= '~' {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteToASCII(string(r))
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// columns is the width of the first of these that is a terminal, or 80.
func columns(streams ...any) int {
	for _, s := range streams {
		if n, ok := s.(notices); ok {
			s = n.a.std.Err
		}
		if f, ok := s.(*os.File); ok && f != nil {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
				return n
			}
		}
	}
	return 80
}

// folded breaks a line where a terminal of that width would, and marks what goes on: a
// terminal's own break would let the text choose what a line begins with.
func folded(line string, width int) []string {
	const mark = "| "
	width = max(width-1, len(mark)+1) // a full line is broken by some terminals
	rest := []rune(line)
	var out []string
	for begin := ""; ; begin = mark {
		n := min(len(rest), width-len(begin))
		out = append(out, begin+string(rest[:n]))
		if rest = rest[n:]; len(rest) == 0 {
			return out
		}
	}
}

// diffLines shows a diff. No line of a file can look like a mark of ours: a value
// holds no " #", and what is not plain ASCII is escaped, so that letters which
// look alike do not pass for each other; folded keeps it so on a narrow terminal.
func diffLines(diff []trust.Line) []string {
	var out []string
	for _, l := range diff {
		text := l.Text
		foreign := func(r rune) bool { return r < ' ' || r > '~' }
		if l.Script {
			out = append(out, string(l.Op)+" "+plain(text))
			continue
		}
		switch key, value, ok := strings.Cut(text, " = "); {
		case !ok:
			text = plain(text)
		case strings.ContainsFunc(value, foreign):
			text = key + " = " + strconv.QuoteToASCII(value)
		}
		if l.Widens {
			text += "  # widens"
		}
		out = append(out, string(l.Op)+" "+text)
	}
	return out
}
