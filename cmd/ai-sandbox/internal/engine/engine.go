// Package engine puts the parts together: it is what the verbs of the command
// line call, made of the session manager, the podman backend and the images.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/local"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/embedded"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/imagebuild"
	"ai-sandbox/cmd/ai-sandbox/internal/publish"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/image"
	"ai-sandbox/image/registry"
	"ai-sandbox/policy"
)

// New returns the engine of the real program, which began at start.
func New(start time.Time) cli.Engine {
	e := &engine{start: start}
	return cli.Engine{
		Image: e.image, Ruleset: ruleset, DryRun: dryRun, GateNet: e.gateNet, AskUpstream: askUpstream,
		Run: e.run, Refused: e.refused, Build: e.build, Update: e.update, Inspect: e.inspect, Clean: e.clean,
		ImageSave: e.imageSave, ImageLoad: e.imageLoad, Images: e.images, CleanImages: e.cleanImages,
		GateUp: e.gateUp, GateDown: e.gateDown, GateList: e.gateList, GateNames: gateNames, GateGiven: gateGiven, GateUnit: e.gateUnit, GateUnitRemove: gateUnitRemove, GateReload: gateReload, NamedLog: namedLog, Doctor: e.doctor, Trial: e.trial,
		Sessions: sessions, Logs: logs, Stop: stop, Remove: removeSession,
		Detach: detached, NewSandbox: e.newSandbox, WaitReady: waitReady, WaitExit: waitExit, Exec: execIn, Down: down,
		GateLog: gateLog, Steer: steer,
	}
}

type engine struct {
	start time.Time
	// plan is the one that image made, if it was complete: to make it again
	// would cost a start some milliseconds.
	plan *imagebuild.Plan
	// deciding is how long it took to know which images to stand on.
	deciding time.Duration
}

// request is what imagebuild is asked.
func request(r cli.ImageRequest) (imagebuild.Request, error) {
	sum, err := embedded.SHA256()
	if err != nil {
		return imagebuild.Request{}, err
	}
	var keyring digest.Digest
	if r.Keyring != nil {
		keyring = digest.FromBytes(r.Keyring)
	}
	harnesses, err := harness.ForImage(r.Harnesses)
	if err != nil {
		return imagebuild.Request{}, err
	}
	return imagebuild.Request{
		Keyring: keyring, Verify: r.Verify,
		Base: r.Base, NodeVersion: r.NodeVersion, NodeMirror: r.NodeMirror, CA: r.CA,
		EntrypointSHA256: sum, Entrypoint: embedded.Entrypoint, Arch: runtime.GOARCH, CacheDir: r.CacheDir, StateDir: r.StateDir,
		TTLDays: r.BaseTTL, KeepPin: r.KeepBase, NoPull: r.NoPull, Demands: demands,
		Harnesses: harnesses, Apt: r.Apt, Setup: r.Setup.Text,
	}, nil
}

// demands asks policy.json in podman's own places.
func demands(ref image.Reference) (digest.Digest, error) {
	return registry.Demands(ref, registry.Options{})
}

func (e *engine) image(r cli.ImageRequest) (cli.ImagePlan, error) {
	req, err := request(r)
	if err != nil {
		return cli.ImagePlan{}, err
	}
	start := time.Now()
	p, err := req.Plan()
	e.deciding += time.Since(start)
	if errors.Is(err, imagebuild.ErrUnresolved) {
		return cli.ImagePlan{
			Image: added(policy.Image{Ref: "localhost/ai-sandbox:<tag>", GateRef: "localhost/ai-sandbox-gate:<tag>",
				BaseRef: p.BaseRef.String(), BaseDigest: string(p.BaseDigest)}, p, r),
			Containerfile: "# " + err.Error() + "\n",
		}, nil
	}
	if err != nil {
		return cli.ImagePlan{}, err
	}
	e.plan = &p
	return cli.ImagePlan{Image: planned(p, r), Containerfile: p.Sandbox.Containerfile}, nil
}

func planned(p imagebuild.Plan, r cli.ImageRequest) policy.Image {
	return added(policy.Image{
		Ref: p.Sandbox.Ref, RecordedID: p.Sandbox.ID, GateRef: p.Gate.Ref, GateID: p.Gate.ID,
		BaseRef: p.BaseRef.String(), BaseDigest: string(p.BaseDigest),
	}, p, r)
}

// added puts in what is in the sandbox's image by the user's wish.
func added(i policy.Image, p imagebuild.Plan, r cli.ImageRequest) policy.Image {
	for _, h := range p.Harnesses {
		i.Harnesses = append(i.Harnesses, policy.Harness{Name: h.Name, Version: h.Version})
	}
	i.Apt = r.Apt
	if r.Setup.Text != nil {
		i.Setup = &policy.Setup{Path: r.Setup.Path, SHA256: image.SetupSHA256(r.Setup.Text)}
	}
	return i
}

// say prints lines for people. What is in them may come from a registry, a gate's
// log or a file's name: no escape code gets to the terminal.
func say(m cli.Machine) func(string, ...any) {
	return func(format string, a ...any) {
		text := fmt.Sprintf(format, a...)
		if m.Hide != nil {
			text = m.Hide(text)
		}
		for line := range strings.Lines(text) {
			fmt.Fprintln(m.Err, "ai-sandbox: "+policy.Printable(strings.TrimSuffix(line, "\n")))
		}
	}
}

// manager opens where this user's sessions are.
func manager(m cli.Machine) (*session.Manager, error) {
	for _, d := range []string{m.Facts.Dirs.Runtime(), m.Facts.Dirs.State} {
		if !filepath.IsAbs(d) {
			return nil, errors.New("XDG_RUNTIME_DIR is not set: log in with a user session, or set it to a directory of your own")
		}
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make %s: %w", d, err)
		}
		info, err := os.Lstat(d)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", d, err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != m.Facts.UID {
			return nil, fmt.Errorf("%s is not a directory that you alone can use: make it yours with mode 0700, or remove it", d)
		}
	}
	st, err := store.Open(filepath.Join(m.Facts.Dirs.State, "records"))
	if err != nil {
		return nil, err
	}
	return &session.Manager{Store: st, RuntimeDir: m.Facts.Dirs.Runtime(), StateDir: m.Facts.Dirs.State, Retention: m.Retention, Say: say(m), UpstreamAuth: m.UpstreamAuth}, nil
}

// serviceEnv is what a podman service that we start gets of the caller's
// environment: where its files are, and how it reaches registries.
var serviceEnv = []string{
	"HOME", "USER", "LOGNAME", "LANG", "TMPDIR",
	"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS",
	"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE",
	"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// proxyEnv is how programs are told of a proxy; podman passes the same on to builds.
var proxyEnv = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy"}

// open is what a verb that starts or ends something on podman begins with: the
// manager, the service, and what earlier commands have left behind taken away.
func open(ctx context.Context, m cli.Machine) (*session.Manager, *podman.Client, error) {
	mgr, err := manager(m)
	if err != nil {
		return nil, nil, err
	}
	c, err := connect(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	if _, _, err := mgr.Reap(ctx, c); err != nil {
		mgr.Say("leftovers of an earlier session could not be removed: %v", err)
	}
	return mgr, c, nil
}

// jail is the local runtime's backend.
func jail(m cli.Machine, engine string) *local.Backend {
	c := local.Config{Bwrap: m.Facts.Bwrap.Path, Manager: m.Facts.Cgroups.Manager, StateDir: m.Facts.Dirs.State, Entrypoint: entrypoint}
	if engine == policy.EngineSquid && m.Facts.Squid.OpenSSL {
		c.Squid, c.System = m.Facts.Squid.Path, host.SystemMounts()
	}
	return local.New(c)
}

func entrypoint() (*io.SectionReader, string, error) {
	sum, err := embedded.SHA256()
	if err != nil {
		return nil, "", err
	}
	program, err := embedded.Open()
	return program, sum[:min(12, len(sum))], err
}

// errNoImages is for what podman's runtime alone has.
var errNoImages = errors.New("the local runtime has no images and no named gates: use --runtime podman")

func connect(ctx context.Context, m cli.Machine) (*podman.Client, error) {
	return podman.Connect(ctx, podmanConfig(m))
}

// podmanConfig is how this user's podman is found.
func podmanConfig(m cli.Machine) podman.Config {
	env := []string{"PATH=" + strings.Join(m.Facts.SearchPath, ":")}
	for _, name := range serviceEnv {
		if m.Environ.Has(name) {
			env = append(env, name+"="+m.Environ[name])
		}
	}
	claim := func(name string) (func() error, error) {
		mgr, err := manager(m) // which a warm start has no use for
		if err != nil {
			return nil, err
		}
		return mgr.Claim(name)
	}
	var proxy []string
	for _, name := range proxyEnv {
		if v := m.Environ[name]; v != "" && !strings.ContainsAny(v, "\r\n") {
			proxy = append(proxy, name+"="+v)
		}
	}
	return podman.Config{
		Proxy:      proxy,
		Claim:      claim,
		Binary:     m.Facts.Podman.Path,
		UserSocket: filepath.Join(m.Facts.Dirs.XDGRuntime, "podman", "podman.sock"),
		RuntimeDir: m.Facts.Dirs.Runtime(),
		Env:        env, UID: m.Facts.UID, AuthFile: m.Environ["REGISTRY_AUTH_FILE"],
	}
}

// ensure brings the images up to date, which a warm start has nothing to do for; or, for
// a gate, its own alone.
func (e *engine) ensure(ctx context.Context, m cli.Machine, r cli.ImageRequest, c *podman.Client, gate bool) (imagebuild.Plan, error) {
	if e.plan != nil && !gate {
		if warm, err := e.plan.Warm(ctx, c); err != nil || warm {
			return *e.plan, err
		}
	}
	req, err := request(r)
	if err != nil {
		return imagebuild.Plan{}, err
	}
	p := newProgress(m, false)
	defer p.close()
	o := p.options(m.Environ)
	o.Gate, o.Before = gate, !gate
	return req.Ensure(ctx, c, o)
}

// build makes the images and says which they are.
func (e *engine) build(ctx context.Context, r cli.BuildRequest) error {
	if r.Runtime == policy.RuntimeLocal {
		return errNoImages
	}
	return interruptible(ctx, func(ctx context.Context) error {
		_, c, err := open(ctx, r.Machine)
		if err != nil {
			return err
		}
		req, err := request(r.Image)
		if err != nil {
			return err
		}
		show := newProgress(r.Machine, r.Verbose)
		defer show.close()
		o := show.options(r.Environ)
		o.Rebuild, o.Asked = r.Rebuild, true
		p, err := req.Ensure(ctx, c, o)
		if err != nil {
			return err
		}
		for _, i := range []imagebuild.Image{p.Sandbox, p.Gate} {
			fmt.Fprintf(r.Out, "%s %s\n", i.Ref, i.ID)
		}
		return nil
	})
}

// forwarded are the signals that go to the command.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGPROF, syscall.SIGIO, syscall.SIGPWR, syscall.SIGCONT,
}

func (e *engine) run(ctx context.Context, r cli.RunRequest) (int, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	// A closed output is an error of the write, and ends the run in order.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	var report *reportFile
	if r.Report != "" {
		var err error
		if report, err = openReport(r.Report, r.Facts.Project.Path); err != nil {
			return 0, err
		}
	}
	rep, err := e.runSession(ctx, r, signals, nil)
	summary(say(r.Machine), rep, r.Policy.Net.GateName)
	changed(say(r.Machine), rep)
	kept(say(r.Machine), r, rep)
	brought(say(r.Machine), rep, r.Policy)
	if report != nil {
		// Who asked for a report would take its absence for something else.
		if werr := report.write(rep); werr != nil {
			return session.ExitFailed, errors.Join(err, werr)
		}
	}
	return rep.ExitCode, err
}

// refused writes the report of a run that was refused before it began.
func (e *engine) refused(project, path string, reason error) error {
	report, err := openReport(path, project)
	if err != nil {
		return err
	}
	return report.write(session.Report{Version: 1, ExitCode: session.ExitFailed, EndedBy: session.EndedByUs,
		Reason: reason.Error(), Refused: []gate.RefusedHost{}, Timings: map[string]float64{}})
}

// runSession runs one session. A sandbox's is changed by its owner just before.
func (e *engine) runSession(ctx context.Context, r cli.RunRequest, signals <-chan os.Signal, change func(*session.Request)) (session.Report, error) {
	failed := session.Report{Version: 1, ExitCode: session.ExitFailed, EndedBy: session.EndedByUs,
		Refused: []gate.RefusedHost{}, Timings: map[string]float64{}}
	fail := func(err error) (session.Report, error) {
		failed.Reason = err.Error()
		var sig signalError
		if errors.As(err, &sig) {
			failed.ExitCode, failed.EndedBy = 128+int(sig), session.EndedBySignal
		}
		return failed, err
	}
	if err := publish.Check(r.Policy.Publish); err != nil {
		return fail(err)
	}
	m, err := manager(r.Machine)
	if err != nil {
		return fail(err)
	}
	req := e.sessionRequest(r, signals)
	var be backend.Backend
	if r.Policy.Runtime == policy.RuntimeLocal {
		b := jail(r.Machine, r.Policy.Net.Engine)
		b.Prepare()
		be = b
	} else {
		c, err := untilSignal(ctx, signals, func(ctx context.Context) (*podman.Client, error) { return connect(ctx, r.Machine) })
		if err != nil {
			return fail(err)
		}
		start := time.Now()
		plan, err := untilSignal(ctx, signals, func(ctx context.Context) (imagebuild.Plan, error) {
			return e.ensure(ctx, r.Machine, r.Image, c, false)
		})
		e.deciding += time.Since(start)
		if err != nil {
			return fail(err)
		}
		im := planned(plan, r.Image)
		if p := r.Policy.Image; p.GateRef == "" {
			im.GateRef, im.GateID = "", ""
		}
		req.Policy = req.Policy.On(im)
		req.SandboxImage, req.GateImage = plan.Sandbox.ID, plan.Gate.ID
		be = c
	}
	if out, ok := r.Std.Out.(*os.File); ok {
		if t := openTerminal(r.Std.In, out); t != nil {
			req.Terminal = t
		}
	}
	if change != nil {
		change(&req)
	}
	rep, err := m.Run(ctx, be, req)
	if e.deciding > 0 && rep.Timings != nil {
		rep.Timings["images"] = float64(e.deciding.Microseconds()) / 1000
	}
	return rep, err
}

// sessionRequest is what a session is asked for but the images, which it may have none of.
func (e *engine) sessionRequest(r cli.RunRequest, signals <-chan os.Signal) session.Request {
	return session.Request{
		Policy: r.Policy, Values: r.Values, Redact: r.Redact,
		Project: spec.Bind{Target: r.Policy.Workdir, Dev: r.Facts.Project.Dev, Ino: r.Facts.Project.Ino},
		Home:    r.Facts.Home,
		Streams: streamsOf(r.Std),
		Signals: signals, Start: e.start, Keep: r.Keep,
		EngineVersion: engineVersion(r),
	}
}

// A signalError is a signal that came before there was a session.
type signalError syscall.Signal

func (e signalError) Error() string {
	return fmt.Sprintf("ended by %s before the command ran", syscall.Signal(e))
}

// untilSignal ends f's context at the first signal.
func untilSignal[T any](ctx context.Context, signals <-chan os.Signal, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				cancel(signalError(sig))
			}
			// The next one ends the program, whatever f still takes away.
			signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		case <-done:
		}
	}()
	v, err := f(ctx)
	close(done)
	<-stopped
	// Also when f was too quick to notice: a signal is never swallowed.
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	return v, err
}
