package session

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// The silence of the canary inside says something while it answers on the host.
func TestCanarySings(t *testing.T) {
	made := func() *canary {
		t.Helper()
		r := &run{req: Request{Policy: policy.Policy{Net: policy.Net{Mode: policy.NetNone}}}}
		c, err := r.newCanary()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		return c
	}
	if err := made().sings(); err != nil {
		t.Errorf("it sings: %v", err)
	}
	closed := made()
	closed.close()
	// Something else has its port since.
	other := made()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "something else")
			c.Close()
		}
	}()
	other.l = l
	for name, c := range map[string]*canary{"closed": closed, "other": other} {
		err := c.sings()
		var ref *refusedError
		if !errors.As(err, &ref) || ref.Code != ExitUnenforced || ref.Control != "network" || !strings.Contains(ref.Reason, "does not answer on the host") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := &run{}
		if _ = r.failed(err); r.report.ExitCode != ExitUnenforced || r.report.EndedBy != EndedByEntrypoint {
			t.Errorf("%s: the report has %d, %s", name, r.report.ExitCode, r.report.EndedBy)
		}
	}
}
