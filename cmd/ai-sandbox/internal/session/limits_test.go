package session

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// A command whose time is over gets SIGTERM, and its exit code is 124 whatever it
// makes of that; one that ends before has its own.
func TestTime(t *testing.T) {
	var got spec.ToGuest
	waits := func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		if err := spec.ReadFrame(in, &got); err != nil {
			return err
		}
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{Code: 3}})
	}
	e := newEnv(t, waits)
	start := time.Now()
	rep, err := e.runWith(t, policy.NetNone, policy.LimitInputs{Time: policy.LimitInput{Text: "1s", Origin: "--time"}})
	if err != nil || rep.ExitCode != ExitTime || rep.EndedBy != EndedByTime || !strings.Contains(rep.Reason, "1s") {
		t.Errorf("%+v, %v", rep, err)
	}
	if took := time.Since(start); took < time.Second || got.Signal != int(syscall.SIGTERM) {
		t.Errorf("signal %d after %v", got.Signal, took)
	}
	e.clean(t)

	e = newEnv(t, exits(spec.Exited{Code: 3}))
	rep, err = e.runWith(t, policy.NetNone, policy.LimitInputs{Time: policy.LimitInput{Text: "1h", Origin: "--time"}})
	if err != nil || rep.ExitCode != 3 || rep.EndedBy != EndedByCommand {
		t.Errorf("%+v, %v", rep, err)
	}
}
