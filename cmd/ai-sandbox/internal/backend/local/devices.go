// The device nodes of a jail that root has started. bubblewrap binds the host's
// own nodes, and uid 1000 inside is then their owner: it could change their mode
// for the whole machine. Their mounts have to be read-only, which does not hinder
// writing to a device (mount(2)); but bubblewrap has no option for that which
// leaves them usable (--remount-ro adds nodev). So it is done from here, in the
// jail's mount namespace, while only the entrypoint runs there.

package local

import (
	"fmt"
	"path"
	"runtime"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// devices are what --dev binds, one by one.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// lockDevices makes the mounts of the nodes in child's namespace read-only.
func lockDevices(child int, mounts []policy.Mount) error {
	if err := onThread(func() error { return lockDevicesHere(child, mounts) }); err != nil {
		return fmt.Errorf("make the device nodes read-only, which takes root's privileges: %w", err)
	}
	return nil
}

// onThread runs f on a thread that ends with it, and so takes what f did to the
// thread along. That is never the main thread, which Go keeps: /proc/self shows
// that one's namespaces and root directory.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, but on the main thread
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		err := onThread(f) // on another one, since this one is taken
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// lockDevicesHere moves this thread into the namespace for good.
func lockDevicesHere(child int, mounts []policy.Mount) error {
	ns, err := unix.Open(proc(child, "ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the mount namespace: %w", err)
	}
	defer unix.Close(ns)
	// A thread that shares its root directory with others can't leave it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	for _, m := range mounts {
		if m.Kind != policy.KindDev {
			continue
		}
		for _, d := range devices {
			node := path.Join(m.Target, d)
			if err := unix.MountSetattr(unix.AT_FDCWD, node, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
		}
	}
	return nil
}
