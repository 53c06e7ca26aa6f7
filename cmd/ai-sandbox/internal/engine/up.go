// Sandboxes that outlive a command.

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/detach"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
)

// detached starts the supervisor and takes the handle from it.
func detached(ctx context.Context, args []string, deliver func(session.Handle) error) (code int, err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // see run
	return detach.Start(ctx, args, signals, func(word []byte) error {
		var h session.Handle
		if err := json.Unmarshal(word, &h); err != nil {
			return fmt.Errorf("read what the supervisor says: %w", err)
		}
		return deliver(h)
	})
}

func (e *engine) newSandbox(mc cli.Machine, workspace bool) (cli.Sandbox, error) {
	// From here on a signal ends it in order. One that comes before the start
	// waits for it.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // see run
	m, err := manager(mc)
	if err != nil {
		return cli.Sandbox{}, err
	}
	sb, err := m.NewSandbox(workspace)
	if err != nil {
		return cli.Sandbox{}, err
	}
	sb.Program = "ai-sandbox"
	if self, err := os.Executable(); err == nil {
		sb.Program = self
	}
	return cli.Sandbox{
		Workspace: sb.Workspace, Discard: sb.Discard,
		Start: func(ctx context.Context, r cli.RunRequest) (int, error) { return e.startSandbox(ctx, sb, r, signals) },
	}, nil
}

// startSandbox owns a sandbox until it has ended.
func (e *engine) startSandbox(ctx context.Context, sb *session.Sandbox, r cli.RunRequest, signals <-chan os.Signal) (int, error) {
	r.Std.In, r.Std.Out = nil, sb.Log
	// The output is at rest in the log: no secret gets into it.
	stdout, stderr := r.Redact.Writer(sb.Log), r.Redact.Writer(sb.Log)
	begun := false
	rep, err := e.runSession(ctx, r, signals, func(req *session.Request) {
		begun = true // from now on it is the session's
		req.Sandbox, req.Hold, req.Ready = sb, r.Hold, func(h session.Handle) error { return told(h, sb) }
		req.Streams = backend.Streams{Stdout: stdout, Stderr: stderr}
	})
	err = errors.Join(err, stdout.Close(), stderr.Close())
	if !begun {
		err = errors.Join(err, sb.Discard())
	}
	summary(say(r.Machine), rep, r.Policy.Net.GateName)
	return rep.ExitCode, err
}

func told(h session.Handle, sb *session.Sandbox) error {
	word, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("render the handle: %w", err)
	}
	return detach.Report(word, sb.Log.File())
}

func waitReady(ctx context.Context, mc cli.Machine, id string) (session.Handle, error) {
	m, err := manager(mc)
	if err != nil {
		return session.Handle{}, err
	}
	return m.WaitReady(ctx, id)
}

func waitExit(ctx context.Context, mc cli.Machine, id string) (session.Report, error) {
	m, err := manager(mc)
	if err != nil {
		return session.Report{}, err
	}
	return m.WaitExit(ctx, id)
}

func execIn(ctx context.Context, mc cli.Machine, id string, command []string) (int, error) {
	m, err := manager(mc)
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // see run
	req := session.ExecRequest{
		Command: command, Term: mc.Environ["TERM"],
		Streams: streamsOf(mc.Std), Signals: signals,
	}
	if out, ok := mc.Std.Out.(*os.File); ok {
		if t := openTerminal(mc.Std.In, out); t != nil {
			req.Terminal = t
		}
	}
	return m.Exec(ctx, id, req)
}

func down(ctx context.Context, mc cli.Machine, id string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	m, err := manager(mc)
	if err != nil {
		return err
	}
	return m.Down(ctx, id, backendOf(mc))
}
