package harness

import (
	"slices"
	"strings"
	"testing"
)

func TestGemini(t *testing.T) {
	argv(t, "gemini", []called{
		{"-p hi", "gemini --yolo -p hi"},
		{"--approval-mode plan", "gemini --approval-mode plan"},
		{"mcp list", "gemini mcp list"},
		{"--resume latest -p on", "gemini --yolo --resume latest -p on"},
		{"-y", "gemini -y"},
	})
	thinking(t, "gemini", []thought{
		{"xhigh", "", "gemini --yolo"},
	})
	placed(t, "gemini", nil)
}

// TestGeminiLogin: the variable that a first run passes says how it is logged in, which
// gemini would ask.
func TestGeminiLogin(t *testing.T) {
	for passed, want := range map[string]string{
		"": "", "GEMINI_API_KEY": "gemini-api-key", "GOOGLE_API_KEY": "vertex-ai", "GEMINI_API_KEY GOOGLE_API_KEY": "gemini-api-key",
	} {
		seeds := lookup(t, "gemini").Seeds(project, nil, func(name string) string {
			if slices.Contains(strings.Fields(passed), name) {
				return "key"
			}
			return ""
		})
		got := ""
		for _, s := range seeds {
			if s.Path == ".gemini/settings.json" {
				got = string(s.Content)
			}
		}
		if want == "" && got != "" || want != "" && !strings.Contains(got, `"selectedType": "`+want+`"`) || strings.Contains(got, `"key"`) {
			t.Errorf("with %q: %s", passed, got)
		}
	}
}
