// The verb explain: whether a host would be let through or a path be seen, and by
// which line.

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/harness"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

var explainVerb = &verb{
	name: "explain", args: "WHAT [HARNESS]",
	about: "Tell whether a run would reach a host (HOST[:PORT]), or see a path, and why.",
	use:   config.UseConfig,
	examples: []string{
		"ai-sandbox explain api.example.com",
		"ai-sandbox explain --allow .example.com:8443 www.example.com:8443",
		"ai-sandbox explain ./secrets.txt",
		"ai-sandbox explain --runtime local ~/.claude claude",
	},
	exit: [][2]string{{"0", "told, whatever the answer"}, {"1", "ai-sandbox failed, or such a run would be refused"}, {"2", "the command line makes no sense"}},
	action: func(a *app, inv Invocation, flagLayer []config.Item) error {
		what := inv.Args[0]
		run := Invocation{Verb: "explain", Flags: inv.Flags}
		if len(inv.Args) > 1 {
			if _, ok := harness.Lookup(inv.Args[1]); !ok {
				return &errUsage{text: fmt.Sprintf("%s is not a harness; name one that a run has, or none", quote(inv.Args[1])), verb: true}
			}
			run.Harness = inv.Args[1]
		}
		var host gate.Host
		var port uint16
		if !isPath(what) {
			var err error
			if host, port, err = gate.ParseTarget(what); err != nil {
				return &errUsage{text: err.Error(), hint: "a path begins with /, . or ~", verb: true}
			}
		}
		s, err := a.prepare(flagLayer, forLook)
		if err != nil {
			return err
		}
		p, _, err := a.policy(run, s)
		if err != nil {
			return err
		}
		a.settled = false // what another run of these settings would pass is a secret, too
		b := &answer{settings: s.settings, policy: p}
		if isPath(what) {
			for _, it := range s.settings["mount"] {
				if r, _, err := a.mountEntry(it, s.Facts, nil); err == nil { // else there was no policy
					b.mounts = append(b.mounts, r)
				}
			}
			err = b.path(a.absolute(what, s.Facts.Home))
		} else {
			b.host(host, port)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(a.Out, b.String()); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	},
}

// isPath tells a path from a host.
func isPath(s string) bool { return s != "" && strings.ContainsRune("/.~", rune(s[0])) }

// absolute is a path as the shell would have it.
func (a *app) absolute(p, home string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		return filepath.Join(home, p[1:])
	}
	if !filepath.IsAbs(p) {
		return filepath.Join(a.cwd, p)
	}
	return filepath.Clean(p)
}

// An answer is text under construction.
type answer struct {
	strings.Builder
	settings config.Settings
	policy   policy.Policy
	mounts   []policy.BindRequest
}

func (b *answer) line(format string, args ...any) {
	fmt.Fprintf(b, format+"\n", args...)
}

// words is a line of our own words, cut into as many as it takes.
func (b *answer) words(text string) {
	line := " "
	for word := range strings.FieldsSeq(text) {
		if line != " " && len(line)+1+len(word) > helpWidth {
			b.line("%s", line)
			line = " "
		}
		line += " " + word
	}
	b.line("%s", line)
}

// from says where a setting stands, or "" where it is built in.
func (b *answer) from(key string) string {
	for _, it := range b.settings[key] {
		if it.Origin != config.BuiltIn {
			return " (" + policy.Printable(it.Origin) + ")"
		}
	}
	return ""
}

// host answers for one port, or for each that could matter: the web's, and those
// at which an entry has the host.
func (b *answer) host(h gate.Host, port uint16) {
	net := b.policy.Net
	ports := []uint16{port}
	if port == 0 {
		ports = append(gate.PortsOf(net, h), policy.DefaultPorts[:]...)
		slices.Sort(ports)
		ports = slices.Compact(ports)
	}
	loop := h.Name == "localhost" || strings.HasSuffix(h.Name, ".localhost") || h.Addr.IsLoopback()
	for _, port := range ports {
		a := gate.Answer{Host: h, Port: port}
		switch net.Mode {
		case policy.NetNone:
			b.line("%s: refused", a)
			b.line("  net = none%s: nothing is reached but the sandbox's own loopback", b.from("net"))
			continue
		case policy.NetHost:
			b.line("%s: let through", a)
			b.line("  net = host%s: nothing is shut", b.from("net"))
			continue
		}
		a = gate.Explain(net, h, port)
		if a.Reason != "" {
			b.line("%s: refused", a)
			b.refused(a)
			continue
		}
		b.line("%s: let through", a)
		if net.Learn {
			b.line("  by net = learn%s", b.from("net"))
		}
		for _, line := range b.entries(a) {
			b.line("  by %s", line)
		}
		if a.Far {
			b.words("it goes to the proxy " + policy.Printable(net.Upstream.URL()) + b.from("upstream_proxy") + ", which looks the name up: where that leads, the gate does not judge")
			b.tls(port)
		}
		if a.Open {
			kinds := "private, loopback, link-local"
			if a.Inward {
				kinds = "link-local"
			}
			b.words("when a connection is made, the gate looks the name up, and refuses it all the same if it has no address, or one that is " + kinds + " or that nothing can be at")
			b.tls(port)
		}
	}
	if loop && net.Gated() {
		b.line("clients ask the gate for this host only if they are told to (NO_PROXY has it);")
		b.line("else they reach the sandbox's own loopback, where only what runs inside answers")
	}
}

// tls says what is judged in a tunnel.
func (b *answer) tls(port uint16) {
	if port == 443 {
		b.words("only TLS passes, and the server name in it has to be on the list, too")
	} else if port != 80 {
		b.words("where it is TLS, the server name in it has to be on the list, too")
	}
}

// why are the rules that refuse, in words.
var why = map[string]string{
	gate.ReasonPort:     "no entry of the allowlist has this port",
	gate.ReasonName:     "no entry of the allowlist has this host at this port",
	gate.ReasonAddress:  "no connection may go to this address unless an allow_private entry is that very address",
	gate.ReasonUpstream: "it is the proxy that this machine is behind, which the gate alone uses",
	gate.ReasonPrivate:  "this address is private, and only an allow_private entry opens those",
}

func (b *answer) refused(a gate.Answer) {
	net := b.policy.Net
	if len(net.Allow)+len(net.AllowPrivate) == 0 {
		b.line("  the allowlist is empty")
	} else {
		b.words(why[a.Reason])
	}
	if a.Host.Addr.IsValid() && a.Reason == gate.ReasonName {
		b.line("  it is an address, which no entry for names lets through")
	}
	for _, line := range b.entries(a) {
		b.line("  in spite of %s", line)
	}
	for _, port := range gate.PortsOf(net, a.Host) {
		if other := gate.Explain(net, a.Host, port); other.Reason == "" {
			b.line("  it is let through at port %d", port)
		}
	}
	host := a.Host.Name
	if a.Host.Addr.IsValid() {
		host = a.Host.Addr.String()
	}
	for _, r := range gate.Refused([]gate.Decision{{Host: host, Port: a.Port, Reason: a.Reason}}) {
		switch {
		case r.AllowFlag != "" && net.GateName != "":
			b.line("  to open it: give ai-sandbox gate reload %s, beside the rest of its list, %s", quote(net.GateName), r.AllowFlag)
		case r.AllowFlag != "":
			b.line("  to open it: %s", r.AllowFlag)
		default:
			b.words(policy.Printable(r.Why))
		}
	}
}

// entries are the lines that let a request through, each as it was written and
// with where.
func (b *answer) entries(a gate.Answer) []string {
	var out []string
	if gate := b.policy.Net.GateName; gate != "" {
		for _, e := range a.Entries {
			out = append(out, fmt.Sprintf("%s (the list of gate %s)", e, quote(gate)))
		}
		return out
	}
	for _, key := range []string{"allow", "allow_private"} {
		for _, it := range b.settings[key] {
			e, err := policy.ParseEntry(it.Value)
			if err != nil || len(gate.Explain(policy.Net{Allow: []policy.Entry{e}}, a.Host, a.Port).Entries) == 0 {
				continue
			}
			out = append(out, fmt.Sprintf("%s = %s (%s)", key, quote(it.Value), policy.Printable(it.Origin)))
		}
	}
	return out
}

// path answers for a path on this machine, and for the same path inside.
func (b *answer) path(at string) error {
	real, err := resolve(at)
	if err != nil {
		return err
	}
	if real != at {
		b.line("%s is %s on this machine", quote(at), quote(real))
	}
	p := b.policy
	places := p.Outside(real)
	for _, pl := range places {
		where := "inside, too"
		if pl.Path != real {
			where = "inside at " + quote(pl.Path)
		}
		b.line("%s, of this machine: %s, %s", quote(real), pl.Access, where)
		b.place(pl)
	}
	if len(places) == 0 {
		b.line("%s, of this machine: %s", quote(real), policy.AccessNone)
		hidden := p.Hidden(real)
		for _, h := range hidden {
			b.line("  the mount %s would show it,", h[0].Line())
			b.line("  and the mount %s covers it", h[1].Line())
		}
		if len(hidden) == 0 {
			b.line("  no mount leads to it")
		}
		for _, m := range p.UnderHost(real) {
			b.line("  of what is below it, this is: %s", m.Line())
		}
	}
	if _, err := os.Lstat(real); errors.Is(err, fs.ErrNotExist) && len(places) > 0 {
		b.line("  nothing is there now")
	}
	// The path as it was written, for whoever means one inside.
	in := p.Inside(at)
	if slices.ContainsFunc(places, func(pl policy.Place) bool { return pl.Path == in.Path }) {
		return nil
	}
	b.line("%s, inside: %s", quote(at), in.Access)
	if in.Path != at {
		b.line("  it leads to %s", quote(in.Path))
	}
	b.place(in)
	return nil
}

// place says what a path inside is on.
func (b *answer) place(pl policy.Place) {
	p := b.policy
	switch {
	case pl.Mount >= 0:
		m := p.Mounts[pl.Mount]
		from := ""
		switch {
		case m.Why == policy.WhyProject && m.ReadOnly:
			from = "; fs = ro" + b.from("fs")
		case m.Why == policy.WhyAgents:
			from = b.from("agents_dir")
		case strings.HasPrefix(m.Why, policy.WhyMount):
			from = b.asked(m)
		}
		b.line("  by the mount %s%s", m.Line(), from)
	case pl.Access == policy.AccessNone:
		b.line("  no mount is there")
	case p.Image != nil:
		b.line("  the image's own file system, if the image has it")
	default:
		b.line("  the sandbox's root, which holds mount points alone")
	}
	for _, m := range p.Under(pl.Path) {
		b.line("  below it: %s", m.Line())
	}
}

// asked says where a mount of the user's was asked for.
func (b *answer) asked(m policy.Mount) string {
	var from string
	for _, r := range b.mounts {
		if r.Source == m.Source && (from == "" || r.Target == m.Target) {
			from = " (" + policy.Printable(r.Origin) + ")"
		}
	}
	return from
}

// resolve follows links as far as the path exists; what is below does not.
func resolve(at string) (string, error) {
	real, err := filepath.EvalSymlinks(at)
	switch {
	case err == nil:
		return real, nil
	case errors.Is(err, fs.ErrNotExist) && at != "/":
		dir, err := resolve(filepath.Dir(at))
		return filepath.Join(dir, filepath.Base(at)), err
	case errors.Is(err, fs.ErrPermission):
		return at, nil
	}
	return "", fmt.Errorf("look at %s: %w", quote(at), err)
}
