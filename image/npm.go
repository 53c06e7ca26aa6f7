// What npm says in a build when it installs nothing.

package image

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// NPMOutput gets the output of a build, and remembers what npm says of a failure. npm
// names neither the package in its error nor, for an optional one, any error at all, and
// writes thousands of lines about an archive that was tampered with.
type NPMOutput struct {
	// Files are a build's, with lock files among them, or nil.
	Files map[string]File

	line      []byte
	corrupted string // the last package that did not have its hash
	wanted    string // the hash of a package that the registry's own list has as another one
	missing   string // what listInstalled did not find
	code      string
	answer    string // a registry's status
	address   string
}

// maxNPMLine is how many bytes of a line are looked at.
const maxNPMLine = 4 << 10

// npmLines are lines of npm 10 and 11, and one of listInstalled's.
var npmLines = sync.OnceValue(func() []struct {
	form *regexp.Regexp
	take func(o *NPMOutput, m []string)
} {
	return []struct {
		form *regexp.Regexp
		take func(o *NPMOutput, m []string)
	}{
		{regexp.MustCompile(`^npm warn tarball tarball data for ([!-~]{1,200}) \([!-~]*\) seems to be corrupted`), func(o *NPMOutput, m []string) { o.corrupted = m[1] }},
		{regexp.MustCompile(`^npm error code ([A-Z][A-Z0-9_]{1,60})$`), func(o *NPMOutput, m []string) { o.code = m[1] }},
		{regexp.MustCompile(`^npm error .*ntegrity checksum failed when using sha512: wanted (sha512-[A-Za-z0-9+/=]{1,100}) `), func(o *NPMOutput, m []string) { o.wanted = m[1] }},
		{regexp.MustCompile(`^npm error ([45][0-9]{2}(?: [A-Za-z -]{1,60})?) - GET ([!-~]{1,400})`), func(o *NPMOutput, m []string) { o.answer, o.address = m[1], m[2] }},
		{regexp.MustCompile(`^npm error network request to ([!-~]{1,400}) failed`), func(o *NPMOutput, m []string) { o.address = m[1] }},
		{regexp.MustCompile(`^node_modules/([!-~]{1,200}) was not installed$`), func(o *NPMOutput, m []string) { o.missing = m[1] }},
	}
})

func (o *NPMOutput) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		o.line = append(o.line, part[:min(len(part), maxNPMLine-len(o.line))]...)
		if rest = after; ended {
			o.endLine()
		}
	}
	return len(p), nil
}

func (o *NPMOutput) endLine() {
	line := strings.TrimSuffix(string(o.line), "\r")
	o.line = o.line[:0]
	if !strings.HasPrefix(line, "npm ") && !strings.HasPrefix(line, "node_modules/") {
		return
	}
	for _, l := range npmLines() {
		if m := l.form.FindStringSubmatch(line); m != nil {
			l.take(o, m)
		}
	}
}

// brokenOff are npm's codes for a download that did not come to its end (node's errors).
var brokenOff = []string{"ECONNRESET", "EPIPE", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT", "ERR_STREAM_PREMATURE_CLOSE", "FETCH_ERROR"}

// Failure is a part of a sentence that says why npm ended the build, or "" where npm
// did not say that it failed.
func (o *NPMOutput) Failure() string {
	// What is no archive any more is found before its hash is (zlib's errors, tar's).
	other := o.code == "EINTEGRITY" || strings.HasPrefix(o.code, "Z_") || strings.HasPrefix(o.code, "TAR_")
	if o.corrupted == "" && other {
		o.corrupted = o.locked()
	}
	at := ""
	if u, err := url.Parse(o.address); err == nil && o.address != "" {
		u.User = nil
		at = " for " + u.String()
	}
	switch {
	case o.corrupted != "" && (other || o.missing != ""):
		return "what the npm registry has as " + o.corrupted + " is not the package that the lock file has the hash of"
	case other:
		return "what the npm registry has as one of the packages is not the one that the lock file has the hash of"
	case o.missing != "":
		return "the npm registry did not serve " + o.missing + ", which npm left out and which belongs to the program"
	case o.answer != "":
		return "the npm registry answers " + o.answer + at
	case slices.Contains(brokenOff, o.code):
		return "a download from the npm registry broke off (" + o.code + ")" + at
	case o.code != "":
		return "npm ends with " + o.code + at
	}
	return ""
}

// locked is the package that a lock file has the wanted hash of, or "".
func (o *NPMOutput) locked() string {
	for name, f := range o.Files {
		var lock struct {
			Packages map[string]struct{ Version, Integrity string }
		}
		if path.Base(name) != "package-lock.json" || json.Unmarshal(f.Data, &lock) != nil {
			continue
		}
		for at, p := range lock.Packages {
			if p.Integrity == o.wanted && p.Integrity != "" {
				_, nested, ok := strings.Cut(at, "node_modules/")
				for ; ok; _, nested, ok = strings.Cut(nested, "node_modules/") {
					at = nested
				}
				return at + "@" + p.Version
			}
		}
	}
	return ""
}
