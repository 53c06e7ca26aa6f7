// Our end of the control channel: two FIFOs that belong to the sandbox's user.

package entrypoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// A channel is the open pair.
type channel struct {
	out *os.File
	// frames carries what the host sends; it is closed at the end of the
	// stream, when the host is gone, and after an error.
	frames <-chan received
}

// received is a frame, or why none could be read.
type received struct {
	spec.ToGuest
	err error
}

// openChannel opens the FIFOs in dir as uid: they are 0600 in a directory of
// 0700, and the container's root has no privilege over files.
func openChannel(dir string, uid int) (*channel, error) {
	var in, out *os.File
	err := asUser(uid, func() (err error) {
		// Without O_NONBLOCK a dead host would be waited for; with it the first
		// read of `in` is an end, and opening `out` an error.
		if in, err = openFIFO(filepath.Join(dir, spec.InName), unix.O_RDONLY); err != nil {
			return err
		}
		out, err = openFIFO(filepath.Join(dir, spec.OutName), unix.O_WRONLY)
		return err
	})
	if err != nil {
		return nil, err
	}
	frames := make(chan received)
	go read(in, frames)
	return &channel{out: out, frames: frames}, nil
}

func read(in io.Reader, frames chan<- received) {
	defer close(frames)
	for {
		var f received
		f.err = spec.ReadFrame(in, &f.ToGuest)
		switch {
		case f.err == nil:
			f.err = f.Check()
		case errors.Is(f.err, io.EOF), errors.Is(f.err, io.ErrUnexpectedEOF):
			return // a host that died in the middle of a frame is as gone
		}
		frames <- f
		if f.err != nil {
			return
		}
	}
}

func openFIFO(path string, flags int) (*os.File, error) {
	fd, err := openFIFOFd(path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openFIFOFd waits for nobody at the other end, neither now nor later.
func openFIFOFd(path string, flags int) (int, error) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return -1, fmt.Errorf("open %s: not a fifo", path)
	}
	return fd, nil
}

// namesGone reports whether the host has unlinked the FIFOs: what the command
// could open, it could write to.
func namesGone(dir string) error {
	for _, name := range []string{spec.InName, spec.OutName, spec.PublishName} {
		_, err := os.Lstat(filepath.Join(dir, name))
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s has still a name", filepath.Join(dir, name))
		}
	}
	return nil
}

// asUser runs f with the file system's idea of the user set to uid, on a thread
// of its own.
func asUser(uid int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := setfsuid(uid)
	if err != nil {
		return err
	}
	defer func() {
		if _, err := setfsuid(old); err != nil {
			panic(err) // the thread would go on as someone else
		}
	}()
	return f()
}

func setfsuid(uid int) (old int, err error) {
	if old, err = unix.SetfsuidRetUid(uid); err != nil {
		return 0, fmt.Errorf("setfsuid: %w", err)
	}
	// The call tells no failure but by what it is afterwards.
	if now, _ := unix.SetfsuidRetUid(-1); now != uid {
		return 0, fmt.Errorf("setfsuid %d: still %d", uid, now)
	}
	return old, nil
}
