// The role in the sandbox, container or jail: controls first, then the command.

package entrypoint

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/netfilter"
	"ai-sandbox/entrypoint/seccomp"
	"ai-sandbox/entrypoint/spec"
)

// sandboxUID is the user's, unless root is kept.
const sandboxUID = 1000

// exitOrphan is our exit code when the host is gone: nobody reads it.
const exitOrphan = 128 + int(unix.SIGKILL)

// errGone: the host is gone.
var errGone = errors.New("the host is gone")

// stopped: a signal ended us before there was a command.
type stopped struct{ sig syscall.Signal }

func (s stopped) Error() string { return "stopped by " + s.sig.String() }

// A session is one run of the role.
type session struct {
	*channel
	signals chan os.Signal
	// size is the terminal's when the host told it before there was one.
	size *spec.Resize
	// children are the processes that we started and not those that became
	// ours, by pid; running are all whose end is not told yet, by ID.
	children map[int]*child
	running  map[int]*child
	// drained are those whose terminal's last output is through.
	drained chan *child
	// log tells of refused packets, and blocked counts them; nil where there is no
	// network that one could be sent to.
	log     *netfilter.Log
	blocked *blocked
	// tested is how long the self-test has taken.
	tested time.Duration
}

// runSession is the role. uid owns the FIFOs, before there is a Spec that says so.
func runSession(began time.Time, uid int) int {
	s := &session{signals: make(chan os.Signal, 64)}
	signal.Notify(s.signals, forwarded()...)
	err := errors.Join(closeInherited(), unignore())
	if err != nil {
		say("%v", err)
		return spec.ExitUnenforced
	}
	if s.channel, err = openChannel(spec.Dir, uid); err != nil {
		say("control channel: %v", err)
		return spec.ExitUnenforced
	}
	sp, err := s.enforce(began, uid)
	if err == nil {
		err = s.waitGo(sp)
	}
	var no *refusal
	var stop stopped
	switch {
	case err == nil:
		return s.run(sp)
	case errors.As(err, &no):
		// The host may be gone; the sentence and the code are there anyway.
		_ = spec.WriteFrame(s.out, spec.ToHost{Refused: &no.Refused})
		say("%v", err)
		return no.Code
	case errors.As(err, &stop):
		return 128 + int(stop.sig)
	}
	say("%v", err)
	return exitOrphan
}

// next waits for a frame.
func (s *session) next() (spec.ToGuest, error) {
	for {
		select {
		case f, ok := <-s.frames:
			switch {
			case !ok:
				return spec.ToGuest{}, errGone
			case f.err != nil:
				return spec.ToGuest{}, badSpec(f.err)
			case f.Signal != 0 && ends(syscall.Signal(f.Signal)):
				return spec.ToGuest{}, stopped{syscall.Signal(f.Signal)}
			case f.Signal != 0:
				continue
			case f.Resize != nil:
				s.size = f.Resize
				continue
			}
			return f.ToGuest, nil
		case sig := <-s.signals:
			if n := sig.(syscall.Signal); ends(n) {
				return spec.ToGuest{}, stopped{n}
			}
		}
	}
}

// ends tells which signals end us while there is no command yet.
func ends(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL:
		return true
	}
	return false
}

func badSpec(err error) error {
	return &refusal{spec.Refused{Code: spec.ExitBadSpec, Control: "spec", Reason: err.Error()}}
}

// enforce reads the Spec, installs every control, reads each back, and says so.
func (s *session) enforce(began time.Time, uid int) (*spec.Spec, error) {
	asked := time.Now()
	f, err := s.next()
	if err != nil {
		return nil, err
	}
	waited := time.Since(asked)
	if f.Spec == nil {
		return nil, badSpec(errors.New("the first frame is not a spec"))
	}
	sp := f.Spec
	if err := spec.Validate(*sp); err != nil {
		return nil, badSpec(err)
	}
	if sp.UID != uid {
		return nil, badSpec(fmt.Errorf("uid %d is not %d, as the arguments say", sp.UID, uid))
	}

	control := s.enforceContainer
	if sp.Isolation == spec.IsolationProcess {
		control = s.proveJail
	}
	if err := control(sp); err != nil {
		return nil, err
	}
	if err := seal(sp); err != nil {
		return nil, err
	}
	notes := seedHome(homeDir, sp)
	if s.log != nil {
		s.blocked = &blocked{log: s.log, send: s.send}
		go s.blocked.watch()
	}
	// Whatever is listened to, it is by someone who has nothing to lose.
	if sp.Relay != nil {
		r, err := newRelay(*sp.Relay)
		if err != nil {
			return nil, refuse("network", err)
		}
		go r.serve()
	}
	if sp.Publish != nil {
		d, err := newDoor(*sp.Publish)
		if err != nil {
			return nil, refuse("network", err)
		}
		go d.serve()
	}

	took := time.Since(began) - waited
	return sp, s.send(spec.ToHost{Enforced: &spec.Enforced{Micros: took.Microseconds(), Home: notes}})
}

// enforceContainer installs the ruleset, reads it back, and drops.
func (s *session) enforceContainer(sp *spec.Spec) error {
	rules, err := firewall.Build(sp.Firewall)
	if err != nil {
		return badSpec(err)
	}
	if sp.Firewall.Mode == spec.ModeGated {
		if s.log, err = netfilter.OpenLog(); err != nil {
			return refuse("ruleset", err)
		}
	}
	if err := s.test(func() error { return canarySings(sp) }); err != nil {
		return refuse("network", err)
	}
	if err := netfilter.Apply(rules); err != nil {
		return refuse("ruleset", err)
	}
	if err := tamper(rules); err != nil {
		return refuse("ruleset", err)
	}
	if err := netfilter.Verify(rules); err != nil {
		return refuse("ruleset", err)
	}
	if err := tamperLate(rules); err != nil {
		return refuse("ruleset", err)
	}
	if err := checkDevices(sp.Firewall.Mode); err != nil {
		return refuse("network", err)
	}
	if err := checkMounts(sp); err != nil {
		return refuse("mounts", err)
	}

	if err := drop(sp.UID, sp.GID); err != nil {
		return refuse("capabilities", err)
	}
	// What the privileges are gone for has to fail now. This comes before the
	// filter, which would answer in the kernel's place.
	if err := netfilter.CheckShut(rules.Table); err != nil {
		return refuse("capabilities", err)
	}
	if err := s.test(func() error { return canaryIsSilent(sp, s.log) }); err != nil {
		return refuse("network", err)
	}
	return refuse("ruleset", probe(sp.Firewall, s.log))
}

// seal installs the filter, and reads from every thread what the whole came to.
func seal(sp *spec.Spec) error {
	filters, err := filterCount()
	if err != nil {
		return refuse("seccomp", err)
	}
	if err := seccomp.Install(); err != nil {
		return refuse("seccomp", err)
	}
	all, err := threads()
	if err != nil {
		return refuse("capabilities", err)
	}
	want := dropped(sp.UID, sp.GID)
	if sp.Groups {
		delete(want, "Groups")
	}
	if err := checkThreads(all, want); err != nil {
		return refuse("capabilities", err)
	}
	return refuse("seccomp", checkThreads(all, filtered(filters+1)))
}

// waitGo waits until the host says that the gate is up and the FIFOs' names are
// gone, and checks both.
func (s *session) waitGo(sp *spec.Spec) error {
	f, err := s.next()
	if err == nil && f.Gate != nil {
		if err := s.test(func() error { return testGate(sp, *f.Gate) }); err != nil {
			return refuse("gate", err)
		}
		f, err = s.next()
	}
	if err != nil {
		return err
	}
	if !f.Go {
		return badSpec(errors.New("the second frame is not go"))
	}
	if err := namesGone(spec.Dir); err != nil || s.tested == 0 {
		return refuse("channel", err)
	}
	return s.send(spec.ToHost{Tested: max(s.tested.Microseconds(), 1)})
}

// test makes a try of the self-test, and counts its time.
func (s *session) test(try func() error) error {
	began := time.Now()
	err := try()
	s.tested += time.Since(began)
	return err
}

// send fails only when the host is gone.
func (s *session) send(f spec.ToHost) error {
	if err := spec.WriteFrame(s.out, f); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
