// The caller's terminal.

package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
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

// streamsOf are the caller's streams for a command.
func streamsOf(std cli.Streams) backend.Streams {
	s := backend.Streams{Stdout: lasting(std.Out), Stderr: lasting(std.Err)}
	if std.In != nil {
		s.Stdin = std.In
	}
	return s
}

// lasting has what is written to a terminal dropped once that has gone away. The command
// learns it from SIGHUP and then has its time: an error of a write would end it at once.
func lasting(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return hangable{f}
	}
	return w
}

// A hangable is a terminal to write to.
type hangable struct{ f *os.File }

func (h hangable) Write(p []byte) (int, error) {
	n, err := h.f.Write(p)
	if errors.Is(err, unix.EIO) { // tty_write of the kernel, of one that was hung up
		return len(p), nil
	}
	return n, err
}
