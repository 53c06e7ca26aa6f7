package harness

import "testing"

func TestOpenCode(t *testing.T) {
	argv(t, "opencode", []called{
		{"", "opencode --auto"},
		{"run hi", "opencode run --auto hi"},
		{"--print-logs run hi", "opencode --print-logs run --auto hi"},
		{"--continue", "opencode --auto --continue"},
		{"run --continue hi", "opencode run --auto --continue hi"},
		{"sub/dir", "opencode --auto sub/dir"},
		{"--prompt run", "opencode --prompt run --auto"},
		{"-- run", "opencode --auto -- run"},
		{"run -- serve", "opencode run --auto -- serve"},
		// Never twice, and not where it is none.
		{"run --auto hi", "opencode run --auto hi"},
		{"--no-auto", "opencode --no-auto"},
		{"serve", "opencode serve"},
		{"--print-logs serve", "opencode --print-logs serve"},
		{"auth list", "opencode auth list"},
		{"--version", "opencode --auto --version"},
	})
	thinking(t, "opencode", []thought{{"xhigh", "run hi", "opencode run --auto hi"}})
	placed(t, "opencode", nil)
}
