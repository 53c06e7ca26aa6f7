// The doctor's part that starts things: podman's service, and a sandbox.

package engine

import (
	"bytes"
	"context"
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
	age := int(time.Since(when).Hours() / 24)
	switch {
	case v.Problem != "":
	case digest == "":
		v.Info, v.Problem, v.Fix = true, v.Detail, "ai-sandbox update"
	case !when.IsZero() && r.BaseTTL >= 0 && age >= max(r.BaseTTL, 1):
		v.Info, v.Problem, v.Fix = true, fmt.Sprintf("%s; base_ttl_days is %d, so the next build asks anew", v.Detail, r.BaseTTL), "ai-sandbox update"
	}
	return v
}

// trialTime bounds the trial of a sandbox.
const trialTime = 2 * time.Minute

// trial starts a sandbox as a run does, and looks at it from inside and outside.
func (e *engine) trial(ctx context.Context, r cli.RunRequest, dir string) []host.Verdict {
	box := host.Verdict{Name: "sandbox"}
	fail := func(err error, fix string) []host.Verdict {
		box.Problem, box.Fix = "none can be started: "+err.Error(), fix
		return []host.Verdict{box}
	}
	const again = "ai-sandbox --net none -- true"
	if r.Policy.Runtime == policy.RuntimePodman {
		c, err := connect(ctx, r.Machine)
		if err != nil {
			return fail(err, "podman info")
		}
		ready := false
		if e.plan != nil {
			if ready, err = e.plan.Warm(ctx, c); err != nil {
				return fail(err, "ai-sandbox build")
			}
		}
		if !ready {
			return untried()
		}
	}
	const word = "carried from outside to inside and back"
	if err := os.WriteFile(filepath.Join(dir, "outside"), []byte(word), 0o600); err != nil {
		return fail(err, "ls -ld "+policy.Quote(dir))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("it did not end within %s", trialTime))
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	r.Err = io.Discard
	began := time.Now()
	var stdout, stderr bytes.Buffer
	rep, err := e.runSession(ctx, r, signals, func(req *session.Request) {
		req.Trial, req.Terminal, req.Streams = true, nil, backend.Streams{Stdout: &stdout, Stderr: &stderr}
	})
	if err != nil {
		fix := again
		if rep.Session != "" {
			fix = "ai-sandbox logs " + rep.Session
		}
		return fail(err, fix)
	}
	box.Detail = fmt.Sprintf("one came up and ended within %d ms: user namespace, mounts and filter were read back", time.Since(began).Milliseconds())
	out := []host.Verdict{box}
	if m, err := manager(r.Machine); err == nil {
		_ = m.Traces().Remove(rep.Session) // nobody wants to see it listed
	}
	if r.Policy.Runtime == policy.RuntimePodman {
		out = append(out, host.Verdict{Name: "nftables", Detail: "the ruleset was installed inside and read back"})
	}
	said := func(line string) bool { return strings.Contains(stdout.String(), line+"\n") }
	owner := host.Verdict{Name: "bind mount", Detail: "a file of yours is the command's inside, and what it makes is yours"}
	if why := madeInside(filepath.Join(dir, "inside"), word, r.Facts.UID); !said("owner ok") || why != "" {
		owner.Problem, owner.Fix = "a file did not make the round trip: "+why+strings.TrimSpace(stderr.String()), "ai-sandbox --net none -- ls -ln"
	}
	gate := host.Verdict{Name: "loopback", Detail: "pasta leads the sandbox to the gate, and its answer back"}
	if r.Policy.Net.Mode == policy.NetUnix {
		gate.Detail = "the gate's socket answers inside"
	}
	if !said("gate ok") {
		gate.Problem, gate.Fix = "the gate's answer does not come through: "+strings.TrimSpace(stderr.String()), "ai-sandbox -- curl -sS http://aisb-ready.invalid/"
	}
	return append(out, owner, gate)
}

// untried are the verdicts of a trial that was none: each is told, and none is well.
func untried() []host.Verdict {
	var out []host.Verdict
	for _, name := range []string{"sandbox", "nftables", "bind mount", "loopback"} {
		out = append(out, host.NotTried(name, "no sandbox can be started before its image is built; build it first", "ai-sandbox build"))
	}
	return out
}

// madeInside says what is wrong with a file that the command has made, or "". The
// command is gone, and it was ours.
func madeInside(path, want string, uid int) string {
	info, err := os.Lstat(path)
	if err != nil {
		return "it is not there; "
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || int(st.Uid) != uid {
		return "it belongs to somebody else; "
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		return "it has something else in it; "
	}
	return ""
}
