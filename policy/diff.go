// Two policies compared: what the second allows more, and what less.

package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Difference is how a policy B differs from a policy A: sentences without a
// verb, each fit for a terminal, in an order that depends on the two alone.
type Difference struct {
	// More is what B allows and A does not, Less the other way around, and
	// Otherwise what is neither.
	More      []string `json:"more"`
	Less      []string `json:"less"`
	Otherwise []string `json:"otherwise"`
}

// Diff compares two policies. It names every field that differs, those too that
// it has no words for.
func Diff(a, b Policy) Difference {
	d := Difference{More: []string{}, Less: []string{}, Otherwise: []string{}}
	for _, f := range []struct{ what, a, b string }{
		{"runtime", a.Runtime, b.Runtime},
		{"isolation", a.Isolation, b.Isolation},
		{"harness", a.Harness, b.Harness},
		{"thinking", a.Thinking.line(), b.Thinking.line()},
		{"project", a.Project, b.Project},
		{"workdir", a.Workdir, b.Workdir},
		{"workdir's note", a.WorkdirNote, b.WorkdirNote},
	} {
		d.changed(f.what, f.a, f.b)
	}
	if !slices.Equal(a.Command, b.Command) {
		d.otherwise("command: %s -> %s", words(a.Command), words(b.Command))
	}
	switch {
	case b.KeepRoot && !a.KeepRoot:
		d.more("the command runs as root of the container")
	case a.KeepRoot && !b.KeepRoot:
		d.less("the command does not run as root of the container")
	}
	d.image(a.Image, b.Image)
	d.mounts(a, b)
	d.home(a.Home, b.Home)
	d.env(a.Env, b.Env)
	d.net(a.Net, b.Net)
	for _, x := range b.Publish {
		if !slices.Contains(a.Publish, x) {
			d.more("published: %s leads to port %d inside", placeholders(x.Host()), x.Port)
		}
	}
	for _, x := range a.Publish {
		if !slices.Contains(b.Publish, x) {
			d.less("not published: %s to port %d inside", placeholders(x.Host()), x.Port)
		}
	}
	if d.Empty() && !slices.Equal(a.Publish, b.Publish) {
		d.otherwise("the order of the published ports")
	}
	d.limits(a.Limits, b.Limits)
	for _, s := range missing(b.Unheld, a.Unheld) {
		d.more("protected, but can be replaced inside: %s", short(s))
	}
	for _, s := range missing(a.Unheld, b.Unheld) {
		d.less("can't be replaced inside: %s", short(s))
	}
	if d.Empty() && !slices.Equal(a.Unheld, b.Unheld) {
		d.otherwise("the order of what can be replaced inside")
	}
	for _, s := range missing(b.Capabilities, a.Capabilities) {
		d.more("the entrypoint holds %s", short(s))
	}
	for _, s := range missing(a.Capabilities, b.Capabilities) {
		d.less("the entrypoint does not hold %s", short(s))
	}
	d.lists("rule", trimmed(a.Ruleset), trimmed(b.Ruleset))
	if d.Empty() && !slices.Equal(a.Ruleset, b.Ruleset) {
		d.otherwise("the ruleset is written in another way")
	}
	d.settings(a.Settings, b.Settings)
	for _, s := range a.Unusual {
		if !slices.Contains(b.Unusual, s) {
			d.otherwise("no longer marked: %s", Printable(s))
		}
	}
	for _, s := range b.Unusual {
		if !slices.Contains(a.Unusual, s) {
			d.otherwise("marked: %s", Printable(s))
		}
	}
	// What a gate has said of the lists ("in_force") is no other policy.
	d.rest("", a, b, "in_force", "runtime", "isolation", "harness", "command", "thinking", "project", "workdir", "workdir_note", "unheld", "keep_root", "image", "mounts", "home",
		"env", "net", "publish", "limits", "entrypoint_capabilities", "ruleset", "unusual", "settings")
	return d
}

// Empty tells whether nothing differs.
func (d Difference) Empty() bool { return len(d.More)+len(d.Less)+len(d.Otherwise) == 0 }

// Text shows the differences for people.
func (d Difference) Text() string {
	var b strings.Builder
	for _, g := range []struct {
		title string
		lines []string
	}{{"B allows more", d.More}, {"B allows less", d.Less}, {"otherwise", d.Otherwise}} {
		if len(g.lines) == 0 {
			continue
		}
		b.WriteString(g.title + "\n")
		for _, l := range g.lines {
			b.WriteString("  " + l + "\n")
		}
	}
	return b.String()
}

// settings are compared by their values.
func (d *Difference) settings(a, b []Setting) {
	values := func(list []Setting, key string) string {
		var out []string
		for _, s := range list {
			if s.Key == key {
				out = append(out, words(s.Values))
			}
		}
		return strings.Join(out, " ")
	}
	var keys []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(keys, s.Key) {
			keys = append(keys, s.Key)
		}
	}
	for _, k := range keys {
		if was, is := values(a, k), values(b, k); was != is {
			d.otherwise("setting %s: %s -> %s", short(k), cmp.Or(was, "not set"), cmp.Or(is, "not set"))
		}
	}
	if d.Empty() && !reflect.DeepEqual(a, b) {
		d.otherwise("the settings are written in another way")
	}
}

func (d *Difference) more(format string, a ...any) {
	d.More = append(d.More, fmt.Sprintf(format, a...))
}
func (d *Difference) less(format string, a ...any) {
	d.Less = append(d.Less, fmt.Sprintf(format, a...))
}
func (d *Difference) otherwise(format string, a ...any) {
	d.Otherwise = append(d.Otherwise, fmt.Sprintf(format, a...))
}

// changed is for what has no more and less.
func (d *Difference) changed(what, a, b string) {
	if a != b {
		d.otherwise("%s: %s -> %s", what, short(a), short(b))
	}
}

// maxShown is how many characters of a user's string are shown.
const maxShown = 200

// short quotes a string, of which the beginning is enough.
func short(s string) string {
	if s == "" {
		return "nothing"
	}
	return placeholders(cut(s))
}

func cut(s string) string {
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "..."
	}
	return s
}

func words(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = short(a)
		if a == "" {
			out[i] = Quote(a)
		}
	}
	return strings.Join(out, " ")
}

// trimmed are lines without their indentation, and without those that are empty.
func trimmed(lines []string) []string {
	var out []string
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

func (d *Difference) image(a, b *Image) {
	if a == nil || b == nil {
		if a != b {
			d.changed("image", refOf(a), refOf(b))
		}
		return
	}
	d.changed("image", a.Ref, b.Ref)
	d.changed("base image", a.BaseRef, b.BaseRef)
	switch {
	case a.BaseDigest == b.BaseDigest:
	case b.BaseDigest == "":
		d.more("a base image that no digest pins")
	case a.BaseDigest == "":
		d.less("the base image is pinned, to %s", short(b.BaseDigest))
	default:
		d.changed("base image's digest", a.BaseDigest, b.BaseDigest)
	}
	d.changed("recorded id of the image", a.RecordedID, b.RecordedID)
	d.changed("gate's image", a.GateRef, b.GateRef)
	d.changed("recorded id of the gate's image", a.GateID, b.GateID)
	d.added(a, b)
	d.rest("image", *a, *b, "ref", "base_ref", "base_digest", "recorded_id", "gate_ref", "gate_recorded_id", "harness_packages", "apt", "setup")
}

func refOf(i *Image) string {
	if i == nil {
		return ""
	}
	return i.Ref
}

// mounts compares what is at each mount point of either, which is there in the
// other one, too, where a mount above it shows the same.
func (d *Difference) mounts(a, b Policy) {
	var targets []string
	for _, m := range slices.Concat(a.Mounts, b.Mounts) {
		targets = append(targets, m.Target)
	}
	slices.Sort(targets)
	for _, at := range slices.Compact(targets) {
		was, is := a.Inside(at), b.Inside(at)
		ma, mb := a.mountAt(at), b.mountAt(at)
		d.place(at, a.shown(was, ma), b.shown(is, mb), was.Access, is.Access)
		if ma == nil || mb == nil {
			continue
		}
		switch {
		case mb.SizeBytes > ma.SizeBytes:
			d.more("%s holds %d bytes, not %d", Quote(at), mb.SizeBytes, ma.SizeBytes)
		case mb.SizeBytes < ma.SizeBytes:
			d.less("%s holds %d bytes, not %d", Quote(at), mb.SizeBytes, ma.SizeBytes)
		}
		d.changed("mode of "+Quote(at), ma.Mode, mb.Mode)
		d.changed("content of "+Quote(at), ma.ContentSHA256, mb.ContentSHA256)
		d.changed("what "+Quote(at)+" is for", ma.Why, mb.Why)
		if ma.Relabel != mb.Relabel {
			d.changed("SELinux label of "+Quote(at), fmt.Sprint(ma.Relabel), fmt.Sprint(mb.Relabel))
		}
		// One that is read-only and lies over the same that is, say.
		if was.Access == is.Access && ma.ReadOnly != mb.ReadOnly {
			d.otherwise("%s: read-only: %v -> %v", Quote(at), ma.ReadOnly, mb.ReadOnly)
		}
		d.rest("mount at "+Quote(at), *ma, *mb, "kind", "source", "target", "read_only", "relabel", "size_bytes", "mode", "content_sha256", "why")
	}
	// What is the same one by one can still be in another order, or twice.
	if d.Empty() && len(a.Mounts) == len(b.Mounts) && !reflect.DeepEqual(targetsOf(a), targetsOf(b)) {
		d.otherwise("the order of the mounts")
	}
	if len(a.Mounts) != len(b.Mounts) && d.Empty() {
		d.otherwise("number of mounts: %d -> %d", len(a.Mounts), len(b.Mounts))
	}
}

func targetsOf(p Policy) []string {
	var out []string
	for _, m := range p.Mounts {
		out = append(out, m.Target)
	}
	return out
}

// place compares what is at one path inside.
func (d *Difference) place(at, was, is string, before, now Access) {
	rank := func(x Access) int {
		return slices.Index([]Access{AccessNone, AccessRead, AccessKernel, AccessWrite}, x)
	}
	switch {
	case was == is && rank(now) > rank(before):
		d.more("%s at %s: %s, not %s", is, Quote(at), now, before)
	case was == is && rank(now) < rank(before):
		d.less("%s at %s: %s, not %s", is, Quote(at), now, before)
	case was != is:
		if is != nothingOwn {
			d.more("%s at %s: %s", is, Quote(at), now)
		}
		if was != nothingOwn {
			d.less("no %s at %s", was, Quote(at))
		}
	}
}

// nothingOwn is the root file system, of which every policy has something.
const nothingOwn = "the root file system"

// shown names what is at a path inside: the host path, or whatever else it is.
func (p Policy) shown(pl Place, m *Mount) string {
	switch {
	case pl.Host != "":
		return placeholders(pl.Host)
	case m == nil && pl.Mount >= 0:
		m = &p.Mounts[pl.Mount]
	case m == nil:
		return nothingOwn
	}
	if m.Source != "" {
		return Quote(m.Kind) + " " + placeholders(m.Source)
	}
	return Quote(m.Kind)
}

// mountAt is the mount that is at a mount point, or nil.
func (p Policy) mountAt(at string) *Mount {
	for i := len(p.Mounts) - 1; i >= 0; i-- {
		if p.Mounts[i].Target == at {
			return &p.Mounts[i]
		}
	}
	return nil
}

func (d *Difference) home(a, b Home) {
	d.changed("home", a.Volume, b.Volume)
	if a.Ephemeral != b.Ephemeral {
		d.changed("home ends with the run", fmt.Sprint(a.Ephemeral), fmt.Sprint(b.Ephemeral))
	}
	var la, lb, sa, sb []string
	for _, l := range a.Links {
		la = append(la, l.Path+" -> "+l.To)
	}
	for _, l := range b.Links {
		lb = append(lb, l.Path+" -> "+l.To)
	}
	for _, f := range a.Seeds {
		sa = append(sa, fmt.Sprintf("%s %04o %s", f.Path, f.Mode, f.ContentSHA256))
	}
	for _, f := range b.Seeds {
		sb = append(sb, fmt.Sprintf("%s %04o %s", f.Path, f.Mode, f.ContentSHA256))
	}
	var ma, mb []string
	for _, f := range a.Managed {
		ma = append(ma, f.line())
	}
	for _, f := range b.Managed {
		mb = append(mb, f.line())
	}
	d.lists("mount point in the home", a.Points, b.Points)
	d.lists("link in the home", la, lb)
	d.lists("file in the home", sa, sb)
	d.lists("file of the host's in the home", ma, mb)
	d.rest("home", a, b, "volume", "ephemeral", "mount_points", "links", "seeds", "managed")
}

// lists is for lines that come and go without allowing anything by themselves.
func (d *Difference) lists(what string, a, b []string) {
	n := len(d.Otherwise)
	for _, s := range missing(a, b) {
		d.otherwise("no %s: %s", what, cut(Printable(s)))
	}
	for _, s := range missing(b, a) {
		d.otherwise("%s: %s", what, cut(Printable(s)))
	}
	if len(d.Otherwise) == n && !slices.Equal(a, b) {
		d.otherwise("order: %s", what)
	}
}

// missing are the strings of a that b has not, as often as it has them less.
func missing(a, b []string) []string {
	count := map[string]int{}
	for _, s := range b {
		count[s]++
	}
	var out []string
	for _, s := range a {
		if count[s]--; count[s] < 0 {
			out = append(out, s)
		}
	}
	return out
}

func (d *Difference) env(a, b []Env) {
	at := func(list []Env, name string) *Env {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		return nil
	}
	show := func(e Env) string {
		if e.From == FromConstant || e.Value != "" {
			return short(e.Name + "=" + e.Value)
		}
		return short(e.Name) + " with the value from " + short(e.From)
	}
	var names []string
	for _, e := range slices.Concat(a, b) {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		was, is := at(a, name), at(b, name)
		switch {
		case was == nil && derived(*is):
			d.otherwise("variable %s", show(*is))
		case was == nil:
			d.more("variable %s", show(*is))
		case is == nil && derived(*was):
			d.otherwise("no variable %s", short(name))
		case is == nil:
			d.less("no variable %s", short(name))
		default:
			// What comes from outside tells more than what the printout has.
			switch {
			case is.Passed() && !was.Passed():
				d.more("variable %s -> %s", show(*was), show(*is))
			case was.Passed() && !is.Passed():
				d.less("variable %s -> %s", show(*was), show(*is))
			case was.Value != is.Value || was.From != is.From:
				d.otherwise("variable %s -> %s", show(*was), show(*is))
			}
			if was.Secret != is.Secret && was.Passed() == is.Passed() { // else it is said
				d.otherwise("the value of %s is hidden: %v -> %v", short(name), was.Secret, is.Secret)
			}
			d.rest("variable "+short(name), *was, *is, "name", "value", "from", "secret")
		}
	}
	if len(a) != len(b) && d.Empty() {
		d.otherwise("number of variables: %d -> %d", len(a), len(b))
	}
}

// derived tells whether a variable follows from the rest of the policy.
func derived(e Env) bool { return e.From == FromFixed || e.From == FromProxy || e.From == FromCA }

// upstream: without a proxy, the gate judges the addresses of names, too.
func (d *Difference) upstream(a, b *Upstream) {
	switch {
	case a == nil && b == nil || a != nil && b != nil && *a == *b:
	case a == nil:
		d.more("names are looked up by the proxy %s, and where they lead is not judged", short(b.URL()))
	case b == nil:
		d.less("names are not looked up by the proxy %s, and where they lead is judged", short(a.URL()))
	case a.URL() == b.URL():
		d.otherwise("whether the proxy %s is shown credentials", short(a.URL()))
	default:
		d.otherwise("upstream proxy: %s -> %s", short(a.URL()), short(b.URL()))
	}
}

func (d *Difference) net(a, b Net) {
	rank := map[string]int{NetNone: 0, NetUnix: 1, NetGated: 1, NetHost: 2}
	switch was, is := rank[a.Mode], rank[b.Mode]; {
	case is > was:
		d.more("net %s, not %s", short(b.Mode), short(a.Mode))
	case is < was:
		d.less("net %s, not %s", short(b.Mode), short(a.Mode))
	default:
		d.changed("net", a.Mode, b.Mode)
	}
	d.changed("gate engine", a.Engine, b.Engine)
	d.changed("named gate", a.GateName, b.GateName)
	switch {
	case b.Learn && !a.Learn && a.Mode != NetHost:
		d.more("net learn: every public host, at any port")
	case a.Learn && !b.Learn && b.Mode != NetHost:
		d.less("no net learn")
	}
	d.upstream(a.Upstream, b.Upstream)
	d.rest("net", a, b, "mode", "engine", "gate", "learn", "allow", "allow_private", "upstream")
	if a.Mode == NetHost || b.Mode == NetHost {
		return // with one of them everything is reached
	}
	listedA, listedB := slices.Concat(a.Allow, a.AllowPrivate), slices.Concat(b.Allow, b.AllowPrivate)
	n := len(d.More) + len(d.Less)
	for _, e := range b.Allow {
		if !letsThrough(listedA, e) {
			d.more("allow %s %s", Quote(e.String()), strings.Join(describe(e, false), " "))
		}
	}
	for _, e := range b.AllowPrivate {
		if !letsThrough(a.AllowPrivate, e) {
			d.more("allow_private %s %s", Quote(e.String()), strings.Join(describe(e, true), " "))
		}
	}
	for _, e := range a.Allow {
		if !letsThrough(listedB, e) {
			d.less("no allow %s %s", Quote(e.String()), strings.Join(describe(e, false), " "))
		}
	}
	for _, e := range a.AllowPrivate {
		if !letsThrough(b.AllowPrivate, e) {
			d.less("no allow_private %s %s", Quote(e.String()), strings.Join(describe(e, true), " "))
		}
	}
	if len(d.More)+len(d.Less) == n && !(slices.Equal(a.Allow, b.Allow) && slices.Equal(a.AllowPrivate, b.AllowPrivate)) {
		d.otherwise("the allowlist is written in another way, and lets the same through")
	}
}

// letsThrough tells whether a list lets everything through that e does, several
// of its entries together if need be.
func letsThrough(list []Entry, e Entry) bool {
	for _, port := range e.Ports() {
		one := e
		one.Port = port
		if slices.ContainsFunc(list, func(o Entry) bool { return o.Covers(one) && (o.LinkLocal() || !e.LinkLocal()) }) {
			continue
		}
		if e.Name != "" || e.LinkLocal() {
			return false
		}
		var ranges []netip.Prefix
		for _, o := range list {
			if o.Name == "" && slices.Contains(o.Ports(), port) {
				ranges = append(ranges, o.Prefix)
			}
		}
		if !covered(ranges, e.Prefix) {
			return false
		}
	}
	return true
}

// limits compares what is held: a limit that nothing holds is none.
func (d *Difference) limits(a, b Limits) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		was, _ := va.Field(i).Interface().(Limit)
		is, _ := vb.Field(i).Interface().(Limit)
		if was == is {
			continue
		}
		name, _, _ := strings.Cut(va.Type().Field(i).Tag.Get("json"), ",")
		held := func(l Limit) int64 {
			if l.Value <= 0 || l.By == "" {
				return math.MaxInt64
			}
			return l.Value
		}
		show := func(l Limit) string {
			if n := held(l); n != math.MaxInt64 {
				return strconv.FormatInt(n, 10)
			}
			return "no limit"
		}
		switch before, now := held(was), held(is); {
		case now > before:
			d.more("%s: %s, not %s", name, show(is), show(was))
		case now < before:
			d.less("%s: %s, not %s", name, show(is), show(was))
		default:
			d.rest(name, was, is)
		}
	}
}

// rest names the fields that differ and have no words of their own above: those
// not in known, by their JSON.
func (d *Difference) rest(what string, a, b any, known ...string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name, _, _ := strings.Cut(va.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" || slices.Contains(known, name) {
			continue
		}
		x, y := va.Field(i).Interface(), vb.Field(i).Interface()
		if reflect.DeepEqual(x, y) {
			continue
		}
		d.changed(strings.TrimSpace(what+" "+name), asJSON(x), asJSON(y))
	}
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
