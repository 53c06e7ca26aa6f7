//go:build e2e

package e2e

import (
	"testing"

	"ai-sandbox/tests/e2e/agenttest"
	"ai-sandbox/tests/e2e/drive"
)

// The real pi does a whole task over the gate.
func TestPiDoesATask(t *testing.T) {
	u := newPiUser(t)
	u.has("settings.json", `{"defaultProvider":"acme","defaultModel":"m"}`)
	agenttest.Task(t, u.Box, u.realPi())
}

// realPi is pi, with a model that its configuration leads to.
func (u piUser) realPi() agenttest.Agent { return agenttest.Pi(u.has) }

// The real claude and codex in an image that has them: each starts without a question,
// does a whole task, reasons as much as is said, and is logged in by the one file that
// it is shown.
func TestRealAgents(t *testing.T) {
	set := newBox(t)
	set.Env = []string{"AISB_HARNESS_PACKAGES=pi,claude,codex"}
	set.OK("build")
	box := func(t *testing.T) *drive.Box {
		b := newBox(t)
		b.Env = append(b.Env, set.Env...)
		return b
	}
	levels := map[string]string{"off": "low", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
	for _, a := range []agenttest.Agent{agenttest.Claude, agenttest.Codex} {
		t.Run(a.Name, func(t *testing.T) {
			t.Run("task", func(t *testing.T) { agenttest.Task(t, box(t), a) })
			t.Run("levels", func(t *testing.T) { agenttest.Levels(t, box(t), a, levels) })
			t.Run("overrides", func(t *testing.T) { agenttest.Overrides(t, box(t), a) })
			t.Run("sessions", func(t *testing.T) { agenttest.Sessions(t, box(t), a) })
			t.Run("extras", func(t *testing.T) { agenttest.Extras(t, box(t), a) })
			t.Run("login", func(t *testing.T) { agenttest.LoggedIn(t, box(t), a, w.home) })
			if a.Name == "claude" { // which asks about keys
				t.Run("keys", func(t *testing.T) { agenttest.Keys(t, box(t), a) })
				return
			}
			t.Run("terminal", func(t *testing.T) { agenttest.Terminal(t, box(t), a) })
		})
	}
	t.Run("pi", func(t *testing.T) { // whose task is TestPiDoesATask
		pi := func(t *testing.T) (*drive.Box, agenttest.Agent) {
			u := newPiUser(t)
			u.Env = append(u.Env, set.Env...)
			u.has("settings.json", `{"defaultProvider":"acme","defaultModel":"m"}`)
			return u.Box, u.realPi()
		}
		t.Run("levels", func(t *testing.T) {
			b, a := pi(t)
			agenttest.Levels(t, b, a, map[string]string{
				"off": "", "minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh", "host": "medium",
			})
		})
		t.Run("overrides", func(t *testing.T) {
			b, a := pi(t)
			agenttest.Overrides(t, b, a)
		})
		t.Run("sessions", func(t *testing.T) {
			b, a := pi(t)
			agenttest.Sessions(t, b, a)
		})
		t.Run("extras", func(t *testing.T) {
			b, a := pi(t)
			agenttest.Extras(t, b, a)
		})
		t.Run("login", func(t *testing.T) {
			b, a := pi(t)
			agenttest.LoggedIn(t, b, a, w.home)
		})
		t.Run("terminal", func(t *testing.T) {
			b, a := pi(t)
			agenttest.Terminal(t, b, a)
		})
	})
	// Their flags are those of the table.
	agenttest.Flags(t, box(t), "pi", "claude", "codex")
}
