// What ai-sandbox keeps of ended sessions by design, and so is not left behind.

package canary

import (
	"path/filepath"
	"regexp"
)

var kept = regexp.MustCompile(`^sessions(/\.pruned|/[0-9a-f]{12}(/(policy\.json|events\.jsonl|report\.json|gate\.jsonl))?)?$`)

// Kept tells whether a path is a file or directory that stays of a session, given
// ai-sandbox's state directory.
func Kept(state, path string) bool {
	rel, err := filepath.Rel(state, path)
	return err == nil && kept.MatchString(rel)
}
