// Named gates that systemd starts. Their files and their record stay until they are
// removed by name, whether or not the gate is up.

package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/session/store"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
)

// unitName is the unit, without what comes after the dot.
func unitName(name string) string { return "aisb-gate-" + name }

// GateUnit lays down what a named gate needs and, in dir, the quadlet that quadlet makes
// of it. The gate is not started. Its ports are picked now: one that another process has
// when the unit starts ends that start.
func (m *Manager) GateUnit(ctx context.Context, be backend.Backend, r GateRequest, dir string, quadlet func(backend.Gate) (string, error)) (file string, err error) {
	if err := CheckGateName(r.Name); err != nil {
		return "", err
	}
	unlock, err := m.Store.WaitLock("gate-" + r.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if old, ok, err := m.Store.Gate(r.Name); err != nil {
		return "", err
	} else if ok {
		return "", fmt.Errorf("there is a gate %s already: %s first", r.Name, endOf(old))
	}
	up, err := m.upstream(ctx, r.Net)
	if err != nil {
		return "", err
	}
	home := filepath.Join(m.StateDir, "gates", r.Name)
	file = filepath.Join(dir, unitName(r.Name)+".container")
	rec := store.Record{ID: r.Name, Kind: "gate", Runtime: be.Capabilities().Runtime, Containers: []string{unitName(r.Name)}, Dirs: []string{home},
		Allow: texts(r.Net.Allow), AllowPrivate: texts(r.Net.AllowPrivate), Nonce: nonce(), PolicyHash: PolicyHash(r.Net), GateImage: r.Image,
		GateTTL: int64(r.TTL / time.Second), GateGiven: r.Given, Unit: file}
	if r.Net.Upstream != nil {
		rec.Upstream, rec.UpstreamAuth = r.Net.Upstream.URL(), r.Net.Upstream.Credentials
	}
	ports, release, err := holdPorts(2, func(uint16) bool { return false })
	if err != nil {
		return "", err
	}
	defer release()
	in := filepath.Join(home, gateTry(0))
	rec.GatePort, rec.GatePeek, rec.GateLog = ports[0], ports[1], filepath.Join(in, "log")
	if err := m.Store.Owner(&rec); err != nil {
		return "", err
	}
	rec.PID, rec.Start = 0, 0 // it belongs to nobody
	g := gateOf(rec)
	text, err := quadlet(g)
	if err != nil {
		return "", err
	}
	if err := m.Store.Put(rec); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.forgetUnit(rec))
		}
	}()
	for _, d := range []string{in, rec.GateLog, filepath.Join(rec.GateLog, spec.GateSessions)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return "", fmt.Errorf("make the gate's directory: %w", err)
		}
	}
	if err := m.keepAuth(r.Name); err != nil {
		return "", err
	}
	cfg := gate.Config{Allow: r.Net.Allow, AllowPrivate: r.Net.AllowPrivate, Upstream: up, Nonce: rec.Nonce, PolicyHash: rec.PolicyHash, FrontPort: rec.GatePort, PeekPort: rec.GatePeek}
	if err := writeConfig(g.ConfigDir, cfg); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(g.ConfigDir, spec.GateSessions), 0o700); err != nil {
		return "", fmt.Errorf("make the gate's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of units: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		rec.Unit = "" // it is somebody else's
		return "", fmt.Errorf("%s is there already: remove it, or use another name", file)
	}
	if err != nil {
		return "", fmt.Errorf("write the unit: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the unit: %w", err)
	}
	return file, nil
}

// GateUnitRemove takes away what GateUnit has laid down, when the gate is not up.
func (m *Manager) GateUnitRemove(ctx context.Context, name string) error {
	if err := CheckGateName(name); err != nil {
		return err
	}
	unlock, err := m.Store.WaitLock("gate-" + name)
	if err != nil {
		return err
	}
	defer unlock()
	rec, ok, err := m.Store.Gate(name)
	switch {
	case err != nil:
		return err
	case !ok:
		return noGate(name)
	case rec.Unit == "":
		return fmt.Errorf("gate %s is no unit: %s", name, endOf(rec))
	case !m.gateGone(ctx, rec):
		return fmt.Errorf("gate %s is up: stop it first with systemctl --user stop %s", name, unitName(name))
	}
	return m.forgetUnit(rec)
}

// forgetUnit removes the quadlet, the files and the record, in this order.
func (m *Manager) forgetUnit(rec store.Record) error {
	if rec.Unit != "" {
		if filepath.Base(rec.Unit) != unitName(rec.ID)+".container" {
			return fmt.Errorf("the record of gate %s names the unit %s, which is not ours; nothing was removed", rec.ID, rec.Unit)
		}
		if err := os.Remove(rec.Unit); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the unit: %w", err)
		}
	}
	for _, d := range rec.Dirs {
		if !m.ours(d) {
			return fmt.Errorf("the record of gate %s names the directory %s, which is not ours; it was not removed", rec.ID, d)
		}
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("remove the gate's directory: %w", err)
		}
	}
	return m.Store.Delete(rec)
}

// beginOf and endOf are the commands that start and end a gate.
func beginOf(g store.Record) string {
	if g.Unit != "" {
		return "systemctl --user start " + unitName(g.ID)
	}
	return "ai-sandbox gate up " + g.ID
}

func endOf(g store.Record) string {
	if g.Unit != "" {
		return strings.Join([]string{"systemctl --user stop " + unitName(g.ID), "ai-sandbox gate unit " + g.ID + " --remove"}, " and then ")
	}
	return "ai-sandbox gate down " + g.ID
}
