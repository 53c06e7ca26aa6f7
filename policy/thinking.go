// How much the agent reasons.

package policy

// ThinkingHost leaves the amount to the agent's own configuration.
const ThinkingHost = "host"

// A Thinking is an amount of reasoning, by pi's words, and how the agent is told.
type Thinking struct {
	Level string `json:"level"` // "off" to "max"
	As    string `json:"as"`    // what says so: arguments, or keys of its settings
}

func (t *Thinking) line() string {
	if t == nil {
		return ""
	}
	return t.Level + " (" + t.As + ")"
}
