// Files of the host's that the home gets at each start.

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A HomeManaged is a file that is brought into the home at each start, whole or by
// the keys of a JSON object: what was changed inside stays (see entrypoint/managed).
// Printouts show its hash.
type HomeManaged struct {
	Path string `json:"path"` // relative to HomeDir
	Mode uint32 `json:"mode"` // permission bits
	Keys bool   `json:"keys,omitempty"`
	// None: there is none now, and one of an earlier start goes.
	None          bool   `json:"none,omitempty"`
	Content       []byte `json:"-"`
	ContentSHA256 string `json:"content_sha256,omitempty"`
	// Fixed are what keys are after every start, whatever either side says.
	Fixed []HomeKey `json:"fixed,omitempty"`
}

// A HomeKey is a key of an object, with a string as its value; without Value there
// is no such key.
type HomeKey struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// hashed is the list with the hashes that printouts show.
func hashed(list []HomeManaged) []HomeManaged {
	out := slices.Clone(list)
	for i, f := range out {
		if !f.None {
			out[i].ContentSHA256 = hash(f.Content)
		}
	}
	return out
}

// words say what becomes of it.
func (f HomeManaged) words() []string {
	what := "none here, an untouched one goes"
	if !f.None {
		what = "sha256:" + f.ContentSHA256[:min(12, len(f.ContentSHA256))]
	}
	how := "(at each start, unless changed inside)"
	if f.Keys {
		how = "(at each start, each key that was not changed inside)"
	}
	return []string{Quote(f.Path), what, how}
}

// fixed are its fixed keys, a line each.
func (f HomeManaged) fixed() []string {
	var out []string
	for _, k := range f.Fixed {
		value := Quote(k.Value)
		if k.Value == "" {
			value = "not set"
		}
		out = append(out, Quote(k.Key)+": "+value+", always")
	}
	return out
}

// line is all of it, to be compared.
func (f HomeManaged) line() string {
	return fmt.Sprintf("%s %04o", strings.Join(append(f.words(), f.fixed()...), " "), f.Mode)
}
