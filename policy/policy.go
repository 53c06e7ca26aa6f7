// Package policy says what a run may do: what it mounts, receives, reaches and
// runs as. A Policy is one resolved value from which every printout, the gate's
// configuration, the ruleset and the container's specification are made, so
// that what is printed and what is done cannot differ.
//
// The package is pure: no processes, no sockets, no files, no clock. Facts about
// the machine come in as values (see Facts). Zero values mean deny.
package policy

// SchemaVersion is the version of the JSON form of a Policy. It changes when a
// field changes its meaning; added fields leave it.
const SchemaVersion = 1

// UID and GID are what the command runs as inside, on every runtime, unless
// Policy.KeepRoot says otherwise. Under
// podman's keep-id mapping they are the invoking user's own on the host.
const (
	UID = 1000
	GID = 1000
)

// User is what the command runs as inside. Either way it is the invoking user on
// the host.
func (p Policy) User() (uid, gid int) {
	if p.KeepRoot {
		return 0, 0
	}
	return UID, GID
}

// HomeDir is the home of the sandboxed user inside, on every runtime.
const HomeDir = "/home/sandbox"

// Net modes.
const (
	// NetGated shuts everything but the gate's address and port.
	NetGated = "gated"
	// NetUnix leaves no network but loopback; the gate is reached over a unix
	// socket that is bound into the sandbox.
	NetUnix = "unix"
	// NetNone leaves no network but loopback.
	NetNone = "none"
	// NetLearn is no mode of a policy: it asks for the runtime's gated one with
	// Net.Learn.
	NetLearn = "learn"
	// NetHost shares the host's network: nothing is shut.
	NetHost = "host"
)

// Gate engines.
const (
	EngineSquid   = "squid"
	EngineBuiltin = "builtin"
)

// Runtimes, and what isolates on each.
const (
	RuntimePodman = "podman"
	RuntimeLocal  = "local"

	IsolationContainer = "container"
	IsolationProcess   = "process"
)

// GateAddr is the address inside a podman sandbox at which pasta maps the
// host's loopback, and so the gate. It is link-local, and neither of the two
// that podman uses itself (169.254.1.1 for DNS, 169.254.1.2 for the host).
const GateAddr = "169.254.77.1"

// Where the gate is with NetUnix: its socket is bound at GateSocket inside, and
// the entrypoint relays from RelayAddr and RelayPort to it. The network
// namespace is the sandbox's own, so the port is always free.
const (
	GateDir    = "/run/aisb-gate"
	GateSocket = GateDir + "/" + GateSocketName
	RelayAddr  = "127.0.0.1"
	RelayPort  = 3128

	GateSocketName = "gate.sock"
)

// EntrypointPath is where the local runtime has the entrypoint inside.
const EntrypointPath = "/run/aisb-entrypoint"

// InForce is what the gate of a session that runs has said of a policy's lists.
type InForce struct {
	// Hash is that of the lists; "" where there is no gate.
	Hash string `json:"hash"`
	// Confirmed: the gate itself has just answered with it.
	Confirmed bool `json:"confirmed"`
}

// A Policy is everything that a run may do.
type Policy struct {
	Version   int    `json:"version"`   // SchemaVersion
	Runtime   string `json:"runtime"`   // RuntimePodman or RuntimeLocal
	Isolation string `json:"isolation"` // IsolationContainer or IsolationProcess
	// Harness is the name of the agent that runs, or "" when the command was
	// given after "--".
	Harness string   `json:"harness,omitempty"`
	Command []string `json:"command"`
	// InForce is set in what "policy show" prints alone.
	InForce *InForce `json:"in_force,omitempty"`
	// Thinking is nil where the agent is not told how much to reason.
	Thinking *Thinking `json:"thinking,omitempty"`
	// Image is nil on the local runtime, which has none.
	Image *Image `json:"image,omitempty"`
	// Project is the resolved host path that is mounted, and Workdir where the
	// command starts. WorkdirNote says why they differ.
	// Project is "" where none is mounted.
	Project     string  `json:"project,omitempty"`
	Workdir     string  `json:"workdir"`
	WorkdirNote string  `json:"workdir_note,omitempty"`
	Mounts      []Mount `json:"mounts"`
	// Unheld are protected host paths that can't be mounted over, so that they can
	// be replaced inside.
	Unheld []string `json:"unheld,omitempty"`
	Home   Home     `json:"home"`
	Env    []Env    `json:"env"`
	Net    Net      `json:"net"`
	Limits Limits   `json:"limits"`
	// Publish are the ports inside that are reached from outside.
	Publish []Publish `json:"publish,omitempty"`
	// KeepRoot: the command is uid 0 inside, without any capability.
	KeepRoot bool `json:"keep_root,omitempty"`
	// Capabilities are the ones that the entrypoint holds until it has
	// installed the ruleset; the command never has any.
	Capabilities []string `json:"entrypoint_capabilities"`
	// Ruleset are the lines of the ruleset inside, as nft lists it; empty on the
	// local runtime, whose network has no device for one.
	Ruleset []string `json:"ruleset"`
	// Unusual names, in words, what a reader should not overlook (UNPINNED, ...).
	Unusual []string `json:"unusual,omitempty"`
	// Settings are those that somebody has set, whatever they came to; the caller
	// adds them.
	Settings []Setting `json:"settings,omitempty"`
}

// A Setting is an option by the name that it has in a file, a variable and a flag,
// with its value, or those of a list, sorted.
type Setting struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// Image is what the run stands on. Tag is the content hash of the recipe, so it
// is known before anything is built; ID is what this machine recorded when it
// built it, or "".
type Image struct {
	Ref        string `json:"ref"`         // localhost/ai-sandbox:<tag>
	BaseRef    string `json:"base_ref"`    // as the user wrote it
	BaseDigest string `json:"base_digest"` // sha256:..., or "" when UNPINNED
	RecordedID string `json:"recorded_id,omitempty"`
	GateRef    string `json:"gate_ref,omitempty"`
	GateID     string `json:"gate_recorded_id,omitempty"`
	// Harnesses are the agents in it, Apt the Debian packages and Setup the script
	// that somebody added to the recipe.
	Harnesses []Harness `json:"harness_packages,omitempty"`
	Apt       []string  `json:"apt,omitempty"`
	Setup     *Setup    `json:"setup,omitempty"`
}

// Kinds of Mount.
const (
	KindBind   = "bind"   // a host path
	KindVolume = "volume" // podman's
	KindTmpfs  = "tmpfs"
	KindProc   = "proc" // the sandbox's own processes
	KindDev    = "dev"  // null, zero, full, random, urandom, tty and terminals
	KindSys    = "sys"  // what the kernel tells of devices; podman's alone
	// The local runtime's alone, which has no image:
	KindSymlink = "symlink" // Source is what the link says
	KindFile    = "file"    // read-only, with Content
	KindProgram = "program" // read-only, the entrypoint of this build
)

// A Mount makes a host path or a named place visible inside.
type Mount struct {
	Kind     string `json:"kind"`
	Source   string `json:"source,omitempty"` // host path or volume name
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
	// Placeholder is PlaceholderDir or PlaceholderFile where nothing is: such a
	// one is made before the start, and removed at the end if it's still empty.
	Placeholder string `json:"placeholder,omitempty"`
	// Relabel asks podman for a shared SELinux label (":z").
	Relabel bool `json:"relabel,omitempty"`
	// SizeBytes bounds a tmpfs; 0 elsewhere.
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// Mode of a tmpfs's root, octal in a string ("1777").
	Mode string `json:"mode,omitempty"`
	// Content of a file, which printouts show by its hash.
	Content       []byte `json:"-"`
	ContentSHA256 string `json:"content_sha256,omitempty"`
	Why           string `json:"why"` // for the printout: "project", "home", "/tmp", ...
	// ID is what a bind's source was when it was judged: what is inside is
	// compared with it. Zero is not compared.
	ID Identity `json:"-"`
}

// Home is the sandbox's own home: one volume per project, or one per run. On the
// local runtime it is a directory of that name.
type Home struct {
	Volume    string `json:"volume"` // aisb-home-<name>, or a placeholder when ephemeral
	Ephemeral bool   `json:"ephemeral,omitempty"`
	// Points are the directories right below it that something is mounted on.
	// They are made, where they are not there, before the mount.
	Points []string `json:"mount_points,omitempty"`
	// Links are made in it before the command starts, and Seeds where nothing
	// is, both inside and as the sandbox's user. Paths are relative to HomeDir.
	Links []HomeLink `json:"links,omitempty"`
	Seeds []HomeSeed `json:"seeds,omitempty"`
	// Managed are files of the host's that are brought into it at each start.
	Managed []HomeManaged `json:"managed,omitempty"`
}

// A HomeLink leads from the home to a Mount; without To there is none, whatever an
// earlier run made or the sandbox planted. A link of an earlier run that is not among
// the Links goes in any case.
type HomeLink struct {
	Path string `json:"path"`
	To   string `json:"to,omitempty"`
}

// A HomeSeed is a file that a home has to have. Printouts show its hash.
type HomeSeed struct {
	Path          string `json:"path"`
	Mode          uint32 `json:"mode"` // permission bits
	Content       []byte `json:"-"`
	ContentSHA256 string `json:"content_sha256"`
}

// An Env is one variable of the command's environment. Value is public and
// printed; a variable passed by name has From set and its value is nowhere in a
// Policy.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// From says where the value comes from: "fixed", "proxy", "ca", "constant"
	// (the user's public NAME=value), or one whose value is not kept here: "host"
	// (the caller's variable of that name), "harness" (likewise, since the harness
	// needs it) or "file" (an env_file).
	From string `json:"from"`
	// Secret: the value is hidden wherever it shows up.
	Secret bool `json:"secret,omitempty"`
}

// Net is what the run may reach.
type Net struct {
	Mode string `json:"mode"`
	// Engine is the gate's engine: EngineSquid or EngineBuiltin.
	Engine string `json:"engine,omitempty"`
	// Learn lets through whatever does not lead inward, on the list or not, so that it
	// is told at the end what a list would have to have.
	Learn bool `json:"learn,omitempty"`
	// GateName is the named gate to use, or "" for one of the session's own.
	GateName string `json:"gate,omitempty"`
	// Allow are the hosts that the gate lets through; AllowPrivate those of
	// them (also counted as allowed) that may lead to private addresses.
	Allow        []Entry `json:"allow"`
	AllowPrivate []Entry `json:"allow_private,omitempty"`
	// Upstream is the proxy that the gate goes through, or nil.
	Upstream *Upstream `json:"upstream,omitempty"`
}
