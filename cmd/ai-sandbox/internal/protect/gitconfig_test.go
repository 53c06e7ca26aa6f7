package protect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What is read of git's configuration is what git would: each setting, written again
// in git's own way, is read as the same.
func FuzzGitConfig(f *testing.F) {
	for _, s := range []string{
		"[core]\n\thooksPath = a b ; c\n", "[CORE]HooksPath=a\\\nb # x\r\nbare", "[core]\nhooksPath = \" a;b \"c\\t\\\"\\\\",
		"[includeIf \"gitdir:a]\\\"b\"] path = x\n[include]path=y", "[include.x]\npath = a", "\ufeff# x\n[a]b", "[core\nx = 1", "[core]\nx = \"a\nb\"", "[a]\nb = \xff\\\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := parseConfig(text)
		if err != nil {
			if settings != nil {
				t.Errorf("%q: %v with an error", text, settings)
			}
			return
		}
		var b strings.Builder
		for _, s := range settings {
			if s.section == "" || s.key == "" || s.section != strings.ToLower(s.section) || s.key != strings.ToLower(s.key) || strings.ContainsAny(s.section+s.key, "\x00\n =[]\"#;") || strings.Contains(s.value, "\x00") {
				t.Errorf("%q: %q", text, s)
			}
			value := strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\n", "\t", "\\t", "\b", "\\b").Replace(s.value)
			fmt.Fprintf(&b, "[%s]\n%s = \"%s\" ; x\n", s.section, s.key, value)
		}
		if again, err := parseConfig(b.String()); err != nil || !slices.Equal(again, settings) {
			t.Errorf("%q: %q, and then %q: %v", text, settings, again, err)
		}
		// What stands before does not change what comes after.
		if more, err := parseConfig(text + "\n[core]\nhooksPath = x\n"); err == nil && (len(more) <= len(settings) || more[len(more)-1] != (setting{"core", "hookspath", "x"})) {
			t.Errorf("%q hides what comes after it: %q", text, more)
		}
	})
}
