// Package store keeps the records of sessions, sandboxes and named gates on disk,
// and knows whether the process that owns one is still alive.
//
// What is alive is the truth; a record is an index into it. An owner is known
// by boot id, process id and start time, so that a reused process id is never
// taken for it; when there is doubt the answer is Unknown, and nothing is
// removed.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// KindSandbox is the Kind of a session that outlives the command that started
// it. Its record stays when it has ended, until somebody takes it down.
const KindSandbox = "sandbox"

// KindLook is the Kind of a container of no session, with its name as the ID: one in
// which its owner looks into an image.
const KindLook = "look"

// A Record is one session, sandbox or named gate.
type Record struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // "session", KindSandbox, KindLook or "gate"
	// Runtime is what it runs on (policy.RuntimePodman, ...).
	Runtime string `json:"runtime"`
	BootID  string `json:"boot_id"`
	// PIDNS is the process namespace that PID counts in.
	PIDNS   string `json:"pid_namespace"`
	PID     int    `json:"pid,omitempty"`        // of the owner; 0 for a named gate
	Start   uint64 `json:"start_time,omitempty"` // of the owner, clock ticks since boot
	Project string `json:"project,omitempty"`
	// Containers and Volumes are the names to remove with the record; Dirs the
	// directories.
	Containers []string `json:"containers"`
	Volumes    []string `json:"volumes,omitempty"`
	// Keep: the sandbox's container and volumes stay when the session has ended.
	// Kept: it has, and what the record still names is what stays, until somebody
	// removes it.
	Keep bool `json:"keep,omitempty"`
	Kept bool `json:"kept,omitempty"`
	// Home is the home that is used; it stays.
	Home string   `json:"home,omitempty"`
	Dirs []string `json:"dirs,omitempty"`
	// Gate is the named gate that a session shares, and GatePort its port there.
	Gate string `json:"gate,omitempty"`
	// GatePort is where a named gate itself listens, GateLog the directory of its log,
	// GateImage the id of its image, and GateTTL for how many seconds it may be without a
	// session before it ends itself; 0 is for ever.
	GatePort  uint16 `json:"gate_port,omitempty"`
	GateLog   string `json:"gate_log,omitempty"`
	GateImage string `json:"gate_image,omitempty"`
	GateTTL   int64  `json:"gate_ttl,omitempty"`
	// GatePeek is the port of a named gate's second squid, and GateGiven what its lists
	// were given by flags: pairs of a setting and its value.
	GatePeek  uint16      `json:"gate_peek,omitempty"`
	GateGiven [][2]string `json:"gate_given,omitempty"`
	// Unit is the quadlet with which systemd starts a named gate.
	Unit string `json:"unit,omitempty"`
	// Allow and AllowPrivate are what a named gate lets through, as entries.
	Allow        []string `json:"allow,omitempty"`
	AllowPrivate []string `json:"allow_private,omitempty"`
	// Upstream is the URL of the proxy that a named gate goes through, and UpstreamAuth
	// whether it shows that one credentials.
	Upstream     string `json:"upstream,omitempty"`
	UpstreamAuth bool   `json:"upstream_auth,omitempty"`
	// Nonce is what the gate answers its probe with.
	Nonce string `json:"nonce,omitempty"`
	// PolicyHash is what a named gate was configured with.
	PolicyHash string `json:"policy_hash,omitempty"`

	// Ready: a sandbox's handle was told, so there may be something in it that
	// somebody wants.
	Ready bool `json:"ready,omitempty"`
	// Handle is what its user was told, and Report how it ended, if it said so.
	Handle    json.RawMessage `json:"handle,omitempty"`
	Report    json.RawMessage `json:"report,omitempty"`
	Workspace *Workspace      `json:"workspace,omitempty"`
	// Placeholders are the empty files and directories in the project that keep
	// protected paths from being made. Several sessions may name the same one.
	Placeholders []Placeholder `json:"placeholders,omitempty"`
}

// A Placeholder is an empty directory or file at a path below Root, which is a host
// path.
type Placeholder struct {
	Root string `json:"root"`
	Path string `json:"path"`
	File bool   `json:"file,omitempty"`
	// Asked is when the record was written, in nanoseconds since 1970: before the
	// placeholder was made.
	Asked int64 `json:"asked"`
	// Dev, Ino and Born are as a Workspace's. An Ino of 0: it was not made yet, or
	// its maker was killed before it could write that down.
	Dev  uint64 `json:"dev,omitempty"`
	Ino  uint64 `json:"ino,omitempty"`
	Born int64  `json:"born,omitempty"`
}

// A Workspace is the directory that a sandbox works in.
type Workspace struct {
	Path string `json:"path"`
	// Own: it was made for the sandbox, and is not the user's project.
	Own bool `json:"own,omitempty"`
	// Dev, Ino and Born say which directory it was that was made: the numbers of
	// stat(2), and its birth in nanoseconds where the file system knows it (an
	// inode's number is soon another file's). An Ino of 0: it was not made yet.
	Dev  uint64 `json:"dev,omitempty"`
	Ino  uint64 `json:"ino,omitempty"`
	Born int64  `json:"born,omitempty"`
}

// A Liveness is what is known about an owner.
type Liveness int

// Only Gone may be reaped.
const (
	Unknown Liveness = iota
	Alive
	Gone
)

// A Store is a directory of records.
type Store struct {
	dir  string
	proc string
}

// Open makes the directory if it's missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the session records: %w", err)
	}
	return &Store{dir: dir, proc: "/proc"}, nil
}

// Put writes a record: a temporary file, then a rename.
func (s *Store) Put(r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", r.ID, err)
	}
	tmp, err := s.create()
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", r.ID, err)
	}
	_, err = tmp.Write(b)
	if err == nil {
		err = os.Rename(tmp.Name(), s.path(r))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write the record of %s: %w", r.ID, err), os.Remove(tmp.Name()))
	}
	// Not before it has its name: the lock goes with it.
	return errors.Join(err, tmp.Close())
}

// unnamed begins the name of a record that is being written.
const unnamed = ".new-"

// create makes a file for a record, locked for as long as it is open: one that is
// not locked was left by a writer that was killed.
func (s *Store) create() (*os.File, error) {
	for {
		f, err := os.CreateTemp(s.dir, unnamed+"*")
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err == nil {
			err = unix.Fstat(int(f.Fd()), &st)
		}
		if err == nil && st.Nlink > 0 {
			return f, nil
		}
		// Somebody took it for a leftover before it was locked.
		if cerr := f.Close(); err != nil {
			return nil, errors.Join(err, cerr, os.Remove(f.Name()))
		}
	}
}

// drop removes a file that a killed writer has left.
func (s *Store) drop(name string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has its name by now
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // it is being written
	}
	if err := os.Remove(f.Name()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// waitTime bounds the wait for a lock that is held for some file operations.
const waitTime = 10 * time.Second

// WaitLock is Lock for what takes others a few milliseconds: it waits for its turn.
func (s *Store) WaitLock(name string) (unlock func(), err error) {
	for deadline := time.Now().Add(waitTime); ; time.Sleep(time.Millisecond) {
		unlock, err := s.Lock(name)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return unlock, err
		}
	}
}

// Lock keeps other processes of this user from working on the same thing until
// the returned function is called, or this process ends.
func (s *Store) Lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name+".lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	// Not to wait: what holds it is an ai-sandbox that does the same now.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another ai-sandbox works on %s just now: try again: %w", name, err), f.Close())
	}
	return func() { f.Close() }, nil
}

// Delete removes a record; one that is not there is no error.
func (s *Store) Delete(r Record) error {
	if err := os.Remove(s.path(r)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the record of %s: %w", r.ID, err)
	}
	return nil
}

// Gate is the record of a named gate; ok tells whether there is one.
func (s *Store) Gate(name string) (r Record, ok bool, err error) { return s.get("gate", name) }

// Sandbox is the record of a sandbox; ok tells whether there is one. The id may
// be any text.
func (s *Store) Sandbox(id string) (r Record, ok bool, err error) {
	if id == "" || strings.ContainsRune(id, '/') {
		return Record{}, false, nil
	}
	return s.get(KindSandbox, id)
}

// Session is the record of a session or sandbox, whichever has that id; ok tells
// whether there is one. The id may be any text.
func (s *Store) Session(id string) (r Record, ok bool, err error) {
	if r, ok, err = s.Sandbox(id); ok || err != nil || id == "" || strings.ContainsRune(id, '/') {
		return r, ok, err
	}
	return s.get("session", id)
}

// Again reads a record once more; ok tells whether there still is one.
func (s *Store) Again(r Record) (now Record, ok bool, err error) { return s.get(r.Kind, r.ID) }

func (s *Store) get(kind, id string) (r Record, ok bool, err error) {
	r = Record{Kind: kind, ID: id}
	b, err := os.ReadFile(s.path(r))
	if errors.Is(err, os.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read the record of %s %s: %w", kind, id, err)
	}
	return r, true, nil
}

// List reads every record. An unreadable one is an error beside the others.
func (s *Store) List() ([]Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the session records: %w", err)
	}
	var out []Record
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unnamed) {
			if err := s.drop(e.Name()); err != nil {
				errs = append(errs, fmt.Errorf("remove what a killed process has left: %w", err))
			}
			continue
		}
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // its owner has just removed it
		}
		var r Record
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			path := filepath.Join(s.dir, e.Name())
			errs = append(errs, fmt.Errorf("read the record %s: %w; if what it names is gone, move it away: mv %q %q", e.Name(), err, path, path+".bad"))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

func (s *Store) path(r Record) string {
	return filepath.Join(s.dir, r.Kind+"-"+r.ID+".json")
}

// Owner fills in the calling process as the record's owner.
func (s *Store) Owner(r *Record) error {
	boot, err := s.bootID()
	if err != nil {
		return err
	}
	r.BootID = boot
	if r.PIDNS, err = s.pidNS(); err != nil {
		return err
	}
	r.PID = os.Getpid()
	r.Start, _, err = s.stat(r.PID)
	return err
}

// Liveness tells whether the record's owner is alive. A record without an
// owner (a named gate's) is Gone only after a reboot, and one with a Unit never.
func (s *Store) Liveness(r Record) Liveness {
	if r.Unit != "" {
		return Alive
	}
	boot, err := s.bootID()
	if err != nil || r.BootID == "" {
		return Unknown
	}
	if boot != r.BootID {
		return Gone
	}
	if r.PID == 0 {
		return Alive
	}
	if ns, err := s.pidNS(); err != nil || ns != r.PIDNS {
		return Unknown
	}
	start, dead, err := s.stat(r.PID)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		// hidepid may hide it: the id is free only when the kernel says so too.
		if unix.Kill(r.PID, 0) == unix.ESRCH {
			return Gone
		}
		return Unknown
	case err != nil:
		return Unknown
	case start != r.Start || dead:
		return Gone
	default:
		return Alive
	}
}

// WhyUnknown tells for people why it is not known whether the record's owner is alive.
func (s *Store) WhyUnknown(r Record) string {
	ns, err := s.pidNS()
	switch {
	case r.BootID == "":
		return "its record does not say by which start of the machine it was made"
	case err == nil && r.PIDNS != ns:
		return "it was started in another process namespace"
	}
	return "its owner can't be seen from here"
}

// Rebooted tells whether the machine was started again since the record was made.
func (s *Store) Rebooted(r Record) bool {
	boot, err := s.bootID()
	return err == nil && r.BootID != "" && boot != r.BootID
}

func (s *Store) bootID() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// pidNS names the process namespace: ids of another one say nothing here.
func (s *Store) pidNS() (string, error) {
	ns, err := os.Readlink(filepath.Join(s.proc, "self/ns/pid"))
	if err != nil {
		return "", fmt.Errorf("read the process namespace: %w", err)
	}
	return ns, nil
}

// stat reads /proc/PID/stat (proc(5)): field 22 is the start time. A process is
// dead when it has ended and only its parent does not know (field 3), with every
// thread of it (field 20). The command's name in field 2 may hold spaces and
// parentheses, so count from the last one.
func (s *Store) stat(pid int) (start uint64, dead bool, err error) {
	b, err := os.ReadFile(filepath.Join(s.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false, err
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, false, fmt.Errorf("read the start time of process %d: no name in its stat", pid)
	}
	fields := strings.Fields(string(b[i+1:]))
	if len(fields) < 20 {
		return 0, false, fmt.Errorf("read the start time of process %d: its stat is short", pid)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read the start time of process %d: %w", pid, err)
	}
	dead = (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1")
	return start, dead, nil
}
