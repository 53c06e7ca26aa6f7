package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// piHas gives the user of a stage pi's two files; "" is none.
func (s *stage) piHas(models, settings string) {
	for name, text := range map[string]string{"models.json": models, "settings.json": settings} {
		if text != "" {
			s.write(filepath.Join(s.env["HOME"], ".pi/agent", name), text)
		}
	}
}

const needsToken = `{"providers":{"acme":{"baseUrl":"https://llm.example.com/v1","api":"openai-completions","apiKey":"x","models":[{"id":"m"}]}}}`

// The token is passed to what refers to it, and not because it is there.
func TestPiToken(t *testing.T) {
	for what, tc := range map[string]struct {
		models string
		args   []string
		passed string
	}{
		"named":               {needsToken, []string{"pi"}, "AI_API_TOKEN"},
		"in a header":         {`{"providers":{"acme":{"headers":{"X-Key":"$AI_API_TOKEN"}}}}`, []string{"pi"}, "AI_API_TOKEN"},
		"another":             {needsToken, []string{"--pi-token-env", "OTHER", "pi"}, "OTHER"},
		"not named":           {`{"providers":{"acme":{"baseUrl":"https://llm.example.com/v1"}}}`, []string{"pi"}, ""},
		"no configuration":    {"", []string{"pi"}, ""},
		"not brought in":      {needsToken, []string{"--no-pi-config", "pi"}, ""},
		"for another command": {needsToken, []string{"--", "pi"}, ""},
	} {
		s := newStage(t)
		s.env["AI_API_TOKEN"], s.env["OTHER"] = "token-0123456789", "other-0123456789"
		s.piHas(tc.models, "")
		p := s.policy(tc.args...)
		for _, name := range []string{"AI_API_TOKEN", "OTHER"} {
			passed := slices.ContainsFunc(p.Env, func(e policy.Env) bool { return e.Name == name })
			if passed != (name == tc.passed) {
				t.Errorf("%s: %s is passed: %t", what, name, passed)
			}
		}
	}
}

// How much to reason, as the policy has it and the command line says it.
func TestThinking(t *testing.T) {
	for _, tc := range []struct {
		args  string
		as    string
		fixed bool // in pi's settings
		said  string
	}{
		{"pi", "--thinking xhigh", true, ""},
		{"--thinking low pi", "--thinking low", true, ""},
		{"--thinking low pi --thinking high", "", true, "--thinking has no effect: the agent's own arguments"},
		{"--thinking host pi", "", false, ""},
		{"--no-pi-config pi", "", false, ""},
		{"--no-pi-config --thinking low pi", "", false, "--thinking has no effect: --no-pi-config leaves it to pi"},
		{"--no-pi-config --thinking host pi", "", false, ""},
		{"--thinking low -- true", "", false, "--thinking has no effect: it is for an agent, and none is started"},
		{"-- true", "", false, ""},
		{"--harness-packages claude,gemini --thinking high claude", "--effort high", false, ""},
		{"--harness-packages gemini --thinking high gemini", "", false, "--thinking has no effect: gemini has no flag for it"},
		{"--harness-packages gemini gemini", "", false, ""},
		{"--harness-packages claude --env CLAUDE_CODE_EFFORT_LEVEL=low claude", "", false, ""},
		{"--harness-packages claude --thinking high claude mcp list", "", false, "--thinking has no effect: the agent's own arguments"},
	} {
		s := newStage(t)
		s.piHas(needsToken, `{"defaultThinkingLevel":"minimal"}`)
		s.env["AI_API_TOKEN"] = "token-0123456789"
		p := s.policy(strings.Fields(tc.args)...)
		as := ""
		if p.Thinking != nil {
			as, _, _ = strings.Cut(p.Thinking.As, " --settings")
		}
		if as != tc.as || (as != "") != strings.Contains(strings.Join(p.Command, " "), " "+tc.as) && tc.as != "" {
			t.Errorf("%s: %q by %q", tc.args, as, p.Command)
		}
		fixed := slices.ContainsFunc(p.Home.Managed, func(m policy.HomeManaged) bool { return len(m.Fixed) == 2 })
		if fixed != tc.fixed || strings.Contains(s.err.String(), "no effect") != (tc.said != "") || !strings.Contains(s.err.String(), tc.said) {
			t.Errorf("%s: in the settings: %t, said: %s", tc.args, fixed, s.err.String())
		}
	}
}

// The host is that of the model that pi starts with: by the arguments, the settings, or a
// key that it is given.
func TestPiHost(t *testing.T) {
	const models = `{"providers":{"acme":{"baseUrl":"https://a.example/v1","apiKey":"x","models":[{"id":"m1"},{"id":"m2","baseUrl":"https://b.example/v1"}]}}}`
	const settings = `{"defaultProvider":"acme","defaultModel":"m2"}`
	for _, tc := range []struct{ args, host string }{
		{"pi", "b.example"},
		{"--allow a.example pi", "b.example"},
		{"--allow b.example pi", ""},
		{"pi --model m1", "a.example"},
		{"pi --model anthropic/claude-opus-5-5:high", "api.anthropic.com"},
		{"pi --provider groq --model x", "api.groq.com"},
		{"pi --models m1", "a.example"},
		{"pi -p hi -- --model m1", "b.example"},
		{"pi list", ""},
		{"--no-pi-config pi", ""},
		{"--no-pi-config pi --model zai/glm-5.3", "api.z.ai"},
		{"--no-pi-config --env XAI_API_KEY pi", "api.x.ai"},
		{"pi --continue", ""},
		{"pi -r", ""},
		{"pi --session 3f2a", ""},
		{"pi --session-id 3f2a", "b.example"},
		{"pi --continue --model m1", "a.example"},
		{"--no-pi-config --env XAI_API_KEY --allow .x.ai pi", ""},
	} {
		s := newStage(t)
		s.piHas(models, settings)
		s.env["AI_API_TOKEN"], s.env["XAI_API_KEY"] = "token-0123456789", "key-0123456789"
		s.policy(strings.Fields(tc.args)...)
		said, want := s.err.String(), "pi has its model at "+tc.host+", which the allowlist does not let through; add: --allow "+tc.host+"\n"
		if tc.host == "" && strings.Contains(said, "has its model") || tc.host != "" && !strings.Contains(said, want) {
			t.Errorf("%s: want %q: %s", tc.args, tc.host, said)
		}
	}
}

// A provider without its key inside is not the one, though the settings say so. The key
// may be pi's token, or in its file, which is shown but not read; a project's settings
// count for more, where they can be read.
func TestPiHostIsOfAKey(t *testing.T) {
	const models = `{"providers":{"acme":{"baseUrl":"https://a.example/v1","apiKey":"x","models":[{"id":"m1"}]}}}`
	const settings = `{"defaultProvider":"openai","defaultModel":"gpt-6.2-sol"}`
	for _, tc := range []struct{ args, project, host string }{
		{"pi", "", "a.example"},
		{"--pi-token-env OPENAI_API_KEY pi", "", "api.openai.com"},
		{"--credentials host pi", "", "api.openai.com"},
		{"--credentials host pi", `{"defaultModel":""}`, ""},
		{"--runtime local --bind-harness-home --env XAI_API_KEY pi", "", ""},
		{"pi", `{"defaultProvider":"acme","defaultModel":"m1"}`, "a.example"},
		{"--env XAI_API_KEY pi", `{"defaultProvider":"acme","defaultModel":"m1"}`, "a.example"},
		{"--env XAI_API_KEY pi", "", "api.x.ai"},
		{"--env XAI_API_KEY --no-cwd pi", `{"defaultProvider":"acme","defaultModel":"m1"}`, "api.x.ai"},
		{"pi", "a link", ""},
		{"pi --model m1", "a link", "a.example"},
	} {
		s := newStage(t)
		s.piHas(models, settings)
		s.write(filepath.Join(s.env["HOME"], ".pi/agent/auth.json"), "{}")
		installed := filepath.Join(s.env["PATH"], "pi")
		s.write(installed, "#!/bin/sh\n")
		if err := os.Chmod(installed, 0o755); err != nil {
			t.Fatal(err)
		}
		if at := filepath.Join(s.project, ".pi/settings.json"); tc.project == "a link" {
			s.write(at+".to", "{}")
			if err := os.Symlink(at+".to", at); err != nil {
				t.Fatal(err)
			}
		} else if tc.project != "" {
			s.write(at, tc.project)
		}
		for _, name := range []string{"AI_API_TOKEN", "XAI_API_KEY", "OPENAI_API_KEY"} {
			s.env[name] = "key-0123456789"
		}
		s.policy(strings.Fields(tc.args)...)
		said, want := s.err.String(), "pi has its model at "+tc.host+", which"
		if tc.host == "" && strings.Contains(said, "has its model") || tc.host != "" && !strings.Contains(said, want) {
			t.Errorf("%s, %s: want %q: %s", tc.args, tc.project, tc.host, said)
		}
	}
}

// What --harness-extra shows is called so.
func TestExtraIsNamed(t *testing.T) {
	s := newStage(t)
	prompt := filepath.Join(s.env["HOME"], "own/ask.md")
	s.write(prompt, "ask\n")
	whys := func(args ...string) (out []string) {
		for _, m := range s.policy(args...).Mounts {
			if m.Source == prompt {
				out = append(out, m.Why)
			}
		}
		return out
	}
	if got := whys("--harness-extra", prompt, "pi"); len(got) != 1 || !strings.HasPrefix(got[0], "--harness-extra, a file: ") {
		t.Errorf("%q", got)
	}
	if got := whys("--mount", prompt+":/ask.md", "pi"); len(got) != 1 || !strings.HasPrefix(got[0], "--mount, a file: ") {
		t.Errorf("%q", got)
	}
}
