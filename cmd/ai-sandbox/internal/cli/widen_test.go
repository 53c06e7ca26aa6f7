package cli

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ai-sandbox/cmd/ai-sandbox/internal/config"
	"ai-sandbox/cmd/ai-sandbox/internal/host"
	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// A judge makes policies of settings, on the machine of a stage.
type judge struct {
	a     *app
	facts host.Facts
}

func newJudge(t testing.TB) judge {
	t.Helper()
	s := newStage(t)
	s.env["EMPTY"], s.env["AI_API_TOKEN"], s.env["TZ"] = "", "of the caller", "Europe/Paris"
	a := newApp(context.Background(), nil, s.env, Streams{Out: io.Discard, Err: io.Discard}, s.engine)
	a.cwd = s.project
	facts, err := a.probe(false, false)
	if err != nil {
		t.Fatal(err)
	}
	facts.Cgroups = host.Cgroups{Controllers: []string{"memory", "cpu", "pids"}} // so that limits are no error
	// Something to protect.
	for _, name := range []string{".envrc", ".git/hooks/pre-commit", ".vscode/tasks.json"} {
		s.write(filepath.Join(s.project, name), "")
	}
	s.write(filepath.Join(s.env["HOME"], "data", "file"), "")
	return judge{a, facts}
}

// policy is that of a command of the user's own, or of an agent's run.
func (j judge) policy(l config.Layers, agent string) (policy.Policy, error) {
	settings, err := l.Settle()
	if err != nil {
		return policy.Policy{}, err
	}
	s, err := j.a.setup(j.facts, settings)
	if err != nil {
		return policy.Policy{}, err
	}
	inv := Invocation{Args: []string{"true"}}
	if agent != "" {
		inv = Invocation{Harness: agent}
	}
	p, _, err := j.a.policy(inv, s)
	return p, err
}

// allowsMore lists in what a policy allows more than another one does. What it
// does not know to be less counts: a new field of a policy has to be added here
// before a project's file may change it.
func allowsMore(was, is policy.Policy) []string {
	var out []string
	more := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }

	modes := []string{policy.NetNone, policy.NetUnix, policy.NetGated, policy.NetHost}
	if slices.Index(modes, is.Net.Mode) > slices.Index(modes, was.Net.Mode) {
		more("net %s, not %s", is.Net.Mode, was.Net.Mode)
	}
	if is.Net.Gated() && was.Net.Gated() {
		if is.Net.Engine != was.Net.Engine || is.Net.GateName != was.Net.GateName {
			more("gate %s %s, not %s %s", is.Net.Engine, is.Net.GateName, was.Net.Engine, was.Net.GateName)
		}
		for _, what := range reaches(was.Net, is.Net) {
			more("host %s", what)
		}
	}
	is.Net = was.Net
	// The rules and the variables that lead to the gate follow from the mode.
	is.Ruleset = was.Ruleset
	is.Settings = was.Settings // what they come to is compared
	given := func(list []policy.Env) (out []policy.Env) {
		for _, e := range list {
			if e.From != policy.FromProxy {
				out = append(out, e)
			}
		}
		return out
	}
	for _, e := range given(is.Env) {
		named := policy.Env{Name: e.Name, From: policy.FromHost, Secret: true} // the same value
		if !slices.Contains(given(was.Env), e) && !(e.From == policy.FromHarness && slices.Contains(was.Env, named)) {
			more("variable %+v", e)
		}
	}
	is.Env = was.Env

	if was.Home.Ephemeral && !is.Home.Ephemeral {
		more("a home that stays")
	}
	for _, m := range is.Mounts {
		i := slices.IndexFunc(was.Mounts, func(w policy.Mount) bool { return w.Target == m.Target && w.Kind == m.Kind })
		switch {
		case m.Why == policy.WhyGate: // of the mode unix
		case i < 0 && (m.Why == policy.WhyProtected || m.Why == policy.WhyHeld) && slices.ContainsFunc(was.Mounts, func(w policy.Mount) bool {
			return w.Why == policy.WhyProject && !w.ReadOnly && m.Source == w.Source+strings.TrimPrefix(m.Target, w.Target)
		}): // less, in what could be written as a whole
		case i < 0:
			more("mount %s (%s)", m.Target, m.Why)
		default:
			w := was.Mounts[i]
			if w.ReadOnly && !m.ReadOnly {
				more("%s is writable", m.Target)
			}
			if m.Why == policy.WhyHome && is.Home.Ephemeral {
				w.Source = m.Source
			}
			w.ReadOnly = m.ReadOnly
			if m.SizeBytes < w.SizeBytes && m.SizeBytes > 0 {
				w.SizeBytes = m.SizeBytes
			}
			if !reflect.DeepEqual(w, m) {
				more("another mount %s (%s, not %s)", m.Target, m.Source, w.Source)
			}
		}
	}
	readOnly := slices.ContainsFunc(is.Mounts, func(m policy.Mount) bool { return m.Why == policy.WhyProject && m.ReadOnly })
	for _, w := range was.Mounts {
		if readOnly && (w.Why == policy.WhyProtected || w.Why == policy.WhyHeld) {
			continue // so is all that was protected
		}
		// A mount may hide something, but not where there is nothing below it (a
		// jail's root is empty), and it may protect what is protected as a whole.
		if slices.ContainsFunc(is.Mounts, func(m policy.Mount) bool {
			return m.ReadOnly && (m.Why == policy.WhyProject || m.Why == policy.WhyProtected) && w.Source == m.Source+strings.TrimPrefix(w.Target, m.Target)
		}) {
			continue
		}
		if w.Why == policy.WhyAgents {
			continue // what it hides is the sandbox's own
		}
		if w.Why != policy.WhyGate && !slices.ContainsFunc(is.Mounts, func(m policy.Mount) bool { return w.Target == m.Target }) &&
			(is.Runtime == policy.RuntimePodman || slices.ContainsFunc(is.Mounts, func(m policy.Mount) bool { return strings.HasPrefix(w.Target, m.Target+"/") })) {
			more("no mount %s (%s)", w.Target, w.Why)
		}
	}
	is.Mounts, is.Home = was.Mounts, was.Home

	for _, p := range is.Publish {
		if !slices.Contains(was.Publish, p) {
			more("publish %+v", p)
		}
	}
	is.Publish = was.Publish
	limits, old := reflect.ValueOf(is.Limits), reflect.ValueOf(was.Limits)
	for i, v := range reflect.VisibleFields(limits.Type()) {
		now, ok1 := limits.Field(i).Interface().(policy.Limit)
		then, ok2 := old.Field(i).Interface().(policy.Limit)
		if !ok1 || !ok2 || then.By != "" && now.By == "" || then.Value != 0 && (now.Value == 0 || now.Value > then.Value) {
			more("%s %+v, not %+v", v.Name, now, then)
		}
	}
	is.Limits = was.Limits
	if is.Image != nil && was.Image != nil && is.Image.GateRef == "" {
		image := *is.Image
		image.GateRef, image.GateID = was.Image.GateRef, was.Image.GateID // no gate is started
		is.Image = &image
	}
	is.Unusual = was.Unusual // in words, what the fields say
	for i, v := range reflect.VisibleFields(reflect.TypeFor[policy.Policy]()) {
		if !reflect.DeepEqual(reflect.ValueOf(is).Field(i).Interface(), reflect.ValueOf(was).Field(i).Interface()) {
			more("another %s", v.Name)
		}
	}
	return out
}

// reaches lists what the gate of one network lets through and that of another one
// does not, over the hosts that their lists are about and some others, and over where
// a name may lead.
func reaches(was, is policy.Net) []string {
	rules := func(n policy.Net) gate.Rules {
		r := gate.NewRules(n.Allow, n.AllowPrivate)
		if n.Upstream != nil {
			r.Upstream = &gate.Upstream{Upstream: *n.Upstream, Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.99")}}
		}
		return r
	}
	before, now := rules(was), rules(is)
	anywhere := []netip.Addr{
		netip.MustParseAddr("198.51.100.40"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"),
	}
	hosts := []string{"other.example.org", "169.254.169.254", "127.0.0.1", "10.0.0.1"}
	ports := []uint16{22, 80, 443, 5432}
	for _, e := range slices.Concat(was.Allow, was.AllowPrivate, is.Allow, is.AllowPrivate) {
		if e.Port != 0 {
			ports = append(ports, e.Port)
		}
		if e.Name != "" {
			hosts = append(hosts, e.Name, "below."+e.Name)
		} else {
			hosts = append(hosts, e.Prefix.Addr().String(), e.Prefix.Addr().Next().String())
		}
	}
	var out []string
	for _, written := range hosts {
		h := gate.ParseHost(written)
		leads := anywhere
		if h.Addr.IsValid() {
			leads = []netip.Addr{h.Addr}
		}
		for _, port := range ports {
			for _, a := range leads {
				passes := func(r gate.Rules) bool {
					return r.Request(h, port) == "" && r.Addresses(h, port, []netip.Addr{a}) == ""
				}
				if passes(now) && !passes(before) {
					out = append(out, fmt.Sprintf("%s:%d at %s", written, port, a))
				}
			}
		}
	}
	return out
}

// narrows judges one pair of files: where the project's is obeyed without trust,
// a run with it may do no more than one without. It tells whether there was
// anything to compare.
func (j judge) narrows(t *testing.T, l config.Layers) (obeyed, compared bool) {
	if len(l.Project.Lines()) == 0 || len(l.Wider(config.File{})) > 0 {
		return false, false
	}
	for _, agent := range []string{"", "pi"} {
		with, err := j.policy(l, agent)
		if err != nil {
			continue // refused, which allows nothing
		}
		without := l
		without.Project = config.File{}
		was, err := j.policy(without, agent)
		if err != nil {
			continue // as by a variable that the user's file passes and that is not set
		}
		if more := allowsMore(was, with); len(more) > 0 {
			t.Errorf("the project's file\n%sover the user's\n%swith %v and %v is obeyed without trust, and allows %q more: %s",
				l.Project.Canonical(), l.User.Canonical(), l.Env, l.Flags, agent, strings.Join(more, "; "))
		}
		compared = true
	}
	return true, compared
}

// examples are values that make sense together; an option without any has the
// values of its kind.
var examples = map[string][]string{
	"allow":              {"a.example.com", ".example.com", "a.example.com:8443", "b.test", "192.0.2.0/24", "192.0.2.7", "x y"},
	"allow_private":      {"127.0.0.1:5432", "db.example.com", ".example.com", "169.254.0.0/16", "169.254.169.254"},
	"gate":               {"work"},
	"upstream_proxy":     {"http://proxy.example.com:3128"},
	"upstream_auth_file": {"/nowhere"},
	"env":                {"TOKEN", "TOKEN=1", "A=1", "A=2", "EMPTY", "TERM", "B=x y", "TERM=1", "TZ=UTC", "PATH", "PATH=/x", "AI_API_TOKEN", "AI_API_TOKEN=x"},
	"publish":            {"8000", "8001:8000", ":8000", "0.0.0.0:8000:8000"},
	"unprotect":          {".git", ".git/hooks", ".envrc", ".vscode/tasks.json", ".git/hooks/new", "src"},
	"memory":             {"1g", "2g", "512m"},
	"cpus":               {"1", "1.5", "100"},
	"pids":               {"100", "8192", "none", "no"},
	"time":               {"90s", "2h"},
	"disk":               {"1g", "4g"},
	"profile":            {"local", "gated", "bwrap-local", "p"},
	"base":               {"docker.io/library/debian:bookworm"},
	"node_version":       {"22.21.1"},
	"node_mirror":        {"https://mirror.example.com"},
	"ca_file":            {"/nowhere"},
	"node_keyring":       {"/nowhere"},
	"cache_dir":          {"/cache"},
	"workdir":            {"auto", "/work", "/usr/x"},
	"mount":              {"~/data", "~/data:/srv/data:rw", "/nowhere"},
	"agents_dir":         {"~/data", "/nowhere"},
	"agents_dest":        {"/srv/agents", "/usr/x"},

	"harness_packages": {"pi", "codex", "pi,claude"},
	"apt":              {"gcc", "gdb=1.0"},
	"setup":            {"/nowhere"},
}

func values(o config.Option) []string {
	switch {
	case o.Values != nil:
		return o.Values
	case o.Kind == config.Bool:
		return []string{"true", "false"}
	case examples[o.Key] != nil:
		return examples[o.Key]
	}
	return []string{"1", "2", "/nowhere"}
}

// written is a random file, most of it of a few options, so that both files are
// about the same ones.
func written(r *rand.Rand, in config.Source, options []config.Option) string {
	var b strings.Builder
	section := func(profile bool) {
		seen := map[string]bool{}
		for range r.IntN(5) {
			o := options[r.IntN(len(options))]
			if !o.In(in) || seen[o.Key] && o.Kind != config.List || profile && o.Key == "profile" {
				continue
			}
			seen[o.Key] = true
			v := values(o)
			value := v[r.IntN(len(v))]
			if o.Kind == config.Script && in == config.InProject {
				value = strings.TrimPrefix(value, "/")
			}
			if r.IntN(6) == 0 {
				value = ""
			}
			b.WriteString(o.Key + " = " + value + "\n")
		}
	}
	section(false)
	if r.IntN(4) == 0 {
		b.WriteString("[profile p]\n")
		section(true)
	}
	return b.String()
}

// What the table of options says about widening is true of the policies that
// come of it, over all settings.
func TestNarrowingAllowsNoMore(t *testing.T) {
	j := newJudge(t)
	r := rand.New(rand.NewPCG(4, 2)) //nolint:gosec // a test that is the same each time
	obeyed, compared, widened, unseen := 0, 0, 0, 0
	shared := slices.DeleteFunc(slices.Clone(config.Options), func(o config.Option) bool { return !o.In(config.InProject) })
	for range 2000 {
		// Two that both files are about, and any.
		options := []config.Option{shared[r.IntN(len(shared))], shared[r.IntN(len(shared))], config.Options[r.IntN(len(config.Options))]}
		user, err1 := config.ParseFile("user", []byte(written(r, config.InFile, options)))
		project, err2 := config.ParseProject(config.ProjectFile, []byte(written(r, config.InProject, options)))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		l := config.Layers{User: user, Project: project}
		for range r.IntN(2) { // a flag over all
			o := options[r.IntN(len(options))]
			v := values(o)
			l.Flags = append(l.Flags, config.Item{Key: o.Key, Value: v[r.IntN(len(v))], Origin: "--" + o.Flag()})
		}
		ok, both := j.narrows(t, l)
		if ok {
			obeyed++
		}
		if both {
			compared++
		}
		// The other way around: where the table says that a file widens, the
		// comparison often sees it, so it is not blind.
		if with, err := j.policy(l, "pi"); err == nil && len(l.Wider(config.File{})) > 0 {
			was := l
			was.Project = config.File{}
			if p, err := j.policy(was, "pi"); err == nil {
				widened++
				if len(allowsMore(p, with)) == 0 {
					unseen++
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d files were obeyed without trust, %d of them compared; %d widened, %d of them to no effect", obeyed, compared, widened, unseen)
	if compared < 300 || widened < 300 || unseen*3 > widened*2 {
		t.Error("that is too little to say something")
	}
}

// FuzzNarrowing is the same for any two files.
func FuzzNarrowing(f *testing.F) {
	for _, s := range [][2]string{
		{"allow = a.example.com", "allow =\nallow = a.example.com:443"},
		{"net = unix\n[profile p]\nfs = ro", "net = none\n[profile p]\nfs ="},
		{"allow_private = 169.254.0.0/16", "allow_private =\nallow_private = 169.254.169.254"},
		{"allow_private = 169.254.0.0/16\nallow_private = 169.254.169.254", "allow_private =\nallow_private = 169.254.169.254:80"},
		{"upstream_proxy = http://proxy.example.com:3128\nallow = .example.com\nallow_private = .example.com", "allow_private ="},
		{"env = A=1\nenv = A=2", "env = A=1"},
		{"env = AI_API_TOKEN=x\nenv = TERM=1\nenv = PATH", "env ="},
		{"profile = local", "profile =\nephemeral_home = true"},
	} {
		f.Add(s[0], s[1])
	}
	j := newJudge(f)
	f.Fuzz(func(t *testing.T, user, project string) {
		u, err := config.ParseFile("user", []byte(user))
		if err != nil {
			return
		}
		p, err := config.ParseProject(config.ProjectFile, []byte(project))
		if err != nil {
			return
		}
		j.narrows(t, config.Layers{User: u, Project: p})
	})
}
