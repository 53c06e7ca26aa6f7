// The guide: what an agent inside is told, so that it doesn't take a refusal for a
// broken network.

package policy

import (
	"fmt"
	"strings"
)

// Where the guide is inside. It is written into the control directory, and GuidePath
// leads there.
const (
	GuidePath = "/etc/aisb/GUIDE.md"
	GuideName = "GUIDE.md"
	GuideFile = "/run/aisb/" + GuideName
)

// Guide is the text. It says nothing that --print-policy does not.
func (p Policy) Guide() string {
	b := &strings.Builder{}
	say := func(format string, a ...any) { fmt.Fprintf(b, format+"\n", a...) }
	say("# You are in a sandbox\n")
	say("ai-sandbox shuts everything that is not named here. A refusal is not a fault to be")
	say("debugged: it stays one. The person who started this run can change it; say what you")
	say("need, and why, with the flag that is named, and go on with what is possible.\n")

	say("## Network\n")
	switch {
	case p.Net.Gated():
		say("Hosts are reached by a proxy alone (HTTP_PROXY, HTTPS_PROXY), by name and with TCP.%s", p.Net.guideList())
		for _, e := range p.Net.Allow {
			if !p.Net.Learn { // else it is one of all
				say("- %s", Printable(e.String()))
			}
		}
		for _, e := range p.Net.AllowPrivate {
			say("- %s (may be a private address)", Printable(e.String()))
		}
		if len(p.Net.Allow)+len(p.Net.AllowPrivate) == 0 && !p.Net.Learn {
			say("- nothing: no host can be reached")
		}
		say("\nAny other host gets `403` from the proxy (`CONNECT tunnel failed, response 403`). What")
		say("goes past the proxy gets `Connection refused` or `Network is unreachable`, and names are")
		say("not resolved inside (`Could not resolve host`). Flag: `--allow HOST`.\n")
		say("git over ssh does not get through. Use https, for what a remote names as ssh, too:")
		say("`git config --global url.https://HOST/.insteadOf git@HOST:`; with a token for what is private.")
		say("A private registry needs its host on the list and its token. Flag: `--env TOKEN`.")
	case p.Net.Mode == NetHost:
		say("The network is the machine's own; nothing of it is shut.")
	default:
		say("There is none but loopback. Flag: `--allow HOST`, without `--net none`.")
	}
	if len(p.Publish) > 0 {
		say("\nA server at one of these ports is seen from outside, if it listens on `0.0.0.0` and not")
		say("on `127.0.0.1` alone:\n")
		for _, x := range p.Publish {
			say("- %d", x.Port)
		}
	} else if p.Net.Mode != NetHost {
		say("\nNo port inside is seen from outside. Flag: `--publish PORT`; the server then has to")
		say("listen on `0.0.0.0`, as with `--host 0.0.0.0`.")
	}

	say("\n## Files\n")
	switch {
	case p.Project == "":
		say("There is no project. `%s` is empty, and ends with the run.", Printable(p.Workdir))
	case p.readOnlyProject():
		say("The project is `%s`, read-only.", Printable(p.Workdir))
	case !p.protects():
		say("The project is `%s`.", Printable(p.Workdir))
	default:
		say("The project is `%s`.", Printable(p.Workdir))
		say("In it some paths are read-only, since tools on the machine run or obey them:")
		say("git's hooks and configuration, editors' and agents' settings. Writing there")
		say("gives `Read-only file system` or `Device or resource busy`. Flag: `--unprotect PATH`.")
	}
	home := "is kept for this project's next run"
	if p.Home.Ephemeral {
		home = "ends with this run"
	}
	say("Your home `%s` %s. Everything else is read-only or ends with the run,", HomeDir, home)
	say("as `/tmp` does, unless it was mounted for you.")
	if p.KeepRoot {
		say("You are uid 0 without any capability: what takes one fails with `Operation not permitted`.")
	} else {
		say("You are not root, and nothing makes you root: no sudo, no system packages (`apt-get`).")
	}

	if p.holds(".git/config") {
		say("\n## git\n")
		say("Commits, branches and fetching from a host on the list work. Whatever writes")
		say("`.git/config` fails with `could not write config file .git/config: Device or resource busy`:\n")
		say("- `git config NAME VALUE`: use `git config --global`, or `git -c NAME=VALUE`")
		say("- `git remote add`, `git submodule add`, `git sparse-checkout set`: for the person outside")
		say("- `git branch -u`, `git push -u`, `git checkout --track`: the branch is made and pushed without its upstream; name both, as in `git push origin BRANCH`")
		say("- `git clean -d`, `git stash -u`: use `git clean` without `-d`, and `git add -A && git stash`")
		say("- `git init` where there is no `.git`, and hooks: for the person outside")
	}
	return b.String()
}

// guideList is what the list of the guide is.
func (n Net) guideList() string {
	if n.Learn {
		return "\n\nThis run is for finding out what the list of later ones needs: every public host gets\n" +
			"through, at any port, and each is noted. Reach for no more than the task needs. What gets through:\n\n- every public host"
	}
	return " Its list:\n"
}

// readOnlyProject tells whether the project can't be written.
func (p Policy) readOnlyProject() bool {
	for _, m := range p.Mounts {
		if m.Target == p.Workdir && m.Why == WhyProject {
			return m.ReadOnly
		}
	}
	return false
}

// holds tells whether a path of a writable project is read-only.
func (p Policy) holds(rel string) bool {
	at := p.Workdir + "/" + rel
	for _, m := range p.Mounts {
		if m.ReadOnly && (m.Target == at || below(at, m.Target) && below(m.Target, p.Workdir)) {
			return p.Project != "" && !p.readOnlyProject()
		}
	}
	return false
}

// protects tells whether anything in the project is read-only.
func (p Policy) protects() bool {
	for _, m := range p.Mounts {
		if m.ReadOnly && below(m.Target, p.Workdir) {
			return true
		}
	}
	return false
}
