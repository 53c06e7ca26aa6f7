package harness

import "testing"

func TestPi(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	argv(t, "pi", []called{
		{"", "pi"},
		{"-c", "pi -c"},
		{"--session " + id, "pi --session " + id},
		{"-p hello", "pi -p hello"},
	})
	thinking(t, "pi", []thought{
		{"xhigh", "", "pi"}, // it is in its settings
	})
	placed(t, "pi", map[Extra]string{Skill: ".pi/agent/skills/x", Prompt: ".pi/agent/prompts/x", Prompts: ".pi/agent/prompts", Extension: ".pi/agent/extensions/x"})
}
