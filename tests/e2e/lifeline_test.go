//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/canary"
	"ai-sandbox/tests/e2e/drive"
)

// A process of the test host, as /proc has it.
type process struct {
	pid, parent int
	start       string
	argv        string
}

func (p process) String() string { return fmt.Sprintf("%d (parent %d) %s", p.pid, p.parent, p.argv) }

// processes are all of this user, but for threads of the kernel.
func processes(t *testing.T) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err1 := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		argv, err2 := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err1 != nil || err2 != nil || len(argv) == 0 {
			continue // it has ended
		}
		_, rest, ok := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		if !ok || len(f) < 20 || f[0] == "Z" {
			continue
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, process{pid, parent, f[19], strings.TrimSpace(strings.ReplaceAll(string(argv), "\x00", " "))})
	}
	return out
}

// find returns the processes whose argv holds each of the words.
func find(t *testing.T, words ...string) []process {
	t.Helper()
	return slices.DeleteFunc(processes(t), func(p process) bool {
		for _, w := range words {
			if !strings.Contains(p.argv, w) {
				return true
			}
		}
		return p.pid == os.Getpid()
	})
}

// beats is how many requests of the agent have come to the far server.
func beats(b *drive.Box) int {
	n := 0
	for _, h := range w.net.Hits(b.Token) {
		if h.Net == "http" && strings.Contains(h.Path, "beat") {
			n++
		}
	}
	return n
}

// Two seconds after any one of the processes that a session stands on was
// killed, the agent is dead or no connection is possible; and the next
// ai-sandbox removes what is left. A session for each runs beside the others, but
// for the one whose victim is everybody's. Not parallel, likewise.
func TestLifeline(t *testing.T) {
	type killed struct {
		name            string
		b               *drive.Box
		l               *drive.Live
		id              string
		victim          func(k *killed) []process
		requests, lives int64
		code            int    // that it ends with; 0: any
		gate            string // a named one that it uses
	}
	// The gates' processes are told apart by their conmon, which is the parent of all.
	ofGate := func(k *killed, words ...string) []process {
		return descendants(t, find(t, "conmon", "aisb-gate-"+k.id), words...)
	}
	lifeline := func(t *testing.T, all ...*killed) {
		warm := newBox(t)
		warm.OK("--net", "none", "--ephemeral-home", "--", "true") // makes the directories that stay
		warm.OK("clean")
		before := snapshot(t)
		for _, k := range all {
			k.b = newBox(t)
			through := []string{"--allow", k.b.Host("ok.test")}
			if k.gate != "" {
				k.gate = k.b.Token
				k.b.OK(append([]string{"gate", "up", k.gate}, through...)...)
				t.Cleanup(func() { k.b.Run("gate", "down", k.gate) })
				through = []string{"--gate", k.gate}
			}
			k.l = k.b.Start(t, append(through, "--ephemeral-home", "--", "./probe", "beat", "https://"+k.b.Host("ok.test")+"/beat", "beats")...)
			drive.Eventually(t, time.Minute, "the agent's first requests", func() bool { return beats(k.b) > 5 && k.b.Size("beats") > 5 })
			k.id = sessionOf(t, k.b)
		}
		for _, k := range all {
			victims := k.victim(k)
			if len(victims) == 0 {
				t.Fatalf("%s: no such process: %v", k.name, processes(t))
			}
			for _, p := range victims {
				if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(2 * time.Second) // the promise is about this moment
		for _, k := range all {
			k.requests, k.lives = int64(beats(k.b)), k.b.Size("beats")
		}
		time.Sleep(700 * time.Millisecond) // some beats
		for _, k := range all {
			t.Run(k.name, func(t *testing.T) {
				if int64(beats(k.b)) > k.requests {
					t.Error("requests still come through")
				}
				if k.name != "pasta" { // its end only takes the network away
					size := k.lives
					if k.name == "ai-sandbox" && k.b.Size("beats") > size { // nobody has to notice first
						t.Error("the agent outlives its owner")
					}
					drive.Eventually(t, 30*time.Second, "the agent is dead", func() bool {
						before := size
						if size = k.b.Size("beats"); size > before {
							time.Sleep(700 * time.Millisecond)
							return false
						}
						return true
					})
				} else {
					if err := k.l.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
				}
				if r := k.l.Wait(30 * time.Second); k.code != 0 && (r.Code != k.code || !strings.Contains(r.Err, "ai-sandbox: error: ")) {
					t.Errorf("want exit code %d, and why: %s", k.code, r)
				}
			})
		}
		for _, k := range all {
			if k.gate != "" {
				k.b.Run("gate", "down", k.gate) // it lives on, or is gone
			}
		}
		warm.OK("clean") // the next command reaps, whatever it is
		nothingLeft(t, before)
	}
	lifeline(t,
		&killed{name: "ai-sandbox", victim: func(k *killed) []process { return []process{{pid: k.l.Cmd.Process.Pid}} }},
		&killed{name: "squid", code: 125, victim: func(k *killed) []process { return ofGate(k, "squid", "front") }},
		&killed{name: "both squids", code: 125, victim: func(k *killed) []process { return ofGate(k, "squid") }},
		&killed{name: "the sandbox's conmon", code: 125, victim: func(k *killed) []process { return find(t, "conmon", "aisb-"+k.id) }},
		&killed{name: "the gate's conmon", code: 125, victim: func(k *killed) []process { return find(t, "conmon", "aisb-gate-"+k.id) }},
		&killed{name: "a named gate's container", gate: "its own", code: 125, victim: func(k *killed) []process {
			return descendants(t, find(t, "conmon", "aisb-gate-"+k.gate), "aisb-entrypoint gate")
		}},
		&killed{name: "a named gate's squid for it", gate: "its own", code: 125, victim: func(k *killed) []process {
			return descendants(t, find(t, "conmon", "aisb-gate-"+k.gate), "squid", "front", k.id)
		}},
		&killed{name: "pasta", victim: func(k *killed) []process { return find(t, "pasta", "--netns "+netns(t, "aisb-"+k.id)) }},
	)
	lifeline(t, &killed{name: "the podman service", code: 125, victim: func(*killed) []process { return find(t, "podman", "system", "service") }})
}

// descendants are the processes below some others whose argv holds each of the words.
func descendants(t *testing.T, of []process, words ...string) []process {
	t.Helper()
	all, in := processes(t), map[int]bool{}
	for _, p := range of {
		in[p.pid] = true
	}
	var out []process
	for more := true; more; {
		more = false
		for _, p := range all {
			if in[p.parent] && !in[p.pid] {
				in[p.pid], more = true, true
				if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.argv, w) }) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// sessionOf is the id of the session that runs in the box's project.
func sessionOf(t *testing.T, b *drive.Box) string {
	t.Helper()
	all := drive.Output(t, "podman", "ps", "--filter", "name=^aisb-[0-9a-f]+$", "--format", "{{.Names}} {{.Mounts}}")
	for line := range strings.Lines(all) {
		if strings.Contains(line, b.Dir) {
			return strings.TrimPrefix(strings.Fields(line)[0], "aisb-")
		}
	}
	t.Fatalf("no session in %s among %q", b.Dir, all)
	return ""
}

// A state is what a session could leave behind.
type state map[string]bool

// snapshot takes everything that is there now.
func snapshot(t *testing.T) state {
	t.Helper()
	s := state{}
	for _, args := range [][]string{
		{"ps", "--all", "--external", "--format", "container {{.Names}}"}, {"volume", "ls", "--format", "volume {{.Name}}"}, {"network", "ls", "--format", "network {{.Name}}"},
	} {
		for line := range strings.Lines(drive.Output(t, "podman", args...)) {
			s[strings.TrimSpace(line)] = true
		}
	}
	for _, p := range processes(t) {
		// The service stays by design, and podman's pause process with it.
		if strings.Contains(p.argv, "system service") || strings.Contains(p.argv, "catatonit -P") || strings.HasPrefix(p.argv, "podman ") {
			continue
		}
		s[fmt.Sprintf("process %d %s %s", p.pid, p.start, p.argv)] = true
	}
	for _, root := range []string{
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "ai-sandbox"), filepath.Join(w.home, "e2e", "state"), filepath.Join(w.home, "e2e", "config"), "/tmp", "/dev/shm",
	} {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && !strings.HasSuffix(path, "/podman.sock") && !strings.HasSuffix(path, "/podman.log") && !strings.HasSuffix(path, ".lock") &&
				!strings.HasPrefix(path, os.TempDir()+"/Test") && !canary.Kept(filepath.Join(w.home, "e2e", "state", "ai-sandbox"), path) {
				s["file "+path] = true
			}
			return nil // what vanishes while it is walked is not left behind
		})
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		data, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 3 && (f[3] == "0A" || strings.HasPrefix(table, "udp") && f[3] == "07" && strings.HasSuffix(f[2], ":0000")) {
				s["listener "+table+" "+f[1]] = true
			}
		}
	}
	return s
}

// minus is what is in s and was not in before.
func (s state) minus(before state) []string {
	var out []string
	for k := range s {
		if !before[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// nothingLeft fails when more is there than before, after a moment's grace: on a busy
// machine the kernel and conmon are at their end later than the session.
func nothingLeft(t *testing.T, before state) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if left = snapshot(t).minus(before); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
	}
}

// Nothing is left after a normal end, an error at any step, or a signal. Not
// parallel: what is there is everybody's.
func TestNothingLeft(t *testing.T) {
	warm := newBox(t)
	warm.OK("clean")
	warm.OK("--ephemeral-home", "--", "true") // the service and its files are up
	type step struct {
		name string
		run  func(t *testing.T, b *drive.Box)
	}
	signal := func(sig syscall.Signal, moment func(t *testing.T, b *drive.Box, l *drive.Live)) func(*testing.T, *drive.Box) {
		return func(t *testing.T, b *drive.Box) {
			l := b.Start(t, "--allow", b.Host("ok.test"), "--ephemeral-home", "--", "sh", "-c", "echo up >up; exec sleep 600")
			moment(t, b, l)
			if err := l.Cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if r := l.Wait(30 * time.Second); r.Code == 0 {
				t.Errorf("%s", r)
			}
		}
	}
	up := func(t *testing.T, b *drive.Box, _ *drive.Live) { b.File(t, "up") }
	early := func(d time.Duration) func(t *testing.T, b *drive.Box, _ *drive.Live) {
		return func(*testing.T, *drive.Box, *drive.Live) { time.Sleep(d) } // the moment is the case
	}
	steps := []step{
		{"normal end", func(t *testing.T, b *drive.Box) {
			b.OK("--ephemeral-home", "--allow", b.Host("ok.test"), "--", "curl", "-sS", "https://"+b.Host("ok.test"))
		}},
		{"failing command", func(t *testing.T, b *drive.Box) { b.Run("--ephemeral-home", "--", "false") }},
		{"no such command", func(t *testing.T, b *drive.Box) { b.Run("--ephemeral-home", "--", "no-such-command") }},
		{"no network", func(t *testing.T, b *drive.Box) { b.OK("--ephemeral-home", "--net", "none", "--", "true") }},
		{"refusal", func(t *testing.T, b *drive.Box) { b.Run("--allow", "not a host", "--", "true") }},
		{"SIGINT", signal(syscall.SIGINT, up)},
		{"SIGTERM", signal(syscall.SIGTERM, up)},
		{"SIGHUP", signal(syscall.SIGHUP, up)},
	}
	for _, ms := range []int{5, 20, 40, 70, 100, 130, 170, 220} {
		d := time.Duration(ms) * time.Millisecond
		steps = append(steps, step{fmt.Sprintf("SIGTERM after %v", d), signal(syscall.SIGTERM, early(d))})
		if ms%20 == 0 {
			steps = append(steps, step{fmt.Sprintf("SIGINT after %v", d), signal(syscall.SIGINT, early(d))})
		}
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			b := newBox(t)
			before := snapshot(t)
			s.run(t, b)
			// ai-sandbox has ended: from here on nothing may be left. Only
			// the kernel's own work (a container's cgroup, a reparented
			// conmon that writes its exit file) gets a moment.
			nothingLeft(t, before)
		})
	}
}
