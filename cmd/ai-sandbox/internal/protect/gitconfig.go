// Where git's configuration leads: hooks, and files that it includes, may lie in the
// project (git-config(1)). It is read and never run, without git.

package protect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// The bounds of what is read of git's configuration: bytes in a file, and files.
const (
	maxConfig  = 1 << 18
	maxConfigs = 64
)

// A setting is a variable of git's configuration. section and key are in lower case,
// without a subsection.
type setting struct{ section, key, value string }

var errConfig = errors.New("git can't read it")

// parseConfig reads git's configuration (git-config(1), Syntax).
func parseConfig(text string) ([]setting, error) {
	if strings.ContainsRune(text, 0) {
		return nil, errConfig
	}
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	var out []setting
	section := ""
	for {
		text = strings.TrimLeft(text, " \t\n\r\v\f")
		switch {
		case text == "":
			return out, nil
		case text[0] == '#' || text[0] == ';':
			_, text, _ = strings.Cut(text, "\n")
			continue
		case text[0] == '[':
			var ok bool
			if section, text, ok = configSection(text[1:]); !ok {
				return nil, errConfig
			}
			continue
		}
		n := strings.IndexFunc(text, func(r rune) bool { return !isKey(r) })
		if n < 0 {
			n = len(text)
		}
		if n == 0 || section == "" {
			return nil, errConfig
		}
		s := setting{section: section, key: strings.ToLower(text[:n])}
		text = strings.TrimLeft(text[n:], " \t")
		if strings.HasPrefix(text, "=") {
			var ok bool
			if s.value, text, ok = configValue(text[1:]); !ok {
				return nil, errConfig
			}
		} else if text != "" && !strings.ContainsAny(text[:1], "\n#;") {
			return nil, errConfig
		}
		out = append(out, s)
	}
}

// isKey tells whether a character may be in the name of a section or key.
func isKey(r rune) bool {
	return r == '-' || r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// configSection reads the name of a section, to after its bracket. A subsection is
// dropped: it is a condition of includeIf, and none is believed.
func configSection(text string) (name, rest string, ok bool) {
	n := strings.IndexAny(text, "] \t\n")
	if n < 0 {
		return "", "", false
	}
	name, text = strings.ToLower(text[:n]), strings.TrimLeft(text[n:], " \t")
	if strings.ContainsFunc(name, func(r rune) bool { return r != '.' && !isKey(r) }) {
		return "", "", false
	}
	name, _, _ = strings.Cut(name, ".")
	if strings.HasPrefix(text, "\"") {
		for text = text[1:]; ; text = text[1:] {
			if text == "" || text[0] == '\n' {
				return "", "", false
			}
			if text[0] == '"' {
				text = text[1:]
				break
			}
			if text[0] == '\\' && len(text) > 1 {
				text = text[1:]
			}
		}
	}
	text, ok = strings.CutPrefix(text, "]")
	return name, text, ok && name != ""
}

// configValue reads a value to the end of its line.
func configValue(text string) (value, rest string, ok bool) {
	var b strings.Builder
	quoted, comment := false, false
	keep := 0 // of what is written: space at the end is not part of it
	for i := 0; ; i++ {
		switch {
		case i == len(text) || text[i] == '\n':
			if quoted {
				return "", "", false
			}
			return b.String()[:keep], text[i:], true
		case comment:
		case !quoted && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r'):
			if b.Len() > 0 {
				b.WriteByte(text[i])
			}
			continue
		case !quoted && (text[i] == '#' || text[i] == ';'):
			comment = true
		case text[i] == '"':
			quoted = !quoted
		case text[i] == '\\':
			i++
			if i == len(text) {
				return "", "", false
			}
			if text[i] == '\n' {
				keep = b.Len() // git has the space before it, too
				continue
			}
			at := strings.IndexByte(`tbn\"`, text[i])
			if at < 0 {
				return "", "", false
			}
			b.WriteByte("\t\b\n\\\""[at])
		default:
			b.WriteByte(text[i])
		}
		if !comment {
			keep = b.Len()
		}
	}
}

// A reader follows the configuration of one or more repositories, where that leads
// into one of its trees: the project first.
type reader struct {
	trees []*tree
	seen  map[string]bool // host paths of configurations
}

// repo reads what configures a git directory, at a host path. top is the checkout,
// or "" where that is not known: a relative core.hooksPath begins there.
func (r *reader) repo(dir, top string, files ...string) {
	for _, f := range files {
		r.file(path.Join(dir, f), top, dir, 0)
	}
}

// file reads one configuration. It says in the trees what it leads to.
func (r *reader) file(name, top, gitDir string, depth int) {
	t, below := r.in(name)
	if t == nil || r.seen[name] {
		return
	}
	r.seen[name] = true
	if _, end, err := follow(name); err == nil { // what it includes is relative to its name
		if to, at := r.in(end); to != nil {
			t, below = to, at
		}
	}
	text, err := readUpTo(t.fd, below, maxConfig)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return
	}
	var settings []setting
	if err == nil {
		settings, err = parseConfig(text)
	}
	if err == nil && (len(r.seen) > maxConfigs || depth > 10) {
		err = errors.New("there are more of them than are read")
	}
	if err != nil {
		r.note("where %s leads is not known: %v", r.shown(name), err)
		return
	}
	for _, s := range settings {
		if s.section == "core" && s.key == "worktree" && s.value != "" { // of a submodule
			if top = s.value; !filepath.IsAbs(top) {
				top = path.Join(gitDir, top)
			}
		}
	}
	for _, s := range settings {
		include := (s.section == "include" || s.section == "includeif") && s.key == "path"
		from := top
		switch {
		case s.value == "":
			continue
		case include:
			from = path.Dir(name)
		case s.section == "core" && (s.key == "hookspath" || s.key == "attributesfile"):
		default:
			continue
		}
		to, err := r.pathname(s.value)
		if err == nil && !filepath.IsAbs(to) {
			if from == "" {
				err = errBegins
			}
			to = from + "/" + to
		}
		if err != nil {
			r.note("%s has %s %s, and %v", r.shown(name), s.key, policy.Quote(s.value), err)
			continue
		}
		ends, on := ways(to)
		for i, to := range append(ends, on...) {
			if at := r.obey(to, name, s.key != "hookspath"); at != "" && include && i < len(ends) {
				r.file(at, top, gitDir, depth+1)
			}
		}
	}
}

// ways are what an absolute path may mean: without its "..", and, where that is
// somewhere else, the end of the kernel's way, which follows a link before it goes
// up, with the links on that.
func ways(to string) (ends, on []string) {
	clean := path.Clean(to)
	on, end, err := follow(to)
	if _, other, otherErr := follow(clean); err != nil || otherErr == nil && other == end {
		return []string{clean}, nil
	}
	return []string{clean, end}, on
}

var errBegins = errors.New("it is not known where that begins")

// pathname is the path that a value stands for (git-config(1), Values, pathname). An
// optional one counts as if it were there.
func (r *reader) pathname(value string) (string, error) {
	value = strings.TrimPrefix(value, ":(optional)")
	if strings.HasPrefix(value, "%(") {
		return "", errBegins // as with git's own prefix
	}
	if !strings.HasPrefix(value, "~") {
		return value, nil
	}
	name, rest, _ := strings.Cut(value[1:], "/")
	home := r.trees[0].home
	if name != "" {
		u, err := user.Lookup(name)
		if err != nil {
			return "", errBegins
		}
		home = u.HomeDir
	}
	if home == "" {
		return "", errBegins
	}
	return home + "/" + rest, nil
}

func (r *reader) note(format string, args ...any) {
	r.trees[0].Notes = append(r.trees[0].Notes, fmt.Sprintf(format, args...))
}

// shown is how a host path is called: in the project by its path there.
func (r *reader) shown(name string) string {
	return policy.Quote(strings.TrimPrefix(name, r.trees[0].Root+"/"))
}

// in finds the tree that a host path lies in, and the path below it.
func (r *reader) in(name string) (*tree, string) {
	for _, t := range r.trees {
		if below, ok := strings.CutPrefix(name, t.Root+"/"); ok {
			return t, below
		}
	}
	return nil, ""
}

// obey adds what the configuration leads to, and returns its path where it lies in a
// tree, or "".
func (r *reader) obey(to, from string, file bool) string {
	t, below := r.in(to)
	if t == nil {
		// A link on this machine may lead here, also to what is not there yet.
		on, end, err := follow(to)
		if err != nil {
			r.note("%s leads to %s, and where that leads is not known: %v", r.shown(from), policy.Quote(to), err)
			return ""
		}
		if i := slices.IndexFunc(on, func(l string) bool { return strings.HasPrefix(l, "/proc/") }); i >= 0 {
			r.note("%s leads through %s, which is another place for each program: what git obeys there is not known", r.shown(from), on[i])
		}
		for _, l := range on {
			if in, _ := r.in(l); in != nil { // and another link in the tree leads on
				r.obey(l, from, file)
			}
		}
		to = end
		t, below = r.in(to)
	}
	if r.whole(t, to, below) {
		r.note("%s leads to %s, which can't be read-only by itself: git obeys what the command leaves there", r.shown(from), policy.Quote(to))
		return ""
	}
	if t == nil {
		return ""
	}
	t.Obeyed = append(t.Obeyed, below)
	if file {
		t.Files = append(t.Files, below)
	}
	return to
}

var errTooLong = errors.New("it is larger than is read")

// readUpTo reads a regular file below a directory, of at most so many bytes: a
// longer one is errTooLong.
func readUpTo(root int, name string, limit int64) (string, error) {
	fd, err := openBeneath(root, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = errTooLong
	}
	return string(text), err
}
