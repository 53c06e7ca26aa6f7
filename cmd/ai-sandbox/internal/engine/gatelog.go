// What a gate has decided: while a session runs, and at its end.

package engine

import (
	"context"
	"fmt"
	"net"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

func gateLog(ctx context.Context, mc cli.Machine, id string, follow bool, f func(gate.Event) error) error {
	m, err := manager(mc)
	if err != nil {
		return err
	}
	if id == "" {
		if id, err = m.LastLogged(); err != nil {
			return err
		}
	}
	bad := 0
	err = interruptible(ctx, func(ctx context.Context) error {
		bad, err = m.GateLog(ctx, id, follow, f)
		if ctx.Err() != nil && err == nil {
			err = context.Cause(ctx)
		}
		return err
	})
	if err == nil && m.NoPackets(id) {
		m.Say("session %s has no network device but loopback: nothing leads past the gate, so there are no packets that the kernel could refuse and count", id)
	}
	if bad > 0 {
		m.Say("%d lines of the log of session %s make no sense and are not shown", bad, id)
	}
	return err
}

func steer(ctx context.Context, mc cli.Machine, id string, want session.Steering) (session.Force, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	m, err := manager(mc)
	if err != nil {
		return session.Force{}, err
	}
	return m.Steer(ctx, id, want)
}

// maxNamed is how many hosts or places the end of a run names of each kind; the report
// has more of them.
const maxNamed = 20

// summary says what the run has reached and tried to: each host once.
func summary(say func(string, ...any), rep session.Report, gateName string) {
	if rep.EndedBy == session.EndedByTime {
		say("%s", rep.Reason)
	}
	in, flag := "", "to let it through:"
	if gateName != "" {
		in, flag = " by gate "+gateName, "to let it through, give ai-sandbox gate reload "+gateName+", beside the rest of its list,"
	}
	used(say, rep, in)
	for i, h := range rep.Refused {
		if i == maxNamed {
			say("refused%s: %d more hosts; ai-sandbox log %s --denied names them", in, len(rep.Refused)-maxNamed, rep.Session)
			break
		}
		where := policy.Printable(h.Host)
		if h.Port != 0 {
			where = fmt.Sprintf("%s, port %d,", where, h.Port)
		}
		if h.AllowFlag != "" {
			say("refused%s: %s %s; %s %s", in, where, times(h.Count), flag, policy.Printable(h.AllowFlag))
		} else {
			say("refused%s: %s %s; %s", in, where, times(h.Count), policy.Printable(h.Why))
		}
	}
	if rep.RefusedMore > 0 {
		say("refused%s: %d requests to still other hosts", in, rep.RefusedMore)
	}
	blocked(say, rep)
	learned(say, rep)
	if rep.LogFull {
		say("the gate's log is full: not every decision is in it; the counts above may be too low")
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// used names what was let through, on one line.
func used(say func(string, ...any), rep session.Report, in string) {
	if len(rep.Used) == 0 {
		return
	}
	var words []string
	count := map[string]int{}
	for _, h := range rep.Used { // once for each port and rule there
		if count[h.Host] == 0 {
			words = append(words, h.Host)
		}
		count[h.Host] += h.Count
	}
	more := max(len(words)-maxNamed, 0)
	words = words[:len(words)-more]
	for i, h := range words {
		words[i] = fmt.Sprintf("%s (%s)", policy.Printable(h), times(count[h]))
	}
	text := strings.Join(words, ", ")
	if more > 0 || rep.UsedMore > 0 {
		text += ", and more"
	}
	say("let through%s: %s", in, text)
}

// learned tells what a list would have to have.
func learned(say func(string, ...any), rep session.Report) {
	if len(rep.Learned)+len(rep.LearnedOdd) == 0 {
		return
	}
	say("learned: %d hosts off the list were let through; look at each, and put those that you want into a configuration file:", len(rep.Learned)+len(rep.LearnedOdd))
	for _, e := range rep.Learned {
		say("  allow = %s", policy.Printable(e))
	}
	for _, h := range rep.LearnedOdd {
		say("  # no entry can name %s, port %d", policy.Printable(h.Host), h.Port)
	}
	if rep.UsedMore > 0 {
		say("  # and more, which were not counted")
	}
}

// blocked names where packets past the gate were to go.
func blocked(say func(string, ...any), rep session.Report) {
	for i, b := range rep.Blocked {
		if i == maxNamed {
			say("blocked by the kernel: %d more places; ai-sandbox log %s --denied names them", len(rep.Blocked)-maxNamed, rep.Session)
			break
		}
		where := b.Addr
		if b.Port != 0 {
			where = net.JoinHostPort(where, strconv.Itoa(int(b.Port)))
		}
		say("blocked by the kernel: %s %s %s; programs have to use the gate (http_proxy, https_proxy)", b.Proto, where, times(b.Count))
	}
	if rep.BlockedMore > 0 {
		say("blocked by the kernel: %d packets to still other places", rep.BlockedMore)
	}
}
