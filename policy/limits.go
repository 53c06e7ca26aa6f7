// What a run may use of the machine: the grammars of the five limits, and what
// becomes of one that this machine can't enforce.

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// What holds a limit.
const (
	ByCgroup  = "cgroup"  // the kernel, for the sandbox as a whole (cgroups(7), version 2)
	ByRlimit  = "rlimit"  // the kernel, for its user and namespace (getrlimit(2), RLIMIT_NPROC)
	ByTmpfs   = "tmpfs"   // the size of a file system
	BySession = "session" // the process that owns the run
)

// Limits are what a run may use.
type Limits struct {
	// MemoryBytes is what its processes and its tmpfs mounts hold at a time; there
	// is no swap beyond it.
	MemoryBytes Limit `json:"memory_bytes"`
	CPUsMilli   Limit `json:"cpus_milli"` // thousandths of a processor's time
	Pids        Limit `json:"pids"`       // processes and threads at a time
	// TimeSeconds is by the clock that stands still while the machine sleeps
	// (CLOCK_MONOTONIC), from the command's start on.
	TimeSeconds Limit `json:"time_seconds"`
	// DiskBytes is /tmp and /var/tmp together, see tmpSizes.
	DiskBytes Limit `json:"disk_bytes"`
}

// A Limit is one number and what holds it.
type Limit struct {
	Value int64 `json:"value"` // 0 is no limit
	// Asked: somebody set it, and it is no default.
	Asked bool `json:"asked"`
	// By is what holds it; "" where there is none, or where this machine can't,
	// which NotEnforced gives the reason of. That is never a limit that was asked for.
	By          string `json:"enforced_by,omitempty"`
	NotEnforced string `json:"not_enforced,omitempty"`
}

// Held is the value if that is to hold it, and else 0.
func (l Limit) Held(by string) int64 {
	if l.By != by {
		return 0
	}
	return l.Value
}

// LimitFacts are what can hold a limit on this machine for the chosen runtime.
type LimitFacts struct{ Memory, CPUs, Pids Enforcement }

// An Enforcement is ByCgroup or ByRlimit, or with "" the reason why there is none
// and what to do about it.
type Enforcement struct{ By, Why string }

// A LimitInput is one limit as it was written, and where. Without an Origin it is
// a default. A missing text is no limit.
type LimitInput struct{ Text, Origin string }

// LimitInputs are all of them. There is always a limit of the disk: the least,
// where there is no text.
type LimitInputs struct{ Memory, CPUs, Pids, Time, Disk LimitInput }

// NoLimit lifts a limit that a layer below has set.
const NoLimit = "none"

// The least that makes sense, and the most that a kernel takes.
const (
	minMemory = 32 * mib // the entrypoint takes 10 MiB, a shell 4
	minPids   = 32       // the entrypoint has about ten threads
	minCPUs   = 10       // the kernel gives out no less than 1 ms of each 100 ms
	minDisk   = 16 * mib
	maxBytes  = 1 << 60
	maxPids   = 1 << 22  // PID_MAX_LIMIT
	maxCPUs   = 4096_000 // NR_CPUS of any kernel is lower
	maxTime   = 100 * 365 * 24 * time.Hour
)

// ParseMemory reads a size as --memory has it: digits, and k, m, g or t for units
// of 1024. It is 0 for none.
func ParseMemory(s string) (int64, error) {
	if s == NoLimit {
		return 0, nil
	}
	return parseSize("memory", s, minMemory, "the sandbox's own first process and a shell take half of that", "2g, 512m or none")
}

// ParseDisk reads a size as --disk has it. It can't be lifted: a tmpfs without a
// size takes half of the machine's memory.
func ParseDisk(s string) (int64, error) {
	if s == NoLimit {
		return 0, errors.New("disk can't be none: /tmp and /var/tmp are in memory; write a size, as 8g")
	}
	return parseSize("disk", s, minDisk, "programs need a little room for temporary files", "3g or 512m")
}

// ParseSize reads a size that is another setting's than a limit. It is 0 for none.
func ParseSize(key, s string, least int64, why string) (int64, error) {
	if s == NoLimit {
		return 0, nil
	}
	return parseSize(key, s, least, why, "256m, 1g or none")
}

func parseSize(key, s string, least int64, why, like string) (int64, error) {
	bad := fmt.Errorf("%s %s is not a size; write it as %s (k, m, g and t are units of 1024)", key, Quote(s), like)
	digits, shift := s, 0
	if n := len(s); n > 0 {
		if i := strings.IndexByte("kmgt", s[n-1]|0x20); i >= 0 && s[n-1] >= 'A' {
			digits, shift = s[:n-1], 10*(i+1)
		}
	}
	n, ok := parseDigits(digits)
	if !ok {
		return 0, bad
	}
	if n > maxBytes>>shift {
		return 0, fmt.Errorf("%s %s is more than any machine has; write it as %s", key, Quote(s), like)
	}
	if n <<= shift; n < least {
		return 0, fmt.Errorf("%s %s is too little: %s; the least is %s", key, Quote(s), why, Size(least))
	}
	return n, nil
}

// parseDigits reads a decimal number of at most 18 digits, spelled in the one way.
func parseDigits(s string) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// ParseCPUs reads a number of processors, with up to three digits behind a point,
// as thousandths. It is 0 for none.
func ParseCPUs(s string) (int64, error) {
	if s == NoLimit {
		return 0, nil
	}
	whole, part, point := strings.Cut(s, ".")
	n, ok := parseDigits(whole)
	if point {
		ok = ok && part != "" && len(part) <= 3 && strings.Trim(part, "0123456789") == ""
	}
	if !ok {
		return 0, fmt.Errorf("cpus %s is not a number of processors; write it as 1.5, 2 or none", Quote(s))
	}
	if n > maxCPUs/1000 {
		return 0, fmt.Errorf("cpus %s is more than any machine has; write it as 1.5, 2 or none", Quote(s))
	}
	milli := n * 1000
	if point {
		p, _ := strconv.ParseInt((part + "00")[:3], 10, 64) // digits, as seen above
		milli += p
	}
	if milli < minCPUs {
		return 0, fmt.Errorf("cpus %s is too little: the kernel gives out no smaller share than 0.01; write at least that", Quote(s))
	}
	return milli, nil
}

// ParsePids reads a number of processes and threads. It is 0 for none.
func ParsePids(s string) (int64, error) {
	if s == NoLimit {
		return 0, nil
	}
	n, ok := parseDigits(s)
	switch {
	case !ok:
		return 0, fmt.Errorf("pids %s is not a number of processes; write it as 4096 or none", Quote(s))
	case n > maxPids:
		return 0, fmt.Errorf("pids %s is more than a kernel can have, which is %d; write none", Quote(s), maxPids)
	case n < minPids:
		return 0, fmt.Errorf("pids %s is too little: threads count, and the sandbox's own first process has about ten; the least is %d", Quote(s), minPids)
	}
	return n, nil
}

// ParseTime reads a Go duration of whole seconds. It is 0 for none.
func ParseTime(s string) (int64, error) {
	if s == NoLimit {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || s[0] == '+' || s[0] == '-':
		return 0, fmt.Errorf("time %s is not a duration; write it as 90s, 2h30m or none", Quote(s))
	case d < time.Second:
		return 0, fmt.Errorf("time %s is too little: a start alone takes a part of a second; the least is 1s", Quote(s))
	case d%time.Second != 0:
		return 0, fmt.Errorf("time %s is not of whole seconds; round it", Quote(s))
	case d > maxTime:
		return 0, fmt.Errorf("time %s is longer than a hundred years; write none", Quote(s))
	}
	return int64(d / time.Second), nil
}

// LimitAmount is the value of a limit for comparing two of them; no limit is more
// than any.
func LimitAmount(parse func(string) (int64, error)) func(string) (float64, error) {
	return func(s string) (float64, error) {
		if s == "" {
			return math.Inf(1), nil
		}
		n, err := parse(s)
		if n == 0 {
			return math.Inf(1), err
		}
		return float64(n), err
	}
}

// resolveLimits decides the limits, and refuses one that was asked for and can't
// be enforced here.
func resolveLimits(in LimitInputs, f LimitFacts) (l Limits, err error) {
	var errs []error
	if in.Disk.Text == "" {
		in.Disk.Text = strconv.Itoa(minDisk)
	}
	for _, one := range []struct {
		to    *Limit
		key   string
		in    LimitInput
		parse func(string) (int64, error)
		by    Enforcement
	}{
		{&l.MemoryBytes, "memory", in.Memory, ParseMemory, f.Memory},
		{&l.CPUsMilli, "cpus", in.CPUs, ParseCPUs, f.CPUs},
		{&l.Pids, "pids", in.Pids, ParsePids, f.Pids},
		{&l.TimeSeconds, "time", in.Time, ParseTime, Enforcement{By: BySession}},
		{&l.DiskBytes, "disk", in.Disk, ParseDisk, Enforcement{By: ByTmpfs}},
	} {
		if one.in.Text == "" {
			continue
		}
		one.to.Asked = one.in.Origin != ""
		one.to.Value, err = one.parse(one.in.Text)
		from := ""
		if one.to.Asked {
			from = " (from " + one.in.Origin + ")"
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%w%s", err, from))
		case one.to.Value == 0:
		case one.by.By != "":
			one.to.By = one.by.By
		case one.to.Asked:
			errs = append(errs, fmt.Errorf("%s %s%s can't be enforced here: %s; or drop it", one.key, Quote(one.in.Text), from, one.by.Why))
		default:
			one.to.NotEnforced = one.by.Why
		}
	}
	return l, errors.Join(errs...)
}

// Notes are a sentence for each default that this machine can't enforce.
func (l Limits) Notes() []string {
	var out []string
	for _, s := range l.lines() {
		if s.l.NotEnforced != "" {
			out = append(out, fmt.Sprintf("the default limit of %s %s is not enforced: %s", s.value, s.unit, s.l.NotEnforced))
		}
	}
	return out
}

// tmpSizes are the sizes of /tmp and /var/tmp: two parts and one, in whole MiB.
func tmpSizes(disk int64) (tmp, varTmp int64) {
	varTmp = disk / 3 / mib * mib
	return (disk - varTmp) / mib * mib, varTmp
}

type limitLine struct {
	label, value, unit string
	l                  Limit
}

func (l Limits) lines() []limitLine {
	return []limitLine{
		{"memory", Size(l.MemoryBytes.Value), "of memory", l.MemoryBytes},
		{"cpus", strconv.FormatFloat(float64(l.CPUsMilli.Value)/1000, 'f', -1, 64), "processors", l.CPUsMilli},
		{"pids", strconv.FormatInt(l.Pids.Value, 10), "processes and threads", l.Pids},
		{"time", (time.Duration(l.TimeSeconds.Value) * time.Second).String(), "of time", l.TimeSeconds},
		{"disk", Size(l.DiskBytes.Value), "of temporary files", l.DiskBytes},
	}
}

// limits is the printout's section.
func (b *page) limits(l Limits) {
	b.WriteString("\nlimits; the project and the home have none of ours\n")
	for _, s := range l.lines() {
		words := "none"
		if s.l.Value != 0 {
			words = s.value
			if !s.l.Asked {
				words += " (default)"
			}
			switch {
			case s.l.NotEnforced != "":
				words += ", NOT ENFORCED: " + s.l.NotEnforced
			case s.l.By == BySession:
				words += ", then SIGTERM"
			case s.l.By == ByTmpfs:
				tmp, varTmp := tmpSizes(s.l.Value)
				words += fmt.Sprintf(": %s for /tmp and %s for /var/tmp", Size(tmp), Size(varTmp))
			default:
				words += ", held by the kernel (" + s.l.By + ")"
			}
		}
		b.text("  "+s.label, words)
	}
}

// Size is a number of bytes in the largest unit that shows it exactly.
func Size(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n>>u.shift != 0 && n&(1<<u.shift-1) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// ByCgroup tells whether a control group holds any of them.
func (l Limits) ByCgroup() bool {
	for _, one := range []Limit{l.MemoryBytes, l.CPUsMilli, l.Pids} {
		if one.Held(ByCgroup) != 0 {
			return true
		}
	}
	return false
}
