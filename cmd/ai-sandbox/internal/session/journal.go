// The journal: which images each session stood on, kept after it has ended, so that
// it can be told later what enforced it.

package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/policy"
)

// maxJournal is the size, in bytes, at which a journal is put aside: some thousands
// of sessions. The one that was put aside before is then gone.
const maxJournal = 2 << 20

// An Entry is what the journal says of a session.
type Entry struct {
	Session string    `json:"session"`
	Started time.Time `json:"started"`
	Runtime string    `json:"runtime"`
	Net     string    `json:"net"`
	// Engine is what the gate was, and GateName the named gate that it was.
	Engine   string `json:"engine,omitempty"`
	GateName string `json:"gate,omitempty"`
	// EngineVersion is that of an engine that is in no image: of ai-sandbox for the one
	// that is built in, of the machine's squid for that. "" is not known.
	EngineVersion string `json:"engine_version,omitempty"`
	// SandboxImage and GateImage are image ids: "" where there was no such image.
	SandboxImage string `json:"sandbox_image,omitempty"`
	GateImage    string `json:"gate_image,omitempty"`
}

func (m *Manager) journalPath() string { return filepath.Join(m.StateDir, "journal.jsonl") }

// note adds the session to the journal.
func (r *run) note() error {
	net := r.req.Policy.Net
	e := Entry{
		Session: r.id, Started: time.Now().UTC().Truncate(time.Second), Runtime: r.req.Policy.Runtime,
		Net: net.Mode, Engine: net.Engine, GateName: net.GateName, SandboxImage: r.req.SandboxImage,
	}
	switch {
	case net.GateName != "":
		// It may have been made of another image than a gate of today would.
		g, _, err := r.m.Store.Gate(net.GateName)
		if err != nil {
			return err
		}
		e.GateImage = g.GateImage
	default:
		e.EngineVersion = r.req.EngineVersion
		if net.Engine == policy.EngineSquid {
			e.GateImage = r.req.GateImage
		}
	}
	return r.m.add(e)
}

// add writes one line, in one call: several sessions may begin at once.
func (m *Manager) add(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	f, err := openBounded(m.journalPath(), maxJournal)
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// openBounded opens a file to add lines to, each in one call, and puts one of more than
// limit bytes aside, in the place of the one that was put aside before; who has it open
// still writes there. Of several that find it so one does: the others would put the new one
// in its place.
func openBounded(path string, limit int64) (*os.File, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() <= limit {
		return f, nil
	}
	if err == nil {
		err = putAside(f, info, path)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return open()
}

// putAside renames such a file unless another process has done so.
func putAside(f *os.File, info fs.FileInfo, path string) error {
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
		return nil
	}
	return errors.Join(err, os.Rename(path, path+".1"))
}

// Journaled is what the journal says of a session; ok tells whether it says
// anything. A line that was cut short by a full disk, say, is passed over.
func (m *Manager) Journaled(session string) (e Entry, ok bool, err error) {
	for _, path := range []string{m.journalPath(), m.journalPath() + ".1"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Entry{}, false, fmt.Errorf("read the journal: %w", err)
		}
		e, ok, err = find(f, session)
		if err = errors.Join(err, f.Close()); err != nil || ok {
			return e, ok, err
		}
	}
	return Entry{}, false, nil
}

func find(r io.Reader, session string) (Entry, bool, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e Entry
		if bytes.Contains(lines.Bytes(), []byte(session)) && json.Unmarshal(lines.Bytes(), &e) == nil && e.Session == session {
			return e, true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Entry{}, false, fmt.Errorf("read the journal: %w", err)
	}
	return Entry{}, false, nil
}
