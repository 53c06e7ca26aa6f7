// Reading back what really came up, from outside and from the kernel's account:
// the options that bubblewrap runs with, the namespaces, users and privileges of
// the jail's first process, and what is mounted there. The entrypoint proves much
// of it inside; here a bubblewrap that understands an option otherwise is found
// without believing anything that it started.

package local

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// Verify implements backend.Backend.
func (b *Backend) Verify(ctx context.Context, id string, s backend.Sandbox) error {
	want, err := jailOf(s)
	if err != nil {
		return err
	}
	return b.verify(ctx, id, want, true)
}

// VerifyGate implements backend.Backend. The gate installs its filter of system
// calls at its start, which may just be happening.
func (b *Backend) VerifyGate(ctx context.Context, id string, g backend.Gate) error {
	return b.verify(ctx, id, gateJail(g, b.config.System), false)
}

// verify compares a running jail with what is wanted.
func (b *Backend) verify(ctx context.Context, id string, want jail, filtered bool) error {
	p, err := b.get(id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	cmd, child, childFD := p.cmd, p.child, p.childFD
	p.mu.Unlock()
	if cmd == nil || child == 0 {
		return fmt.Errorf("look at the jail %s: it was not started", id)
	}
	if p.scoped != nil {
		select {
		case err := <-p.scoped:
			p.scoped <- err // for who asks again
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("bound the jail by a control group: %w", context.Cause(ctx))
		}
	}
	command := build(want, facts{program: p.programPath, masks: masks()})
	problems, err := look(cmd.Process.Pid, child, p, want, command, filtered)
	// The number is the child's as long as the child was there afterwards.
	if ended(childFD) {
		return fmt.Errorf("look at the jail %s: it has ended", id)
	}
	if err != nil {
		return fmt.Errorf("look at the jail %s: %w", id, err)
	}
	if len(problems) > 0 {
		return fmt.Errorf("the jail is not as asked for: %s", strings.Join(problems, "; "))
	}
	return nil
}

// ended tells whether the process of a pidfd is gone.
func ended(f *os.File) bool {
	gone := true
	_ = control(f, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		gone = err != nil || n > 0
		return nil
	})
	return gone
}

// look gathers the differences; an error is what could not be looked at.
func look(bwrap, child int, p *process, want jail, command command, filtered bool) ([]string, error) {
	var problems []string
	if got, err := cmdline(bwrap); err != nil {
		return nil, err
	} else if asked := append([]string{p.bwrap}, command.argv()...); !slices.Equal(got, asked) {
		problems = append(problems, "bubblewrap runs with other options: "+firstDifference(got, asked))
	}
	for _, part := range []func() ([]string, error){
		func() ([]string, error) { return namespaceDifferences(child, want.hostNet) },
		func() ([]string, error) { return statusDifferences(bwrap, child, filtered) },
		func() ([]string, error) { return backend.LimitDifferences(child, want.limits) },
		func() ([]string, error) { return mountDifferences(child, want.mounts) },
		func() ([]string, error) { return sourceDifferences(child, want.mounts, p.programPath, p.bwrap) },
	} {
		more, err := part()
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
	}
	return problems, nil
}

// firstDifference tells where two lists part.
func firstDifference(got, asked []string) string {
	i := 0
	for i < len(got) && i < len(asked) && got[i] == asked[i] {
		i++
	}
	word := func(list []string) string {
		if i < len(list) {
			return policy.Quote(list[i])
		}
		return "nothing"
	}
	return fmt.Sprintf("%s, where %s was asked for", word(got), word(asked))
}

func proc(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func cmdline(pid int) ([]string, error) {
	text, err := os.ReadFile(proc(pid, "cmdline"))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}

// namespaceDifferences compares the child's namespaces with ours.
func namespaceDifferences(child int, hostNet bool) ([]string, error) {
	var out []string
	for _, name := range spec.Namespaces {
		ours, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return nil, err
		}
		its, err := os.Readlink(proc(child, "ns/"+name))
		if err != nil {
			return nil, err
		}
		switch shared := name == "net" && hostNet; {
		case ours == its && !shared:
			out = append(out, "it shares the "+name+" namespace")
		case ours != its && shared:
			out = append(out, "it has a "+name+" namespace of its own")
		}
	}
	for file, id := range map[string]int{"uid_map": policy.UID, "gid_map": policy.GID} {
		text, err := os.ReadFile(proc(child, file))
		if err != nil {
			return nil, err
		}
		ours := os.Geteuid()
		if file == "gid_map" {
			ours = os.Getegid()
		}
		if got, want := strings.Fields(string(text)), []string{strconv.Itoa(id), strconv.Itoa(ours), "1"}; !slices.Equal(got, want) {
			out = append(out, fmt.Sprintf("its %s is %q, and not %q", file, got, want))
		}
	}
	sort.Strings(out)
	return out, nil
}

// statusDifferences compares what the kernel says of the child (proc_pid_status(5)).
func statusDifferences(bwrap, child int, filtered bool) ([]string, error) {
	text, err := os.ReadFile(proc(child, "status"))
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			got[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	four := func(id int) string {
		return strings.TrimSuffix(strings.Repeat(strconv.Itoa(id)+" ", 4), " ")
	}
	const none = "0000000000000000"
	want := map[string]string{
		"PPid": strconv.Itoa(bwrap),
		"Uid":  four(os.Geteuid()), "Gid": four(os.Getegid()),
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1",
	}
	if filtered {
		want["Seccomp"] = "2"
	}
	if os.Geteuid() == 0 {
		want["Groups"] = ""
	}
	var out []string
	for name, w := range want {
		if g, ok := got[name]; !ok || g != w {
			out = append(out, fmt.Sprintf("%s is %q, and not %q", name, g, w))
		}
	}
	// The last of them is its number in its own namespace.
	if pids := strings.Fields(got["NSpid"]); len(pids) < 2 || pids[len(pids)-1] != "1" {
		out = append(out, fmt.Sprintf("it is process %q, and not 1 of a namespace", got["NSpid"]))
	}
	sort.Strings(out)
	return out, nil
}

// A mounted is one line of mountinfo.
type mounted struct {
	point, fstype string
	readOnly      bool
	noSUID, noDev bool
	size          int64 // of a tmpfs, in bytes; 0 is none
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)).
func parseMounts(table []byte) ([]mounted, error) {
	var out []mounted
	for sc := bufio.NewScanner(bytes.NewReader(table)); sc.Scan(); {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		f, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(f) < 6 || len(t) < 1 {
			return nil, fmt.Errorf("a line of mountinfo makes no sense: %q", sc.Text())
		}
		options := strings.Split(f[5], ",")
		var size int64
		if t[0] == "tmpfs" && len(t) > 2 {
			size = backend.TmpfsSize(t[2])
		}
		out = append(out, mounted{
			point: unescape(f[4]), fstype: t[0],
			readOnly: slices.Contains(options, "ro"),
			noSUID:   slices.Contains(options, "nosuid"),
			noDev:    slices.Contains(options, "nodev"),
			size:     size,
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

// mountDifferences compares the child's mount table with the policy.
func mountDifferences(child int, want []policy.Mount) ([]string, error) {
	table, err := os.ReadFile(proc(child, "mountinfo"))
	if err != nil {
		return nil, err
	}
	got, err := parseMounts(table)
	if err != nil {
		return nil, err
	}
	return compareMounts(got, want, masks(), os.Geteuid() == 0), nil
}

// An expectation is what has to be mounted at a point.
type expectation struct {
	fstype   string // "" is any
	readOnly bool
	size     int64
	device   bool // a node that works
	optional bool
}

// expected is the mount table that a policy makes, but for what the host has
// mounted below a bind.
func expected(want []policy.Mount, masks []mask, root bool) map[string]expectation {
	out := map[string]expectation{"/": {fstype: "tmpfs", readOnly: true}}
	for _, m := range want {
		switch m.Kind {
		case policy.KindBind:
			out[m.Target] = expectation{readOnly: m.ReadOnly}
		case policy.KindProgram:
			out[m.Target] = expectation{readOnly: true}
		case policy.KindTmpfs:
			out[m.Target] = expectation{fstype: "tmpfs", readOnly: m.ReadOnly, size: m.SizeBytes}
		case policy.KindProc:
			out[m.Target] = expectation{fstype: "proc", readOnly: true}
			// bubblewrap covers what it can write to itself.
			for _, n := range []string{"sys", "sysrq-trigger", "irq", "bus"} {
				out[path.Join(m.Target, n)] = expectation{fstype: "proc", readOnly: true, optional: true}
			}
			for _, k := range masks {
				out[m.Target+strings.TrimPrefix(k.path, "/proc")] = expectation{readOnly: true}
			}
		case policy.KindDev:
			out[m.Target] = expectation{fstype: "tmpfs", readOnly: true}
			out[path.Join(m.Target, "pts")] = expectation{fstype: "devpts", device: true}
			for _, d := range devices {
				// A user does not own them.
				out[path.Join(m.Target, d)] = expectation{readOnly: root, device: true}
			}
		}
	}
	return out
}

// compareMounts lists the differences.
func compareMounts(got []mounted, want []policy.Mount, masks []mask, root bool) []string {
	expect := expected(want, masks, root)
	seen := map[string]bool{}
	var out []string
	bad := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	for _, m := range got {
		e, ok := expect[m.point]
		if !ok {
			// What the host has mounted below a bind comes with it.
			if above, found := policy.Above(want, m.point); !found || above.Kind != policy.KindBind || !above.ReadOnly || !m.readOnly {
				bad("%s is mounted", policy.Quote(m.point))
			}
			continue
		}
		if seen[m.point] {
			bad("%s is mounted twice", policy.Quote(m.point))
		}
		seen[m.point] = true
		switch {
		case e.fstype != "" && m.fstype != e.fstype:
			bad("%s is of type %s, and not %s", policy.Quote(m.point), m.fstype, e.fstype)
		case e.readOnly && !m.readOnly:
			bad("%s is writable", policy.Quote(m.point))
		case !e.readOnly && m.readOnly:
			bad("%s is read-only", policy.Quote(m.point))
		case e.size != 0 && m.size != e.size:
			bad("%s holds %d bytes, and not %d", policy.Quote(m.point), m.size, e.size)
		case !m.noSUID:
			bad("%s lets programs change the user", policy.Quote(m.point))
		case !m.noDev && !e.device:
			bad("%s lets devices work", policy.Quote(m.point))
		}
	}
	for point, e := range expect {
		if !seen[point] && !e.optional {
			bad("nothing is mounted at %s", policy.Quote(point))
		}
	}
	sort.Strings(out)
	return out
}

// sourceDifferences compares what is at each target with the source of the bind,
// by device and inode, and the program that runs with the entrypoint's file.
func sourceDifferences(child int, want []policy.Mount, program, bwrap string) ([]string, error) {
	root, err := unix.Open(proc(child, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("look into the jail: %w", err)
	}
	defer unix.Close(root)
	var out []string
	same := func(what string, a, b unix.Stat_t) {
		if a.Dev != b.Dev || a.Ino != b.Ino {
			out = append(out, fmt.Sprintf("%s is another one (device %d inode %d, and not %d %d)", what, a.Dev, a.Ino, b.Dev, b.Ino))
		}
	}
	for _, m := range want {
		source := m.Source
		switch m.Kind {
		case policy.KindProgram:
			source = program
		case policy.KindBind:
		default:
			continue
		}
		var here, there unix.Stat_t
		if err := unix.Stat(source, &here); err != nil {
			return nil, fmt.Errorf("look at %s: %w", policy.Quote(source), err)
		}
		if err := statIn(root, m.Target, &there); err != nil {
			return nil, fmt.Errorf("look at %s in the jail: %w", policy.Quote(m.Target), err)
		}
		same(policy.Quote(m.Target), there, here)
	}
	exe, err := executed(child, bwrap)
	if err != nil {
		return nil, err
	}
	var file unix.Stat_t
	if err := unix.Stat(program, &file); err != nil {
		return nil, fmt.Errorf("look at the entrypoint: %w", err)
	}
	same("the program that runs", exe, file)
	return out, nil
}

// execTime bounds the moment between the end of bubblewrap's work and the start
// of the program.
const execTime = 30 * time.Second

// executed is what the child runs, once that is no longer bubblewrap itself.
func executed(child int, bwrap string) (exe unix.Stat_t, err error) {
	var own unix.Stat_t
	if err := unix.Stat(bwrap, &own); err != nil {
		return exe, fmt.Errorf("look at bubblewrap: %w", err)
	}
	for deadline := time.Now().Add(execTime); ; time.Sleep(time.Millisecond) {
		if err := unix.Stat(proc(child, "exe"), &exe); err != nil {
			return exe, fmt.Errorf("look at the jail's program: %w", err)
		}
		if exe.Dev != own.Dev || exe.Ino != own.Ino || time.Now().After(deadline) {
			return exe, nil
		}
	}
}

// statIn looks at a path below root without leaving it, or following a link.
func statIn(root int, target string, st *unix.Stat_t) error {
	fd, err := unix.Openat2(root, strings.TrimPrefix(target, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}
