package cli

import (
	"bytes"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/policy"
)

func TestSuggest(t *testing.T) {
	claude, _ := harness.Lookup("claude")
	codex, _ := harness.Lookup("codex")
	gemini, _ := harness.Lookup("gemini")
	opencode, _ := harness.Lookup("opencode")
	pi := func(url string) func(policy.Input) []need {
		return func(policy.Input) []need { return []need{needOf("pi", url)} }
	}
	of := func(h harness.Harness, args ...string) func(policy.Input) []need {
		return func(in policy.Input) []need { return hostsOf(h, args, vars(in)) }
	}
	for _, tc := range []struct {
		what    string
		needs   func(policy.Input) []need
		net     string
		allow   []string
		private []string
		env     []string
		want    string // the end of the line, or "" for none
	}{
		{"missing", of(claude), policy.NetGated, nil, nil, nil, "claude has its model at api.anthropic.com, which the allowlist does not let through; add: --allow api.anthropic.com"},
		{"missing in a jail", of(claude), policy.NetUnix, []string{"example.com"}, nil, nil, "add: --allow api.anthropic.com"},
		{"there", of(claude), policy.NetGated, []string{"api.anthropic.com"}, nil, nil, ""},
		{"there by its domain", of(claude), policy.NetGated, []string{".anthropic.com"}, nil, nil, ""},
		{"there at another port", of(claude), policy.NetGated, []string{"api.anthropic.com:8443"}, nil, nil, "add: --allow api.anthropic.com"},
		{"one of two", of(codex), policy.NetGated, []string{"chatgpt.com"}, nil, nil, ""},
		{"the other one, by its key", of(codex), policy.NetGated, []string{"chatgpt.com"}, nil, []string{"OPENAI_API_KEY"}, "codex has its model at api.openai.com, which the allowlist does not let through; add: --allow api.openai.com"},
		{"by its key, that one", of(codex), policy.NetGated, []string{"api.openai.com"}, nil, []string{"CODEX_API_KEY"}, ""},
		{"where arguments say", of(codex, "-c", "model_provider=mine"), policy.NetGated, nil, nil, nil, ""},
		{"where a profile says", of(codex, "exec", "--profile=mine"), policy.NetGated, nil, nil, nil, ""},
		{"a prompt about it", of(codex, "exec", "fix model_provider"), policy.NetGated, nil, nil, nil, "add: --allow api.openai.com"},
		{"a command of its own", of(claude, "mcp", "list"), policy.NetGated, nil, nil, nil, ""},
		{"none of two", of(codex), policy.NetGated, nil, nil, nil, "add: --allow api.openai.com"},
		{"elsewhere", of(claude), policy.NetGated, []string{"api.anthropic.com"}, nil, []string{"ANTHROPIC_BASE_URL=https://llm.example.com:8443/x"}, "add: --allow llm.example.com:8443"},
		{"elsewhere, and there", of(claude), policy.NetGated, []string{"llm.example.com"}, nil, []string{"ANTHROPIC_BASE_URL=http://llm.example.com"}, ""},
		{"elsewhere, and nobody knows where", of(claude), policy.NetGated, nil, nil, []string{"ANTHROPIC_BASE_URL"}, ""},
		{"another's model", of(claude), policy.NetGated, nil, nil, []string{"CLAUDE_CODE_USE_BEDROCK=1"}, ""},
		{"another's model, whatever the key", of(claude), policy.NetGated, nil, nil, []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_VERTEX"}, ""},
		{"by no key", of(opencode), policy.NetGated, nil, nil, nil, "opencode has its model at opencode.ai, which the allowlist does not let through; add: --allow opencode.ai"},
		{"by its key", of(opencode), policy.NetGated, []string{"opencode.ai"}, nil, []string{"ANTHROPIC_API_KEY"}, "add: --allow api.anthropic.com"},
		{"by its key, there", of(opencode), policy.NetGated, []string{"api.anthropic.com"}, nil, []string{"ANTHROPIC_API_KEY"}, ""},
		{"one of two keys", of(opencode), policy.NetGated, []string{"api.openai.com"}, nil, []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}, ""},
		{"by another's key", of(opencode), policy.NetGated, []string{"opencode.ai"}, nil, []string{"OTHER_KEY"}, ""},
		{"by the second key", of(gemini), policy.NetGated, []string{"generativelanguage.googleapis.com"}, nil, []string{"GOOGLE_API_KEY"}, "add: --allow aiplatform.googleapis.com"},
		{"elsewhere, whatever the key", of(gemini), policy.NetGated, nil, nil, []string{"GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL=https://llm.example.com"}, "add: --allow llm.example.com"},
		{"a provider", pi("https://llm.example.com/v1"), policy.NetGated, nil, nil, nil, "pi has its model at llm.example.com, which the allowlist does not let through; add: --allow llm.example.com"},
		{"a private address", pi("http://10.1.2.3:8000/v1"), policy.NetGated, nil, nil, nil, "add: --allow-private 10.1.2.3:8000"},
		{"a private address that may not be", pi("http://10.1.2.3:8000/v1"), policy.NetGated, []string{"10.1.2.3:8000"}, nil, nil, "add: --allow-private 10.1.2.3:8000"},
		{"a private address, there", pi("http://10.1.2.3:8000/v1"), policy.NetGated, nil, []string{"10.1.2.3:8000"}, nil, ""},
		{"this machine", pi("http://localhost:11434/v1"), policy.NetGated, nil, nil, nil, "which is the sandbox itself inside; give it an address of this machine's, and --allow-private ADDRESS:11434"},
		{"this machine's address", pi("http://[::1]:11434/v1"), policy.NetGated, nil, nil, nil, "--allow-private ADDRESS:11434"},
		{"this machine by any address", pi("http://0.0.0.0:11434/v1"), policy.NetGated, nil, nil, nil, "--allow-private ADDRESS:11434"},
		{"a single label", pi("http://gpu-box:8000/v1"), policy.NetGated, nil, nil, nil, "pi has its model at gpu-box:8000, which can't be let through (it is a single label, which names no host on the network); give it a full name or an address, where that one is from"},
		{"an address of a carrier's", pi("http://100.64.1.1:8000/v1"), policy.NetGated, nil, nil, nil, "add: --allow-private 100.64.1.1:8000"},
		{"and it may not be", pi("http://100.64.1.1/v1"), policy.NetGated, []string{"100.64.1.1"}, nil, nil, "add: --allow-private 100.64.1.1"},
		{"a link-local address", pi("http://169.254.9.9/v1"), policy.NetGated, nil, nil, nil, "add: --allow-private 169.254.9.9"},
		{"a local address of IPv6", pi("http://[fd00::7]:8000/v1"), policy.NetGated, nil, nil, nil, "add: --allow-private [fd00::7]:8000"},
		{"a public one", pi("https://[2001:4860:4860::8888]/v1"), policy.NetGated, nil, nil, nil, "add: --allow 2001:4860:4860::8888"},
		{"an internationalised name", pi("https://llm.b\u00fccher.example/v1"), policy.NetGated, nil, nil, nil, "pi has its model at llm.xn--bcher-kva.example, which the allowlist does not let through; add: --allow llm.xn--bcher-kva.example"},
		{"an underscore", pi("https://my_llm.corp.example.com:8443/v1"), policy.NetGated, nil, nil, nil, "pi has its model at my_llm.corp.example.com:8443, which the allowlist does not let through; add: --allow .corp.example.com:8443"},
		{"an underscore in the domain", pi("https://llm.my_corp.example.com/v1"), policy.NetGated, nil, nil, nil, "which can't be let through ('_' cannot be in a host name); give it a full name or an address, where that one is from"},
		{"upper case and a dot", pi("https://LLM.Example.COM./v1"), policy.NetGated, nil, nil, nil, "add: --allow llm.example.com"},
		{"no port", pi("https://llm.example.com:99999/v1"), policy.NetGated, nil, nil, nil, ""},
		{"multicast", pi("https://224.0.0.9/v1"), policy.NetGated, nil, nil, nil, "which can't be let through (no connection can go there); give it a full name or an address, where that one is from"},
		{"no address", pi("nonsense"), policy.NetGated, nil, nil, nil, ""},
		{"no network", of(claude), policy.NetNone, nil, nil, nil, ""},
		{"all of the network", of(claude), policy.NetHost, nil, nil, nil, ""},
		{"a command", of(harness.Generic), policy.NetGated, nil, nil, nil, ""},
	} {
		var out bytes.Buffer
		a := &app{}
		a.Err = &out
		p := policy.Policy{Net: policy.Net{Mode: tc.net}}
		for list, texts := range map[*[]policy.Entry][]string{&p.Net.Allow: tc.allow, &p.Net.AllowPrivate: tc.private} {
			for _, text := range texts {
				e, err := policy.ParseEntry(text)
				if err != nil {
					t.Fatal(err)
				}
				*list = append(*list, e)
			}
		}
		a.suggest(p, tc.needs(policy.Input{Env: tc.env}))
		if got := strings.TrimSpace(out.String()); (got == "") != (tc.want == "") || !strings.HasSuffix(got, tc.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
		// Pasted, it is no more needed.
		if _, said, found := strings.Cut(out.String(), "; add: "); found {
			flag, entry, _ := strings.Cut(strings.TrimSpace(said), " ")
			e, err := policy.ParseEntry(entry)
			if err != nil {
				t.Fatalf("%s: %v", tc.what, err)
			}
			if flag == "--allow" {
				p.Net.Allow = append(p.Net.Allow, e)
			} else {
				p.Net.AllowPrivate = append(p.Net.AllowPrivate, e)
			}
			out.Reset()
			if a.suggest(p, tc.needs(policy.Input{Env: tc.env})); out.Len() > 0 {
				t.Errorf("%s, pasted: %s", tc.what, out.String())
			}
		}
	}
}
