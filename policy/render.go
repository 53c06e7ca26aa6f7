// How a Policy is shown: text for people, JSON for programs. Both are complete
// and deterministic; the text keeps to 80 columns where the values let it.

package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON renders the policy with its schema version.
func (p Policy) JSON() ([]byte, error) { return RenderJSON(p) }

// RenderJSON is a value as JSON that may go to a terminal: indented, and with
// everything escaped that is not printable.
func RenderJSON(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // <gate-port> stays readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("render as JSON: %w", err)
	}
	return printableJSON(b.String()), nil
}

// printableJSON escapes what a terminal could obey or a reader be misled by, such
// as C1 and bidi characters: encoding/json leaves those as they are. They can
// stand in strings alone, where an escape says the same.
func printableJSON(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			a, z := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, a, z)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Quote shows a string of a user's as one word: as it is when that is plain,
// else quoted, with control and bidi characters and whatever else is not
// printable escaped.
func Quote(s string) string {
	plain := func(r rune) bool {
		return unicode.IsPrint(r) && r != utf8.RuneError && !strings.ContainsRune(" \"'\\`$&|;<>()*?!#~", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// Printable escapes what is not printable and leaves the rest, spaces included,
// as it is: for text that is shown on a line of its own.
func Printable(s string) string {
	q := strconv.Quote(s)
	q = q[1 : len(q)-1]
	return strings.ReplaceAll(strings.ReplaceAll(q, `\"`, `"`), `\\`, `\`)
}

const (
	width  = 80
	indent = 13 // of the values
)

// A page is text under construction.
type page struct{ strings.Builder }

// field writes a label and its words, wrapped between words. A word that does
// not fit gets a line of its own, less indented.
func (b *page) field(label string, words ...string) {
	b.WriteString(label)
	b.words(utf8.RuneCountInString(label), max(indent, utf8.RuneCountInString(label)+1), words)
}

// words writes words from column col on, the first of them at column first,
// wrapped between words.
func (b *page) words(col, first int, words []string) {
	for i, w := range words {
		at := col + 1
		if i == 0 {
			at = first
		}
		n := utf8.RuneCountInString(w)
		if at+n > width {
			at = indent
			if at+n > width {
				at = 4
			}
			b.WriteString("\n")
			col = 0
		}
		b.WriteString(strings.Repeat(" ", at-col) + w)
		col = at + n
	}
	b.WriteString("\n")
}

// text is field for a sentence. What it has from elsewhere is escaped.
func (b *page) text(label, s string) { b.field(label, strings.Fields(Printable(s))...) }

// loud begin those of Policy.Unusual that a run says again when it starts.
var loud = []string{"LEARN", "HOST NETWORK", "KEEP-ROOT", "HARNESS HOME", "LAN-FACING", "NOT HELD", "GIT"}

// Loud are the notes that nobody may miss: with them, less is shut than the name
// of the program promises.
func (p Policy) Loud() []string {
	var out []string
	for _, u := range p.Unusual {
		if slices.ContainsFunc(loud, func(word string) bool { return strings.HasPrefix(u, word+":") }) {
			out = append(out, u)
		}
	}
	return out
}

// Text renders the policy for people.
func (p Policy) Text() string {
	b := &page{}
	argv := make([]string, len(p.Command))
	for i, a := range p.Command {
		argv[i] = Quote(a)
	}
	b.field("command", argv...)
	if p.Harness != "" {
		b.field("harness", Quote(p.Harness))
		if t := p.Thinking; t != nil {
			b.field("thinking", Quote(t.Level), "("+Printable(t.As)+")")
		}
	}
	b.field("runtime", Quote(p.Runtime), "(isolation:", Quote(p.Isolation)+")")
	b.field("workdir", Quote(p.Workdir))
	if p.WorkdirNote != "" {
		b.text("", "note: "+p.WorkdirNote)
	}
	for i, u := range p.Unusual {
		label := ""
		if i == 0 {
			label = "unusual"
		}
		b.text(label, "! "+u)
	}

	b.image(p.Image)

	b.WriteString("\nmounts; the rest of the file system is read-only\n")
	for _, m := range p.Mounts {
		if m.Why != WhyProtected && m.Why != WhyHeld {
			b.mount(m)
		}
	}
	b.protected(p)

	b.home(p.Home)

	b.WriteString("\n")
	b.network(p.Net)
	switch f := p.InForce; {
	case f == nil:
	case f.Confirmed:
		b.text("  in force", "the gate has answered with the hash of these lists, "+Printable(f.Hash))
	default:
		b.text("  in force", "there is no gate that could confirm it")
	}
	b.publish(p.Publish)

	b.WriteString("\n")
	b.ruleset(p)
	b.limits(p.Limits)

	b.WriteString("\nenvironment; no other variable enters\n")
	for _, e := range p.Env {
		b.env(e)
	}

	b.WriteString("\n")
	b.runsAs(p)
	b.settings(p.Settings)
	return b.String()
}

// settings are shown by their names in the configuration: what is above says what
// they came to.
func (b *page) settings(list []Setting) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\nsettings; every other one is as it is built in\n")
	for _, s := range list {
		for _, v := range s.Values {
			b.words(0, 2, []string{s.Key, "=", Quote(v)})
		}
		if len(s.Values) == 0 {
			b.words(0, 2, []string{s.Key, "="})
		}
	}
}

func (b *page) image(i *Image) {
	if i == nil {
		return
	}
	b.WriteString("\n")
	b.field("image", Quote(i.Ref))
	b.field("  id", recorded(i.RecordedID)...)
	b.field("  base", Quote(i.BaseRef))
	if i.BaseDigest != "" {
		b.field("  digest", Quote(i.BaseDigest))
	} else {
		b.field("  digest", "UNPINNED")
	}
	b.added(i)
	if i.GateRef != "" {
		b.field("gate image", Quote(i.GateRef))
		b.field("  id", recorded(i.GateID)...)
	}
}

// home lists what is made in the home before the command starts.
func (b *page) home(h Home) {
	links := slices.DeleteFunc(slices.Clone(h.Links), func(l HomeLink) bool { return l.To == "" })
	if len(links)+len(h.Seeds)+len(h.Managed) == 0 {
		return
	}
	b.WriteString("\nmade in the home before the command starts\n")
	for _, l := range links {
		b.field("  link", Quote(l.Path), "->", Quote(l.To))
	}
	for _, f := range h.Seeds {
		b.field("  file", Quote(f.Path), Quote("sha256:"+f.ContentSHA256[:min(12, len(f.ContentSHA256))]), "(where nothing is)")
	}
	for _, f := range h.Managed {
		b.field("  file", f.words()...)
		for _, line := range f.fixed() {
			b.field("    key", line)
		}
	}
}

func (b *page) runsAs(p Policy) {
	groups := "No supplementary groups"
	if p.Isolation == IsolationProcess {
		groups = "The caller's supplementary groups"
	}
	uid, gid := p.User()
	b.text("runs as", fmt.Sprintf("uid %d, gid %d: the caller's own on the host. %s, "+
		"no capabilities, no_new_privs, a seccomp filter.", uid, gid, groups))
	if len(p.Capabilities) == 0 {
		b.text("entrypoint", "Holds no capability. The command does not start when a control does not hold.")
		return
	}
	b.text("entrypoint", "Holds "+strings.Join(p.Capabilities, ", ")+" until the ruleset is installed and read back, then nothing. "+
		"The command does not start when a control does not hold.")
}

func recorded(id string) []string {
	if id == "" {
		return strings.Fields("not recorded on this machine: built at the next start")
	}
	return []string{Quote(id), "(recorded)"}
}

func (b *page) mount(m Mount) {
	label, words := m.words()
	b.field("  "+label, words...)
}

// words are a mount's mode and kind, and what follows.
func (m Mount) words() (label string, words []string) {
	mode := "rw"
	if m.ReadOnly || m.Kind == KindSymlink {
		mode = "ro"
	}
	words = []string{Quote(m.Target)}
	switch m.Kind {
	case KindTmpfs:
		words = append(words, fmt.Sprintf("%d MiB,", m.SizeBytes>>20), "mode", Quote(m.Mode))
	case KindFile:
		words = append(words, Quote("sha256:"+m.ContentSHA256[:min(12, len(m.ContentSHA256))]))
	case KindProgram, KindProc, KindDev, KindSys:
	case KindBind:
		if m.Source == m.Target { // the machine's own, at its own place
			break
		}
		words = append(words, "<-", placeholders(m.Source))
	default:
		words = append(words, "<-", placeholders(m.Source))
	}
	if m.Relabel {
		words = append(words, "(SELinux label z)")
	}
	if m.Why != "" && m.Why != m.Kind {
		words = append(words, strings.Fields("("+Printable(m.Why)+")")...)
	}
	return mode + " " + Quote(m.Kind), words
}

// placeholders quotes a string but for the angle brackets of a placeholder.
func placeholders(s string) string {
	bare := strings.NewReplacer(SessionPlaceholder, "session", PortPlaceholder, "port", FreePortPlaceholder, "port").Replace(s)
	if Quote(bare) == bare {
		return s
	}
	return Quote(s)
}

func (b *page) env(e Env) {
	words := []string{Quote(e.Name)}
	switch {
	case e.Passed():
		words = append(words, strings.Fields(passed(e))...)
	case Printable(e.Value) != e.Value || strings.Join(strings.Fields(e.Value), " ") != e.Value:
		words = append(words, "=", strconv.Quote(e.Value))
	default:
		words = append(append(words, "="), strings.Fields(e.Value)...)
	}
	b.words(0, 2, words)
}

// passed says where a value comes from that is not shown.
func passed(e Env) string {
	what := "(the caller's value"
	switch e.From {
	case FromFile:
		what = "(from an env_file"
	case FromHarness:
		what = "(the caller's value, which the harness needs"
	}
	if e.Secret {
		what += "; secret"
	}
	return what + ")"
}

func (b *page) network(n Net) {
	at := GateAddr + ":" + PortPlaceholder
	switch n.Mode {
	case NetNone:
		b.text("network", "none: nothing but the sandbox's own loopback")
		return
	case NetHost:
		b.text("network", "host: this machine's own network; nothing is shut")
		return
	case NetUnix:
		b.text("network", "unix: no device but the sandbox's own loopback; the gate is reached over a unix socket")
		at = RelayAddr + ":" + strconv.Itoa(RelayPort)
	default:
		b.text("network", "gated: the kernel lets through one address and port, the gate's; every other packet is rejected")
	}
	gate := "of this run alone"
	if n.GateName != "" {
		gate = "the named gate " + Quote(n.GateName)
	}
	b.text("  gate", Quote(n.Engine)+", "+gate+", seen inside at "+at)
	if u := n.Upstream; u != nil {
		how := "without credentials"
		if u.Credentials {
			how = "with the credentials of upstream_auth_file, which are not seen inside"
		}
		b.text("  upstream", Quote(u.URL())+" "+how+"; what \"private\" names is connected to directly")
	}
	if n.Learn {
		b.text("  LEARN", "every public host is let through, at any port, and told at the end")
	} else if len(n.Allow)+len(n.AllowPrivate) == 0 {
		b.text("  allow", "nothing: the gate refuses every host")
	}
	for i, e := range n.Allow {
		label := ""
		if i == 0 {
			label = "  allow"
		}
		b.field(label, append([]string{Quote(e.String())}, describe(e, false)...)...)
	}
	for i, e := range n.AllowPrivate {
		label := ""
		if i == 0 {
			label = "  private"
		}
		b.field(label, append([]string{Quote(e.String())}, describe(e, true)...)...)
	}
	if n.Learn {
		b.text("  refused", "what leads to private, loopback or link-local addresses; DNS, UDP, ICMP and IPv6, which have no way out")
		return
	}
	inward := "names that lead to"
	if n.Upstream != nil {
		inward = "the upstream proxy itself;"
	}
	b.text("  refused", "every other host and port; "+inward+" private, loopback or link-local addresses; "+
		"DNS, UDP, ICMP and IPv6, which have no way out")
}

// describe says in words what an entry lets through.
func describe(e Entry, private bool) []string {
	what := "(this host,"
	switch {
	case e.Name == "":
		what = "(these addresses,"
	case e.Subdomains:
		what = "(this domain and all below it,"
	}
	ports := "ports 80 and 443"
	if e.Port != 0 {
		ports = "port " + strconv.Itoa(int(e.Port))
	}
	if private {
		ports += "; may lead to private addresses"
	}
	return strings.Fields(what + " " + ports + ")")
}
