//go:build e2e

package e2e

import (
	"strings"
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
		Token: b.token, Marker: w.net.Marker, Project: b.dir,
		Run: func(args ...string) (int, string, string) {
			r := b.run(args...)
			return r.Code, r.Out, r.Err
		},
		Hit: func(path string) bool { return asked(path) },
	}.Measure()
	for _, err := range problems {
		t.Error(err)
	}
	t.Logf("%d answers were measured, %d of them yes", compared, yes)
	if compared < 500 || yes < 200 || compared-yes < 200 {
		t.Errorf("only %d answers were measured, %d of them yes", compared, yes)
	}
}

// asked tells whether a far web server was asked for a path.
func asked(path string) bool {
	for _, h := range w.net.Hits(path) {
		if h.Net == "http" && strings.TrimPrefix(h.Path, "/") == path {
			return true
		}
	}
	return false
}
