//go:build e2e

package jail

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ai-sandbox/tests/e2e/drive"
)

// beats is how many requests of the agent have come to the far server.
func beats(b *box) int {
	n := 0
	for _, h := range w.net.Hits(b.Token) {
		if h.Net == "http" && strings.Contains(h.Path, "beat") {
			n++
		}
	}
	return n
}

// beating runs an agent that asks a far server again and again, and writes to
// the project each time.
func (b *box) beating(t *testing.T) *drive.Live {
	t.Helper()
	// One that ignores signals and is in a session of its own, too.
	l := b.Start(t, append([]string{"--ephemeral-home"}, b.Gated("sh", "-c",
		"(trap '' HUP TERM INT; exec setsid sh -c 'while :; do printf . >>stray; sleep 0.05; done') >/dev/null 2>&1 & exec ./probe beat https://"+b.Host("ok.test")+"/beat beats")...)...)
	drive.Eventually(t, time.Minute, "the agent's first requests", func() bool { return beats(b) > 3 && b.Size("beats") > 3 && b.Size("stray") > 3 })
	return l
}

// Two seconds after any one of the processes that a session stands on was
// killed, the agent is dead; and the next ai-sandbox removes what is left. A session
// for each runs beside the others. Not parallel: what is left is everybody's.
func TestLifeline(t *testing.T) {
	type killed struct {
		name            string
		owner           bool
		b               *box
		l               *drive.Live
		victim          func(l *drive.Live) []process
		requests, lives int64
	}
	var all []*killed
	for _, engine := range engines() {
		all = append(all,
			&killed{name: engine + " ai-sandbox", owner: true, victim: func(l *drive.Live) []process { return []process{{pid: l.Cmd.Process.Pid}} }},
			&killed{name: engine + " bubblewrap", victim: func(l *drive.Live) []process { return below(t, l, "bwrap ", "session") }},
			&killed{name: engine + " entrypoint", victim: func(l *drive.Live) []process { return below(t, l, "aisb-entrypoint session") }},
		)
		if engine == "squid" {
			all = append(all,
				&killed{name: "squid", victim: func(l *drive.Live) []process { return below(t, l, "squid") }},
				&killed{name: "squid's bubblewrap", victim: func(l *drive.Live) []process { return below(t, l, "bwrap ", " gate ") }},
			)
		}
	}
	settle(t)
	before := snapshot(t)
	for _, k := range all {
		engine, _, _ := strings.Cut(strings.TrimSuffix(k.name, "'s bubblewrap"), " ")
		k.b = newBox(t)
		k.b.Env = []string{"AISB_GATE_ENGINE=" + engine}
		k.l = k.b.beating(t)
	}
	for _, k := range all {
		kill(t, k.victim(k.l)...)
	}
	does := func(k *killed) (requests, lives int64) {
		return int64(beats(k.b)), k.b.Size("beats") + k.b.Size("stray")
	}
	time.Sleep(2 * time.Second) // the promise is about this moment
	for _, k := range all {
		k.requests, k.lives = does(k)
	}
	time.Sleep(500 * time.Millisecond) // ten beats
	for _, k := range all {
		t.Run(k.name, func(t *testing.T) {
			requests, lives := does(k)
			if requests > k.requests {
				t.Error("requests still come through")
			}
			if lives > k.lives {
				t.Error("the agent lives on")
			}
			r := k.l.Wait(20 * time.Second)
			if !k.owner && r.Code != 125 && r.Code != 137 {
				t.Errorf("want a code of our own: %s", r)
			}
			if !k.owner && !strings.Contains(r.Err, "ai-sandbox: ") {
				t.Errorf("nothing is said about it: %s", r)
			}
		})
	}
	// What the killed ones have left, when all others have ended.
	left := snapshot(t).minus(before)
	if len(left) == 0 {
		t.Error("a killed session leaves its record at least, so nothing was reaped")
	}
	for _, s := range left {
		if strings.HasPrefix(s, "process ") || strings.HasPrefix(s, "listener ") {
			t.Errorf("2.5 s later: %s", s)
		}
	}
	newBox(t).OK("clean") // the next command reaps, whatever it is
	nothingLeft(t, before)
}

// below are the processes of a session whose argv holds the words, but for
// ai-sandbox itself.
func below(t *testing.T, l *drive.Live, words ...string) []process {
	t.Helper()
	var out []process
	for _, p := range tree(t, l.Cmd.Process.Pid) {
		all := p.pid != l.Cmd.Process.Pid
		for _, w := range words {
			all = all && strings.Contains(p.argv+" ", w)
		}
		if all {
			out = append(out, p)
		}
	}
	return out
}

// Nothing is left after a normal end, an error at any step, or a signal at any
// moment. Not parallel: what is there is everybody's.
func TestNothingLeft(t *testing.T) {
	settle(t)
	type step struct {
		name string
		run  func(t *testing.T, b *box)
	}
	steps := []step{
		{"normal end", func(t *testing.T, b *box) {
			b.OK("--ephemeral-home", "--allow", b.Host("ok.test"), "--", "curl", "-sS", "https://"+b.Host("ok.test"))
		}},
		{"failing command", func(_ *testing.T, b *box) { b.Run("--ephemeral-home", "--", "false") }},
		{"no such command", func(_ *testing.T, b *box) { b.Run("--ephemeral-home", "--", "no-such-command") }},
		{"no network", func(_ *testing.T, b *box) { b.OK("--ephemeral-home", "--net", "none", "--", "true") }},
		{"refusal", func(_ *testing.T, b *box) { b.Run("--allow", "not a host", "--", "true") }},
		{"printouts", func(_ *testing.T, b *box) { b.OK("--dry-run", "--", "true") }},
		{"no bubblewrap", func(t *testing.T, b *box) {
			b.Env = []string{"PATH=" + fakeOf(t, "bwrap", "case $1 in --version) echo bubblewrap 0.9.0;; *) exit 1;; esac") + ":" + os.Getenv("PATH")}
			b.Run("--ephemeral-home", "--", "true")
		}},
		{"orphans", func(_ *testing.T, b *box) {
			b.OK("--ephemeral-home", "--", "sh", "-c", "(trap '' HUP TERM; setsid sleep 600 >/dev/null 2>&1 &); true")
		}},
		{"locked home", func(_ *testing.T, b *box) {
			b.OK("--ephemeral-home", "--", "sh", "-c", "mkdir -p ~/a/b/c; ln -s /etc ~/a/etc; ln -s / ~/a/b/root; touch ~/a/b/c/f; chmod 000 ~/a/b/c ~/a/b ~/a; mkfifo ~/fifo; chmod 500 ~")
		}},
	}
	for _, engine := range engines() {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			for _, ms := range []int{-1, 0, 2, 5, 8, 12, 16, 20, 25, 30, 40, 50, 70, 90} {
				if ms >= 0 && (ms+int(sig))%2 == 0 && engine == "squid" {
					continue
				}
				name := fmt.Sprintf("%s %v after %d ms", engine, sig, ms)
				if ms < 0 {
					name = fmt.Sprintf("%s %v while it runs", engine, sig)
				}
				steps = append(steps, step{name, func(t *testing.T, b *box) {
					b.Env = []string{"AISB_GATE_ENGINE=" + engine}
					l := b.Start(t, "--allow", b.Host("ok.test"), "--ephemeral-home", "--", "sh", "-c", "echo up >up; exec sleep 600")
					if ms < 0 {
						b.File(t, "up")
					} else {
						time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is the case
					}
					if err := l.Cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
					// Before its handlers are there, a program dies of the signal.
					if r := l.Wait(30 * time.Second); r.Code != 128+int(sig) && (r.Code != -int(sig) || ms < 0) {
						t.Errorf("%s", r)
					}
				}})
			}
		}
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			b := newBox(t)
			before := snapshot(t)
			s.run(t, b)
			// ai-sandbox has ended: only the kernel's own work gets a moment.
			nothingLeft(t, before)
		})
	}
	// The positive control: a session that runs shows in each kind.
	b := newBox(t)
	before := snapshot(t)
	_, stop := b.Background(t, "--ephemeral-home", "--", "sh", "-c", "echo up >up; cat")
	b.File(t, "up")
	seen := strings.Join(snapshot(t).minus(before), "\n")
	for _, want := range []string{"process ", "socket " + runtimeDir(), "file " + runtimeDir(), "file " + stateDir()} {
		if !strings.Contains(seen, want) {
			t.Errorf("the positive control failed: a running session shows no %q: %s", want, seen)
		}
	}
	stop()
}

// What a killed ai-sandbox left is removed by the next command, whichever it is;
// but a record whose process id is another process's now is not that process's.
func TestReaping(t *testing.T) {
	b := newBox(t)
	settle(t)
	for _, next := range [][]string{{"clean"}, {"clean", "--runtime", "podman"}, {"--net", "none", "--ephemeral-home", "--", "true"}} {
		before := snapshot(t)
		l := b.Start(t, "--ephemeral-home", "--allow", b.Host("ok.test"), "--", "sh", "-c", "echo up >up; exec sleep 600")
		b.File(t, "up")
		if err := os.Remove(filepath.Join(b.Dir, "up")); err != nil {
			t.Fatal(err)
		}
		kill(t, process{pid: l.Cmd.Process.Pid})
		l.Wait(10 * time.Second)
		left := snapshot(t).minus(before)
		if len(left) < 2 {
			t.Errorf("the positive control failed: a killed session leaves nothing: %q", left)
		}
		if next[0] == "clean" && len(next) == 1 { // who only looks removes nothing
			files := func(names []string) int { // the kernel may still be taking the rest away
				return len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return !strings.HasPrefix(s, "file ") }))
			}
			if r := b.OK("doctor"); !strings.Contains(r.Out, "1 were killed and have left something behind") || !strings.Contains(r.Out, "ai-sandbox clean") {
				t.Errorf("%s", r)
			}
			if now := snapshot(t).minus(before); files(now) != files(left) || files(now) == 0 {
				t.Errorf("the doctor has removed something: %q", now)
			}
		}
		another, unseen := *b, slices.Contains(next, "podman")
		if unseen {
			another.Env = append(slices.Clone(b.Env), "CONTAINER_HOST=unix:///nowhere") // as good as a machine without podman
		}
		if r := another.OK(next...); strings.Contains(r.Err, "podman was not asked what is left there: ") != unseen {
			t.Errorf("%q: %s", next, r)
		}
		nothingLeft(t, before)
	}

	// A record of a process that has ended, with its number given to another.
	before := snapshot(t)
	l := b.Start(t, "--ephemeral-home", "--", "sh", "-c", "echo up >up; exec sleep 600")
	b.File(t, "up")
	records, err := filepath.Glob(filepath.Join(stateDir(), "*", "session-*.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("%q, %v", records, err)
	}
	kill(t, process{pid: l.Cmd.Process.Pid})
	l.Wait(10 * time.Second)
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bystander.Process.Kill() // ours
		_ = bystander.Wait()         // likewise
	}()
	givePID(t, records[0], bystander.Process.Pid) // the start time is the first one's
	b.OK("clean")
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil || ended(bystander.Process.Pid) {
		t.Errorf("the process that has the number now was ended: %v", err)
	}
	mine := fmt.Sprintf("process %d ", bystander.Process.Pid)
	nothingLeftBut(t, before, func(s string) bool { return strings.HasPrefix(s, mine) })
	// And one that is alive is left alone.
	l, stop := b.Background(t, "--ephemeral-home", "--", "sh", "-c", "echo up >up2; cat")
	b.File(t, "up2")
	b.OK("clean")
	if ended(l.Cmd.Process.Pid) || len(tree(t, l.Cmd.Process.Pid)) < 3 {
		t.Error("clean took a session that runs")
	}
	stop()
}

// The caller's terminal, shell or machine goes away in the middle of a start: so
// does everything else.
func TestKilledWhileStarting(t *testing.T) {
	b := newBox(t)
	settle(t)
	before := snapshot(t)
	for _, ms := range []int{1, 3, 6, 10, 14, 18, 22, 26, 30, 35, 40, 50, 60, 80} {
		l := b.Start(t, "--ephemeral-home", "--allow", b.Host("ok.test"), "--", "sh", "-c", "exec sleep 600")
		time.Sleep(time.Duration(ms) * time.Millisecond) // the moment is the case
		kill(t, process{pid: l.Cmd.Process.Pid})
		l.Wait(10 * time.Second)
	}
	b.OK("clean")
	nothingLeft(t, before)
	// Nor in the project, where a mount point would be.
	if names, err := filepath.Glob(filepath.Join(b.Dir, "*")); err != nil || len(names) != 1 {
		t.Errorf("%q, %v", names, err)
	}
}

// settle makes what stays by design (directories, the entrypoint's file), and
// removes what an earlier test has left.
func settle(t *testing.T) {
	t.Helper()
	b := newBox(t)
	b.OK("--ephemeral-home", "--", "true")
	h := readHandle(t, b.OK("up", "--json", "--net", "none").Out)
	b.OK("down", h.ID)
	b.OK("clean")
}

// givePID makes a record say that its owner has another number.
func givePID(t *testing.T, record string, pid int) {
	t.Helper()
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`"pid":\d+`).ReplaceAll(text, fmt.Appendf(nil, `"pid":%d`, pid))
	if bytes.Equal(changed, text) {
		t.Fatalf("no pid in %s", text)
	}
	if err := os.WriteFile(record, changed, 0o600); err != nil {
		t.Fatal(err)
	}
}
