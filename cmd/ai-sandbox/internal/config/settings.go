// Layers become one value for each option.

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Item is one setting as it was written. Origin is where: "file:line", a
// variable's name, or a flag.
type Item struct {
	Key, Value, Origin string
}

// Settings are the values that count, each with its origin. A Text or Bool
// option has one item, a List any number.
type Settings map[string][]Item

// BuiltIn is the Origin of a default.
const BuiltIn = "built-in"

// Layers are everything that is said, the lowest first; built-in values lie below.
// The profile that is chosen lies over the rest of the file that it stands in (a
// built-in one below both), so the project's file as a whole lies over the user's.
type Layers struct {
	User, Project File
	Env, Flags    []Item
}

// Items are all items of all layers, the lowest first, whatever profile is chosen.
func (l Layers) Items() []Item {
	var out []Item
	for _, f := range []File{l.User, l.Project} {
		out = append(out, f.Items...)
		for _, p := range f.Profiles {
			out = append(out, p.Items...)
		}
	}
	return slices.Concat(out, l.Env, l.Flags)
}

// Settle puts the layers together. It reports every problem.
func (l Layers) Settle() (Settings, error) {
	s, err := Resolve(append(l.files(), l.Env, l.Flags)...)
	return s, errors.Join(l.checkProfile(), err)
}

// Wider lists what the project's file widens over another one in its place; see
// the function of that name. Variables and flags have no part in it but for the
// profile that they choose and whether there is an upstream proxy: they are the
// user's, whatever the file says.
func (l Layers) Wider(than File) []Item {
	other := l
	other.Project = than
	lower, _ := Resolve(other.files()...) // what is wrong in a file is Settle's to report
	with, _ := Resolve(l.files()...)
	return append(Wider(lower, with), farther(lower, with, slices.Concat(lower["upstream_proxy"], l.Env, l.Flags))...)
}

func (l Layers) files() [][]Item {
	name := l.chosen().Value
	return [][]Item{
		l.User.Items, File{Profiles: Profiles}.profile(name), l.User.profile(name),
		l.Project.Items, l.Project.profile(name),
	}
}

// Resolve lays the layers over the built-in defaults, the first layer lowest.
// An item without a value empties what came before it. It reports every problem.
func Resolve(layers ...[]Item) (Settings, error) {
	s := Settings{}
	for _, o := range Options {
		if o.Default != "" {
			s[o.Key] = []Item{{Key: o.Key, Value: o.Default, Origin: BuiltIn}}
		}
	}
	var errs errorList
	for _, it := range slices.Concat(layers...) {
		o, ok := Lookup(it.Key)
		if !ok {
			errs.add(&Error{Origin: it.Origin, Text: fmt.Sprintf("key %q is unknown", it.Key), Fix: "remove it"})
			continue
		}
		it.Value = o.plain(it.Value)
		if err := o.check(it); err != nil {
			errs.add(err)
			continue
		}
		switch {
		case it.Value == "" && o.Kind != List && o.Default != "":
			s[o.Key] = []Item{{Key: o.Key, Value: o.Default, Origin: BuiltIn}}
		case it.Value == "":
			delete(s, o.Key)
		case o.Kind == List:
			s[o.Key] = append(s[o.Key], it)
		default:
			s[o.Key] = []Item{it}
		}
	}
	return s, errs.join()
}

// plain is the one spelling of a value: variables say 1 and 0.
func (o Option) plain(value string) string {
	if o.Kind == Bool && (value == "0" || value == "1") {
		return map[string]string{"0": "false", "1": "true"}[value]
	}
	return value
}

// check judges a value by the option's kind.
func (o Option) check(it Item) error {
	if it.Value == "" {
		return nil
	}
	bad := func(text, fix string) error { return &Error{Origin: it.Origin, Text: text, Fix: fix} }
	switch {
	case o.Kind == Bool && it.Value != "true" && it.Value != "false":
		return bad(fmt.Sprintf("%s is %q, which is neither true nor false", o.Key, it.Value), "write true or false")
	case o.Values != nil && !slices.Contains(o.Values, it.Value):
		return bad(fmt.Sprintf("%s %q is unknown", o.Key, it.Value), "use "+strings.Join(o.Values, " or "))
	case strings.ContainsRune(it.Value, 0):
		return bad(fmt.Sprintf("%s holds a NUL byte", o.Key), "remove it")
	}
	return nil
}

// Text is the value of an option that is not a list, or "".
func (s Settings) Text(key string) string {
	if items := s[key]; len(items) > 0 {
		return items[0].Value
	}
	return ""
}

// Bool is the value of a Bool option.
func (s Settings) Bool(key string) bool { return s.Text(key) == "true" }

// Values are the values of a list.
func (s Settings) Values(key string) []string {
	out := make([]string, 0, len(s[key]))
	for _, it := range s[key] {
		out = append(out, it.Value)
	}
	return out
}

// An Error is a setting that cannot be taken, where it stands, and what to do.
type Error struct {
	Origin, Text, Fix string
}

// Error is one sentence that says what to do.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (from %s); %s", e.Text, e.Origin, e.Fix)
}

type errorList []error

func (l *errorList) add(err error) { *l = append(*l, err) }
func (l errorList) join() error    { return errors.Join(l...) }
