// Profiles: named presets of settings, some of them built in.

package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// profileKey is the option that chooses one.
const profileKey = "profile"

// A Profile is a set of settings with a name.
type Profile struct {
	Name  string
	Items []Item
}

// builtIn is a profile's setting of ours.
func builtIn(profile, key, value string) Item {
	return Item{Key: key, Value: value, Origin: "profile " + profile + " (" + BuiltIn + ")"}
}

// Profiles are built in. A profile of that name in a file lies over it.
var Profiles = []Profile{
	{"bwrap-local", []Item{builtIn("bwrap-local", "runtime", "local"), builtIn("bwrap-local", "net", "none")}},
	{"gated", []Item{builtIn("gated", "runtime", "podman"), builtIn("gated", "net", "gated")}},
	{"local", []Item{builtIn("local", "runtime", "local"), builtIn("local", "net", "unix")}},
}

var (
	sectionLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[profile[ \t]+([^\[\]]*)\]$`) })
	profileName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`) })
)

// section reads a line that begins a profile, and returns that one's name.
func section(line string) (string, error) {
	m := sectionLine().FindStringSubmatch(line)
	switch {
	case m == nil:
		return "", fmt.Errorf("%q begins no profile", line)
	case !profileName().MatchString(strings.TrimSpace(m[1])):
		return "", fmt.Errorf("%q is not a profile's name", strings.TrimSpace(m[1]))
	}
	return strings.TrimSpace(m[1]), nil
}

// chosen is the item that chooses a profile, the last of the layers' own.
func (l Layers) chosen() Item {
	var by Item
	for _, it := range slices.Concat(l.User.Items, l.Project.Items, l.Env, l.Flags) {
		if it.Key == profileKey {
			by = it
		}
	}
	return by
}

// ProfileNames are those that can be chosen, sorted.
func (l Layers) ProfileNames() []string {
	var names []string
	for _, p := range slices.Concat(Profiles, l.User.Profiles, l.Project.Profiles) {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// profile are a profile's settings in a file.
func (f File) profile(name string) []Item {
	for _, p := range f.Profiles {
		if p.Name == name {
			return p.Items
		}
	}
	return nil
}

// checkProfile refuses a profile that is neither built in nor in a file.
func (l Layers) checkProfile() error {
	by := l.chosen()
	names := l.ProfileNames()
	if by.Value == "" || slices.Contains(names, by.Value) {
		return nil
	}
	fix := "choose from " + strings.Join(names, ", ")
	if near := Near(by.Value, names); near != "" {
		fix = fmt.Sprintf("did you mean %s? there are %s", near, strings.Join(names, ", "))
	}
	return &Error{Origin: by.Origin, Text: fmt.Sprintf("profile %q is unknown", by.Value), Fix: fix}
}
