//go:build kernel

package entrypoint

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"ai-sandbox/entrypoint/spec"
)

// probeMain is what runs as the command.
func probeMain(args []string) {
	switch args[0] {
	case "status":
		// Every thread of every process, ours included, which has several.
		files, _ := filepath.Glob("/proc/[0-9]*/task/*/status")
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				fmt.Println("unreadable", f, err)
				continue
			}
			fmt.Printf("== %s\n%s", f, text)
		}
	case "lookin": // into PID 1
		for _, f := range []string{"environ", "mem", "maps", "fd/0", "fd/2", "fd", "exe", "root"} {
			_, err := os.Open("/proc/1/" + f)
			fmt.Println(f, err)
		}
		pidfd, err := unix.PidfdOpen(1, 0)
		fmt.Println("pidfd", err)
		_, err = unix.PidfdGetfd(pidfd, 3, 0)
		fmt.Println("getfd", err)
		fmt.Println("ptrace", unix.PtraceAttach(1))
	case "fds":
		d, _ := os.Open("/proc/self/fd")
		names, _ := d.Readdirnames(-1)
		for _, n := range names {
			to, err := os.Readlink("/proc/self/fd/" + n)
			if err == nil && to != fmt.Sprintf("/proc/%d/fd", os.Getpid()) && !strings.HasPrefix(to, "anon_inode:") {
				fmt.Println(n, to)
			}
		}
	case "signals":
		ch := make(chan os.Signal, 16)
		signal.Notify(ch, unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGWINCH, unix.SIGHUP)
		if len(args) == 1 {
			// A child in our process group, and one that has left it.
			for _, own := range []bool{false, true} {
				_, err := syscall.ForkExec("/aisb", []string{"aisb", "probe", "signals", fmt.Sprint(own)}, &syscall.ProcAttr{
					Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: own}})
				if err != nil {
					fmt.Println(err)
				}
			}
		}
		who := strings.Join(args[1:], "")
		fmt.Printf("ready%s\n", who)
		for s := range ch {
			fmt.Printf("%s%d\n", who, s)
			if s == unix.SIGTERM {
				return
			}
		}
	case "table":
		c, err := nftables.New()
		if err == nil {
			c.AddTable(&nftables.Table{Name: "before", Family: nftables.TableFamilyIPv4})
			err = c.Flush()
		}
		if err != nil {
			panic(err)
		}
	}
}

func TestDropsEverywhere(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("/aisb", "probe", "status")
		text, exited := b.run()
		if exited.Code != 0 {
			t.Fatalf("%+v %s", exited, text)
		}
		want := dropped(1000, 1000)
		want["Seccomp"] = "2"
		seen := map[string]int{}
		for _, part := range strings.Split(text, "== ")[1:] {
			file, text, _ := strings.Cut(part, "\n")
			seen[strings.Split(file, "/")[2]]++
			if err := checkStatus(parseStatus([]byte(text)), want); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if seen["1"] < 2 || len(seen) < 2 {
			t.Errorf("threads seen by process: %v", seen)
		}
		if strings.Contains(text, "unreadable") {
			t.Error(text)
		}
	})
}

func TestPID1CannotBeLookedInto(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("/aisb", "probe", "lookin")
		text, _ := b.run()
		for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
			denied := strings.Contains(line, "permission denied") || strings.Contains(line, "operation not permitted")
			open := strings.HasPrefix(line, "pidfd")
			if strings.HasPrefix(line, "fd ") && b.owner == 0 {
				// What is shut belongs to the machine's root, which is who
				// lists here; the descriptors themselves stay shut.
				open = true
			}
			if denied == open {
				t.Error(line)
			}
		}
		if strings.Count(text, "\n") != 11 {
			t.Error(text)
		}
	})
}

func TestNoInheritedDescriptors(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("/aisb", "probe", "fds")
		text, _ := b.run()
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for _, l := range lines {
			if l[0] > '2' {
				t.Errorf("inherited: %s", l)
			}
		}
		if len(lines) != 3 {
			t.Error(text)
		}
	})
}

func TestEnvironmentIsTheSpecs(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("/usr/bin/env", "-0")
		b.env = []string{"OUTER=1"}
		b.Spec.Env = append(b.Spec.Env, "LINES=a\nb", "BYTES=\xff\xfe")
		text, _ := b.run()
		if want := strings.Join(b.Spec.Env, "\x00") + "\x00"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}

func TestExitCodes(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		for _, c := range []struct {
			command []string
			code    int
			signal  int
		}{
			{[]string{"true"}, 0, 0},
			{[]string{"sh", "-c", "exit 77"}, 77, 0},
			{[]string{"sh", "-c", "kill -9 $$"}, 137, 9},
			{[]string{"sh", "-c", "kill -TERM $$"}, 143, 15},
		} {
			_, e := sandbox(c.command...).run()
			if e.Code != c.code || e.Signal != c.signal || e.Error != "" {
				t.Errorf("%q: %+v", c.command, e)
			}
		}
	})
}

func TestCannotBeExecuted(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		for _, c := range []struct {
			command string
			workdir string
			code    int
		}{
			{"nonesuch", "/proj", 127},
			{"/nonesuch", "/proj", 127},
			{"./script", "/proj", 127}, // its interpreter is missing
			{"./plain", "/proj", 126},
			{"./text", "/proj", 126}, // no format that the kernel knows
			{"plain", "/proj", 127},  // no relative element of PATH
			{"/proj", "/proj", 126},
			{"true", "/nonesuch", 126},
		} {
			b := sandbox(c.command)
			b.Spec.Workdir = c.workdir
			b.Spec.Env = []string{"PATH=:.:/usr/bin"}
			b.must(os.WriteFile(b.path("proj/script"), []byte("#!/nonesuch\n"), 0o755))
			b.must(os.WriteFile(b.path("proj/text"), []byte("text\n"), 0o755))
			b.must(os.WriteFile(b.path("proj/plain"), []byte("#!/usr/bin/true\n"), 0o644))
			b.begin()
			f := b.recv()
			if f.Exited == nil || f.Exited.Code != c.code || f.Exited.Error == "" {
				t.Errorf("%s: %+v, not %d", c.command, f, c.code)
			}
			if got := b.end(); got != c.code {
				t.Errorf("%s: exit code %d, not %d", c.command, got, c.code)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		fault   string
		change  func(*spec.Spec)
		code    int
		control string
		reason  string
	}{
		{fault: "extra mount", code: 77, control: "mounts", reason: "/opt is mounted"},
		{fault: "mount below a device", code: 77, control: "mounts", reason: "/dev/shm/x is mounted"},
		{fault: "project covered", code: 77, control: "mounts", reason: "mounted twice"},
		{fault: "project swapped", code: 77, control: "mounts", reason: "not what the host saw"},
		{fault: "tmp missing", code: 77, control: "mounts", reason: "/tmp is in the policy and not mounted"},
		{fault: "writable root", code: 77, control: "mounts", reason: "writable"},
		{fault: "second device", code: 77, control: "network", reason: "tap1"},
		{fault: "table before", code: 77, control: "ruleset", reason: "before"},
		{fault: "no net_admin", code: 77, control: "ruleset", reason: "not permitted"},
		{fault: "no setpcap", code: 77, control: "capabilities", reason: "not permitted"},
		{fault: "no device", code: 77, control: "ruleset", reason: "unreachable"},
		{code: 77, control: "network", reason: "tap0", change: func(s *spec.Spec) { s.Firewall = spec.Firewall{Mode: spec.ModeNone} }},
		{code: 77, control: "mounts", reason: "not what the host saw", change: func(s *spec.Spec) { s.Binds[0].Ino++ }},
		{code: 77, control: "mounts", reason: "not what the host saw", change: func(s *spec.Spec) { s.Binds[0].Dev++ }},
		{code: 78, control: "spec", reason: "version", change: func(s *spec.Spec) { s.Version++ }},
		{code: 78, control: "spec", reason: "uid", change: func(s *spec.Spec) { s.UID = 0 }},
	} {
		b := newBox(t, "touch", "/proj/ran")
		if c.fault != "" {
			b.env = []string{"STAGE_FAULT=" + c.fault}
		}
		if c.change != nil {
			c.change(&b.Spec)
		}
		b.refused(c.code, c.control, c.reason)
		if _, err := os.Stat(b.path("proj/ran")); err == nil {
			t.Errorf("%s: the command ran", c.reason)
		}
	}
}

// Without CAP_SETUID even the FIFOs are out of reach: the exit code tells.
func TestNoSetuid(t *testing.T) {
	b := newBox(t, "true")
	b.env = []string{"STAGE_FAULT=no setuid"}
	b.start()
	if code := b.end(); code != 77 {
		t.Errorf("exit code %d: %s", code, b.stderr.String())
	}
}

// The positive control of the refusals that ask for mode none.
func TestModeNone(t *testing.T) {
	b := newBox(t, "true")
	b.env = []string{"STAGE_FAULT=no device"}
	b.Spec.Firewall = spec.Firewall{Mode: spec.ModeNone}
	if _, e := b.run(); e.Code != 0 {
		t.Errorf("%+v", e)
	}
}

func TestNamesMustBeGone(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("true")
		b.keep = true
		b.begin()
		f := b.recv()
		if f.Refused == nil || f.Refused.Control != "channel" || b.end() != 77 {
			t.Errorf("%+v", f)
		}
	})
}

func TestGarbageInTheChannel(t *testing.T) {
	for _, text := range []string{
		"\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x00\x00\x00\x02{}", "\x00\x00\x00\x0d{\"signal\":3}x",
		"\x00\x00\x00\x09{\"new\":1}", "\x00\x00\x00\x0b{\"go\":true} ",
	} {
		b := newBox(t, "true")
		_, err := b.in.WriteString(text)
		b.must(err)
		b.start()
		f := b.recv()
		if f.Refused == nil || f.Refused.Control != "spec" || b.end() != 78 {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// One frame may not both tell what to do and let it begin.
func TestOneThingAFrame(t *testing.T) {
	b := newBox(t, "true")
	b.must(spec.WriteFrame(b.in, spec.ToGuest{Spec: &b.Spec, Go: true}))
	b.start()
	if f := b.recv(); f.Refused == nil || f.Refused.Control != "spec" || b.end() != 78 {
		t.Errorf("%+v", f)
	}
}

// alive finds processes of the machine by a word in their arguments.
func alive(marker string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if slices.Contains(strings.Split(string(text), "\x00"), marker) {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestLifeline(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		marker := fmt.Sprintf("86%d", os.Getpid())
		b := sandbox("sh", "-c", "trap '' HUP TERM INT; (setsid setsid sleep "+marker+" &) ; (setsid sleep "+marker+" &); sleep "+marker)
		b.started()
		eventually(t, "three sleepers", func() bool { return len(alive(marker)) == 3 })
		b.in.Close()
		begin := time.Now()
		b.end()
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		eventually(t, "none is left", func() bool { return len(alive(marker)) == 0 })
	})
}

// A host that dies before it has said anything leaves nobody waiting.
func TestLifelineBeforeGo(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("true")
		b.start()
		b.recv()
		b.in.Close()
		if code := b.end(); code == 0 {
			t.Error("exit code 0")
		}
	})
}

func TestWhatTheCommandLeavesBehind(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		marker := fmt.Sprintf("87%d", os.Getpid())
		b := sandbox("sh", "-c", "(setsid sleep "+marker+" >/dev/null 2>&1 &) ; exit 3")
		if _, e := b.run(); e.Code != 3 {
			t.Errorf("%+v", e)
		}
		eventually(t, "none is left", func() bool { return len(alive(marker)) == 0 })
	})
}

// lines reads what the command writes, as it writes it.
func lines(b *box) func() string {
	r, w, err := os.Pipe()
	b.must(err)
	b.output = w
	sc := bufio.NewScanner(r)
	return func() string {
		b.must(r.SetReadDeadline(time.Now().Add(time.Minute)))
		sc.Scan()
		return sc.Text()
	}
}

func TestSignals(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("/aisb", "probe", "signals")
		next := lines(b)
		read := func(n int) (got []string) {
			for range n {
				got = append(got, next())
			}
			slices.Sort(got)
			return got
		}
		want := func(what string, want ...string) {
			t.Helper()
			if got := read(len(want)); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		b.started()
		want("start", "ready", "readyfalse", "readytrue")
		b.send(spec.ToGuest{Signal: int(unix.SIGINT)})
		want("INT to the group", "2", "false2")
		b.send(spec.ToGuest{Signal: int(unix.SIGWINCH)})
		want("WINCH to the group", "28", "false28")
		b.send(spec.ToGuest{Signal: int(unix.SIGUSR1)})
		want("USR1 to the command", "10")
		b.must(syscall.Kill(b.pid1(), unix.SIGUSR1))
		want("USR1 by PID 1", "10")
		b.must(syscall.Kill(b.pid1(), unix.SIGHUP))
		want("HUP by PID 1", "1", "false1")
		b.send(spec.ToGuest{Signal: int(unix.SIGTERM)})
		want("TERM to the command", "15")
		if f := b.recv(); f.Exited == nil || f.Exited.Code != 0 {
			t.Errorf("%+v", f)
		}
		b.end()
	})
}

func TestReapsOrphans(t *testing.T) {
	each(t, func(t *testing.T, sandbox func(command ...string) *box) {
		b := sandbox("bash", "-c", `
		for i in 1 2 3 4; do (for j in {1..250}; do (: & ) ; done) & done; wait
		left() { cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.*Z'; }
		for i in {1..200}; do [ $(left) = 0 ] && { echo reaped; exit; }; sleep 0.05; done; left`)
		if text, _ := b.run(); strings.TrimSpace(text) != "reaped" {
			t.Errorf("zombies: %s", text)
		}
	})
}
