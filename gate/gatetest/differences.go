// Where the engines differ, and why that is right.

package gatetest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The engines that the table runs against.
const (
	Squid   = "squid"
	Builtin = "builtin"
)

// A Difference is a row on which an engine does not do what the table says.
type Difference struct {
	Row    string
	Engine string
	// Does is what it does instead, and Why the reason; for the published table.
	Does, Why string
	// Instead makes the row what the engine does.
	Instead func(*Row)
}

// reaches makes a refusal a row that is let through to a far server.
func reaches(at string) func(*Row) {
	return func(r *Row) { r.Reach, r.Status, r.Ended = at, 0, false }
}

// mutely is reaches for a far server that has nothing to say to it.
func mutely(at string) func(*Row) {
	return func(r *Row) { reaches(at)(r); r.Mute = true }
}

// late takes the row's time limit away.
func late(r *Row) { r.Within = 0 }

// open leaves the tunnel as it is, for as long as a client waits that is not as patient.
func open(r *Row) { r.Open, r.Patience = true, 8*time.Second }

// Why squid is laxer. What it is told in one way or another, it passes on in one
// of its own, so that no far server reads it otherwise than squid did.
const (
	ownForm   = "squid takes one of the two readings and passes the request on in its own form; the rules saw the same reading"
	lastName  = "squid goes by the last name in the hello; a TLS server refuses such a hello (RFC 8446, section 4.2)"
	noManager = "builtin has no such pages and no cache: it is the listed host's business"
)

// Differences are all there are.
var Differences = []Difference{
	{"connect server first on other port", Squid, "connects after 5 s", "it waits so long for the client; builtin does for 0.3 s, and still judges a hello that comes later", late},
	{"connect silent resolver", Squid, "refuses after 16 s", "its own limits for a lookup add up; builtin's is 10 s", late},
	{"manager via listed host", Builtin, "passes it on", noManager, reaches(okAt + ":80")},
	{"purge", Builtin, "passes it on", noManager, reaches(okAt + ":80")},

	{"sni twice no first", Squid, "lets it through", lastName, mutely(okAt + ":443")},
	{"sni of two names", Squid, "lets it through", lastName, mutely(okAt + ":443")},
	{"sni nul after", Squid, "lets it through", "it compares up to the NUL; no server has such a name", mutely(okAt + ":443")},
	{"sni star", Squid, "lets it through", "it is under a listed domain, and no server has such a name", mutely(okAt + ":443")},
	{"sni leading dot", Squid, "lets it through", "it is under a listed domain, and no server has such a name", mutely(okAt + ":443")},
	{"alert in 443", Squid, "leaves the connection open", "it waits for more; nothing is connected to", open},
	{"half a hello in 443", Squid, "leaves the connection open", "it waits for more; nothing is connected to", open},

	{"length and chunks", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"chunks and length", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"two equal lengths", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"list of lengths", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"coding in http/1.0", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"folded field", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"folded first field", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"bare line feeds", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"bare line feed in a field", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"bare carriage return in a field", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"two equal hosts", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"host is a list", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"two spaces in request line", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"http/1.2", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"get userinfo of listed", Squid, "passes it on", "it makes a field Authorization of the user's name, for the host that was judged", reaches(okAt + ":80")},
	{"get fragment", Squid, "passes it on", ownForm, reaches(okAt + ":80")},
	{"many fields", Squid, "passes it on", "it bounds a head's bytes alone; builtin takes 128 fields", reaches(okAt + ":80")},
	{"connect with length", Squid, "opens the tunnel", "what follows is judged as the tunnel's content", reaches(okAt + ":443")},
	{"connect with chunks", Squid, "opens the tunnel", "what follows is judged as the tunnel's content", reaches(okAt + ":443")},
	{"connect lower case", Squid, "opens the tunnel", "it reads a method in any case; what follows is judged as the tunnel's content", reaches(okAt + ":443")},
	{"connect bracketed v4", Squid, "opens the tunnel", "it judges the address in the brackets", reaches("198.51.100.40:443")},
}

func difference(row, engine string) (Difference, bool) {
	i := slices.IndexFunc(Differences, func(d Difference) bool { return d.Row == row && d.Engine == engine })
	if i < 0 {
		return Difference{}, false
	}
	return Differences[i], true
}

// Published is the table of Differences in docs/gate-engines.md.
func Published() string {
	var b strings.Builder
	b.WriteString("| row | engine | what it does | why |\n| --- | --- | --- | --- |\n")
	for _, d := range Differences {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.Row, d.Engine, d.Does, d.Why)
	}
	return b.String()
}
