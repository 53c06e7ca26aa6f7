// Where the model is that pi starts with.

package pibridge

import (
	_ "embed"
	"path"
	"slices"
	"strings"
)

// builtins are pi's own providers, in the order in which it takes the first with a key:
// a name, the host of all its models, or "-" where that depends on more, and the
// variables that it has a key in. TestPiReadsConfiguration holds it to the real pi.
//
//go:embed providers.txt
var builtins string

type builtinProvider struct {
	name, host string
	keys       []string
}

func ownProviders() []builtinProvider {
	var out []builtinProvider
	for line := range strings.Lines(builtins) {
		f := strings.Fields(line)
		p := builtinProvider{name: f[0], keys: f[2:]}
		if f[1] != "-" {
			p.host = f[1]
		}
		out = append(out, p)
	}
	return out
}

// A Start is with what pi is started: the values of its flags, "" for none, and which
// variables it has.
type Start struct {
	Provider, Model, Models string
	Has                     func(name string) bool
}

// Address is where the first request of a pi with these files goes, or "" where that
// can't be told.
func (r Result) Address(s Start) string {
	a := addresses{own: ownProviders()}
	if top, err := parse(r.Models); err == nil {
		a.configured, _ = top.get("providers").(*object)
	}
	settings, err := parse(r.Settings)
	if err != nil {
		settings = &object{}
	}
	text := func(name string) string { v, _ := settings.get(name).(string); return v }
	if s.Model != "" {
		return a.of(a.find(s.Provider, s.Model))
	}
	scope := strings.FieldsFunc(s.Models, func(r rune) bool { return r == ',' })
	if list, ok := settings.get("enabledModels").([]any); ok && len(scope) == 0 {
		for _, e := range list {
			if v, ok := e.(string); ok {
				scope = append(scope, v)
			}
		}
	}
	provider, model := text("defaultProvider"), text("defaultModel")
	for _, pattern := range scope {
		pattern = unleveled(strings.TrimSpace(pattern))
		for _, name := range []string{model, provider + "/" + model} {
			if ok, err := path.Match(pattern, name); err == nil && ok && model != "" {
				return a.of(provider, model)
			}
		}
	}
	switch {
	case len(scope) > 0:
		provider, model = a.find("", unleveled(strings.TrimSpace(scope[0])))
		if strings.ContainsAny(model, "*?[") {
			model = ""
		}
		return a.of(provider, model)
	case provider != "":
		return a.of(provider, model)
	}
	for _, p := range a.own {
		if s.Has != nil && slices.ContainsFunc(p.keys, s.Has) || a.entry(p.name).get("apiKey") != nil {
			return a.of(p.name, "")
		}
	}
	if a.configured != nil && len(a.configured.members) > 0 {
		return a.of(a.configured.members[0].name, "")
	}
	return ""
}

type addresses struct {
	own        []builtinProvider
	configured *object
}

// entry is a provider's in models.json.
func (a addresses) entry(provider string) *object {
	if a.configured != nil {
		if o, ok := a.configured.get(provider).(*object); ok {
			return o
		}
	}
	return &object{}
}

// models are those that models.json gives a provider.
func (a addresses) models(provider string) []*object {
	var out []*object
	list, _ := a.entry(provider).get("models").([]any)
	for _, e := range list {
		if o, ok := e.(*object); ok {
			out = append(out, o)
		}
	}
	return out
}

// of is where a model is, "" for its provider's first one.
func (a addresses) of(provider, model string) string {
	for _, o := range a.models(provider) {
		if id, _ := o.get("id").(string); id != model && model != "" {
			continue
		}
		if at, _ := o.get("baseUrl").(string); at != "" {
			return at
		}
		break
	}
	if at, _ := a.entry(provider).get("baseUrl").(string); at != "" {
		return at
	}
	if i := slices.IndexFunc(a.own, func(p builtinProvider) bool { return p.name == provider }); i >= 0 && a.own[i].host != "" {
		return "https://" + a.own[i].host
	}
	return ""
}

// find is the model that pi takes a text for: PROVIDER/ID, an ID of models.json, or a
// part of one. What only its catalogue would tell is not found.
func (a addresses) find(provider, text string) (string, string) {
	var names []string
	if a.configured != nil {
		for _, m := range a.configured.members {
			names = append(names, m.name)
		}
	}
	for _, p := range a.own {
		names = append(names, p.name)
	}
	named := func(name string) string {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
			return names[i]
		}
		return ""
	}
	if provider != "" {
		return named(provider), text
	}
	for _, same := range []func(id, text string) bool{
		func(id, text string) bool { return id == text },
		func(id, text string) bool { return strings.Contains(strings.ToLower(id), strings.ToLower(text)) },
	} {
		for _, text := range []string{text, unleveled(text)} {
			if before, after, ok := strings.Cut(text, "/"); ok && named(before) != "" {
				return named(before), after
			}
			for _, name := range names {
				for _, o := range a.models(name) {
					if id, _ := o.get("id").(string); same(id, text) {
						return name, id
					}
				}
			}
		}
	}
	return "", ""
}

// unleveled is a model's name without the level at its end.
func unleveled(s string) string {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && slices.Contains(levels, s[i+1:]) {
		return s[:i]
	}
	return s
}

var levels = []string{"off", "minimal", "low", "medium", "high", "xhigh", "max"}
