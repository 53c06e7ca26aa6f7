// Package explained asks `ai-sandbox explain` what a run may do, and then measures
// it in one: whether the far servers of tests/e2e/internet answer with their
// marker, and whether a directory is seen and can be written. Both have to say the
// same. The end-to-end tests of either runtime call it.
package explained

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ai-sandbox/tests/e2e/internet"
)

// A Bench is a project, and the way ai-sandbox is run in it.
type Bench struct {
	// Token is in the names of this test alone, Marker in the far servers' answers.
	Token, Marker string
	// Project is the project's host path.
	Project string
	// Local: the runtime has no image.
	Local bool
	// Run runs ai-sandbox in the project, to its end.
	Run func(args ...string) (code int, out, errOut string)
	// Hit tells whether a far server was asked for a path.
	Hit func(path string) bool
}

// A question is a host at a port, and where its name leads to.
type question struct {
	host string // as explain is asked
	url  string
	// leads is public, private, loopback or link-local; "" for an address, which
	// explain judges itself.
	leads string
}

func (b Bench) hosts() []question {
	t := b.Token
	var out []question
	for _, q := range [][2]string{
		{t + ".ok.test", "public"}, {"x." + t + ".ok.test", "public"}, {t + ".no.test", "public"},
		{t + ".private.test", "private"}, {t + ".meta.test", "link-local"},
	} {
		out = append(out, question{q[0] + ":80", "http://" + q[0] + "/", q[1]})
		if q[1] == "public" {
			out = append(out, question{q[0] + ":443", "https://" + q[0] + "/", q[1]})
		}
	}
	out = append(out, question{t + ".loop.test:8888", "http://" + t + ".loop.test:8888/", "loopback"})
	for _, a := range []string{internet.Allowed + ":80", internet.Refused + ":80", internet.Private + ":80", internet.Metadata + ":80", "127.0.0.1:8888"} {
		out = append(out, question{a, "http://" + a + "/", ""})
	}
	return out
}

// policies are the flags of the runs.
func (b Bench) policies() [][]string {
	t := b.Token
	allow := func(list ...string) []string {
		var out []string
		for _, s := range list {
			flag := "--allow"
			if rest, ok := strings.CutPrefix(s, "!"); ok {
				flag, s = "--allow-private", rest
			}
			out = append(out, flag, s)
		}
		return out
	}
	list := [][]string{
		nil,
		allow(t + ".ok.test"),
		allow("." + t + ".ok.test"),
		allow(t + ".ok.test:443"),
		allow(t+".ok.test:80", "x."+t+".ok.test:443"),
		allow(".ok.test", ".no.test"),
		allow(internet.Allowed),
		allow("198.51.100.0/24:80"),
		allow(internet.Private),
		allow(t+".private.test", t+".meta.test", t+".loop.test:8888"),
		allow("!" + t + ".private.test"),
		allow("!"+internet.Private, t+".private.test"),
		allow("!10.0.0.0/8", ".ok.test"),
		allow("!"+internet.Metadata, "!"+t+".meta.test"),
		allow("!127.0.0.1:8888"),
		allow("!"+t+".loop.test:8888", "127.0.0.1:8888"),
		append(allow(".ok.test"), "--fs", "ro", "--mount", b.secret()+":/mnt/more"),
		append(allow(".ok.test", "!"+internet.Private), "--net", "none", "--mount", b.secret()+":/mnt/more:rw"),
		append(allow(".ok.test", "!"+internet.Private), "--ephemeral-home", "--gate-engine", "builtin"),
	}
	last := append(allow(".ok.test"), "--net", "unix", "--gate-engine", "builtin", "--insecure-keep-root")
	if b.Local {
		last = append(allow(".ok.test"), "--net", "host", "--fs", "ro")
	}
	return append(list, last)
}

// paths are directories of this machine, and of the inside.
func (b Bench) paths() []string {
	return []string{
		".", "./sub", "./out", "..", "../secret-" + b.Token, "./link", "./link-in",
		"./.git", "./.git/hooks", "./.git/refs", "./.vscode", "./.vscode/x", "./new",
		"/usr", "/usr/lib", "/etc", "/opt", "/root", "/tmp", "/var/tmp", "/dev/shm", "/home/sandbox", "/run", "/run/aisb", "/var/lib", "/home", "/mnt/more",
	}
}

// secret is a directory that only --mount shows.
func (b Bench) secret() string { return filepath.Join(filepath.Dir(b.Project), "secret-"+b.Token) }

// stage makes what paths names, each with a file that tells it.
func (b Bench) stage() error {
	secret := b.secret()
	for _, d := range []string{".git/hooks", ".git/refs", ".git/objects"} {
		if err := os.MkdirAll(filepath.Join(b.Project, d), 0o755); err != nil {
			return fmt.Errorf("make a repository: %w", err)
		}
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"} {
		if err := os.WriteFile(filepath.Join(b.Project, ".git", name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("make a repository: %w", err)
		}
	}
	for _, d := range []string{b.Project, filepath.Join(b.Project, "sub"), filepath.Join(b.Project, "out"), secret} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make the directories to ask about: %w", err)
		}
		if err := os.WriteFile(filepath.Join(d, "is-"+b.Token), []byte(d), 0o644); err != nil {
			return fmt.Errorf("mark a directory: %w", err)
		}
	}
	for link, to := range map[string]string{"link": secret, "link-in": "sub"} {
		if err := os.Symlink(to, filepath.Join(b.Project, link)); err != nil {
			return fmt.Errorf("make a link: %w", err)
		}
	}
	return nil
}

// An asked is one answer of explain, and how it is measured.
type asked struct {
	what, answer string
	// host is a question's index, or -1; want is the answer to it.
	host int
	want bool
	// dir is what is looked at inside otherwise, file what has to be in it, and
	// access what explain says of it.
	dir, file, access string
}

// Measure asks about every policy and measures each. It returns how many answers
// were compared, how many of them were yes, and each difference.
func (b Bench) Measure() (compared, yes int, problems []error) {
	bad := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	if err := b.stage(); err != nil {
		return 0, 0, []error{err}
	}
	hosts := b.hosts()
	for n, flags := range b.policies() {
		var list []asked
		ask := func(what string) (string, bool) {
			code, out, errOut := b.Run(append(append([]string{"explain"}, flags...), what)...)
			if code != 0 || out == "" {
				bad("explain %q %s: exit %d: %s", flags, what, code, errOut)
			}
			return out, code == 0 && out != ""
		}
		for i, q := range hosts {
			if out, ok := ask(q.host); ok {
				want, err := q.predicted(out)
				if err != nil {
					bad("%q: %w", flags, err)
				}
				list = append(list, asked{what: q.host, answer: out, host: i, want: want})
			}
		}
		for _, p := range b.paths() {
			if out, ok := ask(p); ok {
				more, err := b.places(p, out)
				if err != nil {
					bad("%q: %w", flags, err)
				}
				list = append(list, more...)
			}
		}
		code, out, errOut := b.Run(append(append([]string{}, flags...), "--", "sh", "-c", b.script(n, list))...)
		if code != 0 {
			bad("the run with %q: exit %d: %s", flags, code, errOut)
			continue
		}
		got := map[string]string{}
		for line := range strings.Lines(out) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[k] = v
		}
		for i, a := range list {
			is, there := got[fmt.Sprint("q", i)]
			if !there {
				bad("the run with %q measured nothing for %s", flags, a.what)
				continue
			}
			compared++
			if a.host >= 0 {
				reached := strings.Contains(is, b.Marker)
				if seen := b.Hit(b.path(n, i)); seen != reached {
					bad("%q: %s: the far server was asked: %v, and its answer came: %v", flags, a.what, seen, reached)
				}
				if reached {
					yes++
				}
				if reached != a.want {
					bad("%q: %s: reached: %v, and explain says\n%s", flags, a.what, reached, a.answer)
				}
				continue
			}
			if is != "not visible" {
				yes++
			}
			// Of what is not there, it tells what would be.
			image := strings.Contains(a.answer, "if the image has it") && (strings.HasSuffix(a.dir, "/secret-"+b.Token) || a.dir == "/mnt/more")
			if is == "not visible" && (image || strings.Contains(a.answer, "\n  nothing is there now\n")) {
				is = a.access
			}
			if is != a.access {
				bad("%q: %s is %s inside, and explain says %s:\n%s", flags, a.dir, is, a.access, a.answer)
			}
		}
	}
	return compared, yes, problems
}

// path is asked of a far server by one measurement alone. The word keeps it apart
// from what nobody may ever be asked for.
func (b Bench) path(n, i int) string { return fmt.Sprintf("control-%s-%d-%d", b.Token, n, i) }

// script measures: a line for each answer, with its number and what came of it.
func (b Bench) script(n int, list []asked) string {
	var s strings.Builder
	// Whoever is told to, asks the gate for loopback, too.
	s.WriteString("look() { if ! [ -e \"$2$3\" ]; then echo \"$1 not visible\"; elif (: >\"$2/made-$1\") 2>/dev/null; then rm \"$2/made-$1\"; echo \"$1 read-write\"; else echo \"$1 read-only\"; fi; }\n")
	s.WriteString("get() { echo \"$1 $(curl -sS --noproxy '' --max-time 10 \"$2\" 2>/dev/null | tr '\\n' ' ')\"; }\n")
	for i, a := range list {
		if a.host >= 0 {
			fmt.Fprintf(&s, "get q%d '%s%s'\n", i, b.hosts()[a.host].url, b.path(n, i))
		} else {
			fmt.Fprintf(&s, "look q%d '%s' '%s'\n", i, a.dir, a.file)
		}
	}
	return s.String()
}

// predicted is what an answer says will come of a connection.
func (q question) predicted(out string) (bool, error) {
	first, rest, _ := strings.Cut(out, "\n")
	rest = strings.Join(strings.Fields(rest), " ") // its lines are cut anywhere
	verdict, ok := strings.CutPrefix(first, q.host+": ")
	switch {
	case ok && verdict == "refused":
		return false, nil
	case !ok || verdict != "let through":
		return false, fmt.Errorf("explain %s says\n%s", q.host, out)
	case !strings.Contains(rest, "refuses it all the same"):
		return true, nil
	}
	// It names the kinds of address that would be refused.
	_, kinds, _ := strings.Cut(rest, "it has no address, or one that is ")
	kinds, _, _ = strings.Cut(kinds, "that nothing can be at")
	return !strings.Contains(kinds, q.leads), nil
}

// places reads an answer about a path: the places inside, and what is there.
func (b Bench) places(p, out string) ([]asked, error) {
	var list []asked
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		a := asked{what: p, answer: out, host: -1}
		path, rest, ok := strings.Cut(line, ", of this machine: ")
		if ok {
			// The file tells that it is the same directory.
			a.dir, a.file = path, "/is-"+b.Token
			if _, err := os.Stat(path + a.file); err != nil {
				a.file = "" // not one of ours: the path itself
			}
			access, at, seen := strings.Cut(rest, ", inside at ")
			switch {
			case seen:
				a.dir, a.access = at, access
			case strings.HasSuffix(rest, ", inside, too"):
				a.access = strings.TrimSuffix(rest, ", inside, too")
			case a.file == "":
				continue // whether something else is there, the other line says
			default:
				a.access = rest
			}
			list = append(list, a)
			continue
		}
		if path, access, ok := strings.Cut(line, ", inside: "); ok && !strings.HasPrefix(line, " ") {
			a.dir, a.access = path, access
			if strings.Contains(out, "\n  it leads to ") || strings.Contains(out, " on this machine\n") {
				continue // a link of the project's own: what it leads to is asked for itself
			}
			list = append(list, a)
		}
	}
	if len(list) == 0 && !strings.Contains(out, " on this machine\n") && !strings.Contains(out, "inside: ") {
		return nil, fmt.Errorf("explain %s says\n%s", p, out)
	}
	return list, nil
}
