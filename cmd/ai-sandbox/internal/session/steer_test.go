package session

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

func parsed(t *testing.T, list string) []policy.Entry {
	t.Helper()
	out, err := policy.ParseEntries(strings.Fields(list))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSteeredLists(t *testing.T) {
	for _, c := range []struct {
		allow, private          string
		more, morePrivate, deny string
		want, wantPrivate, err  string
	}{
		{allow: "a.test", more: "b.test a.test", want: "a.test b.test"},
		{allow: "a.test", more: ".a.test", want: ".a.test"},
		{allow: "a.test", morePrivate: "10.0.0.1:80", want: "a.test", wantPrivate: "10.0.0.1:80"},
		{allow: "a.test b.test", deny: "a.test", want: "b.test"},
		{allow: "a.test .b.test x.b.test:8443", deny: ".b.test", want: "a.test x.b.test:8443"},
		{allow: "a.test", private: "a.test 10.0.0.0/8", deny: "a.test", wantPrivate: "10.0.0.0/8"},
		{allow: ".b.test", deny: "a.b.test", err: "a.b.test is let through by .b.test, and a list has no exceptions"},
		{private: "10.0.0.0/8", deny: "10.1.2.3", err: "is let through by 10.0.0.0/8"},
		{allow: "a.test", deny: "b.test", err: "nothing on the list lets b.test through"},
		{allow: "a.test", deny: "a.test", more: "a.test", want: "a.test"}, // what is asked for last
	} {
		n := policy.Net{Mode: policy.NetGated, Allow: parsed(t, c.allow), AllowPrivate: parsed(t, c.private)}
		got, err := Steered(n, Steering{Allow: parsed(t, c.more), AllowPrivate: parsed(t, c.morePrivate), Deny: parsed(t, c.deny)})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || strings.Join(texts(got.Allow), " ") != strings.Join(texts(policy.Normalise(parsed(t, c.want))), " ") || strings.Join(texts(got.AllowPrivate), " ") != c.wantPrivate {
			t.Errorf("%+v: %q and %q, %v", c, texts(got.Allow), texts(got.AllowPrivate), err)
		}
	}
	if _, err := Steered(policy.Net{}, Steering{Allow: []policy.Entry{{Name: "x y"}}}); err == nil {
		t.Error("what no grammar gives is taken")
	}
}

// Entries keep their number for as long as the gate runs, in use or not.
func TestClassesStay(t *testing.T) {
	c := gate.Config{Allow: parsed(t, "b.test c.test")}
	c.Classes = c.Listed()
	second := classesOf(c, parsed(t, "a.test c.test"))
	third := classesOf(gate.Config{Classes: second}, parsed(t, "b.test a.test"))
	if got := strings.Join(texts(second), " "); got != "b.test c.test a.test" || strings.Join(texts(third), " ") != got {
		t.Errorf("%q, then %q", got, texts(third))
	}
}

// A session that does not run is none, whatever its id looks like.
func TestSteerNobody(t *testing.T) {
	e := newEnv(t, exits(spec.Exited{}))
	for _, id := range []string{"", "x", "../../x", "0123456789ab"} {
		if _, err := e.m.Steer(context.Background(), id, Steering{}); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
