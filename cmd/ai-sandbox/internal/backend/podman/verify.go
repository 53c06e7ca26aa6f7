// Reading back what really came up. containers.conf, mounts.conf, an OCI hook or
// a podman that understands a field otherwise could each make the container
// wider than the specification; here that ends the start.

package podman

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings/containers"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	entry "ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

func (c *Client) Verify(ctx context.Context, id string, b backend.Sandbox) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	data, err := containers.Inspect(conn, id, nil)
	if err != nil {
		return fmt.Errorf("look at the container: %w", translate(err))
	}
	if err := compare(data, expectSandbox(b)); err != nil {
		return err
	}
	if b.Policy.Net.Mode != policy.NetGated {
		return nil
	}
	if data.NetworkSettings == nil || data.NetworkSettings.SandboxKey == "" {
		return fmt.Errorf("the container has no network namespace of its own")
	}
	got, err := pastaArgv("/proc", data.NetworkSettings.SandboxKey)
	if err != nil {
		return err
	}
	if want := pastaArgs(data.NetworkSettings.SandboxKey); !slices.Equal(got, want) {
		return fmt.Errorf("pasta runs with other options than asked for: %q (asked for %q; does containers.conf set pasta_options?)", got, want)
	}
	return nil
}

// VerifyGate implements backend.Backend.
func (c *Client) VerifyGate(ctx context.Context, id string, g backend.Gate) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	data, err := containers.Inspect(conn, id, nil)
	if err != nil {
		return fmt.Errorf("look at the gate's container: %w", translate(err))
	}
	return compare(data, expectGate(g))
}

// An expected is what a container has to be.
type expected struct {
	image   string
	command []string
	network string
	user    string
	caps    []string
	mounts  map[string]string // target to "kind source ro=..."
}

func expectSandbox(b backend.Sandbox) expected {
	e := expected{image: b.Image, command: []string{entrypointPath, "session"}, network: "pasta", user: "0:0",
		caps: b.Policy.Capabilities, mounts: map[string]string{}}
	if b.Policy.Net.Mode == policy.NetNone {
		e.network = "none"
	}
	for _, m := range b.Policy.Mounts {
		switch {
		case m.Target == entry.Dir:
			e.mounts[m.Target] = mounted("bind", b.ControlDir, true)
		case m.Kind != "tmpfs":
			e.mounts[m.Target] = mounted(m.Kind, m.Source, m.ReadOnly)
		}
	}
	return e
}

func expectGate(g backend.Gate) expected {
	s := gateSpec(g)
	e := expected{image: g.Image, command: append([]string{entrypointPath}, s.Command...), network: "host", user: s.User, mounts: map[string]string{
		gate.ConfDir: mounted("bind", g.ConfigDir, true),
		gate.LogDir:  mounted("bind", g.LogDir, false),
	}}
	if g.ControlDir != "" {
		e.mounts[entry.Dir] = mounted("bind", g.ControlDir, true)
	}
	return e
}

func mounted(kind, source string, readOnly bool) string {
	return fmt.Sprintf("%s %s ro=%v", kind, source, readOnly)
}

func compare(data *define.InspectContainerData, want expected) error {
	if problems := differences(data, want); len(problems) > 0 {
		return fmt.Errorf("the container is not as asked for: %s (does containers.conf or mounts.conf add it?)", strings.Join(problems, "; "))
	}
	return nil
}

// differences lists what the container has otherwise than expected.
func differences(data *define.InspectContainerData, want expected) []string {
	var p []string
	bad := func(format string, a ...any) { p = append(p, fmt.Sprintf(format, a...)) }
	if got := strings.TrimPrefix(data.Image, "sha256:"); got != strings.TrimPrefix(want.image, "sha256:") {
		bad("image %s", got)
	}
	if got := append([]string{data.Path}, data.Args...); !slices.Equal(got, want.command) {
		bad("command %q", got)
	}
	if h := data.HostConfig; h == nil {
		bad("no host configuration")
	} else {
		if mode, _, _ := strings.Cut(h.NetworkMode, ":"); mode != want.network {
			bad("network mode %q", h.NetworkMode)
		}
		if h.Privileged {
			bad("privileged")
		}
		if !h.ReadonlyRootfs {
			bad("a writable root file system")
		}
		if h.PidMode != "private" {
			bad("pid namespace %q", h.PidMode)
		}
		if h.IpcMode != "private" {
			bad("ipc namespace %q", h.IpcMode)
		}
		if h.UTSMode != "private" {
			bad("uts namespace %q", h.UTSMode)
		}
		if len(h.Devices) > 0 {
			bad("devices %v", h.Devices)
		}
		if len(h.PortBindings) > 0 {
			bad("published ports %v", h.PortBindings)
		}
		if len(h.GroupAdd) > 0 {
			bad("groups %v", h.GroupAdd)
		}
		for _, o := range h.SecurityOpt {
			if o != "no-new-privileges" {
				bad("security option %q", o)
			}
		}
		if !slices.Contains(h.SecurityOpt, "no-new-privileges") {
			bad("new privileges not barred")
		}
	}
	for _, set := range []struct {
		name string
		caps []string
	}{{"effective", data.EffectiveCaps}, {"bounding", data.BoundingCaps}} {
		if got := capNames(set.caps); !slices.Equal(got, capNames(want.caps)) {
			bad("%s capabilities %v", set.name, got)
		}
	}
	if c := data.Config; c == nil {
		bad("no configuration")
	} else {
		if c.User != want.user {
			bad("user %q", c.User)
		}
		if hc := c.Healthcheck; hc != nil && !slices.Equal(hc.Test, []string{"NONE"}) {
			bad("health check %q", hc.Test)
		}
		for _, e := range c.Env {
			// podman itself adds these three; none of them reaches the command.
			name, _, _ := strings.Cut(e, "=")
			if name != "container" && name != "HOME" && name != "HOSTNAME" && name != "TERM" && name != "PATH" {
				bad("environment variable %s", name)
			}
		}
	}
	return append(p, mountDifferences(data.Mounts, want.mounts)...)
}

func mountDifferences(mounts []define.InspectMount, expected map[string]string) []string {
	var p []string
	want := maps.Clone(expected)
	for _, m := range mounts {
		source := m.Source
		if m.Type == "volume" {
			source = m.Name
		}
		got := mounted(m.Type, source, !m.RW)
		if m.Type == "tmpfs" {
			continue // named in HostConfig.Tmpfs; the entrypoint compares mountinfo
		}
		if want[m.Destination] != got {
			p = append(p, fmt.Sprintf("mount %s at %s", got, m.Destination))
		}
		delete(want, m.Destination)
	}
	for target := range want {
		p = append(p, fmt.Sprintf("nothing mounted at %s", target))
	}
	sort.Strings(p)
	return p
}

func capNames(caps []string) []string {
	var out []string
	for _, c := range caps {
		out = append(out, strings.TrimPrefix(strings.ToUpper(c), "CAP_"))
	}
	sort.Strings(out)
	return out
}

// pastaArgv finds the pasta process of a network namespace and returns its
// arguments without the program's name. pasta quits with its namespace, so one
// that is there is the one.
func pastaArgv(proc, netns string) ([]string, error) {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("look for pasta: %w", err)
	}
	for _, d := range dirs {
		if n := d.Name(); n[0] < '0' || n[0] > '9' {
			continue
		}
		b, err := os.ReadFile(filepath.Join(proc, d.Name(), "cmdline"))
		if err != nil {
			continue // gone meanwhile
		}
		argv := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if !strings.HasPrefix(filepath.Base(argv[0]), "pasta") && !strings.HasPrefix(filepath.Base(argv[0]), "passt") {
			continue
		}
		if i := slices.Index(argv, "--netns"); i >= 0 && i+1 < len(argv) && argv[i+1] == netns {
			return argv[1:], nil
		}
	}
	return nil, fmt.Errorf("no pasta process serves the container's network namespace %s", netns)
}
