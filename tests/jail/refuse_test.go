//go:build e2e

package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ai-sandbox/tests/e2e/drive"
)

// oneError tells whether all that ai-sandbox said is one error that matches the
// whole of the regular expression.
func oneError(r drive.Result, want string) bool {
	var errs []string
	for line := range strings.Lines(r.Err) {
		if strings.HasPrefix(line, "ai-sandbox: error: ") {
			errs = append(errs, strings.TrimSpace(line))
		}
	}
	return r.Out == "" && len(errs) == 1 && regexp.MustCompile(`^ai-sandbox: error: (?:`+want+`)$`).MatchString(errs[0])
}

// Each refusal is one sentence that says what to do, and nothing is started.
func TestRefusals(t *testing.T) {
	t.Parallel()
	fake := func(text string) string {
		return "PATH=" + fakeOf(t, "bwrap", text) + ":" + os.Getenv("PATH")
	}
	for name, tc := range map[string]struct {
		env  []string
		dir  string
		args []string
		wrap func(*exec.Cmd) *exec.Cmd
		want string // of the only error
	}{
		"no bwrap":             {wrap: hiding("bwrap"), args: []string{"--", "true"}, want: `bubblewrap is not installed; install it, or choose another runtime with --runtime podman`},
		"old bwrap":            {env: []string{fake("echo bubblewrap 0.7.0")}, args: []string{"--", "true"}, want: `bubblewrap is 0.7.0, and 0.8 or later is needed; install a newer one, .*--runtime podman`},
		"mute bwrap":           {env: []string{fake("exit 3")}, args: []string{"--", "true"}, want: `bubblewrap does not say its version \(.*\); repair it, .*--runtime podman`},
		"no user namespaces":   {args: []string{"--", "true"}, wrap: withUserNamespaces(0), want: `user.max_user_namespaces is 0, so nobody can make a user namespace; raise it with: sudo sysctl user.max_user_namespaces=\d+ \(bubblewrap says: .*\)`},
		"named gate":           {args: []string{"--gate", "some", "--", "true"}, want: `a named gate is for podman's runtime only; drop gate, or use the runtime podman \(from --gate, AISB_RUNTIME\)`},
		"image base":           {args: []string{"--base", "127.0.0.1:5000/x:y", "--", "true"}, want: `base \(from --base\) is about an image, and the local runtime has none; drop it, or use --runtime podman`},
		"image node":           {args: []string{"--node-version", "22.21.1", "--", "true"}, want: `node_version \(from --node-version\) is about an image, .*`},
		"image mirror":         {env: []string{"AISB_NODE_MIRROR=http://127.0.0.1:1"}, args: []string{"--", "true"}, want: `node_mirror \(from AISB_NODE_MIRROR\) is about an image, .*`},
		"ruleset":              {args: []string{"--print-entrypoint", "--", "true"}, want: `the local runtime installs no ruleset: .*--runtime podman`},
		"containerfile":        {args: []string{"--print-containerfile", "--", "true"}, want: `the local runtime has no image; .*--runtime podman`},
		"gated network":        {args: []string{"--net", "gated", "--", "true"}, want: `the local runtime's gated network is net unix; use that, or the runtime podman \(from --net, AISB_RUNTIME\)`},
		"unknown network":      {args: []string{"--net", "bridge", "--", "true"}, want: `.*net.*bridge.*`},
		"unknown engine":       {args: []string{"--gate-engine", "nginx", "--", "true"}, want: `.*gate_engine.*nginx.*`},
		"unknown runtime":      {args: []string{"--runtime", "docker", "--", "true"}, want: `.*runtime.*docker.*`},
		"harness not there":    {args: []string{"kiro"}, want: `kiro-cli is not installed on this machine, and the local runtime has no image; install it`},
		"home as project":      {dir: filepath.Join(w.own, "home"), args: []string{"--", "true"}, want: `the project would be your home .*; start ai-sandbox in the directory of one project`},
		"root as project":      {dir: "/", args: []string{"--", "true"}, want: `the project would be /, the whole machine; .*`},
		"system's project":     {dir: "/usr/lib", args: []string{"--", "true"}, want: `the project would be /usr/lib, in the system's /usr/lib; .*`},
		"state as project":     {dir: stateDir(), args: []string{"--", "true"}, want: `the project .* and ai-sandbox's state .* lie in one another; .*`},
		"runtime as project":   {dir: runtimeDir(), args: []string{"--", "true"}, want: `the project .* and ai-sandbox's runtime directory .* lie in one another; .*`},
		"empty entry":          {args: []string{"--allow", "", "--", "true"}, want: `--allow has an empty value; give it one or drop it`},
		"every host":           {args: []string{"--allow", "*", "--", "true"}, want: `allow entry "\*": it stands for every host; .*`},
		"injected entry":       {args: []string{"--allow", "x.ok.test\nhttp_access allow all", "--", "true"}, want: `allow entry "x.ok.test\\nhttp_access allow all": .*`},
		"no command":           {args: []string{"--"}, want: `no command follows .*`},
		"no CA file":           {args: []string{"--ca-file", "/nowhere.pem", "--", "true"}, want: `ca_file /nowhere.pem does not exist; .*`},
		"open runtime dir":     {env: []string{"XDG_RUNTIME_DIR=" + open(t)}, args: []string{"--", "true"}, want: `XDG_RUNTIME_DIR .* is open to other users; .*`},
		"whole harness home":   {env: []string{"AISB_RUNTIME=podman"}, args: []string{"--runtime", "local", "--fs", "rx", "--", "true"}, want: `.*fs.*rx.*`},
		"bwrap of the project": {wrap: hiding("bwrap"), env: []string{"PATH=.:" + os.Getenv("PATH")}, args: []string{"--", "true"}, want: `bubblewrap is not installed; .*`},
	} {
		if tc.wrap != nil && os.Getuid() != 0 {
			continue // see isolated; tests/jail/run runs these as root
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.Env = tc.env
			if tc.dir != "" {
				if err := os.MkdirAll(tc.dir, 0o700); err != nil {
					t.Fatal(err)
				}
				b.Dir = tc.dir
			} else {
				write(t, filepath.Join(b.Dir, "bwrap"), "#!/bin/sh\ntouch ran\n", 0o755)
			}
			var r drive.Result
			if tc.wrap == nil {
				r = b.Run(tc.args...)
			} else {
				r = b.runIn(tc.wrap, tc.args...)
			}
			if r.Code != 125 || !oneError(r, tc.want) {
				t.Errorf("want one sentence %q: %s", tc.want, r)
			}
			if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil {
				t.Error("bubblewrap of the project ran")
			}
		})
	}
	// The positive controls: without the fault it runs, also in a user namespace.
	b := newBox(t)
	if r := b.Run("--net", "none", "--", "true"); r.Code != 0 {
		t.Errorf("the positive control failed: %s", r)
	}
	if os.Getuid() != 0 {
		return
	}
	for _, wrap := range []func(*exec.Cmd) *exec.Cmd{withUserNamespaces(100), hiding("no-such-program")} {
		if r := b.runIn(wrap, "--net", "none", "--", "true"); r.Code != 0 {
			t.Errorf("the positive control failed: %s", r)
		}
	}
}

// fakeOf is a directory with a program of a name.
func fakeOf(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, name), "#!/bin/sh\n"+text+"\n", 0o755)
	return dir
}

// open is a directory that others can use.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The runtime is never chosen for the user: where podman's is not there, the
// refusal names the other, and how to make it the usual one.
func TestRuntimeIsNamed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.Env = []string{"AISB_RUNTIME=podman"}
	var r drive.Result
	if os.Getuid() == 0 {
		r = b.runIn(hiding("podman"), "--", "touch", "ran")
	} else {
		b.Env = append(b.Env, "PATH="+fakeOf(t, "podman", "echo podman version 4.3.1")+":"+os.Getenv("PATH"))
		r = b.Run("--", "touch", "ran")
	}
	if r.Code != 125 || !strings.Contains(r.Err, "--runtime local") || b.Size("ran") != 0 {
		t.Errorf("%s", r)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil {
		t.Error("it ran")
	}
	// As a key of the file it is the usual one; a flag and a variable beat it.
	config := t.TempDir()
	write(t, filepath.Join(config, "ai-sandbox", "config"), "runtime = local\n", 0o600)
	b.Env = []string{"AISB_RUNTIME=local", "XDG_CONFIG_HOME=" + config}
	if r := b.Run("--net", "none", "--", "true"); r.Code != 0 {
		t.Errorf("%s", r)
	}
}

// The doctor fails for what the chosen runtime needs, and tells the rest.
func TestDoctor(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK("doctor")
	for _, want := range []string{`(?m)^ok +bubblewrap +/\S+ 0\.\d+`, `(?m)^ok +user namespace `, `(?m)^(ok|-) +squid `, `(?m)^(ok|-) +podman `,
		`(?m)^ok +sandbox `, `(?m)^ok +bind mount `, `(?m)^ok +loopback `, `(?m)^ok +disk `, `(?m)^(ok|-) +clock `, `(?m)^(ok|-) +sessions `} {
		if !regexp.MustCompile(want).MatchString(r.Out) {
			t.Errorf("no %q: %s", want, r)
		}
	}
	if !w.testHost && !regexp.MustCompile(`(?m)^- +squid .*not installed.*builtin`).MatchString(r.Out) {
		t.Errorf("the squid that is not there: %s", r)
	}
	b.Env = []string{"PATH=" + fakeOf(t, "bwrap", "echo bubblewrap 0.7.0") + ":" + os.Getenv("PATH")}
	if r := b.Run("doctor"); r.Code != 1 || !regexp.MustCompile(`(?m)^FAIL bubblewrap +bubblewrap is 0.7.0`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	// For the other runtime, what is missing here is no failure of this one's.
	b.Env = append(b.Env, "AISB_RUNTIME=podman")
	if r := b.Run("doctor"); regexp.MustCompile(`(?m)^FAIL bubblewrap`).MatchString(r.Out) || !strings.Contains(r.Out, "bubblewrap is 0.7.0") {
		t.Errorf("%s", r)
	}
	// What is tried is broken by the bubblewrap that is found, just before the jail is there.
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string]string{
		"":                                `(?m)^ok +bind mount (.*\n)+ok +loopback `,
		"rm -f TMP/aisb-doctor-*/outside": `(?m)^FAIL bind mount +.*no such file.*\n +fix: +findmnt --target (.*\n)+ok +loopback `,
	} {
		tmp := t.TempDir()
		b.Env = []string{"TMPDIR=" + tmp, "PATH=" + fakeOf(t, "bwrap", strings.ReplaceAll(script, "TMP", tmp)+"\nexec bash -c 'exec -a \"$0\" "+real+` "$@"' "$0" "$@"`) + ":" + os.Getenv("PATH")}
		if r := b.Run("doctor"); !regexp.MustCompile(want).MatchString(r.Out) || (r.Code == 0) != (script == "") {
			t.Errorf("%q: %s", script, r)
		}
		if list, err := os.ReadDir(tmp); err != nil || len(list) > 0 {
			t.Errorf("%q: left: %v, %v", script, list, err)
		}
	}
	b.Env = nil
	if os.Getuid() != 0 {
		return // see isolated
	}
	if r := b.runIn(hiding("bwrap"), "doctor"); r.Code != 1 || !regexp.MustCompile(`(?m)^FAIL bubblewrap +bubblewrap is not installed`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	if r := b.runIn(withUserNamespaces(0), "doctor"); r.Code != 1 || !regexp.MustCompile(`(?m)^FAIL user namespace +user.max_user_namespaces is 0.*sysctl user.max_user_namespaces=`).MatchString(r.Out) {
		t.Errorf("%s", r)
	}
	if r := b.runIn(withUserNamespaces(100), "doctor"); r.Code != 0 {
		t.Errorf("the positive control failed: %s", r)
	}
}
