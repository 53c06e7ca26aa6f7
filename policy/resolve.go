// What is asked for, and the facts about the machine, become one Policy.

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Placeholders for what is only known when a run starts. Filled replaces them.
const (
	// SessionPlaceholder stands for the session's id.
	SessionPlaceholder = "<session>"
	// PortPlaceholder stands for the gate's port.
	PortPlaceholder = "<gate-port>"
)

// FallbackDir is where the project is mounted when its own path would hide
// something of the image or the sandbox; the image has it.
const FallbackDir = "/project"

// Where the image keeps certificates: the bundle that holds an extra CA with
// the usual ones, and the extra CA alone.
const (
	CABundle = "/etc/ssl/certs/ca-certificates.crt"
	ExtraCA  = "/etc/aisb/extra-ca.pem"
	// LocalCABundle is CABundle on the local runtime, where that one is the
	// machine's own.
	LocalCABundle = "/etc/aisb/ca-bundle.pem"
	// LocalTrustStore is LocalCABundle as Java reads it. In an image, Debian's packages
	// make one of what the image trusts.
	LocalTrustStore = "/etc/aisb/truststore.p12"
	// searchPath ends with what the agent can write: a program planted there
	// can't take the place of the image's in a later run.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:" + HomeDir + "/.local/bin"
)

// Facts are what Resolve has to know about the machine and the caller.
type Facts struct {
	// Project is the directory to mount, absolute and without symlinks; "" with
	// Input.NoCwd.
	Project string
	// Tree is the project as far as it is protected, and Git the git directory of
	// a project that is a worktree. GitNote says what of git's is not mounted.
	Tree    Tree
	Git     *GitDir
	GitNote string
	// ProjectID is what it was when it was judged.
	ProjectID Identity
	// Sockets are the unix sockets in the project and in what the harness is
	// given, as host paths.
	Sockets []string
	// RuntimeDir is ai-sandbox's own directory for sockets and FIFOs.
	RuntimeDir string
	// SELinux is set where bind mounts need a label.
	SELinux bool
	// EnvSet tells whether the caller's environment has a value for a name.
	EnvSet func(name string) bool
	// Limits are what can hold a limit here.
	Limits LimitFacts
	// Local is what the local runtime stands on; it takes no other.
	Local LocalFacts
}

// LocalFacts are what the local runtime finds on the machine in the place of an
// image.
type LocalFacts struct {
	// System are the machine's own directories, files and links that are seen
	// inside, read-only.
	System []Mount
	// Homes is the host directory that holds the homes.
	Homes string
	// Tools are read-only binds of what the harness is installed in, and
	// ToolPath the directories to look for programs in before the system's.
	Tools    []Mount
	ToolPath []string
	// CABundle is the machine's own CA certificates with ExtraCA's, in PEM
	// form; nil without an extra CA.
	CABundle, ExtraCA []byte
	// TrustStore has the same certificates as CABundle, for Java.
	TrustStore []byte
}

// An Input is what the user asked for, parsed but not judged.
type Input struct {
	Facts   Facts
	Runtime string
	// Harness is "" when the command was given after "--".
	Harness string
	Command []string
	// Hold: there is no command, and others are run in the sandbox.
	Hold  bool
	Image Image
	// Thinking is how much the agent reasons, or nil.
	Thinking *Thinking

	// Net is a network mode, NetLearn, or "" for the runtime's gated one.
	Net string
	// Engine is a gate engine, or "" for the runtime's own.
	Engine   string
	GateName string
	// ReadOnly mounts the project read-only.
	ReadOnly bool
	// Unprotect are protected paths to leave free (see ProtectedPaths).
	Unprotect []string
	// Workdir is where the project is inside, or "" for its own path where
	// that hides nothing. NoCwd: there is no project.
	Workdir string
	NoCwd   bool
	// Mounts are the user's own, Agents his agents directory.
	Mounts []BindRequest
	Agents Agents
	// KeepRoot leaves the command at uid 0 of the container.
	KeepRoot bool
	// Binds are further mounts that the harness needs of the host.
	Binds []Mount
	// Links, Seeds and Managed are for the home; the files' hashes are made here.
	Links   []HomeLink
	Seeds   []HomeSeed
	Managed []HomeManaged
	// Loud are sentences for Unusual that a caller has to add.
	Loud         []string
	Allow        []Entry
	AllowPrivate []Entry
	// Upstream is the proxy that the gate goes through, or nil.
	Upstream *Upstream
	// Publish are parsed entries; those without an address get PublishAddr, or
	// LoopbackAddr where that is "".
	Publish     []Publish
	PublishAddr string

	EphemeralHome bool
	// ExtraCA is set when the image carries a CA of the user's.
	ExtraCA bool
	Limits  LimitInputs
	// Env holds "NAME", to pass by name, and "NAME=value", a public constant.
	// A later entry of the same name wins. EnvFile are the variables of files.
	Env     []string
	EnvFile []Secret
	// Token is the variable that the harness needs, passed where it is set, or "".
	Token string
}

// Resolve decides everything that a run may do. It is pure: the same Input
// gives the same Policy. It reports every problem that it finds.
func Resolve(in Input) (Policy, error) {
	var errs []error
	local := in.Runtime == RuntimeLocal
	if in.Runtime != RuntimePodman && !local {
		errs = append(errs, About(fmt.Errorf("runtime %s is not known; use podman or local", Quote(in.Runtime)), "runtime"))
	}
	learn, err := in.learn()
	if err != nil {
		errs = append(errs, err)
	}
	if in.Net == "" {
		in.Net = NetGated
		if local {
			in.Net = NetUnix
		}
	}
	if err := checkNet(in); err != nil {
		errs = append(errs, err)
	}
	if !in.Hold && (len(in.Command) == 0 || in.Command[0] == "") {
		errs = append(errs, errors.New("there is no command to run; name one after --"))
	}
	for _, arg := range in.Command {
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %s is not valid UTF-8; it can't be passed on exactly", Quote(arg)))
		}
	}
	if err := checkProjectPath(in.Facts.Project); err != nil && !in.NoCwd {
		errs = append(errs, err)
	}
	workdir, note, err := in.workdir()
	if err != nil {
		errs = append(errs, err)
	}
	if in.KeepRoot && local {
		errs = append(errs, About(errors.New("insecure_keep_root is for podman's runtime only: a jail's command has the caller's own uid; drop it, or use the runtime podman"), "insecure_keep_root", "runtime"))
	}
	env, err := resolveEnv(in)
	if err != nil {
		errs = append(errs, err)
	}
	limits, err := resolveLimits(in.Limits, in.Facts.Limits)
	if err != nil {
		errs = append(errs, err)
	}
	publish, err := resolvePublish(in)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return Policy{}, errors.Join(errs...)
	}

	home := Home{Volume: HomeVolume(in.Facts.Project), Ephemeral: in.EphemeralHome}
	if in.KeepRoot {
		home.Volume += "-root" // what is in it belongs to other ids
	}
	if in.EphemeralHome {
		home.Volume = "aisb-home-" + SessionPlaceholder
	}
	home.Links = slices.Clone(in.Links)
	for _, f := range in.Seeds {
		f.ContentSHA256 = hash(f.Content)
		home.Seeds = append(home.Seeds, f)
	}
	home.Managed = hashed(in.Managed)
	p := Policy{
		Version:     SchemaVersion,
		Ruleset:     []string{},
		Runtime:     in.Runtime,
		Isolation:   IsolationContainer,
		Harness:     in.Harness,
		Command:     append([]string{}, in.Command...),
		Thinking:    in.Thinking,
		Project:     in.Facts.Project,
		KeepRoot:    in.KeepRoot,
		Workdir:     workdir,
		WorkdirNote: note,
		Home:        home,
		Env:         env,
		// A Net of mode none keeps no list: nothing is allowed.
		Net:     Net{Mode: in.Net, Allow: []Entry{}},
		Limits:  limits,
		Publish: publish,
	}
	if local {
		p.Isolation = IsolationProcess
		p.Capabilities = []string{}
		p.Mounts = localMounts(in, workdir, home.Volume, limits)
	} else {
		p.Image = &in.Image
		p.Capabilities = []string{"NET_ADMIN", "SETGID", "SETPCAP", "SETUID"}
		p.Mounts = mounts(in, workdir, home.Volume, limits)
	}
	guard, err := protect(in, workdir)
	if err != nil {
		return Policy{}, err
	}
	p.Mounts, p.Unheld = guard.over(p.Mounts), guard.unheld
	if p.Mounts, err = extraMounts(in, p.Mounts, &p.Home); err != nil {
		return Policy{}, err
	}
	if err := guard.reachedAgain(p.Mounts, p.Project); err != nil {
		return Policy{}, err
	}
	if in.Net == NetGated || in.Net == NetUnix {
		p.Net.Engine = in.Engine
		if in.Engine == "" {
			p.Net.Engine = EngineSquid
			if local {
				p.Net.Engine = EngineBuiltin
			}
		}
		p.Net.GateName = in.GateName
		p.Net.Learn = learn
		p.Net.Allow = Normalise(in.Allow)
		p.Net.AllowPrivate = Normalise(in.AllowPrivate)
		p.Net.Upstream = in.Upstream
	}
	if p.Image != nil && (p.Net.Engine != EngineSquid || p.Net.GateName != "") {
		p.Image.GateRef, p.Image.GateID = "", "" // the run starts no such container
	}
	p.Unusual = slices.Concat(unusual(p, in.ExtraCA), guard.notes, in.unguarded(), in.Loud)
	return p, nil
}

// Gated tells whether a gate decides what is reached.
func (n Net) Gated() bool { return n.Mode == NetGated || n.Mode == NetUnix }

// checkNet refuses a network that the runtime does not have.
func checkNet(in Input) error {
	local := in.Runtime == RuntimeLocal
	gated := in.Net == NetGated || in.Net == NetUnix
	switch {
	case !slices.Contains([]string{NetGated, NetUnix, NetNone, NetHost}, in.Net):
		return About(fmt.Errorf("net %s is not known; use gated, unix, none, host or learn", Quote(in.Net)), "net")
	case local && in.Net == NetGated:
		return About(errors.New("the local runtime's gated network is net unix; use that, or the runtime podman"), "net", "runtime")
	case !local && in.Net == NetHost:
		return About(errors.New("podman's runtime has no net host; use gated, unix or none"), "net", "runtime")
	case local && in.GateName != "":
		return About(errors.New("a named gate is for podman's runtime only; drop gate, or use the runtime podman"), "gate", "runtime")
	case !gated && in.GateName != "":
		return About(fmt.Errorf("a gate has no use with net %s; drop gate, or use net gated", in.Net), "gate", "net")
	case in.GateName != "" && in.Net == NetUnix:
		return About(errors.New("a named gate is reached with net gated only; drop gate, or use that"), "gate", "net")
	case in.GateName != "" && in.Engine == EngineBuiltin:
		return About(errors.New("a named gate is squid's; drop gate or gate_engine builtin"), "gate", "gate_engine")
	case !slices.Contains([]string{"", EngineSquid, EngineBuiltin}, in.Engine):
		return About(fmt.Errorf("gate_engine %s is not known; use squid or builtin", Quote(in.Engine)), "gate_engine")
	}
	return nil
}

// Filled returns the policy with its placeholders replaced. The receiver is
// unchanged; a port of 0 leaves the port's placeholder.
func (p Policy) Filled(session string, gatePort uint16) Policy {
	p.Mounts = slices.Clone(p.Mounts)
	for i, m := range p.Mounts {
		switch m.Why {
		case WhyHome, WhyControl, WhyGate: // a path of the user's is never rewritten
			p.Mounts[i].Source = strings.ReplaceAll(m.Source, SessionPlaceholder, session)
		}
	}
	p.Home.Volume = strings.ReplaceAll(p.Home.Volume, SessionPlaceholder, session)
	p.Env = slices.Clone(p.Env)
	if gatePort != 0 {
		for i, e := range p.Env {
			if e.From == FromProxy { // a user's constant is never rewritten
				p.Env[i].Value = strings.ReplaceAll(e.Value, PortPlaceholder, strconv.Itoa(int(gatePort)))
			}
		}
	}
	return p
}

// checkProjectPath refuses a path that cannot be mounted exactly as it is.
func checkProjectPath(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p:
		return fmt.Errorf("project %s is not a resolved absolute path", Quote(p))
	case p == "/":
		return errors.New("the project is /, which holds the whole machine; start ai-sandbox in the directory of one project")
	case strings.Contains(p, ":"):
		return fmt.Errorf("project path %s holds a \":\", which separates the parts of a mount; rename the directory", Quote(p))
	case !utf8.ValidString(p):
		return fmt.Errorf("project path %s is not valid UTF-8; rename the directory", Quote(p))
	}
	return nil
}

// owned are the directories of the image and the sandbox: a bind mount on one of
// them or below hides what is there. Under /tmp it is worse: podman puts the
// tmpfs on top, so that the path looks right and the project is not in it.
var owned = []string{
	"usr", "etc", "var", "opt", "bin", "sbin", "boot", "proc", "sys", "dev",
	"root", "run", "tmp",
}

// Workdir is where a project is mounted inside, and why it is not at its own
// path when it isn't.
func Workdir(project string) (dir, note string) {
	if block := hides(project); block != "" {
		return FallbackDir, fmt.Sprintf("mounted at %s, as its own path would hide %s of the sandbox", FallbackDir, block)
	}
	return project, ""
}

func hides(project string) string {
	top, rest, _ := strings.Cut(strings.TrimPrefix(project, "/"), "/")
	switch {
	case top == "":
		return "/"
	case slices.Contains(owned, top), strings.HasPrefix(top, "lib"):
		return "/" + top
	case top == "home":
		// Work lives below /home, but /home itself and the sandbox's own
		// home are taken.
		user, below, _ := strings.Cut(rest, "/")
		if user == "" {
			return "/home"
		}
		if strings.HasPrefix(user, "sandbox") {
			return "/home/" + user
		}
		// /home/<someone> itself is that user's home; only what is below
		// mirrors.
		if below == "" {
			return "/home/" + user
		}
	}
	return ""
}

// HomeVolume names the home of a project: readable by its base name, and one of
// its own for each path. Runs without a project share one.
func HomeVolume(project string) string {
	if project == "" {
		return "aisb-home-no-project"
	}
	base := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, path.Base(project))
	if len(base) > 32 {
		base = base[:32]
	}
	if base = strings.Trim(base, "-"); base == "" {
		base = "project"
	}
	sum := sha256.Sum256([]byte(project))
	return "aisb-home-" + base + "-" + hex.EncodeToString(sum[:4])
}

const mib = 1 << 20

// What a Mount is for, where code has to know.
const (
	WhyProject = "project"
	WhyHome    = "home"
	WhyControl = "control FIFOs, which are gone before the command starts, and the guide"
	WhyGate    = "the gate's socket"
	// WhyProtected is a protected path, WhyHeld a directory on the way to one, and
	// WhyGitDir where a worktree's objects and branches are.
	WhyProtected = "protected"
	WhyHeld      = "held in place"
	WhyGitDir    = "git directory of this worktree"
)

// mounts lists everything that is mounted, in the order of their targets. What
// is writable inside is here and nowhere else: the root file system is read-only.
func mounts(in Input, workdir, home string, limits Limits) []Mount {
	tmp, varTmp := tmpSizes(limits.DiskBytes.Value)
	runWhy := "mount point of /run/aisb; nothing the command can write"
	if in.KeepRoot {
		runWhy = "mount point of /run/aisb; root's, and so the command's to write"
	}
	out := []Mount{
		in.project(workdir, limits),
		{Kind: KindVolume, Source: home, Target: HomeDir, Why: WhyHome},
		{Kind: KindProc, Target: "/proc", Why: "the sandbox's own processes; what tells of the machine is masked"},
		{Kind: KindSys, Target: "/sys", ReadOnly: true, Why: "what the kernel tells of devices, in part masked"},
		{Kind: KindDev, Target: "/dev", ReadOnly: true, Why: "null, zero, full, random, urandom, tty and terminals of its own"},
		{Kind: KindTmpfs, Target: "/dev/shm", SizeBytes: 64 * mib, Mode: "1777", Why: "shared memory"},
		{Kind: KindTmpfs, Target: "/run", SizeBytes: 16 * mib, Mode: "0755", Why: runWhy},
	}
	out = append(out, channels(in)...)
	out = append(out,
		Mount{Kind: KindTmpfs, Target: "/tmp", SizeBytes: tmp, Mode: "1777", Why: "temporary files"},
		Mount{Kind: KindTmpfs, Target: "/var/tmp", SizeBytes: varTmp, Mode: "1777", Why: "temporary files"},
	)
	return append(out, in.Binds...)
}

// channels are the two ways that lead out to ai-sandbox itself.
func channels(in Input) []Mount {
	f := in.Facts
	dir := path.Join(f.RuntimeDir, SessionPlaceholder)
	out := []Mount{{Kind: KindBind, Source: path.Join(dir, "control"), Target: "/run/aisb", ReadOnly: true, Relabel: f.SELinux, Why: WhyControl}}
	if in.Net == NetUnix {
		out = append(out, Mount{Kind: KindBind, Source: path.Join(dir, "gate"), Target: GateDir, ReadOnly: true, Relabel: f.SELinux, Why: WhyGate})
	}
	return out
}

func unusual(p Policy, extraCA bool) []string {
	var out []string
	if p.Image != nil && p.Image.BaseDigest == "" {
		out = append(out, unpinned)
	}
	if p.KeepRoot {
		out = append(out, "KEEP-ROOT: the command is uid 0 inside; it has no capability, but owns what the image's root owns, and one mistake of the kernel's is worth more to it")
	}
	if p.Net.Mode == NetHost {
		out = append(out, "HOST NETWORK: nothing is shut; the command reaches whatever this machine reaches, its loopback and local network included")
	}
	if p.Net.Learn {
		out = append(out, Learning)
	}
	if p.Net.Gated() && p.Net.GateName == "" && !p.Net.Learn && len(p.Net.Allow)+len(p.Net.AllowPrivate) == 0 {
		out = append(out, "the allowlist is empty: the gate refuses every host")
	}
	if len(p.Net.AllowPrivate) > 0 {
		out = append(out, "PRIVATE: some entries may lead to this machine or its local network")
	}
	if u := p.Net.Upstream; u != nil {
		out = append(out, u.note(p.Net.Learn))
	}
	out = append(out, exposed(p.Publish)...)
	if extraCA {
		out = append(out, "EXTRA CA: whoever holds its key can read the sandbox's TLS connections")
	}
	return out
}
