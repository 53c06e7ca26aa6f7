// The log of a sandbox: what nobody sees while it is written, and what a command
// inside may want to fill the disk with.

package session

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxLog bounds what a command's output makes of a log, in bytes.
const MaxLog = 64 << 20

// A Log is a file that takes so many bytes and no more. It may be written to from
// any goroutine. What comes from the command goes through a policy.Writer: it is
// at rest here.
type Log struct {
	mu   sync.Mutex
	f    *os.File
	left int
}

func openLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's log: %w", err)
	}
	return &Log{f: f, left: MaxLog}, nil
}

// Name is the file's path.
func (l *Log) Name() string { return l.f.Name() }

// File is the file itself, for what is known to be short.
func (l *Log) File() *os.File { return l.f }

// Write always takes all of p: a log that can't be written is no reason to end a
// command.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left <= 0 {
		return len(p), nil
	}
	part := p[:min(len(p), l.left)]
	_, err := l.f.Write(part)
	if l.left -= len(part); l.left == 0 && err == nil {
		_, err = fmt.Fprintf(l.f, "\nai-sandbox: the log has %d bytes; what follows is not kept\n", MaxLog)
	}
	if err != nil {
		l.left = 0 // the disk is full, say
	}
	return len(p), nil
}

// Close closes the file.
func (l *Log) Close() { l.f.Close() }
