// What was found in the home at the start, where the host's files go.

package engine

import (
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// brought tells of the files that are not in the home as the host has them.
func brought(say func(string, ...any), rep session.Report, p policy.Policy) {
	for _, n := range rep.Home {
		path := policy.Printable("~/" + n.Path)
		switch n.State {
		case spec.NoteKept:
			say("%s was changed in this sandbox, so this machine's was not brought in; remove it inside to get that", path)
		case spec.NoteReseeded:
			say("%s in this sandbox could not be parsed, and is this machine's again", path)
		case spec.NoteUnread:
			// Inside: no link that a sandbox planted leads to this machine's files there.
			fix := "ai-sandbox --runtime " + p.Runtime + " -- rm -rf " + policy.Quote(policy.HomeDir+"/"+n.Path)
			if p.Runtime == policy.RuntimePodman {
				fix += ", or where that is not permitted: podman volume rm " + policy.Quote(p.Home.Volume)
			}
			say("%s in this sandbox can't be read or replaced (%s), so this machine's was not brought in; mend it with: %s", path, policy.Printable(n.Reason), fix)
		}
	}
}
