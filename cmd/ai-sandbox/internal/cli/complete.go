// The verb completion: a script for a shell, and what that asks with each press of the
// key. All of it follows from the tables of verbs, options and harnesses.

package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/policy"
)

func newCompletionVerb() *verb {
	return &verb{
		name: "completion", args: "SHELL [-- WORD...]",
		about: "Print a script that completes ai-sandbox's words in bash, zsh or fish.",
		examples: []string{
			"source <(ai-sandbox completion bash)",
			"ai-sandbox completion zsh >~/.zfunc/_ai-sandbox",
			"ai-sandbox completion fish >~/.config/fish/completions/ai-sandbox.fish",
		},
		exit: usualExit,
		action: func(a *app, inv Invocation, _ []config.Item) error {
			script, ok := completionScripts[inv.Args[0]]
			switch {
			case !ok:
				return &errUsage{text: fmt.Sprintf("no completion is known for %s; choose from bash, zsh, fish", quote(inv.Args[0])), verb: true}
			case inv.Command == nil:
				return writeText(a.Out, script)
			case inv.Args[0] == "bash":
				return writeText(a.Out, bashLines(a.candidates, inv.Command))
			}
			return writeText(a.Out, candidateLines(a.candidates(inv.Command)))
		},
	}
}

// completionScripts ask with the words up to the one that is being typed, and take a
// line for each candidate: the word, a tab, and what it is. Without one, files are
// completed.
var completionScripts = map[string]string{
	"bash": `# ai-sandbox's words in bash. Load it with: source <(ai-sandbox completion bash)
_ai_sandbox() {
	local word _
	COMPREPLY=()
	while IFS=$'\t' read -r word _; do
		COMPREPLY+=("$word")
	done < <("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
		compopt -o nospace
	fi
}
complete -o default -o bashdefault -F _ai_sandbox ai-sandbox
`,
	"zsh": `#compdef ai-sandbox
# ai-sandbox's words in zsh. Put it as _ai-sandbox into a directory of $fpath.
_ai-sandbox() {
	local -a list
	local line
	for line in "${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && list+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if ((${#list})); then
		_describe -V word list
	else
		_files
	fi
}
if [[ ${funcstack[1]} == _ai-sandbox ]]; then
	_ai-sandbox "$@"
else
	compdef _ai-sandbox ai-sandbox
fi
`,
	"fish": `# ai-sandbox's words in fish. Put it as ai-sandbox.fish into ~/.config/fish/completions.
function __ai_sandbox_complete
	set -l words (commandline -opc) (commandline -ct)
	set -l list ($words[1] completion fish -- $words[2..-1] 2>/dev/null)
	if test (count $list) -gt 0
		printf '%s\n' $list
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c ai-sandbox -f -a '(__ai_sandbox_complete)'
`,
}

// A candidate is a word that may stand where the last one is, and what it is.
type candidate struct{ word, about string }

// plainWord is what no shell takes for anything but a word.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._:/@%+=-]+$`) })

func candidateLines(list []candidate) string {
	var b strings.Builder
	for _, c := range list {
		if plainWord().MatchString(c.word) {
			fmt.Fprintf(&b, "%s\t%s\n", c.word, policy.Printable(c.about))
		}
	}
	return b.String()
}

// bashLines undoes bash's own idea of words: "=" is one in itself, and only what comes
// after it is replaced.
func bashLines(candidates func([]string) []candidate, words []string) string {
	var joined []string
	cut := ""
	for i, w := range words {
		n := len(joined)
		switch {
		case w == "=" && n > 0 && strings.HasPrefix(joined[n-1], "--"):
			joined[n-1] += "="
		case i > 0 && words[i-1] == "=" && n > 0 && strings.HasSuffix(joined[n-1], "="):
			joined[n-1] += w
		default:
			joined = append(joined, w)
		}
	}
	if last := joined[len(joined)-1]; strings.HasPrefix(last, "--") {
		if name, _, ok := strings.Cut(last, "="); ok {
			cut = name + "="
		}
	}
	list := candidates(joined)
	for i := range list {
		list[i].word = strings.TrimPrefix(list[i].word, cut)
	}
	return candidateLines(list)
}

// candidates are the words that may stand in the place of the last one.
func (a *app) candidates(words []string) []candidate {
	cur, before := words[len(words)-1], words[:len(words)-1]
	var v *verb
	use, specs, path := config.UseRun, flagSpecs(config.UseRun), ""
	var args []string
	for len(before) > 0 {
		w := before[0]
		before = before[1:]
		if w == "--" {
			return nil // a command's, or a file
		}
		if strings.HasPrefix(w, "-") {
			name, _, has := strings.Cut(strings.TrimPrefix(w, "--"), "=")
			i := slices.IndexFunc(specs, func(s flagSpec) bool { return s.name == name })
			switch {
			case i < 0 && v == nil:
				return nil // the harness's
			case i < 0 || has || specs[i].bare != "":
			case len(before) == 0:
				return starting(a.flagValues(v, name), cur)
			default:
				before = before[1:]
			}
			continue
		}
		switch {
		case v == nil:
			found, ok := lookupVerb(w)
			if !ok {
				return nil // a harness has the rest
			}
			v, path = found, found.name
			use, specs = v.use, v.specs()
		case v.sub(w) != nil:
			v = v.sub(w)
			path += " " + v.name
			use, specs = v.use, v.specs()
		default:
			args = append(args, w)
		}
	}
	if name, value, ok := strings.Cut(cur, "="); ok && strings.HasPrefix(cur, "--") {
		var out []candidate
		for _, c := range starting(a.flagValues(v, strings.TrimPrefix(name, "--")), value) {
			out = append(out, candidate{name + "=" + c.word, c.about})
		}
		return out
	}
	if strings.HasPrefix(cur, "-") {
		return starting(flagWords(v, use), cur)
	}
	return starting(a.arguments(v, path, args), cur)
}

func starting(list []candidate, with string) []candidate {
	return slices.DeleteFunc(list, func(c candidate) bool { return !strings.HasPrefix(c.word, with) })
}

// flagWords are the flags of a verb, or of a run.
func flagWords(v *verb, use config.Use) []candidate {
	out := []candidate{{"--help", "show the help"}}
	if v == nil {
		out = append(out, candidate{"--version", "print the version"})
	} else {
		for _, f := range v.flags {
			out = append(out, candidate{"--" + f.name, f.usage})
		}
	}
	for _, o := range config.Options {
		if !o.In(config.InFlag) || o.Use&use == 0 {
			continue
		}
		out = append(out, candidate{"--" + o.Flag(), o.Usage})
		if o.Kind == config.Bool && o.Default == "true" {
			out = append(out, candidate{"--no-" + o.Flag(), "not: " + o.Usage})
		}
	}
	return out
}

// flagValues are what a flag may be set to, as far as it's known.
func (a *app) flagValues(v *verb, flag string) []candidate {
	o, ok := config.Lookup(strings.ReplaceAll(flag, "-", "_"))
	switch {
	case flag == "profile":
		return a.profiles()
	case flag == "gate":
		return a.gates()
	case flag == "session":
		return a.sessionWords("log", "SESSION")
	case !ok || v != nil && slices.ContainsFunc(v.flags, func(f ownFlag) bool { return f.name == flag }):
		return nil
	case o.Kind == config.Bool:
		return []candidate{{"true", ""}, {"false", ""}}
	}
	var out []candidate
	for _, value := range o.Values {
		out = append(out, candidate{value, ""})
	}
	return out
}

// arguments are what may stand after the arguments before.
func (a *app) arguments(v *verb, path string, before []string) []candidate {
	var out []candidate
	n := len(before)
	switch {
	case v == nil:
		for _, h := range harness.Table {
			out = append(out, candidate{h.Name, h.About})
		}
		for _, v := range verbs() {
			out = append(out, candidate{v.name, v.about})
		}
	case len(v.subs) > 0 && n == 0:
		for _, s := range v.subs {
			out = append(out, candidate{s.name, s.about})
		}
	case n == 1 && path == "help":
		if of, ok := lookupVerb(before[0]); ok {
			for _, s := range of.subs {
				out = append(out, candidate{s.name, s.about})
			}
		}
	case n > 0:
	case path == "completion":
		for _, shell := range []string{"bash", "zsh", "fish"} {
			out = append(out, candidate{shell, ""})
		}
	case strings.HasPrefix(path, "gate ") && path != "gate up":
		out = a.gates()
	case path == "help" || path == "manual":
		for _, v := range verbs() {
			out = append(out, candidate{v.name, v.about})
		}
	default:
		out = a.sessionWords(path, v.args)
	}
	return out
}

// sessionWords are the sessions that a verb can do something with.
func (a *app) sessionWords(verb, args string) []candidate {
	if !strings.Contains(args, "ID") && !strings.Contains(args, "SESSION") {
		return nil
	}
	m, err := a.machine()
	if err != nil {
		return nil
	}
	list, _ := a.engine.Sessions(m) // those that can be read
	var out []candidate
	for _, s := range list {
		sandbox, live := s.Kind == store.KindSandbox, s.State == session.StateLive
		switch verb {
		case "exec", "stop", "allow", "deny", "policy show":
			if !live {
				continue
			}
		case "rm":
			if live || sandbox {
				continue
			}
		case "wait", "down":
			if !sandbox || !live && s.State != session.StateKept {
				continue
			}
		}
		out = append(out, candidate{s.ID, s.State + ", " + shorten(commandText(s.Command), 50)})
	}
	return out
}

func (a *app) gates() []candidate {
	m, err := a.machine()
	if err != nil {
		return nil
	}
	names, _ := a.engine.GateNames(m) // those that can be read
	var out []candidate
	for _, n := range names {
		out = append(out, candidate{n, "a gate that stays"})
	}
	return out
}

// profiles are the built-in ones, and those of both files.
func (a *app) profiles() []candidate {
	var out []candidate
	add := func(list []config.Profile, about string) {
		for _, p := range list {
			if !slices.ContainsFunc(out, func(c candidate) bool { return c.word == p.Name }) {
				out = append(out, candidate{p.Name, about})
			}
		}
	}
	if f, err := config.ReadFile(a.userFile()); err == nil {
		add(f.Profiles, "of your file")
	}
	in := a.input(a.cwd)
	in.AnyDir = true
	if facts, err := host.Probe(in); err == nil && facts.Project.Path != "" {
		if f, err := config.ReadProject(facts.Project.Path, facts.Project.Dev, facts.Project.Ino); err == nil {
			add(f.Profiles, "of the project's file")
		}
	}
	add(config.Profiles, "built in")
	return out
}
