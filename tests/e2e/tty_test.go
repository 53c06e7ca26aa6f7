//go:build e2e

package e2e

import (
	"testing"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	newBox(t).CheckTerminal(t)
}

// Ctrl-C reaches the command as a signal of its terminal.
func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	newBox(t).CheckInterrupt(t)
}

// The window goes away: the command is hung up on, and nothing stays.
func TestTerminalHangup(t *testing.T) {
	t.Parallel()
	newBox(t).CheckHangup(t)
}

// What has a terminal on one side only is a pipe inside.
func TestPipeIsNoTerminal(t *testing.T) {
	t.Parallel()
	newBox(t).CheckPipe(t)
}
