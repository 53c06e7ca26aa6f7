// Behind a company's proxy: what the gate hands to it, and how.

package gate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"ai-sandbox/policy"
)

// ReasonUpstream is why the proxy itself is refused as a destination: what it lets
// through of itself would be past the list.
const ReasonUpstream = "upstream"

// An Upstream is the proxy of a policy, and what only a start knows of it. What
// AllowPrivate opens is connected to as without one; everything else goes to the
// proxy, by the name that was asked for, and nothing of it is looked up here.
type Upstream struct {
	policy.Upstream
	// Addrs are where it is, the first to be tried first.
	Addrs []netip.Addr
	// Auth is "user:password", or the zero Secret.
	Auth policy.Secret
}

// maxUpstream bounds the addresses of a proxy that are tried.
const maxUpstream = 8

// Check returns an error where no gate could reach it.
func (u Upstream) Check() error {
	if u.Host == "" || u.Port == 0 || len(u.Addrs) == 0 {
		return errors.New("gate upstream: want a host, a port and an address")
	}
	if u.Credentials != (u.Auth.Reveal() != "") {
		return errors.New("gate upstream: its credentials are not there, or are some that the policy does not have")
	}
	for _, a := range u.Addrs {
		if !a.IsValid() || a.Zone() != "" {
			return fmt.Errorf("gate upstream address %q: want a plain one", a)
		}
	}
	return nil
}

// Is tells whether a host at a port is the proxy itself.
func (u Upstream) Is(h Host, port uint16) bool {
	if port != u.Port {
		return false
	}
	for _, a := range u.Addrs {
		if h.Addr.IsValid() && h.Addr == a.Unmap() {
			return true
		}
	}
	return h.Name != "" && h.Name == u.Host
}

// login is the credentials as cache_peer's login= reads them: it takes URL encoding,
// so that no byte ends the word or the line.
func (u Upstream) login() string {
	if u.Auth.Reveal() == "" {
		return ""
	}
	var b strings.Builder
	for i, s := 0, u.Auth.Reveal(); i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return " login=" + b.String()
}

// rules are the end of http_access, of what the list lets through. What leads inward is
// looked up and judged by its address. Of the rest only an address that was asked for
// as one is: "-n" looks nothing up.
func (u *Upstream) rules(b *conf, inward bool, spelled string) {
	var at []string
	for _, a := range u.Addrs {
		at = append(at, a.Unmap().String())
	}
	b.line("acl upstream_port port %d", u.Port)
	lines(b, "acl upstream_literal dst -n", at)
	deny(b, ReasonUpstream, "upstream_port upstream_literal")
	if _, isAddr := u.Addr(); !isAddr {
		b.line("acl upstream_name dstdomain -n %s", u.Host)
		deny(b, ReasonUpstream, "upstream_port upstream_name")
	}
	if inward {
		lines(b, "acl upstream_addr dst", at)
		deny(b, ReasonUpstream, "inward upstream_port upstream_addr")
		deny(b, ReasonAddress, "inward unroutable")
		deny(b, ReasonAddress, "inward linklocal"+spelled)
		b.line("http_access allow inward anyip")
		deny(b, ReasonLookup, "inward")
	}
	dst(b, "unroutable_literal dst -n", unroutable)
	dst(b, "linklocal_literal dst -n", linkLocal)
	dst(b, "private_literal dst -n", private, tunnels)
	deny(b, ReasonAddress, "unroutable_literal")
	deny(b, ReasonAddress, "linklocal_literal")
	deny(b, ReasonPrivate, "private_literal")
	b.line("http_access allow listed")
	deny(b, ReasonName, "all")
}

// authPage is the page for what the proxy refuses for its credentials: what it says
// itself would have a client ask its user for a password.
const (
	authPage = "AISB_UPSTREAMAUTH"
	authText = "aisb-gate: the proxy that this machine is behind refuses the gate's credentials, or wants some (407): see upstream_auth_file"
)

// answers is what becomes of the proxy's own refusals.
func (u *Upstream) answers(b *conf) {
	b.line("acl upstream_auth http_status 407")
	b.line("deny_info 502:%s upstream_auth", authPage)
	b.line("http_reply_access deny upstream_auth")
}

// peers hands over what does not lead inward. No lookup takes part in that, and what is
// not handed over is not connected to either.
func (u *Upstream) peers(b *conf, inward bool) {
	const which = "all"
	out := ""
	if inward {
		out = " !inward"
		b.line("always_direct allow %s inward", which)
	}
	b.line("never_direct allow %s%s", which, out)
	for i, a := range u.Addrs[:min(len(u.Addrs), maxUpstream)] {
		host := a.Unmap().String()
		if a.Unmap().Is6() {
			host = "[" + host + "]"
		}
		b.line("cache_peer %s parent %d 0 name=upstream_%d no-query no-digest no-netdb-exchange proxy-only connect-timeout=10 connect-fail-limit=1000000%s", host, u.Port, i, u.login())
		b.line("cache_peer_access upstream_%d allow %s%s", i, which, out)
		b.line("cache_peer_access upstream_%d deny all", i)
	}
}
