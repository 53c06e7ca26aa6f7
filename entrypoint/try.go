// The role of the doctor's command: what only a sandbox's inside can tell. It has no
// privilege, and needs no other program.

package entrypoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runTry says what holds, a line each, and what does not on standard error. answer is
// what the gate says to a plain request for host.
func runTry(host, answer string) int {
	code := 0
	for _, t := range []struct {
		name string
		try  func() error
	}{
		{"owner", tryOwner},
		{"gate", func() error { return tryGate(os.Getenv("http_proxy"), host, answer) }},
	} {
		if err := t.try(); err != nil {
			say("%s: %v", t.name, err)
			code = 1
			continue
		}
		fmt.Fprintln(os.Stdout, t.name, "ok")
	}
	return code
}

// tryOwner copies the file outside, which has to be ours, to the file inside, which is
// looked at from the host.
func tryOwner() error {
	f, err := os.OpenFile("outside", os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() { //nolint:forcetypeassert // on Linux
		return fmt.Errorf("a file of yours belongs to uid %d inside, where the command is uid %d", st.Uid, os.Getuid())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAnswer))
	if err != nil {
		return err
	}
	return os.WriteFile("inside", text, 0o600)
}

// tryGate asks the gate at the address that every program inside is told of it.
func tryGate(proxy, host, answer string) error {
	to, err := netip.ParseAddrPort(strings.Trim(strings.TrimPrefix(proxy, "http://"), "/"))
	if err != nil {
		return fmt.Errorf("http_proxy %q is no address: %w", proxy, err)
	}
	got, err := askGate(to, host)
	if !bytes.Contains(got, []byte(answer)) {
		return errors.Join(fmt.Errorf("it says %.80q", got), err)
	}
	return nil
}
