//go:build vm

package limits

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sudo runs something as the machine's owner.
func sudo(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("sudo", append([]string{"-n"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// broken breaks the machine for as long as a test lasts.
func broken(t *testing.T, breaks, mends string) {
	t.Helper()
	t.Cleanup(func() { sudo(t, "sh", "-ec", mends) })
	sudo(t, "sh", "-ec", breaks)
}

// setClock sets it to by more than it would be if it had never been set.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	sudo(t, "date", "-s", fmt.Sprintf("@%.3f", float64(clock.wall.Add(time.Since(clock.mono)+by).UnixMilli())/1000))
}

// clock is what it was once; the time since is monotonic.
var clock = struct{ wall, mono time.Time }{time.Now().Round(0), time.Now()}

// far is a server beyond the gate, which says everything back.
func far(t *testing.T) string {
	t.Helper()
	const at = "10.99.0.10"
	broken(t, "ip addr add "+at+"/32 dev lo", "ip addr del "+at+"/32 dev lo")
	l, err := net.Listen("tcp", at+":7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, bufio.NewReader(c)) // until it ends
			}()
		}
	}()
	return l.Addr().String()
}

// asking is a command that opens a tunnel, and says each file ask-N through it and
// through a new one. It ends with 7.
const asking = `
trap '' PIPE
open() { # FD
	p=${http_proxy#http://}; p=${p%%/}
	eval "exec $1<>/dev/tcp/${p%%:*}/${p##*:}"
	printf 'CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n' >&$1
	while read -r -t 120 line <&$1 && test "$line" != $'\r'; do :; done
}
say() { echo "$2" >&$1 && read -r -t 120 line <&$1 && echo "$line"; } 2>/dev/null
open 3
touch open
for n in 0 1 2 3; do
	until test -e ask-$n; do sleep 0.05; done
	open 4
	{ say 3 old-$n; say 4 new-$n; } >part
	mv part answer-$n
	exec 4>&-
done
echo changed >Makefile
exit 7`

// sessions are all that ls knows, as "project state".
func sessions(t *testing.T, b *box) map[string]string {
	t.Helper()
	var list struct {
		Sessions []struct{ ID, State, Project string }
	}
	if err := json.Unmarshal([]byte(b.verb(t, "ls", "--json").Out), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list.Sessions {
		out[s.ID] = s.State + " " + filepath.Base(s.Project)
	}
	return out
}

// count is how many sessions are so.
func count(all map[string]string, want string) (n int) {
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}

// eventually waits for what the VM takes its time for.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 4 minutes", what)
		}
	}
}

// A running command is an ai-sandbox that the test does not wait for yet.
type running struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

func begin(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &r.out, &r.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the state tells
		close(r.done)
	}()
	t.Cleanup(func() {
		if !r.ended() {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may just have ended
			<-r.done
		}
	})
	return r
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *running) wait() result {
	<-r.done
	return result{Code: r.cmd.ProcessState.ExitCode(), Out: r.out.String(), Err: r.err.String()}
}

// The clock of the machine is set, far ahead and far back, while sessions run: they go
// on, are known, and end as ever.
func TestClockJumps(t *testing.T) {
	const day = 24 * time.Hour
	at := far(t)
	t.Cleanup(func() { setClock(t, 0) })
	type session struct {
		*box
		asks *running
	}
	var all []*session
	for _, runtime := range runtimes {
		s := &session{box: newBoxAt(filepath.Join(w.home, "projects", "clock-"+runtime), runtime)}
		all = append(all, s)
		s.run(t, 0, "--", "true")
		s.asks = begin(t, s.bare(context.Background(), "--runtime", runtime, "--gate-engine", "builtin", "--allow-private", at, "--time", "1h", "--", "bash", "-c", fmt.Sprintf(asking, at)))
		eventually(t, "a tunnel on "+runtime, func() bool { // one start at a time: the VM is slow
			_, err := os.Stat(filepath.Join(s.dir, "open"))
			if s.asks.ended() {
				t.Fatalf("on %s it has ended: %s", s.runtime, s.asks.wait())
			}
			return err == nil
		})
	}
	timed := begin(t, all[0].command(context.Background(), "--time", "20s", "--", "sleep", "1000"))
	ask := func(n int, when string) {
		for _, s := range all {
			if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprint("ask-", n)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range all {
			var text []byte
			eventually(t, fmt.Sprintf("%s: an answer on %s to %d", when, s.runtime, n), func() (ok bool) {
				var err error
				text, err = os.ReadFile(filepath.Join(s.dir, fmt.Sprint("answer-", n)))
				if s.asks.ended() && err != nil {
					t.Fatalf("%s: on %s it has ended: %s", when, s.runtime, s.asks.wait())
				}
				return err == nil
			})
			if want := fmt.Sprintf("old-%[1]d\nnew-%[1]d\n", n); string(text) != want {
				t.Errorf("%s, %s: through the old tunnel and a new one comes %q", when, s.runtime, text)
			}
		}
	}
	local := all[0].box
	living := func(when string) {
		got := sessions(t, local)
		for _, s := range all {
			if count(got, "live "+filepath.Base(s.dir)) == 0 {
				t.Errorf("%s: %s does not live: %v", when, s.runtime, got)
			}
		}
	}
	ask(0, "before")

	setClock(t, 400*day)
	ask(1, "400 days ahead")
	living("400 days ahead")
	local.run(t, 0, "--", "true") // also removes what has become old
	if n := count(sessions(t, local), "ended clock-podman"); n != 0 {
		t.Errorf("of what ended 400 days ago there is %d", n)
	}
	local.verb(t, "clean", "--runtime", "local")
	living("cleaned, 400 days ahead")

	setClock(t, -1000*day)
	ask(2, "1000 days back")
	living("1000 days back")
	if r := local.wait(local.bare, []string{"doctor", "--runtime", "local"}); r.Code != 1 || !regexp.MustCompile(`(?m)^FAIL clock .*\n +fix: +sudo timedatectl set-ntp true$`).MatchString(r.Out) {
		t.Errorf("the doctor says of that clock: %s", r)
	}
	ask(3, "1000 days back")
	for _, s := range all {
		if r := s.asks.wait(); r.Code != 7 || !strings.Contains(r.Err, "Makefile") {
			t.Errorf("%s: %s", s.runtime, r)
		}
	}
	if r := timed.wait(); r.Code != 124 {
		t.Errorf("its time was to be over: %s", r)
	}
}

// df is a number of df's, in a script.
func df(dir, column string) string {
	return fmt.Sprintf("$(df --output=%s %s | tail -n 1 | tr -d ' ')", column, dir)
}

// fills leaves no room on the file system of a directory.
func fills(dir string) (breaks, mends string) {
	return fmt.Sprintf("fallocate -l $(( %s - 64 ))K %s/fill || true; dd if=/dev/zero of=%[2]s/fill2 bs=4k 2>/dev/null || true", df(dir, "avail"), dir),
		fmt.Sprintf("rm -f %[1]s/fill %[1]s/fill2", dir)
}

// A disk that is full, of the state and of podman's store, lets nothing start and leaves
// nothing; a run that goes on when it gets full ends as ever.
func TestFullMachine(t *testing.T) {
	if os.Getuid() == 0 {
		return // of a user's directories
	}
	full, roomy := fills(w.home)
	each(t, func(t *testing.T, b *box) {
		b.run(t, 0, "--", "true")
		before := sessions(t, b)
		later := begin(t, b.command(context.Background(), "--", "sh", "-c", "touch up; until test -e go; do sleep 0.05; done; rm up go; exit 7"))
		eventually(t, "the command begins", func() bool { _, err := os.Stat(filepath.Join(b.dir, "up")); return err == nil })
		broken(t, full, roomy)
		if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := later.wait(); r.Code != 7 {
			t.Errorf("a run that was there before: %s", r)
		} else {
			t.Logf("it said: %s", r.Err)
		}
		sudo(t, "sh", "-ec", full) // it has left some room
		if r := b.start("--", "touch", "ran"); r.Code != 125 || r.Out != "" || !strings.Contains(r.Err, "ai-sandbox: error: ") || !strings.Contains(r.Err, "no space left on device") {
			t.Errorf("a new one: %s", r)
		}
		sudo(t, "sh", "-ec", roomy)
		recovered(t, b, before)
	})
}

// recovered: nothing is left in the project, and with the machine mended sessions run, and
// all that there were since have ended.
func recovered(t *testing.T, b *box, before map[string]string) {
	t.Helper()
	names, err := os.ReadDir(b.dir)
	if err != nil || len(names) != 1 { // the probe
		t.Errorf("left in the project: %v, %v", names, err)
	}
	b.run(t, 0, "--", "true")
	b.verb(t, "clean", "--runtime", b.runtime)
	for id, s := range sessions(t, b) {
		if before[id] == "" && !strings.HasPrefix(s, "ended ") {
			t.Errorf("session %s: %s", id, s)
		}
	}
}

// So does a file system that has room but can't have one file more: that of the sessions,
// and, with podman, that of its containers.
func TestNoMoreFiles(t *testing.T) {
	if os.Getuid() == 0 {
		return // of a user's directories
	}
	each(t, func(t *testing.T, b *box) {
		b.run(t, 0, "--", "true")
		before := sessions(t, b)
		places := map[string]string{"sessions": filepath.Join(w.home, "e2e", "state", "ai-sandbox", "sessions")}
		if b.runtime == "podman" {
			places["podman's containers"] = filepath.Join(w.home, ".local", "share", "containers", "storage", "overlay-containers")
		}
		for name, dir := range places {
			t.Run(name, func(t *testing.T) {
				options := fmt.Sprintf("size=64m,mode=0700,uid=%d,gid=%d", os.Getuid(), os.Getgid())
				with := func(files string) result {
					// Nobody may have what is below open, or a namespace in which it is not hidden.
					const end = "pkill -KILL -f '[p]odman .*system service' || true; pkill -KILL catatonit || true; "
					sudo(t, "sh", "-ec", end+"mount -t tmpfs -o "+options+files+" tmpfs "+dir)
					defer sudo(t, "sh", "-ec", end+"for i in $(seq 600); do umount "+dir+" && exit; sleep 0.1; done; exit 1")
					begun := time.Now()
					r := b.start("--", "sh", "-c", "echo x >>ran")
					t.Logf("%.1f s: %s", time.Since(begun).Seconds(), r)
					return r
				}
				if r := with(""); r.Code != 0 {
					t.Errorf("the positive control: %s", r)
				}
				if err := os.Remove(filepath.Join(b.dir, "ran")); err != nil {
					t.Errorf("the positive control: %v", err)
				}
				if r := with(",nr_inodes=3"); r.Code != 125 || !strings.Contains(r.Err, "ai-sandbox: error: ") || !strings.Contains(r.Err, "no space left on device") {
					t.Errorf("no files: %s", r)
				}
			})
		}
		recovered(t, b, before)
	})
}

// Whatever of the machine is broken, the doctor finds it, and prints a command that mends
// it or shows it again. What stands on something broken is not tried, so each break is
// looked for in a state where all before it is well.
func TestDoctorFinds(t *testing.T) {
	if os.Getuid() == 0 {
		return // it is told what only a user needs
	}
	type finding struct{ name, says, fix string }
	doctor := func(t *testing.T, b *box, want ...finding) (fix string) {
		t.Helper()
		r := b.wait(b.bare, []string{"doctor", "--json", "--runtime", b.runtime})
		var d struct {
			OK     bool
			Checks []struct {
				Name, Problem, Fix string
				OK, Needed         bool
			}
		}
		if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
			t.Fatalf("%v: %s", err, r)
		}
		found := map[string]finding{}
		for _, c := range d.Checks {
			if !c.OK && c.Needed {
				found[c.Name] = finding{c.Name, c.Problem, c.Fix}
			}
		}
		for _, f := range want {
			if got := found[f.name]; f.says == "" || !strings.Contains(got.says, f.says) || !strings.Contains(got.fix, f.fix) || got.fix == "" {
				t.Errorf("want %+v, have %+v", f, got)
			}
			fix = found[f.name].fix
			delete(found, f.name)
		}
		if len(found) > 0 || d.OK != (len(want) == 0) || r.Code != map[bool]int{true: 0, false: 1}[d.OK] {
			t.Errorf("exit code %d, and also: %+v", r.Code, found)
		}
		return fix // of the last one
	}
	boxOf := func(t *testing.T, runtime string) *box {
		t.Helper()
		dir, err := os.MkdirTemp(filepath.Join(w.home, "projects"), "doctor")
		if err != nil {
			t.Fatal(err)
		}
		return newBoxAt(dir, runtime)
	}
	user := os.Getenv("USER")
	t.Run("programs and files", func(t *testing.T) {
		b := boxOf(t, "podman")
		if err := os.Mkdir(filepath.Join(b.dir, ".ai-sandbox"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.dir, ".ai-sandbox", "config"), []byte("allow = example.com\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		broken(t, "cp /etc/subuid /etc/subuid.kept; sed -i d /etc/subuid; chmod u-s /usr/bin/newuidmap; mv /usr/bin/pasta /usr/bin/pasta.kept",
			"mv /etc/subuid.kept /etc/subuid; chmod u+s /usr/bin/newuidmap; mv /usr/bin/pasta.kept /usr/bin/pasta")
		doctor(t, b,
			finding{"subuid", "no range of subordinate ids", "sudo usermod --add-subuids"},
			finding{"newuidmap", "neither setuid nor has a capability", "sudo chmod u+s /usr/bin/newuidmap"},
			finding{"pasta", "not installed", "sudo apt-get install passt"},
			finding{"project's file", "not trusted", "ai-sandbox trust"})
	})
	t.Run("namespaces", func(t *testing.T) {
		endServices(t)
		broken(t, "sysctl -q user.max_user_namespaces=0; pkill -u "+user+" catatonit || true", "sysctl -q user.max_user_namespaces=10000")
		doctor(t, boxOf(t, "podman"), finding{"podman's namespace", "user.max_user_namespaces is 0", "sudo sysctl user.max_user_namespaces="})
		doctor(t, boxOf(t, "local"), finding{"user namespace", "user.max_user_namespaces is 0", "sudo sysctl user.max_user_namespaces="})
	})
	t.Run("disk", func(t *testing.T) {
		b := boxOf(t, "podman")
		full, roomy := fills(w.home)
		broken(t, full, roomy)
		doctor(t, b, finding{"disk", "are needed", "ai-sandbox clean"}, finding{"disk of images", "are needed", "podman image prune"})
	})
	t.Run("AppArmor", func(t *testing.T) {
		// Debian's kernel has no such setting, but refuses a namespace to a program whose
		// profile does not name it.
		const profile = "abi <abi/4.0>,\nprofile bwrap /usr/bin/bwrap flags=(attach_disconnected) {\n  file,\n  capability,\n  mount,\n  remount,\n  umount,\n  pivot_root,\n  network,\n  signal,\n  unix,\n  ptrace,\n}\n"
		broken(t, "printf '"+profile+"' >/etc/apparmor.d/bwrap; apparmor_parser -r /etc/apparmor.d/bwrap; "+
			"mkdir /run/kernel; cp --no-preserve=all -r /proc/sys/kernel/. /run/kernel 2>/dev/null || true; "+
			"echo 1 >/run/kernel/apparmor_restrict_unprivileged_userns; mount --bind /run/kernel /proc/sys/kernel",
			"umount /proc/sys/kernel 2>/dev/null || true; rm -r /run/kernel; apparmor_parser -R /etc/apparmor.d/bwrap; rm /etc/apparmor.d/bwrap")
		b := boxOf(t, "local")
		fix := doctor(t, b, finding{"user namespace", "AppArmor keeps bubblewrap", "apparmor_parser -r /etc/apparmor.d/bwrap"})
		sudo(t, "umount", "/proc/sys/kernel") // below it, no other /proc could be mounted
		if out, err := exec.Command("sh", "-ec", fix).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", fix, err, out)
		}
		b.run(t, 0, "--", "true")
	})
}
