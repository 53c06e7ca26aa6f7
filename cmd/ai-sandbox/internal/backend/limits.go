// Reading back the limits that a process is held to, by the kernel's own account.

package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ai-sandbox/policy"
)

// cgroupRoot is where every distribution with control groups of version 2 has them.
const cgroupRoot = "/sys/fs/cgroup"

// LimitDifferences compares what the kernel holds a process and all that it starts
// to with the limits that it is to hold. An error is what could not be looked at.
func LimitDifferences(pid int, l policy.Limits) ([]string, error) {
	var out []string
	if want := l.Pids.Held(policy.ByRlimit); want != 0 {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "limits"))
		if err != nil {
			return nil, fmt.Errorf("look at its limits: %w", err)
		}
		if got := maxProcesses(string(text)); got != want {
			out = append(out, fmt.Sprintf("it may have %s processes, and not %d", number(got), want))
		}
	}
	if !l.ByCgroup() {
		return out, nil
	}
	group, err := cgroupOf(pid)
	if err != nil {
		return nil, err
	}
	own, err := cgroupOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	if group == own {
		return append(out, "it has no control group of its own"), nil
	}
	return append(out, groupDifferences(cgroupRoot, group, l)...), nil
}

// maxProcesses is the limit of a /proc/PID/limits (proc_pid_limits(5)), 0 for none;
// a soft limit that is lower than the hard one can be raised, and counts as none.
func maxProcesses(text string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Max processes "); ok {
			f := strings.Fields(rest)
			if len(f) < 2 || f[0] != f[1] {
				return 0
			}
			n, _ := strconv.ParseInt(f[0], 10, 64) // "unlimited"
			return n
		}
	}
	return 0
}

// cgroupOf is the group of a process as it is named below cgroupRoot (cgroups(7)).
func cgroupOf(pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("look at its control group: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			if !filepath.IsAbs(group) || filepath.Clean(group) != group {
				return "", fmt.Errorf("look at its control group: %s is out of sight", policy.Quote(group))
			}
			return group, nil
		}
	}
	return "", fmt.Errorf("look at its control group: it is in none of version 2")
}

// groupDifferences compares the files of a group. An OCI runtime may have made one
// more below the scope, so the parent of what is no scope counts too.
func groupDifferences(root, group string, l policy.Limits) []string {
	dirs := []string{filepath.Join(root, group)}
	if !strings.HasSuffix(group, ".scope") && group != "/" {
		dirs = append(dirs, filepath.Dir(dirs[0]))
	}
	// lowest is the smaller of the values in both, by read.
	lowest := func(file string, read func(string) (int64, bool)) (int64, bool) {
		value, found := int64(0), false
		for _, dir := range dirs {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // the root of a namespace has none
			}
			if n, ok := read(strings.TrimSpace(string(text))); ok && (!found || n < value) {
				value, found = n, true
			}
		}
		return value, found
	}
	var out []string
	bad := func(what string, got int64, ok bool, want int64) {
		is := "no limit"
		if ok {
			is = strconv.FormatInt(got, 10)
		}
		out = append(out, fmt.Sprintf("%s is %s, and not %d", what, is, want))
	}
	if want := l.MemoryBytes.Held(policy.ByCgroup); want != 0 {
		// The kernel takes whole pages, which are of 64 KiB on some machines.
		if got, ok := lowest("memory.max", plain); !ok || got > want || got <= want-64<<10 {
			bad("memory.max", got, ok, want)
		}
		// A kernel without swap has no such file.
		if got, ok := lowest("memory.swap.max", plain); (!ok || got != 0) && exists(filepath.Join(dirs[0], "memory.swap.max")) {
			bad("memory.swap.max", got, ok, 0)
		}
	}
	if want := l.Pids.Held(policy.ByCgroup); want != 0 {
		if got, ok := lowest("pids.max", plain); !ok || got != want {
			bad("pids.max", got, ok, want)
		}
	}
	if want := l.CPUsMilli.Held(policy.ByCgroup); want != 0 {
		if got, ok := lowest("cpu.max", quota); !ok || got != want {
			bad("cpu.max, in thousandths of a processor,", got, ok, want)
		}
	}
	return out
}

// plain reads a number; "max" is no limit.
func plain(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// quota reads a cpu.max: microseconds of each so many.
func quota(s string) (int64, bool) {
	q, period, _ := strings.Cut(s, " ")
	n, ok := plain(q)
	p, okPeriod := plain(period)
	if !ok || !okPeriod || p <= 0 {
		return 0, false
	}
	return n * 1000 / p, true
}

func number(n int64) string {
	if n == 0 {
		return "any number of"
	}
	return strconv.FormatInt(n, 10)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TmpfsSize is what the options of a tmpfs in a mount table say of its size, in
// bytes (tmpfs(5); the kernel shows whole pages, in units of 1024), or 0.
func TmpfsSize(options string) int64 {
	for o := range strings.SplitSeq(options, ",") {
		if v, ok := strings.CutPrefix(o, "size="); ok {
			if n, ok := plain(strings.TrimSuffix(v, "k")); ok {
				return n << 10
			}
		}
	}
	return 0
}
