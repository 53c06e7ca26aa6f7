package consumer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The document shows this very program.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/integration.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("consumer.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, append([]byte("```go\n"), append(source, "```\n"...)...)) {
		t.Error("docs/integration.md does not show consumer.go as it is")
	}
}

// An ai-sandbox that says what the real one would. tests/e2e has that one.
const stub = `#!/bin/sh
case "$1 $2" in
"up --json") printf '{"version":%s,"sandbox_id":"abc","workspace_dir":"/w","reachability":{"local":{"exec":["%s","exec","abc","--"]}}}\n' "${VERSION:-1}" "$0" ;;
"exec abc") shift 3; exec "$@" ;;
"down abc") exit 0 ;;
"down old" | "wait old") exit 3 ;;
*) echo "ai-sandbox: error: refused" >&2; exit 125 ;;
esac
`

func TestExample(t *testing.T) {
	ctx := context.Background()
	program := filepath.Join(t.TempDir(), "ai-sandbox")
	if err := os.WriteFile(program, []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Up(ctx, program, "--profile", "bwrap-local")
	if err != nil || s.ID != "abc" || s.WorkspaceDir != "/w" {
		t.Fatalf("%+v, %v", s, err)
	}
	var out, errs bytes.Buffer
	code, err := s.Exec(ctx, strings.NewReader("in"), &out, &errs, "sh", "-c", "cat; echo err >&2; exit 7")
	if code != 7 || err != nil || out.String() != "in" || errs.String() != "err\n" {
		t.Errorf("exit %d, %v: %q, %q", code, err, out.String(), errs.String())
	}
	if err := s.Down(ctx); err != nil {
		t.Error(err)
	}
	if err := (&Sandbox{ID: "old", program: program}).Down(ctx); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
	if _, err := Find(ctx, program, "old"); !errors.Is(err, ErrGone) {
		t.Errorf("found: %v", err)
	}
	if _, err := Find(ctx, program, "other"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("refused: %v", err)
	}
	t.Setenv("VERSION", "2")
	if s, err := Up(ctx, program); err == nil {
		t.Errorf("a handle of version 2 is taken: %+v", s)
	}
}
