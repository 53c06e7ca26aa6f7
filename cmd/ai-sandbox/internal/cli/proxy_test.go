package cli

import (
	"slices"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

func TestProxySecrets(t *testing.T) {
	for value, want := range map[string][]string{
		"":                                     nil,
		"http://proxy.example.com:3128":        nil,
		"http://me@proxy.example.com":          nil,
		"http://me:@proxy.example.com":         nil,
		"http://proxy.example.com/me:hunter2@": nil,
		"http://me:hunter2long@proxy.example.com:3128/":     {"hunter2long"},
		"me:hunter2long@proxy.example.com:3128":             {"hunter2long"},
		"socks5://me:hunter%32%40long@proxy.example.com":    {"hunter%32%40long", "hunter2@long"},
		"http://me:with@in:it@proxy.example.com":            {"with@in:it"},
		"http://me:bad%escape@proxy.example.com":            {"bad%escape"},
		"http://me:hunter2long@[2001:db8::1]:3128/@p:x/y@z": {"hunter2long"},
	} {
		var got []string
		for _, s := range proxySecrets(config.Environ{"https_proxy": value}) {
			got = append(got, s.Reveal())
			if s.Name() != "https_proxy" {
				t.Errorf("%q: hidden as %s", value, s)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q", value, got)
		}
	}
}
