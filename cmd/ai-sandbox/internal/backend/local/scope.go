// A control group for a jail: a transient scope that systemd makes around its
// first process (org.freedesktop.systemd1(5), StartTransientUnit; systemd.resource-
// control(5) for the properties). It ends with the last process in it.

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"ai-sandbox/policy"
)

// scopeTime bounds what takes systemd some milliseconds.
const scopeTime = 20 * time.Second

// scope puts the process whose number comes over pids into a group of that name
// with the limits, and returns when it is in it. It speaks to the manager's own
// socket, where no bus has to be asked.
func scope(ctx context.Context, manager, name string, pids <-chan int, l policy.Limits) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bound the jail by a control group: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, scopeTime)
	defer cancel()
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(manager), dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	var pid int
	select {
	case p, ok := <-pids:
		if !ok {
			return errors.New("the jail did not start")
		}
		pid = p
	case <-ctx.Done():
		return ctx.Err()
	}
	object := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	var job dbus.ObjectPath
	unit := name + ".scope"
	if err := object.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StartTransientUnit", 0,
		unit, "fail", properties(pid, l), []struct {
			Name       string
			Properties []property
		}{}).Store(&job); err != nil {
		return err
	}
	for {
		select {
		case s, ok := <-signals:
			if !ok {
				return errors.New("systemd closed the connection")
			}
			if s.Name != "org.freedesktop.systemd1.Manager.JobRemoved" || len(s.Body) != 4 || s.Body[1] != job {
				continue
			}
			if result, _ := s.Body[3].(string); result != "done" {
				return fmt.Errorf("systemd could not make %s: %s", unit, policy.Quote(result))
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A property is systemd's.
type property struct {
	Name  string
	Value dbus.Variant
}

func properties(pid int, l policy.Limits) []property {
	out := []property{
		{"Description", dbus.MakeVariant("ai-sandbox's jail")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})}, //nolint:gosec // of a process
		// It stays with systemd after a process in it was killed for its memory,
		// unless it is told to go.
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		// Or one process out of memory would end all the others (OOMPolicy=).
		{"Delegate", dbus.MakeVariant(true)},
	}
	if n := l.MemoryBytes.Held(policy.ByCgroup); n != 0 {
		out = append(out, property{"MemoryMax", dbus.MakeVariant(uint64(n))}, property{"MemorySwapMax", dbus.MakeVariant(uint64(0))})
	}
	if n := l.Pids.Held(policy.ByCgroup); n != 0 {
		out = append(out, property{"TasksMax", dbus.MakeVariant(uint64(n))})
	}
	if n := l.CPUsMilli.Held(policy.ByCgroup); n != 0 {
		out = append(out, property{"CPUQuotaPerSecUSec", dbus.MakeVariant(uint64(n) * 1000)})
	}
	return out
}

// limitsText says what limits the jail's first process, as systemd-run(1)
// and prlimit(1) have it.
func limitsText(name string, l policy.Limits) string {
	var b strings.Builder
	if n := l.Pids.Held(policy.ByRlimit); n != 0 {
		fmt.Fprintf(&b, "prlimit --nproc=%d\n", n)
	}
	if !l.ByCgroup() {
		return b.String()
	}
	fmt.Fprintf(&b, "systemd scope %s.scope", name)
	for _, p := range properties(0, l) {
		if p.Name != "PIDs" && p.Name != "Description" {
			fmt.Fprintf(&b, " %s=%v", p.Name, p.Value.Value())
		}
	}
	b.WriteString("\n")
	return b.String()
}
