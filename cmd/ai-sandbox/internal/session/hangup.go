// A terminal that goes away while the command runs.

package session

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
)

// outlived are streams that take what is written to a terminal after it has gone away: the
// command was hung up on, and has its time to end (graceTime) whatever it still says.
func outlived(s backend.Streams) backend.Streams {
	s.Stdout, s.Stderr = outlive(s.Stdout), outlive(s.Stderr)
	return s
}

// outlive changes nothing but the writing to a character device: elsewhere an error of input
// or output is one.
func outlive(w io.Writer) io.Writer {
	f, ok := w.(*os.File)
	if !ok {
		return w
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return w
	}
	return &terminalWriter{f: f}
}

type terminalWriter struct {
	f    *os.File
	gone atomic.Bool
}

// Write implements io.Writer. A terminal that was hung up gives EIO (the
// kernel's hung_up_tty_write).
func (t *terminalWriter) Write(p []byte) (int, error) {
	if t.gone.Load() {
		return len(p), nil
	}
	n, err := t.f.Write(p)
	if errors.Is(err, syscall.EIO) {
		t.gone.Store(true)
		return len(p), nil
	}
	return n, err
}
