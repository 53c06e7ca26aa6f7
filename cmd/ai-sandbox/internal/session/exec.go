// The client's side of exec: a process of its own that carries a command's
// streams and signals.

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
)

// An ExecRequest is one command to run in a sandbox.
type ExecRequest struct {
	Command []string
	// Term is the caller's TERM.
	Term     string
	Streams  backend.Streams
	Terminal Terminal // nil: none
	// Signals are those that the caller got for the command.
	Signals <-chan os.Signal
}

// quietTime is how long the output may be silent once the command has ended, when
// something that it left behind still holds it open.
const quietTime = 100 * time.Millisecond

// Exec runs a command in a sandbox and returns its exit code. The error is nil
// when the command ran and ended, whatever its exit code.
func (m *Manager) Exec(ctx context.Context, id string, req ExecRequest) (code int, err error) {
	rec, alive, ok, err := m.lookup(id)
	if err == nil && !ok {
		err = m.wasThere(id)
		if err == nil {
			err = fmt.Errorf("session %s has ended, and nothing runs in it any more", id)
		}
	}
	if err != nil {
		return ExitFailed, err
	}
	sandbox := rec.Kind == store.KindSandbox
	switch {
	case rec.Kept || alive == store.Gone && !sandbox:
		return ExitFailed, fmt.Errorf("session %s has ended, and nothing runs in it any more", id)
	case alive == store.Gone:
		rep, err := state{rec, alive}.report()
		return ExitFailed, errors.Join(&EndedError{rep}, err)
	case sandbox && !rec.Ready:
		return ExitFailed, fmt.Errorf("sandbox %s is not ready yet: wait for it with ai-sandbox wait %s --ready", id, id)
	}
	c, err := m.dialExec(ctx, id, req)
	if errors.Is(err, fs.ErrNotExist) {
		return ExitFailed, fmt.Errorf("session %s takes no commands: it starts or ends just now; try again, or see ai-sandbox logs %s", id, id)
	}
	if err != nil {
		return ExitFailed, fmt.Errorf("run a command in session %s: %w", id, err)
	}
	defer c.conn.Close()
	return c.attend(ctx)
}

// An execClient is one command of another process's session.
type execClient struct {
	id   string
	req  ExecRequest
	conn *net.UnixConn
	in   *os.File
	outs []*output
	// sending: signals and sizes may come from anywhere.
	sending sync.Mutex
}

// dialExec asks for the command, and gets its streams.
func (m *Manager) dialExec(ctx context.Context, id string, req ExecRequest) (_ *execClient, err error) {
	path, err := socketPath(filepath.Join(m.RuntimeDir, id, execSocket))
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("reach its supervisor: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dialled.Close())
		}
	}()
	conn, ok := dialled.(*net.UnixConn)
	if !ok {
		return nil, errors.New("reach its supervisor: not a unix socket")
	}
	if err := checkPeer(conn, os.Getuid()); err != nil {
		return nil, err
	}
	h := execHello{Version: execVersion, Term: req.Term, TTY: req.Terminal != nil}
	for _, arg := range req.Command {
		h.Command = append(h.Command, []byte(arg))
	}
	if req.Terminal != nil {
		if cols, rows, err := req.Terminal.Size(); err == nil {
			h.Cols, h.Rows = uint16(cols), uint16(rows) //nolint:gosec // of a struct winsize
		}
	}
	c := &execClient{id: id, req: req, conn: conn}
	if err := c.send(toServer{Exec: &h}); err != nil {
		return nil, err
	}
	files, err := streams(conn)
	if err != nil {
		return nil, err
	}
	writers := []io.Writer{req.Streams.Stdout, req.Streams.Stderr}
	if want := 3; len(files) != want && (!h.TTY || len(files) != want-1) {
		return nil, fmt.Errorf("the supervisor gave %d streams", len(files))
	}
	c.in = files[0]
	for i, f := range files[1:] {
		c.outs = append(c.outs, newOutput(f, writers[i]))
	}
	return c, nil
}

// streams receives the descriptors of the command's streams, or the refusal.
func streams(conn *net.UnixConn) ([]*os.File, error) {
	var first [1]byte
	rights := make([]byte, unix.CmsgSpace(3*4))
	_, n, _, _, err := conn.ReadMsgUnix(first[:], rights)
	if err != nil {
		return nil, fmt.Errorf("ask its supervisor: %w", err)
	}
	if first[0] != streamsByte {
		var f toClient
		if err := spec.ReadFrame(conn, &f); err != nil {
			return nil, fmt.Errorf("ask its supervisor: %w", err)
		}
		return nil, errors.New(f.Refused)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return nil, fmt.Errorf("take the command's streams: %w", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, fmt.Errorf("take the command's streams: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}

func (c *execClient) send(f toServer) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := spec.WriteFrame(c.conn, f); err != nil {
		return fmt.Errorf("ask its supervisor: %w", err)
	}
	return nil
}

// attend carries everything until the command has ended.
func (c *execClient) attend(ctx context.Context) (code int, err error) {
	frames := make(chan toClient)
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(frames)
		for {
			var f toClient
			if err := spec.ReadFrame(c.conn, &f); err != nil {
				return
			}
			select {
			case frames <- f:
			case <-done:
				return
			}
		}
	}()
	var resized <-chan os.Signal
	var grace <-chan time.Time
	for {
		select {
		case f, ok := <-frames:
			switch {
			case !ok:
				c.drain()
				return 128 + int(syscall.SIGKILL), fmt.Errorf("sandbox %s has ended, and the command with it", c.id)
			case f.Started:
				restore, err := c.begin()
				if err != nil {
					return ExitFailed, err
				}
				defer restore()
				if c.req.Terminal != nil {
					resized = c.req.Terminal.Resized()
				}
			case f.Exited != nil:
				c.drain()
				return exitOf(*f.Exited)
			}
		case s := <-c.req.Signals:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if (sig == syscall.SIGTERM || sig == syscall.SIGHUP) && grace == nil {
				grace, code = time.After(graceTime), 128+int(sig)
			}
			_ = c.send(toServer{Signal: int(sig)}) // else the supervisor is gone, which frames tell
		case <-grace:
			// The end of our connection is the end of the command.
			return code, fmt.Errorf("the command did not end within %s and was given up", graceTime)
		case <-resized:
			if cols, rows, err := c.req.Terminal.Size(); err == nil && cols > 0 && rows > 0 {
				_ = c.send(toServer{Resize: &spec.Resize{Cols: uint16(cols), Rows: uint16(rows)}}) //nolint:gosec // of a struct winsize
			}
		case <-ctx.Done():
			return ExitFailed, context.Cause(ctx)
		}
	}
}

// begin sets the terminal up and lets the command have its input. Before it runs
// no input is taken from anybody.
func (c *execClient) begin() (restore func(), err error) {
	restore = func() {}
	if t := c.req.Terminal; t != nil {
		undo, err := t.Raw()
		if err != nil {
			return nil, fmt.Errorf("set the terminal up: %w", err)
		}
		restore = func() { _ = undo() } // nothing is left to be done about it
	}
	go func() {
		if c.req.Streams.Stdin != nil {
			_, _ = io.Copy(c.in, c.req.Streams.Stdin) // the command may want no more of it
		}
		c.in.Close()
	}()
	return restore, nil
}

// drain waits for the last output of a command that has ended.
func (c *execClient) drain() {
	for _, o := range c.outs {
		o.last()
	}
	limit := time.After(drainTime)
	for _, o := range c.outs {
		select {
		case <-o.done:
		case <-limit:
			return
		}
	}
}

func exitOf(e spec.Exited) (int, error) {
	switch {
	case e.Error == "":
		return e.Code, nil
	case e.Code == 126 || e.Code == 127:
		return e.Code, errors.New(e.Error)
	}
	return ExitFailed, errors.New(e.Error)
}

// An output copies one of the command's streams to the caller's.
type output struct {
	from *os.File
	to   io.Writer
	done chan struct{}
	// ending is set when the command has ended: silence is then the end.
	ending atomic.Bool
}

func newOutput(from *os.File, to io.Writer) *output {
	o := &output{from: from, to: to, done: make(chan struct{})}
	go o.copy()
	return o
}

// copy ends at the end of the stream. When nobody reads the output any more it
// lets go of it, and the command learns that as it would anywhere.
func (o *output) copy() {
	defer close(o.done)
	defer o.from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := o.from.Read(buf)
		if n > 0 {
			if _, werr := o.to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || !o.waiting()) {
			return
		}
		if o.ending.Load() {
			o.quiet()
		}
	}
}

// waiting tells whether there is something to read: where this process was not let run
// for the time of the silence, there may be.
func (o *output) waiting() bool {
	raw, err := o.from.SyscallConn()
	n := 0
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
	}
	return err == nil && n > 0
}

// last is called when the command has ended. What it wrote is in the pipe by now.
func (o *output) last() {
	o.ending.Store(true)
	o.quiet()
}

func (o *output) quiet() { _ = o.from.SetReadDeadline(time.Now().Add(quietTime)) }
