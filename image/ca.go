// An extra CA, as the user's file has it.

package image

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// splitCA takes a PEM file apart into single certificates, each in PEM without
// the text around it: update-ca-certificates wants one a file. A file that
// holds anything but certificates is refused; a private key in it would end up
// in an image.
func splitCA(file []byte) ([][]byte, error) {
	var out [][]byte
	rest := file
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("CA file: it holds a %+q: leave only the certificates in it", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("CA file: certificate %d: %w", len(out)+1, err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if len(out) == 0 {
		return nil, errors.New("CA file: it holds no certificate in PEM form")
	}
	// The decoder skips what is not whole.
	if n := bytes.Count(file, []byte("-----BEGIN")); n != len(out) {
		return nil, fmt.Errorf("CA file: only %d of its %d blocks are whole", len(out), n)
	}
	return out, nil
}
