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
)

// MaxFile bounds each of the two, in bytes.
const MaxFile = 1 << 20

// An Input is what is bridged.
type Input struct {
	// Models and Settings are the files' text; nil is none.
	Models, Settings []byte
	// Home is the user's home: what leads there is not in a sandbox.
	Home string
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
	// Default is the provider that pi starts with: the one of its settings, else its
	// first one, or "". BaseURLs are the providers', by name.
	Default  string
	BaseURLs map[string][]string
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
	b.out.BaseURLs = map[string][]string{}
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
	if b.out.Default != "" && len(b.out.BaseURLs[b.out.Default]) == 0 && builtin[b.out.Default] != "" {
		b.out.BaseURLs[b.out.Default] = []string{builtin[b.out.Default]}
	}
	if err := b.check(); err != nil {
		return Result{}, err
	}
	return b.out, nil
}

// builtin are where pi's own providers are, where its files do not say another place:
// those of pi-ai's catalogue that have one host for all.
var builtin = map[string]string{
	"anthropic": "https://api.anthropic.com", "cerebras": "https://api.cerebras.ai", "deepseek": "https://api.deepseek.com",
	"fireworks": "https://api.fireworks.ai", "google": "https://generativelanguage.googleapis.com", "groq": "https://api.groq.com",
	"mistral": "https://api.mistral.ai", "openai": "https://api.openai.com", "openrouter": "https://openrouter.ai", "xai": "https://api.x.ai",
}

type bridge struct {
	in   Input
	out  Result
	file string
	// removed are texts that were left out and may be keys; keys are the providers',
	// whatever they look like.
	removed, keys []string
	// shown are texts that stand in the files in another form, or are told.
	shown []string
	// refused is the first place that may hold a key and can't do without its text.
	refused error
}

// check looks once more for what was left out, and for the token: it can stand in a
// name or an address too. No error tells a place before that is known.
func (b *bridge) check() error {
	texts := map[string]string{ModelsFile: string(b.out.Models), SettingsFile: string(b.out.Settings)}
	for _, c := range b.out.Changes {
		texts[c.File] += "\n" + c.At + "\n" + c.Now
	}
	texts[ModelsFile] += "\n" + strings.Join(b.shown, "\n")
	for file, text := range texts {
		text := strings.NewReplacer("$"+b.in.Token, "$", "${"+b.in.Token+"}", "$").Replace(text) // ours
		text = strings.ToLower(text)                                                             // as hosts are
		stands := func(key string) bool {
			q := quoted(key)
			q = strings.ToLower(q[1 : len(q)-1])
			if len(key) < minKey {
				return wordIn(text, q) || wordIn(text, strings.ToLower(key))
			}
			return strings.Contains(text, q) || strings.Contains(text, strings.ToLower(key)) || strings.Contains(text, strings.ToLower(url.QueryEscape(key)))
		}
		short := func(r string) bool { return len(r) < minKey }
		if slices.ContainsFunc(slices.DeleteFunc(append(slices.Clone(b.removed), b.in.Value), short), stands) || slices.ContainsFunc(b.keys, stands) {
			return fmt.Errorf("a key of ~/%s, or the value of %s, also stands in a name or an address of ~/%s, where it can't be taken out; mend that, or use --no-pi-config", ModelsFile, b.in.Token, file)
		}
	}
	return b.refused
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
	b.out.Changes = append(b.out.Changes, Change{File: b.file, At: masked(at), Now: now, Why: why})
}

// refuse notes what can't be taken out.
func (b *bridge) refuse(at, what string) {
	b.shown = append(b.shown, masked(at))
	if b.refused == nil {
		b.refused = fmt.Errorf("%s of ~/%s: %s may hold a key, which can't be taken out of there; mend that, or use --no-pi-config", masked(at), ModelsFile, what)
	}
}

// masked is a place without the names in it that may be keys.
func masked(at string) string {
	words := strings.Split(at, ".")
	for i, w := range words {
		if fieldMayBeKey(w) {
			words[i] = "(a name that may be a key)"
		}
	}
	return strings.Join(words, ".")
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
			if keyLike(word) {
				b.removed = append(b.removed, word)
			}
		}
	case []any:
		for _, e := range v {
			b.forget(e)
		}
	case *object:
		for _, m := range v.members {
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

// apiKey notes a provider's key.
func (b *bridge) apiKey(text string) {
	if strings.HasPrefix(text, "!") { // as in a shell: most of its words are no keys
		b.forget(text)
		return
	}
	for _, key := range []string{text, reference.ReplaceAllString(text, ""), strings.ReplaceAll(text, "$$", "$")} {
		key = strings.TrimSpace(key)
		if len(key) >= minAPIKey && reference.FindString(key) != key && !slices.Contains(placeholders, strings.ToLower(key)) {
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

// Fields of a provider, and of a model or an override, by how they are brought over.
var (
	plainFields = []string{
		"name", "api", "oauth", "authHeader", "reasoning", "thinkingLevelMap", "input", "inputLimits", "cost",
		"promptCache", "contextWindow", "maxTokens",
	}
	freeFields = []string{"compat", "samplingParams", "samplingParamsByThinkingLevel"}
)

func (b *bridge) models(top *object) *object {
	out := &object{}
	for _, m := range top.members {
		providers, ok := m.value.(*object)
		if m.name != "providers" || !ok {
			if m.name != "$schema" {
				b.drop(m.name, m.value, "pi has no such field")
			}
			continue
		}
		list := &object{}
		for _, p := range providers.members {
			if fields, ok := p.value.(*object); ok {
				if b.out.Default == "" {
					b.out.Default = p.name
				}
				if mayBeKey(p.name) {
					b.refuse("providers", "a provider's name")
				}
				list.set(p.name, b.entry("providers."+p.name, p.name, fields))
			} else {
				b.drop("providers."+p.name, p.value, "it is no object")
			}
		}
		out.set("providers", list)
	}
	return out
}

// entry is a provider, a model or an override.
func (b *bridge) entry(at, provider string, fields *object) *object {
	out := &object{}
	for _, f := range fields.members {
		at := at + "." + f.name
		switch {
		case f.name == "apiKey":
			if text, ok := f.value.(string); ok {
				b.apiKey(text)
				b.key(text)
			}
			b.out.NeedsToken = true
			out.set(f.name, "$"+b.in.Token)
			if f.value != "$"+b.in.Token {
				b.changed(at, "$"+b.in.Token, kindOf(f.value))
			}
		case f.name == "baseUrl":
			if text, ok := f.value.(string); ok {
				if clean, ok := b.baseURL(at, text); ok {
					out.set(f.name, clean)
					b.out.BaseURLs[provider] = append(b.out.BaseURLs[provider], clean)
				}
				continue
			}
			b.drop(at, f.value, "it is no text")
		case f.name == "headers":
			if h, ok := f.value.(*object); ok {
				if kept := b.headers(at, h); len(kept.members) > 0 {
					out.set(f.name, kept)
				}
				continue
			}
			b.drop(at, f.value, "it is no object")
		case f.name == "models":
			list, ok := f.value.([]any)
			if !ok {
				b.drop(at, f.value, "it is no list")
				continue
			}
			models := []any{}
			for i, e := range list {
				if o, ok := e.(*object); ok {
					models = append(models, b.entry(fmt.Sprintf("%s.%d", at, i), provider, o))
				} else {
					b.drop(fmt.Sprintf("%s.%d", at, i), e, "it is no object")
				}
			}
			out.set(f.name, models)
		case f.name == "modelOverrides":
			over, ok := f.value.(*object)
			if !ok {
				b.drop(at, f.value, "it is no object")
				continue
			}
			list := &object{}
			for _, m := range over.members {
				if o, ok := m.value.(*object); ok {
					if mayBeKey(m.name) {
						b.refuse(at, "a model's name")
					}
					list.set(m.name, b.entry(at+"."+m.name, provider, o))
				} else {
					b.drop(at+"."+m.name, m.value, "it is no object")
				}
			}
			out.set(f.name, list)
		case f.name == "id": // nothing works without
			if text, ok := f.value.(string); ok && mayBeKey(text) {
				b.refuse(at, "it")
			}
			b.copyTo(out, f.name, at, f.value, false)
		case slices.Contains(plainFields, f.name):
			b.copyTo(out, f.name, at, f.value, false)
		case slices.Contains(freeFields, f.name):
			b.copyTo(out, f.name, at, f.value, true)
		default:
			b.drop(at, f.value, "pi has no such field")
		}
	}
	return out
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
// handed over.
func (b *bridge) baseURL(at, text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		b.drop(at, text, "it is no address")
		return "", false
	}
	// Without its address, pi would take the token to another one.
	if slices.ContainsFunc(append(strings.Split(u.Path, "/"), strings.Split(u.Hostname(), ".")...), mayBeKey) {
		b.refuse(at, "its path or host")
	}
	b.shown = append(b.shown, u.Path, u.Host)
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return text, true
	}
	if u.User != nil {
		password, _ := u.User.Password()
		b.key(u.User.Username())
		b.key(password)
	}
	for _, values := range u.Query() {
		for _, v := range values {
			b.key(v)
		}
	}
	b.key(u.Fragment)
	u.User, u.RawQuery, u.Fragment, u.ForceQuery = nil, "", "", false
	b.changed(at, u.String(), "its login or query may hold a key")
	return u.String(), true
}

// harmless are headers, and the literal values in which they hold no key: what is free
// text elsewhere, as in X-Title, could be one.
var harmless = map[string]*regexp.Regexp{
	"accept":            regexp.MustCompile(`^[a-z*]+/[a-z0-9.+*-]+(, ?[a-z*]+/[a-z0-9.+*-]+)*$`),
	"anthropic-beta":    regexp.MustCompile(`^[a-z0-9-]+-\d{4}-\d{2}-\d{2}(, ?[a-z0-9-]+-\d{4}-\d{2}-\d{2})*$`),
	"anthropic-version": regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`),
	"content-type":      regexp.MustCompile(`^[a-z]+/[a-z0-9.+-]+(; ?charset=[a-z0-9-]+)?$`),
	"openai-beta":       regexp.MustCompile(`^[a-z_-]+=(v\d|\d{4}-\d{2}-\d{2})$`),
	"user-agent":        regexp.MustCompile(`^[A-Za-z-]+/\d+(\.\d+)*( \([A-Za-z0-9_.; -]*\))?$`),
}

func isHarmless(name, text string) bool {
	shape := harmless[strings.ToLower(name)]
	return shape != nil && shape.MatchString(text) && !keyLike(text)
}

var (
	reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*`)
	scheme    = regexp.MustCompile(`^((?i:bearer|basic|token|apikey) )?$`)
)

// headers keeps what is known to hold no key: literal values of harmless headers,
// and those that are put together from variables that the command has.
func (b *bridge) headers(at string, h *object) *object {
	out := &object{}
	for _, m := range h.members {
		at := at + "." + m.name
		text, ok := m.value.(string)
		refs := reference.FindAllString(text, -1)
		rest := reference.ReplaceAllString(text, "")
		switch {
		case !ok:
			b.drop(at, m.value, "it is no text")
		case strings.HasPrefix(text, "!"):
			b.drop(at, text, "it is a command, which is not run")
		case len(refs) == 0 && isHarmless(m.name, text):
			out.set(m.name, text)
		case len(refs) == 0 || !scheme.MatchString(rest) || len(refs) > 1:
			b.key(rest)
			b.changed(at, "", "it may hold a key; write it as $"+b.in.Token)
		default:
			name := strings.Trim(refs[0], "${}")
			if name != b.in.Token && !b.in.Passed(name) {
				b.changed(at, "", "the command has no variable "+name+"; --env "+name+" passes it")
				continue
			}
			b.out.NeedsToken = b.out.NeedsToken || name == b.in.Token
			out.set(m.name, text)
		}
	}
	return out
}

// copyTo brings a value over as it is, but for texts that may be keys. In a free
// one, names are the provider's and not pi's.
func (b *bridge) copyTo(out *object, name, at string, v any, free bool) {
	if clean, ok := b.clean(at, name, v, free); ok {
		out.set(name, clean)
	}
}

func (b *bridge) clean(at, name string, v any, free bool) (any, bool) {
	switch v := v.(type) {
	case string:
		switch {
		case b.leadsHome(v):
			b.drop(at, v, "it leads to this machine's home")
			return nil, false
		case credential.MatchString(name) && !strings.HasSuffix(name, "Field"), free && keyLike(v), !free && name != "id" && mayBeKey(v):
			b.key(v)
			b.changed(at, "", "it may be a key")
			return nil, false
		}
		return v, true
	case []any:
		list := []any{}
		for i, e := range v {
			if clean, ok := b.clean(fmt.Sprintf("%s.%d", at, i), name, e, free); ok {
				list = append(list, clean)
			}
		}
		return list, true
	case *object:
		o := &object{}
		for _, m := range v.members {
			if fieldMayBeKey(m.name) {
				b.drop(at+"."+m.name, m.value, "its name may be a key")
				continue
			}
			b.copyTo(o, m.name, at+"."+m.name, m.value, free)
		}
		return o, true
	}
	return v, true
}

// credential are names of values that are keys; pi's own thinkingTokenBudgetField
// and its kind are not.
var credential = regexp.MustCompile(`(?i)(api[-_]?key|secret|token|passw|credential|authorization|cookie|bearer|private[-_]?key)[a-z]*$`)

// keyLike tells whether a text may be a key: a long word, or one with digits among
// its letters as no name has them.
func keyLike(s string) bool {
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,;:/()", r) }) {
		digits := strings.Count(strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return '0'
			}
			return r
		}, word), "0")
		if (len(word) > 32 || len(word) >= 16 && digits >= 4 && digits < len(word)) && !dated.MatchString(word) {
			return true
		}
	}
	return false
}

// mayBeKey is keyLike for names, ids of models and parts of addresses, which are long
// and have numbers too: their words, between dashes and the like, are short, and at most
// one is a mixture of letters and digits of some length.
func mayBeKey(s string) bool { return mixed(s, 24) }

// fieldMayBeKey is the same for names of fields, which are long words.
func fieldMayBeKey(s string) bool { return mixed(s, 40) }

func mixed(s string, longest int) bool {
	if uuid.MatchString(s) {
		return true
	}
	mixtures := 0
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,;:/()-_.@+=~", r) }) {
		digits := 0
		for _, r := range word {
			if r >= '0' && r <= '9' {
				digits++
			}
		}
		if len(word) > longest || len(word) >= 16 && digits >= 3 && digits < len(word) {
			return true
		}
		if len(word) >= 6 && digits >= 2 && digits < len(word) {
			mixtures++
		}
	}
	return mixtures > 1
}

var uuid = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// dated are names that end in a date, as betas and models do.
var dated = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.]*(-[A-Za-z0-9.]+)*-(\d{4}-\d{2}-\d{2}|\d{8})$`)

func (b *bridge) leadsHome(s string) bool {
	return strings.HasPrefix(s, "~") || strings.Contains(s, "~/") || strings.Contains(s, "$HOME") || strings.Contains(s, "${HOME}") ||
		b.in.Home != "" && b.in.Home != "/" && (strings.Contains(s+"/", b.in.Home+"/"))
}
