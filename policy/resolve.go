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
	// searchPath ends with what the agent can write: a program planted there
	// can't take the place of the image's in a later run.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:" + HomeDir + "/.local/bin"
)

// Facts are what Resolve has to know about the machine and the caller.
type Facts struct {
	// Project is the directory to mount, absolute and without symlinks.
	Project string
	// RuntimeDir is ai-sandbox's own directory for sockets and FIFOs.
	RuntimeDir string
	// SELinux is set where bind mounts need a label.
	SELinux bool
	// EnvSet tells whether the caller's environment has a value for a name.
	EnvSet func(name string) bool
}

// An Input is what the user asked for, parsed but not judged.
type Input struct {
	Facts   Facts
	Runtime string
	// Harness is "" when the command was given after "--".
	Harness string
	Command []string
	Image   Image

	Net          string
	GateName     string
	Allow        []Entry
	AllowPrivate []Entry

	EphemeralHome bool
	// ExtraCA is set when the image carries a CA of the user's.
	ExtraCA bool
	// Env holds "NAME", to pass by name, and "NAME=value", a public constant.
	// A later entry of the same name wins.
	Env []string
}

// Resolve decides everything that a run may do. It is pure: the same Input
// gives the same Policy. It reports every problem that it finds.
func Resolve(in Input) (Policy, error) {
	var errs []error
	if in.Runtime != RuntimePodman {
		errs = append(errs, fmt.Errorf("runtime %s is not available in this version; use podman", Quote(in.Runtime)))
	}
	if in.Net != NetGated && in.Net != NetNone {
		errs = append(errs, fmt.Errorf("net %s is not available in this version; use gated or none", Quote(in.Net)))
	}
	if len(in.Command) == 0 || in.Command[0] == "" {
		errs = append(errs, errors.New("there is no command to run; name one after --"))
	}
	for _, arg := range in.Command {
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			errs = append(errs, fmt.Errorf("argument %s is not valid UTF-8; it can't be passed on exactly", Quote(arg)))
		}
	}
	if in.Net == NetNone && in.GateName != "" {
		errs = append(errs, errors.New("a gate has no use without a network; drop --gate, or use --net gated"))
	}
	if err := checkProjectPath(in.Facts.Project); err != nil {
		errs = append(errs, err)
	}
	env, err := resolveEnv(in)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return Policy{}, errors.Join(errs...)
	}

	workdir, note := Workdir(in.Facts.Project)
	home := Home{Volume: HomeVolume(in.Facts.Project), Ephemeral: in.EphemeralHome}
	if in.EphemeralHome {
		home.Volume = "aisb-home-" + SessionPlaceholder
	}
	p := Policy{
		Version:     SchemaVersion,
		Runtime:     in.Runtime,
		Isolation:   "container",
		Harness:     in.Harness,
		Command:     slices.Clone(in.Command),
		Image:       in.Image,
		Project:     in.Facts.Project,
		Workdir:     workdir,
		WorkdirNote: note,
		Home:        home,
		Mounts:      mounts(in.Facts, workdir, home.Volume),
		Env:         env,
		// A Net of mode none keeps no list: nothing is allowed.
		Net:          Net{Mode: in.Net, Allow: []Entry{}},
		Capabilities: []string{"NET_ADMIN", "SETGID", "SETPCAP", "SETUID"},
	}
	if in.Net == NetGated {
		p.Net.Engine = "squid"
		p.Net.GateName = in.GateName
		p.Net.Allow = Normalise(in.Allow)
		p.Net.AllowPrivate = Normalise(in.AllowPrivate)
	}
	p.Unusual = unusual(p, in.ExtraCA)
	return p, nil
}

// Filled returns the policy with its placeholders replaced. The receiver is
// unchanged; a port of 0 leaves the port's placeholder.
func (p Policy) Filled(session string, gatePort uint16) Policy {
	p.Mounts = slices.Clone(p.Mounts)
	for i, m := range p.Mounts {
		if m.Why != WhyProject { // the user's path is never rewritten
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
		return fmt.Errorf("project path %s holds a \":\", which podman can't mount; rename the directory", Quote(p))
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
// its own for each path.
func HomeVolume(project string) string {
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
	WhyControl = "control FIFOs; emptied before the command starts"
)

// mounts lists everything that is mounted, in the order of their targets. What
// is writable inside is here and nowhere else: the root file system is read-only.
func mounts(f Facts, workdir, home string) []Mount {
	return []Mount{
		{Kind: "bind", Source: f.Project, Target: workdir, Relabel: f.SELinux, Why: WhyProject},
		{Kind: "volume", Source: home, Target: HomeDir, Why: WhyHome},
		{Kind: "tmpfs", Target: "/dev/shm", SizeBytes: 64 * mib, Mode: "1777", Why: "shared memory"},
		{Kind: "tmpfs", Target: "/run", SizeBytes: 16 * mib, Mode: "0755", Why: "mount point of /run/aisb; nothing the command can write"},
		{Kind: "bind", Source: path.Join(f.RuntimeDir, SessionPlaceholder, "control"), Target: "/run/aisb", ReadOnly: true,
			Relabel: f.SELinux, Why: WhyControl},
		{Kind: "tmpfs", Target: "/tmp", SizeBytes: 2048 * mib, Mode: "1777", Why: "temporary files"},
		{Kind: "tmpfs", Target: "/var/tmp", SizeBytes: 1024 * mib, Mode: "1777", Why: "temporary files"},
	}
}

// Where the value of an Env comes from.
const (
	FromFixed    = "fixed"    // set by the policy
	FromProxy    = "proxy"    // leads clients to the gate
	FromCA       = "ca"       // names the extra CA
	FromHost     = "host"     // the caller's, passed by name
	FromConstant = "constant" // the user's public NAME=value
)

// passedIfSet is what enters from the caller's environment without being asked
// for. The locale variables are spelled out: whatever else begins with LC_ is
// the caller's own and may be a secret.
var passedIfSet = []string{
	"TERM", "COLORTERM", "NO_COLOR", "TZ", "LANG",
	"LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION",
	"LC_MEASUREMENT", "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC",
	"LC_PAPER", "LC_TELEPHONE", "LC_TIME",
}

func resolveEnv(in Input) ([]Env, error) {
	env := map[string]Env{}
	set := func(from, value string, names ...string) {
		for _, n := range names {
			env[n] = Env{Name: n, Value: value, From: from}
		}
	}
	set(FromFixed, searchPath, "PATH")
	set(FromFixed, HomeDir, "HOME")
	set(FromFixed, "sandbox", "USER", "LOGNAME")
	set(FromFixed, "/bin/bash", "SHELL")
	if in.Net == NetGated {
		url := "http://" + GateAddr + ":" + PortPlaceholder
		const direct = "localhost,127.0.0.1,::1"
		// ALL_PROXY is what clients of websockets look at.
		set(FromProxy, url, "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy",
			"npm_config_proxy", "npm_config_https_proxy", "PIP_PROXY")
		set(FromProxy, direct, "NO_PROXY", "no_proxy", "npm_config_noproxy")
		set(FromProxy, "1", "NODE_USE_ENV_PROXY")
		set(FromProxy, "-Dhttp.proxyHost="+GateAddr+" -Dhttp.proxyPort="+PortPlaceholder+
			" -Dhttps.proxyHost="+GateAddr+" -Dhttps.proxyPort="+PortPlaceholder+
			" -Dhttp.nonProxyHosts=localhost|127.*|[::1]", "JAVA_TOOL_OPTIONS")
	}
	if in.ExtraCA {
		set(FromCA, ExtraCA, "NODE_EXTRA_CA_CERTS")
		set(FromCA, CABundle, "SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
	}
	isSet := in.Facts.EnvSet
	if isSet == nil {
		isSet = func(string) bool { return false }
	}
	for _, n := range passedIfSet {
		if isSet(n) {
			set(FromHost, "", n)
		}
	}
	var errs []error
	for _, s := range in.Env {
		name, value, constant := strings.Cut(s, "=")
		old, taken := env[name]
		switch {
		case !validEnvName(name):
			errs = append(errs, fmt.Errorf("env %s is not a variable's name; use NAME or NAME=value", Quote(name)))
		case taken && old.From != FromHost && old.From != FromConstant:
			errs = append(errs, fmt.Errorf("env %s is set by ai-sandbox itself; drop --env %s", name, name))
		case constant && value == "":
			errs = append(errs, fmt.Errorf("env %s has an empty value; give it one or drop it", name))
		case constant && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)):
			errs = append(errs, fmt.Errorf("env %s has a value that is not valid UTF-8", name))
		case constant:
			set(FromConstant, value, name)
		case !isSet(name):
			errs = append(errs, fmt.Errorf("env %s is unset or empty here; set it, or drop --env %s", name, name))
		default:
			set(FromHost, "", name)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := make([]Env, 0, len(env))
	for _, e := range env {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Env) int {
		if c := fromOrder(a.From) - fromOrder(b.From); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

func fromOrder(from string) int {
	return slices.Index([]string{FromFixed, FromHost, FromConstant, FromProxy, FromCA}, from)
}

func validEnvName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for _, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return true
}

func unusual(p Policy, extraCA bool) []string {
	var out []string
	if p.Image.BaseDigest == "" {
		out = append(out, "UNPINNED: the base image has no recorded digest yet; the next build records one")
	}
	if p.Net.Mode == NetGated && p.Net.GateName == "" && len(p.Net.Allow)+len(p.Net.AllowPrivate) == 0 {
		out = append(out, "the allowlist is empty: the gate refuses every host")
	}
	if len(p.Net.AllowPrivate) > 0 {
		out = append(out, "PRIVATE: some entries may lead to this machine or its local network")
	}
	if extraCA {
		out = append(out, "EXTRA CA: whoever holds its key can read the sandbox's TLS connections")
	}
	return out
}
