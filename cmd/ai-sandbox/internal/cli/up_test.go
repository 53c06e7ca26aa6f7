package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/detach"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

func TestSplitSandboxVerbs(t *testing.T) {
	for _, tc := range []struct {
		line string
		want Invocation
		err  string // all of it
		verb bool
	}{
		{line: "up", want: Invocation{Verb: "up"}},
		{line: "up --json --profile local .", want: Invocation{Verb: "up", Flags: []string{"--json=true", "--profile=local"}, Args: []string{"."}}},
		{line: "--runtime local up --net none dir -- make -j --json", want: Invocation{Verb: "up", Flags: []string{"--runtime=local", "--net=none"}, Args: []string{"dir"}, Command: []string{"make", "-j", "--json"}}},
		{line: "up -- -- x", want: Invocation{Verb: "up", Command: []string{"--", "x"}}},
		{line: "exec abc -- ls -la --json", want: Invocation{Verb: "exec", Args: []string{"abc"}, Command: []string{"ls", "-la", "--json"}}},
		{line: "wait abc --ready --timeout 3s", want: Invocation{Verb: "wait", Args: []string{"abc"}, Flags: []string{"--ready=true", "--timeout=3s"}}},
		{line: "down abc", want: Invocation{Verb: "down", Args: []string{"abc"}}},

		{line: "up a b", err: "up takes no argument b; drop it"},
		{line: "up --", err: `no command follows "--"; name one, or drop the "--"`},
		{line: "up --report r.json", err: `--report is not a flag of up; see: ai-sandbox help up`},
		{line: "up --print-policy", err: `--print-policy is not a flag of up; see: ai-sandbox help up`},
		{line: "exec abc", err: "exec needs a command; write: ai-sandbox exec ID -- COMMAND..."},
		{line: "exec abc ls", err: `exec takes a command after "--" only; write: ai-sandbox exec ID -- COMMAND...`},
		{line: "exec -- ls", err: "exec needs ID -- COMMAND...; write: ai-sandbox exec ID -- COMMAND..."},
		{line: "wait abc --timeout", err: "--timeout needs a value; write --timeout=VALUE", verb: true},
		{line: "wait", err: "wait needs ID; write: ai-sandbox wait ID", verb: true},
		{line: "down", err: "down needs ID; write: ai-sandbox down ID", verb: true},
		{line: "down a b", err: "down takes no argument b; drop it", verb: true},
	} {
		got, err := Split(strings.Fields(tc.line))
		if tc.err != "" {
			var usage *errUsage
			if !errors.As(err, &usage) || usage.text != tc.err || usage.verb != tc.verb {
				t.Errorf("%s: %+v, want %s", tc.line, err, tc.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v", tc.line, got, err)
		}
	}
}

var someHandle = session.Handle{
	Version: 1, SandboxID: "0123456789ab", Host: "localhost", PID: 4711, WorkspaceDir: "/w\x1b[2J", WorkspaceOwned: true, Workdir: "/project", Log: "/log",
	Runtime: "local", Isolation: "process", Capabilities: backend.Capabilities{Networks: []string{"unix", "none"}, Publishing: true},
	Reachability: session.Reachability{Local: session.LocalReach{WorkspaceDir: "/w", PID: 4711, Exec: []string{"/a b/ai-sandbox", "exec", "0123456789ab", "--"}}},
}

const someText = `sandbox      0123456789ab
host         localhost
pid          4711
workspace    "/w\x1b[2J" (removed by down)
inside       /project
log          /log
runtime      local (isolation: process)
can          networks: unix, none; no gates; no limits; no snapshots; published ports
run in it    "/a b/ai-sandbox" exec 0123456789ab -- COMMAND...
end it       ai-sandbox down 0123456789ab
`

// What up prints is the supervisor's word, and its exit code the supervisor's.
func TestUp(t *testing.T) {
	s := newStage(t)
	var asked []string
	code, err := 0, error(nil)
	s.engine.Detach = func(_ context.Context, args []string, deliver func(session.Handle) error) (int, error) {
		asked = args
		if code != 0 || err != nil {
			return code, err
		}
		return 0, deliver(someHandle)
	}
	args := []string{"--runtime", "local", "up", "--json", ".", "--", "make"}
	if got := s.do(args...); got != 0 || !reflect.DeepEqual(asked, args) {
		t.Errorf("exit %d, started with %q: %s", got, asked, s.err.String())
	}
	var h session.Handle
	if err := json.Unmarshal(s.out.Bytes(), &h); err != nil || !reflect.DeepEqual(h, someHandle) {
		t.Errorf("printed %s (%v)", s.out.String(), err)
	}
	if got := s.do("up"); got != 0 || s.out.String() != someText {
		t.Errorf("exit %d:\n%s\nnot\n%s", got, s.out.String(), someText)
	}
	for _, tc := range []struct {
		code, want int
		err        error
		says       string
	}{{77, 77, nil, ""}, {125, 125, nil, ""}, {0, 125, errors.New("no word"), "ai-sandbox: error: no word\n"}, {130, 130, errors.New("no word"), "ai-sandbox: error: no word\n"}} {
		code, err = tc.code, tc.err
		if got := s.do("up"); got != tc.want || s.err.String() != tc.says || s.out.Len() > 0 {
			t.Errorf("%+v: exit %d: %s%s", tc, got, s.out.String(), s.err.String())
		}
	}
	asked = nil
	if got := s.do("up", "--nte", "none"); got != 125 || asked != nil {
		t.Errorf("a flag that is none: exit %d, started %q", got, asked)
	}
	// Nobody becomes a supervisor by typing its marker.
	if got := s.do(detach.Marker, "up"); got != 125 || asked != nil || !strings.Contains(s.err.String(), "is for ai-sandbox itself") {
		t.Errorf("by hand: exit %d: %s", got, s.err.String())
	}
}

// A workspace that was made for a sandbox may be its project, though it lies in
// ai-sandbox's state, and no other directory there; its home ends with it.
func TestWorkspace(t *testing.T) {
	s := newStage(t)
	state := filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox")
	own, other := filepath.Join(state, "workspaces/0123456789ab"), filepath.Join(state, "workspaces/ba9876543210")
	for _, d := range []string{own, other} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	look := func(project, workspace string, command ...string) (policy.Policy, error) {
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd, a.project, a.workspace = s.project, project, workspace
		set, err := a.prepare(nil, forLook)
		if err != nil {
			return policy.Policy{}, err
		}
		p, _, err := a.policy(Invocation{Verb: "up", Args: command}, set)
		return p, err
	}
	p, err := look(own, own)
	if err != nil || p.Project != own || !p.Home.Ephemeral || len(p.Command) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err = look(s.project, "", "make"); err != nil || p.Project != s.project || p.Home.Ephemeral || !reflect.DeepEqual(p.Command, []string{"make"}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, tc := range [][2]string{{own, ""}, {other, own}, {state, state}, {filepath.Join(state, "workspaces"), own}} {
		if _, err := look(tc[0], tc[1]); err == nil || !strings.Contains(err.Error(), "lie in one another") {
			t.Errorf("project %s, workspace %q: %v", tc[0], tc[1], err)
		}
	}
}

// Without a project there is nothing that a directory could be named as, and what
// a file or variable says of that, a flag of each verb takes back.
func TestNoCwd(t *testing.T) {
	s := newStage(t)
	ws := filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox/workspaces/0123456789ab")
	if err := os.MkdirAll(ws, 0o700); err != nil {
		t.Fatal(err)
	}
	noCwd := []config.Item{{Key: "no_cwd", Value: "true", Origin: "--no-cwd"}}
	for _, tc := range []struct {
		project, workspace string
		flags              []config.Item
		want, says         string
	}{
		{project: s.project, says: "ai-sandbox: the project is mounted at /project, as its own path would hide /tmp of the sandbox\n"},
		{project: s.project, flags: noCwd, want: "no_cwd (from --no-cwd) mounts no project, and " + s.project + " was named as one; drop the directory, or use --no-cwd=false"},
		{project: ws, workspace: ws},
		{project: ws, workspace: ws, flags: noCwd, says: "ai-sandbox: no project is mounted (no_cwd); /project is empty scratch space, gone with the run\n"},
		{flags: noCwd, says: "ai-sandbox: no project is mounted (no_cwd); /project is empty scratch space, gone with the run\n"},
	} {
		s.err.Reset()
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd, a.project, a.workspace = s.project, tc.project, tc.workspace
		var p policy.Policy
		set, err := a.prepare(tc.flags, forLook)
		if err == nil {
			if p, _, err = a.policy(Invocation{Verb: "up"}, set); err == nil {
				s.err.Reset()
				p.Limits = policy.Limits{} // their notes are about this machine
				a.tell(p)
			}
		}
		if err != nil && err.Error() != tc.want || err == nil && tc.want != "" || s.err.String() != tc.says && tc.want == "" {
			t.Errorf("%+v: %v, %s", tc, err, s.err.String())
		}
	}
	// In the home there can be no project.
	t.Chdir(s.env["HOME"])
	for _, value := range []string{"1", "true", "0", "false"} {
		s.env["AISB_NO_CWD"] = value
		for _, args := range [][]string{{"--print-policy"}, {"config"}, {"explain", "/x"}} {
			if code := s.do(args...); (code == 0) != (value == "1" || value == "true") {
				t.Errorf("%q, AISB_NO_CWD=%s: exit %d: %s", args, value, code, s.err.String())
			}
		}
	}
	delete(s.env, "AISB_NO_CWD")
	t.Chdir(s.project)
	s.write(s.config, "no_cwd = true\n")
	for _, tc := range []struct{ args, want string }{
		{"config", "no_cwd              true                        (" + s.config},
		{"config --no-cwd=false", "no_cwd              false                       (--no-cwd)\n"},
		{"explain " + s.project, s.project + ", of this machine: not visible\n"},
		{"explain --no-cwd=false " + s.project, s.project + ", of this machine: read-write, inside at /project\n"},
	} {
		if code := s.do(strings.Fields(tc.args)...); code != 0 || !strings.Contains(strings.ReplaceAll(s.out.String(), "\n                      (", "                        ("), tc.want) {
			t.Errorf("%s: exit %d: %s%s", tc.args, code, s.out.String(), s.err.String())
		}
	}
	// Nothing of the project's is read then, and it stops nothing.
	for _, text := range []string{"allow = a.example.com\n", "no such key\n", "no_cwd = false\nfs = ro\n"} {
		s.write(filepath.Join(s.project, config.ProjectFile), text)
		for _, args := range [][]string{{"--print-policy"}, {"config"}, {"explain", "/x"}} {
			if code := s.do(args...); code != 0 || strings.Contains(s.out.String(), config.ProjectFile) {
				t.Errorf("%q, %q: exit %d: %s%s", text, args, code, s.out.String(), s.err.String())
			}
		}
		if code := s.do("trust"); code == 0 {
			t.Errorf("%q: trust does not look at it: %s", text, s.err.String())
		}
		if code := s.do("--print-policy", "--no-cwd=false"); code != 125 && !strings.Contains(text, "fs") {
			t.Errorf("the control: %q: exit %d: %s", text, code, s.err.String())
		}
	}
	// A switch of 0 is off.
	s.write(s.config, "")
	s.write(filepath.Join(s.project, config.ProjectFile), "allow = a.example.com\n")
	for value, want := range map[string]int{"0": 125, "false": 125, "1": 0, "true": 0} {
		if code := s.do("--print-policy", "--ignore-project-config="+value); code != want {
			t.Errorf("--ignore-project-config=%s: exit %d: %s", value, code, s.err.String())
		}
	}
}

// The supervisor takes away what it has made when the run is refused.
func TestSuperviseRefused(t *testing.T) {
	s := newStage(t)
	ws := filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox/workspaces/0123456789ab")
	discarded, started := false, false
	s.engine.NewSandbox = func(_ Machine, workspace bool) (Sandbox, error) {
		sb := Sandbox{Discard: func() error { discarded = true; return nil },
			Start: func(context.Context, RunRequest) (int, error) { started = true; return 0, nil }}
		if workspace {
			sb.Workspace = ws
			return sb, os.MkdirAll(ws, 0o700)
		}
		return sb, nil
	}
	for _, dir := range [][]string{nil, {"/"}, {"nowhere"}, {"."}} {
		discarded = false
		t.Chdir(s.project)
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd, a.supervisor = s.project, true
		_, err := a.supervise(Invocation{Verb: "up", Args: dir}, []config.Item{{Key: "profile", Value: "nope", Origin: "--profile"}})
		if err == nil || !discarded || started {
			t.Errorf("%v: %v, discarded %v, started %v", dir, err, discarded, started)
		}
		if len(dir) == 0 && !strings.Contains(err.Error(), `profile "nope" is unknown`) {
			t.Errorf("in its own workspace: %v", err)
		}
	}
}

func TestWaitExecDown(t *testing.T) {
	s := newStage(t)
	none := fmt.Errorf("sandbox x: %w", session.ErrNoSandbox)
	rep := session.Report{Version: 1, Session: "0123456789ab", ExitCode: 3, EndedBy: "command", Reason: "a\x1b[2J"}
	var err error
	code := 0
	s.engine.WaitReady = func(ctx context.Context, _ Machine, id string) (session.Handle, error) {
		if id == "slow" {
			<-ctx.Done()
			return session.Handle{}, context.Cause(ctx)
		}
		return someHandle, err
	}
	s.engine.WaitExit = func(context.Context, Machine, string) (session.Report, error) { return rep, err }
	s.engine.Exec = func(_ context.Context, _ Machine, id string, command []string) (int, error) {
		s.called = append(s.called, id+" "+strings.Join(command, " "))
		return code, err
	}
	s.engine.Down = func(_ context.Context, _ Machine, id string) error {
		s.called = append(s.called, id)
		return err
	}
	for _, tc := range []struct {
		args string
		err  error
		code int // of exec
		want int
		out  string
		errs string
	}{
		{args: "wait x --ready"},
		{args: "wait x --ready --timeout 1m"},
		{args: "wait x --exit", out: "ended by command, exit code 3: a\\x1b[2J\n"},
		{args: "wait x", want: 2, errs: "ai-sandbox: error: wait needs one of --ready and --exit\n"},
		{args: "wait x --ready --exit", want: 2, errs: "ai-sandbox: error: wait needs one of --ready and --exit\n"},
		{args: "wait x --ready --timeout 10", want: 2, errs: "ai-sandbox: error: --timeout 10 is not a time; write it as 30s or 5m\n"},
		{args: "wait x --ready --timeout -1s", want: 2, errs: "ai-sandbox: error: --timeout -1s is not a time; write it as 30s or 5m\n"},
		{args: "wait x --ready", err: none, want: 3, errs: "ai-sandbox: error: sandbox x: no such sandbox\n"},
		{args: "wait x --exit", err: none, want: 3, errs: "ai-sandbox: error: sandbox x: no such sandbox\n"},
		{args: "wait x --ready", err: &session.EndedError{Report: rep}, want: 1, errs: "ai-sandbox: error: sandbox 0123456789ab has ended (by command, exit code 3): a\\x1b[2J\n"},
		{args: "down x"},
		{args: "down x", err: none, want: 3, errs: "ai-sandbox: error: sandbox x: no such sandbox\n"},
		{args: "down x", err: errors.New("held"), want: 1, errs: "ai-sandbox: error: held\n"},
		{args: "exec x -- true"},
		{args: "exec x -- false", code: 3, want: 3},
		{args: "exec x -- nope", code: 127, err: errors.New("not there"), want: 127, errs: "ai-sandbox: error: not there\n"},
		{args: "exec x -- true", err: none, want: 125, errs: "ai-sandbox: error: sandbox x: no such sandbox\n"},
		{args: "exec x", want: 125, errs: "ai-sandbox: error: exec needs a command; write: ai-sandbox exec ID -- COMMAND...\n"},
	} {
		err, code = tc.err, tc.code
		if got := s.do(strings.Fields(tc.args)...); got != tc.want || s.out.String() != tc.out || s.err.String() != tc.errs {
			t.Errorf("%s (%v): exit %d, %q, %q", tc.args, tc.err, got, s.out.String(), s.err.String())
		}
	}
	err = nil
	began := time.Now()
	if got := s.do("wait", "slow", "--ready", "--timeout", "20ms"); got != 124 || time.Since(began) > 5*time.Second || s.err.String() != "ai-sandbox: error: the time is over (20ms)\n" {
		t.Errorf("exit %d: %s", got, s.err.String())
	}
	if got := s.do("exec", "x", "--", "a", "", "--b c"); got != 0 || !reflect.DeepEqual(s.called, []string{"x a  --b c"}) {
		t.Errorf("exit %d, %q", got, s.called)
	}
	if got := s.do("wait", "x", "--exit", "--json"); got != 0 || !bytes.Contains(s.out.Bytes(), []byte(`"ended_by": "command"`)) {
		t.Errorf("exit %d: %s", got, s.out.String())
	}
	// They need no setting of the user's, and no runtime.
	s.write(s.config, "nte = none\n")
	if got := s.do("down", "x"); got != 0 {
		t.Errorf("exit %d: %s", got, s.err.String())
	}
}
