// The image of the doctor's trial, for a machine that has none of ours yet: the
// entrypoint, and the directories that a run mounts something on.

package image

import (
	"fmt"
	"strings"
)

// TrialRecipe stands as its LabelRecipe, where other images have their hash.
const TrialRecipe = "trial"

// TrialContainerfile builds it of TrialRoot, a directory of the build context. Nothing is
// fetched for it, and nothing is run. All in it is the user's, who can write none of it:
// the root file system of every container is read-only.
func TrialContainerfile() string {
	return fmt.Sprintf("FROM scratch\nCOPY --chown=%d:%d %s/ /\n", UID, GID, TrialRoot)
}

// TrialRoot has TrialDirs and, at EntrypointPath, the entrypoint.
const TrialRoot = "root"

// TrialDirs are relative to the root.
func TrialDirs() []string {
	var out []string
	for _, dir := range []string{HomeDir, ProjectDir, "/etc", "/run/aisb", "/tmp"} {
		out = append(out, strings.TrimPrefix(dir, "/"))
	}
	return out
}

// TrialLabels are its labels.
func TrialLabels() map[string]string { return map[string]string{LabelRecipe: TrialRecipe} }
