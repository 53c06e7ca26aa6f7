// Where the settings stand that an error is about.

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

// placed names, behind each error about settings, where they were set: file and line,
// the variable or the flag.
func placed(s config.Settings, err error) error {
	if err == nil {
		return nil
	}
	var out []error
	for _, e := range flatten(err) {
		var about *policy.AboutError
		var from []string
		if errors.As(e, &about) {
			for _, setting := range about.Settings {
				from = append(from, origins(s, setting)...)
			}
		}
		slices.Sort(from)
		if from = slices.Compact(from); len(from) > 0 {
			e = fmt.Errorf("%w (from %s)", e, strings.Join(from, ", "))
		}
		out = append(out, e)
	}
	return errors.Join(out...)
}

// origins are those of a setting, a policy.AboutError's; none where it is built in.
func origins(s config.Settings, setting string) []string {
	key, value, one := strings.Cut(setting, "=")
	var out []string
	for _, it := range s[key] {
		if it.Origin != config.BuiltIn && (!one || entryOf(s, it) == value || it.Value == value) {
			out = append(out, it.Origin)
		}
	}
	return out
}

// entryOf is an item's value as an AboutError has it.
func entryOf(s config.Settings, it config.Item) string {
	switch it.Key {
	case "env":
		name, _, _ := strings.Cut(it.Value, "=")
		return name
	case "publish":
		if p, err := policy.ParsePublish(it.Value); err == nil {
			p.Addr = cmp.Or(p.Addr, s.Text("publish_addr"), policy.LoopbackAddr)
			return p.Entry()
		}
	}
	return it.Value
}
