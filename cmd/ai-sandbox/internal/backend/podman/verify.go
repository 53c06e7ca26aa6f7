// Reading back what really came up. containers.conf, mounts.conf, an OCI hook or
// a podman that understands a field otherwise could each make the container
// wider than the specification; here that ends the start.

package podman

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings/containers"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	entry "ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

func (c *Client) Verify(ctx context.Context, id string, b backend.Sandbox) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	data, err := containers.Inspect(conn, id, nil)
	if err != nil {
		return fmt.Errorf("look at the container: %w", translate(err))
	}
	if problems := differences(data, b); len(problems) > 0 {
		return fmt.Errorf("the container is not as asked for: %s (does containers.conf or mounts.conf add it?)", strings.Join(problems, "; "))
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

// differences lists what the container has otherwise than the specification.
func differences(data *define.InspectContainerData, b backend.Sandbox) []string {
	var p []string
	bad := func(format string, a ...any) { p = append(p, fmt.Sprintf(format, a...)) }
	if got := strings.TrimPrefix(data.Image, "sha256:"); got != strings.TrimPrefix(b.Image, "sha256:") {
		bad("image %s", got)
	}
	if got := append([]string{data.Path}, data.Args...); !slices.Equal(got, []string{entrypointPath, "session"}) {
		bad("command %q", got)
	}
	if h := data.HostConfig; h == nil {
		bad("no host configuration")
	} else {
		wantNet := "pasta"
		if b.Policy.Net.Mode == policy.NetNone {
			wantNet = "none"
		}
		if mode, _, _ := strings.Cut(h.NetworkMode, ":"); mode != wantNet {
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
		got, want := capNames(set.caps), capNames(b.Policy.Capabilities)
		if !slices.Equal(got, want) {
			bad("%s capabilities %v", set.name, got)
		}
	}
	if c := data.Config; c == nil {
		bad("no configuration")
	} else {
		if c.User != "0:0" {
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
	return append(p, mountDifferences(data.Mounts, b)...)
}

func mountDifferences(mounts []define.InspectMount, b backend.Sandbox) []string {
	var p []string
	want := map[string]string{}
	for _, m := range b.Policy.Mounts {
		switch {
		case m.Target == entry.Dir:
			want[m.Target] = fmt.Sprintf("bind %s ro=true", b.ControlDir)
		case m.Kind == "bind":
			want[m.Target] = fmt.Sprintf("bind %s ro=%v", m.Source, m.ReadOnly)
		case m.Kind == "volume":
			want[m.Target] = fmt.Sprintf("volume %s ro=%v", m.Source, m.ReadOnly)
		}
	}
	for _, m := range mounts {
		source := m.Source
		if m.Type == "volume" {
			source = m.Name
		}
		got := fmt.Sprintf("%s %s ro=%v", m.Type, source, !m.RW)
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
