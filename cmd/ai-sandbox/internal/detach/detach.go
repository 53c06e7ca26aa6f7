// Package detach starts this program again as a process of its own, which goes on
// when its parent and the terminal are gone, and carries one word from it back.
package detach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Marker is the first argument of the program that was started again.
const Marker = "__supervise__"

// reportFD is where it finds the socket for its word.
const reportFD = 3

// maxReport bounds the word, in bytes.
const maxReport = 1 << 20

// heardTime is how long whoever gets the word may take to pass it on.
const heardTime = time.Minute

// Start runs this program again with Marker and args, in a session of its own,
// with the environment and the working directory of the caller. Until it has
// given its word (see Report) it writes errors where the caller does, and gets
// the signals that the caller gets. It goes on when deliver has taken the word,
// and ends when that fails or the caller dies before. Without a word it has ended:
// code is its exit code, or 128 and a signal's number, and unless there is an
// error it has said why.
func Start(ctx context.Context, args []string, signals <-chan os.Signal, deliver func(word []byte) error) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	// Whatever this process was started with stays with it: a pipe that somebody
	// reads to its end would never end.
	if err := unix.CloseRange(reportFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, fmt.Errorf("keep inherited descriptors back: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "report"), os.NewFile(uintptr(pair[1]), "report")
	defer ours.Close()
	cmd := exec.Command(self, append([]string{Marker}, args...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start the supervisor: %w", err)
	}
	said := make(chan []byte, 1)
	go func() {
		word, err := bufio.NewReader(io.LimitReader(ours, maxReport)).ReadBytes('\n')
		if err != nil {
			word = nil // it died, perhaps over its word
		}
		said <- word
	}()
	for {
		select {
		case word := <-said:
			if word == nil {
				return ended(cmd)
			}
			if err := deliver(word); err != nil {
				ours.Close()
				_ = cmd.Wait() // that is what it ends for
				return 0, err
			}
			if _, err := ours.Write(heard); err != nil {
				return ended(cmd)
			}
			return 0, cmd.Process.Release()
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may just have ended
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return 0, errors.Join(context.Cause(ctx), cmd.Wait())
		}
	}
}

// heard answers the word.
var heard = []byte("+")

// ended waits for the end of a process that gave no word.
func ended(cmd *exec.Cmd) (code int, err error) {
	_ = cmd.Wait() // the state says more
	st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && st.Exited() && st.ExitStatus() != 0:
		return st.ExitStatus(), nil
	case ok && st.Signaled():
		code = 128 + int(st.Signal())
	}
	return code, fmt.Errorf("the supervisor ended without a word (%s)", cmd.ProcessState)
}

// Keep keeps the socket for the word from every process that is started from now
// on. It is called first of all, by the program that was started again.
func Keep() error {
	var st unix.Stat_t
	if err := unix.Fstat(reportFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%s is for ai-sandbox itself: start it without", Marker)
	}
	unix.CloseOnExec(reportFD)
	return nil
}

// Report gives the word, one line, and returns when it was delivered. Before that,
// standard error becomes log: when the parent has ended, nothing holds what it
// wrote to.
func Report(word []byte, log *os.File) error {
	if err := unix.SetNonblock(reportFD, true); err != nil { // for the deadline
		return fmt.Errorf("tell whoever waits: %w", err)
	}
	f := os.NewFile(reportFD, "report")
	defer f.Close()
	if err := unix.Dup3(int(log.Fd()), 2, 0); err != nil {
		return fmt.Errorf("let go of standard error: %w", err)
	}
	if err := f.SetDeadline(time.Now().Add(heardTime)); err != nil {
		return fmt.Errorf("tell whoever waits: %w", err)
	}
	if _, err := f.Write(append(word, '\n')); err != nil {
		return fmt.Errorf("nobody waits for it any more: %w", err)
	}
	if _, err := io.ReadFull(f, make([]byte, len(heard))); err != nil {
		return fmt.Errorf("nobody waits for it any more: %w", err)
	}
	return nil
}
