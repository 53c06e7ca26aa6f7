// Package harness has an adapter for each agent program that ai-sandbox knows by
// name, one file each: what the name runs, and what of the host and of its own home
// it needs for that. It is pure data. An entry that needs code of its own gets a
// sub-package.
//
// The facts were read off the real programs of the versions that are named. Those
// about kiro are from its documentation.
package harness

import (
	"slices"
	"strings"
)

// Default is what runs when the command line names no harness, verb or command.
const Default = "pi"

// A Harness is one agent program.
type Harness struct {
	// Order is its place in the help, and among the layers of images: what is asked for
	// most often comes first, so that most sets have the same layers. A new one takes
	// the next number.
	Order int
	// Name is the word on ai-sandbox's command line.
	Name string
	// Command is what runs inside; the user's arguments follow it.
	Command []string
	// About is one line for the help.
	About string
	// Package and Version are what npm installs it from; "" when npm has none. Of an
	// image, locks/NAME.json has the rest (make lock AGENT=NAME), and the three below
	// are as in image.Harness.
	Package, Version string
	Scripts          []string
	Programs         map[string]string
	Unwanted         []string
	// Token is the variable that the program reads its access token from, passed
	// on where it is set; "" where the user has to name it (see Credentials).
	Token string
	// Credentials are the variables that the program can have its key in, the
	// usual one first: --env NAME passes one.
	Credentials []string
	// Hosts are what its model needs, where no other is set; they are suggested and
	// never allowed by themselves. BaseURL is the variable that leads elsewhere, or "".
	Hosts   []string
	BaseURL string
	// HostOf is where a key in one of Credentials leads, if not to Hosts.
	HostOf map[string]string
	// Keyed are the arguments for a program that does not read Credentials and
	// BaseURL by itself.
	Keyed Keyed
	// Bridge: the program's configuration on this machine is rewritten for it, by
	// pibridge, and Token is the default of pi_token_env.
	Bridge bool
	// Skip makes the program work without asking for permission.
	Skip Skip
	// Session is how a session is begun under an id and resumed.
	Session Session
	// Model is the flag that names a model, or "", Provider the one for who has it, and
	// Models the one for several, of which the first is taken.
	Model, Provider, Models string
	// Setting are the flags whose value is KEY=VALUE, for one of its settings.
	Setting []string
	// Thinking is how much it reasons, where a flag says so.
	Thinking Thinking
	// Held are the settings that no file in the sandbox may say otherwise.
	Held Held
	// Verbs are first arguments that are commands of the program itself (mcp,
	// login, ...) and not the agent's: they follow Command's first word, alone.
	Verbs []string

	// dir is the program's directory below the home; the three below are in it.
	dir string
	// credential is the file with the login, "" when it can't be had alone.
	credential string
	// locks: it makes a lock beside that file, and ends where it can't.
	locks bool
	// transcripts is where a project's own are, nil when they can't be told
	// from other projects'.
	transcripts func(project string) string
	// obeyed is a directory in transcripts that later sessions take
	// instructions from.
	obeyed string
	// seeds are the files that spare the first run its questions. value is of a
	// variable that the run passes.
	seeds func(workdir string, value func(name string) string) []Seed
	// guide is the file below the home from which the program takes standing
	// instructions.
	guide string
	// extras are the directories below the home that it finds a kind of Extra in.
	extras map[Extra]string
	// dangers says what of dir the program obeys on the host.
	dangers string
	// project are the names in a project that the program obeys, in any of its
	// directories; a directory's ends in "/".
	project []string
}

// Skip is how a program is told to work without asking for permission. Inside,
// the sandbox says what is possible, so the flag is on in every run of ours: with
// --net host too, where the files and processes are shut all the same.
type Skip struct {
	// Flag is "" for a program that has none.
	Flag string
	// Chosen is by what users say themselves how much they want to be asked. Flag
	// would override or contradict it, so it is not added to it.
	Chosen
	// Behind are those of the program's own commands that have the flag, too, and take it
	// behind their names alone. The others of such a program do not have it.
	Behind []string
}

// ID stands for a session's id in the arguments of a Session.
const ID = "ID"

// A Session are the arguments that begin one under an id of the caller's, resume the
// one with an id, and resume the last; nil is what the program has not. Others are more
// flags that resume one.
type Session struct{ New, Resume, Last, Others []string }

// Levels are the values of the setting thinking that mean an amount, from the least
// on. They are pi's.
var Levels = []string{"off", "minimal", "low", "medium", "high", "xhigh", "max"}

// Thinking is how a program is told how much to reason: Flag, then Before and what
// the level is in its own words. The zero one has no flag for it.
type Thinking struct {
	Flag, Before string
	// Words are by level: a program has not all of them.
	Words map[string]string
	// Chosen is by what the user says it himself.
	Chosen
}

// Held are settings of a run, by a flag: they count for more than those in files, which
// the sandbox may have written. A user who gives the flag has his own.
type Held struct {
	Flag string
	// Of are the settings for a level in the program's own words, or "" where the run
	// says none, and for its variables; "" is that there are none.
	Of func(word string, vars Vars) string
}

// Reasoning are the names of those that are told how much to reason.
func Reasoning() []string {
	var out []string
	for _, h := range Table {
		if h.Thinking.Flag != "" {
			out = append(out, h.Name)
		}
	}
	return out
}

// thinkingArgs are the arguments for a level, or nil where the program has no flag for
// it or the user says it already.
func (h Harness) thinkingArgs(level string, args []string, vars Vars) []string {
	if word := h.word(level, args, vars); word != "" {
		return []string{h.Thinking.Flag, h.Thinking.Before + word}
	}
	return nil
}

func (h Harness) word(level string, args []string, vars Vars) string {
	if h.OwnCommand(args) || h.chosen(h.Thinking.Chosen, args, vars) {
		return ""
	}
	return h.Thinking.Words[level]
}

// heldArgs are the arguments with the settings that the run holds.
func (h Harness) heldArgs(level string, args []string, vars Vars) []string {
	if h.Held.Flag == "" || h.chosen(Chosen{Choices: []string{h.Held.Flag}}, args, vars) {
		return nil
	}
	if settings := h.Held.Of(h.word(level, args, vars), vars); settings != "" {
		return []string{h.Held.Flag, settings}
	}
	return nil
}

// Vars are the variables that a run passes to a program; one that it passes by name is
// there without its value.
type Vars map[string]string

// Keyed is how a program is told of its key in a variable, and of another address:
// not at all where Args is nil.
type Keyed struct {
	// Args are for the key in the variable name, or "" for a login of its own, at
	// address, or "" for its own.
	Args func(name, address string) []string
	// Chosen is by what the user says where the model is.
	Chosen
}

// keyArgs are the arguments for the first variable that the run passes. One that leads
// to an address that is not to be seen leads nowhere.
func (h Harness) keyArgs(args []string, vars Vars) []string {
	k := h.Keyed
	address, elsewhere := vars[h.BaseURL]
	if k.Args == nil || elsewhere && address == "" || h.chosen(k.Chosen, args, vars) {
		return nil
	}
	for _, name := range h.Credentials {
		if _, ok := vars[name]; ok {
			return k.Args(name, address)
		}
	}
	return k.Args("", address)
}

// An Extra is what a user can show an agent of his own.
type Extra string

// The kinds of Extra.
const (
	Skill     Extra = "skill"     // a directory with SKILL.md
	Prompt    Extra = "prompt"    // a file .md
	Prompts   Extra = "prompts"   // a directory of such files
	Extension Extra = "extension" // a file .ts or .js, or a directory with package.json or index.ts
)

// Place is where an Extra is seen, below the home, or "" where the agent has no place
// for its kind.
func (h Harness) Place(kind Extra, name string) string {
	dir := h.extras[kind]
	if dir == "" || kind == Prompts {
		return dir
	}
	return dir + "/" + name
}

// Table lists every harness by its Order. Each adapter's file puts its own in.
var Table []Harness

// add puts one into Table. It is called before main, by a variable of each adapter, so
// that there is no second list.
func add(h Harness) Harness {
	Table = append(Table, h)
	slices.SortFunc(Table, func(a, b Harness) int { return a.Order - b.Order })
	return h
}

// Obeyed are the names of directories and files in a project that one of them obeys.
func Obeyed() (dirs, files []string) {
	for _, h := range Table {
		for _, name := range h.project {
			if dir, ok := strings.CutSuffix(name, "/"); ok {
				dirs = append(dirs, dir)
			} else {
				files = append(files, name)
			}
		}
	}
	return dirs, files
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

// Argv is the command line inside: the harness with the user's arguments, and
// before them Skip's flag, the thinking level ("" for the program's own) and where its
// key is (vars), where they mean something and the
// user has not chosen. They stand first, for new and resumed runs alike: there no
// option that takes a list, and no "--", can swallow them.
func (h Harness) Argv(args []string, level string, vars Vars) []string {
	if h.OwnCommand(args) {
		return slices.Concat(h.Command[:1], args)
	}
	said := slices.Concat(h.thinkingArgs(level, args, vars), h.heldArgs(level, args, vars), h.keyArgs(args, vars))
	at, ok := h.place(args, vars)
	if !ok {
		return slices.Concat(h.Command, said, args)
	}
	return slices.Concat(h.Command, args[:at], []string{h.Skip.Flag}, said, args[at:])
}

// OwnCommand tells whether args are for one of Verbs.
func (h Harness) OwnCommand(args []string) bool {
	return len(args) > 0 && slices.Contains(h.Verbs, args[0])
}

// Elsewhere tells whether the user says where the model is, in args or by a variable.
func (h Harness) Elsewhere(args []string, vars Vars) bool {
	return h.chosen(h.Keyed.Chosen, args, vars)
}

// Resumes tells whether the user resumes a session by a flag.
func (h Harness) Resumes(args []string) bool {
	s := h.Session
	return h.chosen(Chosen{Choices: slices.DeleteFunc(slices.Concat(s.Resume, s.Last, s.Others), func(arg string) bool { return !strings.HasPrefix(arg, "-") })}, args, nil)
}

// Value is what the last one of a flag in args says, or "".
func Value(args []string, flag string) string {
	out := ""
	for i, arg := range args {
		if arg == "--" || flag == "" {
			break
		}
		if v, ok := valueOf(args[i:], []string{flag}); ok {
			out = v
		}
	}
	return out
}

// Reasons is what a level is for the command line: the arguments that say so, or ""
// where none do.
func (h Harness) Reasons(args []string, level string, vars Vars) string {
	said := h.thinkingArgs(level, args, vars)
	switch held := h.heldArgs(level, args, vars); {
	case said == nil:
	case held != nil:
		said = append(said, held...)
	case h.Held.Flag != "":
		said = append(said, "(unless its settings say another)")
	}
	return strings.Join(said, " ")
}

// place is where in args the flag to skip questions stands, if it is to.
func (h Harness) place(args []string, vars Vars) (at int, ok bool) {
	if h.Skip.Flag == "" || h.chosen(h.Skip.Chosen, args, vars) {
		return 0, false
	}
	if h.Skip.Behind == nil {
		return 0, true
	}
	// An option may stand before a command. What only looks like one is the value of an
	// option: then the flag is right behind it, too, or is missing, and the program asks.
	for i, arg := range args {
		switch {
		case arg == "--":
			return 0, true
		case slices.Contains(h.Skip.Behind, arg):
			return i + 1, true
		case slices.Contains(h.Verbs, arg):
			return 0, false
		}
	}
	return 0, true
}
