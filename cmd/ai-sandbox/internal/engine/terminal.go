// The caller's terminal.

package engine

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/session"
)

var _ session.Terminal = (*terminal)(nil)

// A terminal is the one on standard input and output.
type terminal struct {
	in, out *os.File
	resized chan os.Signal
}

// isTerminal tells whether both ends are one, as podman run -t needs it.
func isTerminal(in, out *os.File) bool {
	return in != nil && out != nil && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// openTerminal returns nil unless both ends are a terminal.
func openTerminal(in, out *os.File) *terminal {
	if !isTerminal(in, out) {
		return nil
	}
	t := &terminal{in: in, out: out, resized: make(chan os.Signal, 1)}
	signal.Notify(t.resized, unix.SIGWINCH)
	return t
}

// Raw implements session.Terminal.
func (t *terminal) Raw() (func() error, error) {
	old, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	return func() error { return term.Restore(int(t.in.Fd()), old) }, nil
}

// Size implements session.Terminal.
func (t *terminal) Size() (cols, rows int, err error) { return term.GetSize(int(t.out.Fd())) }

// Resized implements session.Terminal.
func (t *terminal) Resized() <-chan os.Signal { return t.resized }
