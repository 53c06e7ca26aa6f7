// What every engine does that no single row shows.

package gatetest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ai-sandbox/gate"
	"ai-sandbox/policy"
)

// RowOf is the row of that name.
func RowOf(addr, name string) (Row, error) {
	for _, r := range Rows(addr) {
		if r.Name == name {
			return r, nil
		}
	}
	return Row{}, fmt.Errorf("no row %q", name)
}

// Rebinding: a name whose answer changes between the check and the connection
// leads nowhere inward. The gate lets Allow through.
func Rebinding(t *testing.T, w *World, addr string) {
	const public, inward = "198.51.100.11", "127.0.0.9"
	var lookups atomic.Int32
	w.SetFunc("flap.wild.test", func(q dnsmessage.Type) Answer {
		if q != dnsmessage.TypeA {
			return Answer{}
		}
		if lookups.Add(1)%3 == 0 { // a gate may look twice
			return Answer{Addrs: []string{inward}}
		}
		return Answer{Addrs: []string{public}}
	})
	w.Reset()
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		for _, r := range []Row{
			{Send: "GET http://flap.wild.test/ HTTP/1.1\r\nHost: flap.wild.test\r\nConnection: close\r\n\r\n"},
			{Send: "CONNECT flap.wild.test:443 HTTP/1.1\r\n\r\n", Inside: Inside{TLS: true, SNI: "flap.wild.test"}},
		} {
			r.Exchange(addr)
		}
	}
	// A client that lets the first answer expire before it says hello.
	for range 3 {
		r := Row{Send: "CONNECT flap.wild.test:443 HTTP/1.1\r\n\r\n", Inside: Inside{TLS: true, SNI: "flap.wild.test", Wait: 1500 * time.Millisecond}}
		r.Exchange(addr)
		r = Row{Send: "CONNECT flap.wild.test:80 HTTP/1.1\r\n\r\n", Inside: Inside{Raw: "GET / HTTP/1.0\r\n\r\n", Wait: 1500 * time.Millisecond}}
		r.Exchange(addr)
	}
	good := 0
	for _, h := range w.Hits() {
		if strings.HasPrefix(h.At, inward) {
			t.Fatalf("rebound to %s", h.At)
		}
		good++
	}
	if good < 10 || lookups.Load() < 10 {
		t.Fatalf("%d connections and %d lookups are too few to show anything", good, lookups.Load())
	}
	t.Logf("%d connections, %d lookups", good, lookups.Load())
}

// SaysNothing: neither the far server nor the sandbox learns about the host. The
// gate lets Allow through.
func SaysNothing(t *testing.T, w *World, addr string) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, send := range []string{
		"GET http://ok.test/path?secret=CANARY HTTP/1.1\r\nHost: ok.test\r\nX-Forwarded-For: 192.0.2.1\r\nConnection: close\r\n\r\n",
		"GET http://no.test/path?secret=CANARY HTTP/1.1\r\nHost: no.test\r\nConnection: close\r\n\r\n",
		"GET http://servfail.wild.test/path?secret=CANARY HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET http://unserved.wild.test/path?secret=CANARY HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"CONNECT no.test:443 HTTP/1.1\r\n\r\n",
		"GET /?secret=CANARY HTTP/1.1\r\nHost: no.test\r\n\r\n",
		"nonsense\r\n\r\n",
	} {
		w.Reset()
		_, got, _ := Row{Send: send}.Exchange(addr)
		if got == "" {
			t.Errorf("%q: no answer", send)
		}
		for _, h := range w.Hits() {
			got += "\n" + h.Data
		}
		for _, word := range []string{host, "squid/", "Via:", "X-Forwarded-For", "X-Cache", "127.0.0.1", "1000", "proxy", "webmaster", "root"} {
			if word != "localhost" && strings.Contains(got, word) {
				t.Errorf("%q: %q is said in %q", send, word, got)
			}
		}
	}
}

// Streams: an answer that comes bit by bit is passed on bit by bit, in a tunnel or not,
// and so are the frames of a WebSocket in both directions. The gate lets Allow through.
func Streams(t *testing.T, w *World, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "GET http://ok.test/stream HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	streams(t, w, bufio.NewReader(c))

	in := tunnel(t, addr)
	io.WriteString(in, "GET /stream HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	streams(t, w, bufio.NewReader(in))

	ws := tunnel(t, addr)
	io.WriteString(ws, "GET /ws HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(ws)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	for i := range 5 {
		frame := []byte{0x82, 3, 'a', 'b', byte(i)}
		if _, err := ws.Write(frame); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(r, got); err != nil || !slices.Equal(got, frame) {
			t.Fatalf("frame %d: %x, %v", i, got, err)
		}
	}
}

// tunnel is TLS to ok.test through the gate.
func tunnel(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(c, "CONNECT ok.test:443 HTTP/1.1\r\n\r\n")
	r := bufio.NewReader(c)
	for line := ""; strings.TrimSpace(line) != "" || line == ""; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	s := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	return s
}

func streams(t *testing.T, w *World, r *bufio.Reader) {
	t.Helper()
	for _, want := range []string{"data: 1", "data: 2"} {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %q: %v", want, err)
			}
			if strings.TrimSpace(line) == want {
				break
			}
		}
		if want == "data: 1" {
			w.Release <- struct{}{}
		}
	}
}

// EmptyList: nothing passes a gate with no entry, and it still answers.
func EmptyList(t *testing.T, w *World, addr string) {
	for _, name := range []string{"get", "connect", "get address", "get private"} {
		r, err := RowOf(addr, name)
		if err != nil {
			t.Fatal(err)
		}
		if o := r.play(w, addr); o.status != 403 || len(o.hits) > 0 || len(o.queries) > 0 {
			t.Errorf("%s: %s", name, o)
		}
	}
}

// Suggestions: what is said would let a refused host through, does. The gate at
// addr lets Allow through; refused tells what it refused, and start starts
// another one.
func Suggestions(t *testing.T, w *World, addr string, refused func() []gate.RefusedHost, start func(allow, private []policy.Entry) (addr string)) {
	names := []string{"get no", "connect no", "get no prefix", "connect 8443 of other", "sni no", "get address with ptr", "get v6 unlisted",
		"get listed address that is private", "get metadata", "get inward ten", "connect inward loopback", "get inward metadata", "get servfail"}
	var rows []Row
	for _, n := range names {
		r, err := RowOf(addr, n)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Judge(w, addr); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	// squid writes a line when it is done with a request, which is after
	// its client is.
	list := refused()
	for end := time.Now().Add(patience); len(list) < len(names)-1 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		list = refused()
	}
	allow, private := slices.Clone(Allow), []policy.Entry(nil)
	var flags []string
	for _, h := range list {
		flags = append(flags, fmt.Sprintf("%d %s|%s", h.Count, h.AllowFlag, h.Why))
		flag, entry, ok := strings.Cut(h.AllowFlag, " ")
		if !ok {
			continue
		}
		e, err := policy.ParseEntry(entry)
		if err != nil {
			t.Fatal(err)
		}
		if flag == "--allow" {
			allow = append(allow, e)
		} else {
			private = append(private, e)
		}
	}
	want := []string{
		"2 --allow canary.no.test|", "1 --allow notok.test|", "1 --allow ok.test:8443|", "1 --allow no.test|", "1 --allow 198.51.100.41|", "1 --allow 2001:db8::41|",
		"1 --allow-private 10.1.2.3|", "1 --allow-private 169.254.169.254|", "1 --allow-private ten.wild.test|", "1 --allow-private loopback.wild.test|",
		"1 |it leads to an address that opens only when --allow-private spells it out", "1 |it does not resolve",
	}
	// squid has two logs, and so an order of its own.
	slices.Sort(flags)
	slices.Sort(want)
	if !slices.Equal(flags, want) {
		t.Errorf("refused:\n%s\nwant:\n%s", strings.Join(flags, "\n"), strings.Join(want, "\n"))
	}
	addr = start(allow, private)
	for _, r := range rows[:len(rows)-2] {
		if o := r.play(w, addr); len(o.hits) == 0 {
			t.Errorf("%s: still refused with its entry: %s", r.Name, o)
		}
	}
}

var brackets = strings.NewReplacer("[", "", "]", "")

// Pages: what a refused client reads names the rule and what to ask for, and proposes no
// more than a list can have, whatever the engine. The gate at addr lets Allow and
// AllowPrivate through; session is what the user calls it, or "".
func Pages(t *testing.T, w *World, addr, session string) {
	w.Set("a_b.wild.test", "10.1.2.3")
	for _, c := range []struct {
		reason, host string
		ports        []uint16
	}{
		{gate.ReasonName, "no.test", []uint16{80, 443, 8080}},
		{gate.ReasonName, "a--b.no.test", []uint16{80}},
		{gate.ReasonName, strings.Repeat("a", 63) + ".no.test", []uint16{80}},
		{gate.ReasonPort, "no.test", []uint16{22, 65535}},
		{gate.ReasonName, "198.51.100.41", []uint16{80, 8080}},
		{gate.ReasonName, "2001:db8::41", []uint16{80, 8080}},
		{gate.ReasonPort, "2001:db8::41", []uint16{22}},
		{gate.ReasonName, "10.9.9.9", []uint16{80, 8080}},
		{gate.ReasonName, "169.254.1.1", []uint16{443}},
		{gate.ReasonName, "::1", []uint16{80}},
		{gate.ReasonPort, "127.0.0.1", []uint16{22}},
		{gate.ReasonName, "0.0.0.0", []uint16{80, 8080}},
		{gate.ReasonPort, "224.0.0.1", []uint16{22}},
		{gate.ReasonName, "localhost", []uint16{80, 8080}},
		{gate.ReasonPort, "db", []uint16{22}},
		{gate.ReasonName, "x.localhost", []uint16{80}},
		{gate.ReasonName, "a_b.test", []uint16{80}},
		{gate.ReasonName, "-x.test", []uint16{80, 8080}},
		{gate.ReasonName, "x-.test", []uint16{80}},
		{gate.ReasonName, "x.test.1", []uint16{80}},
		{gate.ReasonName, "x.0x7f", []uint16{80}},
		{gate.ReasonName, strings.Repeat("a", 64) + ".test", []uint16{80}},
		{gate.ReasonName, strings.Repeat("a.", 125) + "test", []uint16{80}},
		{gate.ReasonPrivate, "ten.wild.test", []uint16{80, 443}},
		{gate.ReasonPrivate, "10.1.2.3", []uint16{80}},
		{gate.ReasonPrivate, "a_b.wild.test", []uint16{80}},
	} {
		for _, port := range c.ports {
			want := gate.Page(c.reason, session, c.host, port)
			// Why it is no name of a list is said in more ways than squid has.
			most, odd, found := strings.Cut(want, "no entry can name it: ")
			if found && !strings.HasPrefix(odd, "it is a single label") {
				want = most + "no entry can name it: "
			}
			if dead := strings.Contains(want, "no connection can go there"); (found || dead) == strings.Contains(want, "ask the user for") {
				t.Errorf("%s:%d: %s", c.host, port, want)
			}
			at := net.JoinHostPort(c.host, fmt.Sprint(port))
			for _, send := range []string{
				"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\nConnection: close\r\n\r\n",
				"CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\nConnection: close\r\n\r\n",
			} {
				status, got, err := Row{Send: send}.Exchange(addr)
				// One of IPv6 is an entry with brackets, too.
				want, got := brackets.Replace(want), brackets.Replace(got)
				if status != http.StatusForbidden || !strings.Contains(got, want) || found && strings.Contains(got, "ask the user for") {
					t.Errorf("%.80q: %d, %v\n got %s\nwant %s", send, status, err, got, want)
				}
			}
		}
	}
}
