package harness

import "testing"

func TestGemini(t *testing.T) {
	argv(t, "gemini", []called{
		{"-p hi", "gemini --yolo -p hi"},
		{"--approval-mode plan", "gemini --approval-mode plan"},
		{"mcp list", "gemini mcp list"},
	})
	thinking(t, "gemini", []thought{
		{"xhigh", "", "gemini --yolo"},
	})
	placed(t, "gemini", nil)
}
