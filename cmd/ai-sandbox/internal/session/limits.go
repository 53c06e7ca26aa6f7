// The limit of time, which the owner of the session keeps.

package session

import (
	"errors"
	"fmt"
	"time"

	"ai-sandbox/policy"
)

// ExitTime is the exit code of a command that was ended for its time, however it
// took that: as timeout(1) has it.
const ExitTime = 124

// A timeLimit runs from the command's start. Go's timers stand still while the
// machine sleeps (CLOCK_MONOTONIC).
type timeLimit struct {
	c       <-chan time.Time // never fires without a limit
	after   time.Duration
	timer   *time.Timer
	reached bool
}

func (r *run) newTimeLimit() *timeLimit {
	l := &timeLimit{after: time.Duration(r.req.Policy.Limits.TimeSeconds.Held(policy.BySession)) * time.Second}
	if l.after > 0 {
		l.timer = time.NewTimer(l.after)
		l.c = l.timer.C
	}
	return l
}

func (l *timeLimit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// blame puts the end of the run down to the limit, if that was reached before.
func (l *timeLimit) blame(rep *Report, err error) error {
	if !l.reached || err != nil {
		return err
	}
	how := "ended by SIGTERM"
	if rep.EndedBy == EndedBySignal && rep.Reason != "" {
		how = fmt.Sprintf("killed when it did not end within %s of SIGTERM", graceTime)
	}
	rep.EndedBy, rep.ExitCode = EndedByTime, ExitTime
	rep.Reason = fmt.Sprintf("the limit of time, %s, was reached, and the command was %s", l.after, how)
	return nil
}

// killed is the error of a sandbox whose first process is gone without a word.
// Files on a tmpfs stay in its memory when the kernel has killed all the others.
func killed(l policy.Limits) error {
	if n := l.MemoryBytes.Held(policy.ByCgroup); n != 0 {
		return fmt.Errorf("the sandbox was killed: its memory of %s was full, where files in /tmp count, or somebody has killed it; raise --memory, or lower --disk", policy.Size(n))
	}
	return errors.New("the sandbox was killed from outside")
}
