// What can bound a run here: control groups of version 2 that systemd lets this
// user make, and the kernel's own count of processes.

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// Cgroups say which control groups this user can have made.
type Cgroups struct {
	// Manager is the socket of the service manager that makes them: the user's
	// own, or for root the system's.
	Manager string
	// Controllers are those that such a group has ("cpu", "memory", "pids").
	Controllers []string
	// Why there are none, in half a sentence, and what to do about it; Fix is that as
	// a command.
	Why, Fix string
	// CountsByNamespace: RLIMIT_NPROC counts the processes of one user in one
	// user namespace, and not all of that user's (Linux 5.14, user_namespaces(7)).
	CountsByNamespace bool
}

// probeCgroups reads a few files below root.
func probeCgroups(root string, uid int, runtimeDir, user string) Cgroups {
	var c Cgroups
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		c.CountsByNamespace = countsByNamespace(unix.ByteSliceToString(uts.Release[:]))
	}
	top := filepath.Join(root, "sys/fs/cgroup")
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err != nil {
		c.Why = "this machine has no control groups of version 2; boot it with systemd.unified_cgroup_hierarchy=1"
		c.Fix = `sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo update-grub && sudo reboot`
		return c
	}
	manager, dir := filepath.Join(root, "run/systemd/private"), filepath.Join(top, "system.slice")
	none := "systemd does not run here, and nothing else gives out control groups; use a machine that systemd has started"
	fix := "ps -p 1 -o comm="
	if uid != 0 {
		id := strconv.Itoa(uid)
		manager = filepath.Join(runtimeDir, "systemd/private")
		dir = filepath.Join(top, "user.slice/user-"+id+".slice/user@"+id+".service")
		none = fmt.Sprintf("there is no systemd session of %s here, which alone gives out control groups; log in as this user, or run: sudo loginctl enable-linger %s", quote(user), quote(user))
		fix = "sudo loginctl enable-linger " + user
	}
	info, err := os.Stat(manager)
	if err != nil || info.Mode()&os.ModeSocket == 0 || owner(info) != uid {
		c.Why, c.Fix = none, fix
		return c
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		c.Why, c.Fix = none, fix
		return c
	}
	c.Manager, c.Controllers = manager, strings.Fields(string(text))
	return c
}

// countsByNamespace judges a kernel's release.
func countsByNamespace(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}

// LimitFacts are what can hold a limit.
func (f Facts) LimitFacts() policy.LimitFacts {
	of := func(controller string) policy.Enforcement {
		switch c := f.Cgroups; {
		case c.Why != "":
			return policy.Enforcement{Why: c.Why}
		case !slices.Contains(c.Controllers, controller):
			return policy.Enforcement{Why: fmt.Sprintf("systemd gives this user no control group with %s; put \"[Service]\" and \"Delegate=cpu memory pids\" into /etc/systemd/system/user@.service.d/delegate.conf and log in anew", controller)}
		}
		return policy.Enforcement{By: policy.ByCgroup}
	}
	l := policy.LimitFacts{Memory: of("memory"), CPUs: of("cpu"), Pids: of("pids")}
	// The kernel holds root to no RLIMIT_NPROC (clone(2), EAGAIN).
	if l.Pids.By == "" && f.Cgroups.CountsByNamespace && f.UID != 0 {
		l.Pids = policy.Enforcement{By: policy.ByRlimit}
	}
	return l
}

// delegateFix makes systemd hand all three on.
const delegateFix = `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu memory pids\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload`

// limits says for the doctor what can be bounded. What can't be is no reason not
// to run.
func limits(f Facts) Verdict {
	l := f.LimitFacts()
	v := Verdict{Name: "limits", Detail: "memory, cpus and pids can be enforced", Info: true}
	var lacks []string
	why := ""
	for _, one := range []struct {
		key string
		e   policy.Enforcement
	}{{"memory", l.Memory}, {"cpus", l.CPUs}, {"pids", l.Pids}} {
		if one.e.By == "" {
			lacks = append(lacks, one.key)
			why = one.e.Why
		}
	}
	if len(lacks) > 0 {
		v.Problem = fmt.Sprintf("no limit can be enforced on %s: %s", strings.Join(lacks, ", "), why)
		if v.Fix = f.Cgroups.Fix; v.Fix == "" {
			v.Fix = delegateFix
		}
	}
	return v
}
