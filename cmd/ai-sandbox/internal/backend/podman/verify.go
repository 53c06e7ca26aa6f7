// Reading back what really came up. containers.conf, mounts.conf, an OCI hook or
// a podman that understands a field otherwise could each make the container
// wider than the specification; here that ends the start.

package podman

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings/containers"
	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

func (c *Client) Verify(ctx context.Context, id string, b backend.Sandbox) error {
	s, err := sandboxSpec(b)
	if err != nil {
		return err
	}
	return c.verify(ctx, id, s, b.Policy.Limits)
}

// VerifyGate implements backend.Backend.
func (c *Client) VerifyGate(ctx context.Context, id string, g backend.Gate) error {
	return c.verify(ctx, id, gateSpecOf(g), policy.Limits{})
}

// verify compares a running container with its specification: as podman has it,
// as the OCI runtime was told, and as the kernel has it.
func (c *Client) verify(ctx context.Context, id string, s *specgen.SpecGenerator, l policy.Limits) error {
	conn, cancel := c.with(ctx)
	defer cancel()
	data, err := containers.Inspect(conn, id, nil)
	if err != nil {
		return fmt.Errorf("look at the container %s: %w", s.Name, translate(err))
	}
	oci, err := readOCI(data.OCIConfigPath)
	if err != nil {
		return fmt.Errorf("look at the container %s: %w", s.Name, err)
	}
	problems := append(differences(data, s), ociDifferences(oci, data, s)...)
	more, err := c.kernelDifferences("/proc", data, s)
	if err != nil {
		return fmt.Errorf("look at the container %s: %w", s.Name, err)
	}
	bounds, err := limitDifferences(oci, data, s, l)
	if err != nil {
		return fmt.Errorf("look at the container %s: %w", s.Name, err)
	}
	return c.refuse(slices.Concat(problems, more, bounds))
}

// A difference is something that a container has otherwise than asked for, and
// the setting that can have made it so: of containers.conf unless it names another
// file. It is empty where none can.
type difference struct{ what, setting string }

// refuse makes an error of differences, and nil of none.
func (c *Client) refuse(problems []difference) error {
	if len(problems) == 0 {
		return nil
	}
	var what, settings []string
	for _, p := range problems {
		what = append(what, p.what)
		if p.setting != "" && !slices.Contains(settings, p.setting) {
			settings = append(settings, p.setting)
		}
	}
	err := errors.New("the container is not as asked for: " + strings.Join(dedupe(what), "; "))
	if len(settings) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, c.advice(settings))
}

// advice is what to do about settings of the service.
func (c *Client) advice(settings []string) string {
	c.mu.Lock()
	socket := c.socket
	c.mu.Unlock()
	names := strings.Join(settings, ", ")
	if socket == c.ownSocket() {
		return fmt.Sprintf("take out of podman's containers.conf: %s; then end the podman service at %s, so that the next start begins a new one", names, socket)
	}
	return fmt.Sprintf("take out of podman's containers.conf: %s, and start the podman service at %s anew; or stop that service, and ai-sandbox begins one of its own that leaves such settings out", names, socket)
}

func dedupe(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// Settings by what they change.
const (
	setMounts  = "volumes, mounts (and mounts.conf)"
	setDevices = "devices"
	setPasta   = "pasta_options"
)

// differences compares what podman says of a container, which it does from its
// creation on.
func differences(data *define.InspectContainerData, s *specgen.SpecGenerator) []difference {
	var p []difference
	bad := func(setting, format string, a ...any) {
		p = append(p, difference{fmt.Sprintf(format, a...), setting})
	}
	if got := strings.TrimPrefix(data.Image, "sha256:"); got != strings.TrimPrefix(s.Image, "sha256:") {
		bad("", "image %s", got)
	}
	if got := append([]string{data.Path}, data.Args...); !slices.Equal(got, slices.Concat(s.Entrypoint, s.Command)) {
		bad("init", "command %q", got)
	}
	if h := data.HostConfig; h == nil {
		bad("", "no host configuration")
	} else {
		if mode, _, _ := strings.Cut(h.NetworkMode, ":"); mode != string(s.NetNS.NSMode) {
			bad("netns", "network mode %q", h.NetworkMode)
		}
		if h.Privileged {
			bad("privileged", "privileged")
		}
		if !h.ReadonlyRootfs {
			bad("read_only", "a writable root file system")
		}
		if h.PidMode != "private" {
			bad("pidns", "pid namespace %q", h.PidMode)
		}
		if h.IpcMode != "private" {
			bad("ipcns", "ipc namespace %q", h.IpcMode)
		}
		if h.UTSMode != "private" {
			bad("utsns", "uts namespace %q", h.UTSMode)
		}
		if len(h.Devices) > 0 {
			bad(setDevices, "devices %v", h.Devices)
		}
		if len(h.PortBindings) > 0 {
			bad("", "published ports %v", h.PortBindings)
		}
		if len(h.GroupAdd) > 0 {
			bad("", "groups %v", h.GroupAdd)
		}
		for _, o := range h.SecurityOpt {
			switch {
			case o == "no-new-privileges":
			case strings.HasPrefix(o, "seccomp="):
				bad("seccomp_profile", "security option %q", o)
			default:
				bad("", "security option %q", o)
			}
		}
		if !slices.Contains(h.SecurityOpt, "no-new-privileges") {
			bad("", "new privileges not barred")
		}
	}
	for _, set := range []struct {
		name string
		caps []string
	}{{"effective", data.EffectiveCaps}, {"bounding", data.BoundingCaps}} {
		if got := capNames(set.caps); !slices.Equal(got, capNames(s.CapAdd)) {
			bad("default_capabilities", "%s capabilities %v", set.name, got)
		}
	}
	if c := data.Config; c == nil {
		bad("", "no configuration")
	} else {
		if c.User != s.User {
			bad("", "user %q", c.User)
		}
		if hc := c.Healthcheck; hc != nil && !slices.Equal(hc.Test, []string{"NONE"}) {
			bad("", "health check %q", hc.Test)
		}
		if c.Timezone != "" { // podman changes a link in the container's layer
			bad("tz", "time zone %s", c.Timezone)
		}
		for name := range c.Annotations {
			if !ownAnnotation(name) {
				bad("annotations", "annotation %s", name)
			}
		}
		p = append(p, envDifferences(c.Env)...)
	}
	return append(p, mountDifferences(data.Mounts, s)...)
}

// envDifferences are the variables that podman does not set by itself. None of
// those that it does reaches the command.
func envDifferences(env []string) []difference {
	var p []difference
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains([]string{"container", "HOME", "HOSTNAME", "TERM", "PATH"}, name) {
			p = append(p, difference{"environment variable " + name, "env, env_host, http_proxy"})
		}
	}
	return p
}

// ownAnnotation tells whether podman itself makes an annotation of that name. The
// OCI runtime obeys others: crun's run.oci.* are a configuration of their own.
func ownAnnotation(name string) bool {
	switch name {
	case "io.container.manager", "org.opencontainers.image.stopSignal",
		"org.systemd.property.KillSignal", "org.systemd.property.TimeoutStopUSec":
		return true
	}
	return strings.HasPrefix(name, "io.podman.annotations.")
}

// mountDifferences compares binds and volumes, which are all that podman names.
func mountDifferences(mounts []define.InspectMount, s *specgen.SpecGenerator) []difference {
	want := map[string]string{}
	for _, m := range s.Mounts {
		if m.Type != "tmpfs" { // podman says bind of every other kind
			want[m.Destination] = mounted("bind", m.Source, slices.Contains(m.Options, "ro"))
		}
	}
	for _, v := range s.Volumes {
		want[v.Dest] = mounted("volume", v.Name, slices.Contains(v.Options, "ro"))
	}
	var p []difference
	for _, m := range mounts {
		source := m.Source
		if m.Type == "volume" {
			source = m.Name
		}
		if got := mounted(m.Type, source, !m.RW); m.Type == "bind" || m.Type == "volume" {
			if want[m.Destination] != got {
				p = append(p, difference{fmt.Sprintf("mount %s at %s", got, m.Destination), setMounts})
			}
			delete(want, m.Destination)
		}
	}
	for target := range want {
		p = append(p, difference{"nothing mounted at " + target, ""})
	}
	return p
}

func mounted(kind, source string, readOnly bool) string {
	return fmt.Sprintf("%s %s ro=%v", kind, source, readOnly)
}

func capNames(caps []string) []string {
	var out []string
	for _, c := range caps {
		out = append(out, strings.TrimPrefix(strings.ToUpper(c), "CAP_"))
	}
	slices.Sort(out)
	return out
}

// readOCI reads what the OCI runtime was told (the runtime specification's
// config.json). podman writes it when the container is set up.
func readOCI(path string) (*spec.Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what its runtime was told: %w", err)
	}
	oci := new(spec.Spec)
	if err := json.Unmarshal(text, oci); err != nil {
		return nil, fmt.Errorf("read what its runtime was told: %s: %w", path, err)
	}
	if oci.Process == nil || oci.Process.Capabilities == nil || oci.Root == nil || oci.Linux == nil {
		return nil, fmt.Errorf("read what its runtime was told: %s is not whole", path)
	}
	return oci, nil
}

// ociDifferences compares what the OCI runtime was told. It has what podman does
// not name: hooks, sysctls, the system call filter, and mounts of every kind.
func ociDifferences(oci *spec.Spec, data *define.InspectContainerData, s *specgen.SpecGenerator) []difference {
	var p []difference
	bad := func(setting, format string, a ...any) {
		p = append(p, difference{fmt.Sprintf(format, a...), setting})
	}
	if got := oci.Process.Args; !slices.Equal(got, slices.Concat(s.Entrypoint, s.Command)) {
		bad("init", "command %q", got)
	}
	if !oci.Process.NoNewPrivileges {
		bad("", "new privileges not barred")
	}
	if !oci.Root.Readonly {
		bad("read_only", "a writable root file system")
	}
	uid, gid, _ := strings.Cut(s.User, ":")
	if u := oci.Process.User; strconv.Itoa(int(u.UID)) != uid || strconv.Itoa(int(u.GID)) != gid {
		bad("", "user %d:%d", u.UID, u.GID)
	}
	caps := oci.Process.Capabilities
	for _, set := range [][]string{caps.Bounding, caps.Effective, caps.Permitted} {
		if got := capNames(set); !slices.Equal(got, capNames(s.CapAdd)) {
			bad("default_capabilities", "capabilities %v", got)
		}
	}
	if got := slices.Concat(caps.Ambient, caps.Inheritable); len(got) > 0 {
		bad("default_capabilities", "capabilities %v to be inherited", got)
	}
	p = append(p, envDifferences(oci.Process.Env)...)
	if h := oci.Hooks; h != nil {
		for _, stage := range [][]spec.Hook{h.Prestart, h.CreateRuntime, h.CreateContainer, h.StartContainer, h.Poststart, h.Poststop} { //nolint:staticcheck // podman still writes prestart
			for _, hook := range stage {
				bad("hooks_dir", "hook %s", hook.Path)
			}
		}
	}
	for name := range oci.Annotations {
		if !ownAnnotation(name) {
			bad("annotations", "annotation %s", name)
		}
	}
	for name, value := range oci.Linux.Sysctl {
		if s.Sysctl[name] != value {
			bad("default_sysctls", "kernel parameter %s=%s", name, value)
		}
	}
	for name := range s.Sysctl {
		if _, ok := oci.Linux.Sysctl[name]; !ok {
			bad("", "kernel parameter %s not set", name)
		}
	}
	for _, d := range oci.Linux.Devices {
		bad(setDevices, "device %s", d.Path)
	}
	if sc := oci.Linux.Seccomp; sc == nil || sc.DefaultAction == spec.ActAllow || sc.DefaultAction == spec.ActLog {
		bad("seccomp_profile", "no filter of system calls by podman")
	}
	p = append(p, namespaceDifferences(oci.Linux.Namespaces, data, s)...)
	return append(p, ociMountDifferences(oci.Mounts, data, s)...)
}

// namespaceDifferences: every namespace is the container's own.
func namespaceDifferences(got []spec.LinuxNamespace, data *define.InspectContainerData, s *specgen.SpecGenerator) []difference {
	want := []spec.LinuxNamespaceType{spec.PIDNamespace, spec.IPCNamespace, spec.UTSNamespace, spec.MountNamespace, spec.UserNamespace, spec.CgroupNamespace}
	if s.NetNS.NSMode != specgen.Host {
		want = append(want, spec.NetworkNamespace)
	}
	var p []difference
	for _, t := range want {
		if !slices.ContainsFunc(got, func(n spec.LinuxNamespace) bool { return n.Type == t }) {
			p = append(p, difference{fmt.Sprintf("no %s namespace of its own", t), ""})
		}
	}
	for _, n := range got {
		made := n.Path == "" || n.Type == spec.NetworkNamespace && data.NetworkSettings != nil && n.Path == data.NetworkSettings.SandboxKey
		if !slices.Contains(want, n.Type) || !made {
			p = append(p, difference{fmt.Sprintf("%s namespace %q", n.Type, n.Path), ""})
		}
	}
	return p
}

// ociMountDifferences compares every mount, with those that podman adds to each
// container.
func ociMountDifferences(mounts []spec.Mount, data *define.InspectContainerData, s *specgen.SpecGenerator) []difference {
	want := map[string]spec.Mount{}
	add := func(m spec.Mount) { want[m.Destination] = m }
	for _, m := range []spec.Mount{
		{Destination: "/proc", Type: "proc", Options: []string{"nosuid", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Options: []string{"nosuid", "ro"}},
		{Destination: "/dev/pts", Type: "devpts", Options: []string{"nosuid", "newinstance"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Options: []string{"nosuid", "nodev", "ro"}},
	} {
		add(m)
	}
	sys := spec.Mount{Destination: "/sys", Type: "sysfs", Options: []string{"nosuid", "nodev", "ro"}}
	if s.NetNS.NSMode == specgen.Host { // sysfs shows the network namespace that it was mounted in
		sys.Type, sys.Source = "bind", "/sys"
	}
	add(sys)
	files := []string{"/etc/hostname", "/run/.containerenv"}
	if s.UseImageHosts == nil || !*s.UseImageHosts {
		files = append(files, "/etc/hosts")
	}
	if s.UseImageResolvConf == nil || !*s.UseImageResolvConf {
		files = append(files, "/etc/resolv.conf")
	}
	for _, f := range files {
		// In podman's own directory of the container.
		add(spec.Mount{Destination: f, Type: "bind", Source: filepath.Join(filepath.Dir(data.HostnamePath), filepath.Base(f)), Options: []string{"nosuid", "nodev", "ro"}})
	}
	for _, m := range s.Mounts {
		m.Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return o == "z" || o == "notmpcopyup" }) // podman's alone
		add(m)
	}
	for _, v := range s.Volumes {
		m := spec.Mount{Destination: v.Dest, Type: "bind", Options: v.Options}
		for _, named := range data.Mounts {
			if named.Type == "volume" && named.Name == v.Name {
				m.Source = named.Source
			}
		}
		add(m)
	}
	var p []difference
	for _, m := range mounts {
		w, ok := want[m.Destination]
		has := func(o string) bool { return slices.Contains(m.Options, o) }
		writable := slices.Contains(w.Options, "ro") && has("rw")
		lacks := slices.ContainsFunc(w.Options, func(o string) bool { return !has(o) })
		if !ok || m.Type != w.Type || w.Source != "" && m.Source != w.Source || lacks || writable {
			p = append(p, difference{fmt.Sprintf("mount %s %s (%s) at %s", m.Type, m.Source, strings.Join(m.Options, ","), m.Destination), mountSetting(m.Destination)})
		}
		delete(want, m.Destination)
	}
	for target := range want {
		p = append(p, difference{"nothing mounted at " + target, ""})
	}
	return p
}

func mountSetting(target string) string {
	switch {
	case target == "/etc/localtime":
		return "tz"
	case strings.HasPrefix(target, "/dev/"): // a node is bound where there are no devices of one's own
		return setDevices
	}
	return setMounts
}

// kernelDifferences compares what is at work: whose processes they are, how pasta
// runs, and whom the gate asks for addresses.
func (c *Client) kernelDifferences(proc string, data *define.InspectContainerData, s *specgen.SpecGenerator) ([]difference, error) {
	if data.State == nil || data.State.Pid == 0 {
		return nil, errors.New("it does not run")
	}
	var p []difference
	outside, err := outsideUID(proc, data.State.Pid, userOf(s))
	if err != nil {
		return nil, err
	}
	if outside != c.config.UID {
		p = append(p, difference{fmt.Sprintf("its user is %d outside, not you", outside), "userns"})
	}
	conmon, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(data.State.ConmonPid), "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("look at its conmon: %w", err)
	}
	pin(data.State.ConmonPid)
	for _, arg := range strings.Split(string(conmon), "\x00") {
		switch arg { // what conmon passes on to the OCI runtime
		case "--no-new-keyring":
			p = append(p, difference{"it has your keyring", "keyring"})
		case "--no-pivot":
			p = append(p, difference{"the machine's root directory lies under its own", "no_pivot_root"})
		}
	}
	if s.NetNS.NSMode == specgen.Pasta {
		if data.NetworkSettings == nil || data.NetworkSettings.SandboxKey == "" {
			return nil, errors.New("it has no network namespace of its own")
		}
		pid, got, err := pastaOf(proc, data.NetworkSettings.SandboxKey, c.config.UID)
		if err != nil {
			return nil, err
		}
		if want := pastaArgs(s.NetworkOptions["pasta"], data.NetworkSettings.SandboxKey); !slices.Equal(got, want) {
			p = append(p, difference{fmt.Sprintf("pasta runs with %q and not with %q", got, want), setPasta})
		}
		if !slices.Equal(s.NetworkOptions["pasta"], pastaOptions(nil)) { // it listens
			c.watchPasta(s.Name, pid)
		}
	}
	if s.UseImageResolvConf == nil || !*s.UseImageResolvConf {
		added, err := addedResolvers(data.ResolvConfPath, "/etc/resolv.conf")
		if err != nil {
			return nil, err
		}
		if len(added) > 0 {
			p = append(p, difference{"it looks names up otherwise than this machine: " + strings.Join(added, " "), "dns_servers, dns_searches, dns_options"})
		}
	}
	return p, nil
}

// outsideUID is whom the namespace of a process maps a uid to, 1 at a time
// (user_namespaces(7)); -1 when it maps more than that uid, or does not.
func outsideUID(proc string, pid, uid int) (int, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "uid_map"))
	if err != nil {
		return 0, fmt.Errorf("look at its users: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count int
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, fmt.Errorf("look at its users: %q: %w", line, err)
		}
		if inside == uid && count == 1 {
			return outside, nil
		}
	}
	return -1, nil
}

// addedResolvers are the words of a resolv.conf(5) that the machine's own has not:
// podman copies that one, and may leave something out.
func addedResolvers(path, machine string) ([]string, error) {
	words := func(path string) ([]string, error) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at the name servers: %w", err)
		}
		var out []string
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			if f := strings.Fields(string(line)); len(f) > 1 {
				for _, value := range f[1:] {
					out = append(out, f[0]+" "+value)
				}
			}
		}
		return out, nil
	}
	theirs, err := words(path)
	if err != nil {
		return nil, err
	}
	own, err := words(machine)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(theirs, func(w string) bool { return slices.Contains(own, w) }), nil
}
