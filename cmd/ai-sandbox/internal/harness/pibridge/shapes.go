// What a value has to be to come over: each of pi's fields has a shape, and what has none
// stays out. The fields are those of pi's schemas; of what pi hands to a provider as it
// is (samplingParams) they are those that providers document.

package pibridge

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// A shape is a value as it comes over, or why it stays out.
type shape func(b *bridge, at string, v any) (clean any, why string)

// nothing is the reason where each part of a value has told its own.
const nothing = "nothing of it is left"

// put brings one over.
func (b *bridge) put(out *object, name, at string, v any, s shape) {
	switch clean, why := s(b, at, v); why {
	case "":
		out.set(name, clean)
	case nothing:
	default:
		b.drop(at, v, why)
	}
}

// figure is a number that is too short for a key.
var figure = expression(`^-?[0-9]{1,10}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?$`)

func number(_ *bridge, _ string, v any) (any, string) {
	if n, ok := v.(json.Number); ok && figure().MatchString(n.String()) {
		return v, ""
	}
	return nil, "it is no number of a usual length"
}

func truth(_ *bridge, _ string, v any) (any, string) {
	if _, ok := v.(bool); ok {
		return v, ""
	}
	return nil, "it is neither true nor false"
}

// word is one of some.
func word(of ...string) shape {
	return func(_ *bridge, _ string, v any) (any, string) {
		if text, ok := v.(string); ok && slices.Contains(of, text) {
			return v, ""
		}
		return nil, "it is none of the words that are known for it"
	}
}

// pattern is a text in which there is no room for a key.
func pattern(shape string) shape {
	re := expression(shape)
	return func(_ *bridge, _ string, v any) (any, string) {
		if text, ok := v.(string); ok && re().MatchString(text) {
			return v, ""
		}
		return nil, "it has another form than is known for it"
	}
}

// name is a text of the user's own.
func name(b *bridge, _ string, v any) (any, string) {
	text, ok := v.(string)
	switch {
	case !ok:
		return nil, "it is no text"
	case b.leadsHome(text):
		return nil, "it leads to this machine's home"
	case strings.HasPrefix(text, "!") || strings.Contains(text, "$"):
		return nil, "it may be a command or a variable"
	case mayBeKey(text):
		return nil, "it may be a key"
	}
	b.free = append(b.free, text)
	return text, ""
}

// setting is a name that is no path of this machine either.
func setting(b *bridge, at string, v any) (any, string) {
	if text, ok := v.(string); ok && (strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") || strings.Contains(text, `\`)) {
		return nil, "it is a path of this machine"
	}
	return name(b, at, v)
}

func orNull(s shape) shape {
	return func(b *bridge, at string, v any) (any, string) {
		if v == nil {
			return nil, ""
		}
		return s(b, at, v)
	}
}

// either is the first that takes it; those of lists and objects come last, as they take
// what they can.
func either(of ...shape) shape {
	return func(b *bridge, at string, v any) (clean any, why string) {
		for _, s := range of {
			if clean, why = s(b, at, v); why == "" {
				break
			}
		}
		return clean, why
	}
}

func listOf(s shape) shape {
	return func(b *bridge, at string, v any) (any, string) {
		list, ok := v.([]any)
		if !ok {
			return nil, "it is no list"
		}
		out := []any{}
		for i, e := range list {
			at := fmt.Sprintf("%s.%d", at, i)
			if clean, why := s(b, at, e); why == "" {
				out = append(out, clean)
			} else {
				b.drop(at, e, why)
			}
		}
		return out, ""
	}
}

// fields is an object of which each name is known; other is for those that are not.
func fields(of map[string]shape, other shape) shape {
	return func(b *bridge, at string, v any) (any, string) {
		o, ok := v.(*object)
		if !ok {
			return nil, "it is no object"
		}
		out := &object{}
		for _, m := range o.members {
			if s := of[m.name]; s != nil {
				b.put(out, m.name, at+"."+m.name, m.value, s)
			} else {
				b.putNamed(out, m.name, at, m.value, other)
			}
		}
		return out, ""
	}
}

// named is an object whose names are the user's own.
func named(s shape) shape { return fields(nil, s) }

func (b *bridge) putNamed(out *object, at string, of string, v any, s shape) {
	where := b.below(of, at)
	if _, why := name(b, where, at); why != "" {
		b.drop(where, v, "its name: "+why)
		return
	}
	b.put(out, at, where, v, s)
}

// The shapes of values.
var (
	unknown shape = func(*bridge, string, any) (any, string) { return nil, "pi has no such field" }
	// undocumented is what a provider gets that is not known: it holds no key if it is
	// on or off.
	undocumented shape = func(_ *bridge, _ string, v any) (any, string) {
		if _, ok := v.(bool); ok || v == nil {
			return v, ""
		}
		return nil, "it is not known to hold no key"
	}
	level  = word(levels...)
	effort = either(word(append([]string{
		"none", "default", "auto", "on", "enabled", "disabled", "adaptive", "ultra", "MINIMAL", "LOW", "MEDIUM", "HIGH",
	}, levels...)...), pattern(`^[0-9]{1,6}$`))
	byLevel = func(s shape) shape {
		of := map[string]shape{}
		for _, l := range levels {
			of[l] = s
		}
		return fields(of, unknown)
	}
	provider = pattern(`^[a-z0-9.-]{1,40}(/[a-z0-9.-]{1,24})?$`)
	upstream = listOf(func(b *bridge, at string, v any) (any, string) {
		if _, why := provider(b, at, v); why != "" {
			return nil, why
		}
		return name(b, at, v)
	})
	amount      = either(number, pattern(`^[0-9]{1,6}(\.[0-9]{1,12})?$`))
	percentiles = either(number, fields(all(number, "p50", "p75", "p90", "p99"), unknown))
)

// all are fields of one shape.
func all(s shape, names ...string) map[string]shape {
	out := map[string]shape{}
	for _, n := range names {
		out[n] = s
	}
	return out
}

func joined(of ...map[string]shape) map[string]shape {
	out := map[string]shape{}
	for _, m := range of {
		maps.Copy(out, m)
	}
	return out
}

var (
	prices = all(number, "input", "output", "cacheRead", "cacheWrite")
	cost   = fields(joined(prices, map[string]shape{
		"tiers": listOf(fields(joined(prices, all(number, "inputTokensAbove")), unknown)),
	}), unknown)

	inputLimits = fields(map[string]shape{
		"maxRequestBytes": number,
		"images": fields(joined(all(number, "maxPerMessage", "maxPerRequest"), map[string]shape{
			"resize": fields(all(number, "maxWidth", "maxHeight", "maxBytes", "jpegQuality"), unknown),
		}), unknown),
	}, unknown)

	routing = fields(joined(
		all(truth, "allow_fallbacks", "require_parameters", "zdr", "enforce_distillable_text"),
		all(upstream, "order", "only", "ignore"),
		all(percentiles, "preferred_min_throughput", "preferred_max_latency"),
		map[string]shape{
			"data_collection": word("deny", "allow"),
			"quantizations":   listOf(word("int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32", "unknown")),
			"sort": either(sorting, fields(map[string]shape{
				"by": sorting, "partition": orNull(word("model", "none")),
			}, unknown)),
			"max_price": fields(all(amount, "prompt", "completion", "image", "audio", "request"), unknown),
		}), unknown)
	sorting = word("price", "throughput", "latency")

	// template are the arguments of a chat template: the template says which.
	template = fields(joined(
		all(number, "thinking_budget", "reasoning_budget", "budget"),
		all(either(effort, undocumented), "reasoning_effort", "reasoning_mode", "thinking", "thinking_mode"),
	), either(undocumented, fields(map[string]shape{
		"$var": word("thinking.enabled", "thinking.effort", "thinking.budget"), "omitWhenOff": truth,
	}, unknown)))

	compat = fields(joined(
		all(truth, "supportsStore", "supportsDeveloperRole", "supportsReasoningEffort", "supportsUsageInStreaming", "supportsFinishReason",
			"requiresToolResultName", "requiresAssistantAfterToolResult", "requiresNonNullAssistantContent", "requiresToolsWithToolHistory",
			"requiresThinkingAsText", "requiresReasoningContentOnAssistantMessages", "zaiToolStream", "supportsThinkingTokenBudget",
			"supportsOpenAIGrammarTools", "supportsMidConvoSystemMessages", "supportsMidConvoToolAdditions", "supportsStrictMode",
			"sendSessionAffinityHeaders", "supportsLongCacheRetention", "supportsAdditionalTools", "supportsToolSearch",
			"supportsExplicitPromptCacheMode", "supportsMidConvoEffort", "supportsMaxOutputTokens", "supportsEagerToolInputStreaming",
			"supportsCacheControlOnTools", "supportsTemperature", "forceAdaptiveThinking", "allowEmptySignature", "supportsStrictTools",
			"supportsMidConvoToolChanges", "supportsMessageThreads", "sendImageOptInHeader"),
		map[string]shape{
			"maxTokensField":           word("max_completion_tokens", "max_tokens"),
			"thinkingFormat":           word("openai", "openrouter", "deepseek", "together", "baseten", "zai", "qwen", "chat-template", "qwen-chat-template", "string-thinking", "ant-ling"),
			"thinkingTokenBudgetField": word("thinking_token_budget", "thinking_budget", "thinking_budget_tokens"),
			"cacheControlFormat":       word("anthropic"),
			"sessionAffinityFormat":    word("openai", "openai-nosession", "openrouter"),
			"promptCacheKeyMode":       word("auto", "enabled", "disabled"),
			"imageInput":               word("assets", "images", "state-image-urls"),
			"vllmPriority":             number,
			"chatTemplateKwargs":       template,
			"chatTemplateArgs":         template,
			"openRouterRouting":        routing,
			"vercelGatewayRouting":     fields(all(upstream, "only", "order"), unknown),
			"allowedFallbackModels":    listOf(fields(map[string]shape{"provider": name, "model": name, "cost": cost}, unknown)),
		}), unknown)

	params = fields(joined(
		all(number, "temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "tfs_z", "presence_penalty", "frequency_penalty",
			"repetition_penalty", "repeat_penalty", "repeat_last_n", "length_penalty", "seed", "n", "max_tokens", "max_completion_tokens",
			"max_output_tokens", "min_tokens", "top_logprobs", "thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
			"num_ctx", "num_predict", "mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range", "dynatemp_exponent",
			"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "xtc_probability", "xtc_threshold", "top_n_sigma", "priority"),
		map[string]shape{
			"logprobs":               either(truth, number),
			"service_tier":           word("auto", "default", "flex", "scale", "priority", "standard", "batch", "on_demand", "performance", "standard_only"),
			"reasoning_effort":       effort,
			"reasoning_format":       word("hidden", "raw", "parsed"),
			"reasoning_split":        truth,
			"verbosity":              word("low", "medium", "high"),
			"truncation":             word("auto", "disabled"),
			"tool_choice":            word("auto", "none", "required"),
			"route":                  word("fallback"),
			"transforms":             listOf(word("middle-out")),
			"prompt_cache_retention": word("in_memory", "in-memory", "24h"),
			"reasoning": fields(map[string]shape{
				"effort": effort, "max_tokens": number, "exclude": truth, "enabled": truth, "summary": word("auto", "concise", "detailed", "none"),
			}, undocumented),
			"thinking": fields(map[string]shape{
				"type": effort, "budget_tokens": number, "effort": effort,
			}, undocumented),
			"text":                 fields(map[string]shape{"verbosity": word("low", "medium", "high")}, undocumented),
			"usage":                fields(nil, undocumented),
			"stream_options":       fields(nil, undocumented),
			"chat_template_kwargs": template,
			"chat_template_args":   template,
			"provider":             routing,
		}), undocumented)

	// modelFields are those that a model and an override both have.
	modelFields = map[string]shape{
		"name": name, "reasoning": truth, "thinkingLevelMap": byLevel(orNull(effort)), "input": listOf(word("text", "image")),
		"inputLimits": inputLimits, "cost": cost, "promptCache": fields(all(number, "short", "long"), unknown),
		"contextWindow": number, "maxTokens": number, "samplingParams": params, "samplingParamsByThinkingLevel": byLevel(params),
		"headers": headers, "compat": compat,
	}
	api = word("openai-completions", "mistral-conversations", "openai-responses", "azure-openai-responses", "openai-codex-responses",
		"anthropic-messages", "bedrock-converse-stream", "google-generative-ai", "google-vertex", "pi-messages",
		"typesafe-system-one", "cloudflare-workers-ai-system-one", "llama-cpp-classify", "openai-decisions", "openrouter-images")
	override       = fields(modelFields, unknown)
	model          = fields(joined(modelFields, map[string]shape{"id": name, "api": api, "baseUrl": baseURL}), unknown)
	providerFields = fields(map[string]shape{
		"name": name, "baseUrl": baseURL, "apiKey": apiKey, "api": api, "oauth": word("radius"), "headers": headers, "compat": compat,
		"authHeader": truth, "models": listOf(identified), "modelOverrides": overrides,
	}, unknown)
)

// identified is a model: none is without its id.
func identified(b *bridge, at string, v any) (any, string) {
	o, ok := v.(*object)
	if !ok {
		return nil, "it is no object"
	}
	if _, why := name(b, at, o.get("id")); why != "" {
		why = "its id: " + why
		b.leave(at, why)
		return nil, why
	}
	return model(b, at, o)
}

func overrides(b *bridge, at string, v any) (any, string) {
	o, ok := v.(*object)
	if !ok {
		return nil, "it is no object"
	}
	for _, m := range o.members {
		if _, why := name(b, at, m.name); why != "" {
			b.leave(b.below(at, m.name), "its name: "+why)
		}
	}
	return named(override)(b, at, v)
}

// leadsHome tells whether a text leads to the user's home, by either of its names, or to
// a file at all.
func (b *bridge) leadsHome(s string) bool {
	if plain, err := url.PathUnescape(s); err == nil && plain != s && b.leadsHome(plain) {
		return true
	}
	if strings.Contains(s, "~/") || s == "~" || strings.Contains(s, "../") || strings.HasPrefix(strings.ToLower(s), "file:") {
		return true
	}
	return slices.ContainsFunc(b.in.Homes, func(home string) bool {
		home = strings.TrimRight(home, "/")
		return home != "" && strings.Contains(s+"/", home+"/")
	})
}
