// The proxy behind which this machine is, where a company lets nothing out but
// through one.

package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Upstream is the HTTP proxy that the gate reaches everything through but what
// AllowPrivate opens. It resolves the names: the gate judges them, and not their
// addresses.
type Upstream struct {
	// Host is a name in lower case, or an address.
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Credentials: the gate shows it some. They are nowhere in a policy.
	Credentials bool `json:"credentials,omitempty"`
}

// ParseUpstream reads http://HOST:PORT. A URL with a user in it is refused, and not
// shown: it may hold a password.
func ParseUpstream(s string) (Upstream, error) {
	const form = "write http://HOST:PORT"
	bad := func(why string) (Upstream, error) {
		return Upstream{}, fmt.Errorf("upstream_proxy %s; %s", why, form)
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case strings.Contains(s, "@"):
		return bad("has a user in it, which would be seen wherever it is; put user:password into a file that you alone can read, and name that by upstream_auth_file")
	case !utf8.ValidString(s):
		return bad("is not text")
	case !ok:
		return bad("has no scheme")
	case strings.EqualFold(scheme, "https"):
		return bad("is spoken to with TLS, which the gate can't do")
	case !strings.EqualFold(scheme, "http"):
		return bad("is no HTTP proxy")
	}
	rest = strings.TrimSuffix(rest, "/")
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || strings.ContainsAny(rest, "/?#%") {
		return bad("is no host with a port")
	}
	host, port := rest[:i], rest[i+1:]
	bracketed := len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']'
	if bracketed {
		host = host[1 : len(host)-1]
	}
	if bracketed != strings.Contains(host, ":") {
		return bad("is no host with a port")
	}
	u := Upstream{}
	var why string
	if u.Port, why = parsePort(port); why != "" {
		return bad("has a bad port: " + why)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		if a.IsUnspecified() || a.IsMulticast() {
			return bad("is at an address that no connection can go to")
		}
		u.Host = a.String()
		return u, nil
	}
	if u.Host, why = canonicalName(host); why != "" {
		return bad("has a bad host: " + why)
	}
	return u, nil
}

// Addr is Host where that is an address.
func (u Upstream) Addr() (netip.Addr, bool) {
	a, err := netip.ParseAddr(u.Host)
	return a, err == nil
}

// URL is the proxy as ParseUpstream reads it.
func (u Upstream) URL() string {
	host := u.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "http://" + host + ":" + strconv.Itoa(int(u.Port))
}

// note says what the gate can't judge behind a proxy.
func (u Upstream) note(learn bool) string {
	what := "an allowed name is let through wherever that leads"
	if learn {
		what = "with net learn any name is let through, one of your company's own network too"
	}
	return "UPSTREAM: " + u.URL() + " looks names up, and not the gate: " + what
}

// UpstreamAuth names the credentials wherever they are hidden.
const UpstreamAuth = "upstream_auth_file"

// MaxUpstreamAuth bounds an upstream_auth_file, in bytes.
const MaxUpstreamAuth = 4 << 10

// ParseUpstreamAuth reads an upstream_auth_file: one line, user:password, as Basic
// authentication has them (RFC 7617, section 2). Errors show nothing of it.
func ParseUpstreamAuth(data []byte) (Secret, error) {
	s := strings.TrimSuffix(string(data), "\n")
	user, password, ok := strings.Cut(s, ":")
	var why string
	switch {
	case strings.ContainsAny(s, "\r\n"):
		why = "has more than one line, or a carriage return"
	case !ok || user == "" || password == "":
		why = "has no user, no colon or no password"
	case !utf8.ValidString(s) || strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0:
		why = "has a control character, or is not UTF-8 text"
	case user[0] == '*' || strings.HasPrefix(user, "NEGOTIATE"):
		// squid.conf, cache_peer: login=
		why = "has a user that squid reads as an instruction"
	case len(password) < MinSecret || distinct(password) < minDistinct:
		why = fmt.Sprintf("has a password of less than %d bytes or %d different ones, which can't be hidden without garbling other words", MinSecret, minDistinct)
	default:
		return NewSecret(UpstreamAuth, s), nil
	}
	return Secret{}, errors.New(why + "; write one line: user:password")
}
