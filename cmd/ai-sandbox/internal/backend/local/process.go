// One bubblewrap and what runs below it: its start, its streams, its end.

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

// A process is one jail. Its streams are always pipes of ours: what the caller
// has as standard input may be a directory, or a terminal that the command could
// write to.
type process struct {
	jail        jail
	command     command
	bwrap       string
	manager     string
	programPath string
	info        backend.Leftover

	stdin, stdout, stderr pipe

	attachOnce, startOnce sync.Once
	// started is closed when Start has come to an end; startErr is set before.
	started  chan struct{}
	startErr error
	// ended is closed when bubblewrap is gone; code is set before.
	ended chan struct{}
	code  int
	// removed is closed when the jail was ended by us.
	removed    chan struct{}
	removeOnce sync.Once

	// scoped gets how the making of the jail's control group ended; nil is none.
	scoped chan error

	mu  sync.Mutex
	cmd *exec.Cmd
	// child is PID 1 of the jail, as seen from here; 0 is unknown. childFD is
	// the pidfd of it.
	child   int
	childFD *os.File
}

type pipe struct{ r, w *os.File }

func newPipe() (pipe, error) {
	r, w, err := os.Pipe()
	return pipe{r, w}, err
}

func (p pipe) close() {
	for _, f := range []*os.File{p.r, p.w} {
		if f != nil {
			f.Close()
		}
	}
}

func newProcess(j jail, c command) (*process, error) {
	p := &process{jail: j, command: c, started: make(chan struct{}), ended: make(chan struct{}), removed: make(chan struct{})}
	for _, s := range []*pipe{&p.stdin, &p.stdout, &p.stderr} {
		var err error
		if *s, err = newPipe(); err != nil {
			p.closePipes()
			return nil, fmt.Errorf("make the streams of the jail: %w", err)
		}
	}
	return p, nil
}

func (p *process) closePipes() {
	for _, s := range []pipe{p.stdin, p.stdout, p.stderr} {
		s.close()
	}
}

// running tells whether bubblewrap is there.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

var (
	errStarted  = errors.New("it was started already")
	errAttached = errors.New("its streams are attached already")
	errRemoved  = errors.New("it was removed")
)

// attach copies until both outputs have ended or one can't be passed on.
func (p *process) attach(ctx context.Context, tty bool, s backend.Streams, ready chan<- struct{}) error {
	first := false
	p.attachOnce.Do(func() { first = true })
	if !first {
		return fmt.Errorf("attach to the jail %s: %w", p.info.Name, errAttached)
	}
	close(ready)
	select {
	case <-p.started:
	case <-p.removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.startErr != nil {
		return nil // Start tells it
	}
	go func() {
		// Ends with the program if nothing ever comes from standard input.
		if s.Stdin != nil {
			_, _ = io.Copy(p.stdin.w, s.Stdin) // the jail may have ended
		}
		// The command sees the end of its input.
		p.stdin.w.Close()
	}()
	out, errs := s.Stdout, s.Stderr
	if tty || errs == nil {
		// Output is one stream.
		out = &serial{w: s.Stdout}
		errs = out
	}
	done := make(chan error, 2)
	copyOut := func(to io.Writer, from *os.File) {
		_, err := io.Copy(to, from)
		if errors.Is(err, os.ErrClosed) {
			err = nil // removed
		}
		done <- err
	}
	go copyOut(out, p.stdout.r)
	go copyOut(errs, p.stderr.r)
	for range 2 {
		if err := <-done; err != nil {
			return fmt.Errorf("read the command's output: %w", err)
		}
	}
	return nil
}

// A serial writer takes one write after the other.
type serial struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *serial) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// start runs bubblewrap and waits until it has done its work.
func (p *process) start(ctx context.Context) error {
	err := errStarted
	p.startOnce.Do(func() {
		err = p.startNow(ctx)
		p.startErr = err
		close(p.started)
	})
	if err != nil {
		return fmt.Errorf("start the jail %s: %w", p.info.Name, err)
	}
	return nil
}

func (p *process) startNow(ctx context.Context) error {
	if err := closeInherited(); err != nil {
		return err
	}
	info, err := newPipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer info.close()
	block, err := newBlock()
	if err != nil {
		return err
	}
	defer block.close()
	extra := []*os.File{info.w, block.theirs}
	defer func() {
		for _, f := range extra[2:] {
			f.Close()
		}
	}()
	for _, m := range p.command.files {
		f, err := memfile(filepath.Base(m.Target), m.Content)
		if err != nil {
			return err
		}
		extra = append(extra, f)
	}

	cmd := exec.Command(p.bwrap, p.command.argv()...)
	cmd.Dir = "/"
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin.r, p.stdout.w, p.stderr.w
	cmd.ExtraFiles = extra
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:    true, // a Ctrl-C at our terminal is for us to pass on
		Pdeathsig: syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		// What root's groups may do is nobody's business inside; a user has no
		// privilege to let go of them.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: uint32(os.Getegid()), NoSetGroups: backend.GroupsStay()}
	}
	var pids chan int
	if p.jail.limits.ByCgroup() {
		// Beside all that bubblewrap and the entrypoint do: Verify waits for it.
		pids, p.scoped = make(chan int, 1), make(chan error, 1)
		defer close(pids)
		go func() { p.scoped <- scope(context.WithoutCancel(ctx), p.manager, p.info.Name, pids, p.jail.limits) }()
	}
	if err := p.run(cmd); err != nil {
		return err
	}
	// The ends that are bubblewrap's now.
	for _, f := range []*os.File{p.stdin.r, p.stdout.w, p.stderr.w, info.w, block.theirs} {
		f.Close()
	}

	// Nothing below waits for longer than bubblewrap lives or ctx lasts.
	stop := context.AfterFunc(ctx, func() {
		_ = info.r.SetReadDeadline(time.Now())
		_ = block.ours.SetReadDeadline(time.Now())
	})
	defer stop()
	infoErr := p.readInfo(info.r)
	if infoErr == nil {
		infoErr = boundProcesses(p.child, p.jail.limits)
	}
	if infoErr == nil && pids != nil {
		pids <- p.child
	}
	ready := infoErr == nil && block.passed()
	if err := ctx.Err(); err != nil {
		return err
	}
	if ready && os.Geteuid() == 0 {
		return lockDevices(p.child, p.jail.mounts)
	}
	if ready {
		return nil
	}
	// It has ended or is about to: what it had to say is in the pipe.
	text := complaint(p.stderr.r)
	if err := p.kill(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if text == "" && infoErr != nil {
		text = infoErr.Error()
	}
	return failure(text)
}

// run starts cmd on a thread that lives as long as it does: the kernel ties the
// death signal to the thread, not to the program (PR_SET_PDEATHSIG(2const)).
func (p *process) run(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.removed:
		return errRemoved
	default:
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this function
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// Before it is waited for, so that nobody else can have its group's number.
		_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		p.endGroup(cmd.Process.Pid)
		_ = cmd.Wait() // how it ended is in its state
		p.code = exitCode(cmd.ProcessState)
		close(p.ended)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.endChild()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("run bubblewrap: %w", err)
	}
	p.cmd = cmd
	return nil
}

func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// readInfo learns which process the jail's PID 1 is.
func (p *process) readInfo(r io.Reader) error {
	var info struct {
		Child int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(r, 1<<12)).Decode(&info); err != nil {
		return fmt.Errorf("bubblewrap does not tell its child: %w", err)
	}
	if info.Child <= 1 {
		return fmt.Errorf("bubblewrap tells of a child %d", info.Child)
	}
	fd, err := unix.PidfdOpen(info.Child, 0)
	if err != nil {
		return fmt.Errorf("look at bubblewrap's child: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.childFD = info.Child, os.NewFile(uintptr(fd), "pidfd")
	select {
	case <-p.ended:
		p.endChild()
	default:
	}
	return nil
}

// boundProcesses sets the limit that a process hands down to all it starts. Only
// bubblewrap has run in it so far.
func boundProcesses(child int, l policy.Limits) error {
	n := l.Pids.Held(policy.ByRlimit)
	if n == 0 {
		return nil
	}
	if err := unix.Prlimit(child, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}, nil); err != nil {
		return fmt.Errorf("bound the jail's number of processes: %w", err)
	}
	return nil
}

// endGroup ends a child of bubblewrap's that we were not told of yet. It is in
// bubblewrap's process group, which is one of its own (Setsid), and would wait for
// bubblewrap for ever.
func (p *process) endGroup(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.childFD == nil {
		_ = unix.Kill(-pid, unix.SIGKILL) // nobody is there, as a rule
	}
}

// endChild is called when bubblewrap has ended: PID 1 dies with it, unless that
// was killed before PID 1 had asked for the signal.
func (p *process) endChild() {
	if p.childFD != nil {
		_ = signalFD(p.childFD) // it is gone, or being removed
	}
}

// A block is the descriptor at which bubblewrap stops before it runs the
// program, with everything else done. It is used to hear of that moment.
type block struct{ ours, theirs *os.File }

func newBlock() (*block, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	b := &block{os.NewFile(uintptr(fds[0]), "block"), os.NewFile(uintptr(fds[1]), "block")}
	// The byte that it waits for is there beforehand.
	if _, err := b.ours.Write([]byte{0}); err != nil {
		b.close()
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	return b, nil
}

// passed waits until nobody has the other end, and tells whether the byte was
// read: a socket that is closed with bytes unread resets its peer (unix(7)).
func (b *block) passed() bool {
	n, err := b.ours.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

func (b *block) close() {
	b.ours.Close()
	b.theirs.Close()
}

// maxComplaint bounds what is kept of bubblewrap's error.
const maxComplaint = 1 << 10

// complaint is what bubblewrap wrote before it ended.
func complaint(r *os.File) string {
	_ = r.SetReadDeadline(time.Now().Add(endTime))
	text, _ := io.ReadAll(io.LimitReader(r, maxComplaint)) // what there is
	return strings.TrimSpace(strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; "))
}

// namespaceTrouble is how bubblewrap 0.8 to 0.12 words that the machine does not
// let it make the namespaces, or do anything in them (AppArmor's way).
var namespaceTrouble = []string{"new namespace", "user ns", "uid map", "gid map", "max_user_namespaces", "RTM_NEW", "setgroups", "root slave", "slave: Permission denied"}

// pathTrouble is how it words that a path is gone which was there when the run
// was decided: a socket, say, that somebody's program took away.
var pathTrouble = []string{"Can't find source path", "Can't get type of source", "Can't mkdir parents for", "Can't create file at"}

// failure is the error of a bubblewrap that gave up.
func failure(text string) error {
	text = policy.Printable(strings.TrimPrefix(text, "bwrap: "))
	for _, t := range namespaceTrouble {
		if strings.Contains(text, t) {
			return fmt.Errorf("bubblewrap can't make a user namespace here (%s); ai-sandbox doctor --runtime local names what is in the way", text)
		}
	}
	if text == "" {
		return errors.New("bubblewrap ended without a word; was it killed?")
	}
	for _, t := range pathTrouble {
		if strings.HasPrefix(text, t) {
			return fmt.Errorf("bubblewrap could not make it: %s; if something was removed there during the start, start it again", text)
		}
	}
	return fmt.Errorf("bubblewrap could not make it: %s", text)
}

// kill ends everything inside, waits for it, and lets go of what is ours.
func (p *process) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	p.mu.Lock()
	cmd, child := p.cmd, p.childFD
	p.removeOnce.Do(func() { close(p.removed) })
	p.mu.Unlock()
	if cmd != nil {
		if err := p.end(ctx, cmd, child); err != nil {
			return err
		}
	}
	p.closePipes()
	if child != nil {
		child.Close()
	}
	return nil
}

// end kills PID 1 first: bubblewrap then reaps it and ends too, and no process of
// the machine has to do it in its place.
func (p *process) end(ctx context.Context, cmd *exec.Cmd, child *os.File) error {
	if child == nil {
		_ = cmd.Process.Kill() // it has ended, or is being killed
	} else if err := signalFD(child); err != nil {
		return err
	}
	gentle := time.NewTimer(time.Second)
	defer gentle.Stop()
	for gone := false; !gone; {
		select {
		case <-p.ended:
			gone = true
		case <-gentle.C:
			_ = cmd.Process.Kill() // stopped by somebody, say
		case <-ctx.Done():
			return fmt.Errorf("bubblewrap (process %d) does not end: %w", cmd.Process.Pid, ctx.Err())
		}
	}
	if child == nil {
		return nil
	}
	return awaitFD(ctx, child)
}

// signalFD kills the process of a pidfd; one that is gone is no error.
func signalFD(f *os.File) error {
	return control(f, func(fd int) error {
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill the jail's first process: %w", err)
		}
		return nil
	})
}

// awaitFD waits for the end of a pidfd's process, which for PID 1 of a namespace
// is the end of all in it (pid_namespaces(7)).
func awaitFD(ctx context.Context, f *os.File) error {
	return control(f, func(fd int) error {
		deadline, _ := ctx.Deadline()
		for {
			wait := time.Until(deadline)
			if wait <= 0 || ctx.Err() != nil {
				return errors.New("the jail's first process does not end")
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds())+1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("wait for the jail's first process: %w", err)
			}
			if n > 0 {
				return nil
			}
		}
	})
}

// control calls do with the descriptor of f, unless f was closed by another
// removal of the same jail.
func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return nil
	}
	return result
}
