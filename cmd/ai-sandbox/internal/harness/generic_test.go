package harness

import "testing"

func TestGeneric(t *testing.T) {
	const id = "062417df-2bb4-4104-8edc-1f6894511c13"
	argv(t, "", []called{
		// A command after "--".
		{"mytool --resume " + id, "mytool --resume " + id},
		{"claude", "claude"},
		{"", ""},
	})
	placed(t, "", nil)
}
