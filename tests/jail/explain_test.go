//go:build e2e

package jail

import (
	"testing"

	"ai-sandbox/tests/e2e/explained"
	"ai-sandbox/tests/e2e/internet"
)

// What explain says of 20 policies is what is measured under each.
func TestExplainIsTrue(t *testing.T) {
	t.Parallel()
	control(t, "http://"+internet.Allowed)
	control(t, "http://"+internet.Private)
	control(t, "http://"+internet.Metadata)
	control(t, "http://127.0.0.1:8888")
	b := newBox(t)
	compared, yes, problems := explained.Bench{
		Token: b.Token, Marker: w.net.Marker, Project: b.Dir, Local: true,
		Run: func(args ...string) (int, string, string) {
			r := b.Run(args...)
			return r.Code, r.Out, r.Err
		},
		Hit: w.net.Asked,
	}.Measure()
	for _, err := range problems {
		t.Error(err)
	}
	t.Logf("%d answers were measured, %d of them yes", compared, yes)
	if compared < 500 || yes < 200 || compared-yes < 200 {
		t.Errorf("only %d answers were measured, %d of them yes", compared, yes)
	}
}
