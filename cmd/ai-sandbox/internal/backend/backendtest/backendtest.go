// Package backendtest is what every backend has to pass: one list of tests, at
// the level of the contract where that says it all, and else of whole sessions
// with the policy that a run would have. A backend's own test makes a Target and
// calls Contract and, where something is isolated, Isolation.
package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// A Target is a backend under test.
type Target struct {
	Backend backend.Backend
	// Input is what every policy is resolved from; each test sets the command
	// and what it is about. Its Facts have no project and no runtime directory.
	Input policy.Input
	// SandboxImage is an image id, or "" on a runtime without images.
	SandboxImage string
	// Dir is a directory that the test may write to, with a short path.
	Dir string
}

// sessionTime bounds one session.
const sessionTime = time.Minute

// A bench is a target with the directories of one test.
type bench struct {
	Target
	t       *testing.T
	m       *session.Manager
	project string
}

func newBench(t *testing.T, target Target) *bench {
	t.Helper()
	dir, err := os.MkdirTemp(target.Dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Target: target, t: t, project: filepath.Join(dir, "project")}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	st, err := store.Open(filepath.Join(dir, "records"))
	if err != nil {
		t.Fatal(err)
	}
	b.m = &session.Manager{Store: st, RuntimeDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Say: t.Logf}
	for _, d := range []string{b.project, b.m.RuntimeDir, b.m.StateDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.Input.Facts.Project, b.Input.Facts.RuntimeDir = b.project, b.m.RuntimeDir
	b.Input.EphemeralHome = true
	b.Input.Net = policy.NetNone
	return b
}

// An outcome is a session that has ended.
type outcome struct {
	session.Report
	err       error
	out, errs string
}

// A call changes what a session is asked for.
type call func(*policy.Input, *session.Request)

// sh runs a script.
func (b *bench) sh(script string, calls ...call) outcome {
	b.t.Helper()
	return b.run([]string{"sh", "-c", script}, calls...)
}

// run runs a command in a session of its own, and makes sure that nothing of it
// is left.
func (b *bench) run(command []string, calls ...call) outcome {
	b.t.Helper()
	var out, errs bytes.Buffer
	in := b.Input
	in.Command = command
	var st unix.Stat_t
	if err := unix.Stat(b.project, &st); err != nil {
		b.t.Fatal(err)
	}
	req := session.Request{
		SandboxImage: b.SandboxImage, Streams: backend.Streams{Stdout: &out, Stderr: &errs},
		Project: spec.Bind{Dev: st.Dev, Ino: st.Ino}, Start: time.Now(),
	}
	for _, c := range calls {
		c(&in, &req)
	}
	p, err := policy.Resolve(in)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Policy = p
	ctx, cancel := context.WithTimeout(b.t.Context(), sessionTime)
	defer cancel()
	var o outcome
	o.Report, o.err = b.m.Run(ctx, b.Backend, req)
	o.out, o.errs = out.String(), errs.String()
	if o.Leftover != "" {
		b.t.Errorf("left over: %s", o.Leftover)
	}
	left, err := b.Backend.List(b.t.Context())
	if err != nil {
		b.t.Error(err)
	}
	if slices.ContainsFunc(left, func(l backend.Leftover) bool { return l.Session == o.Session }) {
		b.t.Errorf("left over: %+v", left)
	}
	return o
}

// fine fails the test unless the command ended by itself with code 0.
func (b *bench) fine(o outcome) outcome {
	b.t.Helper()
	if o.err != nil || o.ExitCode != 0 || o.EndedBy != session.EndedByCommand {
		b.t.Fatalf("exit code %d, ended by %s: %v %s\n%s%s", o.ExitCode, o.EndedBy, o.err, o.Reason, o.out, o.errs)
	}
	return o
}

// Contract is for every backend.
func Contract(t *testing.T, target Target) {
	for _, row := range []struct {
		name string
		test func(*bench)
	}{
		{"Capabilities", capabilities}, {"Unsupported", unsupported}, {"Home", home}, {"Nothing", nothing},
		{"ExitCodes", exitCodes}, {"Streams", streams}, {"Binary", binary}, {"NoInput", noInput}, {"NoReader", noReader},
		{"Signals", signals}, {"Remove", remove}, {"Parallel", parallel},
	} {
		t.Run(row.name, func(t *testing.T) { row.test(newBench(t, target)) })
	}
}

// capabilities are data that fits the policy's own words.
func capabilities(b *bench) {
	c := b.Backend.Capabilities()
	pairs := map[string]string{policy.RuntimePodman: policy.IsolationContainer, policy.RuntimeLocal: policy.IsolationProcess}
	if pairs[c.Runtime] != c.Isolation {
		b.t.Errorf("runtime %q with isolation %q", c.Runtime, c.Isolation)
	}
	if c.Runtime != b.Input.Runtime {
		b.t.Errorf("runtime %q, and the target's is %q", c.Runtime, b.Input.Runtime)
	}
	if c.Limits == nil || len(c.Networks) == 0 || len(c.GateEngines) == 0 {
		b.t.Errorf("a list is missing: %+v", c)
	}
	for list, known := range map[*[]string][]string{
		&c.Networks:    {policy.NetGated, policy.NetUnix, policy.NetNone, policy.NetHost},
		&c.GateEngines: {policy.EngineSquid, policy.EngineBuiltin},
		&c.Limits:      {"memory", "cpus", "pids", "time", "disk"},
	} {
		for i, v := range *list {
			if !slices.Contains(known, v) || slices.Contains((*list)[:i], v) {
				b.t.Errorf("%q is not known, or there twice", v)
			}
		}
	}
}

// unsupported: what a backend can't do is refused by name before anything is
// there.
func unsupported(b *bench) {
	caps := b.Backend.Capabilities()
	in := b.Input
	in.Command = []string{"true"}
	p, err := policy.Resolve(in)
	if err != nil {
		b.t.Fatal(err)
	}
	other := policy.RuntimeLocal
	if caps.Runtime == other {
		other = policy.RuntimePodman
	}
	changes := map[string]func(*policy.Policy){
		"runtime": func(p *policy.Policy) { p.Runtime = other },
		"network": func(p *policy.Policy) { p.Net.Mode = "telepathy" },
		"kind": func(p *policy.Policy) {
			p.Mounts = append(slices.Clone(p.Mounts), policy.Mount{Kind: "wish", Target: "/wish"})
		},
	}
	for _, mode := range []string{policy.NetGated, policy.NetUnix, policy.NetNone, policy.NetHost} {
		if !slices.Contains(caps.Networks, mode) {
			changes[mode] = func(p *policy.Policy) { p.Net.Mode = mode }
		}
	}
	for name, change := range changes {
		changed := p.Filled("x", 0)
		change(&changed)
		s := backend.Sandbox{Name: "aisb-backendtest", Session: "x", Image: b.SandboxImage, Policy: changed, ControlDir: b.m.RuntimeDir}
		_, err := b.Backend.CreateSandbox(b.t.Context(), s)
		var no *backend.UnsupportedError
		if !errors.As(err, &no) || no.Runtime != caps.Runtime || no.What == "" {
			b.t.Errorf("%s: %v", name, err)
		}
		if err := b.Backend.Remove(b.t.Context(), s.Name); err != nil {
			b.t.Error(err)
		}
	}
}

// home: one for each project, made once, and removed with all that is in it.
func home(b *bench) {
	ctx := b.t.Context()
	name := "aisb-home-backendtest-" + session.NewID()
	labels := func(layout, project string) map[string]string {
		return map[string]string{backend.LabelHomeLayout: layout, backend.LabelProject: project}
	}
	for range 2 {
		if err := b.Backend.RemoveVolume(ctx, name); err != nil {
			b.t.Errorf("remove what is not there: %v", err)
		}
	}
	for _, layout := range []string{"7", "8"} {
		if got, err := b.Backend.EnsureHome(ctx, name, "", labels(layout, "/p")); got != "7" || err != nil {
			b.t.Errorf("layout %q, %v", got, err)
		}
	}
	if _, err := b.Backend.EnsureHome(ctx, name, "", labels("7", "/q")); err == nil || !strings.Contains(err.Error(), "/p") {
		b.t.Errorf("another project's: %v", err)
	}
	for range 2 {
		if err := b.Backend.RemoveVolume(ctx, name); err != nil {
			b.t.Error(err)
		}
	}
	if got, err := b.Backend.EnsureHome(ctx, name, "", labels("8", "/q")); got != "8" || err != nil {
		b.t.Errorf("made anew: layout %q, %v", got, err)
	}
	// Starts of one project at once.
	var wg sync.WaitGroup
	both := "aisb-home-backendtest-" + session.NewID()
	for range 4 {
		wg.Go(func() {
			if got, err := b.Backend.EnsureHome(ctx, both, "", labels("1", "/p")); got != "1" || err != nil {
				b.t.Errorf("at once: layout %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	for _, n := range []string{name, both} {
		if err := b.Backend.RemoveVolume(ctx, n); err != nil {
			b.t.Error(err)
		}
	}
}

// nothing: the calls about a name that is not there.
func nothing(b *bench) {
	if err := b.Backend.Remove(b.t.Context(), "aisb-nobody"); err != nil {
		b.t.Errorf("remove: %v", err)
	}
}

func exitCodes(b *bench) {
	for _, code := range []int{0, 1, 42, 77, 78, 125, 255} {
		o := b.sh(fmt.Sprintf("exit %d", code))
		if o.err != nil || o.ExitCode != code || o.EndedBy != session.EndedByCommand || o.Signal != 0 {
			b.t.Errorf("exit %d: %+v, %v", code, o.Report, o.err)
		}
	}
	if o := b.sh("kill -KILL $$"); o.ExitCode != 137 || o.Signal != 9 || o.EndedBy != session.EndedByCommand {
		b.t.Errorf("killed by itself: %+v, %v", o.Report, o.err)
	}
	if o := b.run([]string{"there-is-no-such-program"}); o.ExitCode != 127 || o.err == nil || o.EndedBy != session.EndedByEntrypoint {
		b.t.Errorf("no such program: %+v, %v", o.Report, o.err)
	}
	if o := b.run([]string{"/etc"}); o.ExitCode != 126 || o.err == nil {
		b.t.Errorf("a directory: %+v, %v", o.Report, o.err)
	}
}

// streams: standard output and error are apart, and each in its order.
func streams(b *bench) {
	o := b.fine(b.sh("i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"))
	for name, got := range map[string]string{"out": o.out, "err": o.errs} {
		var want strings.Builder
		for i := range 200 {
			fmt.Fprintln(&want, name, i)
		}
		if got != want.String() {
			b.t.Errorf("%s: %d bytes, and not %d", name, len(got), want.Len())
		}
	}
}

// binary: every byte passes as it is, in both directions.
func binary(b *bench) {
	blob := make([]byte, 1<<20)
	for i := range blob {
		blob[i] = byte(i ^ i>>8 ^ i>>16)
	}
	o := b.fine(b.run([]string{"cat"}, func(_ *policy.Input, r *session.Request) { r.Streams.Stdin = bytes.NewReader(blob) }))
	if o.out != string(blob) {
		b.t.Errorf("%d bytes of %d came back, or others", len(o.out), len(blob))
	}
}

// noInput: without an input, the command reads its end at once.
func noInput(b *bench) {
	if o := b.fine(b.run([]string{"cat"})); o.out != "" {
		b.t.Errorf("read %q", o.out)
	}
}

// noReader: when nobody reads the output any more, the session ends.
func noReader(b *bench) {
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	// The shell's own echo may outlive the loss of its reader, as a program does
	// that ignores SIGPIPE.
	o := b.sh("trap '' PIPE; while :; do echo y 2>/dev/null; done", func(_ *policy.Input, r *session.Request) { r.Streams.Stdout = w })
	if o.EndedBy != session.EndedByOutput || o.ExitCode != 128+int(syscall.SIGPIPE) {
		b.t.Errorf("%+v, %v", o.Report, o.err)
	}
}

// signals reach the command, which may live on.
func signals(b *bench) {
	sigs := make(chan os.Signal, 2)
	out := &watched{want: "ready\n", seen: make(chan struct{})}
	go func() {
		<-out.seen
		sigs <- syscall.SIGUSR1
	}()
	o := b.sh(`trap 'echo got usr1; exit 7' USR1; echo ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done`,
		func(_ *policy.Input, r *session.Request) { r.Signals, r.Streams.Stdout = sigs, out })
	if o.ExitCode != 7 || o.err != nil || !strings.Contains(out.String(), "got usr1") {
		b.t.Errorf("%+v, %v, %q", o.Report, o.err, out)
	}
}

// A watched writer tells when it has seen a text.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	once sync.Once
	seen chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// remove: a running sandbox ends when it is removed from under its session, and
// to remove it again is no error.
func remove(b *bench) {
	out := &watched{want: "ready\n", seen: make(chan struct{})}
	removed := make(chan error, 1)
	go func() {
		<-out.seen
		list, err := b.Backend.List(context.WithoutCancel(b.t.Context()))
		i := slices.IndexFunc(list, func(l backend.Leftover) bool { return l.Running && b.mine(l) })
		if err == nil && i < 0 {
			err = fmt.Errorf("it is not in the list: %+v", list)
		}
		for range 2 {
			if err == nil {
				err = b.Backend.Remove(context.WithoutCancel(b.t.Context()), list[i].ID)
			}
		}
		removed <- err
	}()
	begin := time.Now()
	o := b.sh("echo ready; sleep 1000 & exec sleep 1000", func(_ *policy.Input, r *session.Request) { r.Streams.Stdout = out })
	if err := <-removed; err != nil {
		b.t.Error(err)
	}
	if o.EndedBy != session.EndedByLoss || o.err == nil || time.Since(begin) > 30*time.Second {
		b.t.Errorf("%+v, %v after %s", o.Report, o.err, time.Since(begin))
	}
}

// mine tells whether a sandbox is of this bench's store.
func (b *bench) mine(l backend.Leftover) bool {
	records, err := b.m.Store.List()
	return err == nil && slices.ContainsFunc(records, func(r store.Record) bool { return r.ID == l.Session })
}

// parallel sessions of one project leave each other alone.
func parallel(b *bench) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			o := b.sh(fmt.Sprintf("echo %d; exit %d", i, i), func(*policy.Input, *session.Request) {})
			if o.ExitCode != i || o.out != fmt.Sprintf("%d\n", i) || o.err != nil {
				b.t.Errorf("%d: %+v, %v, %q", i, o.Report, o.err, o.out)
			}
		})
	}
	wg.Wait()
}
