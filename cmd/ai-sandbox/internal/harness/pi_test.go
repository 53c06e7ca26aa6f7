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
		{"xhigh", "", "pi --thinking xhigh"},
		{"off", "-p hi", "pi --thinking off -p hi"},
		{"xhigh", "--continue", "pi --thinking xhigh --continue"},
		{"xhigh", "--model acme/m:v1 hi", "pi --thinking xhigh --model acme/m:v1 hi"},
		{"xhigh", "'what is --thinking low' --models a,b", "pi --thinking xhigh what is --thinking low --models a,b"},
		{"xhigh", "-- --thinking low", "pi --thinking xhigh -- --thinking low"},
		{"host", "", "pi"},
		// Not where the user says it, and not for its commands.
		{"xhigh", "--thinking low", "pi --thinking low"},
		{"xhigh", "-p hi --model acme/m:low", "pi -p hi --model acme/m:low"},
		{"xhigh", "--models a:high,b", "pi --models a:high,b"},
		{"xhigh", "list", "pi list"},
		{"xhigh", "mcp list", "pi mcp list"},
		{"xhigh", "auth check", "pi auth check"},
	})
	placed(t, "pi", map[Extra]string{Skill: ".pi/agent/skills/x", Prompt: ".pi/agent/prompts/x", Prompts: ".pi/agent/prompts", Extension: ".pi/agent/extensions/x"})
}
