// Reading the head of a request. What two readers could understand in two ways
// is refused. Pure, but for the reader that it reads from.

package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"ai-sandbox/gate"
)

// Limits of a request's head.
const (
	maxHead   = 32 << 10 // bytes, its lines' ends included
	maxFields = 128
	// maxLength is the longest body, in bytes.
	maxLength = 1 << 60
)

// A badRequest is a request that makes no sense, or more than one. Its text is
// ours alone.
type badRequest string

func (e badRequest) Error() string { return string(e) }

var errBig = errors.New("the request's head is too big")

// A field is one header field, as it is passed on.
type field struct{ name, value string }

// A head is a request's head.
type head struct {
	method string
	scheme string // in lower case; "" for CONNECT
	host   gate.Host
	port   uint16
	path   string // with the query; never empty
	minor  int    // of HTTP/1.x
	// fields are those that are passed on.
	fields []field
	// length is that of the body in bytes, or -1 where it comes in chunks.
	length int64
	// hasLength: the request said so.
	hasLength bool
	// last: the client ends the connection after the answer.
	last bool
	// expects: the client waits for 100 (Continue) before it sends the body.
	expects bool
	// via is the proxy that it goes through, or nil; judge sets it.
	via *gate.Upstream
}

// readHead reads a head with its empty line. It reads line by line, so that
// nonsense ends at its first byte or line.
func readHead(r *bufio.Reader) ([]byte, error) {
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if !token(first) {
		return nil, badRequest("it does not begin with a method")
	}
	var b []byte
	for lines := 0; ; {
		part, err := r.ReadSlice('\n')
		if len(b)+len(part) > maxHead {
			return nil, errBig
		}
		b = append(b, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		if !bytes.HasSuffix(b, []byte("\r\n")) {
			return nil, badRequest("a line ends without a carriage return")
		}
		if bytes.HasSuffix(b, []byte("\r\n\r\n")) {
			return b, nil
		}
		if lines++; lines > maxFields+1 {
			return nil, errBig
		}
	}
}

// parseHead reads what readHead returned (RFC 9112). The error is a badRequest.
func parseHead(b []byte) (*head, error) {
	s, ok := strings.CutSuffix(string(b), "\r\n\r\n")
	if !ok {
		return nil, badRequest("it has no end")
	}
	// A bare carriage return or line feed may be an end of a line to some (RFC
	// 9112, section 2.2). No word below has room for one.
	lines := strings.Split(s, "\r\n")
	words := strings.Split(lines[0], " ")
	if len(words) != 3 {
		return nil, badRequest("its first line is not three words")
	}
	h := &head{method: words[0], length: 0}
	if !token([]byte(h.method)) || len(h.method) > 32 {
		return nil, badRequest("its method is none")
	}
	switch words[2] {
	case "HTTP/1.0":
	case "HTTP/1.1":
		h.minor = 1
	default:
		return nil, badRequest("it is neither HTTP/1.0 nor HTTP/1.1")
	}
	if err := h.target(words[1]); err != nil {
		return nil, err
	}
	return h, h.header(lines[1:])
}

// target reads what is asked for: authority-form for CONNECT, absolute-form for
// all else (RFC 9112, section 3.2).
func (h *head) target(s string) error {
	authority, fallback := s, uint16(0)
	if h.method != "CONNECT" {
		scheme, rest, ok := strings.Cut(s, "://")
		if !ok || !schemeName(scheme) {
			return badRequest("what it asks for is no URL with a scheme and a host")
		}
		h.scheme = strings.ToLower(scheme)
		fallback = map[string]uint16{"http": 80, "https": 443, "ftp": 21}[h.scheme]
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		authority, h.path = rest[:end], rest[end:]
		for i := range len(h.path) {
			if c := h.path[i]; c <= ' ' || c == 0x7f || c == '#' {
				return badRequest("its path holds what a path cannot")
			}
		}
		switch {
		case h.path == "" && h.method == "OPTIONS":
			h.path = "*"
		case h.path == "" || h.path[0] == '?':
			h.path = "/" + h.path
		}
	}
	name, port, err := splitAuthority(authority)
	if err != nil {
		return err
	}
	h.host, h.port = gate.ParseHost(name), fallback
	switch {
	case port != "":
		// One spelling for each port: what is lax about "0443" or "65979"
		// may not agree with who is asked next.
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || strings.Trim(port, "0123456789") != "" {
			return badRequest("its port is none")
		}
		h.port = uint16(n)
	case h.method == "CONNECT":
		return badRequest("it names no port")
	}
	return nil
}

// splitAuthority takes a host and port apart; port is "" where there is none.
func splitAuthority(s string) (name, port string, err error) {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte(`@\/"<>`, s[i]) >= 0 {
			return "", "", badRequest("its host holds what a host cannot")
		}
	}
	rest := ""
	if inner, ok := strings.CutPrefix(s, "["); ok {
		name, rest, ok = strings.Cut(inner, "]")
		if h := gate.ParseHost(name); !ok || !h.Addr.IsValid() || !strings.Contains(name, ":") {
			return "", "", badRequest("what its brackets hold is no IPv6 address")
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		name, rest = s[:i], s[i:]
	} else {
		name = s
	}
	if name == "" {
		return "", "", badRequest("it names no host")
	}
	if rest == "" {
		return name, "", nil
	}
	if port = strings.TrimPrefix(rest, ":"); port == "" || port == rest {
		return "", "", badRequest("its port is none")
	}
	return name, port, nil
}

// hopByHop are the fields for the next hop alone (RFC 9110, section 7.6.1),
// those that the gate writes itself, and those that tell about the way here.
var hopByHop = []string{
	"connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
	"transfer-encoding", "upgrade", "http2-settings", "host", "content-length", "expect", "via", "forwarded", "x-forwarded-for",
}

// header reads the fields.
func (h *head) header(lines []string) error {
	if len(lines) > maxFields {
		return errBig
	}
	drop := slices.Clone(hopByHop)
	var hosts, lengths, codings []string
	var all []field
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		// A name with a space before the colon, and a line that goes on in
		// the next one, are fields of another name to some.
		if !ok || !token([]byte(name)) {
			return badRequest("a header line is no field")
		}
		value = strings.Trim(value, " \t")
		for i := range len(value) {
			if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
				return badRequest("a header field holds a control character")
			}
		}
		switch strings.ToLower(name) {
		case "host":
			hosts = append(hosts, value)
		case "content-length":
			lengths = append(lengths, value)
		case "transfer-encoding":
			codings = append(codings, value)
		case "expect":
			if !strings.EqualFold(value, "100-continue") {
				return badRequest("it expects what the gate does not know")
			}
			h.expects = h.minor == 1
		case "connection", "proxy-connection":
			for o := range strings.SplitSeq(strings.ToLower(value), ",") {
				o = strings.Trim(o, " \t")
				h.last = h.last || o == "close"
				drop = append(drop, o)
			}
		}
		all = append(all, field{name, value})
	}
	for _, f := range all {
		if !slices.Contains(drop, strings.ToLower(f.name)) {
			h.fields = append(h.fields, f)
		}
	}
	h.last = h.last || h.minor == 0
	// Which host it is, the target says (RFC 9112, section 3.2.2); two would
	// be one for each reader.
	if len(hosts) > 1 {
		return badRequest("it has more than one Host")
	}
	if len(hosts) == 1 && hosts[0] != "" {
		if _, _, err := splitAuthority(hosts[0]); err != nil {
			return badRequest("its Host is none")
		}
	}
	switch {
	case len(lengths) > 1, len(codings) > 1, len(lengths) > 0 && len(codings) > 0:
		return badRequest("it gives its length more than once")
	case len(codings) == 1:
		if h.minor == 0 || !strings.EqualFold(codings[0], "chunked") {
			return badRequest("it comes in a coding that the gate does not know")
		}
		h.length = -1
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || n > maxLength || strings.Trim(lengths[0], "0123456789") != "" {
			return badRequest("its length is no number")
		}
		h.length, h.hasLength = int64(n), true
	}
	if h.method == "CONNECT" && h.length != 0 {
		return badRequest("a CONNECT has no body")
	}
	return nil
}

// request is the head as the far server gets it: in one form, whatever the
// client's was, and for one request.
func (h *head) request() []byte {
	var b bytes.Buffer
	b.WriteString(h.method + " " + h.path + " HTTP/1.1\r\nHost: " + h.authority() + "\r\n")
	for _, f := range h.fields {
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	switch {
	case h.length < 0:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case h.hasLength:
		b.WriteString("Content-Length: " + strconv.FormatInt(h.length, 10) + "\r\n")
	}
	if h.expects && h.length != 0 {
		b.WriteString("Expect: 100-continue\r\n")
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// authority is the Host field of a plain request: the host in its one form.
func (h *head) authority() string {
	s := h.host.Name
	switch a := h.host.Addr; {
	case a.Is4():
		s = a.String()
	case a.Is6():
		s = "[" + a.String() + "]"
	}
	if h.port != 80 {
		s += ":" + strconv.Itoa(int(h.port))
	}
	return s
}

// schemeName tells whether s can be a URL's scheme (RFC 3986, section 3.1).
func schemeName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+-._") == "" && (s[0]|0x20) >= 'a' && (s[0]|0x20) <= 'z'
}

// token tells whether b is one (RFC 9110, section 5.6.2).
func token(b []byte) bool {
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}
