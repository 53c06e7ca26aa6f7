// Package gate turns egress rules into the gate's configuration, and its log
// back into decisions.
//
// The gate is two squids in one container. The front one takes the sandbox's
// requests, answers 403 to what is not on the list, and hands the rest to the second,
// by cache_peer. The second judges it once more, peeks at the TLS hello
// inside a tunnel and ends the connection when its server name is not on the
// list; nothing is decrypted and no CA exists. One squid cannot do both: on a
// port that peeks, a refused CONNECT is answered 200 and then with squid's own
// certificate.
//
// That is one of two engines. What the other one, package builtin, has in common
// with it is here, too: the addresses that no name may lead to, the log, and what a
// refused client reads.
//
// The package is pure: values in, bytes out, no process and no socket.
// conformance_test.go runs its output on a real squid (build tag squid).
package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"time"

	"ai-sandbox/policy"
)

// Where the gate's container has its directories, and what it needs to run.
const (
	// ConfDir holds Files and Cert's TLSFile; mounted read-only.
	ConfDir = "/etc/aisb/gate"
	// LogDir is where squid writes; mounted read-write.
	LogDir = "/var/log/aisb"

	// FrontConf and PeekConf are the files in ConfDir that squid is started
	// with (see Args).
	FrontConf = "front.conf"
	PeekConf  = "peek.conf"
	// TLSFile is where peek.conf expects what Cert returns.
	TLSFile = "tls.pem"

	// FrontLog and PeekLog are the refusals in LogDir, and UsedLog is what the
	// front squid let through; what the other one refuses inside a tunnel is there,
	// too (see Joiner).
	FrontLog = "access.log"
	PeekLog  = "peek.log"
	UsedLog  = "used.log"

	// ReadyHost is asked for through either port to see whether the squid
	// there is up and is ours: the answer is a 403 that holds the line
	// ReadyLine. It is never resolved.
	ReadyHost = "aisb-ready.invalid"
	// ReadyWord is what ReadyLine begins with, whatever session asks.
	ReadyWord = "aisb-gate ready"
)

// A Config is what a gate lets through, and where it listens.
type Config struct {
	// Allow and AllowPrivate are the entries of the policy. Those of
	// AllowPrivate are allowed as well, and may lead to a private or loopback
	// address; a link-local one only where an entry is that very address.
	Allow        []policy.Entry
	AllowPrivate []policy.Entry
	// Upstream is the proxy that everything else goes through, or nil.
	Upstream *Upstream
	// Session is what a user calls the session whose gate it is, or "": refusals say
	// how he can let more through while it runs.
	Session string
	// Classes are entries by number: what one of the first MaxClasses lets through leaves
	// the front squid from ClassAddr of its number, so that it can be told from others and
	// cut. An entry keeps its number while it is in use. Nil: those in use.
	Classes []policy.Entry
	// FrontPort and PeekPort are on 127.0.0.1. The sandbox reaches only the
	// front one; both apply the same rules.
	FrontPort, PeekPort uint16
	// Nonce and PolicyHash come back in the answer to the readiness probe:
	// letters, digits and ":._-" only.
	Nonce      string
	PolicyHash string

	// Dir and Logs replace ConfDir and LogDir, and Resolvers what
	// /etc/resolv.conf says; for tests, and empty otherwise.
	Dir, Logs string
	Resolvers []netip.Addr
}

// MaxClasses bounds the entries that squid tells apart: it looks at one after the other.
// all of them take it half a millisecond for a request.
const MaxClasses = 4000

// Unclassed is where what has no class comes from.
var Unclassed = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// ClassAddr is the loopback address that connections of an entry come from.
func ClassAddr(class int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 64 + byte(class>>16&0x3f), byte(class >> 8), byte(class)}) //nolint:gosec // each is a byte of it
}

// Listed is what c lets through, in the form that Classes has.
func (c Config) Listed() []policy.Entry {
	return policy.Normalise(slices.Concat(c.Allow, c.AllowPrivate))
}

// ReadyLine is what the answer to the readiness probe holds.
func (c Config) ReadyLine() string {
	return ReadyWord + " nonce=" + c.Nonce + " policy=" + c.PolicyHash
}

// CheckReady returns an error where Nonce or PolicyHash could not be told from the
// rest of an answer.
func (c Config) CheckReady() error {
	if !plain(c.Nonce, ":._-") || !plain(c.PolicyHash, ":._-") {
		return fmt.Errorf("gate nonce %q and policy hash %q: want letters and digits", c.Nonce, c.PolicyHash)
	}
	return nil
}

// Args is the command line of one squid, without the program's name; conf is
// FrontConf or PeekConf under dir (ConfDir when empty). -N keeps it one process
// in the foreground, -n gives each its own names in /dev/shm.
func Args(dir, conf string) []string {
	if dir == "" {
		dir = ConfDir
	}
	name := "aisbfront"
	if conf == PeekConf {
		name = "aisbpeek"
	}
	return []string{"-N", "-n", name, "-f", dir + "/" + conf}
}

// Cert returns the PEM of a throwaway key and certificate for the peeking port.
// squid will not open such a port without one; it is shown to no client that
// the gate lets through, and nothing trusts it.
func Cert(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the gate's key: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "aisb-gate"},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.AddDate(10, 0, 0), // a named gate stays up for long
	}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the gate's certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the gate's key: %w", err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), nil
}
