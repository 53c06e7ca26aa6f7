//go:build kernel && aisb_testhook

package entrypoint

import (
	"os"
	"testing"

	"ai-sandbox/entrypoint/netfilter"
	"ai-sandbox/entrypoint/spec"
)

func TestTampersAreRefused(t *testing.T) {
	for _, mode := range []string{spec.ModeGated, spec.ModeNone} {
		for _, how := range netfilter.Tampers {
			b := newBox(t, "touch", "/proj/ran")
			b.env = []string{"AISB_TEST_TAMPER=" + how}
			if mode == spec.ModeNone {
				b.Spec.Firewall = spec.Firewall{Mode: mode}
				b.env = append(b.env, "STAGE_FAULT=no device")
			}
			b.refused(spec.ExitUnenforced, "ruleset", "not the one that was asked for")
			if _, err := os.Stat(b.path("proj/ran")); err == nil {
				t.Errorf("%s %s: the command ran", mode, how)
			}
		}
	}
}
