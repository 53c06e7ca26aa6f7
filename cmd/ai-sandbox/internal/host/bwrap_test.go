package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ai-sandbox/policy"
)

// bwrap plays bubblewrap: a jail can be made as long as there is no file named no
// beside it, whose text it says then.
const bwrap = `#!/bin/sh
dir=${0%/*}
echo "$*" >>"$dir/asked"
if [ "$1" = --version ]; then
  echo "bubblewrap $(cat "$dir/version")"
elif [ -e "$dir/no" ]; then
  cat "$dir/no" >&2
  exit 1
fi
`

func TestBubblewrap(t *testing.T) {
	in, _, bin := scene(t)
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put("bwrap", bwrap)
	put("version", "0.11.0")
	put("true", "")
	in.Env["PATH"] = bin
	probe := func() Facts {
		t.Helper()
		f, err := Probe(in)
		if err != nil {
			t.Fatal(err)
		}
		return ProbeTools(f, policy.RuntimeLocal)
	}
	times := func() int {
		text, err := os.ReadFile(filepath.Join(bin, "asked"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	// What does not work is tried anew each time, and what works is not.
	put("no", "bwrap: setting up uid map: Permission denied\nmore\n")
	for range 2 {
		f := probe()
		if f.Bwrap.Refused != "setting up uid map: Permission denied" || f.Bwrap.Err != "" || f.Bwrap.Version != "0.11.0" {
			t.Errorf("%+v", f.Bwrap)
		}
		if f.Podman.Path != "" || f.Tools[policy.RuntimePodman] {
			t.Error("podman was looked for")
		}
	}
	if n := times(); n != 4 {
		t.Errorf("asked %d times", n)
	}
	if err := os.Remove(filepath.Join(bin, "no")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if f := probe(); f.Bwrap.Refused != "" || f.Bwrap.Version != "0.11.0" || f.Bwrap.Err != "" {
			t.Errorf("%+v", f.Bwrap)
		}
	}
	if n := times(); n != 6 {
		t.Errorf("asked %d times", n)
	}
	// Another machine, or another setting of it.
	f, err := Probe(in)
	if err != nil {
		t.Fatal(err)
	}
	before := machine(f)
	for _, change := range []func(*Kernel){
		func(k *Kernel) { k.MaxUserNS = "0" }, func(k *Kernel) { k.UnprivilegedClone = "0" }, func(k *Kernel) { k.AppArmorRestricts = "1" },
	} {
		g := f
		change(&g.Kernel)
		if machine(g) == before {
			t.Errorf("%+v makes no difference", g.Kernel)
		}
	}
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err != nil || !strings.Contains(before, strings.TrimSpace(string(boot))) {
		t.Errorf("%q has no boot id: %v", before, err)
	}
	// The mode is looked at each time.
	if err := os.Chmod(filepath.Join(bin, "bwrap"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if f := probe(); !f.Bwrap.Setuid {
		t.Errorf("%+v", f.Bwrap)
	}
}

// TestDoctor: the other runtime's problems are for information.
func TestDoctor(t *testing.T) {
	f := good()
	f.Podman, f.Bwrap, f.Squid = Tool{}, Tool{}, Tool{}
	for runtime, fails := range map[string]string{policy.RuntimePodman: "podman", policy.RuntimeLocal: "bubblewrap"} {
		list := Doctor(f, runtime)
		if p := Problems(list); len(p) != 1 || p[0].Name != fails {
			t.Errorf("%s: %+v", runtime, p)
		}
		told := 0
		names := map[string]bool{}
		for _, v := range list {
			if names[v.Name] {
				t.Errorf("%s: %s is told twice", runtime, v.Name)
			}
			names[v.Name] = true
			if v.Info && !v.OK() {
				told++
			}
		}
		if told != 2 { // squid for the local runtime, and the other's own program
			t.Errorf("%s: %d problems for information", runtime, told)
		}
	}
	if p := Problems(Doctor(good(), policy.RuntimeLocal)); len(p) > 0 {
		t.Errorf("%+v", p)
	}
	if p := Problems(Check(good(), "hope")); len(p) != 1 || !strings.Contains(p[0].Problem, "not known") {
		t.Errorf("%+v", p)
	}
}

func TestCheckSquid(t *testing.T) {
	for want, squid := range map[string]Tool{
		"":                                     {Path: SquidPath, OpenSSL: true},
		"not installed at /usr/sbin/squid":     {},
		"squid has no OpenSSL":                 {Path: SquidPath},
		"does not say what it can do (exit 1)": {Path: SquidPath, Err: "exit 1"},
	} {
		f := good()
		f.Squid = squid
		if v := CheckSquid(f); !strings.Contains(v.Problem, want) || (want == "") != v.OK() || (want == "") != (v.Fix == "") {
			t.Errorf("%+v: %+v", squid, v)
		}
	}
}

// TestRuntimeDir: the local runtime makes do without the user's.
func TestRuntimeDir(t *testing.T) {
	f := good()
	f.Dirs.XDGRuntime = ""
	if got := f.Dirs.Runtime(); got != "/home/dev/.local/state/ai-sandbox/run" {
		t.Error(got)
	}
	if p := Problems(Check(f, policy.RuntimeLocal)); len(p) > 0 {
		t.Errorf("%+v", p)
	}
	if p := Problems(Check(f, policy.RuntimePodman)); len(p) != 1 {
		t.Errorf("%+v", p)
	}
}
