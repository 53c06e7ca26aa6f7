package harness

import "testing"

func TestOpenCode(t *testing.T) {
	argv(t, "opencode", []called{
		{"run hi", "opencode run hi"},
	})
	placed(t, "opencode", nil)
}
