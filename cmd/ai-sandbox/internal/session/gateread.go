// Reading the log of a session's gate.

package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// ErrNoLog is returned for a session that has no log of a gate.
var ErrNoLog = errors.New("no log of a gate")

// LastLogged is the last session that has a log of a gate.
func (m *Manager) LastLogged() (string, error) {
	ids, err := m.Traces().IDs()
	if err != nil {
		return "", err
	}
	last, when := "", time.Time{}
	for _, id := range ids {
		dir, _ := m.Traces().Dir(id)
		if _, err := os.Lstat(filepath.Join(dir, GateLogFile)); err != nil {
			continue
		}
		// One that does not say when it began is older than any that does.
		begun, err := m.Traces().Begun(id)
		if err != nil {
			begun = time.Time{}
		}
		if last == "" || begun.After(when) {
			last, when = id, begun
		}
	}
	if last == "" {
		return "", fmt.Errorf("%w is there: no session with a gate has run, or what was kept of it is removed", ErrNoLog)
	}
	return last, nil
}

// NoPackets tells whether a session's network has no device that a packet could leave by:
// the local runtime's, and --net unix.
func (m *Manager) NoPackets(id string) bool {
	events, err := m.Traces().Events(id)
	return err == nil && len(events) > 0 && events[0].Event == trace.Begun && (events[0].Net == policy.NetUnix || events[0].Net == policy.NetLearn && events[0].Runtime == policy.RuntimeLocal)
}

// maxEventLine bounds a line of the log, in bytes. Ours are under 1 KiB.
const maxEventLine = 4 << 10

// followTick is how often a followed log is looked at.
const followTick = 100 * time.Millisecond

// GateLog gives every event of a session's gate to f, and with follow waits for more
// until the session or ctx has ended. It tells how many lines were none of ours.
func (m *Manager) GateLog(ctx context.Context, id string, follow bool, f func(gate.Event) error) (bad int, err error) {
	dir, ok := m.Traces().Dir(id)
	if !ok {
		return 0, fmt.Errorf("session %s: %w; ai-sandbox log takes a session's id, or none for the last one", policy.Quote(id), ErrNoLog)
	}
	bad, err = readLog(ctx, filepath.Join(dir, GateLogFile), func() bool { return follow && m.lives(id) }, f)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("session %s: %w: it had no gate, or what was kept of it is removed", id, ErrNoLog)
	}
	return bad, err
}

// NamedLog gives every event of a named gate's sessions to f, and with follow waits for
// more until the gate is no more or ctx has ended. It tells how many lines were none of
// ours.
func (m *Manager) NamedLog(ctx context.Context, name string, follow bool, f func(gate.Event) error) (bad int, err error) {
	if err := CheckGateName(name); err != nil {
		return 0, err
	}
	there := func() bool {
		_, ok, err := m.Store.Gate(name)
		return err == nil && ok
	}
	if !there() {
		return 0, noGate(name)
	}
	path := m.gateLogPath(name)
	var all []*logTail
	defer func() {
		for _, t := range all {
			t.file.Close()
		}
	}()
	for {
		// Asked before the end is seen: what is written after that is read.
		ended := !follow || !there()
		// Sessions that had a file open before it was put aside write there still.
		if all, err = tailsOf(all, path, path+".1"); err != nil {
			return bad, err
		}
		for _, t := range all {
			more, err := t.rest(f)
			if bad += more; err != nil {
				return bad, err
			}
		}
		if ended {
			return bad, nil
		}
		select {
		case <-time.After(followTick):
		case <-ctx.Done():
			return bad, nil
		}
	}
}

// maxTails bounds the files of one log that are read at a time: what was put aside so long
// ago nobody writes to.
const maxTails = 8

// tailsOf adds those of the files that are there and are not among them, which end up with
// the first file last. It is that one which is renamed to the others.
func tailsOf(all []*logTail, paths ...string) ([]*logTail, error) {
	at := len(all)
	for _, path := range paths {
		t, err := openTail(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return all, err
		}
		if slices.ContainsFunc(all, func(have *logTail) bool { return os.SameFile(have.info, t.info) }) {
			t.file.Close()
			continue
		}
		all = slices.Insert(all, at, t)
	}
	for len(all) > maxTails {
		all[0].file.Close()
		all = all[1:]
	}
	return all, nil
}

// readLog gives the events of a file to f, and goes on while more tells that there may be
// some.
func readLog(ctx context.Context, path string, more func() bool, f func(gate.Event) error) (bad int, err error) {
	t, err := openTail(path)
	if err != nil {
		return 0, err
	}
	defer t.file.Close()
	for {
		// Asked before the end is seen: what is written after that is read.
		ended := !more()
		n, err := t.rest(f)
		if bad += n; err != nil || ended {
			return bad, err
		}
		select {
		case <-time.After(followTick):
		case <-ctx.Done():
			return bad, nil
		}
	}
}

// A logTail is a log that grows while it is read.
type logTail struct {
	file *os.File
	info fs.FileInfo
	r    *bufio.Reader
	part []byte // of a line that is being written
	skip bool   // the line is too long
}

func openTail(path string) (*logTail, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("read the gate's log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the gate's log: %w", err), file.Close())
	}
	return &logTail{file: file, info: info, r: bufio.NewReaderSize(file, maxEventLine)}, nil
}

// rest gives the events up to the end of now to f, and tells how many lines were none.
func (t *logTail) rest(f func(gate.Event) error) (bad int, err error) {
	for {
		line, err := t.r.ReadSlice('\n')
		t.part = append(t.part, line...)
		if len(t.part) > maxEventLine {
			t.part, t.skip = nil, true
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) {
			return bad, nil
		}
		if err != nil {
			return bad, fmt.Errorf("read the gate's log: %w", err)
		}
		e, ok := parseEvent(t.part)
		t.part = t.part[:0]
		if t.skip || !ok {
			bad, t.skip = bad+1, false
			continue
		}
		if err := f(e); err != nil {
			return bad, err
		}
	}
}

// parseEvent reads a line strictly.
func parseEvent(line []byte) (e gate.Event, ok bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if d.Decode(&e) != nil {
		return e, false
	}
	_, err := d.Token()
	return e, errors.Is(err, io.EOF)
}

// lives tells whether a session may have more to log.
func (m *Manager) lives(id string) bool {
	r, ok, err := m.Store.Session(id)
	return err == nil && ok && !r.Kept && m.Store.Liveness(r) != store.Gone
}
