// The command, as our child, and what PID 1 owes to it: a terminal of its own,
// its signals, and an end to every orphan.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// A child is a process that we started: the session's command, whose id is 0, or
// an exec's.
type child struct {
	id int
	// pid is 0 when it has ended, or when there is none.
	pid int
	end spec.Exited
	// term is the terminal that we made for it, or nil.
	term *pty
}

// run starts the command, serves it until it ends, and returns our exit code.
func (s *session) run(sp *spec.Spec) int {
	s.children, s.running = map[int]*child{}, map[int]*child{}
	s.drained = make(chan *child)
	reaped := make(chan death)
	go reap(reaped)
	command, code, err := s.start(sp)
	if err != nil {
		// The host says it better than a line on standard error would.
		if s.send(spec.ToHost{Exited: &spec.Exited{Code: code, Error: err.Error()}}) != nil {
			return exitOrphan
		}
		return code
	}
	if s.send(spec.ToHost{Started: true}) != nil {
		return s.orphan()
	}
	if ports := sp.Firewall.Published; len(ports) > 0 {
		go s.watchListeners(ports)
	}
	for {
		var over *child
		select {
		case d := <-reaped:
			over = s.died(d)
		case over = <-s.drained:
		case sig := <-s.signals:
			if n := sig.(syscall.Signal); sp.Hold && ends(n) {
				over = command
			} else {
				command.deliver(n)
			}
		case f, ok := <-s.frames:
			switch {
			case !ok || f.err != nil:
				return s.orphan()
			case f.Signal != 0 && sp.Hold && ends(syscall.Signal(f.Signal)):
				over = command
			case f.Signal != 0:
				command.deliver(syscall.Signal(f.Signal))
			case f.SignalExec != nil:
				if c := s.running[f.SignalExec.Exec]; c != nil && c.id != 0 {
					c.deliver(syscall.Signal(f.SignalExec.Signal))
				}
			case f.Resize != nil:
				if c := s.running[f.Resize.Exec]; c != nil && c.term != nil {
					c.term.resize(f.Resize.Cols, f.Resize.Rows)
				}
			case f.Exec != nil:
				if s.exec(f.Exec) != nil {
					return s.orphan()
				}
			}
		}
		switch {
		case over == nil:
		case over.id == 0:
			s.blocked.last()
			_ = s.send(spec.ToHost{Exited: &over.end}) // the exit code tells the same
			return over.end.Code
		default:
			delete(s.running, over.id)
			if s.send(spec.ToHost{ExecState: &spec.ExecState{ID: over.id, Exited: &over.end}}) != nil {
				return s.orphan()
			}
		}
	}
}

// orphan ends everything: the host is gone, and with it the lifeline. What the
// call does not reach, the end of the namespace does when we exit.
func (s *session) orphan() int {
	_ = unix.Kill(-1, unix.SIGKILL)
	return exitOrphan
}

// died returns the child whose end is to be told now: not before its terminal's
// last output is through.
func (s *session) died(d death) *child {
	c := s.children[d.pid]
	if c == nil {
		return nil // an orphan
	}
	delete(s.children, d.pid)
	c.pid, c.end = 0, exited(d.status)
	if c.term == nil {
		return c
	}
	go func() {
		c.term.finish()
		s.drained <- c
	}()
	return nil
}

// start returns the session's command, or the exit code that tells why there is
// none. Where the session holds, it is a child without a process.
func (s *session) start(sp *spec.Spec) (c *child, code int, err error) {
	c = &child{}
	if sp.Hold {
		// Who waits for the session to be ready waits for its directory.
		return c, 126, checkWorkdir(sp.Workdir)
	}
	files := [3]int{0, 1, 2}
	switch {
	case sp.PTY:
		cols, rows := sp.Cols, sp.Rows
		if s.size != nil {
			cols, rows = s.size.Cols, s.size.Rows
		}
		if c.term, err = newPTY(cols, rows); err != nil {
			return nil, 126, err
		}
		files = c.term.files()
	case sp.TTY:
		if err := s.giveUpTerminal(); err != nil {
			return nil, 126, err
		}
	}
	if code, err = s.launch(c, sp.Command, sp.Env, sp.Workdir, files, sp.TTY); err != nil {
		return nil, code, err
	}
	if sp.PTY {
		c.term.attach(os.Stdin, os.Stdout)
		return c, 0, nil
	}
	// The command alone has its input and output: who reads or writes the other
	// end of them learns when it lets go.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for _, fd := range []int{0, 1} {
			_ = unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	return c, 0, nil
}

// launch makes c a process, in a session of its own; with tty its standard input
// is its controlling terminal. The code is 127 when the command is not found, 126
// when it cannot be run.
func (s *session) launch(c *child, command, env []string, workdir string, files [3]int, tty bool) (code int, err error) {
	if err := checkWorkdir(workdir); err != nil {
		return 126, err
	}
	path, code, err := look(command[0], env, workdir)
	if err != nil {
		return code, err
	}
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{
		Dir:   workdir,
		Env:   env,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: tty, Ctty: 0},
	})
	if err != nil {
		code = 126
		if errors.Is(err, unix.ENOENT) {
			code = 127 // a script's interpreter, say
		}
		return code, fmt.Errorf("run %s: %w", path, err)
	}
	c.pid = pid
	s.children[pid], s.running[c.id] = c, c
	return 0, nil
}

func checkWorkdir(dir string) error {
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s: %w", dir, unix.ENOTDIR)
	}
	if err == nil {
		err = os.NewSyscallError("search "+dir, unix.Access(dir, unix.X_OK))
	}
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// giveUpTerminal makes the terminal free for the command's session: ours is the
// one that the runtime gave it to.
func (s *session) giveUpTerminal() error {
	// The kernel hangs the old session up, which is us.
	signal.Ignore(unix.SIGHUP, unix.SIGCONT)
	defer signal.Notify(s.signals, unix.SIGHUP, unix.SIGCONT)
	err := unix.IoctlSetInt(0, unix.TIOCNOTTY, 0)
	if err != nil && !errors.Is(err, unix.ENOTTY) { // it was not ours
		return fmt.Errorf("give up the terminal: %w", err)
	}
	return nil
}

// look finds the command in the PATH of env, as execvp(3) does. Elements that
// are not absolute are left out: what they mean is the project's choice.
func look(name string, env []string, workdir string) (path string, code int, err error) {
	if strings.Contains(name, "/") {
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(workdir, at)
		}
		code, err := executable(at)
		return name, code, err
	}
	code, err = 127, fmt.Errorf("%s: not found in PATH", name)
	for _, dir := range filepath.SplitList(pathOf(env)) {
		if !filepath.IsAbs(dir) {
			continue
		}
		p := filepath.Join(dir, name)
		c, e := executable(p)
		if e == nil {
			return p, 0, nil
		}
		if c == 126 && code != 126 {
			code, err = c, e
		}
	}
	return "", code, err
}

// pathOf is what the program itself would see: the last one counts for no libc.
func pathOf(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return ""
}

func executable(path string) (code int, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return 127, err
		}
		return 126, err
	}
	if fi.IsDir() {
		return 126, fmt.Errorf("%s: is a directory", path)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return 126, fmt.Errorf("%s: %w", path, err)
	}
	return 0, nil
}

// A death is a child of ours that has ended.
type death struct {
	pid    int
	status syscall.WaitStatus
}

// reap waits for every child, ours and the orphans that became ours, for good.
func reap(out chan<- death) {
	// Not by a wait that blocks: at times there is no child.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		for {
			var d death
			var err error
			d.pid, err = syscall.Wait4(-1, &d.status, syscall.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || d.pid == 0 {
				break
			}
			out <- d
		}
		<-ended
	}
}

func exited(st syscall.WaitStatus) spec.Exited {
	if st.Signaled() {
		return spec.Exited{Code: 128 + int(st.Signal()), Signal: int(st.Signal())}
	}
	return spec.Exited{Code: st.ExitStatus()}
}

// deliver sends what a terminal would send to the child's process group, and
// anything else to the child.
func (c *child) deliver(sig syscall.Signal) {
	pid := c.pid
	if pid == 0 {
		return
	}
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH:
		pid = -pid
	case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU:
		return // about ourselves: children, Go's scheduler, our own descriptors
	}
	_ = unix.Kill(pid, sig) // it may just have ended
}

// unignore gives signal 32 its usual effect, which whoever started us may have
// taken: all others have it by being taken here, or by Go (33), and the command
// inherits what is ignored (signal(7), "Signal dispositions").
func unignore() error {
	const reserved, maskSize = 32, 8
	var usual [4]uint64 // struct sigaction of the kernel, with SIG_DFL
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, reserved, uintptr(unsafe.Pointer(&usual)), 0, maskSize, 0, 0); errno != 0 {
		return fmt.Errorf("reset signal %d: %w", reserved, errno)
	}
	return nil
}

// forwarded are the signals that we take, which is all that can be taken: what
// is not taken would end PID 1, or be lost. Go's own preemption uses SIGURG.
func forwarded() []os.Signal {
	var out []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, 32, 33:
			continue // 32 and 33 belong to the C library
		}
		out = append(out, n)
	}
	return out
}
