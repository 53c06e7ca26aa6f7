// What apt says in a build when it installs nothing.

package image

import (
	"bytes"
	"regexp"
	"strings"
)

// AptOutput gets the output of a build, and remembers why apt ended the last of its steps.
type AptOutput struct {
	line []byte
	why  string
	got  bool // why is about a download
}

// maxAptLine is how many bytes of a line are looked at.
const maxAptLine = 4 << 10

// maxAptWhy is how many bytes of an error are shown.
const maxAptWhy = 400

func (o *AptOutput) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		o.line = append(o.line, part[:min(len(part), maxAptLine-len(o.line))]...)
		if rest = after; ended {
			o.endLine()
		}
	}
	return len(p), nil
}

// endLine takes the last error, but the first that is about a download: those after it say
// no more than that something was not downloaded.
func (o *AptOutput) endLine() {
	line := strings.TrimSpace(string(o.line))
	o.line = o.line[:0]
	if strings.HasPrefix(line, "STEP ") { // the build's next
		o.why, o.got = "", false
		return
	}
	kind, why, ok := strings.Cut(line, ": ")
	printable := !strings.ContainsFunc(why, func(r rune) bool { return r < ' ' || r > '~' })
	if !ok || kind != "E" && kind != "Error" || !printable || len(why) > maxAptWhy || o.got {
		return
	}
	o.why, o.got = why, strings.HasPrefix(why, "Failed to fetch ")
}

// Failure is a part of a sentence that says why apt ended the step, or "" where it did not
// say so.
func (o *AptOutput) Failure() string {
	if o.why == "" {
		return ""
	}
	// An address may have a login before its host.
	why := regexp.MustCompile(`//[^/@ ]*@`).ReplaceAllString(o.why, "//")
	why = "apt says: " + strings.Join(strings.Fields(why), " ")
	if o.got {
		why += "; build again where its mirror can be reached"
	}
	return why
}
