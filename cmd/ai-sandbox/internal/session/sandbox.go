// Sandboxes: sessions that outlive the command that started them. One process
// of its own, the supervisor, owns such a session as any other command does its:
// it holds gate, relay, jail and lifeline. What others need to find it is in its
// record, and in the handle that its user was told.
//
// The record of a sandbox stays when that has ended, however it ended: it says
// how, and it is what its workspace is known by. Down takes it away.

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/cmd/ai-sandbox/internal/tree"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// HandleVersion is that of Handle. Fields may be added without another one.
const HandleVersion = 1

// A Handle tells another program how to use a sandbox. docs/integration.md has
// its schema.
type Handle struct {
	Version   int    `json:"version"`
	SandboxID string `json:"sandbox_id"`
	// Host is where the sandbox is: this machine.
	Host string `json:"host"`
	// PID is the supervisor's, which leads a session and a process group.
	PID int `json:"pid"`
	// WorkspaceDir is the host path of what the sandbox works in, and Workdir
	// where that is inside. WorkspaceOwned: it was made for the sandbox, and Down
	// removes it.
	WorkspaceDir   string `json:"workspace_dir"`
	WorkspaceOwned bool   `json:"workspace_owned"`
	Workdir        string `json:"workdir"`
	// Log is a file with what the supervisor says, and the command's output.
	Log          string               `json:"log"`
	Runtime      string               `json:"runtime"`
	Isolation    string               `json:"isolation"`
	Capabilities backend.Capabilities `json:"capabilities"`
	Reachability Reachability         `json:"reachability"`
	// Published are the ports inside that are reached from outside.
	Published []Published `json:"published,omitempty"`
}

// Reachability has one entry for each way to a sandbox. There is one way.
type Reachability struct {
	Local LocalReach `json:"local"`
}

// LocalReach is the way of a program on the same machine, by the same user.
type LocalReach struct {
	WorkspaceDir string `json:"workspace_dir"`
	PID          int    `json:"pid"`
	// Exec is the beginning of a command line that runs what follows inside.
	Exec []string `json:"exec"`
}

// ErrNoSandbox is returned when there is no sandbox of that id.
var ErrNoSandbox = errors.New("no such sandbox")

// An EndedError says that a sandbox has ended.
type EndedError struct{ Report Report }

func (e *EndedError) Error() string {
	s := fmt.Sprintf("sandbox %s has ended (by %s, exit code %d)", e.Report.Session, e.Report.EndedBy, e.Report.ExitCode)
	if e.Report.Reason != "" {
		s += ": " + e.Report.Reason
	}
	return s
}

// Where sandboxes have what outlives them, below the state directory.
const (
	// WorkspacesDir holds the workspaces that were made for a sandbox, by id.
	WorkspacesDir = "workspaces"
	sandboxesDir  = "sandboxes"
	logName       = "log"
)

// A Sandbox is one that its supervisor, the calling process, is about to start.
type Sandbox struct {
	ID string
	// Workspace is the directory that was made for it, or "".
	Workspace string
	// Log takes what the supervisor says and the command's output.
	Log *Log
	// Program is how others call ai-sandbox, for the handle.
	Program string

	m   *Manager
	rec store.Record
}

// NewSandbox makes the record of a sandbox, its log, and a workspace unless it
// works in a project. Run ends it; Discard is for what comes before that.
func (m *Manager) NewSandbox(workspace bool) (*Sandbox, error) {
	s := &Sandbox{ID: NewID(), m: m}
	s.rec = store.Record{ID: s.ID, Kind: store.KindSandbox}
	if err := m.Store.Owner(&s.rec); err != nil {
		return nil, err
	}
	if workspace {
		s.Workspace = filepath.Join(m.StateDir, WorkspacesDir, s.ID)
		s.rec.Workspace = &store.Workspace{Path: s.Workspace, Own: true}
	}
	// First the record, so that whatever is made is known by it.
	if err := m.Store.Put(s.rec); err != nil {
		return nil, err
	}
	if err := s.make(); err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	return s, nil
}

func (s *Sandbox) make() (err error) {
	dir := s.m.sandboxDir(s.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the sandbox's directory: %w", err)
	}
	if s.Log, err = openLog(filepath.Join(dir, logName)); err != nil {
		return err
	}
	if s.Workspace == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.Workspace), 0o700); err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	if err := os.Mkdir(s.Workspace, 0o700); err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	w, err := identify(unix.AT_FDCWD, s.Workspace)
	if err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	w.Path, w.Own = s.Workspace, true
	s.rec.Workspace = &w
	return s.m.Store.Put(s.rec)
}

// Discard takes away a sandbox that was never ready.
func (s *Sandbox) Discard() error {
	if s.Log != nil {
		s.Log.Close()
	}
	return s.m.forget(s.rec, emptyWorkspace)
}

func (m *Manager) sandboxDir(id string) string {
	return filepath.Join(m.StateDir, sandboxesDir, id)
}

// identify looks at a directory without following a link at its end.
func identify(at int, path string) (w store.Workspace, err error) {
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_BTIME
	if err := unix.Statx(at, path, unix.AT_SYMLINK_NOFOLLOW, want, &st); err != nil {
		return w, fmt.Errorf("look at %s: %w", filepath.Base(path), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w, fmt.Errorf("look at %s: %w", filepath.Base(path), unix.ENOTDIR)
	}
	w.Dev, w.Ino = unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino
	if st.Mask&unix.STATX_BTIME != 0 {
		w.Born = st.Btime.Sec*int64(time.Second) + int64(st.Btime.Nsec)
	}
	return w, nil
}

// same tells whether two looks saw the same directory. The number of a device may
// be another one after a reboot: then the birth has to do.
func same(a, b store.Workspace, rebooted bool) bool {
	return a.Ino != 0 && a.Ino == b.Ino && a.Born == b.Born && (a.Dev == b.Dev || rebooted && a.Born != 0)
}

// record is that of a session: its own, or the one that its sandbox has already.
func (r *run) record() store.Record {
	if r.req.Sandbox == nil {
		return store.Record{ID: r.id, Kind: "session"}
	}
	rec := r.req.Sandbox.rec
	if rec.Workspace == nil {
		rec.Workspace = &store.Workspace{Path: r.req.Policy.Project, Dev: r.req.Project.Dev, Ino: r.req.Project.Ino}
	}
	return rec
}

// ready is called when the command runs, or would if there were one: from now on
// others can use the sandbox.
func (r *run) ready() error {
	sb := r.req.Sandbox
	var err error
	if r.execs, err = r.serve(); err == nil {
		r.undo.push("end the commands in the sandbox", func(context.Context) error { return r.execs.Close() })
	}
	if sb == nil {
		if err != nil { // no reason to end what the user waits for
			r.trace.Add(trace.Event{Event: "no exec", Reason: err.Error()})
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.mark("ready")
	p := r.req.Policy
	w := sb.rec.Workspace
	pid := os.Getpid()
	h := Handle{
		Version: HandleVersion, SandboxID: r.id, Host: "localhost", PID: pid,
		WorkspaceDir: w.Path, WorkspaceOwned: w.Own, Workdir: p.Workdir, Log: sb.Log.Name(),
		Runtime: p.Runtime, Isolation: p.Isolation, Capabilities: r.be.Capabilities(),
		Reachability: Reachability{LocalReach{
			WorkspaceDir: w.Path, PID: pid, Exec: []string{sb.Program, "exec", r.id, "--"},
		}},
		Published: slices.Clone(r.report.Published),
	}
	if sb.rec.Handle, err = json.Marshal(h); err != nil {
		return fmt.Errorf("tell the handle: %w", err)
	}
	sb.rec.Ready = true
	if err := r.m.Store.Put(sb.rec); err != nil {
		return err
	}
	if err := r.req.Ready(h); err != nil {
		sb.rec.Ready = false // nobody knows of it
		return fmt.Errorf("tell the handle: %w", err)
	}
	return nil
}

// ended writes down how a sandbox ended. One that nobody was told of is
// forgotten.
func (r *run) ended() error {
	rec := &r.req.Sandbox.rec
	if r.report.Leftover == "" {
		rec.Containers, rec.Volumes, rec.Home, rec.Dirs, rec.Placeholders = nil, nil, "", nil, nil
	}
	var errs []error
	if !rec.Ready && r.report.Leftover == "" {
		err := r.req.Sandbox.Discard()
		if err == nil {
			return nil
		}
		// The command has left something in it; so Down has to be asked.
		rec.Ready, errs = true, []error{err}
	}
	var err error
	if rec.Report, err = json.Marshal(r.report); err != nil {
		return fmt.Errorf("write down how the sandbox ended: %w", err)
	}
	return errors.Join(append(errs, r.m.Store.Put(*rec))...)
}

// state is what is known of a sandbox.
type state struct {
	rec   store.Record
	alive store.Liveness
}

func (m *Manager) state(id string) (state, error) {
	rec, ok, err := m.Store.Sandbox(id)
	if err != nil {
		return state{}, err
	}
	if !ok {
		return state{}, fmt.Errorf("sandbox %s: %w: it was never there, or is down already", policy.Quote(id), ErrNoSandbox)
	}
	s := state{rec, m.Store.Liveness(rec)}
	if s.alive == store.Unknown {
		return s, fmt.Errorf("sandbox %s may or may not live: %s; ask from where it was started", id, m.Store.WhyUnknown(rec))
	}
	return s, nil
}

// report is how a sandbox ended whose supervisor is gone.
func (s state) report() (rep Report, err error) {
	if s.rec.Report == nil {
		return Report{Version: 1, Session: s.rec.ID, ExitCode: ExitFailed, EndedBy: EndedByLoss,
			Reason: "its supervisor was killed", Refused: []gate.RefusedHost{}, Timings: map[string]float64{}}, nil
	}
	if err := json.Unmarshal(s.rec.Report, &rep); err != nil {
		return rep, fmt.Errorf("read the record of sandbox %s: %w", s.rec.ID, err)
	}
	return rep, nil
}

// readyTick is how often WaitReady looks.
const readyTick = 10 * time.Millisecond

// WaitReady waits until a sandbox can be used: every control holds, its
// supervisor is alive, and its workspace is there. *EndedError says that it has
// ended.
func (m *Manager) WaitReady(ctx context.Context, id string) (Handle, error) {
	for {
		s, err := m.state(id)
		if err != nil {
			return Handle{}, err
		}
		switch {
		case s.alive == store.Gone:
			rep, err := s.report()
			if err != nil {
				return Handle{}, err
			}
			return Handle{}, &EndedError{rep}
		case s.rec.Ready:
			return m.handle(s.rec)
		}
		select {
		case <-time.After(readyTick):
		case <-ctx.Done():
			return Handle{}, fmt.Errorf("wait for sandbox %s: %w", id, context.Cause(ctx))
		}
	}
}

// handle is the recorded one, if its workspace is still the one that it was.
func (m *Manager) handle(rec store.Record) (h Handle, err error) {
	if err := json.Unmarshal(rec.Handle, &h); err != nil {
		return h, fmt.Errorf("read the record of sandbox %s: %w", rec.ID, err)
	}
	if rec.Workspace == nil {
		return h, fmt.Errorf("read the record of sandbox %s: it has no workspace", rec.ID)
	}
	now, err := identify(unix.AT_FDCWD, rec.Workspace.Path)
	if err == nil && (now.Dev != rec.Workspace.Dev || now.Ino != rec.Workspace.Ino) {
		err = errors.New("another directory is in its place")
	}
	if err != nil {
		return h, fmt.Errorf("the workspace of sandbox %s is gone (%w); end it with ai-sandbox down %s", rec.ID, err, rec.ID)
	}
	return h, nil
}

// WaitExit waits until a sandbox has ended, and tells how.
func (m *Manager) WaitExit(ctx context.Context, id string) (Report, error) {
	s, err := m.state(id)
	if err != nil {
		return Report{}, err
	}
	p, err := m.Store.OpenProcess(s.rec)
	if err == nil {
		err = p.Wait(ctx)
		p.Close()
		if err != nil {
			return Report{}, fmt.Errorf("wait for sandbox %s: %w", id, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return Report{}, err
	}
	// Its last act was to write down how it ended, maybe since we looked.
	if s, err = m.state(id); err != nil {
		return Report{}, err
	}
	return s.report()
}

// downTime is how long a supervisor may take to end by itself: its command's
// grace, and the undoing. killTime is for what comes after it was killed.
const (
	downTime = graceTime + undoTime + 5*time.Second
	killTime = 10 * time.Second
)

// Down ends a sandbox and removes everything of it: its record last, and its
// workspace if that was made for it. It may be called again when it has failed,
// and when the supervisor was killed. backendOf is asked only where something is
// left of what ran.
func (m *Manager) Down(ctx context.Context, id string, backendOf func(ctx context.Context, runtime string) (backend.Backend, error)) error {
	if _, err := m.state(id); err != nil {
		return err
	}
	unlock, err := m.lockSandbox(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := m.state(id)
	if errors.Is(err, ErrNoSandbox) { // another down was quicker
		_ = os.Remove(m.sandboxDir(id)) // which the lock has made anew
	}
	if err != nil {
		return err
	}
	if err := m.endSupervisor(ctx, s.rec); err != nil {
		return err
	}
	switch s, err = m.state(id); {
	case errors.Is(err, ErrNoSandbox):
		return nil // it was not ready yet, and took everything with it
	case err != nil:
		return err
	}
	if left(s.rec) {
		be, err := backendOf(ctx, s.rec.Runtime)
		if err != nil {
			return err
		}
		if err := m.removeParts(ctx, be, s.rec); err != nil {
			return err
		}
	}
	if s.rec.Report == nil { // its supervisor could not say so
		if err := m.Traces().Append(id, trace.Event{Event: trace.Reaped}); err != nil {
			return err
		}
	}
	return m.forget(s.rec, ownWorkspace)
}

// left tells whether the record names anything that may still be there of what
// ran.
func left(r store.Record) bool {
	return len(r.Containers)+len(r.Volumes)+len(r.Dirs)+len(r.Placeholders) > 0
}

// endSupervisor asks the process that owns a sandbox to end, and kills it when it
// does not.
func (m *Manager) endSupervisor(ctx context.Context, rec store.Record) error {
	return m.endProcess(ctx, rec, (*store.Process).KillGroup)
}

func (m *Manager) endProcess(ctx context.Context, rec store.Record, kill func(*store.Process) error) error {
	what := "session " + rec.ID
	if rec.Kind == store.KindSandbox {
		what = "sandbox " + rec.ID
	}
	p, err := m.Store.OpenProcess(rec)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", what, err)
	}
	if err := within(ctx, m.patience(), p); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	m.Say("%s does not end by itself and is killed", what)
	if err := kill(p); err != nil {
		return fmt.Errorf("kill %s: %w", what, err)
	}
	if err := within(ctx, killTime, p); err != nil {
		return fmt.Errorf("kill %s: %w", what, err)
	}
	return nil
}

// patience is downTime, unless a test has less.
func (m *Manager) patience() time.Duration {
	if m.downTime != 0 {
		return m.downTime
	}
	return downTime
}

func within(ctx context.Context, d time.Duration, p *store.Process) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return p.Wait(ctx)
}

// lockSandbox keeps other processes from taking the same sandbox away until the
// returned function is called. It locks the sandbox's own directory, which goes
// with it.
func (m *Manager) lockSandbox(ctx context.Context, id string) (unlock func(), err error) {
	dir := m.sandboxDir(id)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("lock sandbox %s: %w", id, err)
	}
	var fd int
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock sandbox %s: %w", id, err)
		}
		// Who takes it down may have removed the directory in between.
		fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.ENOENT) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock sandbox %s: %w", id, err)
	}
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) && ctx.Err() == nil {
			time.Sleep(readyTick)
			continue
		}
		unix.Close(fd)
		return nil, fmt.Errorf("lock sandbox %s: %w", id, errors.Join(err, ctx.Err()))
	}
}

// What becomes of a workspace that was made for a sandbox.
type workspaceRule int

const (
	// emptyWorkspace: nothing was done in it, so it goes if it is empty.
	emptyWorkspace workspaceRule = iota
	// ownWorkspace: its user says that it goes.
	ownWorkspace
)

// forget removes what outlives a sandbox: its workspace if it is its own, its log, its
// record, and last the directory: while there is a record, all lock the same one.
func (m *Manager) forget(rec store.Record, rule workspaceRule) error {
	if w := rec.Workspace; w != nil && w.Own {
		if err := m.removeWorkspace(rec, *w, rule); err != nil {
			return err
		}
	}
	dir := m.sandboxDir(rec.ID)
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, n.Name())))
	}
	if err != nil {
		return fmt.Errorf("remove the sandbox's log: %w", err)
	}
	if err := m.Store.Delete(rec); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the sandbox's directory: %w", err)
	}
	return nil
}

// removeWorkspace removes the directory that was made for a sandbox, and no other
// one: not what somebody has put in its place, and nothing where a link leads.
func (m *Manager) removeWorkspace(rec store.Record, w store.Workspace, rule workspaceRule) error {
	id := rec.ID
	parent := filepath.Join(m.StateDir, WorkspacesDir)
	if w.Path != filepath.Join(parent, id) {
		return fmt.Errorf("the record of sandbox %s names the workspace %s, which is none of ours; it was not removed", id, policy.Quote(w.Path))
	}
	root, err := os.OpenRoot(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the workspace: %w", err)
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("remove the workspace: %w", err)
	}
	defer d.Close()
	at := int(d.Fd())
	now, err := identify(at, id)
	if errors.Is(err, fs.ErrNotExist) {
		// What a removal that was cut short has left beside it goes too.
		return tree.Remove(at, id)
	}
	made := w.Ino == 0 && rule == emptyWorkspace // killed before it could be written down
	if err == nil && !same(w, now, m.Store.Rebooted(rec)) && !made {
		err = errors.New("it is not the directory that was made for the sandbox")
	}
	if err != nil {
		return fmt.Errorf("the workspace %s was not removed: %w; move it away and try again", w.Path, err)
	}
	if rule == emptyWorkspace {
		err = root.Remove(id)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			err = errors.New("it is not empty; move it away and try again")
		}
	} else {
		err = tree.Remove(at, id)
	}
	if err != nil {
		return fmt.Errorf("remove the workspace %s: %w", w.Path, err)
	}
	return nil
}

// reapSandbox removes what ran of a sandbox whose supervisor is gone, and leaves
// the rest to Down: its workspace may have what somebody waits for.
func (m *Manager) reapSandbox(ctx context.Context, be backend.Backend, id string) (removed bool, err error) {
	now, cancel := context.WithCancel(ctx)
	cancel() // who holds the lock takes it away already
	unlock, err := m.lockSandbox(now, id)
	if err != nil {
		return false, nil
	}
	defer unlock()
	s, err := m.state(id)
	if errors.Is(err, ErrNoSandbox) { // it was taken down meanwhile
		_ = os.Remove(m.sandboxDir(id)) // which the lock has made anew
		return false, nil
	}
	if err != nil || s.alive != store.Gone || !left(s.rec) {
		return false, err
	}
	if err := m.removeParts(ctx, be, s.rec); err != nil {
		return false, err
	}
	if !s.rec.Ready {
		return true, m.forget(s.rec, emptyWorkspace)
	}
	s.rec.Containers, s.rec.Volumes, s.rec.Home, s.rec.Dirs, s.rec.Placeholders = nil, nil, "", nil, nil
	return true, m.Store.Put(s.rec)
}

// forgetEnded takes away the record of a sandbox that has ended and worked in a
// project, or was never ready. Only Down removes a workspace of its own, which may
// have somebody's results.
func (m *Manager) forgetEnded(ctx context.Context, r store.Record) error {
	unlock, err := m.lockSandbox(ctx, r.ID)
	if err != nil {
		return err
	}
	defer unlock()
	return m.forget(r, emptyWorkspace)
}
