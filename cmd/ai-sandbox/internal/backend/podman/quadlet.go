// A named gate that systemd starts: its container as a quadlet (podman-systemd.unit(5)).
// It is read back as any other gate's, so the two have to say the same.

package podman

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	entry "ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// unitSpec is gateSpec for a container that "podman run" makes, which has no words for
// some mounts. What it binds is bound alone, so that nothing that is mounted below it
// comes along; and its message queues can be written, which are its own.
func unitSpec(g backend.Gate) *specgen.SpecGenerator {
	s := gateSpec(g)
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m spec.Mount) bool { return m.Type == "mqueue" })
	for i, m := range s.Mounts {
		if m.Type == "bind" || m.Type == bindNone {
			s.Mounts[i].Type = "bind"
			s.Mounts[i].Options = append(slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "rbind" || o == "rro" }), "bind")
		}
	}
	return s
}

// gateSpecOf is what a gate's container has to be.
func gateSpecOf(g backend.Gate) *specgen.SpecGenerator {
	if g.Unit {
		return unitSpec(g)
	}
	return gateSpec(g)
}

// Quadlet is the file with which systemd starts the container of a named gate.
func Quadlet(g backend.Gate) (string, error) {
	for _, path := range []string{g.ConfigDir, g.LogDir} {
		// systemd reads "%" and "$", and podman "," and ":".
		if strings.ContainsFunc(path, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`%$,:"'\`, r)
		}) {
			return "", fmt.Errorf("the gate's directory %s has letters that a unit can't have in a path: set XDG_STATE_HOME to another one", policy.Quote(path))
		}
	}
	s := unitSpec(g)
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("# Written by ai-sandbox gate unit %s, which writes it anew. A session refuses the gate", g.GateName)
	line("# when its container is not as written here.")
	line("[Unit]\nDescription=The gate %s of ai-sandbox", g.GateName)
	line("# It is not started again without end.\nStartLimitIntervalSec=300\nStartLimitBurst=5\n")
	// Not to wait for the network: the gate wants it only when it is asked for something.
	line("[Quadlet]\nDefaultDependencies=false\n")
	line("[Container]")
	line("ContainerName=%s", g.Name)
	line("Image=%s", g.Image)
	line("Pull=never")
	line("Entrypoint=%s", entrypointPath)
	line("Exec=%s", strings.Join(s.Command, " "))
	user, group, _ := strings.Cut(s.User, ":")
	line("User=%s\nGroup=%s", user, group)
	line("UserNS=%s", string(s.UserNS.NSMode)+":"+s.UserNS.Value)
	line("Network=host")
	line("ReadOnly=true\nReadOnlyTmpfs=false")
	line("NoNewPrivileges=true\nDropCapability=all")
	line("RunInit=false\nEnvironmentHost=false")
	line("LogDriver=none")
	line("ShmSize=%d", shmSize)
	for _, k := range []string{backend.LabelKind, backend.LabelGate} {
		line("Label=%s=%s", k, s.Labels[k])
	}
	for _, m := range s.Mounts {
		switch m.Type {
		case "bind":
			line("Volume=%s:%s:%s", m.Source, m.Destination, strings.Join(m.Options, ","))
		case "tmpfs":
			line("Tmpfs=%s:%s", m.Destination, strings.Join(m.Options, ","))
		}
	}
	for _, a := range []string{
		"--http-proxy=false", "--unsetenv-all", "--passwd=false", "--systemd=false", "--no-healthcheck", "--image-volume=ignore",
		"--pid=private", "--ipc=private", "--uts=private", "--cgroupns=private", "--umask=0022", "--workdir=/",
		"--stop-signal=" + strconv.Itoa(int(*s.StopSignal)), "--stop-timeout=0",
	} {
		line("PodmanArgs=%s", a)
	}
	line("\n[Service]\n# Not after the end that comes with --ttl, which is 0.\nRestart=on-failure\nRestartSec=5")
	line("# Nor when another process has its port, which it keeps.\nRestartPreventExitStatus=%d\n", entry.ExitPortTaken)
	line("[Install]\nWantedBy=default.target")
	return b.String(), nil
}
