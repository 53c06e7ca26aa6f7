//go:build aisb_testhook

// The fault that end-to-end tests ask for: what happens to the ruleset between
// its installation and its proof. Programs are never built with this tag but
// for those tests.

package entrypoint

import (
	"os"
	"strings"

	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/netfilter"
)

// fault is read before the environment is cleared.
var fault = os.Getenv("AISB_TEST_TAMPER")

// tamperFile holds the fault's name, for runtimes that pass no environment: a test
// mounts its directory.
const tamperFile = "/testhook/fault"

func tamper(r firewall.Ruleset) error {
	if fault == "" {
		text, err := os.ReadFile(tamperFile)
		if err != nil {
			return nil // no fault is asked for
		}
		fault = strings.TrimSpace(string(text))
	}
	if fault == late {
		return nil
	}
	return netfilter.Tamper(r, fault)
}

// late is the fault after the proof: nothing reads the ruleset back any more.
const late = "late"

func tamperLate(r firewall.Ruleset) error {
	if fault != late {
		return nil
	}
	return netfilter.Tamper(r, "flush")
}
