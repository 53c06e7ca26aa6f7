// The verb version.

package cli

import (
	"fmt"
	"runtime"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
)

// version is set by the linker.
var version = "devel"

// Version is that of this ai-sandbox.
func Version() string { return version }

var versionVerb = &verb{
	name:     "version",
	about:    "Print the version.",
	examples: []string{"ai-sandbox version"},
	exit:     usualExit,
	action: func(a *app, _ Invocation, _ []config.Item) error {
		_, err := fmt.Fprintf(a.Out, "ai-sandbox %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	},
}
