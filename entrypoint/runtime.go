// What is mounted in every sandbox, whatever the policy: by podman and crun (seen
// on podman 5.4 with crun 1.21; the masks are those of containers-common 0.64),
// and by bubblewrap (seen on 0.8 and 0.12).

package entrypoint

import (
	"path"
	"slices"
)

// runtimeMounts are mount points and the file system types that may be there.
// Not among them, on purpose: the host's hosts file and resolvers, secrets and
// whatever a containers.conf adds.
var runtimeMounts = map[string][]string{
	"/proc":          {"proc"},
	"/sys":           {"sysfs"},
	"/sys/fs/cgroup": {"cgroup2"},
	"/dev":           {"tmpfs"},
	"/dev/pts":       {"devpts"},
	"/dev/shm":       {"tmpfs"},
	"/dev/mqueue":    {"mqueue"},
	"/dev/console":   {"devpts"},

	// Device nodes, bound one by one from wherever the host has them.
	"/dev/null":    nil,
	"/dev/zero":    nil,
	"/dev/full":    nil,
	"/dev/tty":     nil,
	"/dev/random":  nil,
	"/dev/urandom": nil,

	// Files of podman's own, from the directory of the container's record.
	"/etc/hostname":      nil,
	"/run/.containerenv": nil,
}

// masks are what the runtime covers with something empty, or makes read-only.
var masks = []string{
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/fs", "/proc/interrupts", "/proc/irq", "/proc/kcore",
	"/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/sys", "/proc/sysrq-trigger",
	"/proc/timer_list", "/proc/timer_stats",
	"/sys/dev/block", "/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/selinux",
	"/sys/devices/system/cpu/cpu*/thermal_throttle",
}

// runtimeMount reports whether every container has m.
func runtimeMount(m mount) bool {
	if types, ok := runtimeMounts[m.point]; ok {
		return types == nil || slices.Contains(types, m.fstype)
	}
	return m.readOnly && slices.ContainsFunc(masks, func(pattern string) bool {
		ok, err := path.Match(pattern, m.point)
		return err == nil && ok
	})
}

// jailRoot is what bubblewrap makes the root, in a tmpfs of its own.
const jailRoot = "/newroot"

// jailMounts are what bubblewrap's --proc and --dev mount.
var jailMounts = map[string][]string{
	"/dev":     {"tmpfs"},
	"/dev/pts": {"devpts"},
	// Where standard output is a terminal: that one.
	"/dev/console": {"devpts"},

	"/dev/null":    nil,
	"/dev/zero":    nil,
	"/dev/full":    nil,
	"/dev/tty":     nil,
	"/dev/random":  nil,
	"/dev/urandom": nil,
}

// jailProc has to be read-only: a jail that root has made runs as the machine's
// root, without privileges, and the kernel asks for none to write to most of
// /proc/sys (core_pattern there runs a program outside). bubblewrap itself only
// covers some of what is below /proc, for root alone; --remount-ro /proc makes
// it so.
var jailProc = []string{"/proc", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"}

// jailMount reports whether every jail has m.
func jailMount(m mount) bool {
	if slices.Contains(jailProc, m.point) {
		return m.fstype == "proc" && m.readOnly
	}
	types, ok := jailMounts[m.point]
	return ok && (types == nil || slices.Contains(types, m.fstype))
}
