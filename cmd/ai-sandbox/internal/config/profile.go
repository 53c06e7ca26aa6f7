// Profiles: named presets of settings, some of them built in.

package config

import (
	"errors"
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

// Profiles are built in. A profile of that name in the user's file lies over it.
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

// Settle puts everything together: built-in below the file, and that below the
// profile that file, variables or flags choose, then variables, then flags. It
// reports every problem.
func Settle(file File, env, flags []Item) (Settings, error) {
	profile, err := file.chosen(env, flags)
	s, err2 := Resolve(file.Items, profile, env, flags)
	return s, errors.Join(err, err2)
}

// chosen are the settings of the profile that the layers choose, if any.
func (f File) chosen(env, flags []Item) ([]Item, error) {
	var by Item
	for _, it := range slices.Concat(f.Items, env, flags) {
		if it.Key == profileKey {
			by = it
		}
	}
	if by.Value == "" {
		return nil, nil
	}
	var items []Item
	var names []string
	found := false
	for _, p := range slices.Concat(Profiles, f.Profiles) {
		names = append(names, p.Name)
		if p.Name == by.Value {
			found, items = true, append(items, p.Items...)
		}
	}
	if found {
		return items, nil
	}
	slices.Sort(names)
	fix := "choose from " + strings.Join(slices.Compact(names), ", ")
	if near := Near(by.Value, names); near != "" {
		fix = fmt.Sprintf("did you mean %s? there are %s", near, strings.Join(slices.Compact(names), ", "))
	}
	return nil, &Error{Origin: by.Origin, Text: fmt.Sprintf("profile %q is unknown", by.Value), Fix: fix}
}
