package pibridge

import (
	"slices"
	"strings"
	"testing"
)

// TestAddress has where the first request goes, as the real pi 1.6.0 took it.
func TestAddress(t *testing.T) {
	const models = `{"providers":{
		"acme":{"baseUrl":"https://a.example/v1","api":"openai-completions","apiKey":"$K","models":[{"id":"m1"},{"id":"m2","baseUrl":"https://b.example/v1"},{"id":"org/big:v1"}]},
		"other":{"api":"openai-completions","apiKey":"$K","models":[{"id":"o1","baseUrl":"https://o.example"}]},
		"openai":{"baseUrl":"https://proxy.example/openai"}}}`
	const keyless = `{"providers":{
		"first":{"baseUrl":"https://f.example/v1","api":"openai-completions","models":[{"id":"f1"}]},
		"acme":{"baseUrl":"https://a.example/v1","api":"openai-completions","apiKey":"$K","models":[{"id":"m1"}]}}}`
	const chosen = `{"defaultProvider":"acme","defaultModel":"m2"}`
	const claude = `{"defaultProvider":"anthropic","defaultModel":"claude-opus-5-5"}`
	has := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	for _, tc := range []struct {
		what, models, settings string
		start                  Start
		want                   string
	}{
		{"nothing at all", "", "", Start{}, ""},
		{"the first provider", models, "", Start{}, "https://a.example/v1"},
		{"the provider of the settings", models, `{"defaultProvider":"acme","defaultModel":"m1"}`, Start{}, "https://a.example/v1"},
		{"a model at an address of its own", models, chosen, Start{}, "https://b.example/v1"},
		{"a provider alone", models, `{"defaultProvider":"other"}`, Start{}, "https://a.example/v1"},
		{"a model alone", models, `{"defaultModel":"o1"}`, Start{}, "https://a.example/v1"},
		{"a model that it has not", models, `{"defaultProvider":"other","defaultModel":"m1"}`, Start{}, "https://a.example/v1"},
		{"one of its own", "", claude, Start{Has: has("ANTHROPIC_API_KEY")}, "https://api.anthropic.com"},
		{"one of its own without a key", "", claude, Start{}, ""},
		{"one of its own without a key, and another", models, claude, Start{}, "https://a.example/v1"},
		{"one of its own without a key, and another of them", models, claude, Start{Has: has("XAI_API_KEY")}, "https://api.x.ai"},
		{"one of its own, with a file of keys", models, claude, Start{LoggedIn: true}, "https://api.anthropic.com"},
		{"none, with a file of keys", models, "", Start{LoggedIn: true}, ""},
		{"one of its own, without a model", "", `{"defaultProvider":"zai"}`, Start{Has: has("ZAI_API_KEY", "XAI_API_KEY")}, "https://api.x.ai"},
		{"a login of its own", "", `{"defaultProvider":"openai-codex","defaultModel":"gpt-6.2-sol"}`, Start{LoggedIn: true}, "https://chatgpt.com"},
		{"a login of its own that it has not", "", `{"defaultProvider":"openai-codex","defaultModel":"gpt-6.2-sol"}`, Start{}, ""},
		{"one of its own, led elsewhere", models, `{"defaultProvider":"openai","defaultModel":"gpt-6.2-sol"}`, Start{Has: has("OPENAI_API_KEY")}, "https://proxy.example/openai"},
		{"one of its own, with a key and a model elsewhere", `{"providers":{"xai":{"apiKey":"$K","api":"openai-completions","models":[{"id":"x","baseUrl":"https://x.example"}]}}}`, "", Start{}, "https://api.x.ai"},
		{"one whose host depends", models, `{"defaultProvider":"amazon-bedrock","defaultModel":"us.anthropic.claude-opus-5-5"}`, Start{Has: has("AWS_PROFILE")}, ""},
		{"one that nobody knows", models, `{"defaultProvider":"gone","defaultModel":"x"}`, Start{}, "https://a.example/v1"},
		{"the first with a key", keyless, "", Start{}, "https://a.example/v1"},
		{"the first with a key, though another is said", keyless, `{"defaultProvider":"first","defaultModel":"f1"}`, Start{}, "https://a.example/v1"},
		{"the first with a key, though another is enabled", keyless, `{"enabledModels":["first/f1","f*"]}`, Start{}, "https://a.example/v1"},
		{"the project's", models, chosen, Start{Project: []byte(`{"defaultModel":"m1"}`)}, "https://a.example/v1"},
		{"the project's own models", models, chosen, Start{Project: []byte(`{"enabledModels":["other/*"]}`)}, "https://o.example"},
		{"the project's, of something else", models, chosen, Start{Project: []byte(`{"theme":"dark"}`)}, "https://b.example/v1"},
		{"the project's, broken", models, chosen, Start{Project: []byte(`{"defaultModel":`)}, "https://b.example/v1"},
		{"a session", models, chosen, Start{Resumes: true}, ""},
		{"a session, with --model", models, chosen, Start{Resumes: true, Model: "m1"}, "https://a.example/v1"},
		// Arguments count for more.
		{"--model with a provider", models, chosen, Start{Model: "other/o1"}, "https://o.example"},
		{"--model with one of pi's own", models, chosen, Start{Model: "anthropic/claude-opus-5-5"}, "https://api.anthropic.com"},
		{"--model with a level", models, chosen, Start{Model: "Acme/m1:high"}, "https://a.example/v1"},
		{"--model alone", models, chosen, Start{Model: "o1"}, "https://o.example"},
		{"--model with a colon and a slash", models, chosen, Start{Model: "org/big:v1"}, "https://a.example/v1"},
		{"a part of --model", models, chosen, Start{Model: "M2:low"}, "https://b.example/v1"},
		{"--provider and --model", models, chosen, Start{Provider: "groq", Model: "openai/gpt-oss-120b"}, "https://api.groq.com"},
		{"--model of pi's catalogue", models, chosen, Start{Model: "sonnet"}, ""},
		{"--provider that nobody knows", models, chosen, Start{Provider: "x", Model: "m1"}, ""},
		{"--models with the default one", models, chosen, Start{Models: "other/o1, m*:low"}, "https://b.example/v1"},
		{"--models without", models, chosen, Start{Models: "other/*:low,m1"}, "https://o.example"},
		{"enabled models without the default one", models, `{"defaultProvider":"acme","defaultModel":"m2","enabledModels":["acme/m1:low"]}`, Start{}, "https://a.example/v1"},
		{"enabled models with it", models, `{"defaultProvider":"acme","defaultModel":"m2","enabledModels":["m1","acme/m2:low"]}`, Start{}, "https://b.example/v1"},
		{"enabled models by a part", models, `{"defaultProvider":"acme","defaultModel":"m2","enabledModels":["o1","M2"]}`, Start{}, "https://b.example/v1"},
		{"enabled models by a star", models, `{"enabledModels":["*1"]}`, Start{}, "https://a.example/v1"},
		{"enabled models that may be of its own", models, `{"enabledModels":["son*","m1"]}`, Start{Has: has("XAI_API_KEY")}, ""},
		{"enabled models of one without a key", models, `{"enabledModels":["anthropic/claude-opus-5-5","o1"]}`, Start{}, "https://o.example"},
		{"enabled models that there are not", models, `{"defaultProvider":"other","defaultModel":"o1","enabledModels":["gone"]}`, Start{}, "https://o.example"},
		// Without a configuration, variables tell.
		{"a key", "", "", Start{Has: has("GROQ_API_KEY")}, "https://api.groq.com"},
		{"two keys", "", "", Start{Has: has("GROQ_API_KEY", "OPENAI_API_KEY")}, "https://api.openai.com"},
		{"a key beside a configuration", `{"providers":{"acme":{"baseUrl":"https://a.example"}}}`, "", Start{Has: has("XAI_API_KEY")}, "https://api.x.ai"},
		{"a key in the configuration", `{"providers":{"acme":{"baseUrl":"https://a.example"},"xai":{"apiKey":"$K"}}}`, "", Start{}, "https://api.x.ai"},
		{"another key", "", "", Start{Has: has("OTHER")}, ""},
	} {
		in := Input{Token: "K"}
		if tc.models != "" {
			in.Models = []byte(tc.models)
		}
		if tc.settings != "" {
			in.Settings = []byte(tc.settings)
		}
		r, err := Bridge(in)
		if err != nil {
			t.Fatalf("%s: %v", tc.what, err)
		}
		if got := r.Address(tc.start); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}

// TestProviders: each of pi's own is once in the list.
func TestProviders(t *testing.T) {
	seen := map[string]bool{}
	hosts := 0
	for _, p := range ownProviders() {
		if seen[p.name] || p.host != strings.ToLower(p.host) || strings.ContainsAny(p.host, ":/{") {
			t.Errorf("%+v", p)
		}
		if seen[p.name] = true; p.host != "" {
			hosts++
		}
	}
	if hosts < 35 {
		t.Errorf("only %d have a host", hosts)
	}
}
