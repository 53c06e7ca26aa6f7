// Verbs that a signal ends.

package engine

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
)

// interruptible ends f's context at a signal, with that as the cause. While f then
// takes away what it made, a second signal ends the program at once.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case s := <-signals:
			signal.Stop(signals)
			if sig, ok := s.(syscall.Signal); ok {
				cancel(&cli.SignalError{Signal: sig})
			}
		case <-done:
			signal.Stop(signals)
		}
	}()
	err := f(ctx)
	close(done)
	<-stopped
	return err
}
