// The command, as our child, and what PID 1 owes to it: a terminal of its own,
// its signals, and an end to every orphan.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// run starts the command, serves it until it ends, and returns our exit code.
func (s *session) run(sp *spec.Spec) int {
	pid, code, err := s.start(sp)
	if err != nil {
		// The host says it better than a line on standard error would.
		if s.send(spec.ToHost{Exited: &spec.Exited{Code: code, Error: err.Error()}}) != nil {
			return exitOrphan
		}
		return code
	}
	done := make(chan syscall.WaitStatus, 1)
	go reap([]int{pid}, done)
	if s.send(spec.ToHost{Started: true}) != nil {
		return s.orphan()
	}
	for {
		select {
		case st := <-done:
			e := exited(st)
			_ = s.send(spec.ToHost{Exited: &e}) // the exit code tells the same
			return e.Code
		case sig := <-s.signals:
			deliver(pid, sig.(syscall.Signal))
		case f, ok := <-s.frames:
			if !ok || f.err != nil {
				return s.orphan()
			}
			if f.Signal != 0 {
				deliver(pid, syscall.Signal(f.Signal))
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

// start returns the child, or the exit code that tells why there is none: 127
// when the command is not found, 126 when it cannot be run.
func (s *session) start(sp *spec.Spec) (pid, code int, err error) {
	if err := os.Chdir(sp.Workdir); err != nil {
		return 0, 126, fmt.Errorf("working directory: %w", err)
	}
	path, code, err := look(sp.Command[0], sp.Env)
	if err != nil {
		return 0, code, err
	}
	if sp.TTY {
		if err := s.giveUpTerminal(); err != nil {
			return 0, 126, err
		}
	}
	pid, err = syscall.ForkExec(path, sp.Command, &syscall.ProcAttr{
		Env:   sp.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: sp.TTY, Ctty: 0},
	})
	if err != nil {
		code = 126
		if errors.Is(err, unix.ENOENT) {
			code = 127 // a script's interpreter, say
		}
		return 0, code, fmt.Errorf("run %s: %w", path, err)
	}
	// The command alone has its input and output: who reads or writes the other
	// end of them learns when it lets go.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for _, fd := range []int{0, 1} {
			_ = unix.Dup3(null, fd, 0)
		}
		unix.Close(null)
	}
	return pid, 0, nil
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
func look(name string, env []string) (path string, code int, err error) {
	if strings.Contains(name, "/") {
		code, err := executable(name)
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

// reap waits for every child, ours and the orphans that became ours, until the
// first of pids has ended.
func reap(pids []int, done chan<- syscall.WaitStatus) {
	for {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, 0, nil)
		if err == nil && slices.Contains(pids, pid) {
			done <- st
			return
		}
	}
}

func exited(st syscall.WaitStatus) spec.Exited {
	if st.Signaled() {
		return spec.Exited{Code: 128 + int(st.Signal()), Signal: int(st.Signal())}
	}
	return spec.Exited{Code: st.ExitStatus()}
}

// deliver sends what a terminal would send to the command's process group, and
// anything else to the command.
func deliver(pid int, sig syscall.Signal) {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH:
		pid = -pid
	case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU:
		return // about ourselves: children, Go's scheduler, our own descriptors
	}
	_ = unix.Kill(pid, sig) // it may just have ended
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
