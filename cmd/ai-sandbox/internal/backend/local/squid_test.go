//go:build jail && squid

package local_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/local"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/policy"
)

// TestSquid: the real squid in a jail of its own is the gate of a session. That it
// lets through what it should is the conformance table's to show; here it has to
// come up as asked for, refuse a host, and be gone afterwards.
func TestSquid(t *testing.T) {
	target := realTarget(t, host.SquidPath)
	dir := target.Dir
	project := filepath.Join(dir, "project")
	m := &session.Manager{RuntimeDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), Say: t.Logf}
	for _, d := range []string{project, m.RuntimeDir, m.StateDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if m.Store, err = store.Open(filepath.Join(dir, "records")); err != nil {
		t.Fatal(err)
	}
	if caps := target.Backend.Capabilities(); strings.Join(caps.GateEngines, " ") != "builtin squid" {
		t.Errorf("%+v", caps)
	}
	entry, err := policy.ParseEntry("www.ok.test")
	if err != nil {
		t.Fatal(err)
	}
	in := target.Input
	in.Facts.Project, in.Facts.RuntimeDir = project, m.RuntimeDir
	in.Net, in.Engine, in.Allow, in.EphemeralHome = policy.NetUnix, policy.EngineSquid, []policy.Entry{entry}, true
	in.Command = []string{"bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://www.no.test/ HTTP/1.1\r\nHost: www.no.test\r\nConnection: close\r\n\r\n' >&3; head -n 1 <&3`}
	p, err := policy.Resolve(in)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(project, &st); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rep, err := m.Run(ctx, target.Backend, session.Request{
		Policy: p, Project: spec.Bind{Dev: st.Dev, Ino: st.Ino}, Start: time.Now(),
		Streams: backend.Streams{Stdout: &out, Stderr: &errs},
	})
	if err != nil || rep.ExitCode != 0 || !strings.HasPrefix(out.String(), "HTTP/1.1 403 ") {
		t.Errorf("%+v, %v, %q, %q", rep, err, out.String(), errs.String())
	}
	if len(rep.Refused) != 1 || rep.Refused[0].Host != "www.no.test" {
		t.Errorf("refused: %+v", rep.Refused)
	}
	if left, err := target.Backend.List(t.Context()); err != nil || len(left) > 0 || rep.Leftover != "" {
		t.Errorf("left over: %+v, %v, %s", left, err, rep.Leftover)
	}
}

// TestSquidVerified: a gate's jail is read back like a sandbox's.
func TestSquidVerified(t *testing.T) {
	target := realTarget(t, host.SquidPath)
	b := target.Backend
	g := backend.Gate{Name: "aisb-gate-x", Session: "x", ConfigDir: filepath.Join(target.Dir, "c"), LogDir: filepath.Join(target.Dir, "l"), ControlDir: filepath.Join(target.Dir, "ctl")}
	for _, d := range []string{g.ConfigDir, g.LogDir, g.ControlDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The entrypoint stops at the FIFO, which has no other end.
	for _, f := range []string{spec.InName, spec.OutName} {
		if err := unix.Mkfifo(filepath.Join(g.ControlDir, f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep, err := unix.Open(filepath.Join(g.ControlDir, spec.OutName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(keep)
	lifeline, err := unix.Open(filepath.Join(g.ControlDir, spec.InName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(lifeline)
	// An empty configuration: squid waits a while for its port, which is enough.
	for _, f := range []string{"peek.conf", "front.conf"} {
		if err := os.WriteFile(filepath.Join(g.ConfigDir, f), []byte("http_port 127.0.0.1:1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id, err := b.CreateGate(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	}()
	if err := b.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	other := g
	other.LogDir = g.ConfigDir
	if err := b.(*local.Backend).VerifyGate(t.Context(), id, other); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("another gate: %v", err)
	}
}
