package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
)

// A session that can't be read hides none of the others.
func TestListWithAnError(t *testing.T) {
	s := newStage(t)
	s.engine.Sessions = func(Machine) ([]session.Summary, error) {
		return []session.Summary{{ID: "00000000000a", State: session.StateLive}}, errors.New("read the record x")
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}} {
		code := s.do(args...)
		if out, errs := s.out.String(), s.err.String(); code != 1 || !strings.Contains(out, "00000000000a") || errs != "ai-sandbox: error: read the record x\n" {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

// The codes of log: a session that is not there is told apart, and a signal ends it as it
// ends any command.
func TestLogExit(t *testing.T) {
	s := newStage(t)
	for _, c := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{errors.New("x"), 1, "ai-sandbox: error: x\n"},
		{fmt.Errorf("session x: %w", session.ErrNoLog), 3, "ai-sandbox: error: session x: no log of a gate\n"},
		{&SignalError{Signal: syscall.SIGINT}, 130, ""},
	} {
		s.engine.GateLog = func(context.Context, Machine, string, bool, func(gate.Event) error) error { return c.err }
		if code := s.do("log", "--follow"); code != c.code || s.err.String() != c.said {
			t.Errorf("%v: exit code %d, %s", c.err, code, s.err.String())
		}
	}
}
