package engine

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What is written to a terminal that has gone away is dropped, with no error, which would
// be the end of the run; a file's error stays one.
func TestTerminalGone(t *testing.T) {
	t.Parallel()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	w := lasting(slave)
	if _, err := w.Write([]byte("here")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if n, err := master.Read(got); err != nil || string(got[:n]) != "here" {
		t.Fatalf("the terminal shows %q, %v", got[:n], err)
	}
	master.Close()
	if _, err := slave.WriteString("gone"); !errors.Is(err, unix.EIO) {
		t.Errorf("a terminal that has gone away says %v, not EIO", err)
	}
	if n, err := w.Write([]byte("gone")); n != 4 || err != nil {
		t.Errorf("%d bytes were dropped: %v", n, err)
	}

	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := lasting(file).Write([]byte("x")); err == nil {
		t.Error("a file's error is lost")
	}
}
