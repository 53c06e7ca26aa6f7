// What of the project is protected.

package cli

import (
	"errors"

	"ai-sandbox/cmd/ai-sandbox/internal/protect"
	"ai-sandbox/policy"
)

// look adds what the policy has to know of the project's protected paths.
func look(in *policy.Input, home string, unprotect []string) error {
	if in.NoCwd {
		if len(unprotect) > 0 {
			return policy.About(errors.New("unprotect is about the project, and there is none with no_cwd; drop one of them"), "unprotect", "no_cwd")
		}
		return nil
	}
	p, err := protect.Look(in.Facts.Project, home, unprotect)
	in.Facts.Tree, in.Facts.Git, in.Facts.GitNote, in.Unprotect = p.Tree, p.Git, p.Note, unprotect
	return err
}
