package podman

import (
	"slices"
	"testing"
)

// Where SELinux is in force, podman is asked to give a mount the label that all
// containers share: of read-only ones, too, which are of another type.
func TestLabel(t *testing.T) {
	for _, ro := range []bool{true, false} {
		for _, relabel := range []bool{true, false} {
			if m := bind("/srv/shop", "/work", ro, relabel); slices.Contains(m.Options, "z") != relabel || slices.Contains(m.Options, "rro") != ro {
				t.Errorf("read-only %v, label %v: %+v", ro, relabel, m)
			}
		}
	}
}
