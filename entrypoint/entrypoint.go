// Package entrypoint is what runs as PID 1 in both containers: in the sandbox's
// (Session) it installs the controls, proves them, drops every privilege and
// runs the command; in the gate's (Gate) it keeps the squids. It is linked into
// cmd/aisb-entrypoint and needs nothing from the container but /proc.
//
// It may not start anything before every control has been read back, and it
// has no weaker mode.
package entrypoint

import (
	"fmt"
	"os"
	"strings"
	"time"

	"ai-sandbox/entrypoint/spec"
)

// Main runs the role that args name and returns the exit code. began is when
// the program started.
func Main(began time.Time, args []string) int {
	if len(args) == 3 && args[0] == "try" {
		return runTry(args[1], args[2]) // a command like any other, with its environment
	}
	// Whatever runtime or image put there is nobody's business.
	os.Clearenv()
	switch {
	case len(args) == 1 && args[0] == "session":
		return runSession(began, sandboxUID)
	case len(args) == 2 && args[0] == "session" && args[1] == "--keep-root":
		return runSession(began, 0)
	case len(args) > 1 && args[0] == "gate":
		return runGate(args[1:])
	case len(args) == 1 && args[0] == "version":
		// The build primes an image with it: the first start that copies layers.
		fmt.Fprintln(os.Stdout, "aisb-entrypoint", spec.Version)
		return 0
	}
	say("arguments are neither \"session [--keep-root]\" nor \"gate [--detached [--idle SECONDS]] CONFIG...\"")
	return spec.ExitBadSpec
}

// say writes one sentence to standard error.
func say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stderr, "aisb-entrypoint: "+strings.ReplaceAll(text, "\n", "; "))
}

// A refusal is why the command is not run.
type refusal struct {
	spec.Refused
}

func (r *refusal) Error() string { return r.Control + ": " + r.Reason }

// refuse wraps the error of one control; nil stays nil.
func refuse(control string, err error) error {
	if err == nil {
		return nil
	}
	return &refusal{spec.Refused{Code: spec.ExitUnenforced, Control: control, Reason: err.Error()}}
}
