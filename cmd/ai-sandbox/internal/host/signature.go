// OpenPGP signatures, as gpgv checks them: it reads the keyrings that people have, and
// knows of keys that have expired or were revoked.

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// verifyTime bounds the check of one signature.
const verifyTime = 30 * time.Second

// armor begins a key in text form, which gpgv does not read (RFC 9580, 6.2).
const armor = "-----BEGIN PGP"

// VerifySignature checks a detached OpenPGP signature of data against the keys of a
// keyring, which is binary (gpg --export) or a keybox, and returns the fingerprint of the
// primary key that made it. A key that has expired or was revoked counts for nothing.
func VerifySignature(ctx context.Context, f Facts, keyring, data, signature []byte) (signer string, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(keyring), []byte(armor)) {
		return "", errors.New("the keyring is in text form: make it binary with gpg --dearmor")
	}
	gpgv := find("gpgv", f)
	if gpgv == "" {
		return "", errors.New("gpgv, which checks it, is not installed: install gpgv (on Fedora: gnupg2)")
	}
	dir, remove, err := TempDir("signature")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	files := map[string][]byte{"keyring": keyring, "signature": signature, "data": data}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, fmt.Errorf("gpgv takes longer than %s", verifyTime))
	defer cancel()
	// With a slash: a name alone would be looked for in its home.
	cmd := exec.CommandContext(ctx, gpgv, "--homedir", dir, "--status-fd", "1", "--keyring", filepath.Join(dir, "keyring"),
		filepath.Join(dir, "signature"), filepath.Join(dir, "data"))
	cmd.Env = []string{"LC_ALL=C", "PATH=" + strings.Join(f.SearchPath, ":"), "HOME=" + dir, "GNUPGHOME=" + dir}
	cmd.Dir = dir
	var status, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &status, &said
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", fmt.Errorf("run gpgv: %w", err)
	}
	signer, why := readStatus(status.String())
	if why == nil && err != nil {
		why = fmt.Errorf("gpgv ends with %d: %s", exit.ExitCode(), strings.Join(strings.Fields(said.String()), " "))
	}
	if why != nil {
		return "", why
	}
	return signer, nil
}

// readStatus reads what gpgv tells programs (DETAILS in GnuPG's documentation): one
// signature that is not good is enough to refuse them all.
func readStatus(status string) (signer string, err error) {
	good := 0
	for line := range strings.Lines(status) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "[GNUPG:]" {
			continue
		}
		switch key := ""; f[1] {
		case "GOODSIG":
			good++
		case "VALIDSIG":
			if len(f) < 3 {
				return "", fmt.Errorf("gpgv says %+q, which is not understood", line)
			}
			signer = f[len(f)-1] // the primary key; before version 2 only f[2] was there
		case "BADSIG":
			return "", errors.New("the signature is not of this list: one of the two was changed")
		case "NO_PUBKEY", "ERRSIG", "EXPKEYSIG", "REVKEYSIG", "EXPSIG":
			if len(f) > 2 {
				key = f[2]
			}
			return "", fmt.Errorf("%s: %+q", map[string]string{
				"NO_PUBKEY": "it is signed with a key that is not in the keyring", "ERRSIG": "it is signed with a key that is not in the keyring, or in a way that gpgv does not know",
				"EXPKEYSIG": "it is signed with a key that has expired", "REVKEYSIG": "it is signed with a key that was revoked", "EXPSIG": "its signature has expired",
			}[f[1]], key)
		}
	}
	if good == 0 || signer == "" {
		return "", errors.New("it has no signature that gpgv understands")
	}
	return signer, nil
}
