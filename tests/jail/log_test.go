//go:build e2e

package jail

import (
	"path/filepath"
	"testing"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/logtest"
)

// logBoxes runs a test with every gate.
func logBoxes(t *testing.T, f func(*testing.T, logtest.Box)) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			f(t, logtest.Box{
				Run: func(args ...string) (int, string, string) {
					r := b.Run(args...)
					return r.Code, r.Out, r.Err
				},
				Head: func(args ...string) (int, string, string) {
					r := b.Head(args...)
					return r.Code, r.Out, r.Err
				},
				Start: func(args ...string) func() (int, string, string) {
					l := b.Start(t, args...)
					return func() (int, string, string) {
						r := l.Wait(drive.RunTime)
						return r.Code, r.Out, r.Err
					}
				},
				Host: b.Host, Dir: b.Dir, State: filepath.Join(w.own, "home", "state", "ai-sandbox"), Engine: engine,
			})
		})
	}
}

// Every decision is one line of the session's log, whatever the engine.
func TestGateLog(t *testing.T) { logBoxes(t, logtest.Log) }

// So is what was open when a run is cut short.
func TestGateLogUnread(t *testing.T) { logBoxes(t, logtest.Unread) }

// What a session may reach is changed while it runs.
func TestSteer(t *testing.T) { logBoxes(t, logtest.Steer) }

// What a run needs is found out by one that learns.
func TestLearn(t *testing.T) { logBoxes(t, logtest.Learn) }
