//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"

	"ai-sandbox/policy"
)

// --print-policy is the same each time, and starts and asks nothing: without
// podman, its socket or a network it prints the same.
func TestPrintPolicy(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	args := []string{"--print-policy=json", "--allow", b.Host("ok.test"), "--allow", ".example.com", "pi", "-p", "hi there"}
	first := b.OK(args...).Out
	var p policy.Policy
	if err := json.Unmarshal([]byte(first), &p); err != nil {
		t.Fatal(err)
	}
	if p.Harness != "pi" || !slices.Equal(p.Command, []string{"pi", "--thinking", "xhigh", "-p", "hi there"}) || p.Project != b.Dir || len(p.Net.Allow) != 2 {
		t.Errorf("%+v", p)
	}
	for range 5 {
		if again := b.OK(args...).Out; again != first {
			t.Fatalf("not the same: %s\n%s", first, again)
		}
	}
	// Listed in another order it is the same policy.
	if again := b.OK("--print-policy=json", "--allow", ".example.com", "--allow", b.Host("ok.test"), "pi", "-p", "hi there").Out; again != first {
		t.Errorf("the order of flags shows: %s", again)
	}
	away := newBox(t)
	away.Dir = b.Dir
	away.Env = []string{"PATH=" + t.TempDir(), "XDG_RUNTIME_DIR=" + os.Getenv("XDG_RUNTIME_DIR")}
	if again := away.OK(args...).Out; again != first {
		t.Errorf("without podman: %s", again)
	}
	for _, flag := range []string{"--dry-run", "--print-entrypoint", "--print-containerfile", "--print-policy"} {
		r := away.OK(flag, "--allow", b.Host("ok.test"), "pi")
		if r.Out == "" || r.Out != away.OK(flag, "--allow", b.Host("ok.test"), "pi").Out {
			t.Errorf("%s: %s", flag, r)
		}
	}
}

// What is said before is what is then done: the printed variables are the ones
// that the command gets.
func TestPolicyIsTrue(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	args := []string{"--allow", b.Host("ok.test"), "--env", "EXTRA=1"}
	var p policy.Policy
	if err := json.Unmarshal([]byte(b.OK(append(append([]string{"--print-policy=json"}, args...), "--", "env")...).Out), &p); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, e := range p.Env {
		want = append(want, e.Name)
	}
	r := b.OK(append(args, "--", "env", "-0")...)
	for _, v := range strings.Split(strings.Trim(r.Out, "\x00"), "\x00") {
		name, _, _ := strings.Cut(v, "=")
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("inside: %q\npolicy: %q", got, want)
	}
}

// Everything from the harness's name on is the harness's, byte for byte.
func TestArgumentsPassThrough(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	odd := []string{"-p", "hi there", "--model", "x", "--", "-", "", "--allow=y", "a\nb", "$HOME", "*", "'\"\\", "é"}
	if err := drive.WriteProgram(filepath.Join(b.Dir, "show"), []byte("#!/bin/sh\nfor a; do printf '[%s]' \"$a\"; done\n")); err != nil {
		t.Fatal(err)
	}
	want := "[" + strings.Join(odd, "][") + "]"
	r := b.OK(append([]string{"--net", "none", "--", "./show"}, odd...)...)
	if r.Out != want {
		t.Errorf("got  %q\nwant %q", r.Out, want)
	}
	// What can't be passed on exactly is refused, not changed.
	if r := b.Run("--net", "none", "--", "./show", "\xff"); r.Code != 125 || r.Out != "" {
		t.Errorf("%s", r)
	}
	// The harness itself, by a pi of the home's own, which PATH does not find
	// first: so through the policy.
	plain := []string{"-p", "hi there", "--allow=y", "--model", "x", "--", "-", ""}
	var p policy.Policy
	r = b.OK(append([]string{"--print-policy=json", "pi"}, plain...)...)
	if err := json.Unmarshal([]byte(r.Out), &p); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Command, append([]string{"pi", "--thinking", "xhigh"}, plain...)) {
		t.Errorf("%q", p.Command)
	}
	if !strings.Contains(r.Err, "--allow comes after") {
		t.Errorf("no warning of our own flag after the harness: %s", r)
	}
	r = b.OK(append([]string{"--print-policy=json"}, plain...)...)
	if err := json.Unmarshal([]byte(r.Out), &p); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Command, append([]string{"pi", "--thinking", "xhigh"}, plain...)) {
		t.Errorf("an unknown flag goes to the default harness: %q", p.Command)
	}
}

// The ruleset that --print-entrypoint prints is the one in the kernel.
func TestRulesetIsPrinted(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"gated": {}, "none": {"--net", "none"}, "published": {"--publish", ":3000", "--publish", ":3000", "--publish", ":5173"}} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			_, stop := b.Background(t, append(args, "--", "sh", "-c", `echo "p${http_proxy##*:}" >port; cat`)...)
			defer stop()
			port := strings.TrimPrefix(b.File(t, "port"), "p")
			pid := strings.TrimSpace(drive.Output(t, "podman", "inspect", "--format", "{{.State.Pid}}", "aisb-"+sessionOf(t, b)))
			got := drive.Output(t, "podman", "unshare", "nsenter", "--user=/proc/"+pid+"/ns/user", "--net=/proc/"+pid+"/ns/net", "nft", "list", "ruleset")
			want := strings.ReplaceAll(b.OK(append(append([]string{"--print-entrypoint"}, args...), "--", "true")...).Out, policy.PortPlaceholder, port)
			got = regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(got, "packets 0 bytes 0")
			if got != want {
				t.Errorf("in the kernel:\n%s\nprinted:\n%s", got, want)
			}
			if !strings.Contains(got, "policy drop") || !strings.Contains(got, "reject") {
				t.Errorf("that is no ruleset: %s", got)
			}
		})
	}
}

// A control that does not read back: 77, and the command has not run.
func TestTamperedRuleset(t *testing.T) {
	b := newBox(t)
	b.Bin = filepath.Join(w.bin, "ai-sandbox-testhook")
	own := t.TempDir()
	file, fault := filepath.Join(own, "report.json"), filepath.Join(own, "hook", "fault")
	if err := os.Mkdir(filepath.Dir(fault), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(mode string) drive.Result {
		if err := os.Remove(filepath.Join(b.Dir, "ran")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		args := []string{"--report", file, "--mount", filepath.Dir(fault) + ":/testhook", "--net", mode, "--", "sh", "-c", "echo ran >ran"}
		if mode == "gated" {
			args = append([]string{"--allow", b.Host("ok.test")}, args...)
		}
		return b.Run(args...)
	}
	// The positive control: the same program, without a fault.
	for _, mode := range []string{"gated", "none"} {
		if r := run(mode); r.Code != 0 || b.File(t, "ran") != "ran" {
			t.Fatalf("the positive control failed: %s", r)
		}
	}
	before := snapshot(t)
	for _, how := range []string{"delete", "reorder", "widen", "append", "policy", "dormant", "extra-table", "extra-chain", "late"} {
		for _, mode := range []string{"gated", "none"} {
			if how == "reorder" && mode == "none" {
				continue // two rules that mean the same in either order
			}
			control := "ruleset"
			if how == "late" { // after it was read back: only the canary tells
				if mode == "none" {
					continue // there is nothing to reach without a ruleset either
				}
				control = "network"
			}
			t.Run(how+" "+mode, func(t *testing.T) {
				if err := os.WriteFile(fault, []byte(how+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				r := run(mode)
				if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil || r.Code != 77 {
					t.Fatalf("want 77, and that nothing ran (%v): %s", err, r)
				}
				if rep := drive.ReadReport(t, file); rep.EndedBy != "entrypoint" || rep.ExitCode != 77 || rep.Control != control || rep.Reason == "" {
					t.Errorf("%+v", rep)
				}
			})
		}
	}
	nothingLeft(t, before)
}
