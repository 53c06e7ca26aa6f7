package pibridge

import (
	"encoding/json"
	"fmt"
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
	in := Input{Home: "/home/dev", Token: token, Value: "tok-live-51f0c7", Passed: func(name string) bool { return name == "ORG" }}
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
		{"no address", `"baseUrl":"k1234567890"`, ``},
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
		{"addresses with long names", `"baseUrl":"https://ai-gateway-production-europe-west4.example.com:8443/openai/deployments/gpt-4o-2024-08-06"`, `"baseUrl":"https://ai-gateway-production-europe-west4.example.com:8443/openai/deployments/gpt-4o-2024-08-06"`},
		{"a short key inside another word", `"apiKey":"abcd","name":"abcdef"`, `"apiKey":"$AI_API_TOKEN","name":"abcdef"`},
		{"a field that pi has not", `"note":"x","secret":"y"`, ``},
		{"a model", `"models":[{"id":"m-4.5-20250929","reasoning":true,"cost":{"input":3,"output":1.50},"thinkingLevelMap":{"xhigh":"max","off":null}}]`,
			`"models":[{"id":"m-4.5-20250929","reasoning":true,"cost":{"input":3,"output":1.50},"thinkingLevelMap":{"xhigh":"max","off":null}}]`},
		{"a model's header and address", `"models":[{"id":"m","headers":{"X":"k1234567890"},"baseUrl":"https://k1234567@a.test"}]`, `"models":[{"id":"m","baseUrl":"https://a.test"}]`},
		{"an override", `"modelOverrides":{"m":{"name":"N","headers":{"X":"!run"}}}`, `"modelOverrides":{"m":{"name":"N"}}`},
		{"what is sent along", `"models":[{"id":"m","samplingParams":{"top_p":0.9,"service_tier":"flex","api_key":"abc","user":"sk-0123456789abcdef"}}]`,
			`"models":[{"id":"m","samplingParams":{"top_p":0.9,"service_tier":"flex"}}]`},
		{"compat", `"compat":{"thinkingTokenBudgetField":"thinking_budget","maxTokensField":"max_tokens","openRouterRouting":{"order":["google-vertex/us-east5"]},"chatTemplateKwargs":{"token":"abc"}}`,
			`"compat":{"thinkingTokenBudgetField":"thinking_budget","maxTokensField":"max_tokens","openRouterRouting":{"order":["google-vertex/us-east5"]},"chatTemplateKwargs":{}}`},
	} {
		r, err := bridged(t, `{"providers":{"p":{`+tc.field+`}}}`, "")
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		want := "{\"providers\":{\"p\":{" + tc.want + "}}}"
		if got := squeezed(t, r.Models); got != want {
			t.Errorf("%s: %s, want %s", tc.what, got, want)
		}
		if r.NeedsToken != strings.Contains(tc.want, "AI_API_TOKEN") {
			t.Errorf("%s: the token is needed: %t", tc.what, r.NeedsToken)
		}
		if (squeezed(t, r.Models) != "{\"providers\":{\"p\":{"+tc.field+"}}}") != (len(r.Changes) > 0) {
			t.Errorf("%s: %+v", tc.what, r.Changes)
		}
	}
	// As pi reads the file; the order stays, as pi takes the first of its providers.
	r, err := bridged(t, "\ufeff// mine\n{\"$schema\":\"s\",\"providers\":{\"z\":{\"name\":\"// no\\\" comment\",},\n\"a\":{}, // last\n},}", "")
	if got := squeezed(t, r.Models); err != nil || got != `{"providers":{"z":{"name":"// no\" comment"},"a":{}}}` {
		t.Errorf("%s %v", got, err)
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct{ what, in, want string }{
		{"followed", `{"theme":"dark","defaultModel":"us.m-20250929-v1:0","compaction":{"reserveTokens":9},"quietStartup":"header"}`, `{"theme":"dark","defaultModel":"us.m-20250929-v1:0","compaction":{"reserveTokens":9},"quietStartup":"header"}`},
		{"paths of the home", `{"theme":"~/t.json","defaultTools":["/home/dev/x","read"],"enabledModels":["$HOME/a","m/*"]}`, `{"defaultTools":["read"],"enabledModels":["m/*"]}`},
		{"a path beside the home", `{"theme":"/home/developer/t"}`, `{"theme":"/home/developer/t"}`},
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
		"the key as a provider's name":      {`{"providers":{"` + key + `":{"apiKey":"` + key + `"}}}`, ""},
		"the key in the address":            {`{"providers":{"p":{"apiKey":"` + key + `","baseUrl":"https://a.test/` + key + `/v1"}}}`, ""},
		"the key in a model's name":         {`{"providers":{"p":{"apiKey":"` + key + `","models":[{"id":"m ` + key + `"}]}}}`, ""},
		"the key in the settings":           {`{"providers":{"p":{"apiKey":"CANARY12345"}}}`, `{"theme":"CANARY12345"}`},
		"the token's value":                 {`{"providers":{"p":{"name":"tok-live-51f0c7"}}}`, ""},
		"a key in an address's path":        {`{"providers":{"p":{"baseUrl":"https://gw.example.com/t/sk-live-CANARY1234EfGh5678IjKl/v1"}}}`, ""},
		"one that is escaped":               {`{"providers":{"p":{"baseUrl":"https://gw.example.com/t/sk-live-CAN%41RY1234EfGh5678IjKl/v1"}}}`, ""},
		"a key in an address's host":        {`{"providers":{"p":{"baseUrl":"https://CANARY1234EfGh5678IjKl.gw.example.com/v1"}}}`, ""},
		"a uuid in an address":              {`{"providers":{"p":{"baseUrl":"https://a.test/01234567-89ab-cdef-0123-456789abcdef"}}}`, ""},
		"a key as a provider's name":        {`{"providers":{"sk-live-CANARY1234EfGh5678IjKl":{"api":"a"}}}`, ""},
		"a key as a model's id":             {`{"providers":{"p":{"models":[{"id":"sk-live-CANARY1234EfGh5678IjKl"}]}}}`, ""},
		"a key as an override's name":       {`{"providers":{"p":{"modelOverrides":{"sk-live-CANARY1234EfGh5678IjKl":{}}}}}`, ""},
		"a key that looks like a name":      {`{"providers":{"p":{"apiKey":"CANARYdefghijkl","name":"CANARYdefghijkl"}}}`, ""},
		"a short one":                       {`{"providers":{"p":{"apiKey":"CANA","models":[{"id":"m CANA x"}]}}}`, ""},
		"one with a dollar":                 {`{"providers":{"p":{"apiKey":"CANARY$$word","name":"CANARY$$word"}}}`, ""},
		"one that the settings have":        {`{"providers":{"p":{"apiKey":"CANARYdefghijkl"}}}`, `{"theme":"CANARYdefghijkl"}`},
		"one that is a provider's name":     {`{"providers":{"CANARYdefghijkl":{"apiKey":"CANARYdefghijkl"}}}`, ""},
		"one in the name of what is not in": {`{"providers":{"p":{"apiKey":"CANARYdefghijkl","CANARYdefghijkl":1}}}`, ""},
		"a header's key in a name":          {`{"providers":{"p":{"name":"CANARY12345","headers":{"X":"Token CANARY12345"}}}}`, ""},
	} {
		r, err := bridged(t, files[0], files[1])
		if err == nil || strings.Contains(err.Error(), "CANARY") || !strings.Contains(err.Error(), "--no-pi-config") {
			t.Errorf("%s: %v %s", what, err, r.Models)
		}
	}
}

// A canary in every place that can hold a text: it comes out of none, or the whole is
// refused. The places are taken from the files themselves.
func TestCanaries(t *testing.T) {
	const models = `{"$schema":"s","providers":{"p":{"name":"n","baseUrl":"https://a.test/v1","apiKey":"k","api":"a","oauth":"radius","headers":{"User-Agent":"u","X":"y"},
		"compat":{"thinkingFormat":"openai","openRouterRouting":{"order":["o"]},"chatTemplateKwargs":{"x":"y"}},"unknown":{"x":["y"]},
		"models":[{"id":"m","samplingParams":{"user":"u"},"samplingParamsByThinkingLevel":{"high":{"x":"y"}},"headers":{"A":"b"},"baseUrl":"https://b.test"}],
		"modelOverrides":{"m":{"headers":{"A":"b"},"compat":{"x":"y"}}}}},"unknown":"x"}`
	const settings = `{"theme":"t","httpProxy":"http://p.test","packages":["x"],"shellCommandPrefix":"x","npmCommand":["x"],"unknown":{"x":"y"},"trackingId":"x"}`
	for _, key := range []string{"sk-CANARY0123456789abcdef", "CANARY_KEY_" + strings.Repeat("x", 30)} {
		seen := 0
		for _, file := range []string{models, settings} {
			var top any
			if err := json.Unmarshal([]byte(file), &top); err != nil {
				t.Fatal(err)
			}
			plant(top, "", key, func(at string) {
				seen++
				text, err := json.Marshal(top)
				if err != nil {
					t.Fatal(err)
				}
				m, s := string(text), ""
				if file == settings {
					m, s = "", string(text)
				}
				r, err := bridged(t, m, s)
				all := fmt.Sprint(string(r.Models), string(r.Settings), r.Changes, err)
				if strings.Contains(all, "CANARY") {
					t.Errorf("%s in %s: %s", key, at, all)
				}
				// Where it is a provider's key too, it is nowhere.
				m = strings.Replace(m, `"apiKey":"k"`, `"apiKey":"`+key+`"`, 1)
				if m == "" {
					m = `{"providers":{"p":{"apiKey":"` + key + `"}}}`
				}
				r, err = bridged(t, m, s)
				if all := fmt.Sprint(string(r.Models), string(r.Settings), r.Changes, err); strings.Contains(all, "CANARY") {
					t.Errorf("the provider's %s in %s: %s", key, at, all)
				}
			})
		}
		if seen < 30 {
			t.Errorf("%d places", seen)
		}
	}
}

// plant puts key into each text in turn; an address gets it as a login and a query.
func plant(v any, at, key string, visit func(at string)) {
	each := func(name string, old any, set func(any)) {
		at := strings.TrimPrefix(at+"."+name, ".")
		text, ok := old.(string)
		if !ok {
			plant(old, at, key, visit)
			return
		}
		values := []string{key}
		if strings.HasPrefix(text, "http") {
			values = []string{strings.Replace(text, "//", "//u:"+key+"@", 1), text + "?key=" + key, text + "#" + key, text + "/" + key, strings.Replace(text, "//", "//"+key+".", 1)}
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
	case []any:
		for i, old := range v {
			each(fmt.Sprint(i), old, func(n any) { v[i] = n })
		}
	}
}

// TestSchema: each setting that pi has is followed or left, by decision. The list is
// held to the real pi's by TestPi, on podman.
func TestSchema(t *testing.T) {
	for _, name := range followed {
		if left[name] != "" {
			t.Errorf("%s is followed and left", name)
		}
	}
	if !slices.IsSorted(followed) {
		t.Error("sort the settings")
	}
	text, err := os.ReadFile(filepath.Join("testdata", "settings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	ours = append(ours, followed...)
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
		"thinkingLevelMap":{"sk-live-CANARY1234EfGh5678IjKl":"max","high":"high"},"compat":{"sk-live-CANARY1234EfGh5678IjKl":true}}}}`, `{"retry":{"sk-live-CANARY1234EfGh5678IjKl":3}}`)
	if all := fmt.Sprint(string(r.Models), string(r.Settings), r.Changes, err); err != nil || strings.Contains(all, "CANARY") || len(r.Changes) != 6 || !strings.Contains(all, `"high"`) {
		t.Errorf("%d changes: %s", len(r.Changes), all)
	}
}
