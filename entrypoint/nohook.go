//go:build !aisb_testhook

// Nothing happens to the ruleset in a program that is not built for tests.

package entrypoint

import "ai-sandbox/entrypoint/firewall"

func tamper(firewall.Ruleset) error { return nil }

func tamperLate(firewall.Ruleset) error { return nil }
