package truststore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"
)

// What Java is to read has every certificate of the bundle once, in its order.
func TestNew(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var bundle, want []byte
	for n := range int64(3) {
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(n + 1), Subject: pkix.Name{CommonName: "the same"}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		bundle = append(append(append(bundle, "# text\n"...), block...), block...)
		want = append(want, der...)
	}
	store, err := New(bundle)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pkcs12.DecodeTrustStore(store, "")
	var got []byte
	for _, c := range certs {
		got = append(got, c.Raw...)
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d certificates, %v", len(certs), err)
	}
	if again, _ := New(bundle); !bytes.Equal(again, store) {
		t.Error("it is another one each time")
	}
	for _, none := range []string{"", "text", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))} {
		if _, err := New([]byte(none)); err == nil {
			t.Errorf("%q is taken", none)
		}
	}
}
