// The rules as two squid.conf and what they refer to.

package gate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/policy"
)

// Reasons are what the log gives for a refusal, in the order in which they are
// looked for.
const (
	ReasonManager = "manager" // squid's own pages; they answer nobody
	ReasonScheme  = "scheme"  // neither http:// nor CONNECT
	ReasonPort    = "port"    // no entry has this port
	ReasonName    = "name"    // no entry has this host at this port
	ReasonAddress = "address" // leads to an address that no entry opens
	ReasonPrivate = "private" // leads to a private address without allow-private
	ReasonLookup  = "lookup"  // the name does not resolve
	ReasonNoSNI   = "nosni"   // a TLS hello without a server name
	ReasonSNI     = "sni"     // a TLS hello with a name that is not on the list
	ReasonNotTLS  = "nottls"  // something else than TLS where TLS is expected
)

// pages are what a refused client reads. %H, %p and the like are squid's, which
// escapes what it puts in.
var pages = map[string]string{
	ReasonManager:  "aisb-gate: refused (rule manager): squid's own pages are shut",
	ReasonScheme:   "aisb-gate: refused (rule scheme): only http:// requests and CONNECT pass",
	ReasonPort:     "aisb-gate: refused (rule port): port %p is not allowed",
	ReasonName:     "aisb-gate: refused (rule name): %H is not allowed on port %p",
	ReasonAddress:  "aisb-gate: refused (rule address): %H leads to an address that stays shut unless --allow-private spells it out",
	ReasonPrivate:  "aisb-gate: refused (rule private): %H leads to a private address",
	ReasonLookup:   "aisb-gate: refused (rule lookup): %H does not resolve",
	ReasonUpstream: "aisb-gate: refused (rule upstream): %H is the proxy that this machine is behind; the gate alone may use it",
}

// Page is what a client reads that is refused for reason, one line without its
// end. host may be any bytes, of which those that no host has are percent-encoded, and
// the first 260 are shown. session is what the user calls it, or "". Only what a list
// can have is proposed.
func Page(reason, session, host string, port uint16) string {
	text := pages[reason]
	if _, opens := proposals[reason]; opens {
		h := refused(Decision{Host: host, Port: port, Reason: reason})
		flag, entry, _ := strings.Cut(h.AllowFlag, " ")
		switch {
		case entry == "":
			text += "; " + h.Why
		case flag == "--allow-private":
			text += proposal{h.AllowFlag, "--private " + entry}.text(session)
		default:
			text += proposal{h.AllowFlag, entry}.text(session)
		}
	}
	return strings.NewReplacer("%H", plainText(host, maxHost), "%p", strconv.Itoa(int(port))).Replace(text)
}

// A proposal is what would let a request through: a flag of the next run, and what "ai-sandbox
// allow" has to be told while this one goes on.
type proposal struct{ flag, later string }

func (p proposal) text(session string) string {
	text := "; to open it, ask the user for " + p.flag
	if session != "" {
		text += "; or, while this session runs: ai-sandbox allow " + session + " " + p.later
	}
	return text
}

// proposals are the reasons whose pages propose something; true where that is the flag for
// what is private, whatever was asked for.
var proposals = map[string]bool{ReasonPort: false, ReasonName: false, ReasonPrivate: true}

// A kind is of hosts for which squid's pages propose the same.
type kind struct {
	name string
	acls string // that have to match, after those of the kinds before it
	port bool   // it has to be named
	// private: nothing but the flag for that opens it. shut is what is said where
	// nothing does.
	private bool
	shut    string
}

// kinds are what Page knows of a host, as far as squid's rules can tell. They do not know
// the public suffixes, nor which internationalised names make sense.
var kinds = []kind{
	{name: "dead", acls: "literal_dead", shut: noWay},
	{name: "dead", acls: "zero", shut: noWay},
	{name: "inward", acls: "usual literal_inward", private: true},
	{name: "inwardport", acls: "literal_inward", private: true, port: true},
	{name: "host", acls: "usual literal_any"},
	{name: "hostport", acls: "literal_any", port: true},
	{name: "host", acls: "usual full !number"},
	{name: "hostport", acls: "full !number", port: true},
	{name: "label", acls: "label", shut: noEntry + ": it is a single label, which names no host on the network"},
	{name: "odd", shut: noEntry + ": it is no host name"},
}

// page is what a client reads that is refused for reason.
func (k kind) page(reason, session string) string {
	at := "%H"
	if k.port {
		at += ":%p"
	}
	p := proposal{"--allow " + at, at}
	switch {
	case k.shut != "":
		return pages[reason] + "; " + k.shut
	case k.private || proposals[reason]:
		p = proposal{"--allow-private " + at, "--private " + at}
	}
	return pages[reason] + p.text(session)
}

// kindACLs are those that kinds names.
func kindACLs(b *conf) {
	b.line("acl usual port %d %d", policy.DefaultPorts[0], policy.DefaultPorts[1])
	dst(b, "literal_dead dst -n", unroutable)
	dst(b, "literal_inward dst -n", linkLocal, private, tunnels)
	// To a dst rule with -n it is not an address.
	b.line(`acl zero dstdom_regex -n -i ^0\.0\.0\.0$ ^\[?::\]?$`)
	b.line("acl literal_any dst -n 0.0.0.0/1 128.0.0.0/1 64:ff9b::/96 2000::/3 8000::/1")
	// The grammar of names (policy.ParseEntry).
	b.line(`acl full dstdom_regex -n -i ^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	b.line(`acl number dstdom_regex -n -i \.([0-9]+|0x[0-9a-f]*)$ \.localhost$ ^.{254}`)
	b.line(`acl label dstdom_regex -n -i ^[a-z0-9-]+$`)
}

// squidPages are the pages that squid looks for in its error directory. Each
// gets one line of ours: the distribution's name the host, the version and the
// administrator.
var squidPages = strings.Fields(`
ERR_ACCESS_DENIED ERR_ACL_TIME_QUOTA_EXCEEDED ERR_AGENT_CONFIGURE ERR_AGENT_WPAD
ERR_CACHE_ACCESS_DENIED ERR_CACHE_MGR_ACCESS_DENIED ERR_CANNOT_FORWARD
ERR_CONFLICT_HOST ERR_CONNECT_FAIL ERR_DIR_LISTING ERR_DNS_FAIL ERR_ESI
ERR_FORWARDING_DENIED ERR_FTP_DISABLED ERR_FTP_FAILURE ERR_FTP_FORBIDDEN
ERR_FTP_NOT_FOUND ERR_FTP_PUT_CREATED ERR_FTP_PUT_ERROR ERR_FTP_PUT_MODIFIED
ERR_FTP_UNAVAILABLE ERR_GATEWAY_FAILURE ERR_ICAP_FAILURE ERR_INVALID_REQ
ERR_INVALID_RESP ERR_INVALID_URL ERR_LIFETIME_EXP ERR_NO_RELAY
ERR_ONLY_IF_CACHED_MISS ERR_PRECONDITION_FAILED ERR_PROTOCOL_UNKNOWN
ERR_READ_ERROR ERR_READ_TIMEOUT ERR_SECURE_CONNECT_FAIL ERR_SHUTTING_DOWN
ERR_SOCKET_FAILURE ERR_TOO_BIG ERR_UNSUP_HTTPVERSION ERR_UNSUP_REQ
ERR_URN_RESOLVE ERR_WRITE_ERROR ERR_ZERO_SIZE_OBJECT`)

// Files returns the content of the gate's configuration directory, by path
// relative to it, all but TLSFile. Squid includes nothing else.
func Files(c Config) (map[string][]byte, error) {
	if c.FrontPort == 0 || c.PeekPort == 0 || c.FrontPort == c.PeekPort {
		return nil, fmt.Errorf("gate ports %d and %d: want two different ones", c.FrontPort, c.PeekPort)
	}
	if err := c.CheckReady(); err != nil {
		return nil, err
	}
	if c.Upstream != nil {
		if err := c.Upstream.Check(); err != nil {
			return nil, err
		}
	}
	if c.Dir == "" {
		c.Dir = ConfDir
	}
	if c.Logs == "" {
		c.Logs = LogDir
	}
	if c.Session != "" && !plain(c.Session, "-") {
		return nil, fmt.Errorf("gate session %q: want letters and digits", c.Session)
	}
	if !plain(c.Dir, "/._-") || !plain(c.Logs, "/._-") {
		return nil, fmt.Errorf("gate directories %q and %q: want plain paths", c.Dir, c.Logs)
	}
	for _, e := range slices.Concat(c.Allow, c.AllowPrivate) {
		if !e.Valid() {
			return nil, fmt.Errorf("gate entry %+q: not one that the grammar gives", e.String())
		}
	}
	// Only the renderers below see c from here on. What is private is listed,
	// too.
	listed := c.Listed()
	if c.Classes == nil {
		c.Classes = listed
	}
	c.AllowPrivate = policy.Normalise(c.AllowPrivate)
	files := map[string][]byte{
		FrontConf: []byte(front(c, listed)),
		PeekConf:  []byte(peek(c, listed)),
		// No icons: squid would load the distribution's at each start.
		"mime.conf": []byte("# empty: the gate lists no directories\n"),
		// Squid wants the file; no page of ours shows such details.
		"errors/error-details.txt": []byte("name: SQUID_ERR_SSL_HANDSHAKE\ndetail: \"handshake\"\ndescr: \"handshake\"\n"),
		"errors/AISB_READY":        []byte(c.ReadyLine() + "\n"),
	}
	if c.Upstream != nil {
		files["errors/"+authPage] = []byte(authText + "\n")
	}
	for reason := range pages {
		if reason == ReasonUpstream && c.Upstream == nil {
			continue
		}
		files["errors/"+page(reason)] = []byte(pages[reason] + "\n")
		if _, opens := proposals[reason]; opens {
			for _, k := range kinds {
				files["errors/"+page(reason+"_"+k.name)] = []byte(k.page(reason, c.Session) + "\n")
			}
		}
	}
	for _, name := range squidPages {
		files["errors/"+name] = []byte("aisb-gate: " + name + " for %H:%p\n")
	}
	return files, nil
}

func page(reason string) string { return "AISB_" + strings.ToUpper(reason) }

// plain reports whether s is not empty and of letters, digits and extra alone.
func plain(s, extra string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(extra, r) {
			return false
		}
	}
	return s != "" && len(s) <= 512
}

// A conf is a squid.conf as it is written.
type conf struct{ strings.Builder }

func (b *conf) line(format string, args ...any) {
	fmt.Fprintf(b, format+"\n", args...)
}

// A group is the entries of one list that share their ports.
type group struct {
	ports []string
	names []string // as dstdomain and ssl::server_name read them
	addrs []string
	last  netip.Prefix // of addrs
}

// groups splits a normalised list by port.
func groups(list []policy.Entry) []group {
	byPort := map[uint16]*group{}
	var order []uint16
	for _, e := range list {
		g := byPort[e.Port]
		if g == nil {
			g = &group{}
			for _, p := range e.Ports() {
				g.ports = append(g.ports, strconv.Itoa(int(p)))
			}
			byPort[e.Port] = g
			order = append(order, e.Port)
		}
		switch {
		case e.Name == "":
			// A link-local address can stand after the range that it is in, see
			// Normalise, and squid complains of both in one ACL.
			if e.LinkLocal() && g.last.Contains(e.Prefix.Addr()) {
				continue
			}
			g.last = e.Prefix
			g.addrs = append(g.addrs, e.Prefix.String())
		case e.Subdomains:
			g.names = append(g.names, "."+e.Name)
		default:
			g.names = append(g.names, e.Name)
		}
	}
	slices.Sort(order)
	out := make([]group, 0, len(order))
	for _, p := range order {
		out = append(out, *byPort[p])
	}
	return out
}

// entries writes the ACL called name that matches what a list lets through by
// host and port, before any lookup; false when the list is empty, as squid has
// no ACL that is. "-n" keeps squid from looking an address up backwards, and
// from resolving a name to compare it with an address entry.
func entries(b *conf, name string, list []policy.Entry) bool {
	var pairs []string
	for i, g := range groups(list) {
		id := fmt.Sprintf("%s_%d", name, i)
		b.line("acl %s_ports port %s", id, strings.Join(g.ports, " "))
		for _, kind := range []struct {
			suffix, acl string
			values      []string
		}{
			{"names", "dstdomain -n", g.names},
			{"addrs", "dst -n", g.addrs},
		} {
			if len(kind.values) == 0 {
				continue
			}
			lines(b, "acl "+id+"_"+kind.suffix+" "+kind.acl, kind.values)
			b.line("acl %s_%s_pair all-of %s_ports %s_%s", id, kind.suffix, id, id, kind.suffix)
			pairs = append(pairs, id+"_"+kind.suffix+"_pair")
		}
	}
	if pairs == nil {
		return false
	}
	lines(b, "acl "+name+" any-of", pairs)
	return true
}

// lines writes an ACL of many values, some on each line: squid's lines have a
// limit, and values of further lines are added.
func lines(b *conf, acl string, values []string) {
	for chunk := range slices.Chunk(values, 8) {
		b.line("%s %s", acl, strings.Join(chunk, " "))
	}
}

// dst writes an ACL of classes of addresses; acl is its name and type.
func dst(b *conf, acl string, classes ...addrClass) {
	var all []string
	for _, p := range ranges(classes...) {
		all = append(all, p.String())
	}
	lines(b, "acl "+acl, all)
}

// deny writes a refusal that is logged with its reason and has a page of its
// own. squid takes the page from the last ACL of the line, and the last one
// also writes the reason.
func deny(b *conf, reason, acls string) {
	if _, opens := proposals[reason]; opens {
		for _, k := range kinds {
			b.line("http_access deny %s %s", acls, strings.TrimSpace(k.acls+" why_"+reason+"_"+k.name))
		}
		return
	}
	b.line("http_access deny %s why_%s", acls, reason)
}

// rules are http_access, the same in both squids. The order is the point: names
// decide before anything resolves them, or a lookup would carry data out; then
// the address decides; and a lookup that fails is a refusal, which a dst rule
// alone does not give, for it does not match then.
func rules(b *conf, c Config, listed []policy.Entry) {
	b.line("acl opens method CONNECT")
	b.line("acl web proto HTTP")
	b.line("acl ready dstdomain -n %s", ReadyHost)
	// Host names and addresses have no other bytes; squid would look up
	// "no.test%%00.example.com" under a listed domain.
	b.line(`acl hostname dstdom_regex -n -i ^[a-z0-9_.-]+$ ^\[?[0-9a-f:.]+\]?$`)
	reasons := []string{ReasonManager, ReasonScheme, ReasonPort, ReasonName, ReasonAddress, ReasonPrivate, ReasonLookup}
	if c.Upstream != nil {
		reasons = append(reasons, ReasonUpstream)
	}
	for _, reason := range reasons {
		which := []string{reason}
		if _, opens := proposals[reason]; opens {
			which = nil
			for _, k := range kinds {
				if w := reason + "_" + k.name; !slices.Contains(which, w) {
					which = append(which, w)
				}
			}
		}
		for _, w := range which {
			b.line("acl why_%s annotate_transaction why=%s", w, reason)
			b.line("deny_info %s why_%s", page(w), w)
		}
	}
	b.line("deny_info AISB_READY ready")

	var ports []string
	for _, g := range groups(listed) {
		ports = append(ports, g.ports...)
	}
	slices.Sort(ports)
	some := entries(b, "listed", listed)
	if some {
		lines(b, "acl ports port", slices.Compact(ports))
	}
	inward, spelled := "", ""
	if entries(b, "inward", c.AllowPrivate) {
		inward = " !inward"
	}
	if entries(b, "spelled", slices.DeleteFunc(slices.Clone(c.AllowPrivate), func(e policy.Entry) bool { return !e.LinkLocal() })) {
		spelled = " !spelled"
	}
	dst(b, "unroutable dst", unroutable)
	dst(b, "linklocal dst", linkLocal)
	dst(b, "private dst", private, tunnels)
	// What a lookup that worked can give. Not 0.0.0.0/0, for which squid 6
	// logs an error, and not ::/0, which matches nothing there.
	b.line("acl anyip dst 0.0.0.0/1 128.0.0.0/1 64:ff9b::/96 2000::/3 8000::/1")

	kindACLs(b)
	b.line("http_access deny ready")
	deny(b, ReasonManager, "manager")
	deny(b, ReasonScheme, "!opens !web")
	if !some {
		deny(b, ReasonName, "all")
		return
	}
	deny(b, ReasonPort, "!ports")
	b.line("http_access deny !hostname why_%s_odd", ReasonName)
	deny(b, ReasonName, "!listed")
	if c.Upstream != nil {
		c.Upstream.rules(b, inward != "", spelled)
		return
	}
	deny(b, ReasonAddress, "unroutable")
	deny(b, ReasonAddress, "linklocal"+spelled)
	deny(b, ReasonPrivate, "private"+inward)
	b.line("http_access allow listed anyip")
	deny(b, ReasonLookup, "all")
}

// logFields is one line of the log: no field can hold a space or a newline,
// since what the sandbox chooses is percent-encoded and cut.
const logFields = "%ts.%03tu %>p %#.32>rm %#.260>rd %>rP %#.40Ss %>Hs %<st %>st %tr %#.64<a %#{why}note %#.260ssl::>sni %#.64err_code %<lp"

// common is what both squids have, whatever the list: one process without
// helpers, cache, disk or state, that says nothing about the host.
func common(b *conf, c Config, log, which string) {
	b.line("visible_hostname aisb-gate")
	b.line("pid_filename none")
	b.line("coredump_dir none")
	b.line("netdb_filename none")
	b.line("pinger_enable off")
	b.line("shutdown_lifetime 0 seconds")
	b.line("max_filedescriptors 8192")
	b.line("memory_pools off")
	b.line("client_db off")
	b.line("eui_lookup off")
	b.line("mime_table %s/mime.conf", c.Dir)
	b.line("error_directory %s/errors", c.Dir)
	b.line("error_log_languages off")
	b.line("cache deny all")
	b.line("cache_mem 0")
	b.line("memory_cache_mode disk")
	b.line("digest_generation off")
	b.line("cachemgr_passwd disable all")
	b.line("global_internal_static off")

	b.line("via off")
	b.line("forwarded_for delete")
	b.line("httpd_suppress_version_string on")
	b.line("email_err_data off")
	for _, h := range []string{"X-Squid-Error", "X-Cache", "X-Cache-Lookup", "Cache-Status"} {
		b.line("reply_header_access %s deny all", h)
	}

	b.line("hosts_file none")
	b.line("dns_defnames off")
	b.line("dns_multicast_local off")
	b.line("dns_retransmit_interval 2 seconds")
	b.line("dns_timeout 10 seconds")
	b.line("negative_dns_ttl 5 seconds")
	if len(c.Resolvers) > 0 {
		var rs []string
		for _, a := range c.Resolvers {
			rs = append(rs, a.String())
		}
		b.line("dns_nameservers %s", strings.Join(rs, " "))
	}

	// Tunnels of agents stay idle for long while a model thinks.
	b.line("read_timeout 24 hours")
	b.line("write_timeout 24 hours")
	b.line("client_lifetime 30 days")
	b.line("connect_timeout 20 seconds")
	b.line("forward_timeout 40 seconds")
	b.line("client_idle_pconn_timeout 10 minutes")
	b.line("quick_abort_min 0 KB")
	b.line("quick_abort_max 0 KB")

	b.line("strip_query_terms on")
	b.line("log_mime_hdrs off")
	b.line("debug_options ALL,0")
	b.line("cache_log %s/%s.cache.log", c.Logs, which)
	b.line("logfile_rotate 0")
	b.line("logformat aisb %s %s", which, logFields)
	// Refusals have a file of their own: the sandbox decides how many lines there
	// are, and what is let through must not crowd them out. on-error: a log that is
	// full (see the entrypoint's limit) ends no connection.
	b.line("acl refused note why")
	b.line("access_log stdio:%s/%s logformat=aisb on-error=drop !ready refused", c.Logs, log)
}

// used logs what was let through, in one file of both squids: tunnels from the front one,
// which knows how long they lasted and who asked, and the rest from the other one, which
// knows what came of it.
func used(b *conf, c Config, which string) {
	b.line("access_log stdio:%s/%s logformat=aisb on-error=drop !ready !refused %s", c.Logs, UsedLog, which)
}

func front(c Config, listed []policy.Entry) string {
	b := &conf{}
	b.line("# Made by ai-sandbox. Takes the sandbox's requests.")
	b.line("http_port 127.0.0.1:%d", c.FrontPort)
	rules(b, c, listed)
	common(b, c, FrontLog, "front")
	used(b, c, "opens")
	b.line("cache_peer 127.0.0.1 parent %d 0 name=peek no-query no-digest no-netdb-exchange proxy-only connect-timeout=2 connect-fail-limit=1000000", c.PeekPort)
	b.line("never_direct allow all")
	b.line("nonhierarchical_direct off")
	// A connection for each request, which is shut when its host is denied.
	b.line("server_persistent_connections off")
	b.line("tls_outgoing_options disable")
	classes(b, c, listed)
	return b.String()
}

// classes gives what an entry lets through an address of its own. The entries of a
// normalised list exclude one another, but for ports.
func classes(b *conf, c Config, listed []policy.Entry) {
	ports := map[uint16]int{} // to the number of the group, as entries has it
	in := map[policy.Entry]bool{}
	for _, e := range listed {
		ports[e.Port], in[e] = 0, true
	}
	for i, port := range slices.Sorted(maps.Keys(ports)) {
		ports[port] = i
	}
	for i, e := range c.Classes[:min(len(c.Classes), MaxClasses)] {
		if !in[e] {
			continue
		}
		switch {
		case e.Name == "":
			b.line("acl class_%d dst -n %s", i, e.Prefix)
		case e.Subdomains:
			b.line("acl class_%d dstdomain -n .%s", i, e.Name)
		default:
			b.line("acl class_%d dstdomain -n %s", i, e.Name)
		}
		b.line("tcp_outgoing_address %s listed_%d_ports class_%d", ClassAddr(i), ports[e.Port], i)
	}
}

func peek(c Config, listed []policy.Entry) string {
	b := &conf{}
	b.line("# Made by ai-sandbox. Takes what the front squid lets through, and looks at the TLS hello.")
	b.line("http_port 127.0.0.1:%d ssl-bump tls-cert=%s/%s generate-host-certificates=off", c.PeekPort, c.Dir, TLSFile)
	rules(b, c, listed)
	common(b, c, PeekLog, "peek")
	used(b, c, "!opens")
	b.line("sslproxy_session_cache_size 0")
	// It opens no TLS connection itself; reading the CAs takes half its start.
	b.line("tls_outgoing_options default-ca=off")
	if c.Upstream != nil {
		c.Upstream.peers(b, len(c.AllowPrivate) > 0)
		c.Upstream.answers(b)
		b.line("nonhierarchical_direct off")
	}

	for _, reason := range []string{ReasonNoSNI, ReasonSNI, ReasonNotTLS} {
		b.line("acl why_%s annotate_transaction why=%s", reason, reason)
	}
	b.line("acl hello at_step SslBump1")
	// ssl::server_name falls back to the CONNECT's host where the hello has
	// no name, so whether it has one is read back from a note.
	b.line(`acl write_sni annotate_transaction sni="%%ssl::>sni"`)
	b.line("acl no_sni note sni -")
	b.line("ssl_bump peek hello")
	var pairs, literal, other []string
	for i, g := range groups(listed) {
		id := fmt.Sprintf("sni_%d", i)
		// "listed" has the ports of the same group.
		if len(g.names) > 0 {
			lines(b, "acl "+id+"_names ssl::server_name", g.names)
			b.line("acl %s all-of listed_%d_ports %s_names", id, i, id)
			pairs = append(pairs, id)
		}
		if len(g.addrs) > 0 {
			literal = append(literal, fmt.Sprintf("listed_%d_addrs_pair", i))
		}
		for _, p := range g.ports {
			if p != "443" {
				other = append(other, p)
			}
		}
	}
	// A client that asks for an address sends no name.
	b.line("ssl_bump peek write_sni !all")
	if literal != nil {
		lines(b, "acl literal any-of", literal)
		b.line("ssl_bump splice literal no_sni")
	}
	b.line("ssl_bump terminate no_sni why_%s", ReasonNoSNI)
	if pairs != nil {
		lines(b, "acl sni any-of", pairs)
		b.line("ssl_bump splice sni")
	}
	b.line("ssl_bump terminate all why_%s", ReasonSNI)

	// What is not TLS ends on 443, and passes on 80 and on ports that an
	// entry names. A server that speaks first is waited for so long.
	b.line("request_start_timeout 5 seconds")
	if other != nil {
		slices.Sort(other)
		lines(b, "acl other port", slices.Compact(other))
		b.line("on_unsupported_protocol tunnel other")
	}
	b.line("on_unsupported_protocol respond all why_%s", ReasonNotTLS)
	return b.String()
}
