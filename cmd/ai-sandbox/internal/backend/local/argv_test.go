package local

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/policy"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (make it with -update):\n%s", path, got)
	}
}

// sandbox is one of a policy that policy itself makes.
func sandbox(t *testing.T, change func(*policy.Input)) backend.Sandbox {
	t.Helper()
	b, err := trySandbox(change)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// trySandbox is sandbox for what may be refused.
func trySandbox(change func(*policy.Input)) (backend.Sandbox, error) {
	in := policy.Input{
		Runtime: policy.RuntimeLocal, Command: []string{"claude"},
		Limits: policy.LimitInputs{Disk: policy.LimitInput{Text: "3g"}},
		Facts: policy.Facts{
			Project: "/home/dev/my shop", RuntimeDir: "/run/user/1001/ai-sandbox",
			Local: policy.LocalFacts{
				Homes: "/home/dev/.local/state/ai-sandbox/homes",
				System: []policy.Mount{
					{Kind: policy.KindBind, Source: "/usr", Target: "/usr", ReadOnly: true},
					{Kind: policy.KindSymlink, Source: "usr/bin", Target: "/bin"},
				},
				Tools: []policy.Mount{{Kind: policy.KindBind, Source: "/home/dev/.nvm/versions/node/v22/bin", Target: "/home/dev/.nvm/versions/node/v22/bin", ReadOnly: true}},
			},
		},
	}
	change(&in)
	p, err := policy.Resolve(in)
	if err != nil {
		return backend.Sandbox{}, err
	}
	return backend.Sandbox{Name: "aisb-0123456789ab", Session: "0123456789ab", Policy: p.Filled("0123456789ab", 0), ControlDir: "/run/user/1001/ai-sandbox/0123456789ab/control"}, nil
}

var testFacts = facts{program: "/state/aisb-entrypoint", masks: []mask{{"/proc/acpi", true}, {"/proc/keys", false}}}

func TestGolden(t *testing.T) {
	for name, change := range map[string]func(*policy.Input){
		"unix.txt": func(*policy.Input) {},
		"none.txt": func(in *policy.Input) { in.Net, in.ReadOnly, in.EphemeralHome = policy.NetNone, true, true },
		"host.txt": func(in *policy.Input) { in.Net = policy.NetHost },
	} {
		j, err := jailOf(sandbox(t, change))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, build(j, testFacts).String())
	}
	g := backend.Gate{Name: "aisb-gate-x", Session: "x", ConfigDir: "/state/conf", LogDir: "/state/log", ControlDir: "/run/ctl"}
	golden(t, "gate.txt", build(gateJail(g, sandbox(t, func(*policy.Input) {}).Policy.Mounts[:2]), testFacts).String())
}

// TestArgv: each descriptor is told once, and the file of that number is its own.
func TestArgv(t *testing.T) {
	j, err := jailOf(sandbox(t, func(in *policy.Input) {
		in.ExtraCA, in.Facts.Local.ExtraCA, in.Facts.Local.CABundle, in.Facts.Local.TrustStore = true, []byte("ca"), []byte("bundle"), []byte("store")
	}))
	if err != nil {
		t.Fatal(err)
	}
	c := build(j, testFacts)
	argv := c.argv()
	next := firstFileFD
	for i, a := range argv {
		switch a {
		case "--file":
			if argv[i+1] != strconv.Itoa(next) || argv[i+2] != c.files[next-firstFileFD].Target {
				t.Errorf("file %d: %q of %q", next, argv[i:i+3], c.files[next-firstFileFD].Target)
			}
			next++
		case "--info-fd", "--block-fd":
			if want := map[string]string{"--info-fd": "3", "--block-fd": "4"}[a]; argv[i+1] != want {
				t.Errorf("%s %s", a, argv[i+1])
			}
		}
	}
	if next-firstFileFD != len(c.files) || len(c.files) != 7 {
		t.Errorf("%d files, %d descriptors", len(c.files), next-firstFileFD)
	}
}

// TestUnshares: no network leaves out a namespace but the host's its one, and
// nothing is merely tried.
func TestUnshares(t *testing.T) {
	for _, net := range networks {
		j, err := jailOf(sandbox(t, func(in *policy.Input) { in.Net = net }))
		if err != nil {
			t.Fatal(err)
		}
		text := " " + strings.Join(build(j, testFacts).argv(), " ") + " "
		for _, o := range []string{"--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup",
			"--die-with-parent", "--new-session", "--cap-drop ALL", "--clearenv", "--remount-ro /proc", "--remount-ro /dev", "--remount-ro / --"} {
			if strings.Count(text, " "+o+" ") != 1 {
				t.Errorf("%s: %s is there %d times", net, o, strings.Count(text, " "+o+" "))
			}
		}
		if got := strings.Contains(text, " --unshare-net "); got == (net == policy.NetHost) {
			t.Errorf("%s: unshares the network: %v", net, got)
		}
		for _, o := range []string{"-try ", "--unshare-all", "--share-net", "--dev-bind", "--cap-add", "--setenv"} {
			if strings.Contains(text, o) {
				t.Errorf("%s: %s", net, o)
			}
		}
	}
}

func TestUnsupported(t *testing.T) {
	for what, change := range map[string]func(*backend.Sandbox){
		"a policy of runtime podman":        func(s *backend.Sandbox) { s.Policy.Runtime = policy.RuntimePodman },
		"isolation container":               func(s *backend.Sandbox) { s.Policy.Isolation = policy.IsolationContainer },
		"an image":                          func(s *backend.Sandbox) { s.Policy.Image = &policy.Image{} },
		"capabilities (NET_ADMIN)":          func(s *backend.Sandbox) { s.Policy.Capabilities = []string{"NET_ADMIN"} },
		"a named gate":                      func(s *backend.Sandbox) { s.Policy.Net.GateName = "x" },
		"--net gated":                       func(s *backend.Sandbox) { s.Policy.Net.Mode = policy.NetGated },
		"a mount of kind volume (/usr)":     func(s *backend.Sandbox) { s.Policy.Mounts[0].Kind = policy.KindVolume },
		"a shared SELinux label (/usr)":     func(s *backend.Sandbox) { s.Policy.Mounts[0].Relabel = true },
		"a mount of kind \"a wish\" (/usr)": func(s *backend.Sandbox) { s.Policy.Mounts[0].Kind = "a wish" },
	} {
		s := sandbox(t, func(*policy.Input) {})
		if _, _, err := Preview(s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		for _, f := range []func() error{
			func() error { _, err := New(Config{}).CreateSandbox(t.Context(), s); return err },
			func() error { _, _, err := Preview(s); return err },
		} {
			var no *backend.UnsupportedError
			if err := f(); !errors.As(err, &no) || no.What != what || no.Runtime != policy.RuntimeLocal {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	b := New(Config{Squid: squidPath})
	var no *backend.UnsupportedError
	if _, err := b.CreateGate(t.Context(), backend.Gate{GateName: "x"}); !errors.As(err, &no) {
		t.Errorf("a named gate: %v", err)
	}
	if _, err := New(Config{}).CreateGate(t.Context(), backend.Gate{Session: "x", ControlDir: "/x"}); err == nil || !strings.Contains(err.Error(), "squid-openssl") {
		t.Errorf("without squid: %v", err)
	}
}

func TestFailure(t *testing.T) {
	for text, want := range map[string]string{
		"bwrap: No permissions to creating new namespace, likely because": "user namespace here (No permissions to creating new namespace, likely because); ai-sandbox doctor --runtime local",
		"bwrap: setting up uid map: Permission denied":                    "user namespace here",
		"bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted":    "user namespace here",
		"bwrap: Can't mkdir /x: Read-only file system":                    "bubblewrap could not make it: Can't mkdir /x: Read-only file system",
		"bwrap: Can't mkdir parents for /x/s: Read-only file system":      "for /x/s: Read-only file system; if something was removed there during the start, start it again",
		"bwrap: \x1b[31m": `could not make it: \x1b[31m`,
		"":                "without a word",
	} {
		if err := failure(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
