//go:build kernel

// On the real kernel, in a network namespace of the test's own.

package netfilter

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"

	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/spec"
)

const childEnv = "AISB_TEST_NETNS"

// TestMain runs the tests once more in new user and network namespaces.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		os.Stderr.WriteString("in a network namespace: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func apply(t *testing.T, f spec.Firewall) firewall.Ruleset {
	t.Helper()
	flush(t)
	r, err := firewall.Build(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := Apply(r); err != nil {
		t.Fatal(err)
	}
	return r
}

var modes = []spec.Firewall{
	{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3128},
	{Mode: spec.ModeNone},
	{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3128, Published: []uint16{3000, 5173}},
}

func TestReadBack(t *testing.T) {
	for _, f := range modes {
		r := apply(t, f)
		if err := Verify(r); err != nil {
			t.Errorf("%s: %v", f.Mode, err)
		}
	}
}

func TestTampersAreSeen(t *testing.T) {
	for _, f := range modes {
		for _, how := range Tampers {
			r := apply(t, f)
			if err := Tamper(r, how); err != nil {
				t.Errorf("%s %s: %v", f.Mode, how, err)
				continue
			}
			err := Verify(r)
			if !errors.Is(err, ErrDiffers) {
				t.Errorf("%s %s: %v", f.Mode, how, err)
			} else if !strings.Contains(err.Error(), map[string]string{
				"delete": "rule", "reorder": "rule", "widen": "rule", "append": "too many",
				"policy": "policy", "dormant": "flags 1", "extra-table": "other", "extra-chain": "4 chains",
			}[how]) {
				t.Errorf("%s %s: seen as something else: %v", f.Mode, how, err)
			}
		}
	}
}

// Another port, address or mode than what is there is seen too.
func TestOtherRulesetDiffers(t *testing.T) {
	apply(t, modes[0])
	for _, f := range []spec.Firewall{
		modes[1],
		{Mode: spec.ModeGated, GateAddr: "169.254.77.1", GatePort: 3129},
		{Mode: spec.ModeGated, GateAddr: "169.254.77.2", GatePort: 3128},
		modes[2],
	} {
		r, err := firewall.Build(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(r); !errors.Is(err, ErrDiffers) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestNothingThereDiffers(t *testing.T) {
	flush(t)
	r, err := firewall.Build(modes[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(r); !errors.Is(err, ErrDiffers) {
		t.Error(err)
	}
}

// With the privileges CheckShut has to complain.
func TestCheckShutNeedsADrop(t *testing.T) {
	r := apply(t, modes[0])
	if err := CheckShut(r.Table); err == nil {
		t.Error("root could not change the ruleset")
	}
}

func flush(t *testing.T) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}
