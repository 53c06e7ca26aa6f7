// Package trace keeps what is known of each session in a directory of its own, also
// after the session has ended: the policy in force, what happened as JSON lines, and
// how it ended. Others put files beside these (the gate's log).
//
// What is written here is at rest: no secret gets into it. Every text goes through
// the function that takes secrets out, whoever it came from.
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The files of a session.
const (
	PolicyFile = "policy.json"  // in force (at last), as --print-policy=json, with the session's id filled in
	EventsFile = "events.jsonl" // an Event a line
	ReportFile = "report.json"  // as --report
)

// What happened.
const (
	Begun   = "begun"   // the record is there; the first event of every session
	Exec    = "exec"    // a further command was asked for
	Changed = "changed" // what the session may do was changed from outside
	Ended   = "ended"   // nothing of it is left, but for what is kept
	Kept    = "kept"    // what --keep leaves is all that is left
	Reaped  = "reaped"  // its owner was killed, and a later command has cleaned up
	Full    = "full"    // from now on there is no room but for the last event
)

// An Event is one line of a session's events.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"` // one of the above, or a mark of the report's timings

	// Of Begun:
	Session string   `json:"session,omitempty"`
	Kind    string   `json:"kind,omitempty"` // as store.Record's
	Runtime string   `json:"runtime,omitempty"`
	Net     string   `json:"net,omitempty"`
	Project string   `json:"project,omitempty"`
	Command []string `json:"command,omitempty"` // and of Exec
	// Cut is set where the end of Command is left out.
	Cut  bool `json:"command_cut,omitempty"`
	PID  int  `json:"pid,omitempty"`
	Keep bool `json:"keep,omitempty"`

	// Of Ended and Kept; Reason is also what Changed was:
	ExitCode *int   `json:"exit_code,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// A Store is the directory that holds those of all sessions.
type Store struct{ dir string }

// At is the store in a directory, which need not be there yet.
func At(dir string) Store { return Store{dir} }

// validID is what a session's id looks like (session.NewID).
var validID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{12}$`) })

// Dir is the directory of a session. ok is false for what is no session's id.
func (s Store) Dir(id string) (dir string, ok bool) {
	return filepath.Join(s.dir, id), validID().MatchString(id)
}

// A Writer writes one session's trace, from any goroutine.
type Writer struct {
	dir  string
	hide func(string) string

	mu     sync.Mutex
	events *os.File
	left   int
	lost   int   // events for which there was no room
	err    error // the first that could not be told
}

// maxEvents bounds a session's events, in bytes: commands may be run in a sandbox for
// months.
const maxEvents = 1 << 20

// reserve is what of it is for Full and the last event alone: without that one an
// ended session would look like a killed one. Both fit, by maxText.
const reserve = 32 << 10

// maxText bounds the command of an event, and its reason, in bytes. The policy has the
// whole command.
const maxText = 4 << 10

// Begin makes a session's directory and writes its first event. hide takes secrets
// out of every text that is written.
func (s Store) Begin(id string, hide func(string) string, first Event) (*Writer, error) {
	dir, ok := s.Dir(id)
	if !ok {
		return nil, fmt.Errorf("make the session's directory: %q is no session's id", id)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the session's directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write the session's events: %w", err)
	}
	w := &Writer{dir: dir, hide: hide, events: f, left: maxEvents}
	first.Event, first.Session = Begun, id
	w.Add(first)
	if w.err != nil {
		return nil, errors.Join(w.err, f.Close())
	}
	return w, nil
}

// Add writes an event, with the time of now. A failure is told by End: before the
// first one has been written nothing has begun, and later a full disk is no reason to
// end a command.
func (w *Writer) Add(e Event) { w.add(e, reserve) }

// add writes an event where so many bytes stay free behind it.
func (w *Writer) add(e Event, free int) {
	line, err := w.render(w.short(e))
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(line)+1+free > w.left {
		if w.lost++; w.lost > 1 {
			return
		}
		line, err = w.render(Event{Time: time.Now().UTC(), Event: Full})
	}
	if err == nil && w.err == nil {
		_, err = w.events.Write(append(line, '\n'))
		w.left -= len(line) + 1
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write the session's events: %w", err)
	}
}

// short is an event with the time of now and with texts that are cut. Secrets go
// first: half of one would not be known for one.
func (w *Writer) short(e Event) Event {
	e.Time = time.Now().UTC()
	if len(e.Reason) > maxText {
		e.Reason = w.cut(e.Reason, maxText)
	}
	room := maxText
	for i, arg := range e.Command {
		// Each takes at least its quotes and comma.
		if room -= 3; len(arg) <= room {
			room -= len(arg)
			continue
		}
		e.Command, e.Cut = slices.Clone(e.Command[:i]), true
		if room > 0 {
			e.Command = append(e.Command, w.cut(arg, room))
		}
		break
	}
	return e
}

func (w *Writer) cut(text string, most int) string {
	text = w.hide(text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// errHidden should never be seen: what is taken out leaves JSON as it is.
var errHidden = errors.New("it can't be written without a secret in it")

func (w *Writer) render(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return w.hidden(text)
}

func (w *Writer) hidden(text []byte) ([]byte, error) {
	text = []byte(w.hide(string(text)))
	if !json.Valid(text) {
		return nil, errHidden
	}
	return text, nil
}

// Policy writes down what the session may do.
func (w *Writer) Policy(text []byte) error {
	text, err := w.hidden(text)
	if err == nil {
		err = w.write(PolicyFile, text)
	}
	if err != nil {
		return fmt.Errorf("write the session's policy: %w", err)
	}
	return nil
}

// Replace writes down what the session may do from now on. err is why that could not be
// rendered, if it could not. A failure is told by End.
func (w *Writer) Replace(text []byte, err error) {
	if err == nil {
		text, err = w.hidden(text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := "." + PolicyFile + ".new"
	if err == nil {
		err = w.write(next, text)
	}
	if err == nil {
		err = os.Rename(filepath.Join(w.dir, next), filepath.Join(w.dir, PolicyFile))
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write the session's policy: %w", err)
	}
}

// End writes the report and the last event, and tells what could not be written.
func (w *Writer) End(report any, last Event) error {
	text, err := w.render(report)
	if err == nil {
		err = w.write(ReportFile, append(text, '\n'))
	}
	w.add(last, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost > 0 && w.err == nil {
		w.err = fmt.Errorf("%d events are not written down: they may take %d bytes together", w.lost, maxEvents)
	}
	return errors.Join(w.err, err, w.events.Close())
}

// write makes a file that is not there.
func (w *Writer) write(name string, text []byte) error {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// Append adds an event of words of ours to the events of a session that has no
// writer any more. One without a directory has no events.
func (s Store) Append(id string, e Event) error {
	dir, ok := s.Dir(id)
	if !ok {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the session's events: %w", err)
	}
	e.Time = time.Now().UTC()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the session's events: %w", err)
	}
	return nil
}

// Begun tells when a session began, by its first event.
func (s Store) Begun(id string) (time.Time, error) {
	dir, ok := s.Dir(id)
	if !ok {
		return time.Time{}, fs.ErrNotExist
	}
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	var e Event
	if err := json.NewDecoder(io.LimitReader(f, reserve)).Decode(&e); err != nil {
		return time.Time{}, fmt.Errorf("read the first event of session %s: %w", id, err)
	}
	return e.Time, nil
}

// Events reads a session's events. A line that was cut short is passed over.
func (s Store) Events(id string) ([]Event, error) {
	dir, ok := s.Dir(id)
	if !ok {
		return nil, fs.ErrNotExist
	}
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Event
	lines := bufio.NewScanner(io.LimitReader(f, 2*maxEvents))
	lines.Buffer(nil, maxEvents)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event != "" {
			out = append(out, e)
		}
	}
	return out, lines.Err()
}
