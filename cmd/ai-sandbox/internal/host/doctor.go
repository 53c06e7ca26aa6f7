// What the doctor looks at beside the preflight of a run: nothing of it stops one by
// itself, but each has made one fail.

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// AskTools is ProbeTools without what was kept: each program is asked now, and
// bubblewrap makes a jail.
func AskTools(f Facts) Facts {
	f = probeTools(f, "", askVerdicts(f))
	for _, name := range slices.Sorted(maps.Keys(installers)) { // apt-get first
		if find(name, f) != "" {
			f.Installer = name
			break
		}
	}
	return f
}

// installers are the programs that install packages: how, how one is put in the place of
// a broken one, and what a package is called where that is not Debian's name.
var installers = map[string]struct {
	add, again string
	names      map[string]string
}{
	"apt-get": {"apt-get install ", "apt-get install --reinstall ", nil},
	"dnf":     {"dnf install ", "dnf reinstall ", map[string]string{"uidmap": "shadow-utils", "squid-openssl": "squid"}},
	"pacman":  {"pacman -S ", "pacman -S ", map[string]string{"uidmap": "shadow", "squid-openssl": "squid"}},
	"zypper":  {"zypper install ", "zypper install --force ", map[string]string{"uidmap": "shadow", "squid-openssl": "squid"}},
}

// InstallCommand is the command that installs a package, by Debian's name of it; again is for one
// that is there and broken. Where no installer is known it is Debian's.
func InstallCommand(f Facts, name string, again bool) string {
	how, ok := installers[f.Installer]
	if !ok {
		how = installers["apt-get"]
	}
	if other := how.names[name]; other != "" {
		name = other
	}
	if again {
		return "sudo " + how.again + name
	}
	return "sudo " + how.add + name
}

// waiting are the checks that are made when all before them is well, by runtime.
var waiting = map[string][]string{
	policy.RuntimePodman: {"podman's namespace", "podman service", "images", "base image", "disk", "disk of images", "sessions", "sandbox", "nftables", "bind mount", "loopback"},
	policy.RuntimeLocal:  {"disk", "sessions", "sandbox", "bind mount", "loopback"},
}

// Waiting are the verdicts on what was not tried, as something before it is not well.
func Waiting(list []Verdict, runtime string) []Verdict {
	bad := Problems(list)
	if len(bad) == 0 {
		return nil
	}
	var out []Verdict
	for _, name := range waiting[runtime] {
		if !slices.ContainsFunc(list, func(v Verdict) bool { return v.Name == name }) {
			out = append(out, NotTried(name, "mend "+bad[0].Name+" first", bad[0].Fix))
		}
	}
	return out
}

// A Space is what is free on a file system for this user.
type Space struct {
	Path         string
	Bytes, Files uint64
	// NoFiles: the file system does not count files (btrfs, say).
	NoFiles bool
	Err     error
}

// SpaceAt looks at the file system of a path, or of what exists above it.
func SpaceAt(path string) Space {
	s := Space{Path: path}
	for p := path; ; p = filepath.Dir(p) {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		if errors.Is(err, fs.ErrNotExist) && p != "/" {
			continue
		}
		if err != nil {
			s.Err = err
			return s
		}
		s.Bytes, s.Files, s.NoFiles = st.Bavail*uint64(st.Bsize), st.Ffree, st.Files == 0 //nolint:gosec // a block's size
		return s
	}
}

// Room for what a run and its gate write, and for an image and its build, in bytes.
const (
	minState   = 64 << 20
	minRuntime = 8 << 20
	minStore   = 256 << 20
	buildsIn   = 3 << 30
	minFiles   = 1000
)

// CheckSpace judges one file system. least is in bytes, and fix what gives room.
func CheckSpace(name string, s Space, least uint64, fix string) Verdict {
	v := Verdict{Name: name, Fix: fix, Detail: fmt.Sprintf("%d MB free for %s", s.Bytes/1e6, quote(s.Path))}
	switch {
	case s.Err != nil:
		v.Problem = fmt.Sprintf("the file system of %s can't be looked at (%v); make it accessible", quote(s.Path), s.Err)
		v.Fix = "ls -ld " + quote(s.Path)
	case s.Bytes < least:
		v.Problem = fmt.Sprintf("only %d MB are free for %s, and %d MB are needed; make room", s.Bytes/1e6, quote(s.Path), least/1e6)
	case !s.NoFiles && s.Files < minFiles:
		v.Problem = fmt.Sprintf("only %d more files fit in the file system of %s, whatever their size; remove some", s.Files, quote(s.Path))
	}
	return v
}

// Disk judges the room for ai-sandbox's files and, on podman's runtime, for images.
func Disk(f Facts, runtime string, imagesBuilt bool) []Verdict {
	out := []Verdict{CheckSpace("disk", SpaceAt(f.Dirs.State), minState, "ai-sandbox clean")}
	if runtime == policy.RuntimePodman {
		least := uint64(buildsIn)
		if imagesBuilt {
			least = minStore
		}
		out = append(out, CheckSpace("disk of images", SpaceAt(f.Dirs.Store), least, "podman image prune"))
	}
	if f.Dirs.XDGRuntime != "" {
		out = append(out, CheckSpace("disk in memory", SpaceAt(f.Dirs.Runtime()), minRuntime, "du -sh "+quote(f.Dirs.XDGRuntime)))
	}
	return withoutFix(out)
}

// Clock is what is known of the time.
type Clock struct {
	Now time.Time
	// Synced: the kernel's clock is kept by somebody (adjtimex(2)).
	Synced bool
	// Newest is the newest of our own files, which no clock can be before.
	Newest time.Time
}

// ReadClock asks the kernel.
func ReadClock(f Facts) Clock {
	c := Clock{Now: time.Now()}
	var tx unix.Timex
	if state, err := unix.Adjtimex(&tx); err == nil {
		c.Synced = state != unix.TIME_ERROR
	}
	for _, name := range []string{"journal.jsonl", "records", "sessions"} {
		if info, err := os.Stat(filepath.Join(f.Dirs.State, name)); err == nil && info.ModTime().After(c.Newest) {
			c.Newest = info.ModTime()
		}
	}
	return c
}

// written is when this was: a clock before it is wrong.
var written = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// slack is how far a file may seem to be from the future.
const slack = 5 * time.Minute

// CheckClock judges the clock, by which certificates and a pin's age are.
func CheckClock(c Clock) Verdict {
	v := Verdict{Name: "clock", Detail: c.Now.UTC().Format(time.RFC3339), Fix: "sudo timedatectl set-ntp true"}
	switch {
	case c.Now.Before(written):
		v.Problem = fmt.Sprintf("the clock says %s, which has been; set it, or no server's certificate is valid", c.Now.UTC().Format(time.RFC3339))
	case c.Newest.Sub(c.Now) > slack:
		v.Problem = fmt.Sprintf("the clock says %s, and ai-sandbox has written a file at %s: it was set back; set it right", c.Now.UTC().Format(time.RFC3339), c.Newest.UTC().Format(time.RFC3339))
	case !c.Synced:
		v.Info = true // it may be right by itself
		v.Problem = fmt.Sprintf("the clock says %s, and nothing keeps it right; have it kept", v.Detail)
	}
	return withoutFix([]Verdict{v})[0]
}

// Kernels judges what a security module of the kernel says about namespaces and
// labels. Whether a sandbox comes up with it is seen by starting one.
func Kernels(f Facts) []Verdict {
	aa := Verdict{Name: "AppArmor", Detail: "does not restrict user namespaces"}
	if f.Kernel.AppArmorRestricts == "1" {
		aa.Detail = "restricts user namespaces to programs whose profile allows them"
		if f.Bwrap.Refused != "" {
			aa.Info = true
			aa.Problem = "it keeps bubblewrap from making user namespaces; give bubblewrap a profile that allows it"
			aa.Fix = appArmorFix(f.Bwrap.Path)
		}
	}
	se := Verdict{Name: "SELinux", Detail: "not in force: mounts need no label"}
	if f.SELinux {
		se.Detail = "in force: what is mounted gets the shared label of containers (:z)"
	}
	return []Verdict{aa, se}
}

// fileType is the type that podman gives to what is mounted with a shared label
// (podman-run(1), --volume; container_selinux(8)).
const fileType = "container_file_t"

// MountLabel judges the label of a directory that was mounted into a container: where the
// file system keeps none, SELinux lets nothing inside get at it.
func MountLabel(dir string) Verdict {
	b := make([]byte, 256)
	n, err := unix.Lgetxattr(dir, "security.selinux", b)
	return mountLabel(filepath.Dir(dir), strings.TrimRight(string(b[:max(n, 0)]), "\x00"), err)
}

func mountLabel(dir, label string, err error) Verdict {
	v := Verdict{Name: "labels", Detail: "what is mounted gets " + quote(label)}
	words := strings.Split(label, ":")
	switch {
	case err != nil:
		v.Problem = fmt.Sprintf("the file system of %s keeps no SELinux label (%v); work on another one", quote(dir), err)
		v.Fix = "findmnt --target " + quote(dir)
	case len(words) != 4 || words[2] != fileType || words[3] != "s0":
		v.Problem = fmt.Sprintf("what was mounted has the SELinux label %s, and not the shared one of containers; have podman set labels", quote(label))
		v.Fix = "podman info --format '{{.Host.Security.SELinuxEnabled}}'"
	}
	return v
}

// PodmanNamespace judges whether podman has run a program in its user namespace; said is
// its own word where it could not.
func PodmanNamespace(f Facts, said string) Verdict {
	v := Verdict{Name: "podman's namespace", Detail: "podman makes a user namespace with your range of ids"}
	if said == "" {
		return v
	}
	v.Fix = "podman unshare true" // shows it again
	why := "podman can't make a user namespace"
	if reason, fix := kernelForbids(f, f.Podman.Path); fix != "" {
		why, v.Fix = reason, fix
	}
	v.Problem = why + " (podman says: " + quote(said) + ")"
	return v
}

// IDMapping judges the programs that give a user namespace its ids, without which
// podman has a single one.
func IDMapping(f Facts) Verdict {
	v := Verdict{Name: "newuidmap", Detail: "installed, and newgidmap", Fix: InstallCommand(f, "uidmap", false)}
	for _, name := range []string{"newuidmap", "newgidmap"} {
		path := find(name, f)
		if path == "" {
			v.Problem = name + " is not installed, and podman needs it; install uidmap"
			return v
		}
		if !mayMapIDs(path) {
			v.Problem, v.Fix = fmt.Sprintf("%s is neither setuid nor has a capability, so it can give out no ids; mend it", quote(path)), "sudo chmod u+s "+path
			return v
		}
	}
	return withoutFix([]Verdict{v})[0]
}

// mayMapIDs: Debian's and Ubuntu's are setuid, Fedora's have a capability of the file.
func mayMapIDs(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSetuid != 0 {
		return err == nil
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}
