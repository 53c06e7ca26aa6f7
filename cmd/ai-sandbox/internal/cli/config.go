// The verb config: each setting that counts, and where it stands.

package cli

import (
	"fmt"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/policy"
)

var configVerb = &verb{
	name:  "config",
	about: "Print the settings that a run here would have, and where each is from.",
	use:   config.UseConfig,
	flags: []ownFlag{{name: "json", usage: "print JSON; docs/configuration.md has its schema"}},
	examples: []string{
		"ai-sandbox config",
		"ai-sandbox config --json --profile local",
	},
	exit: usualExit,
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		facts, err := a.probe(false, a.withoutProject(flagLayer))
		if err != nil {
			return err
		}
		settings, err := a.settings(facts, flagLayer, true)
		if err != nil {
			return err
		}
		list := effective(settings, a.text)
		if slices.Contains(inv.Own, "json") {
			return printJSON(a.Out, struct {
				Version  int       `json:"version"`
				Settings []setting `json:"settings"`
			}{1, list})
		}
		if _, err := fmt.Fprint(a.Out, settingsText(list)); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	},
}

// A setting is what counts of one option, with each value's origin.
type setting struct {
	Key    string         `json:"key"`
	Values []settingValue `json:"values"`
}

type settingValue struct {
	Value string `json:"value"`
	From  string `json:"from"`
}

// effective lists the options of a run in the table's order. Those that are
// flags alone are about one run, and stand there if they are set. hide takes
// secrets out.
func effective(s config.Settings, hide func(string) string) []setting {
	out := []setting{}
	for _, o := range config.Options {
		if o.Use&config.UseConfig == 0 {
			continue
		}
		one := setting{Key: o.Key, Values: []settingValue{}}
		set := o.In(config.InFile | config.InEnv)
		for _, it := range s[o.Key] {
			one.Values = append(one.Values, settingValue{hide(it.Value), hide(it.Origin)})
			set = set || it.Origin != config.BuiltIn
		}
		if set {
			out = append(out, one)
		}
	}
	return out
}

// settingsText has a line for each value: key, value and origin. An origin that
// finds no room has a line of its own.
func settingsText(list []setting) string {
	const column, origin = 20, 48
	var b strings.Builder
	for _, s := range list {
		if len(s.Values) == 0 {
			s.Values = []settingValue{{"-", "not set"}}
		}
		for i, v := range s.Values {
			value := v.Value
			if v.From != "not set" {
				value = quote(v.Value)
			}
			line := fmt.Sprintf("%-*s", column, s.Key)
			if i > 0 {
				line = strings.Repeat(" ", column)
			}
			line += value
			from := "(" + policy.Printable(v.From) + ")"
			switch {
			case len(line)+2 <= origin && origin+len(from) <= helpWidth:
				line += strings.Repeat(" ", origin-len(line)) + from
			case len(line)+2+len(from) <= helpWidth:
				line += "  " + from
			default:
				line += "\n" + strings.Repeat(" ", column+2) + from
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
