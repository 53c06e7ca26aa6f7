// What was found in the home at the start, where the host's files go.

package engine

import (
	"slices"

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
			gone := slices.ContainsFunc(p.Home.Managed, func(m policy.HomeManaged) bool { return m.Path == n.Path && m.None })
			if gone {
				say("%s was changed in this sandbox, and stays although this machine has none any more; remove it inside if it should go too", path)
			} else {
				say("%s was changed in this sandbox, so this machine's was not brought in; remove it inside to get that", path)
			}
		case spec.NoteReseeded:
			say("%s in this sandbox could not be parsed, and is this machine's again", path)
		case spec.NoteUnread:
			say("%s in this sandbox can't be read or replaced (%s), so this machine's was not brought in; %s", path, policy.Printable(n.Reason), mend(n, p))
		}
	}
}

// mend is the command that helps. It runs inside: no link that a sandbox planted leads
// to this machine's files there.
func mend(n spec.HomeNote, p policy.Policy) string {
	at := policy.Quote(policy.HomeDir + "/" + n.Path)
	var inside string
	switch n.Mend {
	case spec.MendRemove:
		inside = "rm -rf " + at
	case spec.MendTree: // chmod -R would follow a link that has come in its place
		inside = `sh -c 'find "$0" -type d -exec chmod u+rwx {} \; ; rm -rf "$0"' ` + at
	case spec.MendOpen:
		inside = "chmod u+rwx " + at
	case spec.MendMount:
		return "drop that mount if it should be"
	default:
		return "mend that, or run with --ephemeral-home"
	}
	fix := "mend it with: ai-sandbox --runtime " + p.Runtime + " -- " + inside
	if p.Runtime == policy.RuntimePodman {
		fix += ", or where that is not permitted: podman volume rm " + policy.Quote(p.Home.Volume)
	}
	return fix
}
