package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestLearn(t *testing.T) {
	in := Input{Facts: Facts{Project: "/home/u/p", EnvSet: func(string) bool { return true }}, Command: []string{"true"}, Net: NetLearn, Env: []string{"TOKEN", "A=b"}}
	for runtime, mode := range map[string]string{RuntimePodman: NetGated, RuntimeLocal: NetUnix} {
		in := in
		in.Runtime = runtime
		p, err := Resolve(in)
		if err != nil {
			t.Fatal(err)
		}
		if p.Net.Mode != mode || !p.Net.Learn || p.Net.Engine != EngineBuiltin || !slices.Contains(p.Unusual, Learning) || !slices.Contains(p.Loud(), Learning) || !strings.Contains(p.Text(), "LEARN") {
			t.Errorf("%s: %+v, %q", runtime, p.Net, p.Unusual)
		}
		if got := p.Secrets(); !slices.Equal(got, []string{"TOKEN"}) {
			t.Errorf("secrets: %q", got)
		}
		was, other := p, in
		other.Net = ""
		if p, err = Resolve(other); err != nil || p.Net.Learn {
			t.Fatalf("%+v, %v", p.Net, err)
		}
		if d := Diff(p, was); len(d.More) == 0 || !strings.Contains(strings.Join(d.More, "\n"), "net learn") {
			t.Errorf("%s", d.Text())
		}
		if d := Diff(was, p); len(d.Less) == 0 || len(d.More) > 0 {
			t.Errorf("%s", d.Text())
		}
	}
	for want, change := range map[string]func(*Input){
		"drop gate":              func(in *Input) { in.GateName = "work" },
		"drop gate_engine squid": func(in *Input) { in.Engine = EngineSquid },
	} {
		in := in
		in.Runtime = RuntimePodman
		change(&in)
		if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
