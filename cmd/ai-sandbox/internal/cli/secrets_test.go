package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

const canary = "canary-4711-Xyz"

// secretStage has a secret in the environment and another one in a file.
func secretStage(t *testing.T) (s *stage, file string) {
	t.Helper()
	s = newStage(t)
	s.env["TOKEN"] = canary
	s.env["AI_API_TOKEN"] = "tok-" + canary
	file = filepath.Join(s.env["HOME"], "secrets")
	s.piHas(needsToken, "")
	s.write(file, "FILED=\"filed-"+canary+"\"\n")
	return s, file
}

// A printout names every variable, and shows no value of a secret one, also where
// the command line holds it.
func TestPrintoutsHideSecrets(t *testing.T) {
	s, file := secretStage(t)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + canary))
	s.engine.DryRun = func(r RunRequest) ([]Section, error) {
		return []Section{{"x", strings.Join(r.Policy.Command, " ")}}, nil
	}
	for _, flag := range []string{"--print-policy", "--print-policy=json", "--dry-run"} {
		if code := s.do(flag, "--env", "TOKEN", "--env-file", file, "--env", "PUBLIC=of all", "pi", "-p", "curl -u x:"+canary, "Basic "+basic, "filed-"+canary); code != 0 {
			t.Fatalf("%d: %s", code, s.err.String())
		}
		out := s.out.String() + s.err.String()
		if strings.Contains(out, canary) || strings.Contains(out, basic) {
			t.Errorf("%s shows a value: %s", flag, out)
		}
		for _, want := range []string{"TOKEN", "FILED", "AI_API_TOKEN", "of all", "x:[TOKEN]", "[FILED]"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s shows no %q: %s", flag, want, out)
			}
		}
	}
	// A command of the user's own gets no token that it did not ask for.
	if s.do("--print-policy", "--", "pi"); strings.Contains(s.out.String(), "AI_API_TOKEN") {
		t.Error(s.out.String())
	}
}

// So does what any verb prints, here with a value of a variable that the user's file
// names wherever a text of somebody's may stand. What a command says stays as it is.
func TestVerbsHideSecrets(t *testing.T) {
	s, _ := secretStage(t)
	s.tools("podman version 5.4.2")
	at := "/x/" + canary
	said := []string{"x", canary}
	s.engine.Build = func(_ context.Context, r BuildRequest) error { fmt.Fprintln(r.Out, at); return nil }
	s.engine.Update = func(context.Context, BuildRequest, bool) (imagebuild.Outcome, error) {
		return imagebuild.Outcome{Notes: said}, nil
	}
	s.engine.Inspect = func(context.Context, BuildRequest, string, bool) (Inspection, error) {
		return Inspection{EnforcedBy: at, Images: []InspectedImage{{Problem: at}}}, nil
	}
	s.engine.ImageSave = func(_ context.Context, r BuildRequest, _ string) error { fmt.Fprintln(r.Out, at); return nil }
	s.engine.ImageLoad = s.engine.ImageSave
	s.images = []ListedImage{{Ref: at, UsedBy: said}}
	s.engine.Clean = func(_ context.Context, r CleanRequest) error {
		r.Tell(Cleaned{What: at, Why: at, Goes: true})
		return nil
	}
	s.engine.GateUp = func(_ context.Context, r BuildRequest, _ GateRequest) error {
		fmt.Fprintln(r.Out, at)
		return nil
	}
	s.engine.GateList = func(context.Context, Machine) ([]GateState, error) { return []GateState{{Name: at, Allow: said}}, nil }
	s.engine.GateUnit = func(_ context.Context, r BuildRequest, _ GateRequest, _ string) error {
		fmt.Fprintln(r.Out, at)
		return nil
	}
	s.engine.GateUnitRemove = func(_ context.Context, m Machine, _ string) error { fmt.Fprintln(m.Err, at); return nil }
	s.engine.GateReload = func(_ context.Context, m Machine, _ GateRequest) (session.Reloaded, error) {
		return session.Reloaded{Hash: at, Added: said, Sessions: said}, nil
	}
	s.engine.NamedLog = func(_ context.Context, _ Machine, _ string, _ bool, f func(gate.Event) error) error {
		return f(gate.Event{Host: canary + ".example.com", Rule: at})
	}
	s.engine.GateNames = func(Machine) ([]string, error) { return said, nil }
	s.engine.GateDown = func(_ context.Context, m Machine, _ string) error { fmt.Fprintln(m.Err, at); return nil }
	s.engine.Detach = func(_ context.Context, _ []string, deliver func(session.Handle) error) (int, error) {
		return 0, deliver(session.Handle{Log: at})
	}
	s.engine.WaitReady = func(context.Context, Machine, string) (session.Handle, error) {
		return session.Handle{Log: at}, nil
	}
	s.engine.WaitExit = func(context.Context, Machine, string) (session.Report, error) {
		return session.Report{Reason: at}, nil
	}
	s.engine.Exec = func(_ context.Context, m Machine, _ string, _ []string) (int, error) {
		fmt.Fprintln(m.Std.Out, "its own", at)
		fmt.Fprintln(m.Out, at)
		return 0, nil
	}
	s.engine.Down = func(_ context.Context, m Machine, _ string) error { fmt.Fprintln(m.Err, at); return nil }
	s.engine.Stop, s.engine.Remove = s.engine.Down, s.engine.Down
	s.engine.Sessions = func(Machine) ([]session.Summary, error) {
		return []session.Summary{{Command: said}}, nil
	}
	s.engine.Logs = func(Machine, string) (session.Logs, error) { return session.Logs{Output: at}, nil }
	s.engine.GateLog = func(_ context.Context, _ Machine, _ string, _ bool, f func(gate.Event) error) error {
		return f(gate.Event{Host: canary + ".example.com", Rule: at})
	}
	var inForce []byte
	s.engine.Steer = func(context.Context, Machine, string, session.Steering) (session.Force, error) {
		return session.Force{Policy: inForce, Hash: at}, nil
	}
	s.engine.Doctor = func(context.Context, Machine, ImageRequest) []host.Verdict {
		return []host.Verdict{{Name: "x", Detail: at}}
	}
	for i, value := range []string{"1", canary} {
		p := s.policy("--", "true")
		p.Env = append(p.Env, policy.Env{Name: "B", Value: value, From: policy.FromConstant})
		text, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		inForce = text
		s.write(filepath.Join(s.project, fmt.Sprint(i)), string(text))
	}
	s.write(s.config, "env = TOKEN\nenv_file = ~/secrets\n")
	s.write(filepath.Join(s.project, config.ProjectFile), "allow = "+canary+".example.com\n")
	lines := map[string][]string{
		"allow": {"allow x a.example.com"}, "deny": {"deny x a.example.com"}, "log": {"log", "log --json x"}, "policy show": {"policy show x", "policy show --json x"},
		"build": {"build"}, "clean": {"clean", "clean --json"}, "config": {"config --node-mirror https://u:" + canary + "@h", "config --json --node-mirror https://u:" + canary + "@h"},
		"doctor": {"doctor"}, "down": {"down x"}, "exec": {"exec x -- true"}, "explain": {"explain " + at, "explain " + canary + ".example.com"},
		"gate up": {"gate up x"}, "gate down": {"gate down x"}, "gate ls": {"gate ls", "gate ls --json"}, "gate unit": {"gate unit x", "gate unit x --remove"}, "gate logs": {"gate logs x", "gate logs --json x"}, "gate reload": {"gate reload x", "gate reload --json x"}, "image save": {"image save x"}, "image load": {"image load x"}, "images": {"images", "images --json"}, "inspect": {"inspect", "inspect --json"},
		"logs": {"logs x", "logs --json x"}, "ls": {"ls", "ls --json"}, "policy diff": {"policy diff 0 1", "policy diff --json 0 1"},
		"rm": {"rm x"}, "stop": {"stop x"}, "trust": {"trust", "trust --yes"}, "up": {"up", "up --json"},
		"update": {"update", "update --json", "update --check"}, "wait": {"wait --ready --json x", "wait --exit x", "wait --exit --json x"},
		"completion": {"completion zsh -- --gate="},
		"help":       nil, "manual": nil, "version": nil, // these say nothing of anybody
	}
	// An agent's token as well, whether or not an agent is named.
	if s.do("explain", "--ignore-project-config", "/x/tok-"+canary); !strings.Contains(s.out.String(), "/x/[AI_API_TOKEN], of this machine") {
		t.Error(s.out.String())
	}
	for _, v := range verbs() {
		names := []string{v.name}
		if len(v.subs) > 0 {
			names = nil
		}
		for _, sub := range v.subs {
			names = append(names, v.name+" "+sub.name)
		}
		for _, name := range names {
			if _, ok := lines[name]; !ok {
				t.Errorf("no row has the verb %s: add one that has it print a secret", name)
			}
			for _, line := range lines[name] {
				args := strings.Fields(line)
				if v.name == "build" || v.name == "update" || v.name == "image" || v.name == "inspect" || v.name == "config" || v.name == "explain" {
					args = append(args, "--ignore-project-config")
				}
				s.do(args...)
				out := s.out.String() + s.err.String()
				if own := "its own " + at + "\n"; v.name == "exec" {
					if !strings.Contains(out, own) {
						t.Errorf("%s: what the command says is %q", line, out)
					}
					out = strings.Replace(out, own, "", 1)
				}
				if strings.Contains(strings.ToLower(out), strings.ToLower(canary)) {
					t.Errorf("%s: %s", line, out)
				}
				// Where the machine is not good enough for the images, such a verb is refused.
				if slices.Contains([]string{"build", "clean", "doctor", "gate", "image", "images", "inspect", "update"}, v.name) && strings.Contains(out, "ai-sandbox: error: ") {
					continue
				}
				if !strings.Contains(out, "[TOKEN]") {
					t.Errorf("%s: %s", line, out)
				}
			}
		}
	}
}

// An error hides them at whatever point the run ends, and so does the report of a
// run that was refused.
func TestErrorsHideSecrets(t *testing.T) {
	s, file := secretStage(t)
	var reason string
	s.engine.Refused = func(_, _ string, err error) error { reason = err.Error(); return nil }
	for _, args := range [][]string{
		{"--env", "TOKEN", "--net", canary, "pi"},                           // before the settings are known
		{"up", "--env=TOKEN", "--no-such-" + canary},                        // before anything is
		{"--env-file", file, "--env", "TOKEN", "--gate", canary, "pi"},      // by the engine
		{"--env", "TOKEN", "--", "x", canary + "\xff"},                      // by the policy
		{"--env-file", file, "--", "x", "filed-" + canary + "\xff"},         // likewise
		{"--env-file", file, "pi", "tok-" + canary + "\xff"},                // likewise
		{"--env", "TOKEN", "--allow", "https://x:" + canary + "@b/c", "pi"}, // by the list
	} {
		if args[0] != "up" {
			args = append([]string{"--print-policy"}, args...) // this machine may be anything
		}
		if code := s.do(args...); code == 0 || strings.Contains(s.err.String()+s.out.String(), canary) || !strings.Contains(s.err.String(), "]") {
			t.Errorf("%q: %d: %s", args, code, s.err.String())
		}
	}
	if s.do("--report", "r.json", "--env", "TOKEN", "--net", canary, "pi"); !strings.Contains(reason, `net "[TOKEN]" is unknown`) {
		t.Errorf("the report has %q", reason)
	}
}

// So does an error that comes before it is known what counts: a value is a secret
// wherever its name stands, and whatever file holds it.
func TestEarlyErrorsHideSecrets(t *testing.T) {
	s, file := secretStage(t)
	s.write(filepath.Join(s.env["HOME"], "relative"), "FILED=filed-"+canary+"\nthis line is wrong\n")
	profile := "[profile p]\nenv_file = " + file + "\n"
	var reason string
	s.engine.Refused = func(_, _ string, err error) error { reason = err.Error(); return nil }
	for _, tc := range []struct {
		user, project, name, value string
		args                       []string
	}{
		{user: "env = TOKEN\n", args: []string{"--net", canary}},
		{user: "[profile p]\nenv = TOKEN\n", args: []string{"--net", canary}},
		{user: "env = TOKEN\nnet = " + canary + "\n"},
		{project: "env = TOKEN\n", args: []string{"--net", canary}},
		{user: "env_file = ~/secrets\n", args: []string{"--net", "filed-" + canary}},
		{user: profile, args: []string{"--net", "filed-" + canary}},
		{name: "AISB_NET", value: "https://u:filed-" + canary + "@h", args: []string{"--env-file", file}},
		{name: "AISB_NET", value: "https://u:filed-" + canary + "@h", args: []string{"--env-file", "../relative"}},
		{name: "AISB_ENV_FILE", value: file, args: []string{"--net", "filed-" + canary}},
		{user: "env_file = ~/secrets\n", args: []string{"--print-policy", "--base-ttl-days", "filed-" + canary}}, // by the image
		// Before a file is read as one that counts.
		{user: "env = TOKEN\n", args: []string{"--net", "--" + canary}},
		{user: profile, args: []string{"up", "--no-such-filed-" + canary}},
		{args: []string{"up", "--env-file", "../relative", "--no-such-filed-" + canary}},
		{name: "AISB_ENV_FILE", value: file, args: []string{"up", "--no-such-filed-" + canary}},
	} {
		s.write(s.config, tc.user)
		s.write(filepath.Join(s.project, config.ProjectFile), tc.project)
		if tc.name != "" {
			s.env[tc.name] = tc.value
		}
		args := append(tc.args, "--", "true")
		if len(tc.args) == 0 || tc.args[0] != "up" {
			args = append([]string{"--report", "r.json"}, args...)
		}
		reason = "[-]"
		code := s.do(args...)
		delete(s.env, tc.name)
		said := s.err.String() + s.out.String()
		if code == 0 || strings.Contains(said+reason, canary) || !strings.Contains(said, "[TOKEN]") && !strings.Contains(said, "[FILED]") || !strings.Contains(reason, "]") {
			t.Errorf("%+v: %d: %s\nreport: %s", tc, code, said, reason)
		}
	}
}

// What config prints is hidden likewise, and an origin is as harmless as a value.
func TestConfigHidesSecrets(t *testing.T) {
	s, file := secretStage(t)
	s.env["AISB_NODE_MIRROR"] = "https://u:" + canary + "@m.example.com/dist"
	s.env["AISB_GATE"] = "filed-" + canary
	own := filepath.Join(filepath.Dir(s.env["XDG_CONFIG_HOME"]), "of\x1b[2Jmine")
	for _, tc := range []struct {
		user, config string
		args         []string
	}{
		{args: []string{"--env", "TOKEN", "--env-file", file}},
		{user: "env = TOKEN\nenv_file = " + file + "\n"},
		{user: "[profile p]\nenv = TOKEN\n[profile q]\nenv_file = ~/secrets\nbase = x\n", args: []string{"--profile", "q"}},
		{user: "profile = p\n[profile p]\nenv = TOKEN\nenv_file = ~/secrets\n", config: own},
	} {
		if tc.config != "" {
			s.env["XDG_CONFIG_HOME"] = tc.config
		}
		s.write(filepath.Join(s.env["XDG_CONFIG_HOME"], "ai-sandbox/config"), tc.user)
		for _, format := range [][]string{{"config"}, {"config", "--json"}} {
			code := s.do(append(format, tc.args...)...)
			out := s.out.String()
			if code != 0 || strings.Contains(out, canary) || strings.Contains(out, "\x1b") || !strings.Contains(out, "https://u:[TOKEN]@m.example.com/dist") || !strings.Contains(out, "[FILED]") {
				t.Errorf("%+v: %d: %s%s", tc, code, out, s.err.String())
			}
		}
	}
	// What is no secret is shown.
	s.env["XDG_CONFIG_HOME"], s.env["AISB_GATE"] = t.TempDir(), "work"
	if s.do("config"); !strings.Contains(s.out.String(), "https://u:"+canary+"@m.example.com/dist") {
		t.Error(s.out.String())
	}
}

// What the engine says, fails with or dies of is hidden too.
func TestRunHidesSecrets(t *testing.T) {
	s, file := secretStage(t)
	start := func() (err error) {
		s.err.Reset()
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd = s.project
		set, err := a.prepare([]config.Item{{Key: "env", Value: "TOKEN", Origin: "--env"}, {Key: "env_file", Value: file, Origin: "--env-file"}}, forLook)
		if err != nil {
			t.Fatal(err)
		}
		inv, err := Split([]string{"pi"})
		if err != nil {
			t.Fatal(err)
		}
		if err = a.start(inv, set, false); err != nil {
			printError(&s.err, err, a.text)
		}
		return err
	}
	var got RunRequest
	s.engine.Run = func(_ context.Context, r RunRequest) (int, error) {
		got = r
		fmt.Fprint(r.Err, r.Hide("podman said "+canary))
		return 0, fmt.Errorf("podman: %w", errors.New("exec https://u:"+canary+"@h/ failed"))
	}
	if err := start(); err == nil || strings.Contains(s.err.String(), canary) || strings.Count(s.err.String(), "[TOKEN]") != 2 {
		t.Error(s.err.String())
	}
	if !strings.Contains(s.err.String(), "ai-sandbox: AI_API_TOKEN is passed to pi, which needs it\n") {
		t.Errorf("the token is not told: %s", s.err.String())
	}
	for name, want := range map[string]string{"TOKEN": canary, "FILED": "filed-" + canary, "AI_API_TOKEN": "tok-" + canary, "TERM": "xterm"} {
		if got.Values[name].Reveal() != want {
			t.Errorf("%s is %q", name, got.Values[name].Reveal())
		}
	}
	if text := fmt.Sprintf("%+v %#v", got.Values, got.Policy); strings.Contains(text, canary) {
		t.Errorf("printed by accident: %s", text)
	}
	// A bug of ours.
	s.engine.Image = func(ImageRequest) (ImagePlan, error) { panic("at " + canary) }
	if code := s.do("--print-policy", "--env", "TOKEN", "pi"); code != 125 || strings.Contains(s.err.String(), canary) ||
		!strings.Contains(s.err.String(), "this is a bug in ai-sandbox: at [TOKEN]\n") || !strings.Contains(s.err.String(), "secrets_test.go") {
		t.Errorf("%d: %s", code, s.err.String())
	}
}

// An env_file is the user's alone, and nothing that a sandbox writes leads to it.
func TestEnvFileRefused(t *testing.T) {
	s, file := secretStage(t)
	link := filepath.Join(s.project, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(s.project, ".env")
	s.write(inside, "A=of the agent's\n")
	state := filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox", "homes", "x", "env")
	s.write(state, "A=of another agent's\n")
	open := filepath.Join(s.env["HOME"], "open")
	s.write(open, "A=1\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(s.env["HOME"], "bad")
	s.write(bad, "# mine\nA=good enough\n"+canary+"\nB= \n")
	const keep = ", where a sandbox writes; keep it elsewhere"
	for _, tc := range [][2]string{
		{inside, "env_file " + inside + " lies in " + s.project + " or leads through it" + keep},
		{link, "env_file " + link + " lies in " + s.project + " or leads through it" + keep},
		{".env", "env_file " + inside + " lies in " + s.project},
		{state, "env_file " + state + " lies in " + filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox")},
		{open, "env_file " + open + " is open to other users (mode 0644); shut it with: chmod 600 " + open},
		{"~/none", "env_file " + filepath.Join(s.env["HOME"], "none") + " does not exist"},
		{bad, "env_file " + bad + ":3: the line has no \"=\""},
		{bad, "env_file " + bad + ":4: B has a blank"},
	} {
		if code := s.do("--print-policy", "--env-file", tc[0], "pi"); code != 125 || !strings.Contains(s.err.String(), tc[1]) || strings.Contains(s.err.String(), canary) {
			t.Errorf("%s: %d: %s, not %s", tc[0], code, s.err.String(), tc[1])
		}
	}
	// The file's own key has to say where it is, wherever ai-sandbox is started.
	s.write(s.config, "env_file = secrets\n")
	if s.do("--print-policy", "pi"); !strings.Contains(s.err.String(), "env_file secrets is not an absolute path (from "+s.config+":1); begin it with / or ~/") {
		t.Error(s.err.String())
	}
	// Of a name in two files, the later counts.
	second := filepath.Join(s.env["HOME"], "second")
	s.write(second, "FILED=the second one\nOTHER=another one\n")
	s.write(s.config, "env_file = ~/secrets\n")
	if code := s.do("--print-policy", "--env-file", "../second", "--", "x", "the second one", "filed-"+canary); code != 0 || !strings.Contains(s.out.String(), "x [FILED] filed-"+canary) {
		t.Errorf("%d: %s%s", code, s.out.String(), s.err.String())
	}
	// Refused before anything starts, by name.
	s.env["SHORT"] = "abc"
	for arg, want := range map[string]string{
		"SHORT": "env SHORT has a value shorter than 8 bytes", "NOPE": "env NOPE is unset or empty here; give it a value, or don't pass it",
		"PWD_OF": "env PWD_OF has a value that also stands in a path",
	} {
		s.env["PWD_OF"] = s.project
		if code := s.do("--print-policy", "--env", arg, "pi"); code != 125 || !strings.Contains(s.err.String(), want) || strings.Contains(s.err.String(), "abc") {
			t.Errorf("%s: %d: %s", arg, code, s.err.String())
		}
	}
	// A setting that a printout shows and nothing else of a policy has.
	s.write(s.config, "[profile prof-4711-xyz]\nfs = ro\n")
	s.env["NAMED"] = "prof-4711-xyz"
	if code := s.do("--print-policy", "--profile", "prof-4711-xyz", "--env", "NAMED", "--", "true"); code != 125 || !strings.Contains(s.err.String(), "env NAMED has a value that also stands in a path") {
		t.Errorf("%d: %s%s", code, s.out.String(), s.err.String())
	}
	if code := s.do("--print-policy", "--profile", "prof-4711-xyz", "--", "true"); code != 0 || !strings.Contains(s.out.String(), "prof-4711-xyz") {
		t.Errorf("%d: %s%s", code, s.out.String(), s.err.String())
	}
}

// A proxy with a password is refused, and what prints settings hides it all the same,
// wherever it stands.
func TestRefusedProxyIsHidden(t *testing.T) {
	const password = "sesame-open-1"
	for _, at := range []string{"file", "variable", "flag", "flag=", "profile"} {
		for _, proxy := range []string{"http://me:" + password + "@proxy.example.com:3128", "me:" + password + "@proxy.example.com", "http://me:x/y" + password + "@proxy.example.com:3128"} {
			s := newStage(t)
			var flags []string
			switch at {
			case "file":
				s.write(s.config, "upstream_proxy = "+proxy+"\n")
			case "profile":
				s.write(s.config, "[profile p]\nupstream_proxy = "+proxy+"\n")
				flags = []string{"--profile", "p"}
			case "variable":
				s.env["AISB_UPSTREAM_PROXY"] = proxy
			case "flag":
				flags = []string{"--upstream-proxy", proxy}
			case "flag=":
				flags = []string{"--upstream-proxy=" + proxy}
			}
			for _, verb := range [][]string{{"config"}, {"config", "--json"}, {"--print-policy"}, {"config", "--nonsense=" + proxy}} {
				s.do(append(verb, flags...)...)
				out := s.out.String() + s.err.String()
				if strings.Contains(out, password) || verb[0] == "config" && len(verb) < 2 && !strings.Contains(out, "me:[upstream_proxy]@proxy.example.com") {
					t.Errorf("%s, %q: %s", at, verb, out)
				}
			}
		}
	}
}
