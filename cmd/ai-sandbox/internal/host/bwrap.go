// Bubblewrap: which one it is, and whether it can make a jail on this machine,
// which it has to show by making one.

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"ai-sandbox/policy"
)

// kernel reads what the kernel says about user namespaces.
func kernel(dir string) Kernel {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	return Kernel{
		MaxUserNS:         read("user/max_user_namespaces"),
		UnprivilegedClone: read("kernel/unprivileged_userns_clone"),
		AppArmorRestricts: read("kernel/apparmor_restrict_unprivileged_userns"),
	}
}

// refusedError is bubblewrap's own word that it can't make a jail.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// bubblewrap finds it, and has it make a jail, which is remembered until the
// machine starts anew or one of its settings changes.
func (k *verdicts) bubblewrap(f Facts) Tool {
	path := find("bwrap", f)
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSetuid != 0 {
		// Not even tried: refused anyway.
		return k.ask(path, "setuid", askBubblewrap)
	}
	var refused *refusedError
	var version string
	t := k.ask(path, machine(f), func(path string) (verdict, error) {
		v, err := askBubblewrap(path)
		version = v.Version
		if err == nil {
			err = tryJail(path, f)
		}
		if errors.As(err, &refused) {
			return v, err // not kept: it may be mended any time
		}
		return v, err
	})
	if refused != nil {
		t.Version, t.Err, t.Refused = version, "", refused.text
	}
	return t
}

// machine is what a verdict on namespaces holds for.
func machine(f Facts) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("unknown")
	}
	return strings.Join([]string{strings.TrimSpace(string(boot)), strconv.Itoa(f.UID),
		f.Kernel.MaxUserNS, f.Kernel.UnprivilegedClone, f.Kernel.AppArmorRestricts}, " ")
}

var bubblewrapVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^bubblewrap ([0-9]+\.[0-9]+[^\s]*)`) })

func askBubblewrap(path string) (verdict, error) {
	out, err := run(path, "--version")
	if err != nil {
		return verdict{}, err
	}
	m := bubblewrapVersion().FindStringSubmatch(out)
	if m == nil {
		return verdict{}, fmt.Errorf("%s --version says no version", path)
	}
	return verdict{Version: m[1]}, nil
}

// tryJail makes a jail as a run does, of the machine's own directories, and runs
// a program in it that does nothing. One too old for it has not failed it.
func tryJail(path string, f Facts) error {
	nothing := find("true", f)
	if nothing == "" {
		return errors.New("there is no program named true to try it with")
	}
	out, err := run(path, jailArgs(SystemMounts(), nothing)...)
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(strings.TrimPrefix(out, "bwrap: "))
	if strings.Contains(text, "Unknown option") {
		return nil // judged by its version
	}
	if text == "" {
		text = err.Error()
	}
	text, _, _ = strings.Cut(text, "\n")
	return &refusedError{text}
}

// jailArgs is that jail's command line.
func jailArgs(mounts []policy.Mount, program string) []string {
	args := []string{
		"--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup", "--unshare-net",
		"--uid", strconv.Itoa(policy.UID), "--gid", strconv.Itoa(policy.GID), "--hostname", "sandbox",
		"--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL", "--clearenv", "--chdir", "/",
	}
	for _, m := range mounts {
		if m.Kind == policy.KindSymlink {
			args = append(args, "--symlink", m.Source, m.Target)
		} else {
			args = append(args, "--ro-bind", m.Source, m.Target)
		}
	}
	return append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--", program)
}
