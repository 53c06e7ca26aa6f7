package policy

import (
	"math"
	"strings"
	"testing"
)

func TestParseLimits(t *testing.T) {
	for _, tc := range []struct {
		parse func(string) (int64, error)
		text  string
		want  int64
		fails string // part of the error; "" is no error
	}{
		{ParseMemory, "2g", 2 << 30, ""},
		{ParseMemory, "512M", 512 << 20, ""},
		{ParseMemory, "33554432", 32 << 20, ""},
		{ParseMemory, "1t", 1 << 40, ""},
		{ParseMemory, "none", 0, ""},
		{ParseMemory, "32767k", 0, "the least is 32 MiB"},
		{ParseMemory, "0", 0, "the least is"},
		{ParseMemory, "", 0, "is not a size"},
		{ParseMemory, "g", 0, "is not a size"},
		{ParseMemory, "-1g", 0, "is not a size"},
		{ParseMemory, "+1g", 0, "is not a size"},
		{ParseMemory, "1.5g", 0, "is not a size"},
		{ParseMemory, "1gb", 0, "is not a size"},
		{ParseMemory, "1 g", 0, "is not a size"},
		{ParseMemory, "010g", 0, "is not a size"},
		{ParseMemory, "0x10", 0, "is not a size"},
		{ParseMemory, "1G\n", 0, "is not a size"},
		{ParseMemory, "١g", 0, "is not a size"},
		{ParseMemory, "16777216t", 0, "more than any machine has"}, // 1<<64
		{ParseMemory, "999999999999999999", 999999999999999999, ""},
		{ParseMemory, "9999999999999999999", 0, "is not a size"},
		{ParseMemory, "+", 0, "is not a size"},
		{ParseMemory, "1+", 0, "is not a size"},
		{ParseDisk, "16m", 16 << 20, ""},
		{ParseDisk, "15m", 0, "the least is 16 MiB"},
		{ParseDisk, "none", 0, "can't be none"},
		{ParseCPUs, "1.5", 1500, ""},
		{ParseCPUs, "2", 2000, ""},
		{ParseCPUs, "0.01", 10, ""},
		{ParseCPUs, "0.125", 125, ""},
		{ParseCPUs, "none", 0, ""},
		{ParseCPUs, "0", 0, "too little"},
		{ParseCPUs, "0.009", 0, "too little"},
		{ParseCPUs, "1.", 0, "not a number"},
		{ParseCPUs, ".5", 0, "not a number"},
		{ParseCPUs, "1.5000", 0, "not a number"},
		{ParseCPUs, "1.-5", 0, "not a number"},
		{ParseCPUs, "1e3", 0, "not a number"},
		{ParseCPUs, "NaN", 0, "not a number"},
		{ParseCPUs, "inf", 0, "not a number"},
		{ParseCPUs, "5000", 0, "more than any machine"},
		{ParseCPUs, "999999999999999999", 0, "more than any machine"},
		{ParsePids, "4096", 4096, ""},
		{ParsePids, "none", 0, ""},
		{ParsePids, "31", 0, "the least is 32"},
		{ParsePids, "-1", 0, "not a number"},
		{ParsePids, "4k", 0, "not a number"},
		{ParsePids, "4194305", 0, "more than a kernel"},
		{ParseTime, "90s", 90, ""},
		{ParseTime, "2h30m", 9000, ""},
		{ParseTime, "none", 0, ""},
		{ParseTime, "1500ms", 0, "whole seconds"},
		{ParseTime, "0s", 0, "the least is 1s"},
		{ParseTime, "-5s", 0, "not a duration"},
		{ParseTime, "+5s", 0, "not a duration"},
		{ParseTime, "90", 0, "not a duration"},
		{ParseTime, "", 0, "not a duration"},
		{ParseTime, "9999999999h", 0, "not a duration"}, // more than an int64 of nanoseconds
		{ParseTime, "876001h", 0, "hundred years"},
	} {
		got, err := tc.parse(tc.text)
		switch {
		case tc.fails == "" && (err != nil || got != tc.want):
			t.Errorf("%q: %d, %v", tc.text, got, err)
		case tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails) || strings.ContainsAny(err.Error(), "\n\x1b")):
			t.Errorf("%q: %d, %v", tc.text, got, err)
		}
	}
}

func FuzzLimits(f *testing.F) {
	for _, s := range []string{"2g", "1.5", "4096", "2h30m", "none", "16777216t", "0.001", "1\x00g", "\xffm", "9223372036854775807", "8388608t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, parse := range map[string]func(string) (int64, error){
			"memory": ParseMemory, "disk": ParseDisk, "cpus": ParseCPUs, "pids": ParsePids, "time": ParseTime,
		} {
			n, err := parse(s)
			if n < 0 || err != nil && n != 0 || err == nil && n == 0 && s != NoLimit {
				t.Errorf("%s %q: %d, %v", name, s, n, err)
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\n\x1b\x00") || !strings.HasPrefix(err.Error(), name)) {
				t.Errorf("%s %q: %q", name, s, err)
			}
			if err == nil && n > math.MaxInt64/100_000_000 && name != "memory" && name != "disk" {
				t.Errorf("%s %q: %d is not safe to reckon with", name, s, n)
			}
			if n != 0 && (name == "disk") {
				if tmp, varTmp := tmpSizes(n); tmp <= 0 || varTmp <= 0 || tmp+varTmp > n {
					t.Errorf("%q: %d and %d", s, tmp, varTmp)
				}
			}
		}
	})
}

// A limit that was asked for and can't be enforced is refused; a default is told.
func TestUnenforceable(t *testing.T) {
	in := plain()
	in.Facts.Limits = LimitFacts{Memory: Enforcement{Why: "no systemd"}, CPUs: Enforcement{Why: "no systemd"}, Pids: Enforcement{Why: "no systemd"}}
	p, err := Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	if notes := p.Limits.Notes(); len(notes) != 1 || notes[0] != "the default limit of 4096 processes and threads is not enforced: no systemd" {
		t.Errorf("notes %q", notes)
	}
	if p.Limits.ByCgroup() || p.Limits.Pids.Held(ByCgroup) != 0 {
		t.Errorf("%+v is held", p.Limits.Pids)
	}
	in.Limits = LimitInputs{
		Memory: LimitInput{"2g", "AISB_MEMORY"}, CPUs: LimitInput{"1.5", "--cpus"}, Pids: LimitInput{"4096", "config:3"},
		Time: LimitInput{"1h", "--time"}, Disk: LimitInput{"1g", "--disk"},
	}
	_, err = Resolve(in)
	if err == nil {
		t.Fatal("not refused")
	}
	const want = "memory 2g (from AISB_MEMORY) can't be enforced here: no systemd; or drop it\n" +
		"cpus 1.5 (from --cpus) can't be enforced here: no systemd; or drop it\n" +
		"pids 4096 (from config:3) can't be enforced here: no systemd; or drop it"
	if err.Error() != want {
		t.Errorf("got\n%v", err)
	}
	// What is asked to be lifted needs nothing to hold it, and time and disk are
	// held by us.
	in.Limits.Memory.Text, in.Limits.CPUs.Text, in.Limits.Pids.Text = NoLimit, NoLimit, NoLimit
	if p, err = Resolve(in); err != nil || len(p.Limits.Notes()) != 0 {
		t.Errorf("%v, %q", err, p.Limits.Notes())
	}
	// The positive control.
	in = plain()
	in.Limits.Memory = LimitInput{"2g", "--memory"}
	if p, err = Resolve(in); err != nil || p.Limits.MemoryBytes.Held(ByCgroup) != 2<<30 {
		t.Errorf("%v, %+v", err, p.Limits)
	}
}

func TestTmpSizes(t *testing.T) {
	for disk, want := range map[int64][2]int64{
		3 << 30: {2 << 30, 1 << 30}, 16 * mib: {11 * mib, 5 * mib}, 16*mib + 1: {11 * mib, 5 * mib},
	} {
		if tmp, varTmp := tmpSizes(disk); tmp != want[0] || varTmp != want[1] {
			t.Errorf("%d: %d and %d", disk, tmp, varTmp)
		}
	}
}
