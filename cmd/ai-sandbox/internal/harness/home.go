// What a harness gets of the host's home, and what its own home starts with.

package harness

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"ai-sandbox/policy"
)

// BindInput is what Binds has to know.
type BindInput struct {
	// Home is the user's home on the host, absolute and resolved.
	Home string
	// Project is the project on the host, or "", Workdir the same inside.
	Project, Workdir string
	// Exists tells whether a host path is a directory or a regular file. A link
	// at its end is neither: a sandbox could have planted it.
	Exists func(path string) (isDir, ok bool)
	// WholeHome is --bind-harness-home.
	WholeHome bool
	// Login: the file with the login is bound.
	Login bool
	// Container: it is podman's runtime, where the whole directory never was bound.
	Container bool
}

// RunDir is where the binds are inside. It is not in the home, which the sandbox
// writes: when bwrap 0.8 makes a mount point, it follows a link there out to the
// host, and what podman makes there is not the sandbox's to write.
const RunDir = "/run/aisb-harness"

// Access is what a harness gets of the host.
type Access struct {
	// Binds are in an order to mount them in: one may be inside an earlier one.
	Binds []policy.Mount
	// Links lead from the home to the binds. All places that ever have one are
	// there, parents first.
	Links []Link
	// LoggedIn: the host's file with the login is in one of them.
	LoggedIn bool
	// Loud are sentences for policy.Input.Loud.
	Loud []string
	// Notes tell the user what was left out that might be missed.
	Notes []string
}

// A Link is made inside, as the sandbox's user. Path is relative to the home.
//
// First, a symbolic link at Path is removed. Then, if To is set, whatever is at
// Path is renamed to Path+policy.OwnSuffix and Path becomes a link to To; if it is
// not, and nothing is at Path, what was renamed comes back.
type Link struct{ Path, To string }

// Binds is what a harness gets of the host's home; what is not there is left
// out. Without WholeHome that is the file with its login, read-only and where that is
// asked for, and the project's own transcripts, for which it can't be resumed
// otherwise.
//
// A file that is bound alone stays what it was at the start of the run: a login
// that the host renews by a rename goes unseen, and one that is renewed inside
// never gets out. Where renewing uses the old token up (claude, codex) the host
// has to log in again then; it can't happen while the host that renews tokens is
// not on the list (platform.claude.com, auth.openai.com).
func (h Harness) Binds(in BindInput) Access {
	var out Access
	if h.dir == "" || !path.IsAbs(in.Home) {
		return out
	}
	is := func(p string, wantDir bool) bool {
		dir, ok := in.Exists(path.Join(in.Home, p))
		return ok && dir == wantDir
	}
	bind := func(source, target string, ro bool, why string) {
		out.Binds = append(out.Binds, policy.Mount{
			Kind: policy.KindBind, Source: path.Join(in.Home, source), Target: path.Join(RunDir, target), ReadOnly: ro, Why: why,
		})
	}
	link := func(at, target string, wanted bool) {
		l := Link{Path: at}
		if wanted {
			l.To = path.Join(RunDir, target)
		}
		out.Links = append(out.Links, l)
	}

	whole := in.WholeHome && is(h.dir, true)
	if !in.Container {
		link(h.dir, "home", whole)
	}
	if whole {
		out.LoggedIn = h.credential != "" && is(h.credential, false)
		bind(h.dir, "home", false, h.Name+"'s directory in the host's home, all of it")
		holds := "every project's transcripts are in there"
		if h.credential != "" {
			holds = "every project's transcripts and the login are in there"
		}
		out.Loud = append(out.Loud, fmt.Sprintf("HARNESS HOME: the command can change this machine's ~/%s. %s obeys what is in there outside of the sandbox too (%s), "+
			"so that whatever runs inside can run outside later; and %s", h.dir, h.Name, h.dangers, holds))
		return out
	}
	if in.WholeHome {
		out.Notes = append(out.Notes, fmt.Sprintf("there is no directory ~/%s to bind; %s has its own in the sandbox", h.dir, h.Name))
	}

	if h.credential != "" {
		ok, target := in.Login && is(h.credential, false), "login"
		if h.locks {
			target += "/" + path.Base(h.credential)
		}
		link(h.credential, target, ok)
		if out.LoggedIn = ok; ok {
			if h.locks {
				out.Binds = append(out.Binds, policy.Mount{
					Kind: policy.KindTmpfs, Target: path.Join(RunDir, "login"), SizeBytes: 64 << 10, Mode: "1777", Why: "for the lock that " + h.Name + " makes beside its login",
				})
			}
			bind(h.credential, target, true, h.Name+"'s login, as it is now")
		}
	}
	if h.transcripts == nil || in.Project == "" {
		return out
	}
	source := h.transcripts(in.Project)
	ok := is(source, true)
	if ok && h.obeyed != "" && !is(path.Join(source, h.obeyed), true) {
		// Nothing can be mounted on what is not there, and without that the
		// command could make it.
		ok = false
		out.Notes = append(out.Notes, fmt.Sprintf("%s's earlier sessions of this project stay outside, as ~/%s is not a directory that could be held read-only; "+
			"%s makes it at its next start outside", h.Name, path.Join(source, h.obeyed), h.Name))
	}
	link(h.transcripts(in.Workdir), "transcripts", ok)
	if !ok {
		return out
	}
	bind(source, "transcripts", false, fmt.Sprintf("%s's transcripts of this project; outside, resuming one replays what was written inside", h.Name))
	if h.obeyed != "" {
		bind(path.Join(source, h.obeyed), path.Join("transcripts", h.obeyed), true, h.Name+" takes instructions from it outside too")
	}
	return out
}

// LoginIn tells whose login a host path shows: it is the file with it, or holds that,
// or is the program's whole directory. resolve follows links as far as a path exists.
func LoginIn(home, source string, resolve func(string) string) (name string, ok bool) {
	holds := func(below string) bool {
		p := path.Join(home, below)
		return source == p || strings.HasPrefix(p, strings.TrimSuffix(source, "/")+"/") ||
			source == resolve(p) || strings.HasPrefix(resolve(p), strings.TrimSuffix(source, "/")+"/")
	}
	for _, h := range Table {
		if h.dir != "" && holds(h.dir) || h.credential != "" && holds(h.credential) {
			return h.Name, true
		}
	}
	return "", false
}

// Writable are the directories below the user's home that some run of a harness may
// write: all projects' transcripts, and with whole (BindInput.WholeHome) all that is
// the harness's own.
func Writable(whole bool) []string {
	var out []string
	for _, h := range Table {
		switch {
		case whole && h.dir != "":
			out = append(out, h.dir)
		case h.transcripts != nil:
			out = append(out, path.Dir(h.transcripts("/")))
		}
	}
	return out
}

// A Seed is a file that a home has to have before its first run.
type Seed struct {
	// Path is relative to the home; directories above it are made with mode
	// 0700, as for a Link.
	Path    string
	Content []byte
	Mode    fs.FileMode
}

// Seeds are the files that spare a first run in workdir its questions, given the
// values of the variables that it passes: whether
// the project is trusted, and what a sandbox answers already. A file that exists
// is left as it is, whatever it holds or is. They are made inside, after the
// links, with O_EXCL and as the sandbox's user: what a hostile home leads to is
// the sandbox's own then. Below a link that leads to the host nothing is seeded:
// the host's answers are the user's.
func (h Harness) Seeds(workdir string, links []Link, value func(name string) string) []Seed {
	var all, out []Seed
	if h.seeds != nil {
		all = h.seeds(workdir, value)
	}
	if h.guide != "" {
		all = append(all, Seed{Path: h.guide, Mode: 0o600, Content: []byte(guideNote)})
	}
	for _, s := range all {
		host := slices.ContainsFunc(links, func(l Link) bool { return l.To != "" && strings.HasPrefix(s.Path, l.Path+"/") })
		if !host {
			out = append(out, s)
		}
	}
	return out
}

// guideNote is what each agent is told of the guide, as its user's own instruction.
const guideNote = "You work in a sandbox. Read `" + policy.GuidePath + "` before you take a refusal for a fault of the\n" +
	"network, of git or of permissions: it says what can be reached and changed here, what a\n" +
	"refusal looks like, and whom to ask for more.\n"

// asJSON can't fail: what it is given are maps of strings, lists and truths.
func asJSON(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}
