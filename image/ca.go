// An extra CA, as the user's file has it.

package image

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// A CA is the certificates that a user's file holds, each in PEM form without the
// text around it: update-ca-certificates wants one a file. nil is none.
type CA [][]byte

// PEM is all of them, one after the other.
func (c CA) PEM() []byte { return bytes.Join(c, nil) }

// ParseCA takes a PEM file apart. A file that holds anything but certificates is
// refused; a private key in it would end up in an image. The error says what the
// file does ("holds no certificate").
func ParseCA(file []byte) (CA, error) {
	var out CA
	rest := file
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %+q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, fmt.Errorf("holds a certificate, number %d, that can't be parsed: %w", len(out)+1, err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if len(out) == 0 {
		return nil, errors.New("holds no certificate")
	}
	// The decoder skips what is not whole.
	if n := bytes.Count(file, []byte("-----BEGIN")); n != len(out) {
		return nil, fmt.Errorf("holds %d blocks, of which only %d are whole", n, len(out))
	}
	return out, nil
}
