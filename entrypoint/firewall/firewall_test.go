package firewall

import (
	"os"
	"path/filepath"
	"testing"

	"ai-sandbox/entrypoint/spec"
)

// The texts were taken from `nft list ruleset` (1.1.3) in a sandbox.
func TestText(t *testing.T) {
	for _, c := range []struct {
		name string
		f    spec.Firewall
	}{
		{"gated", spec.Firewall{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3128}},
		{"published", spec.Firewall{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3128, Published: []uint16{3000, 5173}}},
		{"none", spec.Firewall{Mode: spec.ModeNone}},
		{"none", spec.Firewall{Mode: spec.ModeUnix}}, // the gate is no way of the network's
	} {
		name := c.name
		r, err := Build(c.f)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name+".nft"))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Text(); got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, f := range []spec.Firewall{
		{},
		{Mode: "open"},
		{Mode: spec.ModeHost},
		{Mode: spec.ModeGated},
		{Mode: spec.ModeGated, GateAddr: "169.254.77.1"},
		{Mode: spec.ModeGated, GateAddr: "0.0.0.0", GatePort: 1},
		{Mode: spec.ModeGated, GateAddr: "::1", GatePort: 1},
		{Mode: spec.ModeGated, GateAddr: "169.254.77.1/8", GatePort: 1},
	} {
		if r, err := Build(f); err == nil {
			t.Errorf("%+v: %s", f, r.Text())
		}
	}
}

// Whatever the spec, nothing is accepted but loopback, the gate's address with
// its port, and the published ports: in at them, and out as an answer.
func TestAcceptsOnlyTheGate(t *testing.T) {
	for port := 1; port <= 65535; port += 257 {
		r, err := Build(spec.Firewall{Mode: spec.ModeGated, GateAddr: "169.254.1.9", GatePort: uint16(port), Published: []uint16{3000}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Chains {
			for _, rule := range c.Rules {
				lo := rule.InIface == "lo" || rule.OutIface == "lo"
				out := rule.Dst.IsValid() && rule.TCPDst == uint16(port)
				in := rule.Src.IsValid() && rule.TCPSrc == uint16(port) && rule.Established
				begun := c.Name == "input" && rule.TCPDst == 3000 && rule.Begun && rule.Comment == PublishComment
				answer := c.Name == "output" && rule.TCPSrc == 3000 && rule.Answer && rule.Comment == PublishComment
				if rule.Verdict == Accept && !lo && !out && !in && !begun && !answer {
					t.Errorf("port %d, chain %s accepts %q", port, c.Name, rule)
				}
			}
		}
		last := r.Chains[2].Rules[len(r.Chains[2].Rules)-1]
		if last != (Rule{Counter: true, Log: true, Verdict: Reject}) {
			t.Errorf("the last rule of output is %q", last)
		}
	}
}
