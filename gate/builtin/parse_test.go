// The pure parts: the lists, the request's head, the hello.

package builtin

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRequest: what the far server gets of a request.
func TestRequest(t *testing.T) {
	h, err := parseHead([]byte("POST HTTP://OK.test.:8080?q=1 HTTP/1.1\r\nhost: other.test\r\nX-A:  b\tc \r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nX-Forwarded-For: 192.0.2.1\r\n" +
		"Proxy-Authorization: secret\r\nTE: trailers\r\nUpgrade: h2c\r\nVia: 1.1 x\r\nContent-Length: 04\r\nExpect: 100-Continue\r\nCookie: \xe9\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "POST /?q=1 HTTP/1.1\r\nHost: ok.test:8080\r\nX-A: b\tc\r\nCookie: \xe9\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
	if got := string(h.request()); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	for in, want := range map[string]string{
		"GET http://ok.test HTTP/1.1\r\n\r\n":                                                     "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n",
		"OPTIONS http://ok.test HTTP/1.1\r\n\r\n":                                                 "OPTIONS * HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n",
		"GET http://[2001:DB8:0::1]:80/%2f HTTP/1.0\r\n\r\n":                                      "GET /%2f HTTP/1.1\r\nHost: [2001:db8::1]\r\nConnection: close\r\n\r\n",
		"GET http://[::ffff:192.0.2.1]/ HTTP/1.0\r\n\r\n":                                         "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\nConnection: close\r\n\r\n",
		"PUT http://ok.test/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n":                      "PUT / HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
		"PUT http://ok.test/ HTTP/1.1\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n":       "PUT / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"GET http://ok.test/ HTTP/1.1\r\nConnection: host, content-length, cookie\r\n\r\n":        "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n",
		"GET http://ok.test/ HTTP/1.1\r\nConnection: content-length\r\nContent-Length: 3\r\n\r\n": "GET / HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
	} {
		h, err := parseHead([]byte(in))
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := string(h.request()); got != want {
			t.Errorf("%q: got\n%q, want\n%q", in, got, want)
		}
	}
}

// TestParseHeadRefuses: and says so as a request that makes no sense, not as a
// host that is not listed. The table has the rest.
func TestParseHeadRefuses(t *testing.T) {
	for _, in := range []string{
		"GET http://user@ok.test/ HTTP/1.1\r\n\r\n", "GET http://ok.test\r/ HTTP/1.1\r\n\r\n", "GET http://ok.test/\r HTTP/1.1\r\n\r\n", "GET http://ok.test/\x00 HTTP/1.1\r\n\r\n",
		"GE\rT http://ok.test/ HTTP/1.1\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\r\n\r\n", "GET http://ok.test/ HTTP/1.1\nX: y\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\nX: a\nY: b\r\n\r\n",
		"GET http://ok.test/ HTTP/1.1\r\nX\r: a\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\nX: a\x00\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\nX: a\x7f\r\n\r\n", "GET http://ok.test/ HTTP/1.1\r\nX : a\r\n\r\n",
		"GET http://ok.test/ HTTP/1.1\r\nHost: a@b\r\n\r\n", "GET http://ok.test/ HTTP/1.1", "GET ok.test:80 HTTP/1.1\r\n\r\n", "GET * HTTP/1.1\r\n\r\n", "GET :// HTTP/1.1\r\n\r\n", "GET http:// HTTP/1.1\r\n\r\n",
		"GET 1http://ok.test/ HTTP/1.1\r\n\r\n", "GET http://[ok.test]/ HTTP/1.1\r\n\r\n", "GET http://[::1/ HTTP/1.1\r\n\r\n", "GET http://[::1]80/ HTTP/1.1\r\n\r\n", "GET http://[fe80::1%25lo]/ HTTP/1.1\r\n\r\n",
		"CONNECT ok.test HTTP/1.1\r\n\r\n", "CONNECT ok.test:0 HTTP/1.1\r\n\r\n", "CONNECT :443 HTTP/1.1\r\n\r\n", "CONNECT ok.test:443:1 HTTP/1.1\r\n\r\n", "CONNECT http://ok.test:443 HTTP/1.1\r\n\r\n",
		strings.Repeat("A", 33) + " http://ok.test/ HTTP/1.1\r\n\r\n",
	} {
		h, err := parseHead([]byte(in))
		var bad badRequest
		if !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", in, h, err)
		}
	}
}

// heads are where fuzzing begins.
var heads = []string{
	"GET http://ok.test/x?y HTTP/1.1\r\nHost: ok.test\r\nX-A: b\r\n\r\n",
	"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\n",
	"CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n",
	"POST http://192.0.2.1:8080/ HTTP/1.1\r\nContent-Length: 5\r\nConnection: close, x\r\nX: y\r\n\r\n",
	"PUT http://[::ffff:192.0.2.1]/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
	"OPTIONS http://ok.test HTTP/1.1\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n",
	"GET http://a@ok.test/ HTTP/1.1\r\n\r\n",
	"GET http://ok.test/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
	"GET http://ok.test/\nHost: x\n\n",
	"GET https://ok.test/ HTTP/1.1\r\n\r\n",
}

// FuzzReadHead: a head that is taken is one request to the host that was judged,
// whoever reads what the far server gets.
func FuzzReadHead(f *testing.F) {
	for _, s := range heads {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const behind = "BEHIND"
		r := bufio.NewReader(io.MultiReader(bytes.NewReader(in), strings.NewReader(behind)))
		b, err := readHead(r)
		if err != nil {
			return
		}
		if !bytes.HasPrefix(append(slices.Clone(in), behind...), b) {
			t.Fatalf("read %q of %q", b, in)
		}
		h, err := parseHead(b)
		if err != nil {
			var bad badRequest
			if !errors.As(err, &bad) && !errors.Is(err, errBig) {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if h.port == 0 && (h.scheme == "" || h.scheme == "http") {
			t.Fatalf("%q: no port", b)
		}
		if h.host.Addr.IsValid() == (h.host.Name != "") && h.host.Name != "" {
			t.Fatalf("%q: both a name and an address", b)
		}
		if h.method == "CONNECT" || h.scheme != "http" || h.host.Name == "" && !h.host.Addr.IsValid() {
			return
		}
		out := h.request()
		br := bufio.NewReader(io.MultiReader(bytes.NewReader(out), strings.NewReader(behind)))
		req, err := http.ReadRequest(br)
		if err != nil {
			// What it takes for a method or a path may be narrower.
			if strings.Contains(err.Error(), "invalid method") || strings.Contains(err.Error(), "parse ") || strings.Contains(err.Error(), "invalid URI") {
				return
			}
			t.Fatalf("%q becomes %q: %v", b, out, err)
		}
		if req.Host != h.authority() || req.Method != h.method || req.RequestURI != h.path {
			t.Fatalf("%q becomes a request for %q %q %q", b, req.Method, req.Host, req.RequestURI)
		}
		if !req.Close || len(req.Trailer) > 0 || len(req.Header["Host"]) > 0 {
			t.Fatalf("%q becomes %+v", b, req)
		}
		if h.length >= 0 && req.ContentLength != h.length || h.length < 0 && !slices.Equal(req.TransferEncoding, []string{"chunked"}) {
			t.Fatalf("%q: a body of %d becomes one of %d %q", b, h.length, req.ContentLength, req.TransferEncoding)
		}
		for _, name := range hopByHop {
			if name != "expect" && name != "content-length" && name != "connection" && req.Header.Get(name) != "" {
				t.Fatalf("%q: %s gets through: %q", b, name, out)
			}
		}
		if rest, _ := io.ReadAll(br); string(rest) != behind {
			t.Fatalf("%q becomes %q, of which %q is left", b, out, rest)
		}
	})
}

// TestSniffReal: hellos of a real client, whole, in part and spread.
func TestSniffReal(t *testing.T) {
	for _, name := range []string{"ok.test", "", "a." + strings.Repeat("b", 60) + ".test"} {
		whole := helloOf(t, name)
		want := isHello
		if name == "" {
			want = nameless
		}
		for i := range len(whole) {
			if v, _ := sniff([]byte(whole[:i])); v != more {
				t.Fatalf("%q: the first %d bytes of %d are %v", name, i, len(whole), v)
			}
		}
		if v, got := sniff([]byte(whole)); v != want || got != name {
			t.Errorf("%q: %v %q", name, v, got)
		}
		if v, got := sniff([]byte(whole + "\x17\x03\x03\x00\x01x")); v != want || got != name {
			t.Errorf("%q, and more behind it: %v %q", name, v, got)
		}
		for _, size := range []int{1, 3, 100} {
			if v, got := sniff(spread(whole, size)); v != want || got != name {
				t.Errorf("%q in records of %d: %v %q", name, size, v, got)
			}
		}
	}
	for in, want := range map[string]verdict{
		"": more, "\x16": more, "\x16\x03": more, "\x16\x03\x01": more, "G": notTLS, "\x16\x02": more, "\x16\x02\x01\x00\x01": mangled, "\x80": notTLS, "\x15\x03": notTLS,
		"\x16\x03\x01\x00\x00":                                     mangled, // a record of nothing
		"\x16\x03\x01\x40\x01":                                     mangled, // one too long
		"\x16\x03\x01\x00\x01\x02":                                 mangled, // a server's
		"\x16\x03\x01\x00\x04\x01\x00\x00\x00":                     mangled,
		"\x16\x03\x01\x00\x02\x01\x00\x15\x03\x01\x00\x02\x01\x00": mangled, // an alert in its midst
	} {
		if v, _ := sniff([]byte(in)); v != want {
			t.Errorf("%q: %v, want %v", in, v, want)
		}
	}
	if v, _ := sniff(spread("\x16\x03\x01\x00\x00\x01\x00\xff\xff"+strings.Repeat("x", maxHello), 1<<14)); v != mangled {
		t.Errorf("without end: %v", v)
	}
}

// spread puts a record's content into records of so many bytes.
func spread(record string, size int) []byte {
	var out []byte
	for part := range slices.Chunk([]byte(record[5:]), size) {
		out = append(out, 0x16, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// canned is a connection that says so much and takes what it gets.
type canned struct {
	net.Conn
	r io.Reader
}

func (c canned) Read(b []byte) (int, error)       { return c.r.Read(b) }
func (c canned) Write(b []byte) (int, error)      { return len(b), nil }
func (c canned) Close() error                     { return nil }
func (c canned) SetDeadline(time.Time) error      { return nil }
func (c canned) SetReadDeadline(time.Time) error  { return nil }
func (c canned) SetWriteDeadline(time.Time) error { return nil }

// served is the name that a TLS server takes from these bytes, if it takes them
// for a hello.
func served(b []byte) (name string, ok bool) {
	conf := &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errors.New("that is all")
	}}
	tls.Server(canned{r: bytes.NewReader(b)}, conf).Handshake()
	return name, ok
}

// FuzzSniff: what a TLS server takes for a hello with a name is read with that
// name, or refused.
func FuzzSniff(f *testing.F) {
	for _, name := range []string{"ok.test", ""} {
		whole := helloOf(f, name)
		f.Add([]byte(whole))
		f.Add(spread(whole, 70))
		f.Add([]byte(whole[:50]))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, got := sniff(b)
		if (got != "") != (v == isHello) {
			t.Fatalf("%v with name %q", v, got)
		}
		want, ok := served(b)
		if !ok {
			return
		}
		switch {
		case v == mangled:
		case v == isHello && got == want, v == nameless && want == "":
		// A server of Go takes no name with a dot at its end for one.
		default:
			t.Fatalf("sniff: %v %q, a server: %q", v, got, want)
		}
		// With fewer bytes it may not be told to be something else.
		for _, n := range []int{len(b) / 2, len(b) - 1} {
			if w, _ := sniff(b[:n]); w != more && w != v {
				t.Fatalf("%v of %d bytes, and %v of all %d", w, n, v, len(b))
			}
		}
	})
}

// FuzzChunks: a chunked body is read as Go's own reader does it, or refused, and
// never past its end.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{"4\r\nbody\r\n0\r\n\r\n", "4;x=y\r\nbody\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n", "0\r\n\r\nGET", "zz\r\n", "4\nbody\n0\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		got, err := io.ReadAll(&chunkedReader{r: r})
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(r)
		const head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		br := bufio.NewReader(strings.NewReader(head + string(in)))
		req, err := http.ReadRequest(br)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(req.Body)
		if err != nil {
			if strings.Contains(err.Error(), "trailer") || strings.Contains(err.Error(), "MIME") || strings.Contains(err.Error(), "header") || strings.Contains(err.Error(), "excessive") || strings.Contains(err.Error(), "too large") {
				return // trailers are dropped here, and read there
			}
			t.Fatalf("%q is a body here, and there: %v", in, err)
		}
		wantRest, _ := io.ReadAll(br)
		if !bytes.Equal(got, want) || !bytes.Equal(rest, wantRest) {
			t.Fatalf("%q: %q and %q left, there %q and %q", in, got, rest, want, wantRest)
		}
	})
}

// TestHeadLimits: a head is read no further than it has to be.
func TestHeadLimits(t *testing.T) {
	field := "X-A: b\r\n"
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"fits", "GET http://ok.test/ HTTP/1.1\r\n" + strings.Repeat(field, maxFields) + "\r\n", nil},
		{"a field too many", "GET http://ok.test/ HTTP/1.1\r\n" + strings.Repeat(field, maxFields+1) + "\r\n", errBig},
		{"long line", "GET http://ok.test/" + strings.Repeat("a", maxHead) + " HTTP/1.1\r\n\r\n", errBig},
		{"no line", strings.Repeat("a", maxHead+1), errBig},
		{"long enough", "GET http://ok.test/" + strings.Repeat("a", maxHead-100) + " HTTP/1.1\r\n\r\n", nil},
		{"cut off", "GET http://ok.test/ HTTP/1.1\r\n", io.ErrUnexpectedEOF},
		{"nothing", "", io.EOF},
	} {
		b, err := readHead(bufio.NewReader(strings.NewReader(c.in)))
		if err == nil {
			_, err = parseHead(b)
		}
		if !errors.Is(err, c.want) || err == nil != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	// Nonsense is known by its first byte, and a bad end of a line at once.
	for _, in := range []string{"\x16\x03\x01\x02\x00", "\r\nGET http://ok.test/ HTTP/1.1\r\n\r\n", "GET http://ok.test/ HTTP/1.1\n"} {
		r, w := io.Pipe()
		go fmt.Fprint(w, in)
		done := make(chan error, 1)
		go func() {
			_, err := readHead(bufio.NewReader(r))
			done <- err
		}()
		select {
		case err := <-done:
			var bad badRequest
			if !errors.As(err, &bad) {
				t.Errorf("%q: %v", in, err)
			}
		case <-time.After(patience):
			t.Errorf("%q is waited for", in)
		}
		r.Close()
	}
}
