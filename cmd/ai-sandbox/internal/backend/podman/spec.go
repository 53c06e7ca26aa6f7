// The container specifications: pure functions from what the session asks for
// to the value that goes to podman. Whatever containers.conf or an image could
// add is set here, so that it cannot; verify.go reads the result back.

package podman

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/containers/image/v5/manifest"
	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	entry "ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// entrypointPath is where both images have the entrypoint.
const entrypointPath = "/usr/libexec/aisb-entrypoint"

// shmSize bounds /dev/shm, in bytes (podman's default).
const shmSize = 64 << 20

// userNS makes container uid 1000 the invoking user, so that what the command
// writes in the project is the user's, and root a uid that owns nothing.
//
// With root kept, container root is the invoking user.
func userNS(uid, gid int) specgen.Namespace {
	return specgen.Namespace{NSMode: specgen.KeepID, Value: fmt.Sprintf("uid=%d,gid=%d", uid, gid)}
}

// pastaOptions are pasta's arguments beyond those that podman adds itself.
// Ports in both directions are named so that containers.conf cannot open them.
//
// Published ports are pasta's own option and not podman's port mappings, of which
// podman would make the same option: it joins and sorts them, so that what pasta
// was really told could not be compared word by word.
func pastaOptions(published []policy.Publish) []string {
	out := []string{"--map-host-loopback", policy.GateAddr}
	if len(published) == 0 {
		out = append(out, "-t", "none") // pasta(1): not together with ports
	}
	for _, p := range published {
		port := policy.FreePortPlaceholder
		if p.HostPort != 0 {
			port = strconv.Itoa(int(p.HostPort))
		}
		out = append(out, "-t", fmt.Sprintf("%s/%s:%d", p.Addr, port, p.Port))
	}
	return append(out, "-u", "none", "-T", "none", "-U", "none")
}

// pastaArgs is the whole argument list that podman 5 runs pasta with for the
// options and nothing from containers.conf, but for the namespace's path
// (the element after --netns). Source: containers/common, libnetwork/pasta.
func pastaArgs(options []string, netns string) []string {
	args := append([]string{"--config-net"}, options...)
	return append(args,
		"--dns-forward", "169.254.1.1",
		"--no-map-gw", "--quiet",
		"--netns", netns,
		"--map-guest-addr", "169.254.1.2",
	)
}

// userOf is the uid and gid inside that a specification makes the invoking user's.
func userOf(s *specgen.SpecGenerator) int {
	if s.UserNS == userNS(0, 0) {
		return 0
	}
	return policy.UID
}

// base is what both containers have in common: nothing but what is said here.
func base(image, name string, labels map[string]string) *specgen.SpecGenerator {
	s := specgen.NewSpecGenerator(image, false)
	no, yes := false, true
	stop := syscall.SIGKILL
	noWait := uint(0)
	size := int64(shmSize)
	s.Name = name
	s.Labels = labels
	s.EnvHost, s.HTTPProxy, s.UnsetEnvAll = &no, &no, &yes
	s.Env = map[string]string{}
	s.Passwd = &no
	s.Init = &no
	s.Systemd = "false"
	s.SdNotifyMode = define.SdNotifyModeIgnore
	s.RestartPolicy = define.RestartPolicyNo
	s.StopSignal, s.StopTimeout = &stop, &noWait
	s.LogConfiguration = &specgen.LogConfig{Driver: define.NoLogging}
	s.HealthConfig = &manifest.Schema2HealthConfig{Test: []string{"NONE"}}
	s.ImageVolumeMode = "ignore"
	s.Volatile = &yes // no fsync for a layer that is thrown away
	s.WorkDir = "/"
	s.Umask = "0022"
	s.ShmSize = &size
	s.ReadOnlyFilesystem, s.ReadWriteTmpfs = &yes, &no
	s.Privileged = &no
	s.NoNewPrivileges = &yes
	s.CapDrop = []string{"ALL"}
	s.UserNS = userNS(policy.UID, policy.GID)
	s.PidNS = specgen.Namespace{NSMode: specgen.Private}
	s.IpcNS = specgen.Namespace{NSMode: specgen.Private}
	s.UtsNS = specgen.Namespace{NSMode: specgen.Private}
	s.CgroupNS = specgen.Namespace{NSMode: specgen.Private}
	s.CgroupsMode = "enabled"
	// podman mounts the kernel's message queues into every container, to be
	// written. mq_overview(7): the calls that need no file still work.
	s.Mounts = []spec.Mount{{Type: "mqueue", Source: "mqueue", Destination: "/dev/mqueue", Options: []string{"nosuid", "noexec", "nodev", "ro"}}}
	s.Entrypoint = []string{entrypointPath}
	return s
}

// bindNone is the type of a bind that podman does not look into.
const bindNone = "none"

// sandboxSpec is the sandbox's container. It starts as the container's root
// with the few capabilities that installing the ruleset and dropping take.
func sandboxSpec(b backend.Sandbox) (*specgen.SpecGenerator, error) {
	p := b.Policy
	if p.Runtime != policy.RuntimePodman {
		return nil, &backend.UnsupportedError{Runtime: policy.RuntimePodman, What: "a policy of the runtime " + p.Runtime}
	}
	s := base(b.Image, b.Name, map[string]string{
		backend.LabelKind:    "sandbox",
		backend.LabelSession: b.Session,
	})
	yes := true
	s.Command = []string{"session"}
	s.UserNS = userNS(p.User())
	if p.KeepRoot {
		s.Command = append(s.Command, "--keep-root")
	}
	s.Hostname = "sandbox"
	s.User = "0:0"
	s.CapAdd = p.Capabilities
	s.Terminal, s.Stdin = &b.TTY, &yes
	s.UseImageHosts, s.UseImageResolvConf = &yes, &yes
	// As the kernel makes a network namespace (ip(7), icmp(7)).
	s.Sysctl = map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "1024",
		"net.ipv4.ping_group_range":           "1 0",
	}
	switch p.Net.Mode {
	case policy.NetGated:
		s.NetNS = specgen.Namespace{NSMode: specgen.Pasta}
		s.NetworkOptions = map[string][]string{"pasta": pastaOptions(p.Publish)}
	case policy.NetNone, policy.NetUnix:
		s.NetNS = specgen.Namespace{NSMode: specgen.NoNetwork}
	default:
		return nil, &backend.UnsupportedError{Runtime: policy.RuntimePodman, What: "--net " + p.Net.Mode}
	}
	for _, m := range p.Mounts {
		switch m.Kind {
		case "bind":
			source := m.Source
			if m.Target == entry.Dir {
				source = b.ControlDir
			}
			s.Mounts = append(s.Mounts, bind(source, m.Target, m.ReadOnly, m.Relabel))
		case "volume":
			s.Volumes = append(s.Volumes, &specgen.NamedVolume{Name: m.Source, Dest: m.Target, Options: []string{"nosuid", "nodev"}})
		case "tmpfs":
			s.Mounts = append(s.Mounts, tmpfs(m.Target, m.SizeBytes, m.Mode))
		case policy.KindProc, policy.KindSys, policy.KindDev:
			// podman's and crun's own in every container; the entrypoint
			// compares them with what is known of those.
		default:
			return nil, &backend.UnsupportedError{Runtime: policy.RuntimePodman, What: "a mount of kind " + m.Kind + " at " + m.Target}
		}
	}
	bound(s, p.Limits)
	return s, nil
}

// gateSpec is the gate's container: squid as the unprivileged user, on the
// host's network, with nothing writable but its log and a scratch directory.
func gateSpec(g backend.Gate) *specgen.SpecGenerator {
	labels := map[string]string{backend.LabelKind: "gate"}
	if g.Session != "" {
		labels[backend.LabelSession] = g.Session
	}
	if g.GateName != "" {
		labels[backend.LabelGate] = g.GateName
	}
	s := base(g.Image, g.Name, labels)
	s.Command = []string{"gate", gate.ConfDir + "/" + gate.PeekConf, gate.ConfDir + "/" + gate.FrontConf}
	s.User = strconv.Itoa(policy.UID) + ":" + strconv.Itoa(policy.GID)
	s.NetNS = specgen.Namespace{NSMode: specgen.Host}
	s.Mounts = append(s.Mounts,
		bind(g.ConfigDir, gate.ConfDir, true, true),
		bind(g.LogDir, gate.LogDir, false, true),
		tmpfs("/run", 16<<20, "0755"),
		tmpfs("/tmp", 16<<20, "1777"),
		tmpfs("/dev/shm", shmSize, "1777"),
	)
	if g.ControlDir != "" {
		s.Mounts = append(s.Mounts, bind(g.ControlDir, entry.Dir, true, true))
	} else {
		lives := []string{"gate", "--detached"}
		if g.Idle > 0 {
			lives = append(lives, "--idle", strconv.Itoa(int(g.Idle/time.Second)))
		}
		s.Command = append(lives, s.Command[1:]...)
		// Whatever ends it: nobody may come to remove it.
		remove := true
		s.Remove = &remove
	}
	return s
}

func bind(source, target string, readOnly, relabel bool) spec.Mount {
	// private: a mount made on the host later does not appear inside.
	o := []string{"rbind", "rprivate", "nosuid", "nodev"}
	kind := "bind"
	if readOnly {
		// With "ro" alone, what the host has mounted below the source could be
		// written. podman refuses the OCI runtime's "rro" for a bind, and hands a
		// mount of another type on as it is: "rbind" makes it one (crun(1), OCI
		// runtime specification, "Mounts").
		o = append(o, "ro", "rro")
		kind = bindNone
	} else {
		o = append(o, "rw")
	}
	if relabel {
		o = append(o, "z")
	}
	return spec.Mount{Type: kind, Source: source, Destination: target, Options: o}
}

func tmpfs(target string, size int64, mode string) spec.Mount {
	o := []string{"rw", "nosuid", "nodev", "notmpcopyup", "mode=" + mode}
	if size > 0 {
		o = append(o, "size="+strconv.FormatInt(size, 10))
	}
	return spec.Mount{Type: "tmpfs", Source: "tmpfs", Destination: target, Options: o}
}

// Preview renders the two specifications as JSON, for --dry-run.
func Preview(b backend.Sandbox, g backend.Gate) (sandbox, gateSpecJSON string, err error) {
	s, err := sandboxSpec(b)
	if err != nil {
		return "", "", err
	}
	var out [2]string
	for i, v := range []*specgen.SpecGenerator{s, gateSpec(g)} {
		j, err := policy.RenderJSON(v)
		if err != nil {
			return "", "", fmt.Errorf("show the container's specification: %w", err)
		}
		out[i] = string(j)
	}
	return out[0], out[1], nil
}
