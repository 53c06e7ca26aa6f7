// What a gate under test has decided.

package gatetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ai-sandbox/gate"
)

// A Record collects decisions.
type Record struct {
	mu   sync.Mutex
	list []gate.Decision
}

// Add keeps one.
func (r *Record) Add(d gate.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, d)
}

// All are those so far.
func (r *Record) All() []gate.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Refused are the hosts that were refused so far.
func (r *Record) Refused() []gate.RefusedHost { return gate.Refused(r.All()) }

// Logged: every request is one decision, whatever its end was, and nothing of it but
// its host is told. The gate at addr lets Allow and AllowPrivate through; decided tells
// what it has decided so far.
func Logged(t *testing.T, w *World, engine, addr string, decided func() []gate.Decision) {
	rules := gate.NewRules(Allow, AllowPrivate)
	get := func(host string) string {
		return "GET http://" + host + "/CANARY?CANARY=CANARY HTTP/1.1\r\nHost: " + host + "\r\nX-Secret: CANARY\r\nAuthorization: CANARY\r\nConnection: close\r\n\r\n"
	}
	connect := func(host string) string {
		return "CONNECT " + host + " HTTP/1.1\r\nProxy-Authorization: CANARY\r\n\r\n"
	}
	seen := len(decided())
	for _, c := range []struct {
		name string
		row  Row
		want string
	}{
		{"get", Row{Send: get("OK.test.")}, "GET ok.test:80 allowed allow ok.test"},
		{"get below", Row{Send: get("www.wild.test")}, "GET www.wild.test:80 allowed allow .wild.test"},
		{"get private", Row{Send: get("db.test")}, "GET db.test:80 allowed allow_private db.test"},
		{"connect", Row{Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "ok.test"}}, "CONNECT ok.test:443 allowed allow ok.test"},
		{"get no", Row{Send: get("no.test")}, "GET no.test:80 refused name"},
		{"connect no", Row{Send: connect("no.test:443")}, "CONNECT no.test:443 refused name"},
		{"connect port", Row{Send: connect("ok.test:8444")}, "CONNECT ok.test:8444 refused port"},
		{"sni no", Row{Send: connect("ok.test:443"), Inside: Inside{TLS: true, SNI: "no.test"}}, "CONNECT ok.test:443 no.test refused sni"},
		{"no tls", Row{Send: connect("ok.test:443"), Inside: Inside{Raw: "SSH-2.0-x\r\nCANARY\r\n"}}, "CONNECT ok.test:443 refused nottls"},
		{"private", Row{Send: get("ten.wild.test")}, "GET ten.wild.test:80 refused private"},
		{"lookup", Row{Send: get("servfail.wild.test")}, "GET servfail.wild.test:80 refused lookup"},
		{"nobody there", Row{Send: get("unserved.wild.test")}, "GET unserved.wild.test:80 failed allow .wild.test"},
		{"connect to nobody", Row{Send: connect("unserved.wild.test:443"), Inside: Inside{TLS: true, SNI: "unserved.wild.test"}}, "CONNECT unserved.wild.test:443 failed allow .wild.test"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			c.row.Exchange(addr)
			var list []gate.Decision
			for end := time.Now().Add(patience); len(list) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				list = decided()[seen:]
			}
			// A second line of the same would follow at once.
			for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				list = decided()[seen:]
			}
			seen += len(list)
			if len(list) != 1 {
				t.Fatalf("%d decisions: %+v", len(list), list)
			}
			e := list[0].Event(rules)
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			sni := ""
			if e.SNI != "" {
				sni = e.SNI + " "
			}
			got := fmt.Sprintf("%s %s:%d %s%s %s", e.Method, strings.TrimSuffix(strings.ToLower(e.Host), "."), e.Port, sni, e.Verdict, e.Rule)
			if engine == Squid && c.name == "connect to nobody" {
				c.want = strings.Replace(c.want, "failed", "allowed", 1) // it opens the tunnel before it connects
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.Contains(string(text), "CANARY") || strings.ContainsFunc(string(text), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("it tells too much: %s", text)
			}
			if e.Verdict == gate.VerdictAllowed && e.BytesIn == 0 && c.name != "connect to nobody" {
				t.Errorf("nothing came in: %s", text)
			}
			if age := time.Since(e.Time); age < -time.Second || age > time.Minute {
				t.Errorf("it is %v old: %s", age, text)
			}
		})
	}
}

// Learn: with no list at all everything public is let through, and nothing inward. The
// gate at addr learns.
func Learn(t *testing.T, w *World, addr string) {
	for name, reach := range map[string]string{
		"get no": "198.51.100.20:80", "connect no": "198.51.100.20:443", "connect 8443 of other": okAt + ":8443", "sni no": okAt + ":443",
		"get address with ptr": "198.51.100.41:80", "get": okAt + ":80", "connect": okAt + ":443",
		"get inward ten": "", "connect inward loopback": "", "get inward metadata": "", "get metadata": "", "get listed address that is private": "", "get servfail": "", "ssh in 443": "",
	} {
		r, err := RowOf(addr, name)
		if err != nil {
			t.Fatal(err)
		}
		o := r.play(w, addr)
		switch {
		case reach == "" && len(o.hits) > 0:
			t.Errorf("%s: a far server was reached: %s", name, o)
		case reach != "" && (len(o.hits) == 0 || o.hits[0].At != reach):
			t.Errorf("%s: want %s: %s", name, reach, o)
		}
	}
}
