// What is covered of /proc. All of it is read-only in a jail, so this is about
// what can be read there: the list that podman covers in a container
// (containers-common 0.64), and what only the machine's root may read, which
// uid 1000 inside is when root started us.

package local

import "os"

// masked are the candidates.
var masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	// Physical memory and the kernel's own.
	"/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/pagetypeinfo",
	"/proc/slabinfo", "/proc/vmallocinfo",
}

// masks are those candidates that are there, and that the command could read.
func masks() []mask {
	root := os.Geteuid() == 0
	var out []mask
	for _, p := range masked {
		info, err := os.Lstat(p)
		if err != nil || !root && info.Mode().Perm()&0o004 == 0 {
			continue
		}
		out = append(out, mask{path: p, dir: info.IsDir()})
	}
	return out
}
