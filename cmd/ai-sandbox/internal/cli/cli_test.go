package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// A stage is a user with a home and a project, on a machine where nothing real
// is started.
type stage struct {
	t       testing.TB
	project string
	config  string // the user's file
	env     config.Environ
	engine  Engine

	ran    *RunRequest
	called []string
	// images is what there is, and configured what was asked about.
	images []ListedImage
	// cleaned is what clean comes across, and cleanFails how it ends.
	cleaned    []Cleaned
	cleanFails error
	configured []ImageRequest
	out        bytes.Buffer
	err        bytes.Buffer
}

func newStage(t testing.TB) *stage {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, project: filepath.Join(base, "home/dev/shop"), config: filepath.Join(base, "config/ai-sandbox/config")}
	bin, run := filepath.Join(base, "bin"), filepath.Join(base, "run")
	for _, d := range []string{s.project, filepath.Dir(s.config), bin, run} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.env = config.Environ{
		"HOME": filepath.Join(base, "home/dev"), "XDG_CONFIG_HOME": filepath.Join(base, "config"), "XDG_STATE_HOME": filepath.Join(base, "state"),
		"XDG_CACHE_HOME": filepath.Join(base, "cache"), "XDG_RUNTIME_DIR": run, "PATH": bin, "TERM": "xterm", "TOKEN": "canary-4711",
	}
	s.engine = Engine{
		Image: func(r ImageRequest) (ImagePlan, error) {
			i := policy.Image{Ref: "localhost/ai-sandbox:0123456789ab", BaseRef: r.Base, BaseDigest: "sha256:" + strings.Repeat("ab", 32), GateRef: "localhost/ai-sandbox-gate:ba98", Apt: r.Apt}
			for _, name := range r.Harnesses {
				i.Harnesses = append(i.Harnesses, policy.Harness{Name: name, Version: "1.0.0"})
			}
			if r.Setup.Text != nil {
				i.Setup = &policy.Setup{Path: r.Setup.Path, SHA256: image.SetupSHA256(r.Setup.Text)}
			}
			return ImagePlan{Image: i, Containerfile: "FROM " + r.Base + "\n"}, nil
		},
		Ruleset: func(p policy.Policy) (string, error) { return "table inet aisb { # " + p.Net.Mode + "\n}\n", nil },
		DryRun:  func(RunRequest) ([]Section, error) { return []Section{{"squid.conf", "http_access deny all\n"}}, nil },
		GateNet: func(_ Machine, name string) (policy.Net, error) {
			if name != "work" {
				return policy.Net{}, fmt.Errorf("gate %s: no such gate", name)
			}
			e, err := policy.ParseEntry("gate.example.com")
			return policy.Net{Allow: []policy.Entry{e}}, err
		},
		Run: func(_ context.Context, r RunRequest) (int, error) { s.ran = &r; return 0, nil },
		Build: func(_ context.Context, r BuildRequest) error {
			s.called = append(s.called, fmt.Sprint("build ", r.Rebuild))
			return nil
		},
		Update: func(_ context.Context, r BuildRequest, check bool) (imagebuild.Outcome, error) {
			s.called = append(s.called, fmt.Sprint("update ", check, r.Image.BaseTTL, r.Image.KeepBase, r.Image.NoPull))
			return imagebuild.Outcome{}, nil
		},
		Inspect: func(_ context.Context, _ BuildRequest, what string, offline bool) (Inspection, error) {
			s.called = append(s.called, fmt.Sprint("inspect ", what, offline))
			return Inspection{}, nil
		},
		Clean: func(_ context.Context, r CleanRequest) error {
			s.called = append(s.called, fmt.Sprint("clean ", r.All, r.DryRun, r.Homes))
			for _, c := range s.cleaned {
				r.Tell(c)
			}
			if r.All {
				return r.Confirm(2)
			}
			return s.cleanFails
		},
		ImageSave: func(_ context.Context, _ BuildRequest, path string) error {
			s.called = append(s.called, "save "+path)
			return nil
		},
		ImageLoad: func(_ context.Context, _ BuildRequest, path string) error {
			s.called = append(s.called, "load "+path)
			return nil
		},
		Images: func(_ context.Context, r ImagesRequest) ([]ListedImage, error) {
			s.configured = r.Configured
			return s.images, nil
		},
		CleanImages: func(_ context.Context, r ImagesRequest, dry bool, _ func(Cleaned)) error {
			s.called, s.configured = append(s.called, fmt.Sprint("clean images ", dry)), r.Configured
			return nil
		},
		GateUp: func(_ context.Context, _ BuildRequest, g GateRequest) error {
			s.called = append(s.called, fmt.Sprint("up ", g.Name, g.Net.Allow, g.Net.AllowPrivate, g.TTL, g.Given))
			return nil
		},
		GateDown: func(_ context.Context, _ Machine, name string) error {
			s.called = append(s.called, "down "+name)
			return nil
		},
		GateList: func(context.Context, Machine) ([]GateState, error) {
			s.called = append(s.called, "ls")
			return []GateState{{Name: "work", State: "up", Port: 20001, Allow: []string{"a.example.com"}, AllowPrivate: []string{"b.test:81"}}}, nil
		},
		GateUnit: func(_ context.Context, _ BuildRequest, g GateRequest, dir string) error {
			s.called = append(s.called, fmt.Sprint("unit ", g.Name, g.Net.Allow, g.TTL, strings.HasSuffix(dir, "/config/containers/systemd")))
			return nil
		},
		GateUnitRemove: func(_ context.Context, _ Machine, name string) error {
			s.called = append(s.called, "unit away "+name)
			return nil
		},
		GateGiven: func(_ Machine, name string) ([][2]string, error) {
			return [][2]string{{"allow", "given.example.com"}, {"allow_private", "127.0.0.1:1"}}, nil
		},
		GateReload: func(_ context.Context, _ Machine, g GateRequest) (session.Reloaded, error) {
			s.called = append(s.called, fmt.Sprint("reload ", g.Name, g.Net.Allow, g.Net.AllowPrivate, g.Given))
			return session.Reloaded{Hash: "0a", Added: []string{"b.example.com"}, Removed: []string{"a.example.com"}, Sessions: []string{"00000000000a"}, Cut: 2}, nil
		},
		NamedLog: func(_ context.Context, _ Machine, name string, follow bool, f func(gate.Event) error) error {
			s.called = append(s.called, fmt.Sprint("named log ", name, follow))
			for _, e := range []gate.Event{{Session: "00000000000a", Host: "a.test", Verdict: gate.VerdictRefused, Rule: "name"}, {Session: "00000000000b", Host: "b.test", Verdict: gate.VerdictAllowed}} {
				if err := f(e); err != nil {
					return err
				}
			}
			return nil
		},
		GateNames: func(Machine) ([]string, error) { return []string{"work", "wide"}, nil },
		Doctor: func(context.Context, Machine, ImageRequest) []host.Verdict {
			return []host.Verdict{{Name: "podman service", Detail: "answers"}}
		},
		Trial: func(_ context.Context, r RunRequest, dir string) []host.Verdict {
			return []host.Verdict{{Name: "sandbox", Detail: fmt.Sprint("in ", r.Policy.Project == dir, r.Policy.Home.Ephemeral)}}
		},
	}
	t.Chdir(s.project)
	return s
}

func (s *stage) write(path, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// do runs a command line and returns its exit code.
func (s *stage) do(args ...string) int {
	s.out.Reset()
	s.err.Reset()
	s.ran, s.called = nil, nil
	return Main(context.Background(), args, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
}

// policy is what --print-policy=json says.
func (s *stage) policy(args ...string) policy.Policy {
	s.t.Helper()
	if code := s.do(append([]string{"--print-policy=json"}, args...)...); code != 0 {
		s.t.Fatalf("exit %d: %s", code, s.err.String())
	}
	var p policy.Policy
	if err := json.Unmarshal(s.out.Bytes(), &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func texts(list []policy.Entry) string {
	var out []string
	for _, e := range list {
		out = append(out, e.String())
	}
	return strings.Join(out, " ")
}

// What the layers say reaches the policy.
func TestLayersReachPolicy(t *testing.T) {
	s := newStage(t)
	s.write(s.config, "allow = a.example.com\nallow_private = 127.0.0.1:5432\nbase = registry.example.com/x:1\n")
	s.env["AISB_ALLOW"] = "b.example.com"
	p := s.policy("--allow", "c.example.com", "--env", "TOKEN", "--env", "MODE=fast", "pi", "-p", "hi")
	if got := texts(p.Net.Allow); got != "a.example.com b.example.com c.example.com" {
		t.Errorf("allow %s", got)
	}
	if got := texts(p.Net.AllowPrivate); got != "127.0.0.1:5432" {
		t.Errorf("private %s", got)
	}
	if !reflect.DeepEqual(p.Command, []string{"pi", "--thinking", "xhigh", "-p", "hi"}) || p.Harness != "pi" || p.Image.BaseRef != "registry.example.com/x:1" {
		t.Errorf("policy %+v", p)
	}
	if p.Project != s.project {
		t.Errorf("project %s", p.Project)
	}
	if bytes.Contains(s.out.Bytes(), []byte("canary")) {
		t.Error("a value of the environment is printed")
	}
	s.env["AISB_ALLOW"] = ""
	if got := texts(s.policy().Net.Allow); got != "" {
		t.Errorf("emptied by the environment: %s", got)
	}
}

func TestPrintouts(t *testing.T) {
	s := newStage(t)
	s.tools("podman version 5.4.2") // not to be asked
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--print-policy"}, []string{"command      pi --thinking xhigh\n", "allow      nothing"}},
		{[]string{"--dry-run", "--net", "none", "--", "true"}, []string{"command      true\n", "network      none", "\n--- squid.conf ---\nhttp_access deny all\n"}},
		{[]string{"--print-entrypoint"}, []string{"table inet aisb { # gated\n}\n"}},
		{[]string{"--print-containerfile"}, []string{"FROM docker.io/library/debian:trixie-slim\n"}},
	} {
		if code := s.do(tc.args...); code != 0 {
			t.Errorf("%v: exit %d: %s", tc.args, code, s.err.String())
		}
		for _, w := range tc.want {
			if !strings.Contains(s.out.String(), w) {
				t.Errorf("%v: no %q in\n%s", tc.args, w, s.out.String())
			}
		}
		first := s.out.String()
		s.do(tc.args...)
		if s.out.String() != first {
			t.Errorf("%v differs the second time", tc.args)
		}
	}
	if s.ran != nil {
		t.Error("something was started")
	}
	if _, err := os.Stat(s.env["XDG_STATE_HOME"]); err == nil {
		t.Error("a printout wrote state")
	}
	s.do("--print-policy", "--net", "none")
	if strings.Contains(s.out.String(), "gate image") {
		t.Error("a gate is named without a network")
	}
}

// Refusals and warnings, each with its stream and its code.
func TestMessages(t *testing.T) {
	s := newStage(t)
	s.write(filepath.Join(filepath.Dir(s.project), "ca.pem"), "nothing")
	for _, tc := range []struct {
		args []string
		code int
		want string // all of stderr
	}{
		{[]string{"--print-policy", "--allow", "http://x.example.com/"}, 125,
			"ai-sandbox: error: allow entry \"http://x.example.com/\": it is a URL, and an entry is a host; write x.example.com (from --allow)\n"},
		{[]string{"--print-policy", "--allow", ""}, 125, "ai-sandbox: error: --allow has an empty value; give it one or drop it\n"},
		{[]string{"--print-policy", "--allow", "a\x1b[2Jb"}, 125, ""},
		{[]string{"--nte", "none", "pi"}, 125,
			"ai-sandbox: error: unknown flag --nte; did you mean --net?\nai-sandbox: hint: a flag for the harness goes after its name: ai-sandbox pi --nte\n"},
		{[]string{"--print-policy", "--runtime", "local", "pi"}, 125, "ai-sandbox: error: pi is not installed on this machine, and the local runtime has no image; " +
			"install it (npm install -g @earendil-works/pi-coding-agent), or use --runtime podman\n"},
		{[]string{"--print-policy", "--runtime", "local", "--base", "registry.example.com/x:1", "--", "true"}, 125,
			"ai-sandbox: error: base (from --base) is about an image, and the local runtime has none; drop it, or use --runtime podman\n"},
		{[]string{"--print-policy", "--runtime", "local", "--net", "gated", "--", "true"}, 125,
			"ai-sandbox: error: the local runtime's gated network is net unix; use that, or the runtime podman (from --net, --runtime)\n"},
		{[]string{"--print-policy", "--runtime", "local", "--gate", "work", "--", "true"}, 125,
			"ai-sandbox: error: a named gate is for podman's runtime only; drop gate, or use the runtime podman (from --gate, --runtime)\n"},
		{[]string{"--print-entrypoint", "--runtime", "local", "--net", "none", "--", "true"}, 125,
			"ai-sandbox: error: the local runtime installs no ruleset: its network has no device; drop --print-entrypoint, or use --runtime podman\n"},
		{[]string{"--print-containerfile", "--runtime", "local", "--net", "none", "--", "true"}, 125,
			"ai-sandbox: error: the local runtime has no image; drop --print-containerfile, or use --runtime podman\n"},
		{[]string{"--print-policy", "--runtime", "local", "--net", "host", "--allow", "a.example.com", "--", "true"}, 0,
			"ai-sandbox: warning: --allow has no effect with --net host: everything can be reached\n"},
		{[]string{"--print-policy", "--net", "host"}, 125, "ai-sandbox: error: podman's runtime has no net host; use gated, unix or none (from --net)\n"},
		{[]string{"--print-policy", "claude"}, 125, "ai-sandbox: error: podman's image has no claude; use --harness-packages pi,claude (harness_packages in a file), or --runtime local with one that is installed on this machine\n"},
		{[]string{"--print-policy", "--harness-packages", "codex"}, 125, "ai-sandbox: error: podman's image has no pi; use --harness-packages codex,pi (harness_packages in a file), or --runtime local with one that is installed on this machine\n"},
		{[]string{"--print-policy", "kiro"}, 125, "ai-sandbox: error: podman's image has no kiro, and npm has no package of it; use --runtime local with one that is installed on this machine\n"},
		{[]string{"--print-policy", "--harness-packages", "claude, codex", "claude"}, 0, "ai-sandbox: the allowlist is empty, so the gate refuses every host; --allow HOST lets one through\n" +
			"ai-sandbox: claude has its model at api.anthropic.com, which the allowlist does not let through; add: --allow api.anthropic.com\n"},
		{[]string{"--print-policy", "--harness-packages", "pi,kiro"}, 125, "ai-sandbox: error: harness_packages: \"kiro\" can't be put into the image (from --harness-packages); write one of " + strings.Join(harness.Packaged(), ", ") + ", or several with commas between them\n"},
		{[]string{"--print-policy", "--apt", "gcc", "--apt", "gcc;id"}, 125, "ai-sandbox: error: apt: \"gcc;id\" is not the name of a Debian package (from --apt); write NAME, or NAME=VERSION\n"},
		{[]string{"--print-policy", "--apt", "gcc", "--apt", "gcc=1"}, 125, "ai-sandbox: error: apt: gcc and gcc=1 are two versions of one package (from --apt); keep one of them\n"},
		{[]string{"--print-policy", "--setup", "x.sh"}, 125, "ai-sandbox: error: setup leads into the project, where a sandboxed command can change it (from --setup); keep it elsewhere, or name it in the project's .ai-sandbox/config and trust that\n"},
		{[]string{"--print-policy", "--setup", "/nowhere/x.sh"}, 125, "ai-sandbox: error: setup /nowhere/x.sh does not exist (from --setup); name a script\n"},
		{[]string{"--print-policy", "--runtime", "local", "--apt", "gcc", "--", "true"}, 125, "ai-sandbox: error: apt (from --apt) is about an image, and the local runtime has none; drop it, or use --runtime podman\n"},
		{[]string{"--print-policy", "--bind-harness-home", "pi"}, 125, "ai-sandbox: error: bind_harness_home is for the local runtime; drop it, or use the runtime local (from --bind-harness-home)\n"},
		{[]string{"--print-policy", "--env", "NOPE", "--env", "HOME"}, 125,
			"ai-sandbox: error: env NOPE is unset or empty here; give it a value, or don't pass it (from --env)\nai-sandbox: error: env HOME is set by ai-sandbox itself; drop it (from --env)\n"},
		{[]string{"--print-policy", "--ca-file", "../ca.pem"}, 125, "ai-sandbox: error: ca_file " + filepath.Dir(s.project) + "/ca.pem holds no certificate; name a file of CA certificates in PEM form (from --ca-file)\n"},
		{[]string{"--print-policy", "--ca-file", "../nope.pem"}, 125, "ai-sandbox: error: ca_file " + filepath.Dir(s.project) + "/nope.pem does not exist; name a file of CA certificates in PEM form (from --ca-file)\n"},
		{[]string{"--print-policy", "--gate", "other"}, 125, "ai-sandbox: error: gate other: no such gate (from --gate)\n"},
		{[]string{"--print-policy", "--gate", "work", "--allow", "a.example.com"}, 125,
			"ai-sandbox: error: the list of gate work is its own; give --allow to \"gate up\" or \"gate reload\" instead\n"},
		{[]string{"--print-policy", "--cache-dir", ".."}, 125,
			"ai-sandbox: error: the project " + s.project + " and ai-sandbox's cache " + filepath.Dir(s.project) + " lie in one another; start ai-sandbox in the directory of one project\n"},
		{[]string{"--print-policy"}, 0, "ai-sandbox: the allowlist is empty, so the gate refuses every host; --allow HOST lets one through\n"},
		{[]string{"--print-policy", "--gate", "work"}, 0, ""},
		{[]string{"--print-policy", "--net", "none"}, 0, ""},
		{[]string{"--print-policy", "--net", "none", "--allow", "a.example.com"}, 0, "ai-sandbox: warning: --allow has no effect with --net none: nothing can be reached\n"},
		{[]string{"--print-policy", "--allow", "a.example.com", "pi", "--net", "none"}, 0,
			"ai-sandbox: warning: --net comes after pi, so pi gets it; put it first if it is meant for ai-sandbox\n"},
		{[]string{"build", "x"}, 2, "ai-sandbox: error: build takes no argument x; drop it\n"},
		{[]string{"help", "gate", "x"}, 2, "ai-sandbox: error: gate x is not a verb; write: ai-sandbox help gate\n"},
		{[]string{"help", "x"}, 2, "ai-sandbox: error: x is not a verb; choose from allow, build, clean, completion, config, deny, doctor, down, exec, explain, gate, help, image, images, inspect, log, logs, ls, manual, policy, rm, stop, trust, up, update, version, wait\n"},
	} {
		code := s.do(tc.args...)
		if code != tc.code || tc.want != "" && s.err.String() != tc.want || code == 0 && tc.want != s.err.String() {
			t.Errorf("%q: exit %d\n%swant exit %d\n%s", tc.args, code, s.err.String(), tc.code, tc.want)
		}
		if strings.ContainsAny(s.err.String(), "\x1b") || code != 0 && s.out.Len() > 0 {
			t.Errorf("%q: stdout %q, stderr %q", tc.args, s.out.String(), s.err.String())
		}
	}
	t.Chdir(s.env["HOME"])
	if code := s.do("--print-policy"); code != 125 || s.err.String() != "ai-sandbox: error: the project would be your home "+s.env["HOME"]+", with everything in it; start ai-sandbox in the directory of one project\n" {
		t.Errorf("in the home: exit %d: %s", code, s.err.String())
	}
	t.Chdir(s.project)
	s.write(s.config, "nte = none\n")
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), s.config+":1); did you mean net?") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}

// The project can't lead ai-sandbox to another configuration.
func TestSteered(t *testing.T) {
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "CONTAINERS_CONF", "TMPDIR", "SSL_CERT_FILE"} {
		s := newStage(t)
		s.env[name] = filepath.Join(s.project, "planted")
		s.write(filepath.Join(s.project, "planted/ai-sandbox/config"), "allow = evil.example.com\n")
		if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), name) || !strings.Contains(s.err.String(), "must be absolute and outside the project") {
			t.Errorf("%s: exit %d: %s", name, code, s.err.String())
		}
	}
	s := newStage(t)
	s.write(filepath.Join(s.project, "dotfile"), "allow = evil.example.com\n")
	if err := os.Symlink(filepath.Join(s.project, "dotfile"), s.config); err != nil {
		t.Fatal(err)
	}
	if code := s.do("--print-policy"); code != 125 || !strings.Contains(s.err.String(), s.config+" must be absolute and outside the project") {
		t.Errorf("a link into the project: exit %d: %s", code, s.err.String())
	}

	// A file of variables in the project is nothing to ai-sandbox, wherever its
	// names lead; the same in the environment counts.
	s = newStage(t)
	for _, name := range []string{".env", ".envrc", "config", "ai-sandbox/config", ".config/ai-sandbox/config"} {
		s.write(filepath.Join(s.project, name), "AISB_ALLOW=evil.example.com\nXDG_CONFIG_HOME="+s.project+"\nallow=evil.example.com\n")
	}
	if p := s.policy("--allow", "a.example.com"); texts(p.Net.Allow) != "a.example.com" {
		t.Errorf("allow %s", texts(p.Net.Allow))
	}
	s.env["AISB_ALLOW"] = "b.example.com"
	if p := s.policy("--allow", "a.example.com"); texts(p.Net.Allow) != "a.example.com b.example.com" {
		t.Errorf("allow %s", texts(p.Net.Allow))
	}
}

// Nor can another place that a sandbox writes.
func TestUnsteered(t *testing.T) {
	s := newStage(t)
	base := filepath.Dir(filepath.Dir(filepath.Dir(s.config)))
	for _, d := range []string{"dotfiles/ai-sandbox", "mine"} {
		s.write(filepath.Join(base, d, "config"), "")
	}
	// The configuration is outside of dotfiles, by a link that lies there.
	for link, to := range map[string]string{filepath.Join(base, "dotfiles/out"): filepath.Join(base, "mine"), s.config: filepath.Join(base, "dotfiles/out/config")} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	a := &app{env: s.env}
	for _, tc := range []struct {
		mount policy.Mount
		bad   bool
	}{
		{policy.Mount{Kind: policy.KindBind, Source: filepath.Join(base, "dotfiles")}, true},
		{policy.Mount{Kind: policy.KindBind, Source: filepath.Join(base, "dotfiles"), ReadOnly: true}, false},
		{policy.Mount{Kind: policy.KindBind, Source: filepath.Join(base, "mine")}, true},
		{policy.Mount{Kind: policy.KindBind, Source: filepath.Join(base, "dotfiles/ai-sandbox")}, false},
		{policy.Mount{Kind: policy.KindBind, Source: s.env["XDG_STATE_HOME"]}, true},
		{policy.Mount{Kind: policy.KindBind, Source: filepath.Join(s.env["XDG_STATE_HOME"], "ai-sandbox/homes/x")}, false},
		{policy.Mount{Kind: policy.KindVolume, Source: filepath.Join(base, "dotfiles")}, false},
	} {
		if err := a.unsteered(policy.Policy{Mounts: []policy.Mount{tc.mount}}); (err != nil) != tc.bad {
			t.Errorf("%+v: %v", tc.mount, err)
		}
	}
}

// tools makes a podman and a pasta that are good enough, and reports whether
// this test runs as root, which no run may.
func (s *stage) tools(podman string) (root bool) {
	bin := s.env["PATH"]
	for name, says := range map[string]string{"podman": podman, "pasta": "--map-host-loopback"} {
		s.write(filepath.Join(bin, name), "#!/bin/sh\necho '"+says+"'\n")
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	return os.Getuid() == 0
}

// A run goes as far as the machine allows: what is missing is named, and as
// root nothing starts at all.
func TestPreflight(t *testing.T) {
	s := newStage(t)
	s.tools("podman version 4.3.1")
	if code := s.do("--allow", "a.example.com", "pi"); code != 125 || s.ran != nil ||
		!strings.Contains(s.err.String(), "ai-sandbox: error: podman is 4.3.1, and 5 or later is needed; install a newer one, or choose another runtime with --runtime local (in the configuration file: runtime = local)\n") {
		t.Errorf("exit %d, ran %v: %s", code, s.ran != nil, s.err.String())
	}
	s.tools("podman version 5.4.2")
	s.env["CONTAINER_HOST"] = "ssh://elsewhere"
	if code := s.do("--allow", "a.example.com", "pi"); code != 125 || s.ran != nil || !strings.Contains(s.err.String(), "unset CONTAINER_HOST\n") {
		t.Errorf("exit %d, ran %v: %s", code, s.ran != nil, s.err.String())
	}
	if os.Getuid() == 0 && !strings.Contains(s.err.String(), "podman's runtime must not run as root; start ai-sandbox as a normal user, or choose another runtime with --runtime local (in the configuration file: runtime = local)\n") {
		t.Errorf("as root: %s", s.err.String())
	}
	if code := s.do("doctor"); code != 1 || !strings.Contains(s.out.String(), "FAIL service") || !strings.Contains(s.out.String(), "  fix:             unset CONTAINER_HOST") {
		t.Errorf("doctor: exit %d\n%s", code, s.out.String())
	}
	var d struct {
		OK     bool
		Checks []check
	}
	if code := s.do("doctor", "--json"); code != 1 || json.Unmarshal(s.out.Bytes(), &d) != nil || d.OK ||
		!slices.Contains(d.Checks, check{Name: "service", Needed: true, Problem: "CONTAINER_HOST points at another podman service, which can't be trusted to enforce anything here; unset CONTAINER_HOST", Fix: "unset CONTAINER_HOST"}) {
		t.Errorf("doctor --json: exit %d\n%s", code, s.out.String())
	}
}

// What the doctor tries has a project of its own, and none of the user's settings but
// those about the runtime and the images.
func TestDoctorTries(t *testing.T) {
	s := newStage(t)
	s.write(s.config, "base = docker.io/library/debian:bookworm\npublish = 80\nmount = ~/nowhere\nenv = NOT_SET\nallow = a.example.com\n")
	var tried *RunRequest
	s.engine.Trial = func(_ context.Context, r RunRequest, dir string) []host.Verdict {
		tried = &r
		if r.Policy.Project != dir || r.Facts.Project.Path != dir {
			t.Errorf("in %s, not %s", r.Policy.Project, dir)
		}
		return []host.Verdict{{Name: "sandbox", Problem: "planted", Fix: "ai-sandbox build"}}
	}
	a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
	a.cwd = s.project
	user, err1 := config.ReadFile(s.config)
	settings, err2 := config.Layers{User: user}.Settle()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	machine := host.Facts{SearchPath: []string{"/elsewhere"}, Podman: host.Tool{Path: "/elsewhere/podman"}, Tools: map[string]bool{policy.RuntimePodman: true}}
	got := a.tryRun(settings, machine)
	if len(got) != 1 || got[0].Problem != "planted" || tried == nil {
		t.Fatalf("%+v", got)
	}
	p := tried.Policy
	// No program is looked for from there: in another project it would be one of the
	// first's.
	if !slices.Equal(tried.Facts.SearchPath, machine.SearchPath) || tried.Facts.Podman != machine.Podman {
		t.Errorf("programs %v, %+v", tried.Facts.SearchPath, tried.Facts.Podman)
	}
	if len(p.Publish)+len(p.Net.Allow) > 0 || !p.Home.Ephemeral || p.Image.BaseRef != "docker.io/library/debian:bookworm" || !tried.Image.KeepBase || s.err.Len() > 0 {
		t.Errorf("%+v: %s", p, s.err.String())
	}
	if _, err := os.Stat(p.Project); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the project stays: %v", err)
	}
}

// On a terminal a check's text stays beside its name, and its command is whole.
func TestDoctorText(t *testing.T) {
	list := []host.Verdict{
		{Name: "podman", Problem: "podman is not installed; install podman 5 or later, or choose another runtime with --runtime local", Fix: "sudo apt-get install podman and whatever else there is to be said beyond the width"},
		host.NotTried("sandbox", "mend podman first", "sudo apt-get install podman"),
		{Name: "disk", Detail: "enough"},
	}
	const plain = "FAIL podman             podman is not installed; install podman 5 or later, or choose another runtime with --runtime local\n" +
		"       fix:             sudo apt-get install podman and whatever else there is to be said beyond the width\n" +
		"-    sandbox            not tried: mend podman first\n" +
		"ok   disk               enough\n"
	if got := doctorText(list, 0); got != plain {
		t.Errorf("%s", got)
	}
	const narrow = "FAIL podman             podman is not installed; install podman 5 or later, or\n" +
		"                        choose another runtime with --runtime local\n" +
		"       fix:             sudo apt-get install podman and whatever else there is to be said beyond the width\n" +
		"-    sandbox            not tried: mend podman first\n" +
		"ok   disk               enough\n"
	if got := doctorText(list, 80); got != narrow {
		t.Errorf("%s", got)
	}
	if got := hang("a-word-that-is-longer-than-the-width and another", 10, 2); got != "a-word-that-is-longer-than-the-width\n  and\n  another" {
		t.Errorf("%q", got)
	}
}

// The request that a run makes, and its exit codes. The preflight is the
// machine's; here it is passed over.
func TestRun(t *testing.T) {
	s := newStage(t)
	run := func(args ...string) int {
		t.Helper()
		s.err.Reset()
		inv, err := Split(args)
		if err != nil {
			t.Fatal(err)
		}
		a := newApp(context.Background(), nil, s.env, Streams{Out: &s.out, Err: &s.err}, s.engine)
		a.cwd = s.project
		set, err := a.prepare([]config.Item{{Key: "env", Value: "TOKEN", Origin: "--env"}, {Key: "report", Value: "r.json", Origin: "--report"}}, forLook)
		if err != nil {
			t.Fatal(err)
		}
		err = a.start(inv, set, false)
		if err != nil {
			printError(&s.err, err, a.text)
		}
		return ExitCode(err)
	}
	if code := run("pi", "-p", "hi"); code != 0 || s.ran == nil {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if want := map[string]policy.Secret{"TERM": policy.NewSecret("TERM", "xterm"), "TOKEN": policy.NewSecret("TOKEN", "canary-4711")}; !reflect.DeepEqual(s.ran.Values, want) {
		t.Errorf("values %v", s.ran.Values)
	}
	if s.ran.Report != filepath.Join(s.project, "r.json") || s.ran.Facts.Project.Ino == 0 {
		t.Errorf("report %q, project %+v", s.ran.Report, s.ran.Facts.Project)
	}
	for _, tc := range []struct {
		code, want int
		err        error
	}{{0, 0, nil}, {3, 3, nil}, {77, 77, nil}, {137, 137, nil}, {0, 125, errors.New("x")}, {77, 77, errors.New("x")}} {
		s.engine.Run = func(context.Context, RunRequest) (int, error) { return tc.code, tc.err }
		code := run("pi")
		if code != tc.want || (tc.err != nil) != strings.Contains(s.err.String(), "error: x") {
			t.Errorf("%+v: exit %d: %s", tc, code, s.err.String())
		}
	}
}

func TestVerbs(t *testing.T) {
	s := newStage(t)
	root := s.tools("podman version 5.4.2")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"build"}, "build false"},
		{[]string{"build", "--rebuild"}, "build true"},
		{[]string{"update", "--base-ttl-days", "3"}, "update false3falsefalse"},
		{[]string{"inspect", "--offline", "0123456789ab"}, "inspect 0123456789abtrue"},
		{[]string{"clean"}, "clean false false"},
		{[]string{"clean", "--volumes", "--dry-run"}, "clean false true*"},
		{[]string{"clean", "--all", "--yes", "--volumes=aisb-home-a*"}, "clean true falseaisb-home-a*"},
		{[]string{"clean", "--images", "--dry-run"}, "clean false true,clean images true"},
		{[]string{"gate", "up", "work", "--allow", "b.example.com", "--allow", "a.example.com", "--allow-private", "127.0.0.1:1"}, "up work[a.example.com b.example.com] [127.0.0.1:1]8h0m0s[[allow b.example.com] [allow a.example.com] [allow_private 127.0.0.1:1]]"},
		{[]string{"gate", "up", "work", "--ttl", "none"}, "up work[] []0s[]"},
		{[]string{"gate", "unit", "work", "--allow", "a.example.com"}, "unit work[a.example.com]0strue"},
		{[]string{"gate", "unit", "work", "--remove"}, "unit away work"},
		{[]string{"gate", "reload", "work"}, "reload work[given.example.com] [127.0.0.1:1][[allow given.example.com] [allow_private 127.0.0.1:1]]"},
		{[]string{"gate", "reload", "work", "--allow", "b.example.com"}, "reload work[b.example.com] [][[allow b.example.com]]"},
		{[]string{"gate", "logs", "work", "--follow", "--json"}, "named log worktrue"},
		{[]string{"gate", "down", "work"}, "down work"},
		{[]string{"gate", "ls"}, "ls"},
		{[]string{"image", "save", "a.tar"}, "save " + filepath.Join(s.project, "a.tar")},
		{[]string{"image", "load", "/b/../a.tar"}, "load /a.tar"},
	} {
		code := s.do(tc.args...)
		// Where the machine is not good enough the verb is refused with 1.
		if refused := strings.Contains(s.err.String(), "ai-sandbox: error:"); refused {
			if code != exitVerbFailed || len(s.called) > 0 {
				t.Errorf("%q: exit %d, %v: %s", tc.args, code, s.called, s.err.String())
			}
			if root && !strings.Contains(s.err.String(), "must not run as root") {
				t.Errorf("%q: %s", tc.args, s.err.String())
			}
			continue
		}
		if code != 0 || strings.Join(s.called, ",") != tc.want {
			t.Errorf("%q: exit %d, %q: %s", tc.args, code, s.called, s.err.String())
		}
	}
}

func TestHelp(t *testing.T) {
	s := newStage(t)
	paths := [][]string{{}, {"--help"}, {"help"}, {"help", "help"}}
	parent := map[string]bool{}
	for _, v := range verbs() {
		paths = append(paths, []string{"help", v.name}, []string{v.name, "-h"})
		parent["help "+v.name], parent[v.name+" -h"] = len(v.subs) > 0, len(v.subs) > 0
		for _, sub := range v.subs {
			paths = append(paths, []string{"help", v.name, sub.name}, []string{v.name, sub.name, "--help"})
		}
	}
	for _, p := range paths {
		if code := s.do(p...); code != 0 || s.err.Len() > 0 {
			t.Errorf("%q: exit %d: %s", p, code, s.err.String())
		}
		out := s.out.String()
		for _, part := range []string{"Usage\n", "Examples\n", "Exit status\n"} {
			if parent[strings.Join(p, " ")] && part == "Exit status\n" {
				part = "Flags and exit codes of each: ai-sandbox help "
			}
			if !strings.Contains(out, part) {
				t.Errorf("%q has no %q", p, part)
			}
		}
		for line := range strings.Lines(out) {
			if len(strings.TrimRight(line, "\n")) > helpWidth {
				t.Errorf("%q: %s", p, line)
			}
			if strings.Contains(line, "{{") || strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
				t.Errorf("%q: %q", p, line)
			}
		}
	}
	s.do("--help")
	for _, o := range config.Options {
		if o.In(config.InFlag) && !strings.Contains(s.out.String(), "--"+o.Flag()) {
			t.Errorf("the help does not name --%s", o.Flag())
		}
	}
}

// testCA is the certificate of a CA, in PEM form.
func testCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// The CA that reaches the image is what was parsed, and nothing else.
func TestReadCA(t *testing.T) {
	cert := string(testCA(t))
	file := filepath.Join(t.TempDir(), "ca.pem")
	for text, want := range map[string]string{
		"# mine\n" + cert + "RUN id\n" + cert: cert + cert,

		"":     "",
		"text": "",
		cert + strings.ReplaceAll(cert, "CERTIFICATE", "PUBLIC KEY"):            "",
		cert + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n":        "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readCA(file)
		if string(got.PEM()) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got.PEM(), err)
		}
	}
}
