// What a run has changed in the project that tools on this machine run or obey.

package engine

import (
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

// maxChanged is how many files are named; the report has more of them.
const maxChanged = 20

// changed names the files that are to be looked at before anything is done in the
// project.
func changed(say func(string, ...any), rep session.Report) {
	if len(rep.Changed) > 0 {
		say("changed in this run; look at these before you work in the project:")
	}
	for i, c := range rep.Changed {
		if i == maxChanged {
			break
		}
		say("  %s (%s)", policy.Quote(c.Path), c.What)
	}
	if more := max(len(rep.Changed)-maxChanged, 0) + rep.ChangedMore; more > 0 {
		say("  and %d more; --report FILE names up to 100", more)
	}
	if rep.ChangedPartly {
		say("the project is too large to be looked at whole for such changes; git status tells more")
	}
}
