// The command line of bubblewrap (bwrap(1), 0.8 and later): a pure function from
// what the session asks for, and a few facts about the machine, to the options.
// Nothing is left to a default of bubblewrap's, and --unshare-all, which only
// tries two of the namespaces, is not used.

package local

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// hostname is what the machine is called inside.
const hostname = "sandbox"

// The first descriptors that bubblewrap gets beside the standard ones; those of
// the files follow.
const (
	infoFD = 3 + iota
	blockFD
	firstFileFD
)

// A jail is what is to be seen and run inside: a sandbox's or a gate's.
type jail struct {
	mounts []policy.Mount
	// hostNet shares the host's network.
	hostNet bool
	limits  policy.Limits
	// args are the entrypoint's.
	args []string
}

// facts are what the command line takes from the machine.
type facts struct {
	// program is the host path of the entrypoint.
	program string
	// masks are the entries of /proc to be covered.
	masks []mask
}

// A mask covers an entry of /proc that tells of the machine, or leads into it.
type mask struct {
	path string
	dir  bool
}

// An option is one option of bubblewrap. fd names what a descriptor is, which
// comes first among the arguments where there is one.
type option struct {
	flag string
	fd   string
	args []string
}

// A command is the whole command line without the program's name, and the
// contents of the files in the order of their descriptors.
type command struct {
	options []option
	program []string
	files   []policy.Mount
}

func (c *command) add(flag string, args ...string) {
	c.options = append(c.options, option{flag: flag, args: args})
}

func (c *command) addFD(flag, name string, args ...string) {
	c.options = append(c.options, option{flag: flag, fd: name, args: args})
}

// jailOf refuses whatever the policy has and a jail has not.
func jailOf(s backend.Sandbox) (jail, error) {
	p := s.Policy
	no := func(format string, a ...any) (jail, error) {
		return jail{}, &backend.UnsupportedError{Runtime: policy.RuntimeLocal, What: fmt.Sprintf(format, a...)}
	}
	switch {
	case p.Runtime != policy.RuntimeLocal:
		return no("a policy of runtime %s", policy.Quote(p.Runtime))
	case p.Isolation != policy.IsolationProcess:
		return no("isolation %s", policy.Quote(p.Isolation))
	case p.Image != nil || s.Image != "":
		return no("an image")
	case p.KeepRoot:
		return no("insecure_keep_root")
	case len(p.Capabilities) > 0:
		return no("capabilities (%s)", strings.Join(p.Capabilities, ", "))
	case p.Net.GateName != "":
		return no("a named gate")
	case !slices.Contains(networks, p.Net.Mode):
		return no("--net %s", policy.Quote(p.Net.Mode))
	}
	j := jail{hostNet: p.Net.Mode == policy.NetHost, limits: p.Limits, args: []string{"session"}}
	for _, m := range p.Mounts {
		if m.Relabel {
			return no("a shared SELinux label (%s)", policy.Quote(m.Target))
		}
		if !slices.Contains(kinds, m.Kind) {
			return no("a mount of kind %s (%s)", policy.Quote(m.Kind), policy.Quote(m.Target))
		}
		if m.Target == spec.Dir {
			m.Source = s.ControlDir
		}
		j.mounts = append(j.mounts, m)
	}
	return j, nil
}

// kinds are the mounts that a jail can have.
var kinds = []string{policy.KindBind, policy.KindTmpfs, policy.KindSymlink, policy.KindFile, policy.KindProgram, policy.KindProc, policy.KindDev}

// networks are the networks that a jail can have.
var networks = []string{policy.NetUnix, policy.NetNone, policy.NetHost}

// gateJail is the gate's jail: squid as the unprivileged user, on the host's
// network, with nothing writable but its log and scratch directories.
func gateJail(g backend.Gate, system []policy.Mount) jail {
	bind := func(source, target string, readOnly bool) policy.Mount {
		return policy.Mount{Kind: policy.KindBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	mounts := slices.Clone(system)
	// What squid finds names with.
	for _, f := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"} {
		mounts = append(mounts, bind(f, f, true))
	}
	mounts = append(mounts,
		policy.Mount{Kind: policy.KindProc, Target: "/proc", ReadOnly: true},
		policy.Mount{Kind: policy.KindDev, Target: "/dev", ReadOnly: true},
		policy.Mount{Kind: policy.KindTmpfs, Target: "/dev/shm", SizeBytes: 64 << 20, Mode: "1777"},
		policy.Mount{Kind: policy.KindTmpfs, Target: "/tmp", SizeBytes: 16 << 20, Mode: "1777"},
		policy.Mount{Kind: policy.KindTmpfs, Target: "/run", SizeBytes: 16 << 20, Mode: "0755"},
		bind(g.ConfigDir, gate.ConfDir, true),
		bind(g.LogDir, gate.LogDir, false),
		bind(g.ControlDir, spec.Dir, true),
		policy.Mount{Kind: policy.KindProgram, Target: policy.EntrypointPath, ReadOnly: true},
	)
	return jail{mounts: mounts, hostNet: true,
		args: []string{"gate", gate.ConfDir + "/" + gate.PeekConf, gate.ConfDir + "/" + gate.FrontConf}}
}

// build makes the command line.
func build(j jail, f facts) command {
	var c command
	c.add("--unshare-user")
	c.add("--disable-userns")
	c.add("--unshare-ipc")
	c.add("--unshare-pid")
	c.add("--unshare-uts")
	c.add("--unshare-cgroup")
	if !j.hostNet {
		c.add("--unshare-net")
	}
	c.add("--uid", strconv.Itoa(policy.UID))
	c.add("--gid", strconv.Itoa(policy.GID))
	c.add("--hostname", hostname)
	c.add("--die-with-parent")
	c.add("--as-pid-1")
	c.add("--new-session") // no way to the terminal of whoever started us
	c.add("--cap-drop", "ALL")
	c.add("--clearenv")
	c.add("--chdir", "/")
	c.addFD("--info-fd", "info")
	c.addFD("--block-fd", "block")
	// What is remounted read-only is so last: mount points are still made in it.
	var last command
	for _, m := range j.mounts {
		mount(&c, &last, m, f)
	}
	last.add("--remount-ro", "/")
	c.options = append(c.options, last.options...)
	c.program = append([]string{policy.EntrypointPath}, j.args...)
	return c
}

// mount adds one mount, and to last what comes after all of them.
func mount(c, last *command, m policy.Mount, f facts) {
	source := m.Source
	switch m.Kind {
	case policy.KindProgram:
		source = f.program
		fallthrough
	case policy.KindBind:
		flag := "--bind"
		if m.ReadOnly {
			flag = "--ro-bind"
		}
		c.add(flag, source, m.Target)
	case policy.KindTmpfs:
		if m.Mode != "" {
			c.add("--perms", m.Mode)
		}
		if m.SizeBytes > 0 {
			c.add("--size", strconv.FormatInt(m.SizeBytes, 10))
		}
		c.add("--tmpfs", m.Target)
		if m.ReadOnly {
			last.add("--remount-ro", m.Target)
		}
	case policy.KindSymlink:
		c.add("--symlink", m.Source, m.Target)
	case policy.KindFile:
		// On the root's own tmpfs, which ends read-only: no mount of its own.
		c.add("--perms", "0444")
		c.addFD("--file", m.Target, m.Target)
		c.files = append(c.files, m)
	case policy.KindProc:
		c.add("--proc", m.Target)
		for _, k := range f.masks {
			target := m.Target + strings.TrimPrefix(k.path, "/proc")
			if k.dir {
				c.add("--perms", "0555")
				c.add("--tmpfs", target)
				last.add("--remount-ro", target)
			} else {
				// Bound without the right to use devices: it can't be opened.
				c.add("--ro-bind", "/dev/null", target)
			}
		}
		// Run by root, uid 1000 inside owns what is in /proc, and the kernel
		// asks for no privilege to write to most of /proc/sys.
		last.add("--remount-ro", m.Target)
	case policy.KindDev:
		c.add("--dev", m.Target)
		last.add("--remount-ro", m.Target) // see lockDevices for what is in it
	}
}

// argv is the command line as bubblewrap gets it, after its own name.
func (c command) argv() []string {
	var out []string
	file := firstFileFD
	for _, o := range c.options {
		out = append(out, o.flag)
		switch o.flag {
		case "--info-fd":
			out = append(out, strconv.Itoa(infoFD))
		case "--block-fd":
			out = append(out, strconv.Itoa(blockFD))
		case "--file":
			out = append(out, strconv.Itoa(file))
			file++
		}
		out = append(out, o.args...)
	}
	return append(append(out, "--"), c.program...)
}

// String shows the command line, an option a line, with a word for each
// descriptor.
func (c command) String() string {
	var b strings.Builder
	b.WriteString("bwrap")
	line := func(words ...string) {
		b.WriteString(" \\\n ")
		for _, w := range words {
			b.WriteString(" " + w)
		}
	}
	for _, o := range c.options {
		words := []string{o.flag}
		if o.fd != "" {
			words = append(words, "<fd of "+policy.Quote(o.fd)+">")
		}
		for _, a := range o.args {
			words = append(words, shown(a))
		}
		line(words...)
	}
	words := []string{"--"}
	for _, a := range c.program {
		words = append(words, shown(a))
	}
	line(words...)
	b.WriteString("\n")
	return b.String()
}

// shown leaves a placeholder readable.
func shown(s string) string {
	if strings.HasPrefix(s, "<") && strings.HasSuffix(s, ">") {
		return s
	}
	return policy.Quote(s)
}

// Preview is the command line of a sandbox, for --dry-run, and what limits its
// first process besides, if anything does.
func Preview(s backend.Sandbox) (argv, limits string, err error) {
	j, err := jailOf(s)
	if err != nil {
		return "", "", err
	}
	return build(j, previewFacts()).String(), limitsText(s.Name, j.limits), nil
}

// PreviewGate is the command line of a squid gate, for --dry-run.
func PreviewGate(g backend.Gate, system []policy.Mount) string {
	return build(gateJail(g, system), previewFacts()).String()
}

func previewFacts() facts { return facts{program: "<entrypoint>", masks: masks()} }
