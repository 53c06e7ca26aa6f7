// What has to hold inside, where something is isolated at all.

package backendtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/policy"
)

// Isolation is for every backend that isolates.
func Isolation(t *testing.T, target Target) {
	for _, row := range []struct {
		name string
		test func(*bench)
	}{
		{"User", user}, {"Environment", environment}, {"Mounts", mounts}, {"Project", project}, {"Home", homeInside},
		{"NoNetwork", noNetwork}, {"Descriptors", descriptors}, {"Processes", processes}, {"Terminal", terminal},
	} {
		t.Run(row.name, func(t *testing.T) { row.test(newBench(t, target)) })
	}
}

// user: an ordinary one, without any privilege or a way to one.
func user(b *bench) {
	o := b.fine(b.sh("grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t' ' '"))
	const none = "0000000000000000"
	want := fmt.Sprintf("Uid: 1000 1000 1000 1000\nGid: 1000 1000 1000 1000\nGroups:\n"+
		"CapInh: %[1]s\nCapPrm: %[1]s\nCapEff: %[1]s\nCapBnd: %[1]s\nCapAmb: %[1]s\nNoNewPrivs: 1\nSeccomp: 2\n", none)
	got := ""
	for line := range strings.Lines(o.out) {
		if strings.HasPrefix(line, "Groups:") && os.Geteuid() != 0 && b.Input.Runtime == policy.RuntimeLocal {
			line = "Groups:\n" // a user has no privilege to drop them
		}
		got += strings.TrimRight(line, " \n") + "\n"
	}
	if got != want {
		b.t.Errorf("%s", got)
	}
}

// environment: the policy's, and nothing else.
func environment(b *bench) {
	b.t.Setenv("AISB_BACKENDTEST_CANARY", "x")
	var want []string
	o := b.fine(b.run([]string{"env", "-0"}, func(in *policy.Input, r *session.Request) {
		in.Env = append(slices.Clone(in.Env), "TOKEN", "PLAIN=a b")
		in.Facts.EnvSet = func(name string) bool { return name == "TOKEN" }
		r.Values = map[string]policy.Secret{"TOKEN": policy.NewSecret("TOKEN", "two\nlines")}
		in.Command = []string{"env", "-0"}
		p, err := policy.Resolve(*in)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range p.Env {
			v := e.Value
			if e.From == policy.FromHost {
				v = r.Values[e.Name].Reveal()
			}
			want = append(want, e.Name+"="+v)
		}
	}))
	got := strings.Split(strings.TrimSuffix(o.out, "\x00"), "\x00")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// mounts: the policy's, and what every sandbox of the kind has, which is below a
// few places; what is read-only in the policy can't be written to.
func mounts(b *bench) {
	var p policy.Policy
	o := b.fine(b.sh("cut -d' ' -f5,6 /proc/self/mountinfo", func(in *policy.Input, _ *session.Request) {
		q, err := policy.Resolve(*in)
		if err != nil {
			b.t.Fatal(err)
		}
		p = q
	}))
	readOnly := map[string]bool{}
	for line := range strings.Lines(o.out) {
		point, options, _ := strings.Cut(strings.TrimSpace(line), " ")
		readOnly[point] = options == "ro" || strings.HasPrefix(options, "ro,")
	}
	named := map[string]bool{}
	for _, m := range p.Mounts {
		if m.Kind == policy.KindSymlink || m.Kind == policy.KindFile {
			continue
		}
		named[m.Target] = true
		ro, ok := readOnly[m.Target]
		if !ok {
			b.t.Errorf("nothing is mounted at %s", m.Target)
		}
		if m.ReadOnly != ro {
			b.t.Errorf("%s: read-only is %v, and not %v", m.Target, ro, m.ReadOnly)
		}
	}
	if ro, ok := readOnly["/"]; !ok || !ro {
		b.t.Error("the root file system is writable")
	}
	for point, ro := range readOnly {
		below := slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(d string) bool { return point == d || strings.HasPrefix(point, d+"/") })
		if !named[point] && point != "/" && !below && !ro {
			b.t.Errorf("%s is mounted, writable, and not in the policy", point)
		}
	}
	// What the policy calls writable is all that is.
	o = b.fine(b.sh(`for d in / /usr /etc /run /run/aisb /dev /proc /proc/sys /var /home /opt; do ` +
		`[ -d "$d" ] && (: >"$d/backendtest") 2>/dev/null && echo "$d"; done; exit 0`))
	if o.out != "" {
		b.t.Errorf("writable: %q", o.out)
	}
}

// project: the very directory, read-write or read-only.
func project(b *bench) {
	o := b.fine(b.sh("pwd; echo inside >made"))
	want, _ := policy.Workdir(b.project)
	if strings.TrimSpace(o.out) != want {
		b.t.Errorf("it starts in %q, and not %q", o.out, want)
	}
	made := filepath.Join(b.project, "made")
	if text, err := os.ReadFile(made); err != nil || string(text) != "inside\n" {
		b.t.Errorf("%q, %v", text, err)
	}
	info, err := os.Stat(made)
	if err != nil {
		b.t.Fatal(err)
	}
	if uid := ownerOf(info); uid != os.Geteuid() {
		b.t.Errorf("it belongs to %d", uid)
	}
	o = b.sh("cat made; echo again >made", func(in *policy.Input, _ *session.Request) { in.ReadOnly = true })
	if o.ExitCode == 0 || o.out != "inside\n" || !strings.Contains(o.errs, "ead-only") {
		b.t.Errorf("read-only: %d, %q, %q", o.ExitCode, o.out, o.errs)
	}
}

// homeInside: one home for each project, or one for each run.
func homeInside(b *bench) {
	keep := func(in *policy.Input, _ *session.Request) { in.EphemeralHome = false }
	name := policy.HomeVolume(b.project)
	defer func() {
		if err := b.Backend.RemoveVolume(b.t.Context(), name); err != nil {
			b.t.Error(err)
		}
	}()
	b.fine(b.sh("cd && [ $PWD = "+policy.HomeDir+" ] && echo x >kept && mkdir -p a/b && chmod 500 a/b a", keep))
	if o := b.fine(b.sh("cat ~/kept", keep)); o.out != "x\n" {
		b.t.Errorf("the second run's home has %q", o.out)
	}
	if o := b.sh("cat ~/kept"); o.ExitCode == 0 {
		b.t.Errorf("an ephemeral home has %q", o.out)
	}
}

// noNetwork: no device but loopback, which works, and no way out.
func noNetwork(b *bench) {
	o := b.fine(b.sh("tail -n +3 /proc/net/dev | cut -d: -f1; tail -n +2 /proc/net/route; cat /proc/net/unix | tail -n +2"))
	for line := range strings.Lines(o.out) {
		// Some kernels put tunnels that are down into every namespace.
		if dev := strings.TrimSpace(line); dev != "lo" && !slices.Contains([]string{"tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}, dev) {
			b.t.Errorf("%q", dev)
		}
	}
}

// descriptors: the three streams, and nothing of whoever started it.
func descriptors(b *bench) {
	dir, err := os.Open("/") // as a careless caller leaves it
	if err != nil {
		b.t.Fatal(err)
	}
	defer dir.Close()
	leak, err := dupInheritable(dir)
	if err != nil {
		b.t.Fatal(err)
	}
	defer closeFD(leak)
	o := b.fine(b.sh("ls /proc/self/fd; ls -A /run/aisb | grep -vxF " + policy.GuideName + "; for f in /proc/1/fd/*; do readlink $f; done; cat /proc/1/environ; exit 0"))
	lines := strings.Split(strings.TrimSpace(o.out), "\n")
	if !slices.Equal(lines, []string{"0", "1", "2", "3"}) { // 3 is the directory that ls reads
		b.t.Errorf("the channel, the entrypoint's descriptors or others can be seen: %q", o.out)
	}
}

// processes: its own alone.
func processes(b *bench) {
	o := b.fine(b.sh("cat /proc/1/comm; ls -d /proc/[0-9]* | wc -l; hostname"))
	lines := strings.Fields(o.out)
	if len(lines) != 3 || lines[0] != "aisb-entrypoint" || len(lines[1]) != 1 || lines[2] != "sandbox" {
		b.t.Errorf("%q", o.out)
	}
}

// A terminal of a size.
type term struct{ resized chan os.Signal }

func (term) Raw() (func() error, error)  { return func() error { return nil }, nil }
func (term) Size() (int, int, error)     { return 97, 31, nil }
func (t term) Resized() <-chan os.Signal { return t.resized }

// terminal: one of its own, of the caller's size.
func terminal(b *bench) {
	o := b.fine(b.sh("test -t 0 && test -t 1 && test -t 2 && tty && stty size && echo x >/dev/tty", func(_ *policy.Input, r *session.Request) {
		r.Terminal = term{make(chan os.Signal)}
	}))
	lines := strings.Fields(o.out)
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "/dev/") || lines[1] != "31" || lines[2] != "97" || lines[3] != "x" {
		b.t.Errorf("%q", o.out)
	}
}
