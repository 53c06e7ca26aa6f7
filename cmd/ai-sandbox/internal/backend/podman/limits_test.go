package podman

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"

	"ai-sandbox/policy"
)

func by(what string, n int64) policy.Limit { return policy.Limit{Value: n, By: what} }

func TestBound(t *testing.T) {
	for name, tc := range map[string]struct {
		l    policy.Limits
		want string
	}{
		"none":         {policy.Limits{}, `{}`},
		"not enforced": {policy.Limits{Pids: policy.Limit{Value: 4096, NotEnforced: "no systemd"}}, `{}`},
		"default":      {policy.Limits{Pids: by(policy.ByCgroup, 4096)}, `{"resource_limits":{"pids":{"limit":4096}}}`},
		"rlimit":       {policy.Limits{Pids: by(policy.ByRlimit, 4096)}, `{"r_limits":[{"type":"nproc","hard":4096,"soft":4096}]}`},
		// podman would add its own.
		"lifted": {policy.Limits{Pids: policy.Limit{Asked: true}}, `{"resource_limits":{"pids":{"limit":-1}}}`},
		"all": {policy.Limits{Pids: by(policy.ByCgroup, 100), MemoryBytes: by(policy.ByCgroup, 1<<30), CPUsMilli: by(policy.ByCgroup, 1500)},
			`{"resource_limits":{"memory":{"limit":1073741824,"swap":1073741824},"cpu":{"quota":150000,"period":100000},"pids":{"limit":100}}}`},
	} {
		s := new(specgen.SpecGenerator)
		bound(s, tc.l)
		got, err := json.Marshal(struct {
			ResourceLimits *spec.LinuxResources `json:"resource_limits,omitempty"`
			Rlimits        []spec.POSIXRlimit   `json:"r_limits,omitempty"`
		}{s.ResourceLimits, s.Rlimits})
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if d := toldDifferences(s.ResourceLimits, tc.l); len(d) > 0 {
			t.Errorf("%s: %q", name, d)
		}
		if d := toldDifferences(nil, tc.l); (len(d) > 0) != tc.l.ByCgroup() {
			t.Errorf("%s: %q when nothing was told", name, d)
		}
	}
}

func TestSizeDifferences(t *testing.T) {
	mounts := []spec.Mount{tmpfs("/tmp", 2<<30, "1777"), bind("/a", "/b", false, false)}
	const table = "10 9 0:50 / / rw - overlay overlay rw\n11 10 0:51 / /tmp rw,nosuid - tmpfs tmpfs rw,size=2097152k,mode=1777\n"
	if d := sizeDifferences(table, mounts); len(d) > 0 {
		t.Errorf("%v", d)
	}
	for _, other := range []string{strings.Replace(table, "size=2097152k", "size=4097152k", 1), strings.Replace(table, "size=2097152k,", "", 1), ""} {
		if d := sizeDifferences(other, mounts); len(d) != 1 {
			t.Errorf("%q: %v", other, d)
		}
	}
}
