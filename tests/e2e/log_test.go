//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	"ai-sandbox/tests/e2e/drive"
	"ai-sandbox/tests/e2e/logtest"
)

// logBoxes runs a test with every gate: of either engine, or a named one.
func logBoxes(t *testing.T, f func(*testing.T, logtest.Box), engines ...string) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			box := logtest.Box{
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
				Host: b.Host, Dir: b.Dir, State: filepath.Join(w.home, "e2e", "state", "ai-sandbox"), Engine: engine, Packets: true,
			}
			if engine == "named" {
				box.Engine = "squid"
				box.Gated = func(allow ...string) []string {
					if len(allow) > 0 {
						args := []string{"gate", "up", b.Token}
						for _, a := range allow {
							args = append(args, "--allow", a)
						}
						b.OK(args...)
						t.Cleanup(func() { b.OK("gate", "down", b.Token) })
					}
					return []string{"--gate", b.Token}
				}
			}
			f(t, box)
		})
	}
}

// Every decision is one line of the session's log, whatever the engine.
func TestGateLog(t *testing.T) { logBoxes(t, logtest.Log, "squid", "builtin", "named") }

// So is what was open when a run is cut short.
func TestGateLogUnread(t *testing.T) { logBoxes(t, logtest.Unread, "squid", "builtin", "named") }

// What a session may reach is changed while it runs.
func TestSteer(t *testing.T) { logBoxes(t, logtest.Steer, "squid", "builtin", "named") }

// What a run needs is found out by one that learns.
func TestLearn(t *testing.T) { logBoxes(t, logtest.Learn, "squid", "builtin") }
