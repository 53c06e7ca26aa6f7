// How much an agent is told to reason.

package cli

import (
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/policy"
)

// level is the one that counts for an agent: --no-pi-config declines it, too.
func (a *app) level(s setup, h harness.Harness) string {
	if h.Bridge && !s.settings.Bool("pi_config") {
		return policy.ThinkingHost
	}
	return s.settings.Text("thinking")
}

// unthinking says why a level that was asked for on the command line is none.
func (a *app) unthinking(s setup, h harness.Harness, in policy.Input) {
	byFlag := func(it config.Item) bool { return strings.HasPrefix(it.Origin, "--") }
	if in.Thinking != nil || !slices.ContainsFunc(s.settings["thinking"], byFlag) || s.settings.Text("thinking") == policy.ThinkingHost {
		return
	}
	why := "the agent's own arguments are about something else, or say it themselves"
	switch {
	case h.Name == "":
		why = "it is for an agent, and none is started"
	case h.Thinking.Flag == "":
		why = h.Name + " has no flag for it"
	case a.level(s, h) == policy.ThinkingHost:
		why = "--no-pi-config leaves it to pi"
	}
	a.warnf("--thinking has no effect: %s", why)
}
