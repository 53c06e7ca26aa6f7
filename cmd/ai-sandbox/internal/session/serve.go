// The supervisor's side of exec: it alone can speak to the entrypoint, so other
// processes of this user ask it over a socket. It makes the streams of a command
// and hands their ends to the one who asks; no byte of them passes through it.

package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/session/trace"
	"ai-sandbox/entrypoint/spec"
)

// execVersion is that of the messages below: both sides are ai-sandbox, but the
// one that asks may be of a later build than a supervisor that runs for days.
const execVersion = 1

// execSocket is the socket's name in the session's runtime directory.
const execSocket = "exec.sock"

// helloTime bounds the time until a client has said what it wants.
const helloTime = 10 * time.Second

// A toServer is one frame from the client: first Exec, then the others.
type toServer struct {
	Exec   *execHello   `json:"exec,omitempty"`
	Signal int          `json:"signal,omitempty"`
	Resize *spec.Resize `json:"resize,omitempty"`
}

// An execHello asks for a command.
type execHello struct {
	Version int `json:"version"`
	// Command is in bytes: a JSON string would not keep any argument.
	Command [][]byte `json:"command"`
	TTY     bool     `json:"tty,omitempty"`
	Cols    uint16   `json:"cols,omitempty"`
	Rows    uint16   `json:"rows,omitempty"`
	// Term is the client's TERM, or "".
	Term string `json:"term,omitempty"`
}

// A toClient is one frame to the client. Before the first one comes a single
// byte: streamsByte with the descriptors of the streams, or refusedByte.
type toClient struct {
	Refused string       `json:"refused,omitempty"`
	Started bool         `json:"started,omitempty"`
	Exited  *spec.Exited `json:"exited,omitempty"`
}

const (
	streamsByte = 's'
	refusedByte = 'r'
)

// An execServer runs commands in a session for others.
type execServer struct {
	r *run
	l *net.UnixListener
	// closed is closed when the session ends.
	closed chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	last    int
	running map[int]chan spec.ExecState
}

// serve begins to listen.
func (r *run) serve() (*execServer, error) {
	l, err := r.listen(execSocket, "commands to run in the sandbox")
	if err != nil {
		return nil, err
	}
	s := &execServer{r: r, l: l, closed: make(chan struct{}), running: map[int]chan spec.ExecState{}}
	s.wg.Go(s.accept)
	return s, nil
}

// listen makes a socket of the session's, at which this user alone asks for something.
func (r *run) listen(name, what string) (*net.UnixListener, error) {
	path, err := socketPath(filepath.Join(r.m.RuntimeDir, r.id, name))
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	// The directory is this user's alone; so is the socket, whatever the umask.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for %s: %w", what, err), l.Close())
	}
	return l, nil
}

// acceptEach hands out each connection until the listener is closed.
func acceptEach(l *net.UnixListener, wg *sync.WaitGroup, f func(*net.UnixConn)) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			time.Sleep(readyTick)
			continue
		}
		wg.Go(func() {
			defer conn.Close()
			f(conn)
		})
	}
}

// Close ends every connection; the commands end with the session.
func (s *execServer) Close() error {
	close(s.closed)
	err := s.l.Close()
	s.wg.Wait()
	return err
}

func (s *execServer) accept() {
	acceptEach(s.l, &s.wg, func(conn *net.UnixConn) {
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-s.closed:
				conn.Close()
			case <-done:
			}
		}()
		s.client(conn)
	})
}

// client serves one connection: one command.
func (s *execServer) client(conn *net.UnixConn) {
	refuse := func(err error) {
		if _, werr := conn.Write([]byte{refusedByte}); werr == nil {
			_ = spec.WriteFrame(conn, toClient{Refused: s.r.req.Redact.Text(err.Error())})
		}
	}
	if err := checkPeer(conn, os.Getuid()); err != nil {
		return // it is told nothing
	}
	var hello toServer
	_ = conn.SetReadDeadline(time.Now().Add(helloTime))
	if err := spec.ReadFrame(conn, &hello); err != nil || hello.Exec == nil {
		refuse(errors.New("the request makes no sense to this sandbox's ai-sandbox: it is of another version"))
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	e, err := s.begin(*hello.Exec)
	if err != nil {
		refuse(err)
		return
	}
	defer s.end(e)
	if err := e.handOver(conn); err != nil {
		return
	}
	if err := s.r.ctl.Send(spec.ToGuest{Exec: &e.Exec}); err != nil {
		return // the session is at its end
	}
	s.attend(conn, e)
}

// attend carries a command's news to the client, and the client's signals to the
// command, which ends when the client is gone.
func (s *execServer) attend(conn *net.UnixConn, e *execution) {
	asked := make(chan toServer)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(asked)
		for {
			var f toServer
			if err := spec.ReadFrame(conn, &f); err != nil {
				return
			}
			select {
			case asked <- f:
			case <-done:
				return
			}
		}
	}()
	signal := func(sig int) { s.send(spec.ToGuest{SignalExec: &spec.SignalExec{Exec: e.ID, Signal: sig}}) }
	var kill <-chan time.Time
	for {
		select {
		case f, ok := <-asked:
			switch {
			case !ok:
				asked = nil
				signal(int(syscall.SIGHUP))
				kill = time.After(graceTime)
			case f.Signal != 0:
				signal(f.Signal)
			case f.Resize != nil:
				s.send(spec.ToGuest{Resize: &spec.Resize{Exec: e.ID, Cols: f.Resize.Cols, Rows: f.Resize.Rows}})
			}
		case <-kill:
			signal(int(syscall.SIGKILL))
		case st := <-e.states:
			e.letGo()
			// A client that is gone has its own loss.
			if st.Exited != nil {
				st.Exited.Error = s.r.req.Redact.Text(st.Exited.Error)
				_ = spec.WriteFrame(conn, toClient{Exited: st.Exited})
				return
			}
			_ = spec.WriteFrame(conn, toClient{Started: true})
		case <-s.closed:
			return
		}
	}
}

// send passes on what a client asked for, if the entrypoint would take it: a
// frame that it does not would end the session.
func (s *execServer) send(f spec.ToGuest) {
	if f.Check() == nil {
		_ = s.r.ctl.Send(f) // its failure is the session's end
	}
}

// state takes the entrypoint's news of a command. It never waits: who sends more
// than there is to tell is not listened to.
func (s *execServer) state(st spec.ExecState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.running[st.ID] <- st:
	default:
	}
}

// An execution is one command, with both ends of its streams until it has them
// open itself.
type execution struct {
	spec.Exec
	dir    string
	names  []string
	states chan spec.ExecState
	ours   []*os.File // for the client
	theirs []*os.File // kept open for the command
}

// begin makes a command's streams.
func (s *execServer) begin(h execHello) (*execution, error) {
	if h.Version != execVersion {
		return nil, fmt.Errorf("the sandbox's ai-sandbox speaks version %d of exec and this one %d: use the one that started the sandbox", execVersion, h.Version)
	}
	e := &execution{dir: s.r.ctl.dir, states: make(chan spec.ExecState, 2)}
	e.Workdir, e.TTY, e.Cols, e.Rows = s.r.workdir, h.TTY, h.Cols, h.Rows
	for _, arg := range h.Command {
		e.Command = append(e.Command, string(arg))
	}
	e.Env = withTerm(s.r.env, h.Term)
	s.r.trace.Add(trace.Event{Event: trace.Exec, Command: e.Command})
	s.mu.Lock()
	if len(s.running) >= spec.MaxExecs {
		s.mu.Unlock()
		return nil, fmt.Errorf("%d commands run in the sandbox already: wait for one of them to end", spec.MaxExecs)
	}
	s.last++
	e.ID = s.last
	s.running[e.ID] = e.states
	s.mu.Unlock()
	err := spec.ValidateExec(e.Exec)
	if err == nil {
		err = e.open()
	}
	if err != nil {
		s.end(e)
		return nil, fmt.Errorf("run the command: %w", err)
	}
	return e, nil
}

// end forgets a command.
func (s *execServer) end(e *execution) {
	e.letGo()
	for _, f := range e.ours {
		f.Close()
	}
	e.ours = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, e.ID)
}

// open makes the FIFOs. What runs inside can't make a name in their directory,
// nor change one.
func (e *execution) open() error {
	in, out, errs := spec.ExecFIFOs(e.ID)
	names := []string{in, out, errs}
	if e.TTY {
		names = names[:2]
	}
	for i, name := range names {
		path := filepath.Join(e.dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return fmt.Errorf("make its streams: %w", err)
		}
		e.names = append(e.names, path)
		// The reading end first: no one opens the other without it.
		r, err := openFIFO(path, unix.O_RDONLY)
		if err != nil {
			return err
		}
		ours, theirs := &e.ours, &e.theirs
		if i == 0 { // it reads, and the client writes
			ours, theirs = theirs, ours
		}
		*ours = append(*ours, r)
		w, err := openFIFO(path, unix.O_WRONLY)
		if err != nil {
			return err
		}
		*theirs = append(*theirs, w)
	}
	return nil
}

// letGo leaves the command's ends to the command, which has them open or never
// will.
func (e *execution) letGo() {
	for _, path := range e.names {
		_ = os.Remove(path) // it goes with the directory at the latest
	}
	for _, f := range e.theirs {
		f.Close()
	}
	e.names, e.theirs = nil, nil
}

// handOver gives the client its ends.
func (e *execution) handOver(conn *net.UnixConn) error {
	var fds []int
	for _, f := range e.ours {
		// Not by File.Fd, which would make the other process wait in its reads.
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return fmt.Errorf("hand the streams over: %w", err)
		}
	}
	_, _, err := conn.WriteMsgUnix([]byte{streamsByte}, unix.UnixRights(fds...), nil)
	for _, f := range e.ours {
		f.Close()
	}
	e.ours = nil
	if err != nil {
		return fmt.Errorf("hand the streams over: %w", err)
	}
	return nil
}

// withTerm is an environment with the client's own terminal in it. A TERM that
// could be anything but a terminal's name is not taken.
func withTerm(env []string, term string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(s string) bool { return strings.HasPrefix(s, "TERM=") })
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._+", r)
	}
	if term == "" || len(term) > 64 || strings.IndexFunc(term, func(r rune) bool { return !plain(r) }) >= 0 {
		return out
	}
	return append(out, "TERM="+term)
}

// checkPeer tells whether the other side is a process of the user.
func checkPeer(conn *net.UnixConn, uid int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("look at the peer: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("look at the peer: %w", credErr)
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("the peer is uid %d, not %d", cred.Uid, uid)
	}
	return nil
}

// socketPath refuses a path that a socket can't have.
func socketPath(path string) (string, error) {
	const most = 107 // of sun_path, with its zero (unix(7))
	if len(path) > most {
		return "", fmt.Errorf("the path of a socket, %s, is longer than %d bytes: set XDG_RUNTIME_DIR to a shorter one", path, most)
	}
	return path, nil
}
