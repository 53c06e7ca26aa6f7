package engine

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// A signal that comes while something runs ends the start, also when that was
// too quick to notice.
func TestUntilSignal(t *testing.T) {
	for name, f := range map[string]func(context.Context) (int, error){
		"gives up":       func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		"has other news": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, errors.New("other") },
		"does not mind":  func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil },
	} {
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGINT
		_, err := untilSignal(t.Context(), signals, f)
		var sig signalError
		if !errors.As(err, &sig) || syscall.Signal(sig) != syscall.SIGINT {
			t.Errorf("%s: %v", name, err)
		}
	}
	v, err := untilSignal(t.Context(), make(chan os.Signal), func(context.Context) (int, error) { return 7, nil })
	if v != 7 || err != nil {
		t.Errorf("without a signal: %d, %v", v, err)
	}
}
