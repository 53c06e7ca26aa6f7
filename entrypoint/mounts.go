// What is mounted must be what the policy says, and each bind the directory
// that the host decided on.

package entrypoint

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// checkMounts compares the mount table and the binds' identities.
func checkMounts(sp *spec.Spec) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	mounts, err := parseMounts(table)
	if err != nil {
		return err
	}
	if err := compareMounts(mounts, sp); err != nil {
		return err
	}
	// As the user: the way to a target may lead through a directory that the
	// container's root may not search.
	return asUser(sp.UID, func() error { return checkBinds(sp.Binds) })
}

// A mount is one line of mountinfo.
type mount struct {
	root     string // of what is mounted, in its own file system
	point    string
	fstype   string
	readOnly bool
}

func compareMounts(mounts []mount, sp *spec.Spec) error {
	jail := sp.Isolation == spec.IsolationProcess
	always := runtimeMount
	if jail {
		always = jailMount
	}
	named, readOnly, tmpfs := set(sp.Mounts), set(sp.ReadOnly), set(sp.Tmpfs)
	seen := make(map[string]bool, len(mounts))
	for _, m := range mounts {
		if seen[m.point] && (jail || named[m.point]) {
			return fmt.Errorf("%s is mounted twice", m.point)
		}
		seen[m.point] = true
		switch {
		case readOnly[m.point] && !m.readOnly:
			return fmt.Errorf("%s is writable, and read-only in the policy", m.point)
		case tmpfs[m.point] && (m.fstype != "tmpfs" || m.root != "/"):
			return fmt.Errorf("%s is not the tmpfs of the policy but %s of %s", m.point, m.root, m.fstype)
		case named[m.point]:
		case m.point == "/":
			if !m.readOnly {
				return errors.New("the root file system is writable")
			}
			// A bound one would show all that is below it.
			if jail && (m.fstype != "tmpfs" || m.root != jailRoot) {
				return fmt.Errorf("the root file system is not bubblewrap's own but %s of %s", m.root, m.fstype)
			}
		case always(m):
		case m.readOnly && readOnly[above(m.point, named)]:
			// The host has mounted something below what is bound.
		default:
			return fmt.Errorf("%s is mounted and not in the policy", m.point)
		}
	}
	for _, p := range sp.Mounts {
		if !seen[p] {
			return fmt.Errorf("%s is in the policy and not mounted", p)
		}
	}
	if !seen["/"] {
		return errors.New("no root file system is mounted")
	}
	return nil
}

// above is the nearest directory above a mount point that is in named, or "/".
func above(point string, named map[string]bool) string {
	for point != "/" {
		if point = path.Dir(point); named[point] {
			break
		}
	}
	return point
}

func set(list []string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, s := range list {
		m[s] = true
	}
	return m
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)).
func parseMounts(table []byte) ([]mount, error) {
	var out []mount
	for sc := bufio.NewScanner(bytes.NewReader(table)); sc.Scan(); {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		f, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 6 || len(t) < 1 {
			return nil, fmt.Errorf("a line of mountinfo makes no sense: %q", sc.Text())
		}
		out = append(out, mount{
			root:     unescape(f[3]),
			point:    unescape(f[4]),
			fstype:   t[0],
			readOnly: f[5] == "ro" || strings.HasPrefix(f[5], "ro,"),
		})
	}
	return out, nil
}

// unescape undoes the octal escapes of mountinfo, which are of three digits.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			b.WriteByte(s[i+1]&7<<6 | s[i+2]&7<<3 | s[i+3]&7)
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func checkBinds(binds []spec.Bind) error {
	for _, b := range binds {
		var st unix.Stat_t
		if err := unix.Lstat(b.Target, &st); err != nil {
			return fmt.Errorf("look at %s: %w", b.Target, err)
		}
		if uint64(st.Dev) != b.Dev || st.Ino != b.Ino {
			return fmt.Errorf("%s is not what the host saw when it decided (device %d inode %d, not %d %d)",
				b.Target, st.Dev, st.Ino, b.Dev, b.Ino)
		}
	}
	return nil
}
