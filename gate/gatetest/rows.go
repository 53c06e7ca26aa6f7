// The table: what is sent, and what has to come of it.

package gatetest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ai-sandbox/policy"

	"golang.org/x/net/dns/dnsmessage"
)

// Allow and AllowPrivate are the policy that the rows are about.
var (
	Allow = entries("ok.test", ".wild.test", "alt.test:8443", "speak.test:2222", "web.test:8080",
		"b\u00fccher.test", "198.51.100.40", "203.0.113.0/28", "2001:db8::40", "10.1.2.3")
	AllowPrivate = entries("db.test", ".corp.test", "169.254.169.253", "127.0.0.9:8080", "192.168.0.0/16")
)

func entries(list ...string) []policy.Entry {
	out, err := policy.ParseEntries(list)
	if err != nil {
		panic(err)
	}
	return out
}

// A Row is one connection to the gate.
type Row struct {
	Name string
	// Send is written as it is.
	Send string
	// Inside is what follows inside a tunnel that opened.
	Inside Inside
	// Reach is the far server, address and port, that must answer, and the
	// only one that may be reached. "" means that none may.
	Reach string
	// Status is that of the gate's answer, 0 for any refusal (or silence). A
	// refused CONNECT is never answered 200 unless Ended is set.
	Status int
	// Ended: the tunnel opens, and is ended at its content.
	Ended bool
	// Open: it is not even ended, and nothing comes of it.
	Open bool
	// Mute: the far server has nothing to say to it.
	Mute bool
	// Within is how long it may take, if set.
	Within time.Duration
	// Patience is how long the client waits, where that is not the usual.
	Patience time.Duration
	// Lookups are the names that may be looked up; no other may.
	Lookups []string
	// Control is the row that differs only in what is refused here, and
	// passes.
	Control string
	// Either is a far server that may be reached instead of the refusal:
	// an engine may read an odd spelling as what it stands for.
	Either string
	// Host is what the far server must see as the Host header, if set.
	Host string
	// Hidden are words that it must not see.
	Hidden []string
	// Then is sent when the first answer has been read, if ThenStatus is set,
	// which is that of the next answer.
	Then       string
	ThenStatus int
}

// Inside is what a client sends in an open tunnel.
type Inside struct {
	TLS  bool
	SNI  string // "" sends none
	ALPN string
	Raw  string
	// ServerFirst waits for the far server to speak.
	ServerFirst bool
	// Wait is a pause of the client before it sends anything: the case is
	// about what happens meanwhile.
	Wait time.Duration
	// Records spreads the hello over TLS records of so many bytes, and Trickle
	// sends it in so many pieces.
	Records, Trickle int
}

func get(url string, more ...string) string {
	_, host, ok := strings.Cut(url, "://")
	if !ok {
		host = url
	}
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + strings.Join(more, "") + "\r\n"
}

func connect(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func hello(sni string) Inside { return Inside{TLS: true, SNI: sni} }

const plainGet = "GET /in HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n"

// keep is get on a connection that stays.
func keep(url string, more ...string) string {
	return strings.Replace(get(url, more...), "Connection: close\r\n", "", 1)
}

// post is a request to ok.test with fields of its own and what follows them.
func post(fields, body string) string {
	return "POST http://ok.test/p HTTP/1.1\r\nHost: ok.test\r\n" + fields + "Connection: close\r\n\r\n" + body
}

// extension is one of a TLS hello.
func extension(kind uint16, body string) string {
	b := binary.BigEndian.AppendUint16(nil, kind)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(body)))) + body
}

// serverNames is the body of a server_name extension, and names its entries of
// one kind.
func serverNames(names ...string) string {
	list := ""
	for _, n := range names {
		list += "\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(n)))) + n
	}
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(list)))) + list
}

// rawHello is a ClientHello of TLS 1.2, in one record, with these extensions.
func rawHello(extensions ...string) string {
	all := strings.Join(extensions, "")
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\xc0\x2f" + "\x01\x00" +
		string(binary.BigEndian.AppendUint16(nil, uint16(len(all)))) + all
	return record("\x01\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + body)
}

// record is a TLS record of a handshake.
func record(body string) string {
	return "\x16\x03\x01" + string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + body
}

// Addresses of the far servers.
const (
	okAt   = "198.51.100.10"
	wildAt = "198.51.100.11"
	noAt   = "198.51.100.20"
)

// inward are the names under .wild.test that lead where none may.
var inward = []struct {
	name  string
	addrs []string
}{
	{"loopback", []string{"127.0.0.9"}},
	{"loopback-one", []string{"127.0.0.1"}},
	{"metadata", []string{"169.254.169.254"}},
	{"ten", []string{"10.1.2.3"}},
	{"shared", []string{"100.64.1.1"}},
	{"lan", []string{"192.168.7.7"}},
	{"lan172", []string{"172.16.9.9"}},
	{"ietf", []string{"192.0.0.8"}},
	{"zero", []string{"0.0.0.0"}},
	{"multicast", []string{"224.0.0.1"}},
	{"broadcast", []string{"255.255.255.255"}},
	{"v6loopback", []string{"::1"}},
	{"v6zero", []string{"::"}},
	{"ula", []string{"fd00::7"}},
	{"sitelocal", []string{"fec0::7"}},
	{"v6linklocal", []string{"fe80::1"}},
	{"mapped", []string{"::ffff:127.0.0.9"}},
	{"mapped-ten", []string{"::ffff:10.1.2.3"}},
	{"mapped-metadata", []string{"::ffff:169.254.169.254"}},
	{"compat", []string{"::127.0.0.9"}},
	{"siit", []string{"::ffff:0:7f00:9"}},
	{"nat64", []string{"64:ff9b::7f00:9"}},
	{"nat64-ten", []string{"64:ff9b::a01:203"}},
	{"nat64-local", []string{"64:ff9b:1::7f00:9"}},
	{"sixtofour", []string{"2002:7f00:9::1"}},
	{"teredo", []string{"2001:0:7f00:9::1"}},
	{"mixed", []string{"198.51.100.11", "10.1.2.3"}},
	{"mixed-first", []string{"127.0.0.9", "198.51.100.11"}},
	{"mixed-v6", []string{"198.51.100.11", "::1"}},
}

// Zone puts the names that the rows use into the world.
func Zone(w *World) {
	w.Set("ok.test", okAt)
	w.Set("xn--bcher-kva.test", okAt)
	for _, n := range []string{"wild.test", "www.wild.test", "a.b.wild.test"} {
		w.Set(n, wildAt)
	}
	w.Set("v6.wild.test", "2001:db8::10")
	w.Set("alt.test", okAt)
	w.Set("speak.test", okAt)
	w.Set("web.test", okAt)
	w.Set("unserved.wild.test", "198.51.100.99") // nobody is there
	w.Set("toaddr.test", "198.51.100.40")
	w.Set("db.test", "10.1.2.3")
	w.Set("db.corp.test", "127.0.0.9")
	w.Set("meta.corp.test", "169.254.169.254")
	w.Set("spelled.corp.test", "169.254.169.253")
	w.Set("zero.corp.test", "0.0.0.0")
	for _, n := range []string{"no.test", "canary.no.test", "notok.test", "ok.test.evil.test", "notwild.test", "sub.ok.test", "okxtest.test"} {
		w.Set(n, noAt)
	}
	for _, in := range inward {
		w.Set(in.name+".wild.test", in.addrs...)
	}
	w.SetFunc("servfail.wild.test", func(dnsmessage.Type) Answer { return Answer{RCode: dnsmessage.RCodeServerFailure} })
	w.SetFunc("silent.wild.test", func(dnsmessage.Type) Answer { return Answer{Drop: true} })
	w.SetFunc("empty.wild.test", func(dnsmessage.Type) Answer { return Answer{} })
	// Addresses whose owner claims a listed name.
	for _, n := range []string{"41.100.51.198.in-addr.arpa", "9.0.0.127.in-addr.arpa", "20.100.51.198.in-addr.arpa"} {
		w.Set(n, "ok.test.")
	}
}

// Rows returns the table. front is the gate's own address and port, which some
// rows ask for.
func Rows(front string) []Row {
	rows := []Row{
		// What passes; each is the control of others.
		{Name: "get", Send: get("http://ok.test/x"), Reach: okAt + ":80", Host: "ok.test"},
		{Name: "get wild", Send: get("http://www.wild.test/"), Reach: wildAt + ":80"},
		{Name: "get wild deep", Send: get("http://a.b.wild.test/"), Reach: wildAt + ":80"},
		{Name: "get wild apex", Send: get("http://wild.test/"), Reach: wildAt + ":80"},
		{Name: "get upper case", Send: get("http://OK.TEST/"), Reach: okAt + ":80"},
		{Name: "get trailing dot", Send: get("http://ok.test./"), Reach: okAt + ":80"},
		{Name: "get explicit port", Send: get("http://ok.test:80/"), Reach: okAt + ":80"},
		{Name: "get http on 443", Send: get("http://ok.test:443/"), Reach: okAt + ":443", Mute: true},
		{Name: "get idn", Send: get("http://xn--bcher-kva.test/"), Reach: okAt + ":80"},
		{Name: "get other port", Send: get("http://web.test:8080/"), Reach: okAt + ":8080"},
		{Name: "get v6", Send: get("http://v6.wild.test/"), Reach: "[2001:db8::10]:80"},
		{Name: "get address", Send: get("http://198.51.100.40/"), Reach: "198.51.100.40:80"},
		{Name: "get address in range", Send: get("http://203.0.113.5/"), Reach: "203.0.113.5:80"},
		{Name: "get v6 address", Send: get("http://[2001:db8::40]/"), Reach: "[2001:db8::40]:80"},
		{Name: "post", Send: "POST http://ok.test/p HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody", Reach: okAt + ":80"},
		{Name: "get private", Send: get("http://db.test/"), Reach: "10.1.2.3:80"},
		{Name: "get private wild loopback", Send: get("http://db.corp.test/"), Reach: "127.0.0.9:80"},
		{Name: "get private address", Send: get("http://127.0.0.9:8080/"), Reach: "127.0.0.9:8080"},
		{Name: "get private range", Send: get("http://192.168.7.7/"), Reach: "192.168.7.7:80"},
		{Name: "get metadata spelled out", Send: get("http://169.254.169.253/"), Reach: "169.254.169.253:80"},
		{Name: "connect", Send: connect("ok.test:443"), Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "connect upper case", Send: connect("OK.Test:443"), Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "connect trailing dot", Send: connect("ok.test.:443"), Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "connect wild", Send: connect("a.b.wild.test:443"), Inside: hello("a.b.wild.test"), Reach: wildAt + ":443"},
		{Name: "connect sni upper case", Send: connect("ok.test:443"), Inside: hello("OK.Test"), Reach: okAt + ":443"},
		{Name: "connect sni of another listed", Send: connect("ok.test:443"), Inside: hello("www.wild.test"), Reach: okAt + ":443"},
		{Name: "connect h2", Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "ok.test", ALPN: "h2"}, Reach: okAt + ":443"},
		{Name: "connect other port", Send: connect("alt.test:8443"), Inside: hello("alt.test"), Reach: okAt + ":8443"},
		{Name: "connect address", Send: connect("198.51.100.40:443"), Inside: hello(""), Reach: "198.51.100.40:443"},
		{Name: "connect address in range", Send: connect("203.0.113.5:443"), Inside: hello(""), Reach: "203.0.113.5:443"},
		{Name: "connect v6 address", Send: connect("[2001:db8::40]:443"), Inside: hello(""), Reach: "[2001:db8::40]:443"},
		{Name: "connect v6", Send: connect("v6.wild.test:443"), Inside: hello("v6.wild.test"), Reach: "[2001:db8::10]:443"},
		{Name: "connect private", Send: connect("db.test:443"), Inside: hello("db.test"), Reach: "10.1.2.3:443"},
		{Name: "connect http on 80", Send: connect("ok.test:80"), Inside: Inside{Raw: plainGet}, Reach: okAt + ":80"},
		{Name: "connect http on other port", Send: connect("web.test:8080"), Inside: Inside{Raw: plainGet}, Reach: okAt + ":8080"},
		{Name: "connect client first on other port", Send: connect("speak.test:2222"), Inside: Inside{Raw: "SSH-2.0-client\r\n"}, Reach: okAt + ":2222"},
		{Name: "connect server first on other port", Send: connect("speak.test:2222"), Inside: Inside{ServerFirst: true}, Reach: okAt + ":2222", Within: 4 * time.Second},
		{Name: "connect http/1.0", Send: "CONNECT ok.test:443 HTTP/1.0\r\n\r\n", Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "connect other host header", Send: "CONNECT ok.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n", Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "get other host header", Send: "GET http://ok.test/ HTTP/1.1\r\nHost: no.test\r\nConnection: close\r\n\r\n", Reach: okAt + ":80", Host: "ok.test"},

		// Names that are not on the list, and what looks like one that is.
		{Name: "get no", Send: get("http://canary.no.test/"), Status: 403, Control: "get"},
		{Name: "connect no", Send: connect("canary.no.test:443"), Inside: hello("canary.no.test"), Status: 403, Control: "connect"},
		{Name: "get no prefix", Send: get("http://notok.test/"), Status: 403, Control: "get"},
		{Name: "get no suffix", Send: get("http://ok.test.evil.test/"), Status: 403, Control: "get"},
		{Name: "get no below exact", Send: get("http://sub.ok.test/"), Status: 403, Control: "get wild"},
		{Name: "get no wild prefix", Send: get("http://notwild.test/"), Status: 403, Control: "get wild"},
		{Name: "get no dot as any", Send: get("http://okxtest.test/"), Status: 403, Control: "get"},
		{Name: "connect no suffix", Send: connect("ok.test.evil.test:443"), Inside: hello("ok.test"), Status: 403, Control: "connect"},
		{Name: "connect no wild prefix", Send: connect("notwild.test:443"), Inside: hello("www.wild.test"), Status: 403, Control: "connect wild"},
		{Name: "get single label", Send: get("http://localhost/"), Status: 403, Control: "get"},
		{Name: "get idn raw", Send: get("http://b\u00fccher.test/"), Control: "get idn"},
		{Name: "get full-width dot", Send: get("http://no\uff0etest/"), Control: "get"},
		{Name: "get double dot", Send: get("http://ok..test/"), Control: "get"},
		{Name: "get leading dot", Send: get("http://.ok.test/"), Control: "get"},
		{Name: "get two trailing dots", Send: get("http://ok.test../"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "get trailing dot"},
		{Name: "get star", Send: get("http://*.wild.test/"), Control: "get wild"},
		{Name: "get empty host", Send: "GET http:/// HTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get"},
		{Name: "get long label", Send: get("http://" + strings.Repeat("a", 300) + ".wild.test/"), Lookups: []string{}, Control: "get wild"},

		// Userinfo and bytes that parsers disagree about.
		{Name: "get userinfo", Send: get("http://ok.test@no.test/"), Control: "get"},
		{Name: "get userinfo with port", Send: get("http://ok.test:80@no.test/"), Control: "get"},
		{Name: "get userinfo slash", Send: get("http://ok.test\\@no.test/"), Control: "get"},
		{Name: "get userinfo hash", Send: get("http://no.test#@ok.test/"), Control: "get"},
		{Name: "get userinfo question", Send: get("http://no.test?@ok.test/"), Status: 403, Control: "get"},
		{Name: "connect userinfo", Send: connect("ok.test@no.test:443"), Inside: hello("ok.test"), Control: "connect"},
		{Name: "get nul", Send: get("http://no.test\x00.ok.test/"), Control: "get"},
		{Name: "get nul wild", Send: get("http://no.test\x00.wild.test/"), Control: "get wild"},
		{Name: "get percent nul", Send: get("http://no.test%00.ok.test/"), Control: "get"},
		{Name: "get percent nul wild", Send: get("http://no.test%00.wild.test/"), Control: "get wild"},
		{Name: "get percent dot", Send: get("http://no%2etest/"), Control: "get"},
		{Name: "get percent slash wild", Send: get("http://no.test%2f.wild.test/"), Control: "get wild"},
		{Name: "get tab in host", Send: get("http://no.test\t.wild.test/"), Control: "get wild"},
		{Name: "get space in host", Send: get("http://no.test .wild.test/"), Control: "get wild"},
		{Name: "get backslash", Send: get("http://no.test\\.wild.test/"), Control: "get wild"},
		{Name: "get bare cr", Send: "GET http://no.test\r.wild.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get wild"},
		{Name: "get semicolon", Send: get("http://no.test;.wild.test/"), Control: "get wild"},
		{Name: "get underscore", Send: get("http://no_such.wild.test/"), Lookups: []string{"no_such.wild.test"}, Control: "get wild"},
		{Name: "get bracketed name", Send: get("http://[no.test]/"), Control: "get"},
		{Name: "connect nul", Send: connect("no.test\x00.wild.test:443"), Inside: hello("www.wild.test"), Control: "connect wild"},
		{Name: "connect crlf injected", Send: "CONNECT no.test:443\r\nX: ok.test:443 HTTP/1.1\r\n\r\n", Inside: hello("ok.test"), Control: "connect"},
		{Name: "get tabs in request line", Send: "GET\thttp://no.test/\tHTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get"},
		{Name: "get http/0.9", Send: "GET http://no.test/\r\n\r\n", Control: "get"},
		{Name: "get http/2 preface", Send: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Control: "get"},

		// The form of the request.
		{Name: "origin form", Send: "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get"},
		{Name: "origin form no", Send: "GET / HTTP/1.1\r\nHost: no.test\r\n\r\n", Control: "get"},
		{Name: "two hosts", Send: "GET http://no.test/ HTTP/1.1\r\nHost: ok.test\r\nHost: no.test\r\n\r\n", Control: "get"},
		{Name: "absolute no, host ok", Send: "GET http://no.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", Status: 403, Control: "get"},
		{Name: "pipelined no only", Send: get("http://no.test/1") + get("http://no.test/2"), Status: 403, Control: "get"},
		{Name: "connect then get no", Send: connect("no.test:443") + get("http://no.test/"), Status: 403, Control: "connect"},
		{Name: "body smuggles no", Send: "POST http://no.test/ HTTP/1.1\r\nHost: no.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("http://no.test/"), Control: "post"},
		{Name: "get https url", Send: get("https://ok.test/"), Status: 403, Control: "get"},
		{Name: "get ftp url", Send: get("ftp://ok.test/"), Status: 403, Control: "get"},
		{Name: "get ftp url on 80", Send: get("ftp://ok.test:80/"), Status: 403, Control: "get"},
		{Name: "get urn", Send: "GET urn:ok.test:x HTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get"},
		{Name: "get gopher", Send: get("gopher://ok.test:80/"), Control: "get"},
		{Name: "whois", Send: get("whois://ok.test:80/x"), Control: "get"},
		{Name: "options star", Send: "OPTIONS * HTTP/1.1\r\nHost: no.test\r\n\r\n", Control: "get"},

		// Ports.
		{Name: "connect 22", Send: connect("ok.test:22"), Inside: Inside{ServerFirst: true}, Status: 403, Control: "connect"},
		{Name: "connect 8443 of other", Send: connect("ok.test:8443"), Inside: hello("ok.test"), Status: 403, Control: "connect other port"},
		{Name: "connect 443 of 8443", Send: connect("alt.test:443"), Inside: hello("alt.test"), Status: 403, Control: "connect other port"},
		{Name: "get 8080 of other", Send: get("http://ok.test:8080/"), Status: 403, Control: "get other port"},
		{Name: "get 22", Send: get("http://ok.test:22/"), Status: 403, Control: "get"},
		{Name: "connect no port", Send: connect("ok.test"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect empty port", Send: connect("ok.test:"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect port 0", Send: connect("ok.test:0"), Control: "connect"},
		{Name: "connect port wraps", Send: connect("ok.test:65979"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect port letters", Send: connect("ok.test:443x"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect port signed", Send: connect("ok.test:+443"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect two ports", Send: connect("ok.test:443:22"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect url", Send: connect("http://ok.test:443/"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect other port's private", Send: connect("127.0.0.9:443"), Inside: hello(""), Status: 403, Control: "get private address"},

		// Addresses: only those spelled out, and never looked up backwards.
		{Name: "get address of listed", Send: get("http://198.51.100.10/"), Status: 403, Control: "get address"},
		{Name: "get address with ptr", Send: get("http://198.51.100.41/"), Status: 403, Control: "get address"},
		{Name: "connect address with ptr", Send: connect("198.51.100.41:443"), Inside: hello("ok.test"), Status: 403, Control: "connect address"},
		{Name: "get loopback with ptr", Send: get("http://127.0.0.9/"), Status: 403, Control: "get private address"},
		{Name: "get decimal", Send: get("http://3325256724/"), Status: 403, Control: "get address"},
		{Name: "get hex", Send: get("http://0xc6336414/"), Status: 403, Control: "get address"},
		{Name: "get octal", Send: get("http://0306.063.0144.024/"), Status: 403, Control: "get address"},
		{Name: "get short", Send: get("http://127.9/"), Status: 403, Control: "get private address"},
		{Name: "connect decimal", Send: connect("2130706441:443"), Inside: hello(""), Status: 403, Control: "connect address"},
		{Name: "connect hex", Send: connect("0x7f000009:443"), Inside: hello(""), Status: 403, Control: "connect address"},
		{Name: "connect mapped", Send: connect("[::ffff:127.0.0.9]:443"), Inside: hello(""), Status: 403, Control: "connect v6 address"},
		{Name: "get mapped of unlisted", Send: get("http://[::ffff:198.51.100.41]/"), Status: 403, Control: "get v6 address"},
		{Name: "get v6 unlisted", Send: get("http://[2001:db8::41]/"), Status: 403, Control: "get v6 address"},
		{Name: "get v6 zone", Send: get("http://[fe80::1%25lo]/"), Control: "get v6 address"},
		{Name: "get v6 no brackets", Send: get("http://2001:db8::40/"), Either: "[2001:db8::40]:80", Control: "get v6 address"},
		{Name: "get out of range", Send: get("http://203.0.113.20/"), Status: 403, Control: "get address in range"},
		{Name: "get name at listed address", Send: get("http://toaddr.test/"), Status: 403, Control: "get address"},
		{Name: "get listed address that is private", Send: get("http://10.1.2.3/"), Status: 403, Control: "get private range"},
		{Name: "get metadata", Send: get("http://169.254.169.254/latest/meta-data/"), Status: 403, Control: "get metadata spelled out"},
		{Name: "get metadata by private name", Send: get("http://meta.corp.test/"), Status: 403, Lookups: []string{"meta.corp.test"}, Control: "get private wild loopback"},
		{Name: "get spelled metadata by private name", Send: get("http://spelled.corp.test/"), Status: 403, Lookups: []string{"spelled.corp.test"}, Control: "get metadata spelled out"},
		{Name: "get zero by private name", Send: get("http://zero.corp.test/"), Status: 403, Lookups: []string{"zero.corp.test"}, Control: "get private wild loopback"},

		// Lookups that fail are refusals.
		{Name: "get nxdomain", Send: get("http://nx.wild.test/"), Status: 403, Lookups: []string{"nx.wild.test"}, Control: "get wild"},
		{Name: "get servfail", Send: get("http://servfail.wild.test/"), Status: 403, Lookups: []string{"servfail.wild.test"}, Control: "get wild"},
		{Name: "get no data", Send: get("http://empty.wild.test/"), Status: 403, Lookups: []string{"empty.wild.test"}, Control: "get wild"},
		{Name: "connect nxdomain", Send: connect("nx.wild.test:443"), Inside: hello("nx.wild.test"), Status: 403, Lookups: []string{"nx.wild.test"}, Control: "connect wild"},
		{Name: "connect silent resolver", Send: connect("silent.wild.test:443"), Inside: hello("silent.wild.test"), Status: 403, Lookups: []string{"silent.wild.test"}, Control: "connect wild", Within: 14 * time.Second},

		// What is inside a tunnel.
		{Name: "sni no", Send: connect("ok.test:443"), Inside: hello("no.test"), Ended: true, Control: "connect"},
		{Name: "sni below exact", Send: connect("ok.test:443"), Inside: hello("sub.ok.test"), Ended: true, Control: "connect"},
		{Name: "sni suffix", Send: connect("ok.test:443"), Inside: hello("ok.test.evil.test"), Ended: true, Control: "connect"},
		{Name: "sni of other port", Send: connect("ok.test:443"), Inside: hello("alt.test"), Ended: true, Control: "connect"},
		{Name: "sni of 443 on other port", Send: connect("alt.test:8443"), Inside: hello("ok.test"), Ended: true, Control: "connect other port"},
		{Name: "sni no on other port", Send: connect("alt.test:8443"), Inside: hello("no.test"), Ended: true, Control: "connect other port"},
		{Name: "sni no on 80", Send: connect("ok.test:80"), Inside: hello("no.test"), Ended: true, Control: "connect http on 80"},
		{Name: "sni none", Send: connect("ok.test:443"), Inside: hello(""), Ended: true, Control: "connect"},
		{Name: "sni no on address", Send: connect("198.51.100.40:443"), Inside: hello("no.test"), Ended: true, Control: "connect address"},
		{Name: "ssh in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: "SSH-2.0-client\r\n"}, Ended: true, Control: "connect"},
		{Name: "http in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: plainGet}, Ended: true, Control: "connect"},
		{Name: "server first in 443", Send: connect("ok.test:443"), Inside: Inside{ServerFirst: true}, Ended: true, Control: "connect"},
		{Name: "sslv2 hello in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("\x01", 37)}, Ended: true, Control: "connect"},
		{Name: "zeroes in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: strings.Repeat("\x00", 64)}, Ended: true, Control: "connect"},
		{Name: "sni no on 8080", Send: connect("web.test:8080"), Inside: hello("no.test"), Ended: true, Control: "connect http on other port"},
		{Name: "sni over records", Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "ok.test", Records: 50}, Reach: okAt + ":443"},
		{Name: "sni no over records", Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "no.test", Records: 50}, Ended: true, Control: "sni over records"},
		{Name: "sni trickled", Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "ok.test", Trickle: 40}, Reach: okAt + ":443"},
		{Name: "sni no trickled", Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "no.test", Trickle: 40}, Ended: true, Control: "sni trickled"},
		{Name: "sni no with the connect", Send: connect("ok.test:443") + rawHello(extension(0, serverNames("no.test"))), Inside: Inside{Raw: " "}, Ended: true, Control: "connect"},
		{Name: "http with the connect", Send: connect("web.test:8080") + plainGet, Reach: okAt + ":8080"},
		{Name: "sni twice", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test")), extension(0, serverNames("no.test")))}, Ended: true, Control: "connect"},
		{Name: "sni twice no first", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("no.test")), extension(0, serverNames("ok.test")))}, Ended: true, Control: "connect"},
		{Name: "sni of two names", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test", "no.test")))}, Ended: true, Control: "connect"},
		{Name: "sni of two names no first", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("no.test", "ok.test")))}, Ended: true, Control: "connect"},
		{Name: "sni empty", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("")))}, Ended: true, Control: "connect"},
		{Name: "sni nul", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("no.test\x00.wild.test")))}, Ended: true, Control: "connect"},
		{Name: "sni nul after", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test\x00no.test")))}, Ended: true, Control: "connect"},
		{Name: "sni star", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("*.wild.test")))}, Ended: true, Control: "connect"},
		{Name: "sni leading dot", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames(".wild.test")))}, Ended: true, Control: "connect"},
		{Name: "sni trailing dot", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test.")))}, Either: okAt + ":443", Ended: true, Control: "connect"},
		{Name: "sni with port", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test:443")))}, Ended: true, Control: "connect"},
		{Name: "sni address", Send: connect("198.51.100.40:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("198.51.100.40")))}, Ended: true, Control: "connect address"},
		{Name: "sni decimal", Send: connect("198.51.100.40:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("3325256744")))}, Ended: true, Control: "connect address"},
		{Name: "sni listed on address", Send: connect("198.51.100.40:443"), Inside: hello("ok.test"), Reach: "198.51.100.40:443"},
		{Name: "hello of no extensions", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello()}, Ended: true, Control: "connect"},
		{Name: "hello and more in its record", Send: connect("ok.test:443"), Inside: Inside{Raw: record(rawHello(extension(0, serverNames("ok.test")))[5:] + rawHello(extension(0, serverNames("no.test")))[5:])}, Ended: true, Control: "connect"},
		{Name: "hello that ends early", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test")), "\x00\x10\x00\xff")}, Ended: true, Control: "connect"},
		{Name: "hello's name of a wrong length", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, "\x00\x0a\x00\x00\x09ok.test"))}, Ended: true, Control: "connect"},
		{Name: "hello of a huge length", Send: connect("ok.test:443"), Inside: Inside{Raw: record("\x01\xff\xff\xff" + strings.Repeat("\x03", 16000))}, Ended: true, Control: "connect"},
		{Name: "server's hello", Send: connect("ok.test:443"), Inside: Inside{Raw: record("\x02\x00\x00\x26" + strings.Repeat("\x03", 38))}, Ended: true, Control: "connect"},
		{Name: "alert in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: "\x15\x03\x01\x00\x02\x01\x00"}, Ended: true, Control: "connect"},
		{Name: "half a hello in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: rawHello(extension(0, serverNames("ok.test")))[:40]}, Ended: true, Control: "connect"},
		{Name: "http/2 preface in 443", Send: connect("ok.test:443"), Inside: Inside{Raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, Ended: true, Control: "connect"},

		// Two readers of one request. What could be read in two ways is refused.
		{Name: "length and chunks", Send: post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+get("http://canary.no.test/")), Control: "post"},
		{Name: "chunks and length", Send: post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), Control: "post"},
		{Name: "two lengths", Send: post("Content-Length: 4\r\nContent-Length: 0\r\n", "body"), Control: "post"},
		{Name: "two equal lengths", Send: post("Content-Length: 4\r\nContent-Length: 4\r\n", "body"), Control: "post"},
		{Name: "list of lengths", Send: post("Content-Length: 4, 4\r\n", "body"), Control: "post"},
		{Name: "length signed", Send: post("Content-Length: +4\r\n", "body"), Control: "post"},
		{Name: "length negative", Send: post("Content-Length: -4\r\n", "body"), Control: "post"},
		{Name: "length hex", Send: post("Content-Length: 0x4\r\n", "body"), Control: "post"},
		{Name: "length with words", Send: post("Content-Length: 4 x\r\n", "body"), Control: "post"},
		{Name: "length empty", Send: post("Content-Length: \r\n", "body"), Control: "post"},
		{Name: "length huge", Send: post("Content-Length: 99999999999999999999\r\n", "body"), Control: "post"},
		{Name: "length with a space before its colon", Send: post("Content-Length : 4\r\n", "body"), Control: "post"},
		{Name: "chunked", Send: post("Transfer-Encoding: chunked\r\n", "4;x=y\r\nbody\r\n0\r\nT: x\r\n\r\n"), Reach: okAt + ":80"},
		{Name: "chunked upper case", Send: post("transfer-encoding: CHUNKED\r\n", "0\r\n\r\n"), Reach: okAt + ":80"},
		{Name: "coding twice", Send: post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), Control: "chunked"},
		{Name: "coding list", Send: post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), Control: "chunked"},
		{Name: "coding identity", Send: post("Transfer-Encoding: identity\r\n", "0\r\n\r\n"), Control: "chunked"},
		{Name: "coding unknown", Send: post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), Control: "chunked"},
		{Name: "coding in http/1.0", Send: strings.Replace(post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), "HTTP/1.1", "HTTP/1.0", 1), Control: "chunked"},
		{Name: "chunk size none", Send: post("Transfer-Encoding: chunked\r\n", "zz\r\nbody\r\n0\r\n\r\n"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "chunked"},
		{Name: "chunk size huge", Send: post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\nbody\r\n0\r\n\r\n"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "chunked"},
		{Name: "chunk of bare line feeds", Send: post("Transfer-Encoding: chunked\r\n", "4\nbody\n0\n\n"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "chunked"},
		{Name: "folded field", Send: post("X-A: b\r\n c\r\nContent-Length: 4\r\n", "body"), Control: "post"},
		{Name: "folded first field", Send: "GET http://ok.test/ HTTP/1.1\r\n Host: no.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "bare line feeds", Send: "GET http://ok.test/ HTTP/1.1\nHost: ok.test\nConnection: close\n\n", Control: "get"},
		{Name: "bare line feed in a field", Send: get("http://ok.test/", "X-A: b\nX-B: c\r\n"), Control: "get"},
		{Name: "bare carriage return in a field", Send: get("http://ok.test/", "X-A: b\rX-B: c\r\n"), Control: "get"},
		{Name: "nul in a field", Send: get("http://ok.test/", "X-A: b\x00c\r\n"), Control: "get"},
		{Name: "field without colon", Send: get("http://ok.test/", "X-A\r\n"), Control: "get"},
		{Name: "field without name", Send: get("http://ok.test/", ": x\r\n"), Control: "get"},
		{Name: "field name with a space", Send: get("http://ok.test/", "X A: b\r\n"), Control: "get"},
		{Name: "two equal hosts", Send: get("http://ok.test/", "Host: ok.test\r\n"), Control: "get"},
		{Name: "host is a list", Send: "GET http://ok.test/ HTTP/1.1\r\nHost: ok.test, no.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "no host", Send: "GET http://ok.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", Reach: okAt + ":80", Host: "ok.test"},
		{Name: "two spaces in request line", Send: "GET  http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "http/1.2", Send: "GET http://ok.test/ HTTP/1.2\r\nHost: ok.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "http/2.0", Send: "GET http://ok.test/ HTTP/2.0\r\nHost: ok.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "version in lower case", Send: "GET http://ok.test/ http/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "version with more digits", Send: "GET http://ok.test/ HTTP/1.10\r\nHost: ok.test\r\nConnection: close\r\n\r\n", Control: "get"},
		{Name: "get userinfo of listed", Send: get("http://user:word@ok.test/"), Control: "get"},
		{Name: "get fragment", Send: get("http://ok.test/#part"), Control: "get"},
		{Name: "get empty port", Send: get("http://ok.test:/"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "get"},
		{Name: "get port with zero", Send: get("http://ok.test:080/"), Either: okAt + ":80", Lookups: []string{"ok.test"}, Control: "get"},
		{Name: "get scheme upper case", Send: strings.Replace(get("http://ok.test/"), "http:", "HTTP:", 1), Reach: okAt + ":80"},
		{Name: "get query without path", Send: get("http://ok.test?x=http://no.test/"), Reach: okAt + ":80"},
		{Name: "get one slash", Send: get("http:/ok.test/"), Control: "get"},
		{Name: "connect with empty body", Send: "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\nContent-Length: 0\r\n\r\n", Inside: hello("ok.test"), Reach: okAt + ":443"},
		{Name: "connect with length", Send: "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\nContent-Length: 300\r\n\r\n", Inside: hello("ok.test"), Control: "connect"},
		{Name: "connect with chunks", Send: "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\nTransfer-Encoding: chunked\r\n\r\n", Inside: hello("ok.test"), Control: "connect"},
		{Name: "connect lower case", Send: strings.Replace(connect("ok.test:443"), "CONNECT", "connect", 1), Inside: hello("ok.test"), Control: "connect"},
		{Name: "connect path", Send: connect("ok.test:443/"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect port with zero", Send: connect("ok.test:0443"), Inside: hello("ok.test"), Either: okAt + ":443", Lookups: []string{"ok.test"}, Control: "connect"},
		{Name: "connect bracketed v4", Send: connect("[198.51.100.40]:443"), Inside: hello(""), Control: "connect address"},
		{Name: "connect mapped of listed", Send: connect("[::ffff:198.51.100.40]:443"), Inside: hello(""), Reach: "198.51.100.40:443"},
		{Name: "get mapped of listed", Send: get("http://[::ffff:198.51.100.40]/"), Reach: "198.51.100.40:80"},
		{Name: "expect", Send: post("Content-Length: 4\r\nExpect: 100-continue\r\n", "body"), Reach: okAt + ":80"},
		{Name: "expect more", Send: post("Content-Length: 4\r\nExpect: miracle\r\n", "body"), Control: "expect"},
		{Name: "big head", Send: get("http://ok.test/", "X-A: "+strings.Repeat("a", 60<<10)+"\r\nX-B: "+strings.Repeat("a", 20<<10)+"\r\n"), Control: "get"},
		{Name: "many fields", Send: get("http://ok.test/", strings.Repeat("X-A: b\r\n", 1000)), Control: "get"},
		{Name: "hop-by-hop", Send: get("http://ok.test/", "Connection: X-Hop\r\nX-Hop: CANARY1\r\nProxy-Authorization: Basic CANARY2\r\nProxy-Connection: CANARY3\r\nKeep-Alive: CANARY4\r\nTE: CANARY5\r\nUpgrade: CANARY6\r\nX-Forwarded-For: CANARY7\r\nX-End: END\r\n"),
			Reach: okAt + ":80", Hidden: []string{"CANARY1", "CANARY2", "CANARY3", "CANARY4", "CANARY5", "CANARY6", "CANARY7"}},

		// A connection that is used again: each request is judged.
		{Name: "kept", Send: keep("http://ok.test/"), Reach: okAt + ":80", Then: get("http://ok.test/2"), ThenStatus: 200},
		{Name: "kept then no", Send: keep("http://ok.test/"), Reach: okAt + ":80", Then: get("http://canary.no.test/"), ThenStatus: 403},
		{Name: "kept then connect no", Send: keep("http://ok.test/"), Reach: okAt + ":80", Then: connect("canary.no.test:443"), ThenStatus: 403},
		{Name: "pipelined then no", Send: keep("http://ok.test/") + get("http://canary.no.test/"), Reach: okAt + ":80", ThenStatus: 403},
		{Name: "refused then listed", Send: keep("http://canary.no.test/"), Status: 403, Then: get("http://canary.no.test/2"), ThenStatus: 403, Control: "kept"},
		{Name: "request in a body", Send: strings.Replace(post("Content-Length: "+strconv.Itoa(len(keep("http://canary.no.test/")))+"\r\n", keep("http://canary.no.test/")), "Connection: close\r\n", "", 1),
			Reach: okAt + ":80", Then: get("http://ok.test/2"), ThenStatus: 200},
		{Name: "request in a chunk", Send: strings.Replace(post("Transfer-Encoding: chunked\r\n", strconv.FormatInt(int64(len(keep("http://canary.no.test/"))), 16)+"\r\n"+keep("http://canary.no.test/")+"\r\n0\r\n\r\n"), "Connection: close\r\n", "", 1),
			Reach: okAt + ":80", Then: get("http://ok.test/2"), ThenStatus: 200},

		// The gate's own pages.
		{Name: "manager origin form", Send: "GET /squid-internal-mgr/menu HTTP/1.1\r\nHost: " + front + "\r\n\r\n", Control: "get"},
		{Name: "manager host name", Send: "GET /squid-internal-mgr/info HTTP/1.1\r\nHost: aisb-gate\r\n\r\n", Control: "get"},
		{Name: "manager absolute", Send: get("http://" + front + "/squid-internal-mgr/info"), Status: 403, Control: "get"},
		{Name: "manager by visible name", Send: get("http://aisb-gate/squid-internal-mgr/config"), Status: 403, Control: "get"},
		{Name: "manager cache_object", Send: "GET cache_object://" + front + "/info HTTP/1.1\r\nHost: x\r\n\r\n", Control: "get"},
		{Name: "manager via listed host", Send: get("http://ok.test/squid-internal-mgr/menu"), Status: 403, Control: "get"},
		{Name: "internal static", Send: "GET /squid-internal-static/icons/unknown.gif HTTP/1.1\r\nHost: aisb-gate\r\n\r\n", Control: "get"},
		{Name: "internal periodic", Send: "GET /squid-internal-periodic/store_digest HTTP/1.1\r\nHost: aisb-gate\r\n\r\n", Control: "get"},
		{Name: "purge", Send: "PURGE http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", Control: "get"},
		{Name: "gate through itself", Send: connect(front), Inside: Inside{Raw: get("http://no.test/")}, Status: 403, Control: "connect"},
	}
	for _, in := range inward {
		name := in.name + ".wild.test"
		rows = append(rows,
			Row{Name: "get inward " + in.name, Send: get("http://" + name + "/"), Status: 403, Lookups: []string{name}, Control: "get wild"},
			Row{Name: "connect inward " + in.name, Send: connect(name + ":443"), Inside: hello(name), Status: 403, Lookups: []string{name}, Control: "connect wild"})
	}
	return rows
}

// Check reports what is wrong with the table itself: a refusal without a
// control, a control that does not pass, a name used twice.
func Check(rows []Row) error {
	byName := map[string]Row{}
	for _, r := range rows {
		if _, dup := byName[r.Name]; dup {
			return fmt.Errorf("row %q: there twice", r.Name)
		}
		byName[r.Name] = r
	}
	for _, r := range rows {
		if r.Reach == "" && byName[r.Control].Reach == "" {
			return fmt.Errorf("row %q: control %q is no row that passes", r.Name, r.Control)
		}
	}
	return nil
}
