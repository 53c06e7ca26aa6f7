// The doctor's part that starts things: podman's service, and a sandbox.

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/policy"
)

// doctor asks podman's service, looks at what was recorded of the images, and at what
// sessions have left. It removes nothing.
func (e *engine) doctor(ctx context.Context, m cli.Machine, r cli.ImageRequest) []host.Verdict {
	if m.Runtime == policy.RuntimeLocal {
		return append(host.Disk(m.Facts, m.Runtime, false), staleVerdict(m))
	}
	namespace := host.PodmanNamespace(m.Facts, podman.TryNamespace(ctx, podmanConfig(m)))
	if !namespace.OK() {
		return []host.Verdict{namespace}
	}
	service := host.Verdict{Name: "podman service"}
	c, err := connect(ctx, m)
	if err != nil {
		service.Problem, service.Fix = err.Error(), "podman info"
		return append([]host.Verdict{namespace, service}, host.Disk(m.Facts, m.Runtime, false)...)
	}
	service.Detail = fmt.Sprintf("answers as version %s", c.Version)
	built := host.Verdict{Name: "images"}
	images, err := filepath.Glob(filepath.Join(m.Facts.Dirs.State, "images", "*.json"))
	switch {
	case err != nil:
		built.Problem, built.Fix = err.Error(), "ai-sandbox build"
	case len(images) == 0:
		built.Detail = "none built yet; the first run builds them, or: ai-sandbox build"
	default:
		built.Detail = fmt.Sprintf("%d built", len(images))
	}
	out := []host.Verdict{namespace, service, built, baseVerdict(r)}
	return append(append(out, host.Disk(m.Facts, m.Runtime, len(images) > 0)...), staleVerdict(m))
}

// staleVerdict says what sessions have left behind.
func staleVerdict(mc cli.Machine) host.Verdict {
	v := host.Verdict{Name: "sessions", Info: true}
	m, err := manager(mc)
	if err != nil {
		v.Problem, v.Fix = err.Error(), "ls -ld "+policy.Quote(mc.Facts.Dirs.State)
		v.Info = false // a run would end so, too
		return v
	}
	list, err := m.Sessions()
	if err != nil {
		v.Problem, v.Fix = err.Error(), "ls -l "+policy.Quote(filepath.Join(mc.Facts.Dirs.State, "records"))
		return v
	}
	count := map[string]int{}
	for _, s := range list {
		count[s.State]++
	}
	stale, err := m.Stale()
	switch {
	case err != nil:
		v.Problem, v.Fix = err.Error(), "ai-sandbox clean"
	case stale > 0:
		v.Problem, v.Fix = fmt.Sprintf("%d were killed and have left something behind; the next run removes it", stale), "ai-sandbox clean"
	}
	v.Detail = fmt.Sprintf("%d live, %d kept, %d ended", count[session.StateLive], count[session.StateKept], count[session.StateEnded])
	return v
}

// baseVerdict says which base the images stand on, and since when that is known.
func baseVerdict(r cli.ImageRequest) host.Verdict {
	v := host.Verdict{Name: "base image"}
	req, err := request(r)
	if err != nil {
		v.Problem, v.Fix = err.Error(), "ai-sandbox update"
		return v
	}
	ref, digest, when, err := req.Pin()
	switch {
	case err != nil:
		v.Problem, v.Fix = err.Error(), "ai-sandbox update"
	case digest == "":
		v.Detail = fmt.Sprintf("%s: no digest of %s is recorded; the next build asks its registry", image.Unpinned, ref)
	case when.IsZero():
		v.Detail = fmt.Sprintf("pinned: %s names its digest", ref)
	default:
		v.Detail = fmt.Sprintf("%s, pinned to %.19s, confirmed %s, %d days ago", ref, digest, when.Format(time.DateOnly), int(time.Since(when).Hours()/24))
	}
	switch demanded, checked, err := req.Signature(); {
	case v.Problem != "":
	case err != nil:
		v.Problem, v.Fix = err.Error(), "ai-sandbox update"
	case demanded && checked:
		v.Detail += "; its signature was checked"
	case demanded:
		v.Detail += "; policy.json demands a signature, which the next start checks"
	}
	switch {
	case v.Problem != "":
	case digest == "":
		v.Info, v.Problem, v.Fix = true, v.Detail, "ai-sandbox update"
	case !when.IsZero():
		return aged(v, r, time.Since(when))
	}
	return v
}

// aged says what replaces a pin that is too old.
func aged(v host.Verdict, r cli.ImageRequest, age time.Duration) host.Verdict {
	if r.BaseTTL < 0 || int(age.Hours()/24) < max(r.BaseTTL, 1) {
		return v
	}
	then := fmt.Sprintf("base_ttl_days is %d, so the next build asks anew", r.BaseTTL)
	if r.KeepBase {
		then = "base_auto_update is 0, so only ai-sandbox update replaces it"
	}
	v.Info, v.Problem, v.Fix = true, v.Detail+"; "+then, "ai-sandbox update"
	return v
}

// trialTime bounds the trial of a sandbox.
const trialTime = 2 * time.Minute

// Checks that a trial makes beside the sandbox's coming up.
const (
	checkSandbox  = "sandbox"
	checkNftables = "nftables"
	checkBind     = "bind mount"
	checkLoopback = "loopback"
)

// trial starts a sandbox as a run does, and looks at it from inside and outside. While
// podman has no image for one, it makes one of the entrypoint alone, and the gate is this
// program's own: all else is a run's.
func (e *engine) trial(ctx context.Context, r cli.RunRequest, dir string) []host.Verdict {
	t := trialOf{r: r, dir: dir}
	const word = "carried from outside to inside and back"
	if err := os.WriteFile(filepath.Join(dir, "outside"), []byte(word), 0o600); err != nil {
		return t.failed(err, "ls -ld "+policy.Quote(dir))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("it did not end within %s", trialTime))
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	r.Err = io.Discard
	began := time.Now()
	change := func(req *session.Request) {
		req.Trial, req.Terminal, req.Streams = true, nil, backend.Streams{Stdout: &t.stdout, Stderr: &t.stderr}
	}
	run := func() (session.Report, error) { return e.runSession(ctx, r, signals, change) }
	on := ""
	if r.Policy.Runtime == policy.RuntimePodman {
		c, err := connect(ctx, r.Machine)
		if err != nil {
			return t.failed(err, "podman info")
		}
		ready := false
		if e.plan != nil {
			if ready, err = e.plan.Warm(ctx, c); err != nil {
				return t.failed(err, "ai-sandbox build")
			}
		}
		if !ready {
			on = " on an image of the doctor's own"
			run = func() (session.Report, error) { return e.runOnTrialImage(ctx, c, r, signals, change) }
		}
	}
	rep, err := run()
	if err != nil {
		return t.startFailed(rep, err)
	}
	t.forget(rep)
	out := []host.Verdict{{Name: checkSandbox, Detail: fmt.Sprintf("one came up and ended within %d ms%s: user namespace, mounts and filter were read back", time.Since(began).Milliseconds(), on)}}
	if r.Policy.Runtime == policy.RuntimePodman {
		out = append(out, host.Verdict{Name: checkNftables, Detail: "the ruleset was installed inside and read back"})
		if r.Facts.SELinux {
			out = append(out, host.MountLabel(dir))
		}
	}
	return append(out, t.bind(word), t.loopback())
}

// runOnTrialImage is a session on an image that is made for it.
func (e *engine) runOnTrialImage(ctx context.Context, c *podman.Client, r cli.RunRequest, signals <-chan os.Signal, change func(*session.Request)) (rep session.Report, err error) {
	images, err := request(r.Image)
	if err != nil {
		return rep, err
	}
	m, err := manager(r.Machine)
	if err != nil {
		return rep, err
	}
	var remove func() error
	id, err := untilSignal(ctx, signals, func(ctx context.Context) (id string, err error) {
		id, remove, err = images.Trial(ctx, c)
		return id, err
	})
	if remove != nil {
		defer func() { err = errors.Join(err, remove()) }()
	}
	if err != nil {
		return rep, err
	}
	r.Policy.Image, r.Policy.Net.Engine = &policy.Image{Ref: id}, policy.EngineBuiltin
	req := e.sessionRequest(r, signals)
	req.SandboxImage = id
	change(&req)
	return m.Run(ctx, c, req)
}

// A trialOf is what came of a trial.
type trialOf struct {
	r              cli.RunRequest
	dir            string
	stdout, stderr bytes.Buffer
}

// forget takes the session's trace away: nobody wants to see it listed.
func (t *trialOf) forget(rep session.Report) {
	if m, err := manager(t.r.Machine); err == nil && rep.Session != "" {
		_ = m.Traces().Remove(rep.Session)
	}
}

// failed are the verdicts when no sandbox came up.
func (t *trialOf) failed(err error, fix string) []host.Verdict {
	return t.broken(host.Verdict{Name: checkSandbox, Problem: "none can be started: " + err.Error(), Fix: fix})
}

// broken are the verdicts when a sandbox did not come up because of one check: the
// others are told, and none is well.
func (t *trialOf) broken(v host.Verdict) []host.Verdict {
	out := []host.Verdict{v}
	for _, name := range []string{checkSandbox, checkNftables, checkBind, checkLoopback} {
		if name != v.Name && (name != checkNftables || t.r.Policy.Runtime == policy.RuntimePodman) {
			out = append(out, host.NotTried(name, "mend "+v.Name+" first", v.Fix))
		}
	}
	return out
}

// startFailed names the check that the start of a sandbox failed by.
func (t *trialOf) startFailed(rep session.Report, err error) []host.Verdict {
	why := err.Error()
	if rep.Reason != "" {
		why = rep.Reason
	}
	why = strings.Join(strings.FieldsFunc(why, func(r rune) bool { return r == '\n' }), "; ")
	name, what, fix := failedCheck(t.r.Facts, rep.Control, why)
	switch {
	case fix != "":
		t.forget(rep)
	case rep.Session != "":
		fix = "ai-sandbox logs " + rep.Session
	default:
		fix = "ai-sandbox --net none -- true"
	}
	return t.broken(host.Verdict{Name: name, Problem: what + why, Fix: fix})
}

// failedCheck is the check that the control which did not hold is of, or podman's error,
// and what to say before that; fix is "" where only the session's log may know one.
func failedCheck(f host.Facts, control, why string) (name, what, fix string) {
	switch {
	case control == "ruleset" && strings.Contains(why, spec.MissingModule):
		return checkNftables, "", "sudo modprobe -a nf_tables nft_ct nft_log nft_reject_inet nfnetlink_log"
	case control == "ruleset":
		return checkNftables, "", ""
	case control == "network", control == "gate", strings.Contains(why, "pasta failed"): // containers/common, libnetwork/pasta
		return checkLoopback, "pasta leads no sandbox to this machine: ", host.InstallCommand(f, "passt", true)
	}
	return checkSandbox, "none can be started: ", ""
}

func (t *trialOf) said(line string) bool { return strings.Contains(t.stdout.String(), line+"\n") }

// complaint is what the command says of one of its tries.
func (t *trialOf) complaint(try string) string {
	for line := range strings.Lines(t.stderr.String()) {
		if _, why, ok := strings.Cut(line, " "+try+": "); ok {
			return strings.TrimSpace(why)
		}
	}
	return strings.TrimSpace(t.stderr.String())
}

// bind judges the round trip of a file.
func (t *trialOf) bind(word string) host.Verdict {
	v := host.Verdict{Name: checkBind, Detail: "a file of yours is the command's inside, and what it makes is yours"}
	var why string
	if !t.said("owner ok") {
		why = t.complaint("owner")
	} else {
		why = madeInside(filepath.Join(t.dir, "inside"), word, t.r.Facts.UID)
	}
	if why != "" || !t.said("owner ok") {
		v.Problem = fmt.Sprintf("a file in %s did not make the round trip: %s", policy.Quote(filepath.Dir(t.dir)), why)
		v.Fix = "findmnt --target " + policy.Quote(filepath.Dir(t.dir))
	}
	return v
}

// loopback judges the way to the gate.
func (t *trialOf) loopback() host.Verdict {
	v := host.Verdict{Name: checkLoopback, Detail: "pasta leads the sandbox to the gate, and its answer back"}
	if t.r.Policy.Net.Mode == policy.NetUnix {
		v.Detail = "the gate's socket answers inside"
	}
	if !t.said("gate ok") {
		v.Problem, v.Fix = "the gate's answer does not come through: "+t.complaint("gate"), "ai-sandbox -- curl -sS http://"+gate.ReadyHost+"/"
	}
	return v
}

// madeInside says what is wrong with a file that the command has made, or "". The
// command is gone, and it was ours.
func madeInside(path, want string, uid int) string {
	info, err := os.Lstat(path)
	if err != nil {
		return "what the command has made is not there"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || int(st.Uid) != uid {
		return "what the command has made belongs to somebody else"
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		return "what the command has made has something else in it"
	}
	return ""
}
