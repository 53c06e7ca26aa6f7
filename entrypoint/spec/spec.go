// Package spec is the message from the host to the entrypoint inside, and back.
//
// Host and entrypoint talk over two FIFOs in a directory of mode 0700 that is
// bound read-only at Dir: In carries the sealed Spec, then Go and signals; Out
// carries what became of it. Nothing of it rests on a disk. The host holds the
// only writing end of In for as long as it lives, so the end of that stream is
// the lifeline: the entrypoint kills the command and exits. The FIFOs' names
// are gone before the command starts.
//
// The message is versioned: an unknown field or version is refused (exit 78).
// The package imports nothing of ours.
package spec

// Version of the message. Host and entrypoint are built together; a mismatch
// means an image of another build.
const Version = 1

// Where the control directory is inside, and the FIFOs' names in it.
const (
	Dir     = "/run/aisb"
	InName  = "in"
	OutName = "out"
)

// Exit codes of the entrypoint when the command was not run.
const (
	// ExitUnenforced: a control could not be installed, or did not read back.
	ExitUnenforced = 77
	// ExitBadSpec: the message makes no sense.
	ExitBadSpec = 78
)

// MaxFrame bounds one frame in bytes; a longer one is refused.
const MaxFrame = 16 << 20

// A Spec is the sealed message: everything that the entrypoint does.
type Spec struct {
	Version int    `json:"version"`
	Session string `json:"session"`
	// Command is looked up in the Env's PATH; Dir is where it starts.
	Command []string `json:"command"`
	Workdir string   `json:"workdir"`
	// Env is the command's whole environment, "NAME=value". A value may hold
	// newlines. It never reaches the entrypoint's own environment.
	Env []string `json:"env"`
	UID int      `json:"uid"`
	GID int      `json:"gid"`
	// TTY: standard input is a terminal that becomes the command's
	// controlling terminal.
	TTY      bool     `json:"tty"`
	Firewall Firewall `json:"firewall"`
	// Binds are the mount targets to compare with what the host saw.
	Binds []Bind `json:"binds"`
	// Mounts are the mount points that the policy names (binds, volumes and
	// tmpfs). One that is neither here nor among those that every container
	// has (see entrypoint.runtimeMounts) is refused.
	Mounts []string `json:"mounts"`
}

// Firewall is what the ruleset lets through.
type Firewall struct {
	// Mode is "gated" or "none".
	Mode string `json:"mode"`
	// GateAddr and GatePort are the only way out when gated.
	GateAddr string `json:"gate_addr,omitempty"`
	GatePort uint16 `json:"gate_port,omitempty"`
}

// A Bind is the identity of a bind mount's source, as the host saw it when the
// policy was decided.
type Bind struct {
	Target string `json:"target"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
}

// A ToGuest is one frame from the host: exactly one field is set.
type ToGuest struct {
	Spec *Spec `json:"spec,omitempty"`
	// Go lets the command start; the host has unlinked the FIFOs.
	Go bool `json:"go,omitempty"`
	// Signal is sent to the command (for those a terminal sends, to its
	// process group).
	Signal int `json:"signal,omitempty"`
}

// A ToHost is one frame from the entrypoint: exactly one field is set.
type ToHost struct {
	// Enforced: every control is installed and has been read back, and the
	// privileges are dropped; the entrypoint waits for Go.
	Enforced *Enforced `json:"enforced,omitempty"`
	Started  bool      `json:"started,omitempty"`
	Exited   *Exited   `json:"exited,omitempty"`
	Refused  *Refused  `json:"refused,omitempty"`
}

// Enforced tells how long the entrypoint took, from its first instruction to
// the end of the drop, without the time it waited for the Spec; in microseconds.
type Enforced struct {
	Micros int64 `json:"micros"`
}

// Exited is how the command ended. Signal is 0 unless it died by one, and Code
// is then 128+Signal.
type Exited struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
	// Error is set when the command could not be executed at all: Code is
	// then 126 or 127 (POSIX; podman-run(1)).
	Error string `json:"error,omitempty"`
}

// Refused tells why the command was not run. Code is ExitUnenforced or
// ExitBadSpec; Control names what did not hold ("ruleset", "network", "mounts",
// "capabilities", "seccomp", "channel", "spec").
type Refused struct {
	Code    int    `json:"code"`
	Control string `json:"control"`
	Reason  string `json:"reason"`
}
