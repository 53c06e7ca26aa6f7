// What the suites that both runtimes pass ask of a box.

package drive

import (
	"testing"
	"time"

	"ai-sandbox/tests/e2e/guarded"
)

// Guarded is the box for the tests of protected paths.
func (b *Box) Guarded(t *testing.T) guarded.Box {
	t.Helper()
	return guarded.Box{
		Dir: b.Dir,
		Run: func(args ...string) (int, string, string) {
			r := b.Run(args...)
			return r.Code, r.Out, r.Err
		},
		Start: func(args ...string) (func() (int, string), func()) {
			l := b.Start(t, args...)
			return func() (int, string) {
					l.In.Close()
					r := l.Wait(time.Minute)
					return r.Code, r.Err
				}, func() {
					_ = l.Cmd.Process.Kill() // the wait tells
				}
		},
		In: func(dir string) guarded.Box {
			in := *b
			in.T, in.Dir = t, dir
			return in.Guarded(t)
		},
	}
}
