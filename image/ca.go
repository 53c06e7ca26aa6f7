// An extra CA, as the user's file has it.

package image

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
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
	var ders [][]byte
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
		ders = append(ders, block.Bytes)
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
	}
	if len(out) == 0 {
		return nil, errors.New("holds no certificate")
	}
	// The decoder skips what is not whole.
	if n := bytes.Count(file, []byte("-----BEGIN")); n != len(out) {
		return nil, fmt.Errorf("holds %d blocks, of which only %d are whole", n, len(out))
	}
	if err := checkCertificates(ders); err != nil {
		return nil, err
	}
	return out, nil
}

// checkCertificates parses all of them, several at a time: a machine's own bundle
// has a hundred and more, and a start waits for this.
func checkCertificates(ders [][]byte) error {
	const part = 32
	var wg sync.WaitGroup
	errs := make([]error, len(ders))
	for first := 0; first < len(ders); first += part {
		wg.Go(func() {
			for i := first; i < min(first+part, len(ders)); i++ {
				if _, err := x509.ParseCertificate(ders[i]); err != nil {
					errs[i] = fmt.Errorf("holds a certificate, number %d, that can't be parsed: %w", i+1, err)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
