// Package consumer is the example of docs/integration.md: a Go program that has
// work done in a sandbox. It uses nothing of ai-sandbox but the program.
package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// A Sandbox is what `ai-sandbox up --json` prints, as far as it is used here.
// Fields may be added to it; a version other than 1 means something else.
type Sandbox struct {
	Version      int    `json:"version"`
	ID           string `json:"sandbox_id"`
	WorkspaceDir string `json:"workspace_dir"`
	Reachability struct {
		Local struct {
			Exec []string `json:"exec"`
		} `json:"local"`
	} `json:"reachability"`

	program string
}

// ErrGone says that there is no such sandbox any more.
var ErrGone = errors.New("no such sandbox")

// run runs ai-sandbox and returns what it prints.
func run(ctx context.Context, program string, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() == 3 {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("ai-sandbox %s: %w: %s", args[0], err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// Up starts a sandbox; flags are those of `ai-sandbox up`.
func Up(ctx context.Context, program string, flags ...string) (*Sandbox, error) {
	out, err := run(ctx, program, append([]string{"up", "--json"}, flags...)...)
	if err != nil {
		return nil, err
	}
	return decode(program, out)
}

// Find returns a sandbox that an earlier process has started, if it still can be
// used.
func Find(ctx context.Context, program, id string) (*Sandbox, error) {
	out, err := run(ctx, program, "wait", id, "--ready", "--json", "--timeout", "30s")
	if err != nil {
		return nil, err
	}
	return decode(program, out)
}

func decode(program string, text []byte) (*Sandbox, error) {
	s := &Sandbox{program: program}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read the handle: %w", err)
	}
	if s.Version != 1 {
		return nil, fmt.Errorf("the handle has version %d, and 1 is known here", s.Version)
	}
	return s, nil
}

// Exec runs a command in the sandbox and returns its exit code. When ctx ends, so
// does the command.
func (s *Sandbox) Exec(ctx context.Context, in io.Reader, out, errs io.Writer, command ...string) (int, error) {
	argv := append(append([]string{}, s.Reachability.Local.Exec...), command...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil {
		return exit.ExitCode(), nil // 125: ai-sandbox itself failed, and has said why
	}
	return 0, err
}

// Down ends the sandbox and removes its workspace. One that is gone is no error.
func (s *Sandbox) Down(ctx context.Context) error {
	if _, err := run(ctx, s.program, "down", s.ID); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}
