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

// UID and GID are what the command runs as inside, on every runtime. Under
// podman's keep-id mapping they are the invoking user's own on the host.
const (
	UID = 1000
	GID = 1000
)

// HomeDir is the home of the sandboxed user inside, on every runtime.
const HomeDir = "/home/sandbox"

// Net modes.
const (
	// NetGated shuts everything but the gate's address and port.
	NetGated = "gated"
	// NetNone leaves no network but loopback.
	NetNone = "none"
)

// Runtimes.
const (
	RuntimePodman = "podman"
	RuntimeLocal  = "local"
)

// GateAddr is the address inside a podman sandbox at which pasta maps the
// host's loopback, and so the gate. It is link-local, and neither of the two
// that podman uses itself (169.254.1.1 for DNS, 169.254.1.2 for the host).
const GateAddr = "169.254.77.1"

// A Policy is everything that a run may do.
type Policy struct {
	Version   int    `json:"version"`   // SchemaVersion
	Runtime   string `json:"runtime"`   // RuntimePodman
	Isolation string `json:"isolation"` // "container" for podman
	// Harness is the name of the agent that runs, or "" when the command was
	// given after "--".
	Harness string   `json:"harness,omitempty"`
	Command []string `json:"command"`
	Image   Image    `json:"image"`
	// Project is the resolved host path that is mounted read-write, and
	// Workdir where the command starts. WorkdirNote says why they differ.
	Project     string  `json:"project,omitempty"`
	Workdir     string  `json:"workdir"`
	WorkdirNote string  `json:"workdir_note,omitempty"`
	Mounts      []Mount `json:"mounts"`
	Home        Home    `json:"home"`
	Env         []Env   `json:"env"`
	Net         Net     `json:"net"`
	// Capabilities are the ones that the entrypoint holds until it has
	// installed the ruleset; the command never has any.
	Capabilities []string `json:"entrypoint_capabilities"`
	// Unusual names, in words, what a reader should not overlook (UNPINNED, ...).
	Unusual []string `json:"unusual,omitempty"`
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
}

// A Mount makes a host path or a named place visible inside.
type Mount struct {
	Kind     string `json:"kind"`             // "bind", "volume" or "tmpfs"
	Source   string `json:"source,omitempty"` // host path or volume name
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
	// Relabel asks podman for a shared SELinux label (":z").
	Relabel bool `json:"relabel,omitempty"`
	// SizeBytes bounds a tmpfs; 0 elsewhere.
	SizeBytes int64 `json:"size_bytes,omitempty"`
	// Mode of a tmpfs's root, octal in a string ("1777").
	Mode string `json:"mode,omitempty"`
	Why  string `json:"why"` // for the printout: "project", "home", "/tmp", ...
}

// Home is the sandbox's own home: one volume per project, or one per run.
type Home struct {
	Volume    string `json:"volume"` // aisb-home-<name>, or a placeholder when ephemeral
	Ephemeral bool   `json:"ephemeral,omitempty"`
}

// An Env is one variable of the command's environment. Value is public and
// printed; a variable passed by name has From set and its value is nowhere in a
// Policy.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	// From says where the value comes from: "fixed", "proxy", "ca",
	// "constant" (the user's public NAME=value) or "host" (the caller's
	// variable of that name; the value is not kept here).
	From string `json:"from"`
}

// Net is what the run may reach.
type Net struct {
	Mode string `json:"mode"`
	// Engine is the gate's engine: "squid".
	Engine string `json:"engine,omitempty"`
	// GateName is the named gate to use, or "" for one of the session's own.
	GateName string `json:"gate,omitempty"`
	// Allow are the hosts that the gate lets through; AllowPrivate those of
	// them (also counted as allowed) that may lead to private addresses.
	Allow        []Entry `json:"allow"`
	AllowPrivate []Entry `json:"allow_private,omitempty"`
}
