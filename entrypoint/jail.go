// A jail: bubblewrap has made the namespaces and dropped everything before it
// started us, so nothing is left to install but the filter. What it did is
// proved, from the kernel's own account and by trying.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// proveJail checks what was there before us, and shuts this process.
func (s *session) proveJail(sp *spec.Spec) error {
	if err := checkNamespaces(sp); err != nil {
		return refuse("namespaces", err)
	}
	if sp.Firewall.Mode != spec.ModeHost {
		if err := checkDevices(sp.Firewall.Mode); err != nil {
			return refuse("network", err)
		}
		if err := checkRoutes(); err != nil {
			return refuse("network", err)
		}
		if err := s.test(func() error { return canaryIsSilent(sp, nil) }); err != nil {
			return refuse("network", err)
		}
	}
	if err := checkMounts(sp); err != nil {
		return refuse("mounts", err)
	}
	// Before the filter, which would answer in the kernel's place.
	if err := tryUserNamespace(); err != nil {
		return refuse("namespaces", err)
	}
	return refuse("capabilities", lock())
}

// checkNamespaces compares our namespaces with those that the host is in.
func checkNamespaces(sp *spec.Spec) error {
	if pid := os.Getpid(); pid != 1 {
		return fmt.Errorf("we are process %d and not 1", pid)
	}
	for _, name := range spec.Namespaces {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join("/proc/self/ns", name), &st); err != nil {
			return fmt.Errorf("look at the %s namespace: %w", name, err)
		}
		shared := name == "net" && sp.Firewall.Mode == spec.ModeHost
		switch same := st.Ino == sp.Outside[name]; {
		case same && !shared:
			return fmt.Errorf("the %s namespace is the host's", name)
		case !same && shared:
			return fmt.Errorf("the %s namespace is not the host's, as mode %s has it", name, spec.ModeHost)
		}
	}
	return nil
}

// tryUserNamespace is refused by a kernel that lets nobody in here make one: a
// new one would give every capability back inside it. A child tries, as a
// process with threads may not.
func tryUserNamespace() error {
	// Where it can be made, what fails is the program's start.
	const nothing = "/proc/self/nonesuch"
	pid, err := syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER},
	})
	switch {
	case err == nil:
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return errors.New("a new user namespace can be made inside")
	case errors.Is(err, unix.ENOSPC): // the limit of --disable-userns (user_namespaces(7))
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES): // the machine lets nobody
		return nil
	case errors.Is(err, unix.ENOENT):
		return errors.New("a new user namespace can be made inside")
	}
	return fmt.Errorf("try to make a user namespace: %w", err)
}
