// Exit codes and error messages: mapped and written in one place.

package cli

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"ai-sandbox/policy"
)

// Exit codes of ai-sandbox itself; a command's own pass through, and the
// entrypoint's 77 and 78 come with the session's error.
const (
	exitFailed     = 125 // a run failed before or beside its command
	exitVerbFailed = 1
	exitVerbUsage  = 2
	exitNoSandbox  = 3   // wait, down, logs, stop, rm
	exitTimeout    = 124 // wait; as timeout(1)
)

// exitError carries an exit code. err is nil when it is the command's own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// A SignalError is the end of a verb by a signal; it ends with 128 and its number.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "ended by " + e.Signal.String() }

// verbError gives a verb's error its exit code, unless it has one.
func verbError(err error) error {
	var exit *exitError
	var bad *errUsage
	var sig *SignalError
	switch {
	case err == nil, errors.As(err, &exit), errors.As(err, &bad):
		return err
	case errors.As(err, &sig):
		return &exitError{code: 128 + int(sig.Signal), err: err}
	}
	return &exitError{code: exitVerbFailed, err: err}
}

// ExitCode is the status that ai-sandbox ends with.
func ExitCode(err error) int {
	var exit *exitError
	var usage *errUsage
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage) && usage.verb:
		return exitVerbUsage
	}
	return exitFailed
}

// printError writes an error for people: a line for each problem, what belongs to
// it, and the hints. hide takes secrets out.
func printError(w io.Writer, err error, hide func(string) string) {
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return
	}
	for _, e := range flatten(err) {
		fmt.Fprintf(w, "ai-sandbox: error: %s\n", policy.Printable(hide(e.Error())))
		var d interface{ Detail() []string }
		if errors.As(e, &d) {
			for _, line := range d.Detail() {
				for _, part := range folded(policy.Printable(hide(line)), columns(w)-2) {
					fmt.Fprintf(w, "  %s\n", part)
				}
			}
		}
		var h interface{ Hint() string }
		if errors.As(e, &h) && h.Hint() != "" {
			fmt.Fprintf(w, "ai-sandbox: hint: %s\n", policy.Printable(hide(h.Hint())))
		}
	}
}

// flatten returns the problems that errors.Join put together.
func flatten(err error) []error {
	var exit *exitError
	if errors.As(err, &exit) && exit.err != nil && err == error(exit) { //nolint:errorlint // only the outermost error is meant
		return flatten(exit.err)
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok { // only a bare join is a list
		var out []error
		for _, e := range list.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

func quote(s string) string { return policy.Quote(s) }
