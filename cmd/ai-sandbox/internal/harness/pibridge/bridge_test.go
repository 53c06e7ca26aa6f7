package pibridge

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const token = "AI_API_TOKEN"

func bridged(t *testing.T, models, settings string) (Result, error) {
	t.Helper()
	in := Input{Homes: []string{"/home/dev", "/home/link/dev"}, Token: token, Value: "tok-live-51f0c7", Passed: func(name string) bool { return name == "ORG" }}
	if models != "" {
		in.Models = []byte(models)
	}
	if settings != "" {
		in.Settings = []byte(settings)
	}
	return Bridge(in)
}

// TestModels: one provider field a row.
func TestModels(t *testing.T) {
	for _, tc := range []struct{ what, field, want string }{
		{"a literal key", `"apiKey":"sk-0123456789abcdef"`, `"apiKey":"$AI_API_TOKEN"`},
		{"a command", `"apiKey":"!pass show key"`, `"apiKey":"$AI_API_TOKEN"`},
		{"another variable", `"apiKey":"$OPENAI_KEY"`, `"apiKey":"$AI_API_TOKEN"`},
		{"a key that is no text", `"apiKey":12345678`, `"apiKey":"$AI_API_TOKEN"`},
		{"a local server's", `"apiKey":"lm-studio"`, `"apiKey":"$AI_API_TOKEN"`},
		{"no key stays none", `"api":"openai-completions"`, `"api":"openai-completions"`},
		{"an address", `"baseUrl":"https://llm.example.com/v1"`, `"baseUrl":"https://llm.example.com/v1"`},
		{"an address with a login", `"baseUrl":"https://u:pw123456@llm.example.com:8443/v1"`, `"baseUrl":"https://llm.example.com:8443/v1"`},
		{"an address with a query", `"baseUrl":"https://llm.example.com/v1?key=k1234567#x"`, `"baseUrl":"https://llm.example.com/v1"`},
		{"a header's command", `"headers":{"X-A":"!security find","User-Agent":"me/1.2 (x; y)"}`, `"headers":{"User-Agent":"me/1.2 (x; y)"}`},
		{"a header's key", `"headers":{"Authorization":"Bearer sk-0123456789abcdef"}`, ``},
		{"a header of any name", `"headers":{"X-Team":"k1234567890"}`, ``},
		{"a key in a harmless header", `"headers":{"User-Agent":"k12345678901234567890"}`, ``},
		{"a header's token", `"headers":{"Authorization":"Bearer $AI_API_TOKEN","X-K":"${AI_API_TOKEN}"}`, `"headers":{"Authorization":"Bearer $AI_API_TOKEN","X-K":"${AI_API_TOKEN}"}`},
		{"a header's variable that is passed", `"headers":{"X-Org":"$ORG"}`, `"headers":{"X-Org":"$ORG"}`},
		{"one that is not", `"headers":{"X-Org":"$OTHER"}`, ``},
		{"a variable with a key beside it", `"headers":{"X-Org":"sk-0123$AI_API_TOKEN"}`, ``},
		{"a word in a header that is free text", `"headers":{"X-Title":"hunter2pw99","HTTP-Referer":"hunter2pw99","User-Agent":"hunter2pw99","Accept":"hunter2pw99","anthropic-beta":"hunter2pw99","Content-Type":"application/json"}`, `"headers":{"Content-Type":"application/json"}`},
		{"an escaped dollar", `"headers":{"User-Agent":"$$x"}`, ``},
		{"betas", `"headers":{"anthropic-beta":"context-1m-2025-08-07,fine-grained-tool-streaming-2025-05-14","anthropic-version":"2023-06-01"}`,
			`"headers":{"anthropic-beta":"context-1m-2025-08-07,fine-grained-tool-streaming-2025-05-14","anthropic-version":"2023-06-01"}`},
		{"a name that may hold a key", `"name":"sk-live-AbCd1234EfGh5678IjKl","api":"sk-live-AbCd1234EfGh5678IjKl"`, ``},
		{"names of models", `"name":"My Gateway (EU)","models":[{"id":"us.anthropic.claude-sonnet-4-5-20250929-v1:0"},{"id":"accounts/fireworks/models/llama-v3p1-405b-instruct"},{"id":"Qwen3-Coder-480B-A35B-Instruct-FP8"},{"id":"gpt-4o-mini-2024-07-18"},{"id":"nvidia/Llama-3_1-Nemotron-Ultra-253B-v1"}]`,
			`"name":"My Gateway (EU)","models":[{"id":"us.anthropic.claude-sonnet-4-5-20250929-v1:0"},{"id":"accounts/fireworks/models/llama-v3p1-405b-instruct"},{"id":"Qwen3-Coder-480B-A35B-Instruct-FP8"},{"id":"gpt-4o-mini-2024-07-18"},{"id":"nvidia/Llama-3_1-Nemotron-Ultra-253B-v1"}]`},
		{"the variable's name", `"apiKey":"AI_API_TOKEN"`, `"apiKey":"$AI_API_TOKEN"`},
		{"a local server", `"name":"ollama","apiKey":"ollama","baseUrl":"http://127.0.0.1:11434/v1"`, `"name":"ollama","apiKey":"$AI_API_TOKEN","baseUrl":"http://127.0.0.1:11434/v1"`},
		{"a host of a cloud's customer", `"baseUrl":"https://k3x9q2m7w1z8p4-8000.proxy.example.net/v1","models":[{"id":"m","baseUrl":"https://t4028392834x.ok.test:8443"}]`, `"baseUrl":"https://k3x9q2m7w1z8p4-8000.proxy.example.net/v1","models":[{"id":"m","baseUrl":"https://t4028392834x.ok.test:8443"}]`},
		{"addresses with long names", `"baseUrl":"https://ai-gateway-production-europe-west4.example.com:8443/openai/deployments/gpt-4o-2024-08-06"`, `"baseUrl":"https://ai-gateway-production-europe-west4.example.com:8443/openai/deployments/gpt-4o-2024-08-06"`},
		{"a short key inside another word", `"apiKey":"abcd","name":"abcdef"`, `"apiKey":"$AI_API_TOKEN","name":"abcdef"`},
		{"a field that pi has not", `"note":"x","secret":"y"`, ``},
		{"a model", `"models":[{"id":"m-4.5-20250929","reasoning":true,"cost":{"input":3,"output":1.50},"thinkingLevelMap":{"xhigh":"max","off":null}}]`,
			`"models":[{"id":"m-4.5-20250929","reasoning":true,"cost":{"input":3,"output":1.50},"thinkingLevelMap":{"xhigh":"max","off":null}}]`},
		{"a model's header and address", `"models":[{"id":"m","headers":{"X":"k1234567890"},"baseUrl":"https://k1234567@a.test"}]`, `"models":[{"id":"m","baseUrl":"https://a.test"}]`},
		{"an override", `"modelOverrides":{"m":{"name":"N","headers":{"X":"!run"}}}`, `"modelOverrides":{"m":{"name":"N"}}`},
		{"what is sent along", `"models":[{"id":"m","samplingParams":{"top_p":0.9,"seed":42,"service_tier":"flex","store":false,"reasoning":{"effort":"high","max_tokens":9},"chat_template_kwargs":{"enable_thinking":true},"provider":{"order":["groq"]}},"samplingParamsByThinkingLevel":{"high":{"top_k":20}}}]`,
			`"models":[{"id":"m","samplingParams":{"top_p":0.9,"seed":42,"service_tier":"flex","store":false,"reasoning":{"effort":"high","max_tokens":9},"chat_template_kwargs":{"enable_thinking":true},"provider":{"order":["groq"]}},"samplingParamsByThinkingLevel":{"high":{"top_k":20}}}]`},
		{"what is not known of it", `"models":[{"id":"m","samplingParams":{"aws_secret_access_key":"k","secret_key":"hunter2","password_hash":"k","access_key":"k","api_key":123456789012345678,"credentials":{"main":"k"},"auth":{"value":"k"},"metadata":{"Token":{"v":"k"}},"extra_headers":{"Ocp-Apim-Subscription-Key":"k"},"x":"!echo k","user":"k","stop":["k"],"seed":123456789012345678,"service_tier":"k","top_p":"k"}}]`,
			`"models":[{"id":"m","samplingParams":{}}]`},
		{"compat", `"compat":{"thinkingTokenBudgetField":"thinking_budget","maxTokensField":"max_tokens","openRouterRouting":{"order":["google-vertex/us-east5"],"max_price":{"prompt":"0.5","completion":2},"sort":{"by":"price","partition":null}},"chatTemplateKwargs":{"token":"abc","effort":{"$var":"thinking.effort","omitWhenOff":true}},"supportsStore":"yes","thinkingFormat":"mine"}`,
			`"compat":{"thinkingTokenBudgetField":"thinking_budget","maxTokensField":"max_tokens","openRouterRouting":{"order":["google-vertex/us-east5"],"max_price":{"prompt":"0.5","completion":2},"sort":{"by":"price","partition":null}},"chatTemplateKwargs":{"effort":{"$var":"thinking.effort","omitWhenOff":true}}}`},
		{"all of a model", `"models":[{"id":"~typesafe/jev-latest","name":"Jev","api":"openai-completions","baseUrl":"http://127.0.0.1:11434/v1","reasoning":true,"thinkingLevelMap":{"off":null,"high":"HIGH","max":"32000"},"input":["text","image"],"inputLimits":{"maxRequestBytes":1,"images":{"resize":{"maxWidth":1568},"maxPerMessage":2}},"cost":{"input":0.30000000000000004,"output":1,"cacheRead":0,"cacheWrite":0,"tiers":[{"inputTokensAbove":200000,"input":1e-7}]},"promptCache":{"short":300,"long":3600},"contextWindow":128000,"maxTokens":16384}]`,
			`"models":[{"id":"~typesafe/jev-latest","name":"Jev","api":"openai-completions","baseUrl":"http://127.0.0.1:11434/v1","reasoning":true,"thinkingLevelMap":{"off":null,"high":"HIGH","max":"32000"},"input":["text","image"],"inputLimits":{"maxRequestBytes":1,"images":{"resize":{"maxWidth":1568},"maxPerMessage":2}},"cost":{"input":0.30000000000000004,"output":1,"cacheRead":0,"cacheWrite":0,"tiers":[{"inputTokensAbove":200000,"input":1e-7}]},"promptCache":{"short":300,"long":3600},"contextWindow":128000,"maxTokens":16384}]`},
		{"a model whose id may be a key", `"models":[{"id":"a"},{"id":"sk-live-AbCd1234EfGh5678IjKl"},{"name":"no id"}]`, `"models":[{"id":"a"}]`},
		{"a key that is one of pi's words", `"apiKey":"text","name":"text","models":[{"id":"m","input":["text"]}]`, `"apiKey":"$AI_API_TOKEN","name":"text","models":[{"id":"m","input":["text"]}]`},
		{"a key that is JSON's", `"apiKey":"true","models":[{"id":"m","reasoning":true}]`, `"apiKey":"$AI_API_TOKEN","models":[{"id":"m","reasoning":true}]`},
		{"a key that is pi's name of a field", `"apiKey":"samplingParams","models":[{"id":"m","samplingParams":{}}]`, `"apiKey":"$AI_API_TOKEN","models":[{"id":"m","samplingParams":{}}]`},
		{"a key that is the provider's name", `"apiKey":"acme","name":"acme"`, `"apiKey":"$AI_API_TOKEN","name":"acme"`},
	} {
		// With the second, pi takes every one.
		head, tail := `{"providers":{"acme p":{"authHeader":true`, "}}}"
		field := strings.TrimSuffix(","+tc.field, ",")
		r, err := bridged(t, head+field+tail, "")
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		want := head + strings.TrimSuffix(","+tc.want, ",") + tail
		if got := squeezed(t, r.Models); got != want {
			t.Errorf("%s: %s, want %s", tc.what, got, want)
		}
		if r.NeedsToken != strings.Contains(tc.want, "AI_API_TOKEN") {
			t.Errorf("%s: the token is needed: %t", tc.what, r.NeedsToken)
		}
		if (squeezed(t, r.Models) != head+field+tail) != (len(r.Changes) > 0) {
			t.Errorf("%s: %+v", tc.what, r.Changes)
		}
	}
	// As pi reads the file; the order stays, as pi takes the first of its providers.
	r, err := bridged(t, "\ufeff// mine\n{\"$schema\":\"s\",\"providers\":{\"z\":{\"apiKey\":\"// no\\\" comment\",},\n\"a\":{\"authHeader\":true}, // last\n},}", "")
	if got := squeezed(t, r.Models); err != nil || got != `{"providers":{"z":{"apiKey":"$AI_API_TOKEN"},"a":{"authHeader":true}}}` {
		t.Errorf("%s %v", got, err)
	}
}

// What pi could do nothing with is not there, and neither is a provider or a model whose
// name may be a key: each is told, and the rest comes.
func TestLeft(t *testing.T) {
	const key = "sk-live-CANARY1234EfGh5678IjKl"
	for _, tc := range []struct{ what, providers, want, left string }{
		{"nothing", `"anthropic":{}`, ``, ""},
		{"no more than a name", `"anthropic":{"name":"A"}`, ``, ""},
		{"nothing is left", `"anthropic":{"headers":{"X":"k1234567890"}}`, ``, "providers.anthropic (nothing of it is left that pi could do with)"},
		{"no model is left", `"anthropic":{"models":[{"id":"` + key + `"}]}`, ``, "providers.anthropic.models.0 (its id: it may be a key) providers.anthropic (nothing of it is left that pi could do with)"},
		{"one of two", `"` + key + `":{"authHeader":true},"b":{"authHeader":true}`, `"b":{"authHeader":true}`, "providers.(a name that may be a key) (its name: it may be a key)"},
		{"an override", `"b":{"modelOverrides":{"` + key + `":{},"m":{}}}`, `"b":{"modelOverrides":{"m":{}}}`, "providers.b.modelOverrides.(a name that may be a key) (its name: it may be a key)"},
		{"a model of the home", `"b":{"models":[{"id":"/home/dev/m.gguf"},{"id":"/models/m.gguf"}]}`, `"b":{"models":[{"id":"/models/m.gguf"}]}`, "providers.b.models.0 (its id: it leads to this machine's home)"},
	} {
		r, err := bridged(t, `{"providers":{`+tc.providers+`}}`, "")
		if got := squeezed(t, r.Models); err != nil || got != `{"providers":{`+tc.want+`}}` || strings.Join(r.Left, " ") != tc.left || len(r.Changes) == 0 {
			t.Errorf("%s: %s %v, left %q, %+v", tc.what, got, err, r.Left, r.Changes)
		}
		if strings.Contains(fmt.Sprint(r), "CANARY") {
			t.Errorf("%s: %+v", tc.what, r)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct{ what, in, want string }{
		{"followed", `{"theme":"dark","defaultModel":"us.m-20250929-v1:0","compaction":{"reserveTokens":9},"quietStartup":"header"}`, `{"theme":"dark","defaultModel":"us.m-20250929-v1:0","compaction":{"reserveTokens":9},"quietStartup":"header"}`},
		{"paths of the home", `{"theme":"~/t.json","defaultTools":["/home/dev/x","read"],"enabledModels":["$HOME/a","m/*"]}`, `{"defaultTools":["read"],"enabledModels":["m/*"]}`},
		{"any path", `{"theme":"/home/developer/t","defaultTools":["./x","..\\x","a/../../x"],"enabledModels":["file:///x","x ${HOME}/y","see ~/y","%2Fhome%2Fdev/y","x/home/link/dev","home/developer"]}`, `{"defaultTools":[],"enabledModels":["home/developer"]}`},
		{"names of keys", `{"modelThinkingLevels":{"~/x":"high","/home/dev":"high","sk-live-AbCd1234EfGh5678IjKl":"high","acme/m":"high","acme/n":"k"},"compaction":{"modelOverrides":{"$HOME/x":{"reserveTokens":1},"m":{"reserveTokens":1}}}}`, `{"modelThinkingLevels":{"acme/m":"high"},"compaction":{"modelOverrides":{"m":{"reserveTokens":1}}}}`},
		{"not of pi's words", `{"steeringMode":"k","quietStartup":"k","lastChangelogVersion":"k","markdown":{"codeBlockIndent":"k","mermaid":"off"},"outputPad":"k","retry":{"maxRetries":"k"},"defaultThinkingLevel":"k"}`, `{"markdown":{"mermaid":"off"},"retry":{}}`},
		{"of this machine", `{"httpProxy":"http://u:p@proxy.test","sessionDir":"/x","shellPath":"/bin/zsh","externalEditor":"code","npmCommand":["mise"],"selfUpdateCommand":["x"],"shellCommandPrefix":"export K=k1234567","deviceId":"d","trackingId":"t"}`, `{}`},
		{"code and files of this machine", `{"packages":["npm:x","git:https://k1234567@git.test/x"],"skills":{"a":1},"prompts":["p"],"themes":["t"],"extensions":["e.ts","-builtin:mcp","+builtin:codemode"]}`, `{"extensions":["-builtin:mcp","+builtin:codemode"]}`},
		{"not pi's", `{"apiKey":"k","mine":{"x":"k1234567890"},"enabledExtensionPaths":["/home/dev/e"]}`, `{}`},
		{"a key by its name", `{"retry":{"token":"k","maxRetries":3}}`, `{"retry":{"maxRetries":3}}`},
	} {
		r, err := bridged(t, "", tc.in)
		if got := squeezed(t, r.Settings); err != nil || got != tc.want || r.NeedsToken {
			t.Errorf("%s: %s %v, want %s", tc.what, got, err, tc.want)
		}
	}
}

func TestNothing(t *testing.T) {
	r, err := bridged(t, "", "")
	if err != nil || r.Models != nil || r.Settings != nil || r.NeedsToken || len(r.Changes) > 0 {
		t.Errorf("%+v %v", r, err)
	}
}

// What can't be bridged is refused, and nothing of it is quoted.
func TestRefused(t *testing.T) {
	const key = "sk-CANARY0123456789"
	for what, files := range map[string][2]string{
		"no JSON":                           {`{"providers":{"p":{"apiKey":"` + key + `"`, ""},
		"a list":                            {`["` + key + `"]`, ""},
		"more than one":                     {`{}{"a":"` + key + `"}`, ""},
		"settings with a comment":           {"", "{} // " + key},
		"too deep":                          {strings.Repeat(`{"a":`, 80) + `"` + key + `"` + strings.Repeat("}", 80), ""},
		"the key in the address":            {`{"providers":{"p":{"apiKey":"` + key + `","baseUrl":"https://a.test/` + key + `/v1"}}}`, ""},
		"the key in the settings":           {`{"providers":{"p":{"apiKey":"CANARY12345"}}}`, `{"theme":"CANARY12345"}`},
		"no address":                        {`{"providers":{"p":{"baseUrl":"CANARYdefghijkl"}}}`, ""},
		"one without a scheme":              {`{"providers":{"openai":{"baseUrl":"my-gateway.CANARY:8443/v1","apiKey":"x"}}}`, ""},
		"one that is no text":               {`{"providers":{"p":{"baseUrl":["https://CANARY.test"]}}}`, ""},
		"a model's without a host":          {`{"providers":{"p":{"models":[{"id":"m","baseUrl":"https://"}]}}}`, ""},
		"a key with slashes":                {`{"providers":{"p":{"baseUrl":"https://gw.example/wJalrXUtnCANARYFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY/v1"}}}`, ""},
		"a hook":                            {`{"providers":{"p":{"baseUrl":"https://hooks.example/services/TCANARY01/B0A1B2C3D/q8ZrTn2vKx0LmPw4"}}}`, ""},
		"a parameter of a path":             {`{"providers":{"p":{"baseUrl":"https://a.test/v1;key=CANARY-short1"}}}`, ""},
		"the token's value":                 {`{"providers":{"p":{"name":"tok-live-51f0c7"}}}`, ""},
		"a key in an address's path":        {`{"providers":{"p":{"baseUrl":"https://gw.example.com/t/sk-live-CANARY1234EfGh5678IjKl/v1"}}}`, ""},
		"one that is escaped":               {`{"providers":{"p":{"baseUrl":"https://gw.example.com/t/sk-live-CAN%41RY1234EfGh5678IjKl/v1"}}}`, ""},
		"a key in an address's host":        {`{"providers":{"p":{"baseUrl":"https://CANARY1234EfGh5678IjKl.gw.example.com/v1"}}}`, ""},
		"a uuid in an address":              {`{"providers":{"p":{"baseUrl":"https://a.test/01234567-89ab-cdef-0123-456789abcdef"}}}`, ""},
		"a key that looks like a name":      {`{"providers":{"p":{"apiKey":"CANARYdefghijkl","name":"CANARYdefghijkl"}}}`, ""},
		"a short one":                       {`{"providers":{"p":{"apiKey":"CANA","models":[{"id":"m CANA x"}]}}}`, ""},
		"one that the settings have":        {`{"providers":{"p":{"apiKey":"CANARYdefghijkl"}}}`, `{"theme":"CANARYdefghijkl"}`},
		"one that is a provider's name":     {`{"providers":{"CANARYdefghijkl":{"apiKey":"CANARYdefghijkl"}}}`, ""},
		"one in the name of what is not in": {`{"providers":{"p":{"apiKey":"CANARYdefghijkl","CANARYdefghijkl":1}}}`, ""},
		"a header's key in a name":          {`{"providers":{"p":{"authHeader":true,"name":"CANARY12345","headers":{"X":"Token CANARY12345"}}}}`, ""},
	} {
		r, err := bridged(t, files[0], files[1])
		if err == nil || strings.Contains(err.Error(), "CANARY") || !strings.Contains(err.Error(), "--no-pi-config") {
			t.Errorf("%s: %v %s", what, err, r.Models)
		}
	}
}

// A key in every place where one can stand comes out of none, or the whole is refused:
// instead of each value, in a field of its own beside it, and as a name. The places are
// taken from files with all that pi knows, and the keys are random ones of every shape.
func TestCanaries(t *testing.T) {
	const models = `{"$schema":"s","providers":{"p":{"name":"n","baseUrl":"https://a.test/v1","apiKey":"k","api":"openai-completions","oauth":"radius","authHeader":true,"headers":{"User-Agent":"u/1","X":"y","Accept":"a/b"},
		"compat":{"thinkingFormat":"openai","supportsStore":true,"vllmPriority":1,"openRouterRouting":{"order":["o"],"sort":{"by":"price"},"max_price":{"prompt":"1"}},"chatTemplateKwargs":{"x":true,"thinking":"high","y":{"$var":"thinking.effort"}},"allowedFallbackModels":[{"provider":"p","model":"m","cost":{"input":1}}]},"unknown":{"x":["y"]},
		"models":[{"id":"m","name":"n","reasoning":true,"thinkingLevelMap":{"high":"high"},"input":["text"],"cost":{"input":1,"tiers":[{"input":1}]},"inputLimits":{"images":{"resize":{"maxWidth":1}}},"promptCache":{"short":1},"contextWindow":1,
		"samplingParams":{"user":"u","top_p":1,"seed":2,"store":true,"service_tier":"flex","reasoning":{"effort":"high","x":true},"provider":{"only":["o"]},"metadata":{"x":"y"}},"samplingParamsByThinkingLevel":{"high":{"x":"y"}},"headers":{"A":"b"},"baseUrl":"https://b.test"}],
		"modelOverrides":{"m":{"name":"n","headers":{"A":"b"},"samplingParams":{"x":"y"},"compat":{"x":"y"}}}}},"unknown":"x"}`
	const settings = `{"theme":"t","httpProxy":"http://p.test","packages":["x"],"shellCommandPrefix":"x","npmCommand":["x"],"unknown":{"x":"y"},"trackingId":"x","defaultModel":"m","defaultProvider":"p","enabledModels":["m"],"defaultTools":["t"],
		"modelThinkingLevels":{"m":"high"},"compaction":{"reserveTokens":1,"modelOverrides":{"m":{"reserveTokens":1}}},"retry":{"enabled":true,"maxRetries":1},"lastChangelogVersion":"1.6.0","markdown":{"codeBlockIndent":" "},"transport":"auto","extensions":["+builtin:mcp"]}`
	r := rand.New(rand.NewPCG(3, 5))
	makers := map[string]func(*rand.Rand) string{}
	for _, what := range []string{"base64 of 24", "base64 of 32", "base64 of 40", "base62 with sk-", "hex of 12", "base32 in groups"} {
		makers[what] = keys[what]
	}
	makers["a number of 18"] = func(r *rand.Rand) string { return letters(r, 18, "123456789") }
	for i, what := range slices.Sorted(maps.Keys(makers)) {
		for _, file := range []string{models, settings} {
			key := makers[what](r)
			var top any
			if err := json.Unmarshal([]byte(file), &top); err != nil {
				t.Fatal(err)
			}
			seen := 0
			places(top, "", key, i%4 == 0, func(at string) {
				seen++
				text, err := json.Marshal(top)
				if err != nil {
					t.Fatal(err)
				}
				m, s := string(text), `{"theme":"dark"}`
				if file == settings {
					m, s = `{"providers":{"p":{"apiKey":"k"}}}`, string(text)
				}
				// Once more where it is a provider's key too.
				for _, m := range []string{m, strings.Replace(m, `"apiKey":"k"`, `"apiKey":`+quoted(key), 1)} {
					r, err := bridged(t, m, s)
					if all := strings.ToLower(fmt.Sprint(string(r.Models), string(r.Settings), r.Changes, r.Left, err)); strings.Contains(all, strings.ToLower(key)) {
						t.Errorf("%s, %s, in %s: %s", what, key, at, all)
					}
				}
			})
			if seen < 90 {
				t.Errorf("%d places", seen)
			}
		}
	}
}

// places puts key into each place in turn, with forms in other forms too; an address gets it as a login, a query and so on.
func places(v any, at, key string, forms bool, visit func(at string)) {
	each := func(name string, old any, set func(any)) {
		at := strings.TrimPrefix(at+"."+name, ".")
		switch old.(type) {
		case map[string]any, []any:
			places(old, at, key, forms, visit)
		}
		values := []any{key}
		if forms {
			values = append(values, []any{key}, map[string]any{"x": key}, "!echo "+key)
		}
		if text, ok := old.(string); ok && strings.HasPrefix(text, "http") {
			values = []any{strings.Replace(text, "//", "//u:"+url.QueryEscape(key)+"@", 1), text + "?key=" + url.QueryEscape(key), text + "#" + key, text + "/" + key}
			if leftOver(key) >= enoughForHostKey {
				values = append(values, strings.Replace(text, "//", "//"+url.QueryEscape(key)+".", 1))
			}
		} else if n := strings.Trim(key, "0123456789"); n == "" {
			values = append(values, json.Number(key))
		}
		for _, value := range values {
			set(value)
			visit(at)
		}
		set(old)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, old := range v {
			each(name, old, func(n any) { v[name] = n })
		}
		for _, name := range []string{"aws_secret_access_key", "password_hash", "auth", "x", key} {
			for _, value := range []any{key, map[string]any{"value": key}, true, json.Number("1"), "high", "$AI_API_TOKEN"} {
				if (name == key) == (value == key) || v[name] != nil {
					continue
				}
				v[name] = value
				visit(at + " with " + name)
				delete(v, name)
			}
		}
	case []any:
		for i, old := range v {
			each(fmt.Sprint(i), old, func(n any) { v[i] = n })
		}
	}
}

// TestSchema: each setting that pi has is followed or left, by decision. The list is
// held to the real pi's by TestPi, on podman.
func TestSchema(t *testing.T) {
	for name := range followed {
		if left[name] != "" {
			t.Errorf("%s is followed and left", name)
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "settings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	ours := slices.Collect(maps.Keys(followed))
	for name := range left {
		ours = append(ours, name)
	}
	slices.Sort(ours)
	if pis := strings.Fields(string(text)); !reflect.DeepEqual(ours, pis) {
		t.Errorf("pi has other settings:\n%q\n%q", ours, pis)
	}
}

func squeezed(t *testing.T, text []byte) string {
	t.Helper()
	if text == nil {
		return ""
	}
	o, err := parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.Write(out)
	return b.String()
}

// A name of a field that may be a key is not said where the field is left out.
func TestNamesOfFields(t *testing.T) {
	r, err := bridged(t, `{"sk-live-CANARY1234EfGh5678IjKl":1,"providers":{"p":{"sk-live-CANARY1234EfGh5678IjKl":1,"headers":{"sk-live-CANARY1234EfGh5678IjKl":"x"},
		"models":[{"id":"m","thinkingLevelMap":{"sk-live-CANARY1234EfGh5678IjKl":"max","high":"high"}}],"compat":{"sk-live-CANARY1234EfGh5678IjKl":true}}}}`, `{"retry":{"sk-live-CANARY1234EfGh5678IjKl":3}}`)
	if all := fmt.Sprint(string(r.Models), string(r.Settings), r.Changes, err); err != nil || strings.Contains(all, "CANARY") || len(r.Changes) != 6 || !strings.Contains(all, `"high"`) {
		t.Errorf("%d changes: %s", len(r.Changes), all)
	}
}
