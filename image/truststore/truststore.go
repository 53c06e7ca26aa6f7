// Package truststore writes CA certificates as Java reads them: a PKCS #12 file without
// a password, which JDK 8u301, 11.0.12 and all from 17 on take (JDK-8231107). It is the
// importer of go-pkcs12.
package truststore

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"software.sslmate.com/src/go-pkcs12"
)

// New is a store of the certificates in a PEM bundle. They are not parsed: a machine's
// own bundle has a hundred and more, and a start waits for this.
func New(bundle []byte) ([]byte, error) {
	var entries []pkcs12.TrustStoreEntry
	seen := map[string]bool{}
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || seen[string(block.Bytes)] {
			continue
		}
		seen[string(block.Bytes)] = true
		// Java takes two of a name for one.
		entries = append(entries, pkcs12.TrustStoreEntry{Cert: &x509.Certificate{Raw: block.Bytes}, FriendlyName: fmt.Sprintf("ca-%d", len(entries))})
	}
	if len(entries) == 0 {
		return nil, errors.New("make Java's trust store: there is no certificate")
	}
	out, err := pkcs12.Passwordless.EncodeTrustStoreEntries(entries, "")
	if err != nil {
		return nil, fmt.Errorf("make Java's trust store: %w", err)
	}
	return out, nil
}
