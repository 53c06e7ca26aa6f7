// The limits of a container: what podman is asked for, and what came of it.

package podman

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

// cpuPeriod is the kernel's own, in microseconds.
const cpuPeriod = 100_000

// bound asks for the limits that the policy says can be held. Without any the
// specification says nothing: a runtime that has no control group refuses one.
func bound(s *specgen.SpecGenerator, l policy.Limits) {
	if n := l.Pids.Held(policy.ByRlimit); n != 0 {
		s.Rlimits = []spec.POSIXRlimit{{Type: "nproc", Hard: uint64(n), Soft: uint64(n)}}
	}
	var r spec.LinuxResources
	if n := l.MemoryBytes.Held(policy.ByCgroup); n != 0 {
		swap := n // with the memory: none beyond it (config-linux.md of the OCI runtime specification)
		r.Memory = &spec.LinuxMemory{Limit: &n, Swap: &swap}
	}
	if n := l.CPUsMilli.Held(policy.ByCgroup); n != 0 {
		period, quota := uint64(cpuPeriod), n*cpuPeriod/1000
		r.CPU = &spec.LinuxCPU{Period: &period, Quota: &quota}
	}
	switch {
	case l.Pids.Held(policy.ByCgroup) != 0:
		r.Pids = &spec.LinuxPids{Limit: l.Pids.Value}
	case l.ByCgroup() || l.Pids.Asked && l.Pids.Value == 0:
		r.Pids = &spec.LinuxPids{Limit: -1} // or podman adds its own
	}
	if r.Memory != nil || r.CPU != nil || r.Pids != nil {
		s.ResourceLimits = &r
	}
}

// limitDifferences compares the limits as the OCI runtime was told, and as the
// kernel has them.
func limitDifferences(oci *spec.Spec, data *define.InspectContainerData, s *specgen.SpecGenerator, l policy.Limits) ([]difference, error) {
	problems := toldDifferences(oci.Linux.Resources, l)
	if data.State == nil || data.State.Pid == 0 {
		return nil, errors.New("it does not run")
	}
	kernel, err := backend.LimitDifferences(data.State.Pid, l)
	if err != nil {
		return nil, err
	}
	var p []difference
	for _, what := range append(problems, kernel...) {
		p = append(p, difference{what, "cgroups, cgroup_manager"})
	}
	table, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(data.State.Pid), "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("look at its mounts: %w", err)
	}
	return append(p, sizeDifferences(string(table), s.Mounts)...), nil
}

func toldDifferences(r *spec.LinuxResources, l policy.Limits) []string {
	if r == nil {
		r = &spec.LinuxResources{}
	}
	var out []string
	if want := l.MemoryBytes.Held(policy.ByCgroup); want != 0 && (r.Memory == nil || r.Memory.Limit == nil || *r.Memory.Limit != want) {
		out = append(out, "its runtime was told another limit of memory")
	}
	if want := l.CPUsMilli.Held(policy.ByCgroup); want != 0 && (r.CPU == nil || r.CPU.Quota == nil || *r.CPU.Quota != want*cpuPeriod/1000) {
		out = append(out, "its runtime was told another limit of processors")
	}
	if want := l.Pids.Held(policy.ByCgroup); want != 0 && (r.Pids == nil || r.Pids.Limit != want) {
		out = append(out, "its runtime was told another limit of processes")
	}
	return out
}

// sizeDifferences compares the sizes of the tmpfs mounts in the kernel's table
// (proc_pid_mountinfo(5)).
func sizeDifferences(table string, mounts []spec.Mount) []difference {
	got := map[string]int64{}
	for line := range strings.Lines(table) {
		head, tail, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		if f, t := strings.Fields(head), strings.Fields(tail); len(f) > 4 && len(t) > 2 && t[0] == "tmpfs" {
			got[f[4]] = backend.TmpfsSize(t[2])
		}
	}
	var p []difference
	for _, m := range mounts {
		for _, o := range m.Options {
			size, ok := strings.CutPrefix(o, "size=")
			if want, _ := strconv.ParseInt(size, 10, 64); ok && m.Type == "tmpfs" && got[m.Destination] != want {
				p = append(p, difference{fmt.Sprintf("the tmpfs at %s holds %d bytes, and not %d", m.Destination, got[m.Destination], want), ""})
			}
		}
	}
	return p
}
