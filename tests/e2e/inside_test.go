//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ai-sandbox/policy"
	"ai-sandbox/tests/e2e/drive"
)

// Every task of every process, PID 1 included, shows the same privileges: none.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "sleep 600 & node -e 'setTimeout(() => {}, 600000)' & python3 -c 'import time; time.sleep(600)' & for i in $(seq 1000); do ./probe status >all; grep -q Name=node all && grep -q Name=python3 all && break; sleep 0.1; done; ./probe status")...)
	lines := strings.Split(strings.TrimSpace(r.Out), "\n")
	first := false
	for _, line := range lines {
		first = first || strings.HasPrefix(line, "/proc/1/task/1/status ")
		for _, want := range []string{
			" Uid=1000,1000,1000,1000 ", " Gid=1000,1000,1000,1000 ", " Groups= ", " NoNewPrivs=1 ", " Seccomp=2",
			" CapInh=0000000000000000 ", " CapPrm=0000000000000000 ", " CapEff=0000000000000000 ", " CapBnd=0000000000000000 ", " CapAmb=0000000000000000 ",
		} {
			if !strings.Contains(line+" ", want) {
				t.Errorf("no %q in: %s", want, line)
			}
		}
	}
	if !first || len(lines) < 10 || !strings.Contains(r.Out, "Name=node") {
		t.Errorf("want PID 1 and all threads of the others: %s", r)
	}
	// The positive control: the probe sees privileges where there are some.
	out := drive.Output(t, filepath.Join(w.bin, "probe"), "status")
	if !regexp.MustCompile(`(?m)Name=probe .* Groups=\d.* CapBnd=0*[1-9a-f].* NoNewPrivs=0 Seccomp=0`).MatchString(out) {
		t.Errorf("the positive control failed: %s", drive.Tail(out))
	}
}

// What podman's own profile leaves open is closed, too.
func TestKernelSurface(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "./probe calls; ./probe ptrace; unshare -Urn true && echo UNSHARED; nft flush ruleset && echo FLUSHED; true")...)
	got := map[string]string{}
	for line := range strings.Lines(r.Out) {
		if f := strings.Fields(line); len(f) == 2 {
			got[f[0]] = f[1]
		}
	}
	works := []string{"socket-inet-stream", "socket-inet6-stream", "socket-unix", "write-home", "write-tmp"}
	for _, name := range works {
		if got[name] != "OK" {
			t.Errorf("%s: %s, and it has to work", name, got[name])
		}
		delete(got, name)
	}
	if len(got) < 35 {
		t.Errorf("only %d probes: %s", len(got), r)
	}
	for name, what := range got {
		switch {
		case what == "OK":
			t.Errorf("%s works", name)
		case strings.HasPrefix(name, "ioctl-tiocsti") && what == "ENOTTY":
			t.Errorf("%s reached the driver", name)
		}
	}
	for _, name := range []string{
		"socket-packet", "socket-vsock", "socket-alg", "unshare-newuser", "unshare-newnet", "clone-newuser", "io_uring_setup", "keyctl",
		"ioctl-tiocsti", "ioctl-tiocsti-high",
	} {
		if e := got[name]; e != "EPERM" && e != "EACCES" && e != "EAFNOSUPPORT" && e != "ENOSYS" {
			t.Errorf("%s: %s, and it has to be refused by the filter", name, e)
		}
	}
	if !strings.Contains(r.Out, "ptrace-pid1 operation not permitted") {
		t.Errorf("PID 1, which tells the host how the command ended, can be traced: %s", r)
	}
	if strings.Contains(r.Out, "UNSHARED") || strings.Contains(r.Out, "FLUSHED") {
		t.Errorf("%s", r)
	}
	// The positive control: in this host the probe can make a user namespace.
	if out := drive.Output(t, filepath.Join(w.bin, "probe"), "calls"); !regexp.MustCompile(`clone-newuser OK`).MatchString(out) || !strings.Contains(out, "io_uring_setup EFAULT") {
		t.Errorf("the positive control failed: %s", out)
	}
}

// The command gets no descriptor but its three, and the control channel is gone.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "./probe fds; echo --; ls -A /run/aisb")...)
	for line := range strings.Lines(strings.SplitN(r.Out, "--", 2)[0]) {
		n, err := strconv.Atoi(strings.Fields(line)[0])
		if err != nil || n > 2 && !strings.Contains(line, "/proc/") && !strings.Contains(line, "anon_inode:") {
			t.Errorf("open: %s", line)
		}
	}
	if !strings.HasSuffix(r.Out, "--\n"+policy.GuideName+"\n") { // the guide, for the command to read
		t.Errorf("the control channel can be seen: %s", r)
	}
}

// Only the documented variables are there, whatever the caller has.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	canary := "CANARY" + b.Token
	for _, name := range []string{
		"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "HTTP_PROXY", "https_proxy", "NO_PROXY", "LD_PRELOAD_X", "FOO_KEY", "NODE_OPTIONS", "PYTHONPATH",
	} {
		b.Env = append(b.Env, name+"="+canary+name)
	}
	multi := "first\n*\nLD_X=/x\nlast " + b.Token
	b.Env = append(b.Env, "PASSED="+multi)
	r := b.OK("--env", "PASSED", "--env", "PUBLIC=a b", "--allow", b.Host("ok.test"), "--", "sh", "-c", "cat /proc/*/environ | tr '\\0' '\\n'; echo; printf %s \"$PASSED\" >passed; echo \"[$PUBLIC]\"")
	if strings.Contains(r.Out, canary) {
		t.Errorf("the caller's environment came in: %s", r)
	}
	if !strings.Contains(r.Out, "[a b]") || b.File(t, "passed") != strings.TrimSpace(multi) {
		t.Errorf("what was passed is not there: %s", r)
	}
	// A variable passed by name is in no printout and in no inspect.
	r = b.OK("--env", "PASSED", "--print-policy", "--allow", b.Host("ok.test"), "--", "true")
	if strings.Contains(r.Out+r.Err, "last "+b.Token) || !strings.Contains(r.Out, "PASSED") {
		t.Errorf("%s", r)
	}
	_, stop := b.Background(t, "--env", "PASSED", "--", "sh", "-c", "echo up >up; cat")
	b.File(t, "up")
	secret, id := "last "+b.Token, sessionOf(t, b)
	for _, name := range []string{"aisb-" + id, "aisb-gate-" + id} {
		out := drive.Output(t, "podman", "inspect", name)
		if !strings.Contains(out, name) || strings.Contains(out, secret) {
			t.Errorf("podman inspect shows the value, or nothing: %s", drive.Tail(out))
		}
	}
	// Nor in any argv, nor on the disk: records, podman's database, its logs.
	seen := 0
	for _, p := range processes(t) {
		if strings.Contains(p.argv, id) {
			seen++
		}
		if strings.Contains(p.argv, secret) {
			t.Errorf("an argv shows the value: %s", p)
		}
	}
	if seen == 0 {
		t.Error("no process of the session was looked at")
	}
	holds := func(what string) (files []string, all int) {
		// As root of podman's user namespace: files of containers are there, too. What has
		// not changed since the project was made is of before.
		script := `made=$1; shift; for d; do find "$d" -xdev -path '*/overlay/*/diff' -prune -o -type f -newercm "$made" -size -64M -print0; done | tee /tmp/aisb-looked-$$ | xargs -0 grep -laFe "$0"; tr -dc '\0' </tmp/aisb-looked-$$ | wc -c; rm -f /tmp/aisb-looked-$$`
		out := strings.Fields(drive.Output(t, "podman", "unshare", "sh", "-c", script, what, filepath.Join(b.Dir, "probe"),
			filepath.Join(w.home, "e2e", "state"), filepath.Join(w.home, "e2e", "cache"), filepath.Join(w.home, "e2e", "config"),
			filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox"), filepath.Join(w.home, ".local/share/containers"), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containers")))
		n, err := strconv.Atoi(out[len(out)-1])
		if err != nil {
			t.Fatal(err)
		}
		return out[:len(out)-1], n
	}
	if files, _ := holds(secret); len(files) > 0 {
		t.Errorf("the value is on the disk: %q", files)
	}
	// The positive control: the session's id is in its record and in podman's.
	if files, n := holds(id); len(files) < 2 {
		t.Errorf("the positive control failed: the session's id is in %q of %d files", files, n)
	}
	stop()
}

// What the agent writes in the project is the caller's, and nothing anywhere in
// it belongs to a subordinate id.
func TestFileOwnership(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if err := os.WriteFile(filepath.Join(b.Dir, "before"), []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := b.OK(b.Gated("sh", "-c", "cat before; pwd; mkdir -p a/b && echo hi >a/b/file && ln -s file a/b/link && chmod 640 before && git init -q g && mkfifo fifo; id -u; touch $HOME/mine; ls -ln $HOME/mine")...)
	if !strings.HasPrefix(r.Out, "host"+b.Dir+"\n") || !strings.Contains(r.Out, "\n1000\n") {
		t.Errorf("%s", r)
	}
	n := 0
	err := filepath.WalkDir(b.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
		}
		n++
		return nil
	})
	if err != nil || n < 8 {
		t.Errorf("%d files: %v", n, err)
	}
}

// The root file system is read-only, the home is kept, an ephemeral one is not.
func TestWritablePaths(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	find := "find / -xdev -not -path '/proc*' -writable -not -type l 2>/dev/null | while read -r f; do mountpoint -q \"$f\" || echo \"$f\"; done | head -20; " +
		"for d in / /etc /usr /usr/local/bin /opt /var /var/lib /run /run/aisb /sys /proc/sys; do touch $d/aisb-x 2>/dev/null && echo WROTE $d; done; true"
	r := b.OK(b.Gated("sh", "-c", "echo kept >$HOME/kept; "+find)...)
	if strings.TrimSpace(r.Out) != "" {
		t.Errorf("writable beside the policy's paths: %s", r)
	}
	r = b.OK(b.Gated("cat", "/home/sandbox/kept")...)
	if r.Out != "kept\n" {
		t.Errorf("the home was not kept: %s", r)
	}
	r = b.Run("--ephemeral-home", "--", "cat", "/home/sandbox/kept")
	if r.Code != 1 {
		t.Errorf("an ephemeral home is not empty: %s", r)
	}
	// Another project has another home.
	r = newBox(t).Run("--", "cat", "/home/sandbox/kept")
	if r.Code != 1 {
		t.Errorf("the home of another project: %s", r)
	}
}

// Neither the host's names nor its resolvers are inside.
func TestNoHostNames(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "cat /etc/hosts; echo --; cat /etc/resolv.conf; echo --; hostname")...)
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Out, "198.51.100.53") || strings.Contains(r.Out, hostname) || strings.Contains(r.Out, "host.containers.internal") {
		t.Errorf("%s", r)
	}
}

// Every mount inside is one that the policy names, or one that every container
// has.
func TestMountsArePolicy(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.OK(b.Gated("sh", "-c", "cat /proc/self/mountinfo")...)
	policy := b.OK("--print-policy=json", "--allow", b.Host("ok.test"), "--", "true").Out
	// Podman mounts the last two into every container: what it is called.
	usual := regexp.MustCompile(`^/(proc|sys|dev)(/|$)|^/$|^/run/\.containerenv$|^/etc/hostname$`)
	for line := range strings.Lines(r.Out) {
		f := strings.Fields(line)
		if len(f) < 6 || usual.MatchString(f[4]) && f[4] != "/dev/shm" {
			continue
		}
		if !strings.Contains(policy, `"target": "`+f[4]+`"`) {
			t.Errorf("mounted, and not in the policy: %s", line)
		}
	}
	if !strings.Contains(r.Out, " "+b.Dir+" ") {
		t.Errorf("the project is not mounted at its own path: %s", r)
	}
}

// pi itself runs, under the alias that people use.
func TestPi(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	lock, err := os.ReadFile("/src/cmd/ai-sandbox/internal/harness/locks/pi.json")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`"@earendil-works/pi-coding-agent": "([0-9.]+)"`).FindSubmatch(lock)
	if want == nil {
		t.Fatalf("no version in %s", lock)
	}
	r := b.OK("pi", "--version")
	if !strings.Contains(r.Out+r.Err, string(want[1])) {
		t.Errorf("want version %s: %s", want[1], r)
	}
	if r := b.OK("--version"); strings.Contains(r.Out, string(want[1])) && !strings.Contains(r.Out, "ai-sandbox") {
		t.Errorf("--version before the harness is ours: %s", r)
	}
}

// The project must be the directory that was looked at when the policy was
// decided (see also the unit tests of the entrypoint): its identity is compared.
func TestProjectThroughSymlink(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	link := b.Dir + "-link"
	if err := os.Symlink(b.Dir, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	real := b.Dir
	b.Dir = link
	r := b.OK("--", "pwd", "-P")
	if strings.TrimSpace(r.Out) != real {
		t.Errorf("%s", r)
	}
	b.Dir = real
}
