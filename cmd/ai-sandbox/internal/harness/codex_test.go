package harness

import (
	"fmt"
	"testing"
)

func TestCodex(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	const x = "codex --dangerously-bypass-approvals-and-sandbox"
	argv(t, "codex", []called{
		{"", x},
		{"hello", x + " hello"},
		{"-m o3 hello", x + " -m o3 hello"},
		{"resume " + id, x + " resume " + id},
		{"resume --last", x + " resume --last"},
		{"fork " + id, x + " fork " + id},
		{"exec hello", x + " exec hello"},
		{"e hello", x + " e hello"},
		{"exec resume " + id + " on", x + " exec resume " + id + " on"},
		{"review --uncommitted", x + " review --uncommitted"},
		{"--version", x + " --version"},
		{"exec -- -s", x + " exec -- -s"},
		{"--search", x + " --search"},
		{"--dangerously-bypass-approvals-and-sandbox", x},
		{"exec --dangerously-bypass-approvals-and-sandbox hello", "codex exec --dangerously-bypass-approvals-and-sandbox hello"},
		{"--yolo", "codex --yolo"},
		{"-a on-request", "codex -a on-request"},
		{"-anever", "codex -anever"},
		{"--ask-for-approval=never resume " + id, "codex --ask-for-approval=never resume " + id},
		{"exec -s read-only hello", "codex exec -s read-only hello"},
		{"--sandbox read-only", "codex --sandbox read-only"},
		{"exec --approve-for-me hello", "codex exec --approve-for-me hello"},
		{"-c approval_policy=on-request", "codex -c approval_policy=on-request"},
		{"exec -c sandbox_mode=read-only hi", "codex exec -c sandbox_mode=read-only hi"},
		{"--config=sandbox_mode=\"read-only\"", "codex --config=sandbox_mode=\"read-only\""},
		{"-c default_permissions=:workspace", "codex -c default_permissions=:workspace"},
		{"exec 'what is -c approval_policy=never'", x + " exec what is -c approval_policy=never"},
		{"-c shell_environment_policy.inherit=all", x + " -c shell_environment_policy.inherit=all"},
		{"login status", "codex login status"},
		{"mcp list", "codex mcp list"},
		{"sandbox true", "codex sandbox true"},
	})
	thinking(t, "codex", []thought{
		{"xhigh", "exec hi", "codex --dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=xhigh exec hi"},
		{"off", "", "codex --dangerously-bypass-approvals-and-sandbox -c model_reasoning_effort=low"},
		{"max", "-s read-only", "codex -c model_reasoning_effort=max -s read-only"},
		{"xhigh", `exec -c model_reasoning_effort="low"`, `codex --dangerously-bypass-approvals-and-sandbox exec -c model_reasoning_effort="low"`},
		{"xhigh", `exec --config=model_reasoning_effort="low"`, x + ` exec --config=model_reasoning_effort="low"`},
		{"xhigh", "exec -c 'model_reasoning_effort = low'", x + " exec -c model_reasoning_effort = low"},
		{"xhigh", "-cmodel_reasoning_effort=low", x + " -cmodel_reasoning_effort=low"},
		{"xhigh", "-c=model_reasoning_effort=low", x + " -c=model_reasoning_effort=low"},
		{"xhigh", "login", "codex login"},
		// A word in a prompt, or another setting, is not said about it.
		{"xhigh", "exec 'what is model_reasoning_effort'", x + " -c model_reasoning_effort=xhigh exec what is model_reasoning_effort"},
		{"xhigh", "exec model_reasoning_effort=low", x + " -c model_reasoning_effort=xhigh exec model_reasoning_effort=low"},
		{"xhigh", "-c profiles.x.model_reasoning_effort=low", x + " -c model_reasoning_effort=xhigh -c profiles.x.model_reasoning_effort=low"},
		{"xhigh", "-c model_reasoning_effort_x=low", x + " -c model_reasoning_effort=xhigh -c model_reasoning_effort_x=low"},
		{"xhigh", "-- -c model_reasoning_effort=low", x + " -c model_reasoning_effort=xhigh -- -c model_reasoning_effort=low"},
	})
	placed(t, "codex", map[Extra]string{Skill: ".codex/skills/x"})
}

// TestCodexKey: where it takes its key from, when a run passes it one.
func TestCodexKey(t *testing.T) {
	const at = ` -c model_provider=openai-key -c model_providers.openai-key={name="OpenAI", base_url="%s", env_key="%s", wire_api="responses"}`
	const x = "codex --dangerously-bypass-approvals-and-sandbox"
	own := fmt.Sprintf(at, "https://api.openai.com/v1", "OPENAI_API_KEY")
	keyed(t, "codex", []given{
		{"exec hi", nil, x + " exec hi"},
		{"exec hi", Vars{"OTHER": ""}, x + " exec hi"},
		{"exec hi", Vars{"OPENAI_BASE_URL": "http://llm.test"}, x + ` -c openai_base_url="http://llm.test" exec hi`},
		{"-c openai_base_url=x", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "http://llm.test"}, x + ` -c openai_base_url=x`},
		{"exec hi", Vars{"OPENAI_API_KEY": ""}, x + own + " exec hi"},
		{"", Vars{"CODEX_API_KEY": ""}, x + fmt.Sprintf(at, "https://api.openai.com/v1", "CODEX_API_KEY")},
		{"", Vars{"CODEX_API_KEY": "", "OPENAI_API_KEY": ""}, x + own},
		{"", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": `http://llm.test:8080/v1"`}, x + fmt.Sprintf(at, `http://llm.test:8080/v1\"`, "OPENAI_API_KEY")},
		{"", Vars{"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}, x},
		{"resume --last", Vars{"OPENAI_API_KEY": ""}, x + own + " resume --last"},
		// Not against what the user chose, and not for its commands.
		{"-c model_provider=mine", Vars{"OPENAI_API_KEY": ""}, x + " -c model_provider=mine"},
		{"exec 'fix model_provider parsing'", Vars{"OPENAI_API_KEY": ""}, x + own + " exec fix model_provider parsing"},
		{"-c model_providers.mine.name=x", Vars{"OPENAI_API_KEY": ""}, x + own + " -c model_providers.mine.name=x"},
		{"-p mine", Vars{"OPENAI_API_KEY": ""}, x + " -p mine"},
		{"--profile=mine", Vars{"OPENAI_API_KEY": ""}, x + " --profile=mine"},
		{"exec --oss hi", Vars{"OPENAI_API_KEY": ""}, x + " exec --oss hi"},
		{"login status", Vars{"OPENAI_API_KEY": ""}, "codex login status"},
	})
}
