package cli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"ai-sandbox/tests/schema"
)

// What is cleaned is told in lines, or as the JSON that is documented, and the same in
// both, also where something could not be removed.
func TestCleanTells(t *testing.T) {
	doc, err := filepath.Abs("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	s.cleaned = []Cleaned{
		{What: "session 0123456789ab", Why: "its owner is gone", Goes: true},
		{What: "home \x1b[2J", Why: "a session uses it"},
	}
	for _, c := range []struct {
		args     []string
		fails    error
		out, err string
		code     int
	}{
		{[]string{"clean"}, nil, "removed session 0123456789ab: its owner is gone\nremoved 1\n", "ai-sandbox: home \\x1b[2J stays: a session uses it\n", 0},
		{[]string{"clean", "--dry-run"}, nil, "would remove session 0123456789ab: its owner is gone\nwould remove 1\n", "ai-sandbox: home \\x1b[2J stays: a session uses it\n", 0},
		{[]string{"clean"}, errors.New("x"), "removed session 0123456789ab: its owner is gone\nremoved 1\n", "ai-sandbox: home \\x1b[2J stays: a session uses it\nai-sandbox: error: x\n", 1},
	} {
		s.cleanFails = c.fails
		if code := s.do(c.args...); code != c.code || s.out.String() != c.out || s.err.String() != c.err {
			t.Errorf("%q: exit %d: %q, %q", c.args, code, s.out.String(), s.err.String())
		}
		var got cleaning
		code := s.do(append(c.args, "--json")...)
		if err := json.Unmarshal(s.out.Bytes(), &got); err != nil || code != c.code || (s.err.Len() > 0) != (c.fails != nil) {
			t.Errorf("%q --json: exit %d, %v: %s%s", c.args, code, err, s.out.String(), s.err.String())
		}
		if want := (cleaning{Version: 1, DryRun: len(c.args) > 1, Items: s.cleaned}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", c.args, got)
		}
		if err := schema.Documented(doc, "cleaning", s.out.Bytes()); err != nil {
			t.Error(err)
		}
	}
}
