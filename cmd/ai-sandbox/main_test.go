package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ai-sandbox": main})
}

// TestScript runs the real program, one topic a script. UPDATE=1 rewrites what
// the scripts compare with.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			// $WORK is below /tmp, which is never mirrored.
			for _, d := range []string{"home/project", "run"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, d), 0o700); err != nil {
					return err
				}
			}
			for name, dir := range map[string]string{
				"HOME": "home", "XDG_CONFIG_HOME": "home/.config", "XDG_STATE_HOME": "home/.state",
				"XDG_CACHE_HOME": "home/.cache", "XDG_DATA_HOME": "home/.data", "XDG_RUNTIME_DIR": "run",
			} {
				env.Setenv(name, filepath.Join(env.WorkDir, dir))
			}
			env.Setenv("TMPDIR", filepath.Join(env.WorkDir, ".tmp"))
			env.Cd = filepath.Join(env.WorkDir, "home/project")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status N CMD... expects the exit code N.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N CMD [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
