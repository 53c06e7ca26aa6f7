package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
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

// Entries keep their number while they are in use, and who comes later gets one that is
// free by then.
func TestClassesStay(t *testing.T) {
	c := gate.Config{Allow: parsed(t, "b.test c.test")}
	c.Classes = c.Listed()
	for _, step := range []struct{ list, private, want, gone string }{
		{"a.test c.test", "", "b.test c.test a.test", "b.test"},
		{"a.test b.test", "", "b.test c.test a.test", "c.test"},
		{"a.test d.test e.test", "", "b.test d.test a.test e.test", "b.test"},
		// What is open to d.test stays, and keeps the number until its cover is denied.
		{"a.test e.test .d.test f.test", "", ".d.test d.test a.test e.test f.test", ""},
		{".d.test g.test", "", ".d.test d.test a.test e.test f.test g.test", "a.test e.test f.test"},
		{".d.test h.test", "", ".d.test d.test h.test e.test f.test g.test", "g.test"},
		{"i.test", "", ".d.test d.test h.test i.test f.test g.test", ".d.test d.test h.test"},
		// One that comes back has its number again, whoever comes with it.
		{"c.test d.test i.test", "", "c.test d.test h.test i.test f.test g.test", ""},
		{"i.test", "c.test x.d.test .d.test:8080", "c.test d.test .d.test:8080 i.test x.d.test g.test", "d.test"},
		// What may have led to a private address may not any more.
		{"c.test .d.test i.test", ".d.test:8080", "- c.test .d.test:8080 i.test - .d.test", "c.test x.d.test"},
		{"c.test .d.test:8080 .d.test", "i.test", ".d.test:8080 c.test - i.test - .d.test", ".d.test:8080"},
		{"c.test .d.test:8080 .d.test i.test", "", ".d.test:8080 c.test i.test - - .d.test", "i.test"},
	} {
		was := c
		c.Allow, c.AllowPrivate = parsed(t, step.list), parsed(t, step.private)
		c.Classes = classesOf(was, c)
		names := texts(c.Classes)
		for i, n := range names {
			if n == "" {
				names[i] = "-"
			}
		}
		if got := strings.Join(names, " "); got != step.want {
			t.Errorf("with %s, and %s: %s, want %s", step.list, step.private, got, step.want)
		}
		gone, err := goneClasses(was, c)
		var cut []string
		for i, e := range was.Classes {
			if gone[gate.ClassAddr(i)] {
				cut = append(cut, e.String())
			}
		}
		if got := strings.Join(cut, " "); err != nil || got != step.gone {
			t.Errorf("with %s, and %s: %s is cut (%v), want %s", step.list, step.private, got, err, step.gone)
		}
	}
}

// What squid can't tell from the rest can't be denied, but together with all of it.
func TestGoneClasses(t *testing.T) {
	var names []string
	for i := range gate.MaxClasses + 1 {
		names = append(names, fmt.Sprintf("h%d.z.test", i))
	}
	classes := parsed(t, strings.Join(names, " "))
	last := len(classes) - 1
	without := func(i int) []policy.Entry { return slices.Delete(slices.Clone(classes), i, i+1) }
	goneOf := func(classes, before, after []policy.Entry) (map[netip.Addr]bool, error) {
		was, c := gate.Config{Allow: before, Classes: classes}, gate.Config{Allow: after}
		c.Classes = classesOf(was, c)
		return goneClasses(was, c)
	}
	if gone, err := goneOf(classes, classes, without(last-1)); err != nil || len(gone) != 1 || !gone[gate.ClassAddr(last-1)] {
		t.Errorf("the last that has an address: %v, %v", gone, err)
	}
	if gone, err := goneOf(classes, classes, without(last)); err == nil || !strings.Contains(err.Error(), classes[last].String()+" can't be denied") {
		t.Errorf("the first that has none: %v, %v", gone, err)
	}
	if gone, err := goneOf(classes, classes, append(parsed(t, "more.test"), classes...)); err != nil || len(gone) > 0 {
		t.Errorf("one more: %v, %v", gone, err)
	}
	// What another entry covers goes with that, and not before.
	wide := append(parsed(t, ".h0.z.test"), classes[1:]...)
	if gone, err := goneOf(classes, classes, wide); err != nil || len(gone) > 0 {
		t.Errorf("one of them covered: %v, %v", gone, err)
	}
	if gone, err := goneOf(classes, classes, parsed(t, ".z.test")); err != nil || len(gone) > 0 {
		t.Errorf("all of them covered: %v, %v", gone, err)
	}
	if gone, err := goneOf(append(classes[:1:1], wide[:last-1]...), wide[:last-1], wide[1:last-1]); err != nil || len(gone) != 2 || !gone[gate.ClassAddr(0)] || !gone[gate.ClassAddr(1)] {
		t.Errorf("what covers one of them is denied: %v, %v", gone, err)
	}
	if gone, err := goneOf(classes, classes, nil); err != nil || len(gone) != gate.MaxClasses+1 || !gone[gate.Unclassed] {
		t.Errorf("all of them: %d, %v", len(gone), err)
	}
	if gone, err := goneOf(classes, nil, parsed(t, "more.test")); err != nil || len(gone) > 0 {
		t.Errorf("one after all of them: %v, %v", gone, err)
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

// A session is changed while it runs, by this user's processes, and its gate itself
// says by what it goes.
func TestSteerSession(t *testing.T) {
	hold := make(chan struct{})
	e := newEnv(t, func(in, out *os.File) error {
		if _, err := enforced(in, out); err != nil {
			return err
		}
		if err := spec.WriteFrame(out, spec.ToHost{Started: true}); err != nil {
			return err
		}
		<-hold
		return spec.WriteFrame(out, spec.ToHost{Exited: &spec.Exited{}})
	})
	p, err := policy.Resolve(policy.Input{
		Facts:   policy.Facts{Project: e.project, RuntimeDir: e.m.RuntimeDir, EnvSet: func(string) bool { return false }},
		Runtime: policy.RuntimePodman, Command: []string{"true"}, Net: policy.NetUnix, Engine: policy.EngineBuiltin, Allow: parsed(t, "a.test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	const canary = "canary-4711-Xyz"
	p.Settings = []policy.Setting{{Key: "profile", Values: []string{canary}}}
	redact := policy.NewRedactor([]policy.Secret{policy.NewSecret("TOKEN", canary)})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reports := make(chan Report, 1)
	go func() {
		rep, err := e.m.Run(ctx, e.be, Request{Policy: p, Redact: redact, Streams: backend.Streams{Stdout: io.Discard, Stderr: io.Discard}, Signals: e.signals, Start: time.Now(), Project: e.id})
		if err != nil {
			t.Error(err)
		}
		reports <- rep
	}()
	var id string
	var f Force
	for ctx.Err() == nil {
		if names, err := filepath.Glob(filepath.Join(e.m.RuntimeDir, "*", steerSocket)); err == nil && len(names) == 1 {
			id = filepath.Base(filepath.Dir(names[0]))
			if f, err = e.m.Steer(ctx, id, Steering{}); err == nil {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	if f.Hash != PolicyHash(p.Net) || !strings.Contains(string(f.Policy), `"a.test"`) || !strings.Contains(string(f.Policy), `"[TOKEN]"`) || strings.Contains(string(f.Policy), canary) {
		t.Fatalf("in force: %+v", f)
	}
	if f, err = e.m.Steer(ctx, id, Steering{Allow: parsed(t, "b.test"), Deny: parsed(t, "a.test")}); err != nil {
		t.Fatal(err)
	}
	n := policy.Net{Allow: parsed(t, "b.test")}
	if f.Hash != PolicyHash(n) || strings.Contains(string(f.Policy), `"a.test"`) {
		t.Errorf("in force: %+v", f)
	}
	if _, err := e.m.Steer(ctx, id, Steering{Deny: parsed(t, "c.test")}); err == nil {
		t.Error("what nothing lets through is denied")
	}
	close(hold)
	rep := <-reports
	if len(rep.Changes) != 1 || rep.Changes[0].Allow[0] != "b.test" || rep.Changes[0].Deny[0] != "a.test" {
		t.Errorf("the report has %+v", rep.Changes)
	}
	if l, err := e.m.Logs(rep.Session); err != nil || !slices.ContainsFunc(l.Events, func(ev trace.Event) bool {
		return ev.Event == trace.Changed && ev.Reason == "allow b.test; deny a.test"
	}) {
		t.Errorf("%v: %+v", err, l.Events)
	}
	e.clean(t)
}
