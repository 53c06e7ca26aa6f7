// Package pibridge rewrites pi's configuration of this machine for a sandbox: the
// same providers, models and preferences, and none of the keys. What is not known to
// be harmless stays out: a key can stand anywhere.
//
// The facts are from pi 1.6.0: docs/models-configuration.md, docs/settings.md and
// its schemas. The package is pure.
package pibridge

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Where pi has the two files below a home. No other file of it is ever opened:
// auth.json, the models store, sessions and extensions hold keys and code.
const (
	Dir          = ".pi/agent"
	ModelsFile   = Dir + "/models.json"
	SettingsFile = Dir + "/settings.json"
	// ProjectSettings is below a project, and counts for more.
	ProjectSettings = ".pi/settings.json"
)

// MaxFile bounds each of the two, in bytes.
const MaxFile = 1 << 20

// An Input is what is bridged.
type Input struct {
	// Models and Settings are the files' text; nil is none.
	Models, Settings []byte
	// Homes are the names of the user's home: what leads there is not in a sandbox.
	Homes []string
	// Token is the variable that the providers' key is in inside. Value is what it
	// is now, which may stand nowhere else.
	Token, Value string
	// Passed tells which variables the command has inside.
	Passed func(name string) bool
}

// A Result are the files as they are inside; nil is none.
type Result struct {
	Models, Settings []byte
	// NeedsToken: a provider takes its key from Input.Token.
	NeedsToken bool
	// Changes are what was rewritten or left out, in the order of the files.
	Changes []Change
	// Left are whole providers and models among them, with the reason: pi has less to
	// choose from than on this machine.
	Left []string
}

// A Change is one place of a file that is not inside as it is on this machine. It
// never holds a value that could be a key.
type Change struct {
	File string // ModelsFile or SettingsFile
	At   string // providers.NAME.apiKey, ...
	Now  string // what is there inside; "" is nothing
	Why  string
}

// Bridge rewrites. An error is about a file that pi could not read either, or about a
// key that stands where it can't be told from other text; it quotes nothing of them.
func Bridge(in Input) (Result, error) {
	b := bridge{in: in, removed: []string{}}
	if in.Passed == nil {
		b.in.Passed = func(string) bool { return false }
	}
	if in.Models != nil {
		b.file = ModelsFile
		top, err := parse(uncommented(in.Models))
		if err != nil {
			return Result{}, fmt.Errorf("~/%s can't be parsed (%w); mend it, or use --no-pi-config", ModelsFile, err)
		}
		b.out.Models = encode(b.models(top))
	}
	if in.Settings != nil {
		b.file = SettingsFile
		text := bytes.TrimPrefix(in.Settings, []byte("\ufeff"))
		if len(bytes.TrimSpace(text)) == 0 {
			text = []byte("{}")
		}
		top, err := parse(text)
		if err != nil {
			return Result{}, fmt.Errorf("~/%s can't be parsed (%w); mend it, or use --no-pi-config", SettingsFile, err)
		}
		b.out.Settings = encode(b.settings(top))
	}
	if err := b.check(); err != nil {
		return Result{}, err
	}
	return b.out, nil
}

type bridge struct {
	in   Input
	out  Result
	file string
	// removed are texts that were left out and may be keys; keys are the providers',
	// whatever they look like.
	removed, keys []string
	// ids are the providers' names.
	ids []string
	// free are the texts that came over or are told and are the user's own: all others
	// are pi's.
	free []string
	// refused is the first place that may hold a key and can't do without its text.
	refused error
}

// check looks once more for what was left out, and for the token: it can stand in a
// name or an address too. No error tells a place before that is known.
func (b *bridge) check() error {
	keys := b.keys
	for _, key := range append(b.removed, b.in.Value) {
		if len(key) >= minKey {
			keys = append(keys, key)
		}
	}
	for _, text := range b.free {
		text = strings.ToLower(text) // as hosts are
		if slices.ContainsFunc(keys, func(key string) bool { return stands(strings.ToLower(key), text) && b.secret(key) }) {
			return fmt.Errorf("a key of ~/%s, or the value of %s, also stands in a name or an address of pi's configuration, where it can't be taken out; mend that, or use --no-pi-config", ModelsFile, b.in.Token)
		}
	}
	return b.refused
}

// stands tells whether a key is in a text: a short one as a word.
func stands(key, text string) bool {
	if len(key) < minKey {
		return wordIn(text, key)
	}
	return strings.Contains(text, key) || strings.Contains(text, strings.ToLower(url.QueryEscape(key)))
}

// secret tells whether what stands where keys do may be one: servers that ask for none
// get a word, or a word of their own name, and that stands elsewhere too.
func (b *bridge) secret(key string) bool {
	const longest = 16
	lower := strings.ToLower(key)
	word := func(w string) bool {
		return known(w) || slices.ContainsFunc(b.ids, func(id string) bool { return len(w) < minKey && wordIn(strings.ToLower(id), w) })
	}
	parts := strings.FieldsFunc(lower, func(r rune) bool { return r < 'a' || r > 'z' })
	plain := len(strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz-_. ")) == 0
	return !slices.Contains(placeholders, lower) && (len(key) > longest || !plain || slices.ContainsFunc(parts, func(w string) bool { return !word(w) }))
}

// wordIn tells whether a word stands in a text, and not as a part of another word.
func wordIn(text, word string) bool {
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	for at := 0; ; {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(word)
		if (i == 0 || !letter(text[i-1])) && (end == len(text) || !letter(text[end])) {
			return true
		}
		at = i + 1
	}
}

// minKey is the fewest bytes of what may be a key: what is shorter stands in other
// words too. It is policy.MinSecret. minAPIKey is the same of what stands in apiKey.
const minKey, minAPIKey = 8, 4

func (b *bridge) changed(at, now, why string) {
	b.out.Changes = append(b.out.Changes, Change{File: b.file, At: at, Now: now, Why: why})
}

// refuse notes what can't be taken out.
func (b *bridge) refuse(at, what string) {
	if b.refused == nil {
		b.refused = fmt.Errorf("%s of ~/%s: %s, and pi would take the key to another place without it; mend that, or use --no-pi-config", at, ModelsFile, what)
	}
}

// leave notes a provider or a model that stays out.
func (b *bridge) leave(at, why string) { b.out.Left = append(b.out.Left, at+" ("+why+")") }

// below is a place by a name of the user's own, which is not told where it may be a key.
func (b *bridge) below(at, name string) string {
	if mayBeKey(name) {
		return at + ".(a name that may be a key)"
	}
	b.free = append(b.free, name)
	return strings.TrimPrefix(at+"."+name, ".")
}

// drop leaves a value out.
func (b *bridge) drop(at string, v any, why string) {
	b.forget(v)
	b.changed(at, "", why)
}

// forget notes the texts in a value that was left out and may be keys.
func (b *bridge) forget(v any) {
	switch v := v.(type) {
	case string:
		for _, word := range strings.Fields(v) {
			if mayBeKey(word) {
				b.removed = append(b.removed, word)
			}
		}
	case []any:
		for _, e := range v {
			b.forget(e)
		}
	case *object:
		for _, m := range v.members {
			if text, ok := m.value.(string); ok && m.name == "apiKey" {
				b.noteKey(text)
			}
			b.forget(m.value)
		}
	}
}

// placeholders are what local servers, which ask for no key, get for one; their own
// documentation has them.
var placeholders = []string{
	"dummy", "empty", "jan", "litellm", "llama.cpp", "llamacpp", "lm-studio", "lmstudio", "local", "localai", "localhost", "no-key", "none",
	"not-needed", "null", "ollama", "placeholder", "sglang", "test", "unused", "vllm",
}

// noteKey notes a provider's key.
func (b *bridge) noteKey(text string) {
	if strings.HasPrefix(text, "!") { // as in a shell: most of its words are no keys
		b.forget(text)
		return
	}
	for _, key := range []string{text, reference().ReplaceAllString(text, ""), strings.ReplaceAll(text, "$$", "$")} {
		key = strings.TrimSpace(key)
		if len(key) >= minAPIKey && reference().FindString(key) != key {
			b.keys = append(b.keys, key)
		}
	}
}

// key notes what was left out and stood where keys stand. What is short and without a
// digit is what local servers get for a key, a name most often.
func (b *bridge) key(text string) {
	if strings.HasPrefix(text, "!") || strings.Contains(text, "$") {
		return
	}
	for _, word := range strings.Fields(text) {
		if len(word) >= 20 || strings.ContainsAny(word, "0123456789") {
			b.removed = append(b.removed, word)
		}
	}
}

func (b *bridge) models(top *object) *object {
	out := &object{}
	for _, m := range top.members {
		providers, ok := m.value.(*object)
		if m.name != "providers" || !ok {
			if m.name != "$schema" {
				b.drop(b.below("", m.name), m.value, "pi has no such field")
			}
			continue
		}
		list := &object{}
		for _, p := range providers.members {
			at := b.below("providers", p.name)
			b.ids = append(b.ids, p.name)
			if _, why := name(b, at, p.name); why != "" {
				b.leave(at, "its name: "+why)
				b.drop(at, p.value, "its name: "+why)
				continue
			}
			clean, why := providerFields(b, at, p.value)
			if o, ok := clean.(*object); ok && why == "" && empty(o) {
				// Pi would tell that at each start.
				why = "nothing of it is left that pi could do with"
				if was, ok := p.value.(*object); ok && !empty(was) {
					b.leave(at, why)
				}
			}
			if why != "" {
				b.drop(at, p.value, why)
				continue
			}
			list.set(p.name, clean)
		}
		out.set("providers", list)
	}
	return out
}

// empty tells whether pi refuses a provider, for having nothing.
func empty(o *object) bool {
	for _, m := range o.members {
		list, isList := m.value.([]any)
		over, isObject := m.value.(*object)
		switch m.name {
		case "baseUrl", "apiKey", "oauth", "authHeader", "headers", "compat":
			return false
		case "models":
			if isList && len(list) > 0 {
				return false
			}
		case "modelOverrides":
			if isObject && len(over.members) > 0 {
				return false
			}
		}
	}
	return true
}

// apiKey is the variable, whatever it was.
func apiKey(b *bridge, at string, v any) (any, string) {
	if text, ok := v.(string); ok {
		b.noteKey(text)
		b.key(text)
	}
	now := "$" + b.in.Token
	b.out.NeedsToken = true
	if v != now {
		b.changed(at, now, kindOf(v))
	}
	return now, ""
}

func kindOf(v any) string {
	text, _ := v.(string)
	switch {
	case strings.HasPrefix(text, "!"):
		return "it was a command, which was not run"
	case strings.HasPrefix(text, "$"):
		return "it was another variable"
	}
	return "it was the key itself"
}

// baseURL is the address without a login, a query and a fragment, in which keys are
// handed over. Without its address, pi would take the token to another one.
func baseURL(b *bridge, at string, v any) (any, string) {
	text, _ := v.(string)
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		b.refuse(at, "it is no address that begins with http:// or https://")
	case strings.ContainsAny(u.Path, ";=$!") || mayBeKey(u.Path):
		b.refuse(at, "its path may hold a key")
	case hostMayBeKey(u.Hostname()):
		b.refuse(at, "its host may hold a key")
	}
	if b.refused != nil {
		b.forget(v)
		return nil, "it may hold a key"
	}
	b.free = append(b.free, u.Path, u.Host)
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		password, _ := u.User.Password()
		for _, text := range append([]string{u.User.Username(), password, u.Fragment}, slices.Concat(slices.Collect(maps.Values(u.Query()))...)...) {
			b.key(text)
		}
		u.User, u.RawQuery, u.Fragment, u.ForceQuery = nil, "", "", false
		text = u.String()
		b.changed(at, text, "its login or query may hold a key")
	}
	return text, ""
}

// harmless are headers, and the literal values in which they hold no key: what is free
// text elsewhere, as in X-Title, could be one.
var harmless = map[string]func() *regexp.Regexp{
	"accept":            expression(`^[a-z*]+/[a-z0-9.+*-]+(, ?[a-z*]+/[a-z0-9.+*-]+)*$`),
	"anthropic-beta":    expression(`^[a-z0-9-]+-\d{4}-\d{2}-\d{2}(, ?[a-z0-9-]+-\d{4}-\d{2}-\d{2})*$`),
	"anthropic-version": expression(`^\d{4}-\d{2}-\d{2}$`),
	"content-type":      expression(`^[a-z]+/[a-z0-9.+-]+(; ?charset=[a-z0-9-]+)?$`),
	"openai-beta":       expression(`^[a-z_-]+=(v\d|\d{4}-\d{2}-\d{2})$`),
	"user-agent":        expression(`^[A-Za-z-]+/\d+(\.\d+)*( \([A-Za-z0-9_.; -]*\))?$`),
}

func isHarmless(name, text string) bool {
	shape := harmless[strings.ToLower(name)]
	return shape != nil && shape().MatchString(text) && !mayBeKey(text)
}

var (
	reference = expression(`\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*`)
	scheme    = expression(`^((?i:bearer|basic|token|apikey) )?$`)
)

// variable names one that would have to be passed, where the name is one.
func (b *bridge) variable(name string) string {
	if name != strings.ToUpper(name) || mayBeKey(name) {
		return "of that name; --env passes one"
	}
	b.free = append(b.free, name)
	return name + "; --env " + name + " passes it"
}

// headers keeps what is known to hold no key: literal values of harmless headers,
// and those that are put together from variables that the command has.
func headers(b *bridge, at string, v any) (any, string) {
	h, ok := v.(*object)
	if !ok {
		return nil, "it is no object"
	}
	out := &object{}
	for _, m := range h.members {
		at := b.below(at, m.name)
		text, ok := m.value.(string)
		refs := reference().FindAllString(text, -1)
		rest := reference().ReplaceAllString(text, "")
		switch {
		case !ok:
			b.drop(at, m.value, "it is no text")
		case mayBeKey(m.name):
			b.drop(at, text, "its name may be a key")
		case strings.HasPrefix(text, "!"):
			b.drop(at, text, "it is a command, which is not run")
		case len(refs) == 0 && isHarmless(m.name, text):
			b.free = append(b.free, text)
			out.set(m.name, text)
		case len(refs) == 0 || !scheme().MatchString(rest) || len(refs) > 1:
			b.key(rest)
			b.changed(at, "", "it may hold a key; write it as $"+b.in.Token)
		default:
			name := strings.Trim(refs[0], "${}")
			if name != b.in.Token && !b.in.Passed(name) {
				b.changed(at, "", "the command has no variable "+b.variable(name))
				continue
			}
			b.out.NeedsToken = b.out.NeedsToken || name == b.in.Token
			out.set(m.name, text)
		}
	}
	if len(out.members) == 0 && len(h.members) > 0 {
		return nil, nothing
	}
	return out, ""
}
