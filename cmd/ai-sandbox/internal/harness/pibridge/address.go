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
	// Project is the project's ProjectSettings, nil for none.
	Project []byte
	// LoggedIn is that it has its file with keys, too, which is not read. Resumes is that
	// it takes up a session, and the model of that.
	LoggedIn, Resumes bool
}

// Address is where the first request of a pi with these files goes, or "" where that
// can't be told. It is as findInitialModel and buildSessionOptions of pi 1.6.0 have it.
func (r Result) Address(s Start) string {
	a := addresses{own: ownProviders(), start: s}
	if top, err := parse(r.Models); err == nil {
		a.configured, _ = top.get("providers").(*object)
	}
	if s.Model != "" {
		return a.of(a.find(s.Provider, s.Model, a.names()))
	}
	if s.Resumes {
		return ""
	}
	var settings []*object // the first that has one counts
	for _, text := range [][]byte{s.Project, r.Settings} {
		if top, err := parse(text); err == nil {
			settings = append(settings, top)
		}
	}
	value := func(name string) any {
		for _, top := range settings {
			if v := top.get(name); v != nil {
				return v
			}
		}
		return nil
	}
	scope := strings.FieldsFunc(s.Models, func(r rune) bool { return r == ',' })
	if list, ok := value("enabledModels").([]any); ok && len(scope) == 0 {
		for _, e := range list {
			if v, ok := e.(string); ok {
				scope = append(scope, v)
			}
		}
	}
	provider, _ := value("defaultProvider").(string)
	model, _ := value("defaultModel").(string)
	usable := slices.DeleteFunc(a.names(), func(name string) bool { return !a.usable(name) })
	saved := slices.Contains(usable, provider) && a.has(provider, model)
	for i := range scope {
		scope[i] = unleveled(strings.TrimSpace(scope[i]))
		if saved && (fits(scope[i], provider, model) || a.found(scope[i], usable, provider, model)) {
			return a.of(provider, model)
		}
	}
	for _, pattern := range scope {
		if at, ok := a.scoped(pattern, usable); ok {
			return at
		}
	}
	switch {
	case saved:
		return a.of(provider, model)
	case s.LoggedIn:
		return ""
	}
	for _, p := range a.own {
		if slices.Contains(usable, p.name) {
			return a.host(p.name)
		}
	}
	for _, name := range usable {
		if len(a.models(name)) > 0 {
			return a.of(name, "")
		}
	}
	return ""
}

// scoped is where the first model is that a pattern is of, and whether it is of one: that
// can't be told where it may be one of pi's own catalogue.
func (a addresses) scoped(pattern string, usable []string) (at string, ok bool) {
	if provider, model := a.find("", pattern, usable); provider != "" {
		if isGlob(model) {
			model = ""
		}
		return a.of(provider, model), true
	}
	if slices.ContainsFunc(usable, a.isOwn) {
		return "", true
	}
	for _, name := range usable {
		for _, o := range a.models(name) {
			if id, _ := o.get("id").(string); isGlob(pattern) && fits(pattern, name, id) {
				return a.of(name, id), true
			}
		}
	}
	return "", false
}

func isGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// fits tells whether a model is one of a pattern, by its whole name.
func fits(pattern, provider, model string) bool {
	for _, name := range []string{model, provider + "/" + model} {
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(name)); err == nil && ok {
			return true
		}
	}
	return false
}

func (a addresses) found(pattern string, usable []string, provider, model string) bool {
	p, m := a.find("", pattern, usable)
	return p == provider && m == model
}

type addresses struct {
	own        []builtinProvider
	configured *object
	start      Start
}

// names are those of all providers: pi's own, then the others, as pi has them.
func (a addresses) names() []string {
	var out []string
	for _, p := range a.own {
		out = append(out, p.name)
	}
	if a.configured != nil {
		for _, m := range a.configured.members {
			if !slices.Contains(out, m.name) {
				out = append(out, m.name)
			}
		}
	}
	return out
}

func (a addresses) isOwn(provider string) bool {
	return slices.ContainsFunc(a.own, func(p builtinProvider) bool { return p.name == provider })
}

// usable tells whether pi has a key of a provider, or may have: it starts with no other
// one, also where the settings say so.
func (a addresses) usable(provider string) bool {
	has := func(name string) bool { return a.start.Has != nil && a.start.Has(name) }
	switch {
	case a.start.LoggedIn, a.entry(provider).get("apiKey") != nil:
		return true
	case provider == "amazon-bedrock": // by more than a key
		return has("AWS_BEARER_TOKEN_BEDROCK") || has("AWS_PROFILE") || has("AWS_ACCESS_KEY_ID") && has("AWS_SECRET_ACCESS_KEY")
	}
	return slices.ContainsFunc(a.own, func(p builtinProvider) bool { return p.name == provider && slices.ContainsFunc(p.keys, has) })
}

// has tells whether a provider has a model. What pi's own catalogue has is not known here.
func (a addresses) has(provider, model string) bool {
	return model != "" && (a.isOwn(provider) || slices.ContainsFunc(a.models(provider), func(o *object) bool { return o.get("id") == model }))
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
	return a.host(provider)
}

// host is where a provider's models are that say nothing themselves.
func (a addresses) host(provider string) string {
	if at, _ := a.entry(provider).get("baseUrl").(string); at != "" {
		return at
	}
	if i := slices.IndexFunc(a.own, func(p builtinProvider) bool { return p.name == provider }); i >= 0 && a.own[i].host != "" {
		return "https://" + a.own[i].host
	}
	return ""
}

// find is the model that pi takes a text for: PROVIDER/ID, an ID of models.json, or a
// part of one, of the providers named. What only its catalogue would tell is not found.
func (a addresses) find(provider, text string, names []string) (string, string) {
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
