// What a run would be, without one: the ruleset (which the policy shows), the gate's configuration and
// the container's specification, with placeholders for what a start assigns.

package engine

import (
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/backend"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/local"
	"ai-sandbox/cmd/ai-sandbox/internal/backend/podman"
	"ai-sandbox/cmd/ai-sandbox/internal/cli"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/cmd/ai-sandbox/internal/session"
	"ai-sandbox/entrypoint/firewall"
	"ai-sandbox/entrypoint/spec"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// standIns are ports that no entry of the policy names, to be replaced by
// placeholders in what is rendered with them.
func standIns(p policy.Policy) (front, peek uint16) {
	used := map[uint16]bool{}
	for _, e := range p.Publish {
		used[e.HostPort], used[e.Port] = true, true
	}
	net := p.Net
	for _, list := range [][]policy.Entry{net.Allow, net.AllowPrivate} {
		for _, e := range list {
			used[e.Port] = true
		}
	}
	var free []uint16
	for p := uint16(60001); len(free) < 2; p++ {
		if !used[p] {
			free = append(free, p)
		}
	}
	return free[0], free[1]
}

func ruleset(p policy.Policy) (string, error) {
	f := spec.Firewall{Mode: p.Net.Mode}
	front, _ := standIns(p)
	if p.Net.Mode == policy.NetGated {
		f.GateAddr, f.GatePort = policy.GateAddr, front
		f.Published = session.Inside(p.Publish)
	}
	rs, err := firewall.Build(f)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(rs.Text(), strconv.Itoa(int(front)), policy.PortPlaceholder), nil
}

func dryRun(r cli.RunRequest) ([]cli.Section, error) {
	p := r.Policy
	if p.Runtime == policy.RuntimeLocal {
		return dryRunLocal(r)
	}
	sandbox, gateSpec, err := podman.Preview(backend.Sandbox{
		Name: "aisb-" + policy.SessionPlaceholder, Session: policy.SessionPlaceholder,
		Image: p.Image.RecordedID, Policy: p, ControlDir: controlDir(p),
		TTY: onTerminal(r),
	}, previewGate(r))
	if err != nil {
		return nil, err
	}
	out := []cli.Section{{Title: "podman container of the sandbox", Text: sandbox}}
	if p.Net.Engine != policy.EngineSquid || p.Net.GateName != "" {
		return out, nil
	}
	out = append(out, cli.Section{Title: "podman container of the gate", Text: gateSpec})
	return squidFiles(out, p)
}

// dryRunLocal is the jail's command line, and its gate's where that is squid.
func dryRunLocal(r cli.RunRequest) ([]cli.Section, error) {
	p := r.Policy
	text, limits, err := local.Preview(backend.Sandbox{
		Name: "aisb-" + policy.SessionPlaceholder, Session: policy.SessionPlaceholder, Policy: p, ControlDir: controlDir(p),
		TTY: onTerminal(r),
	})
	if err != nil {
		return nil, err
	}
	out := []cli.Section{{Title: "bwrap command line of the sandbox", Text: text}}
	if limits != "" {
		out = append(out, cli.Section{Title: "limits of its first process", Text: limits})
	}
	if p.Net.Engine != policy.EngineSquid {
		return out, nil
	}
	out = append(out, cli.Section{Title: "bwrap command line of the gate", Text: local.PreviewGate(previewGate(r), host.SystemMounts())})
	return squidFiles(out, p)
}

// previewGate is the session's own squid gate, as its first try makes it.
func previewGate(r cli.RunRequest) backend.Gate {
	p := r.Policy
	conf := filepath.Join(filepath.Dir(controlDir(p)), session.FirstGate)
	g := backend.Gate{
		Name: "aisb-gate-" + policy.SessionPlaceholder, Session: policy.SessionPlaceholder,
		ConfigDir: filepath.Join(conf, "conf"), ControlDir: filepath.Join(conf, "ctl"),
		LogDir: filepath.Join(r.Facts.Dirs.State, "sessions", policy.SessionPlaceholder, session.FirstGate, "log"),
	}
	if p.Image != nil {
		g.Image = p.Image.GateID
	}
	return g
}

// standIn is an address of no proxy (RFC 5737).
var standIn = netip.MustParseAddr("192.0.2.1")

// previewUpstream is the proxy with stand-ins for its address, where that is looked up
// at a start, and for the credentials.
func previewUpstream(u *policy.Upstream) *gate.Upstream {
	if u == nil {
		return nil
	}
	out := &gate.Upstream{Upstream: *u, Addrs: []netip.Addr{standIn}}
	if a, ok := u.Addr(); ok {
		out.Addrs[0] = a
	}
	if u.Credentials {
		out.Auth = policy.NewSecret(policy.UpstreamAuth, "user:password")
	}
	return out
}

// squidFiles adds the gate's configuration.
func squidFiles(out []cli.Section, p policy.Policy) ([]cli.Section, error) {
	front, peek := standIns(p)
	files, err := gate.Files(gate.Config{Allow: p.Net.Allow, AllowPrivate: p.Net.AllowPrivate, Upstream: previewUpstream(p.Net.Upstream), FrontPort: front, PeekPort: peek,
		Nonce: "NONCE", PolicyHash: session.PolicyHash(p.Net)})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	fill := strings.NewReplacer(strconv.Itoa(int(front)), policy.PortPlaceholder, strconv.Itoa(int(peek)), "<peek-port>", "NONCE", "<nonce>", "login=user%3Apassword", "login=<upstream-auth>")
	if u := p.Net.Upstream; u != nil {
		if _, ok := u.Addr(); !ok {
			at := make([]string, 0, 6)
			for _, before := range []string{"cache_peer ", "acl upstream_literal dst -n ", "acl upstream_addr dst "} {
				at = append(at, before+standIn.String(), before+"<address>")
			}
			addr := strings.NewReplacer(at...)
			for name, text := range files {
				files[name] = []byte(addr.Replace(string(text)))
			}
		}
	}
	for _, name := range names {
		out = append(out, cli.Section{Title: "gate: " + name, Text: fill.Replace(string(files[name]))})
	}
	return out, nil
}

func controlDir(p policy.Policy) string {
	for _, m := range p.Mounts {
		if m.Why == policy.WhyControl {
			return m.Source
		}
	}
	return ""
}

// onTerminal tells whether the run would be on a terminal, were it started as this.
func onTerminal(r cli.RunRequest) bool {
	out, ok := r.Std.Out.(*os.File)
	return ok && isTerminal(r.Std.In, out)
}
