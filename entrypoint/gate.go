// The role in the gate's container: two squids, together or not at all.

package entrypoint

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/seccomp"
	"ai-sandbox/entrypoint/spec"
)

// squid is where Debian's package has it.
const squid = "/usr/sbin/squid"

// runGate runs one squid for each configuration file. They live as long as the
// lifeline; with --detached there is none, and they live until we are told.
func runGate(args []string) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	detached := args[0] == "--detached"
	if detached {
		args = args[1:]
	}
	if len(args) == 0 {
		say("no configuration file")
		return spec.ExitBadSpec
	}
	if err := lockGate(); err != nil {
		say("%v", err)
		return spec.ExitUnenforced
	}
	var line channel // with no frames, ever
	if !detached {
		ch, err := openChannel(spec.Dir, os.Getuid())
		if err != nil {
			say("control channel: %v", err)
			return spec.ExitUnenforced
		}
		line = *ch
	}

	var pids []int
	for _, conf := range args {
		pid, err := startSquid(conf)
		if err != nil {
			say("%v", err)
			return 1 // the end of the namespace ends the others
		}
		pids = append(pids, pid)
	}
	if !detached {
		if err := spec.WriteFrame(line.out, spec.ToHost{Started: true}); err != nil {
			return 0
		}
	}
	died := make(chan syscall.WaitStatus, 1)
	go reap(pids, died)
	for {
		select {
		case status := <-died:
			_ = unix.Kill(-1, unix.SIGKILL)
			e := exited(status)
			say("squid ended (exit code %d)", e.Code)
			return 1
		case <-signals:
			// No shutdown of squid's own: it waits for its clients.
			_ = unix.Kill(-1, unix.SIGKILL)
			return 0
		case _, ok := <-line.frames:
			if !ok {
				_ = unix.Kill(-1, unix.SIGKILL)
				return 0
			}
		}
	}
}

// lockGate closes to squid what it never needs. It is the unprivileged user
// from the start.
func lockGate() error {
	if err := closeInherited(); err != nil {
		return err
	}
	if err := lock(); err != nil {
		return err
	}
	if err := checkThreads(map[string]string{"CapPrm": noCaps, "CapEff": noCaps, "CapAmb": noCaps, "NoNewPrivs": "1"}); err != nil {
		return err
	}
	return seccomp.Install()
}

func startSquid(conf string) (int, error) {
	pid, err := syscall.ForkExec(squid, []string{"squid", "-N", "-f", conf}, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("run %s -f %s: %w", squid, conf, err)
	}
	return pid, nil
}
