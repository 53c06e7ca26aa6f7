package harness

import "testing"

func TestKiro(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	argv(t, "kiro", []called{
		{"", "kiro-cli chat --trust-all-tools"},
		{"hello", "kiro-cli chat --trust-all-tools hello"},
		{"--resume", "kiro-cli chat --trust-all-tools --resume"},
		{"--trust-tools=read", "kiro-cli chat --trust-tools=read"},
		{"--resume-id " + id, "kiro-cli chat --trust-all-tools --resume-id " + id},
		{"chat --resume", "kiro-cli chat --resume"},
		{"login --use-device-flow", "kiro-cli login --use-device-flow"},
		{"--version", "kiro-cli --version"},
	})
	thinking(t, "kiro", []thought{
		{"xhigh", "", "kiro-cli chat --trust-all-tools"},
	})
	placed(t, "kiro", nil)
}
