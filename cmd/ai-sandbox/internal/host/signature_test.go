package host

import (
	"strings"
	"testing"
)

func TestReadStatus(t *testing.T) {
	const key = "A5D3EF1AB3FD2ADBAFEC793D2ECABB543A0F1010"
	const (
		begin = "[GNUPG:] NEWSIG\n[GNUPG:] KEY_CONSIDERED " + key + " 0\n"
		good  = "[GNUPG:] GOODSIG 2ECABB543A0F1010 Test <t@example.com>\n"
		valid = "[GNUPG:] VALIDSIG 0123456789ABCDEF0123456789ABCDEF01234567 2026-11-30 1796009138 0 4 0 22 8 00 " + key + "\n"
	)
	if signer, err := readStatus(begin + good + valid); signer != key || err != nil {
		t.Errorf("%q, %v", signer, err)
	}
	for status, want := range map[string]string{
		"":                             "no signature",
		begin:                          "no signature",
		begin + good:                   "no signature",
		begin + valid:                  "no signature",
		"gpgv: " + good + "x " + valid: "no signature",
		begin + "[GNUPG:] BADSIG 2ECABB543A0F1010 Test\n":                         "was changed",
		begin + good + valid + begin + "[GNUPG:] BADSIG 2ECABB543A0F1010 Test\n":  "was changed",
		begin + "[GNUPG:] EXPKEYSIG 2ECABB543A0F1010 Test\n" + valid:              `has expired: "2ECABB543A0F1010"`,
		begin + "[GNUPG:] REVKEYSIG 2ECABB543A0F1010 Test\n" + valid:              "was revoked",
		begin + "[GNUPG:] EXPSIG 2ECABB543A0F1010 Test\n" + valid:                 "signature has expired",
		begin + "[GNUPG:] ERRSIG 2ECABB543A0F1010 22 8 00 1 9 -\n" + good + valid: "not in the keyring",
		begin + "[GNUPG:] NO_PUBKEY 2ECABB543A0F1010\n":                           "not in the keyring",
		begin + good + "[GNUPG:] VALIDSIG\n":                                      "not understood",
	} {
		if signer, err := readStatus(status); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", status, signer, err)
		}
	}
}

func TestVerifySignatureNeedsItsTool(t *testing.T) {
	f := Facts{SearchPath: []string{t.TempDir()}}
	if _, err := VerifySignature(t.Context(), f, []byte("k"), nil, nil); err == nil || !strings.Contains(err.Error(), "install gpgv") {
		t.Error(err)
	}
	if _, err := VerifySignature(t.Context(), f, []byte("\n-----BEGIN PGP PUBLIC KEY BLOCK-----\n"), nil, nil); err == nil || !strings.Contains(err.Error(), "--dearmor") {
		t.Error(err)
	}
}
