// Secrets in what a session writes down and tells.

package session

import (
	"slices"

	"ai-sandbox/policy"
)

// redacted is the report without the secrets that got into it: a reason may quote
// the command line, and a refused host is what the command asked for.
func (rep Report) redacted(r *policy.Redactor) Report {
	rep.Reason, rep.Control, rep.Leftover = r.Text(rep.Reason), r.Text(rep.Control), r.Text(rep.Leftover)
	rep.Refused = slices.Clone(rep.Refused)
	for i, h := range rep.Refused {
		rep.Refused[i].Host, rep.Refused[i].Why, rep.Refused[i].AllowFlag = r.Text(h.Host), r.Text(h.Why), r.Text(h.AllowFlag)
	}
	return rep
}
