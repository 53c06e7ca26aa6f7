// Where conmon runs.

package podman

import "golang.org/x/sys/unix"

// pin keeps a container's conmon, and what that starts, on one of the processors
// that it may use. When the container ends, conmon starts a podman of its own to
// clean up after it, which does again what our removal does at that moment: two of
// them leave a machine with two processors none for the removal. Measured on such a
// one, it takes a tenth off a whole session; a low priority (nice) took nothing.
// It is no control: an error changes nothing but the time.
func pin(conmon int) {
	var set, one unix.CPUSet
	if unix.SchedGetaffinity(conmon, &set) != nil || set.Count() < 2 {
		return
	}
	for cpu := len(set)*64 - 1; cpu >= 0; cpu-- {
		if set.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	_ = unix.SchedSetaffinity(conmon, &one)
}
