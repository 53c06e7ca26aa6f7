package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

func TestGroupDifferences(t *testing.T) {
	by := func(n int64) policy.Limit { return policy.Limit{Value: n, By: policy.ByCgroup} }
	limits := policy.Limits{MemoryBytes: by(64 << 20), CPUsMilli: by(1500), Pids: by(100)}
	good := map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "100", "cpu.max": "150000 100000"}
	for name, tc := range map[string]struct {
		group  string
		change map[string]string // "" removes
		parent map[string]string // in the group above, with the rest of good
		want   string            // part of the one difference
	}{
		"as asked":        {group: "a.scope"},
		"page of 64 KiB":  {group: "a.scope", change: map[string]string{"memory.max": "67104768"}},
		"another period":  {group: "a.scope", change: map[string]string{"cpu.max": "15000 10000"}},
		"no swap at all":  {group: "a.scope", change: map[string]string{"memory.swap.max": ""}},
		"more memory":     {group: "a.scope", change: map[string]string{"memory.max": "67108865"}, want: "memory.max is 67108865"},
		"much less":       {group: "a.scope", change: map[string]string{"memory.max": "4096"}, want: "memory.max is 4096"},
		"no memory limit": {group: "a.scope", change: map[string]string{"memory.max": "max"}, want: "memory.max is no limit"},
		"no controller":   {group: "a.scope", change: map[string]string{"memory.max": ""}, want: "memory.max is no limit"},
		"swap":            {group: "a.scope", change: map[string]string{"memory.swap.max": "max"}, want: "memory.swap.max is no limit"},
		"pids":            {group: "a.scope", change: map[string]string{"pids.max": "max"}, want: "pids.max is no limit"},
		"cpu":             {group: "a.scope", change: map[string]string{"cpu.max": "max 100000"}, want: "cpu.max"},
		"odd cpu":         {group: "a.scope", change: map[string]string{"cpu.max": "150000"}, want: "cpu.max"},
		"held above":      {group: "a.scope/container", change: map[string]string{"pids.max": "max"}, parent: map[string]string{"pids.max": "100"}},
		"held nowhere":    {group: "a.scope/container", change: map[string]string{"pids.max": "max"}, parent: map[string]string{"pids.max": "max"}, want: "pids.max is no limit"},
		// What lies above a scope is not the sandbox's alone.
		"above the scope": {group: "x.slice/a.scope", change: map[string]string{"pids.max": "max"}, parent: map[string]string{"pids.max": "100"}, want: "pids.max is no limit"},
	} {
		root := t.TempDir()
		write := func(group string, change map[string]string) {
			dir := filepath.Join(root, group)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range good {
				if c, ok := change[file]; ok {
					text = c
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(tc.group, tc.change)
		if tc.parent != nil {
			write(filepath.Dir(tc.group), tc.parent)
		}
		got := groupDifferences(root, tc.group, limits)
		if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
			t.Errorf("%s: %q", name, got)
		}
		if none := groupDifferences(root, tc.group, policy.Limits{}); len(none) > 0 {
			t.Errorf("%s: nothing was to hold, and %q", name, none)
		}
	}
}

// This process has no limit of ours.
func TestLimitDifferences(t *testing.T) {
	if d, err := LimitDifferences(os.Getpid(), policy.Limits{}); err != nil || len(d) > 0 {
		t.Errorf("%q, %v", d, err)
	}
	l := policy.Limits{Pids: policy.Limit{Value: 37, By: policy.ByRlimit}}
	if d, err := LimitDifferences(os.Getpid(), l); err != nil || len(d) != 1 {
		t.Errorf("%q, %v", d, err)
	}
	l.Pids.By = policy.ByCgroup
	if d, err := LimitDifferences(os.Getpid(), l); err == nil && len(d) != 1 {
		t.Errorf("%q, %v", d, err)
	}
}

func TestMaxProcesses(t *testing.T) {
	for text, want := range map[string]int64{
		"Max cpu time              unlimited            unlimited            seconds\nMax processes             4096                 4096                 processes\n": 4096,
		"Max processes             64                   4096                 processes\n":                                                                              0,
		"Max processes             unlimited            unlimited            processes\n":                                                                              0,
		"": 0,
	} {
		if got := maxProcesses(text); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestTmpfsSize(t *testing.T) {
	for options, want := range map[string]int64{"rw,size=2097152k,mode=1777,inode64": 2 << 30, "rw,size=5120k": 5 << 20, "rw": 0, "rw,size=50%": 0} {
		if got := TmpfsSize(options); got != want {
			t.Errorf("%s: %d", options, got)
		}
	}
}
