// What a project's file may say without being trusted. The file lies in the tree
// that the sandboxed command writes: it can always narrow what a run may do, and
// widens it only when the user has said so on the host. Pure.

package config

import (
	"slices"
	"strings"

	"ai-sandbox/policy"
)

// A Widening tells whether value in a project's file lets a run do more than the
// layers below that file: built-in, the user's file and its profile. lower is
// what those say, of one value at most unless the option is a list. A value of ""
// is the lack of one: of any, or in a list of one that the project's file took
// away by emptying it.
type Widening func(lower []string, value string) bool

// Wider lists what in with may let a run do more than lower. An item without a
// value stands for what is no more in with.
func Wider(lower, with Settings) []Item {
	var out []Item
	for _, o := range Options {
		out = append(out, o.wider(lower[o.Key], with[o.Key])...)
	}
	return out
}

func (o Option) wider(lower, with []Item) []Item {
	if o.Kind == Script {
		// The same text names another file there than below.
		if its := slices.DeleteFunc(slices.Clone(with), func(it Item) bool { return !it.FromProject() }); len(its) > 0 {
			return its
		}
	}
	before, after := valuesOf(lower), valuesOf(with)
	if slices.Equal(before, after) {
		return nil
	}
	var out []Item
	gone := Item{Key: o.Key}
	if o.Widens == nil { // any change
		for _, it := range with {
			if !slices.Contains(lower, it) {
				out = append(out, it)
			}
		}
		if len(out) == 0 {
			out = append(out, gone)
		}
		return out
	}
	added := with
	if len(after) >= len(before) && slices.Equal(after[:len(before)], before) {
		added = with[len(before):] // the rest stands where it stood
	}
	for _, it := range added {
		if o.Widens(before, it.Value) {
			out = append(out, it)
		}
	}
	lost := slices.DeleteFunc(slices.Clone(before), func(v string) bool { return slices.Contains(after, v) })
	if (o.Kind == List || len(after) == 0) && len(lost) > 0 && o.Widens(lost, "") {
		out = append(out, gone)
	}
	return out
}

func valuesOf(items []Item) []string {
	var out []string
	for _, it := range items {
		out = append(out, it.Value)
	}
	return out
}

// tightTo is for an option whose values are known, the tightest first: one
// widens over what stands before it. Unset is as wide as the last.
func tightTo(order ...string) Widening {
	rank := func(v string) int {
		if i := slices.Index(order, v); i >= 0 {
			return i
		}
		return len(order) - 1
	}
	return func(lower []string, value string) bool {
		return rank(value) > rank(first(lower))
	}
}

// networks: unset is the runtime's own gated one.
func networks(lower []string, value string) bool {
	was := first(lower)
	switch value {
	case policy.NetNone:
		return false
	case policy.NetUnix:
		return was == policy.NetNone
	case policy.NetGated:
		return was == policy.NetNone || was == policy.NetUnix
	case "":
		return was != policy.NetHost && was != ""
	}
	return was != policy.NetHost
}

// adding is for a list each of whose entries lets a run do more.
func adding(lower []string, value string) bool {
	return value != "" && !slices.Contains(lower, value)
}

// hosts is adding for the allowlist's grammar: an entry that another covers adds
// nothing. But a link-local address is opened by an entry that is that very address,
// and by no range that it is in.
func hosts(lower []string, value string) bool {
	if !adding(lower, value) {
		return false
	}
	e, err := policy.ParseEntry(value)
	if err != nil {
		return true
	}
	return !slices.ContainsFunc(lower, func(l string) bool {
		have, err := policy.ParseEntry(l)
		return err == nil && have.Covers(e) && (have.LinkLocal() || !e.LinkLocal())
	})
}

// farther tells whether the files take something out of allow_private where the gate
// goes through an upstream proxy: what is still let through is the proxy's to look up
// then, and where it leads is not judged any more.
func farther(lower, with Settings, proxy []Item) []Item {
	after := valuesOf(with["allow_private"])
	if !slices.ContainsFunc(proxy, func(it Item) bool { return it.Key == "upstream_proxy" && it.Value != "" }) ||
		!slices.ContainsFunc(valuesOf(lower["allow_private"]), func(v string) bool { return !slices.Contains(after, v) }) {
		return nil
	}
	return []Item{{Key: "allow_private"}}
}

// variables is adding where a later entry of the same name wins. A constant keeps
// out the value that would enter without it: the caller's, the one that the harness
// needs, or our own PATH, which the caller's keeps out, too.
func variables(lower []string, value string) bool {
	if value == "" {
		return slices.ContainsFunc(lower, func(l string) bool { return strings.Contains(l, "=") || l == "PATH" })
	}
	name, _, _ := strings.Cut(value, "=")
	for _, l := range slices.Backward(lower) {
		if have, _, _ := strings.Cut(l, "="); have == name {
			return l != value
		}
	}
	return true
}

// atMost is for a limit: a higher one widens. amount reads it, "" too (+Inf
// where no limit is what the lack of a value means); what it can't read widens.
func atMost(amount func(string) (float64, error)) Widening {
	return func(lower []string, value string) bool {
		old, err := amount(first(lower))
		if err != nil {
			return true
		}
		limit, err := amount(value)
		return err != nil || !(limit <= old) // NaN is no limit
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
