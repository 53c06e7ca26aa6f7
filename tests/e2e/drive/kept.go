// Sessions that are kept.

package drive

import (
	"regexp"
	"testing"
)

var keptLine = regexp.MustCompile(`ai-sandbox: session ([0-9a-f]{12}) is kept: `)

// Kept is the id of the session that a run with --keep has told.
func Kept(t *testing.T, r Result) string {
	t.Helper()
	m := keptLine.FindStringSubmatch(r.Err)
	if m == nil {
		t.Fatalf("no session is kept: %s", r)
	}
	return m[1]
}
