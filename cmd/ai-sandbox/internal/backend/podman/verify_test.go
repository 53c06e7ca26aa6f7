package podman

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"
)

// told is what the OCI runtime is told for a container that is as asked for.
func told(s *specgen.SpecGenerator) (*spec.Spec, *define.InspectContainerData) {
	const own = "/run/containers/x/userdata"
	ro := []string{"bind", "ro", "nosuid", "nodev"}
	oci := &spec.Spec{
		Process: &spec.Process{Args: []string{entrypointPath, "version"}, NoNewPrivileges: true, Env: []string{"HOME=/root"}, Capabilities: &spec.LinuxCapabilities{}},
		Root:    &spec.Root{Readonly: true},
		Mounts: append([]spec.Mount{
			{Destination: "/proc", Type: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Options: []string{"nosuid", "mode=755", "ro"}},
			{Destination: "/dev/pts", Type: "devpts", Options: []string{"nosuid", "newinstance"}},
			{Destination: "/sys", Type: "sysfs", Options: []string{"nosuid", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Options: []string{"nosuid", "nodev", "ro"}},
			{Destination: "/etc/hostname", Type: "bind", Source: own + "/hostname", Options: ro},
			{Destination: "/etc/hosts", Type: "bind", Source: own + "/hosts", Options: ro},
			{Destination: "/etc/resolv.conf", Type: "bind", Source: own + "/resolv.conf", Options: ro},
			{Destination: "/run/.containerenv", Type: "bind", Source: own + "/.containerenv", Options: ro},
		}, s.Mounts...),
		Annotations: map[string]string{"io.container.manager": "libpod"},
		Linux:       &spec.Linux{Seccomp: &spec.LinuxSeccomp{DefaultAction: spec.ActErrno}, Sysctl: map[string]string{"net.a": "1"}},
	}
	for _, t := range []spec.LinuxNamespaceType{"pid", "ipc", "uts", "mount", "user", "cgroup", "network"} {
		oci.Linux.Namespaces = append(oci.Linux.Namespaces, spec.LinuxNamespace{Type: t})
	}
	return oci, &define.InspectContainerData{HostnamePath: own + "/hostname"}
}

// Whatever a file of podman's adds, the OCI runtime is told.
func TestOCIDifferences(t *testing.T) {
	mount := func(target string) func(*spec.Spec) *spec.Mount {
		return func(o *spec.Spec) *spec.Mount {
			return &o.Mounts[slices.IndexFunc(o.Mounts, func(m spec.Mount) bool { return m.Destination == target })]
		}
	}
	for name, tc := range map[string]struct {
		change  func(o *spec.Spec)
		setting string
	}{
		"command":         {func(o *spec.Spec) { o.Process.Args = append([]string{"/run/podman-init", "--"}, o.Process.Args...) }, "init"},
		"user":            {func(o *spec.Spec) { o.Process.User.UID = 1000 }, ""},
		"privileges":      {func(o *spec.Spec) { o.Process.NoNewPrivileges = false }, ""},
		"root":            {func(o *spec.Spec) { o.Root.Readonly = false }, "read_only"},
		"bounding":        {func(o *spec.Spec) { o.Process.Capabilities.Bounding = []string{"CAP_SYS_ADMIN"} }, "default_capabilities"},
		"ambient":         {func(o *spec.Spec) { o.Process.Capabilities.Ambient = []string{"CAP_SYS_ADMIN"} }, "default_capabilities"},
		"variable":        {func(o *spec.Spec) { o.Process.Env = append(o.Process.Env, "LISTEN_FDS=1") }, "env, env_host, http_proxy"},
		"hook":            {func(o *spec.Spec) { o.Hooks = &spec.Hooks{CreateContainer: []spec.Hook{{Path: "/x"}}} }, "hooks_dir"},
		"no hooks":        {func(o *spec.Spec) { o.Hooks = &spec.Hooks{} }, "none"},
		"annotation":      {func(o *spec.Spec) { o.Annotations["run.oci.handler"] = "krun" }, "annotations"},
		"sysctl":          {func(o *spec.Spec) { o.Linux.Sysctl["net.b"] = "1" }, "default_sysctls"},
		"other sysctl":    {func(o *spec.Spec) { o.Linux.Sysctl["net.a"] = "2" }, "default_sysctls"},
		"no sysctl":       {func(o *spec.Spec) { delete(o.Linux.Sysctl, "net.a") }, ""},
		"device":          {func(o *spec.Spec) { o.Linux.Devices = []spec.LinuxDevice{{Path: "/dev/kvm"}} }, setDevices},
		"device as mount": {func(o *spec.Spec) { o.Mounts = append(o.Mounts, spec.Mount{Destination: "/dev/kvm", Type: "bind"}) }, setDevices},
		"no filter":       {func(o *spec.Spec) { o.Linux.Seccomp = nil }, "seccomp_profile"},
		"empty filter":    {func(o *spec.Spec) { o.Linux.Seccomp.DefaultAction = spec.ActAllow }, "seccomp_profile"},
		"no namespace":    {func(o *spec.Spec) { o.Linux.Namespaces = o.Linux.Namespaces[1:] }, ""},
		"its namespace":   {func(o *spec.Spec) { o.Linux.Namespaces[0].Path = "/proc/1/ns/pid" }, ""},
		"mount":           {func(o *spec.Spec) { o.Mounts = append(o.Mounts, spec.Mount{Destination: "/x", Type: "bind"}) }, setMounts},
		"mount's type":    {func(o *spec.Spec) { mount("/dev/mqueue")(o).Type = "bind" }, setDevices},
		"mount's source":  {func(o *spec.Spec) { mount("/etc/resolv.conf")(o).Source = "/etc/resolv.conf" }, setMounts},
		"writable": {func(o *spec.Spec) {
			m := mount("/etc/hosts")(o)
			m.Options = append(slices.Clone(m.Options), "rw")
		}, setMounts},
		"not read-only": {func(o *spec.Spec) { mount("/sys")(o).Options = []string{"nosuid", "nodev"} }, setMounts},
		"no mount":      {func(o *spec.Spec) { o.Mounts = o.Mounts[1:] }, ""},
		"time zone": {func(o *spec.Spec) {
			o.Mounts = append(o.Mounts, spec.Mount{Destination: "/etc/localtime", Type: "bind"})
		}, "tz"},
	} {
		t.Run(name, func(t *testing.T) {
			s := primeSpec("x")
			s.Sysctl = map[string]string{"net.a": "1"}
			oci, data := told(s)
			if p := ociDifferences(oci, data, s); len(p) > 0 {
				t.Fatalf("the positive control: %v", p)
			}
			tc.change(oci)
			p := ociDifferences(oci, data, s)
			if tc.setting == "none" {
				if len(p) > 0 {
					t.Errorf("differences: %v", p)
				}
				return
			}
			if len(p) == 0 || slices.ContainsFunc(p, func(d difference) bool { return d.setting != tc.setting }) {
				t.Errorf("differences: %v, want some of %q", p, tc.setting)
			}
		})
	}
}

// A configuration that lacks a part is none, whatever it says in the others.
func TestReadOCI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	oci, _ := told(primeSpec("x"))
	for name, change := range map[string]func(){
		"whole": func() {}, "no capabilities": func() { oci.Process.Capabilities = nil }, "no root": func() { oci.Root = nil },
	} {
		oci, _ = told(primeSpec("x"))
		change()
		text, err := json.Marshal(oci)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readOCI(path); (err == nil) != (name == "whole") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMapsUsers(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  bool
	}{
		"as asked for":   {[]string{"0:1:1000", "1000:0:1", "1001:1001:64536"}, true},
		"one id":         {[]string{"1000:0:1"}, false},
		"root is you":    {[]string{"0:0:1", "1:1:65535"}, false},
		"others' files":  {[]string{"0:1:1000", "1000:1000:1"}, false},
		"more than you":  {[]string{"0:1:1000", "1000:0:2"}, false},
		"twice":          {[]string{"0:0:1", "1000:0:1"}, false},
		"nothing at all": {nil, false},
	} {
		m := &define.InspectIDMappings{UIDMap: tc.lines, GIDMap: tc.lines}
		data := &define.InspectContainerData{HostConfig: &define.InspectContainerHostConfig{IDMappings: m}}
		if got := mapsUsers(data, 1000); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		// With root kept, root is you and nobody else is.
		if got := mapsUsers(data, 0); got != (name == "root is you" || name == "twice") {
			t.Errorf("%s, root kept: %v", name, got)
		}
		m.UIDMap = []string{"0:1:1000", "1000:0:1"}
		if got := mapsUsers(data, 1000); got != tc.want {
			t.Errorf("%s, groups alone: %v", name, got)
		}
	}
}

// process makes a directory of /proc.
func process(t *testing.T, proc, pid string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(proc, pid, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutsideUID(t *testing.T) {
	for text, want := range map[string]int{
		"         0     100000       1000\n      1000       1001          1\n": 1001,
		"0 100000 1000\n1000 1001 2\n":                                         -1,
		"0 1001 1\n":                                                           -1,
		"0 0 4294967295\n":                                                     -1,
	} {
		proc := t.TempDir()
		process(t, proc, "7", map[string]string{"uid_map": text})
		if got, err := outsideUID(proc, 7, 1000); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	if _, err := outsideUID(t.TempDir(), 7, 1000); err == nil {
		t.Error("a process that has ended is no error")
	}
}

// Another user's process of that name says nothing of ours.
func TestPastaOf(t *testing.T) {
	proc := t.TempDir()
	const uids, other = "Name:\tpasta\nUid:\t1001\t1001\t1001\t1001\n", "Name:\tpasta\nUid:\t1002\t1002\t1002\t1002\n"
	argv := func(a ...string) string { return strings.Join(a, "\x00") + "\x00" }
	process(t, proc, "5", map[string]string{"status": uids, "cmdline": argv("/usr/bin/pasta", "--netns", "/run/netns/other")})
	process(t, proc, "6", map[string]string{"status": other, "cmdline": argv("pasta", "--mine", "--netns", "/run/netns/x")})
	process(t, proc, "7", map[string]string{"status": uids, "cmdline": argv("sh", "--netns", "/run/netns/x")})
	if _, got, err := pastaOf(proc, "/run/netns/x", 1001); err == nil {
		t.Errorf("found %q", got)
	}
	process(t, proc, "8", map[string]string{"status": uids, "cmdline": argv("/usr/bin/pasta.avx2", "-t", "none", "--netns", "/run/netns/x")})
	if pid, got, err := pastaOf(proc, "/run/netns/x", 1001); err != nil || pid != 8 || !slices.Equal(got, []string{"-t", "none", "--netns", "/run/netns/x"}) {
		t.Errorf("found %q, %v", got, err)
	}
}

func TestAddedResolvers(t *testing.T) {
	dir := t.TempDir()
	machine, theirs := filepath.Join(dir, "machine"), filepath.Join(dir, "theirs")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(machine, "# made by hand\nsearch a.test b.test\nnameserver 192.0.2.1 # near\nnameserver 192.0.2.2\noptions edns0\n")
	for text, want := range map[string][]string{
		"search a.test b.test\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions edns0\n": nil,
		"nameserver 192.0.2.2\n": nil,
		"":                       nil,
		"nameserver 192.0.2.3\nnameserver 192.0.2.1\n":    {"nameserver 192.0.2.3"},
		"search a.test c.test\noptions edns0 ndots:9\n":   {"search c.test", "options ndots:9"},
		"nameserver a.test\nsearch edns0\n# nameserver 9": {"nameserver a.test", "search edns0"},
	} {
		write(theirs, text)
		if got, err := addedResolvers(theirs, machine); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	write(theirs, "nameserver 192.0.2.2\n")
	if got, err := addedResolvers(theirs, filepath.Join(dir, "none")); err != nil || len(got) == 0 {
		t.Errorf("a machine without resolvers: %q, %v", got, err)
	}
}

// The sentence names each setting once, and what to do about whose service.
func TestRefuse(t *testing.T) {
	c := &Client{config: Config{RuntimeDir: "/run/x"}, socket: "/run/podman.sock"}
	if err := c.refuse(nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	p := []difference{{"b", "devices"}, {"a", ""}, {"b", "devices"}}
	const begin = "the container is not as asked for: a; b"
	if got, want := c.refuse(p).Error(), begin+"; take out of podman's containers.conf: devices, and start the podman service at /run/podman.sock anew; or stop that service, and ai-sandbox begins one of its own that leaves such settings out"; got != want {
		t.Errorf("%s", got)
	}
	c.socket = "/run/x/podman.sock"
	if got := c.refuse(p).Error(); !strings.HasPrefix(got, begin+"; take out") || strings.Contains(got, "one of its own") {
		t.Errorf("%s", got)
	}
	if got := c.refuse(p[1:2]).Error(); got != "the container is not as asked for: a" {
		t.Errorf("%s", got)
	}
}

func TestServiceCommand(t *testing.T) {
	global, env := serviceCommand([]string{"A=1", "CONTAINERS_CONF=/y", "CONTAINERS_CONF_OVERRIDE=/mine.conf"}, "/run/x/containers.conf")
	if !slices.Equal(global, []string{"--module", "/mine.conf", "--default-mounts-file", "/dev/null"}) ||
		!slices.Equal(env, []string{"A=1", "CONTAINERS_CONF=/y", "CONTAINERS_CONF_OVERRIDE=/run/x/containers.conf"}) {
		t.Errorf("%q, %q", global, env)
	}
	if global, _ := serviceCommand([]string{"CONTAINERS_CONF_OVERRIDE="}, "/x"); slices.Contains(global, "--module") {
		t.Errorf("%q", global)
	}
}

// A list that does not say append = false is added to an earlier one's.
func TestNeutralConf(t *testing.T) {
	for line := range strings.Lines(neutralConf) {
		if strings.Contains(line, "[") && strings.Contains(line, "=") && !strings.HasSuffix(line, " = [{append = false}]\n") {
			t.Errorf("%s", line)
		}
	}
}

// Whoever waits for the lock can be called off, and leaves nothing locked.
func TestFlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := flock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("called off")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := flock(ctx, path)
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Fatalf("locked twice: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel(why)
	if err := <-waited; !errors.Is(err, why) {
		t.Errorf("called off: %v", err)
	}
	unlock()
	late, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	again, err := flock(late, path)
	if err != nil {
		t.Fatalf("it stays locked: %v", err)
	}
	again()
}
