// Package spec is the message from the host to the entrypoint inside, and back.
//
// Host and entrypoint talk over two FIFOs in a directory of mode 0700 that is
// bound read-only at Dir: In carries the sealed Spec, then Go, signals and
// further commands; Out carries what became of it. Nothing of it rests on a
// disk. The host holds the only writing end of In for as long as it lives, so
// the end of that stream is the lifeline: the entrypoint kills the command and
// exits. The FIFOs' names are gone before the command starts.
//
// The message is versioned: an unknown field or version is refused (exit 78).
// The package imports nothing of ours.
package spec

import "strconv"

// Version of the message. Host and entrypoint are built together; a mismatch
// means an image of another build.
const Version = 3

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
	// ExitPortTaken is a gate's whose port another process has (EX_TEMPFAIL of sysexits(3)).
	ExitPortTaken = 75
)

// MaxFrame bounds one frame in bytes; a longer one is refused.
const MaxFrame = 16 << 20

// MaxExecs bounds the further commands (see Exec) that run at a time.
const MaxExecs = 64

// The values of Spec.Isolation.
const (
	// IsolationContainer: a runtime started us as root with a few capabilities
	// in namespaces of ours, and we install the ruleset and drop.
	IsolationContainer = "container"
	// IsolationProcess: bubblewrap started us as PID 1 of a jail, with nothing
	// to drop; all of it is only proved.
	IsolationProcess = "process"
)

// A Spec is the sealed message: everything that the entrypoint does.
type Spec struct {
	Version   int    `json:"version"`
	Session   string `json:"session"`
	Isolation string `json:"isolation"`
	// Command is looked up in the Env's PATH; Workdir is where it starts.
	Command []string `json:"command"`
	Workdir string   `json:"workdir"`
	// Hold: there is no command. The session lasts until the lifeline ends or
	// a SIGHUP, SIGINT, SIGTERM or SIGKILL comes, and ends with code 0 then.
	Hold bool `json:"hold,omitempty"`
	// Env is the command's whole environment, "NAME=value". A value may hold
	// newlines. It never reaches the entrypoint's own environment.
	Env []string `json:"env"`
	// UID and GID are 1000, or 0 with KeepRoot.
	UID int `json:"uid"`
	GID int `json:"gid"`
	// KeepRoot: the command stays uid 0, which is the host's user. Containers only.
	KeepRoot bool `json:"keep_root,omitempty"`
	// TTY: the command gets a controlling terminal, which standard input is
	// unless PTY is set.
	TTY bool `json:"tty"`
	// PTY: standard input and output are pipes, and the entrypoint makes the
	// terminal (process isolation only, where it is the only way). Cols and Rows
	// are its size at first; 0 is unknown.
	PTY  bool   `json:"pty,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	Rows uint16 `json:"rows,omitempty"`

	Firewall Firewall `json:"firewall"`
	// Relay is there in mode unix, and only there.
	Relay *Relay `json:"relay,omitempty"`
	// Publish is there where ports are published in mode unix.
	Publish *Publish `json:"publish,omitempty"`

	// Canary is there unless nothing is shut.
	Canary *Canary `json:"canary,omitempty"`

	// Binds are the mount targets to compare with what the host saw.
	Binds []Bind `json:"binds"`
	// Mounts are the mount points that the policy names (binds, volumes and
	// tmpfs). One that is neither here nor among those that every sandbox of the
	// kind has (entrypoint.runtimeMounts, jailMounts) is refused. One that lies
	// below a target of ReadOnly may be there too, read-only.
	Mounts []string `json:"mounts"`
	// ReadOnly are those of Mounts that have to be read-only.
	ReadOnly []string `json:"read_only,omitempty"`
	// Tmpfs are those of Mounts that have to be a tmpfs.
	Tmpfs []string `json:"tmpfs,omitempty"`

	// Links, Seeds and Managed are what the home gets before the command starts.
	Links   []Link    `json:"links,omitempty"`
	Seeds   []Seed    `json:"seeds,omitempty"`
	Managed []Managed `json:"managed,omitempty"`

	// Outside has the host's own namespaces, by the names of Namespaces and with
	// the inode of /proc/self/ns/NAME (namespaces(7)): each has to be another one
	// inside, and net has to be the same in mode host. Process isolation only.
	Outside map[string]uint64 `json:"outside,omitempty"`
	// Groups: the host's user has no privilege to drop supplementary groups, so
	// there may be some inside. Process isolation only.
	Groups bool `json:"groups,omitempty"`
}

// Namespaces are the keys of Spec.Outside.
var Namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"}

// Firewall is the network that the sandbox has.
type Firewall struct {
	// Mode is one of the Mode constants.
	Mode string `json:"mode"`
	// GateAddr and GatePort are the only way out when gated.
	GateAddr string `json:"gate_addr,omitempty"`
	GatePort uint16 `json:"gate_port,omitempty"`
	// Published are the ports inside that connections from outside may come to;
	// gated only.
	Published []uint16 `json:"published,omitempty"`
}

// A Relay is the way to the gate in mode unix: the entrypoint listens at Port of
// 127.0.0.1 inside and passes the bytes of each connection to the unix socket
// whose path inside is Socket, below one of Mounts. That one is a directory: a
// bound socket would not follow a gate that starts again.
type Relay struct {
	Port   uint16 `json:"port"`
	Socket string `json:"socket"`
}

// A Bind is the identity of a bind mount's source, as the host saw it when the
// policy was decided.
type Bind struct {
	Target string `json:"target"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
}

// An Exec is one further command in a running session, with the same drop. Its
// standard streams are FIFOs in the control directory that the host has made
// and opened (see ExecFIFOs): the host keeps both ends of each open until the
// ExecState with Started or Exited has come, then unlinks the names, and lets go
// of the ends that are the command's. With TTY the command has a terminal of the
// entrypoint's making, and no standard error of its own.
//
// The FIFOs belong to the sandbox's user: what else runs inside can read and
// write them while they have a name, as it could trace the command itself.
type Exec struct {
	// ID is above 0, and not that of an exec that still runs.
	ID      int      `json:"id"`
	Command []string `json:"command"`
	Env     []string `json:"env"`
	Workdir string   `json:"workdir"`
	TTY     bool     `json:"tty,omitempty"`
	Cols    uint16   `json:"cols,omitempty"`
	Rows    uint16   `json:"rows,omitempty"`
}

// A Resize is the new size of a terminal of the entrypoint's making. Exec is the
// command's ID, or 0 for the session's own.
type Resize struct {
	Exec int    `json:"exec,omitempty"`
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// A SignalExec is a signal to an exec, as ToGuest.Signal is one to the
// session's command.
type SignalExec struct {
	Exec   int `json:"exec"`
	Signal int `json:"signal"`
}

// A ToGuest is one frame from the host: exactly one field is set.
type ToGuest struct {
	Spec *Spec `json:"spec,omitempty"`
	// Gate comes before Go where there is a gate: when it is up.
	Gate *GateTest `json:"gate,omitempty"`
	// Go lets the command start; the host has unlinked the FIFOs.
	Go bool `json:"go,omitempty"`
	// Signal is sent to the command (for those a terminal sends, to its
	// process group).
	Signal int     `json:"signal,omitempty"`
	Resize *Resize `json:"resize,omitempty"`
	// Exec and SignalExec come after Go; the answer is an ExecState.
	Exec       *Exec       `json:"exec,omitempty"`
	SignalExec *SignalExec `json:"signal_exec,omitempty"`
	// Reload makes the squid of a gate read its configuration again: the first one is
	// 1. There is no answer but the squid's own.
	Reload int `json:"reload,omitempty"`
}

// A ToHost is one frame from the entrypoint: exactly one field is set.
type ToHost struct {
	// Enforced: every control is installed and has been read back, and the
	// privileges are dropped; the entrypoint waits for Go.
	Enforced *Enforced `json:"enforced,omitempty"`
	Started  bool      `json:"started,omitempty"`
	// Tested: the start's self-test has held, and has taken so many microseconds in
	// here. It comes before Started, unless nothing is shut.
	Tested    int64      `json:"tested,omitempty"`
	Exited    *Exited    `json:"exited,omitempty"`
	Refused   *Refused   `json:"refused,omitempty"`
	ExecState *ExecState `json:"exec_state,omitempty"`
	// LoopbackOnly is a published port at which a server listens that a network
	// can't reach, since it listens on the loopback device alone. It comes once
	// a port, in mode gated.
	LoopbackOnly uint16 `json:"loopback_only,omitempty"`
	// Blocked are packets that the ruleset has refused since the last such frame; in
	// mode gated.
	Blocked []Blocked `json:"blocked,omitempty"`
}

// Enforced tells how long the entrypoint took, from its first instruction to
// the end of the drop, without the time it waited for the Spec; in microseconds.
type Enforced struct {
	Micros int64 `json:"micros"`
	// Home has a note for each Managed that is not as the host has it.
	Home []HomeNote `json:"home,omitempty"`
}

// Exited is how the command ended. Signal is 0 unless it died by one, and Code
// is then 128+Signal.
type Exited struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
	// Error is set when the command could not be executed at all: Code is
	// then 126 or 127 (POSIX; podman-run(1)), or ExitBadSpec for an Exec that
	// makes no sense.
	Error string `json:"error,omitempty"`
}

// An ExecState tells what became of an Exec: first Started, then Exited, or at
// once Exited with an Error. What still runs when the session ends gets none.
type ExecState struct {
	ID      int     `json:"id"`
	Started bool    `json:"started,omitempty"`
	Exited  *Exited `json:"exited,omitempty"`
}

// MissingModule is in the Reason of a Refused where the kernel lacks something that a
// module would bring, before the names of those.
const MissingModule = "the kernel module"

// Refused tells why the command was not run. Code is ExitUnenforced or
// ExitBadSpec; Control names what did not hold ("ruleset", "network", "mounts",
// "namespaces", "capabilities", "seccomp", "home", "gate", "channel", "spec").
type Refused struct {
	Code    int    `json:"code"`
	Control string `json:"control"`
	Reason  string `json:"reason"`
}

// ExecFIFOs names the FIFOs of an exec in the control directory: what the
// command reads, writes, and writes its errors to (unless it has a terminal).
func ExecFIFOs(id int) (in, out, errs string) {
	x := "x" + strconv.Itoa(id)
	return x + "-in", x + "-out", x + "-err"
}
